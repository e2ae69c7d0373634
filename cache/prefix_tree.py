"""Every prefix ever walked, in runs: how much of a prompt is known, who touched it last, where it branches off.

    key ──[ system prompt ]──┬──[ question A, turn 1 ]──[ turn 2 ]
                             └──[ question B ]               a node holds a run of blocks; runs split where walks part

A node's blocks always have the same last walk, because runs are split where a walk ends as well as where it branches
off. Prefixes are numbered; those of one run are consecutive, also after a split. A walk costs one list comparison per
run, not one hash per block. Memory: a pointer and the content per distinct block.

Knows nothing of pools: it never forgets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from cache.tokens import Tail, shared_tokens

Run = tuple[int, int, Any]
"""(number of the first prefix, how many, stamp of the walk that touched them last)"""


class Walk(NamedTuple):
    """What one walk found. `num_shared` counts tokens of the first unknown block that some earlier walk had too."""

    runs: list[Run]
    num_known: int
    num_shared: int
    first_new: int


class PrefixTree:
    """All prefixes walked so far: a tree for each root, such as each set of extra keys; one numbering for all."""

    def __init__(self, block_size: int) -> None:
        """`block_size`: tokens per block."""
        self.block_size = block_size
        self.num_prefixes = 0
        self._roots: dict[Hashable, Node] = {}

    def walk(
        self,
        contents: Sequence[Hashable],
        stamp: Any,
        tail: Tail | None = None,
        root: Hashable = b"",
        restamp: bool = True,
    ) -> Walk:
        """Follow a prompt's full blocks and its partly filled last one, add what is new, and stamp all of it.

        Runs cover the known part, front to back, with the stamps they had before; without `restamp` they keep them.
        O(runs) comparisons, O(new) memory.
        """
        node = self._roots.get(root)
        if node is None:
            node = self._roots[root] = Node([], 0, None)
        depth, length = 0, len(contents)
        runs: list[Run] = []
        while depth < length:
            child = node.children.get(contents[depth])
            if child is None:
                break
            run = child.contents
            count = len(run)
            if contents[depth : depth + count] != run:
                count = _common(run, contents, depth)
                child = child.split(count)
                node.children[run[0]] = child
            runs.append((child.first, count, child.stamp))
            if restamp:
                child.stamp = stamp
            depth += count
            node = child
        known, first_new = depth, self.num_prefixes
        size, shared = self.block_size, 0
        if depth < length:
            shared = node.shared(contents[depth], size, size)
            leaf = Node([*contents[depth:]], first_new, stamp)
            node.add(leaf)
            self.num_prefixes += length - depth
            node = leaf
        elif tail is not None:
            shared = node.shared(*tail, size)
        if tail is not None:
            node.add_tail(tail)
        return Walk(runs, known, shared, first_new)

    def roots(self) -> list[Hashable]:
        """Every root walked under."""
        return list(self._roots)

    def nodes(self, root: Hashable = b"") -> list[tuple[Node, Node | None, int]]:
        """(node, its parent, depth of its first block) of every run under a root, parents first."""
        found: list[tuple[Node, Node | None, int]] = []
        waiting: list[tuple[Node, Node | None, int]] = [
            (child, None, 0) for child in self._roots[root].children.values()
        ]
        while waiting:
            node, parent, depth = waiting.pop()
            found.append((node, parent, depth))
            waiting += [(child, node, depth + len(node.contents)) for child in node.children.values()]
        return found

    def copy(self, root: Hashable, stamp: Any) -> PrefixTree:
        """A tree of its own with the prefixes under one root, as if each had been walked with this stamp."""
        twin = PrefixTree(self.block_size)
        twin.num_prefixes = self.num_prefixes
        twin._roots[b""] = self._roots[root].copy(stamp)
        return twin


NOTHING: Any = {}
"""What follows a run until something does: shared, never written to. Most runs are never followed by anything."""


class Node:
    """A run of blocks, and what follows it: longer prompts, and the partly filled last blocks of those that ended."""

    __slots__ = ("children", "contents", "first", "sorted", "stamp", "tails")

    def __init__(self, contents: list[Hashable], first: int, stamp: Any) -> None:
        self.contents = contents
        self.first = first
        self.stamp = stamp
        self.children: dict[Hashable, Node] = NOTHING
        self.tails: dict[Hashable, int] = NOTHING
        self.sorted: list[Any] | None = None
        """What follows, in order, so that the longest shared part is found beside the place where a block would go.
        Made when first asked for; not needed for single ids of a trace, which are equal or share nothing."""

    def split(self, count: int) -> Node:
        """A new node takes the first `count` blocks and becomes this one's parent."""
        head = Node(self.contents[:count], self.first, self.stamp)
        self.contents = self.contents[count:]
        self.first += count
        head.children = {self.contents[0]: self}
        return head

    def copy(self, stamp: Any) -> Node:
        """The same runs in new nodes, all with one stamp."""
        top = Node(self.contents, self.first, stamp)
        waiting = [(self, top)]
        while waiting:
            node, twin = waiting.pop()
            twin.tails = dict(node.tails)
            twin.children = {c: Node(child.contents, child.first, stamp) for c, child in node.children.items()}
            waiting += [(child, twin.children[content]) for content, child in node.children.items()]
        return top

    def add(self, child: Node) -> None:
        """A longer prompt goes on with this run."""
        if self.children is NOTHING:
            self.children = {}
        self.children[child.contents[0]] = child
        if self.sorted is not None:
            _insert(self.sorted, child.contents[0])

    def add_tail(self, tail: Tail) -> None:
        """A prompt ended here, in a block it did not fill."""
        content, count = tail
        if self.tails is NOTHING:
            self.tails = {}
        if count > self.tails.get(content, 0):
            self.tails[content] = count
        if self.sorted is not None:
            _insert(self.sorted, content)

    def shared(self, content: Hashable, num_tokens: int, block_size: int) -> int:
        """The most leading tokens that a block of `num_tokens` has in common with anything that follows this node."""
        if isinstance(content, int):
            return min(num_tokens, block_size if content in self.children else self.tails.get(content, 0))
        if not self.children and not self.tails:
            return 0
        if self.sorted is None:
            self.sorted = sorted(_order(other) for other in {*self.children, *self.tails} if not isinstance(other, int))
        place = bisect_left(self.sorted, _order(content))
        beside = self.sorted[max(place - 1, 0) : place + 1]
        return max((self._shared_with(other, content, num_tokens, block_size) for _, other in beside), default=0)

    def _shared_with(self, other: Hashable, content: Hashable, num_tokens: int, block_size: int) -> int:
        length = block_size if other in self.children else self.tails[other]
        return min(shared_tokens(content, other, block_size), num_tokens, length)


def _order(content: Hashable) -> tuple[bool, Any]:
    """Kinds of contents apart, and within a kind by leading tokens."""
    return isinstance(content, bytes), content


def _insert(entries: list[Any], content: Hashable) -> None:
    if isinstance(content, int):
        return
    entry = _order(content)
    place = bisect_left(entries, entry)
    if place == len(entries) or entries[place] != entry:
        entries.insert(place, entry)


def _common(run: list[Hashable], contents: Sequence[Hashable], depth: int) -> int:
    """How many leading blocks of `run` the prompt has at `depth`: at least one, not all."""
    low, high = 1, min(len(run), len(contents) - depth)
    while low < high:
        middle = (low + high + 1) // 2
        if contents[depth + low : depth + middle] == run[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
