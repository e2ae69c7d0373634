"""Requests that hold blocks: their branches are prefilling or decoding, and some need blocks before the next step.

    prefilling    sequences with tokens that have slots but no K and V yet, first come first
    growing       branches whose next tokens have no slots yet: a full tail, one shared with a fork, a fork's own part
    decoding      one token per step; their sequences are brought up to date ("settled") only when something happens

Knows nothing of budgets, queues or policies.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial

from cache.manager import CacheManager
from cache.sequence import Sequence as CacheSequence
from cache.tokens import int32
from scheduler.decoding import Decoding
from scheduler.request import Branch, Request

Foretell = Callable[[Branch, int, int], Sequence[int]]
"""Output tokens `start` to `stop` of a branch, where they are known in advance (simulation)."""


class Running:
    """The books of what runs."""

    def __init__(self, manager: CacheManager, max_model_len: int | None, foretell: Foretell | None) -> None:
        self.manager = manager
        self.max_model_len = max_model_len
        self.foretell = foretell
        self.requests: dict[Request, None] = {}
        self.prefilling: dict[Branch, None] = {}
        self.growing: dict[Branch, int] = {}
        """Branch → the most blocks it may need for that."""
        self.decoding = Decoding(manager.block_size)
        self.num_branches = 0

    def most_tokens(self, request: Request) -> int:
        """Prompt and outputs together at which a branch ends."""
        most = len(request.prompt) + request.params.max_tokens
        return most if self.max_model_len is None else min(most, self.max_model_len)

    def start(self, request: Request) -> None:
        """The request's head holds blocks: prefill what is not computed of it."""
        assert request.head is not None
        self.requests[request] = None
        self.num_branches += request.width
        self.prefilling[request.head] = None

    def join(self, branch: Branch) -> None:
        """All but the newest token is computed: decode from now on."""
        seq, known = branch.seq, branch.num_tokens
        self.decoding.join(branch, known, self.most_tokens(branch.request))
        if self.manager.num_tail_owners(seq) != 1:  # full, or shared with a fork
            self.growing[branch] = 1

    def settle(self, branch: Branch) -> None:
        """Bring the sequence of a decoding branch up to what is computed, and let full blocks be found."""
        decoding = self.decoding
        if branch not in decoding.members:
            return
        known = decoding.num_tokens(branch)
        was_put_off, branch.seq.behind = branch.seq.behind is not None, None
        if self.foretell is not None:
            self._learn(branch, known, self.foretell)
        self.settle_to(branch, known - 1)
        if was_put_off:
            self._begin_block(branch)

    def put_off(self, branch: Branch) -> None:
        """From now on, blocks that this branch fills are promoted only when somebody can tell the difference; its tail
        is full now."""
        if self.foretell is not None:
            self.manager.put_off(branch.seq, partial(self._tell, branch))

    def settle_to(self, branch: Branch, num_computed: int) -> None:
        """As `settle`, for a branch whose outputs are all known."""
        seq, manager = branch.seq, self.manager
        held = seq.num_tokens
        if held < num_computed:
            manager.append_computed(seq, branch.known(held, num_computed))
        else:
            manager.promote_to_immutable(seq, num_computed)

    def grow(self) -> list[tuple[int, int]]:
        """Slots for all growing branches; the caller has made sure that there are blocks. Returns the block copies."""
        if not self.growing:
            return []
        grown: list[tuple[CacheSequence, array[int] | None]] = []
        for branch in self.growing:
            seq = branch.seq
            grown.append((seq, branch.known(seq.num_tokens, branch.num_tokens) if seq.behind is None else None))
        copies = self.manager.append_each(grown)
        self.growing.clear()
        return copies

    def fork(self, parent: Branch, child: Branch) -> None:
        """The child shares everything its parent has computed."""
        child.seq = self.manager.fork(parent.seq)

    def split(self, request: Request) -> None:
        """The part that all live branches share is computed again: fork it, and prefill what each has of its own."""
        trunk = request.head
        assert trunk is not None
        request.head = None
        for branch in request.live_branches:
            self.fork(trunk, branch)
            self.growing[branch] = self.manager.num_blocks_for(branch.num_tokens) + 1
            self.prefilling[branch] = None
        self.manager.free(trunk.seq)

    def drop(self, branch: Branch) -> None:
        """Give up a branch's blocks; what is full and computed stays cached."""
        self.settle(branch)
        self.decoding.leave(branch)
        self.growing.pop(branch, None)
        self.prefilling.pop(branch, None)
        if branch.seq.allocated:
            self.manager.free(branch.seq)

    def remove(self, request: Request) -> None:
        """Give up everything the request holds."""
        if request.head is not None:
            self.drop(request.head)
        for branch in request.branches:
            self.drop(branch)
        if request in self.requests:
            del self.requests[request]
            self.num_branches -= request.width

    def suspend(self, request: Request) -> None:
        """Give up everything, and prepare the head from which the request will go on. Everything is settled."""
        for branch in request.live_branches:
            if branch.seq.allocated:
                branch.computed_before = max(branch.computed_before, branch.seq.num_computed_tokens)
            branch.drawn = None
        if (head := request.head) is not None:
            head.computed_before = max(head.computed_before, head.seq.num_computed_tokens)
        self.remove(request)
        request.head = request.head or self._head(request)

    def _learn(self, branch: Branch, known: int, foretell: Foretell) -> None:
        """Write down its output tokens up to so many in all."""
        told = branch.foretold
        if told is None:
            most = self.most_tokens(branch.request) - branch.request.num_prompt
            told = branch.foretold = int32(foretell(branch, 0, most))
        branch.outputs.extend(told[len(branch.outputs) : known - branch.request.num_prompt])

    def _tell(self, branch: Branch) -> None:
        """What was put off: as if it had been settled when its tail was full last, and grown since."""
        size, foretell = self.manager.block_size, self.foretell
        assert foretell is not None, "only what is foretold is put off"
        full = (self.decoding.num_tokens(branch) - 1) // size * size
        self._learn(branch, full + 1, foretell)
        self.settle_to(branch, full)
        self._begin_block(branch)

    def _begin_block(self, branch: Branch) -> None:
        """Where a block was taken for the newest token alone, the sequence holds that token, as after `grow`."""
        seq, size = branch.seq, self.manager.block_size
        held = seq.num_tokens
        if held % size == 0 and held < len(seq.block_table) * size:
            seq.extend(branch.known(held, held + 1))

    def _head(self, request: Request) -> Branch:
        live = request.live_branches
        if len(live) == 1:
            (branch,) = live
            branch.seq.extend(branch.known(branch.seq.num_tokens, branch.num_tokens))
            branch.seq.skip_lookup = False
            return branch
        shared = array("i")
        for tokens in zip(*(branch.outputs[:-1] for branch in live), strict=False):  # the newest is yet to be computed
            if len(set(tokens)) > 1:
                break
            shared.append(tokens[0])
        trunk = Branch(request, -1, request.new_sequence(shared))
        trunk.outputs = shared
        trunk.computed_before = min(trunk.num_tokens, max(branch.computed_before for branch in live))
        return trunk
