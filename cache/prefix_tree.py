"""Every prefix ever walked, in runs: how much of a prompt is known, who touched it last, where it branches off.

    key ──[ system prompt ]──┬──[ question A, turn 1 ]──[ turn 2 ]
                             └──[ question B ]               a node holds a run of blocks; runs split where walks part

A node's blocks always have the same last walk, because runs are split where a walk ends as well as where it branches
off. Contents are packed as in `cache.run`: a walk costs one comparison of memory per run, and a prompt that grows goes
on from where its last walk ended (`follow`). A split leaves the rest in the old node, so whoever remembers a node and
a depth on the way to its end has a place that never moves. Memory: the contents, and a node per run.

Knows nothing of pools: it never forgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from cache.prefix_node import Node
from cache.run import num_common_blocks
from cache.tokens import Segment, Tail


class Walk(NamedTuple):
    """What one walk found. `num_shared` counts tokens of the first unknown block that some earlier walk had too."""

    runs: list[tuple[Node, Any]]
    """The known part, front to back: nodes, and the stamps they had before."""
    num_known: int
    num_shared: int
    end: Node
    """Where the last full block lies, known or new."""


class PrefixTree:
    """All prefixes walked so far: a tree for each root, such as each set of extra keys; one numbering for all."""

    def __init__(self, block_size: int, joins: bool = False) -> None:
        """`block_size`: tokens per block. `joins`: a chain that grows block by block grows its run, and the numbers of
        that run's prefixes change; else every prefix keeps its number."""
        self.block_size = block_size
        self._num_prefixes = 0
        self._joins = joins
        self._put_off: dict[Node, Callable[[], None]] = {}
        self._next_number = 0
        self._roots: dict[bytes, Node] = {}

    @property
    def num_prefixes(self) -> int:
        """Distinct prefixes walked so far, each a full block."""
        self.catch_up()
        return self._num_prefixes

    def walk(self, segments: Sequence[Segment], stamp: Any, tail: Tail | None = None, root: bytes = b"") -> Walk:
        """Follow a prompt's full blocks and its partly filled last one, add what is new, and stamp all of it.

        O(runs) comparisons, O(new) memory.
        """
        node = self._roots.get(root)
        if node is None:
            node = self._roots[root] = Node(None, b"", 0, 0, 0, 0, None)
        runs: list[tuple[Node, Any]] = []
        known = 0
        node, known = self._descend(node, known, segments, runs)
        for run, _ in runs:
            run.stamp = stamp
        size, shared = self.block_size, 0
        data, stride, first, stop = segments[-1]
        if known < stop:
            if known < first:
                data, stride, first, _ = segments[0]
            offset = (known - first) * stride
            shared = node.shared(data[offset : offset + stride], size, stride, size)
            node = self._grow(node, known, segments, stop, stamp, False)
        elif tail is not None:
            shared = node.shared(tail.content, tail.num_tokens, tail.stride, size)
        if tail is not None:
            node.add_tail(tail)
        return Walk(runs, known, shared, node)

    def follow(self, node: Node, depth: int, segments: Sequence[Segment], stop: int, stamp: Any) -> Node:
        """A prompt that was walked to `depth` blocks, on the way to `node`, has grown to `stop`: add what is new.

        Nothing is touched: known runs keep their stamps, new ones get this one. Returns the node its last block is in.
        """
        node = node.holding(depth)
        if node in self._put_off:
            self.arrive(node)
            node = node.holding(depth)
        if depth < node.depth + node.length:
            node = node.split(depth - node.depth)
        node, depth = self._descend(node, depth, segments, None)
        return self._grow(node, depth, segments, stop, stamp, self._joins) if depth < stop else node

    def put_off(self, node: Node, depth: int, follow: Callable[[], None]) -> Node | None:
        """A prompt that was walked to `depth` has grown: call `follow` only before somebody else comes to that place.

        Nobody can tell the difference where nothing follows that place yet and nobody else waits there: then it answers
        the run that ends there. Otherwise nothing is put off.
        """
        node = node.holding(depth)
        if node.children or depth != node.depth + node.length or node.parent is None or node in self._put_off:
            return None
        self._put_off[node] = follow
        return node

    def arrive(self, node: Node) -> None:
        """Do what was put off at this run, if anything was."""
        follow = self._put_off.pop(node, None)
        if follow is not None:
            follow()

    def catch_up(self) -> None:
        """Do all that was put off."""
        while self._put_off:
            self._put_off.popitem()[1]()

    def root(self, name: bytes) -> Node:
        """The root of that name, where it was walked under."""
        return self._roots[name]

    def roots(self) -> list[bytes]:
        """Every root walked under."""
        return list(self._roots)

    def nodes(self, root: bytes = b"") -> Iterable[Node]:
        """Every run under a root, parents first."""
        self.catch_up()
        waiting = list(self._roots[root].children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children.values()

    def copy(self, root: bytes, stamp: Any) -> PrefixTree:
        """A tree of its own with the prefixes under one root, as if each had been walked with this stamp."""
        twin = PrefixTree(self.block_size, self._joins)
        twin._num_prefixes, twin._next_number = self.num_prefixes, self._next_number
        twin._roots[b""] = self._roots[root].copy(stamp)
        return twin

    def unmark(self) -> None:
        """No block is marked any more; those that were are remembered as such."""
        for root in self._roots:
            for node in self.nodes(root):
                node.num_once_marked, node.num_marked = max(node.num_once_marked, node.num_marked), 0

    def _descend(
        self, node: Node, depth: int, segments: Sequence[Segment], runs: list[tuple[Node, Any]] | None
    ) -> tuple[Node, int]:
        """As far as the prompt is known from the end of `node` on; the run where it ends is split there."""
        put_off = self._put_off
        for data, stride, first, stop in segments:
            while depth < stop:
                offset = (depth - first) * stride
                child = node.children.get(data[offset : offset + stride])
                if child is None:
                    return node, depth
                if put_off and child in put_off:
                    self.arrive(child)
                count = child.length
                if count > stop - depth or not data.startswith(child.data, offset):
                    count = num_common_blocks(child, data, offset, min(count, stop - depth))
                    if count < child.length:
                        child = child.split(count)
                if runs is not None:
                    runs.append((child, child.stamp))
                depth += count
                node = child
        return node, depth

    def _grow(self, node: Node, depth: int, segments: Sequence[Segment], stop: int, stamp: Any, join: bool) -> Node:
        """What is new from `depth` on, behind the end of `node`; part of its run where that may be."""
        self._num_prefixes += stop - depth
        for data, stride, first, end in segments:
            if depth < end:
                count = min(end, stop) - depth
                piece = data[(depth - first) * stride : (depth - first + count) * stride]
                if join and node.joinable(stride, stamp):
                    if node.first + node.length != self._next_number:
                        node.first = self._next_number
                        self._next_number += node.length
                    node.join(piece, count)
                else:
                    leaf = Node(node, piece, stride, count, depth, self._next_number, stamp)
                    node.add(leaf)
                    node = leaf
                self._next_number += count
                depth += count
        return node
