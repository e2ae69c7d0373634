"""A run: consecutive blocks of one chain that everybody who owns, asks for or evicts treats alike.

    parent ──> [ c0 c1 c2 … ] ──> children, told apart by the content of their first block
                 b7 b3 b9         one block id per content

All blocks of a run have the same owners and were touched by the same requests; where that would stop being true the run
is split. So whatever is said of a block (owners, last access, a policy's rank) is said once per run. Only the tail of a
run can be evicted: what is left is a shorter run.

Contents are packed: `stride` bytes per block, one after another (`TokenIds.packed_contents`), so comparing a run with a
prompt is one comparison of memory.

Knows nothing of pools, sequences or policies.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Protocol


class Run:
    """A node of the tree. A root holds no blocks; its `data` is the encoded extra keys everything below it shares."""

    __slots__ = (
        "blocks", "children", "data", "depth", "entry", "keys", "last_access", "order", "parent", "rank", "refs",
        "stride",
    )  # fmt: skip

    def __init__(
        self,
        parent: Run | None,
        data: bytes | bytearray,
        stride: int,
        blocks: list[int],
        depth: int,
        refs: int,
        last_access: int,
    ) -> None:
        self.parent = parent
        self.data = data
        self.stride = stride
        """Bytes per block of `data`."""
        self.blocks = blocks
        self.depth = depth
        """Blocks before this run in its chain."""
        self.refs = refs
        """Owners of each of its blocks."""
        self.last_access = last_access
        self.children: dict[bytes, Run] | None = None
        self.order: list[bytes] | None = None
        """The keys of `children` in sorted order, kept up once somebody asked for it."""
        self.keys: list[Hashable] | None = None
        """The chained keys of its blocks, where the policy asks for them."""
        self.rank: Any = None
        """What the policy ranks it by; heads and tails of a split start with the same."""
        self.entry: Any = None
        """Where the policy keeps it while it is a candidate."""

    def key(self) -> bytes:
        """The content of its first block."""
        return bytes(self.data[: self.stride])

    def attach(self, child: Run) -> None:
        """Hang a run below this one (again)."""
        key = child.key()
        if self.children is None:
            self.children = {}
        if self.order is not None and key not in self.children:
            insort(self.order, key)
        self.children[key] = child

    def detach(self, child: Run) -> None:
        """Take a run off; this one may be a leaf then."""
        assert self.children is not None
        key = child.key()
        del self.children[key]
        if self.order is not None:
            del self.order[bisect_left(self.order, key)]
        if not self.children:
            self.children = None

    def split(self, count: int) -> Run:
        """Make the first `count` blocks a run of their own, the new parent of the rest, and return it.

        The rest stays this object: whoever remembers where a chain ends remembers an end, and ends do not move.
        """
        cut, parent = count * self.stride, self.parent
        assert parent is not None
        head = Run(parent, self.data[:cut], self.stride, self.blocks[:count], self.depth, self.refs, self.last_access)
        head.rank = self.rank
        if self.keys is not None:
            head.keys = self.keys[:count]
            del self.keys[:count]
        parent.attach(head)
        self.data = self.data[cut:]
        del self.blocks[:count]
        self.depth += count
        self.parent = head
        head.attach(self)
        return head

    def trim(self, count: int) -> list[int]:
        """Cut off the last `count` blocks and return their ids, front to back."""
        keep = len(self.blocks) - count
        gone = self.blocks[keep:]
        del self.blocks[keep:]
        if self.keys is not None:
            del self.keys[keep:]
        if keep:
            if isinstance(self.data, bytes):  # from now on cutting copies nothing
                self.data = bytearray(self.data)
            del self.data[keep * self.stride :]
        return gone

    def extend(self, data: bytes | bytearray, blocks: list[int]) -> None:
        """More blocks behind the last one, with these contents; nothing hangs below this run."""
        if isinstance(self.data, bytes):  # from now on growing is amortised
            self.data = bytearray(self.data)
        self.data += data
        self.blocks += blocks

    def join(self, child: Run) -> None:
        """Take over the blocks and children of a run that goes on where this one ends; nothing hangs below this one."""
        self.extend(child.data, child.blocks)
        if self.keys is not None and child.keys is not None:
            self.keys += child.keys
        self.children, self.order = child.children, child.order
        for grandchild in (self.children or {}).values():
            grandchild.parent = self


class Packed(Protocol):
    """Whatever holds the contents of consecutive blocks."""

    data: bytes | bytearray
    stride: int


def num_common_blocks(run: Packed, data: bytes, offset: int, most: int) -> int:
    """How many of the first `most` blocks of a run equal `data` from byte `offset` on; the first of them does.

    Halves what is left to compare: O(bytes compared), and no block is looked at by itself.
    """
    own, stride = run.data, run.stride
    low, high, probe = 1, most, most
    while low < high:
        if own[low * stride : probe * stride] == data[offset + low * stride : offset + probe * stride]:
            low = probe
        else:
            high = probe - 1
        probe = (low + high + 1) // 2
    return low


def walk(roots: Mapping[bytes, Run]) -> Iterator[Run]:
    """All runs below these roots, parents first."""
    waiting = list(roots.values())
    while waiting:
        run = waiting.pop()
        if run.blocks:
            yield run
        if run.children:
            waiting.extend(run.children.values())


def check_tree(roots: Mapping[bytes, Run], owned: Mapping[int, int]) -> None:
    """Raise AssertionError where the tree is no tree of runs. `owned`: owners by block, as the manager counts them."""
    seen: set[int] = set()
    for name, root in roots.items():
        assert root.data == name, "a root has a wrong name"
        assert root.children, "a root has nothing below it"
        assert root.order is None or root.order == sorted(root.children), "the sorted keys of a root are wrong"
    for run in walk(roots):
        parent = run.parent
        assert parent is not None, "a run hangs below nothing"
        assert (parent.children or {}).get(run.key()) is run, f"block {run.blocks[0]} hangs at a wrong place"
        assert run.depth == parent.depth + len(parent.blocks), f"block {run.blocks[0]} lies at a wrong depth"
        assert len(run.data) == run.stride * len(run.blocks), f"the run of block {run.blocks[0]} has a wrong length"
        assert not parent.blocks or parent.refs >= run.refs, f"block {run.blocks[0]} outlives its parent's owners"
        assert run.keys is None or len(run.keys) == len(run.blocks), (
            f"the run of block {run.blocks[0]} miscounts its keys"
        )
        assert {owned.get(block, 0) for block in run.blocks} == {run.refs}, "the blocks of a run differ in owners"
        assert run.order is None or run.order == sorted(run.children or ()), "the sorted keys of a run are wrong"
        assert not seen & set(run.blocks), "two runs hold one block"
        seen.update(run.blocks)
