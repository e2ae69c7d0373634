"""Every prefix ever walked, in runs: how long the known part of a prompt is, who touched it last, where it branches off.

    root ──[ system prompt ]──┬──[ question A, turn 1 ]──[ turn 2 ]
                              └──[ question B ]              a node holds a run of blocks; runs split where walks part

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
    """All prefixes walked so far, under one root."""

    def __init__(self, block_size: int) -> None:
        """`block_size`: tokens per block."""
        self.block_size = block_size
        self.num_prefixes = 0
        self._root = Node([], 0, None)

    def walk(self, contents: Sequence[Hashable], stamp: Any, tail: Tail | None = None) -> Walk:
        """Follow a prompt's full blocks and its partly filled last one, add what is new, and stamp all of it.

        Runs cover the known part, front to back, with the stamps they had before. O(runs) comparisons, O(new) memory.
        """
        node, depth, length = self._root, 0, len(contents)
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
            child.stamp = stamp
            depth += count
            node = child
        known, first_new = depth, self.num_prefixes
        size, shared = self.block_size, 0
        if depth < length:
            shared = node.shared(contents[depth], size, size)
            leaf = Node(list(contents[depth:]), first_new, stamp)
            node.add(leaf, size)
            self.num_prefixes += length - depth
            node = leaf
        elif tail is not None:
            shared = node.shared(tail.content, tail.num_tokens, size)
        if tail is not None:
            node.add_tail(tail, size)
        return Walk(runs, known, shared, first_new)

    def nodes(self) -> list[tuple[Node, Node | None, int]]:
        """(node, its parent, depth of its first block) of every run, parents first."""
        found: list[tuple[Node, Node | None, int]] = []
        waiting: list[tuple[Node, Node | None, int]] = [(child, None, 0) for child in self._root.children.values()]
        while waiting:
            node, parent, depth = waiting.pop()
            found.append((node, parent, depth))
            waiting += [(child, node, depth + len(node.contents)) for child in node.children.values()]
        return found


class Node:
    """A run of blocks, and what follows it: longer prompts, and the partly filled last blocks of those that ended."""

    __slots__ = ("children", "contents", "first", "sorted", "stamp", "tails")

    def __init__(self, contents: list[Hashable], first: int, stamp: Any) -> None:
        self.contents = contents
        self.first = first
        self.stamp = stamp
        self.children: dict[Hashable, Node] = {}
        self.tails: list[Tail] = []
        self.sorted: dict[type, list[Any]] | None = None
        """What follows, in order, so that the longest shared part is found beside the place where one would go. Made
        when first asked for."""

    def split(self, count: int) -> Node:
        """A new node takes the first `count` blocks and becomes this one's parent."""
        head = Node(self.contents[:count], self.first, self.stamp)
        self.contents = self.contents[count:]
        self.first += count
        head.children[self.contents[0]] = self
        return head

    def add(self, child: Node, block_size: int) -> None:
        self.children[child.contents[0]] = child
        if self.sorted is not None:
            _insert(self.sorted, child.contents[0], block_size)

    def add_tail(self, tail: Tail, block_size: int) -> None:
        if self.sorted is None:
            self.tails.append(tail)
        else:
            _insert(self.sorted, tail.content, tail.num_tokens)

    def shared(self, content: Hashable, num_tokens: int, block_size: int) -> int:
        """The most leading tokens that `content` has in common with anything that follows this node."""
        if not self.children and not self.tails and self.sorted is None:
            return 0
        if self.sorted is None:
            self.sorted = {}
            for other in self.children:
                _insert(self.sorted, other, block_size)
            for tail in self.tails:
                _insert(self.sorted, tail.content, tail.num_tokens)
            self.tails = []
        kind, entry = _entry(content, num_tokens)
        others = self.sorted.get(kind, [])
        place = bisect_left(others, entry)
        return max((shared_tokens(entry, other, block_size) for other in others[max(place - 1, 0) : place + 1]), default=0)


def _entry(content: Hashable, num_tokens: int) -> tuple[type, Any]:
    """What sorts by leading tokens: packed bytes as they are, ids of a trace with the tokens they stand for."""
    if isinstance(content, bytes):
        return bytes, content
    return tuple, (content if isinstance(content, tuple) else (content,), num_tokens)


def _insert(entries: dict[type, list[Any]], content: Hashable, num_tokens: int) -> None:
    kind, entry = _entry(content, num_tokens)
    others = entries.setdefault(kind, [])
    place = bisect_left(others, entry)
    if place == len(others) or others[place] != entry:
        others.insert(place, entry)


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
