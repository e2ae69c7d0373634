"""Prompts in a tree of token runs that never outgrows its budget: what is not asked for again is forgotten first.

    root ── "You are a helpful …" (812 prompts) ─┬─ "2026-11-30 07:58" (3)
                                                └─ "2026-11-30 07:59" (5) ── …

A node is a run of tokens that all its prompts share; children begin with different tokens. Every walk counts one
prompt on each node it passes, so counts say how many prompts share how far.

Knows nothing of text, blocks or why prompts part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cache.tokens import TOKEN_BYTES

NODE_BYTES = 320
"""What a node costs beside its tokens, measured on CPython 3.11."""
KEPT = 0.75
"""Share of the budget left after forgetting."""


class Node:
    """A run of tokens (packed int32) below its parent's."""

    __slots__ = ("children", "count", "last", "parent", "run")

    def __init__(self, run: bytes, parent: Node | None, count: int, last: int) -> None:
        self.run = run
        self.parent = parent
        self.count = count
        """Prompts that have the whole run."""
        self.last = last
        """The latest of them."""
        self.children: dict[bytes, Node] = {}


@dataclass(frozen=True, slots=True)
class Shared:
    """What a new prompt has in common with an earlier one."""

    tokens: int
    """Longest common prefix with any prompt that is remembered."""
    partner: int
    """The latest prompt that shares so much; -1 where nothing is shared."""


class PrefixTree:
    """Longest common prefixes of a stream of prompts, one root per cache key."""

    def __init__(self, budget: int) -> None:
        """`budget`: bytes for nodes and tokens, about."""
        self.budget = budget
        self.roots: dict[bytes, Node] = {}
        self.used = 0
        self.forgotten_tokens = 0
        self.num_prompts = 0

    def add(self, tokens: bytes, key: bytes = b"") -> Shared:
        """One more prompt; prompts of different keys never share. Cost: one step per run, one comparison per byte."""
        index, self.num_prompts = self.num_prompts, self.num_prompts + 1
        node = self.roots.get(key)
        if node is None:
            node = self.roots[key] = Node(b"", None, 0, -1)
        node.count, partner, node.last = node.count + 1, node.last if node.children else -1, index
        at, end = 0, len(tokens)
        while at < end:
            child = node.children.get(tokens[at : at + TOKEN_BYTES])
            if child is None:
                self._put(node, tokens[at:], index)
                break
            partner = child.last
            length = len(child.run)
            if tokens.startswith(child.run, at):
                child.count, child.last = child.count + 1, index
                node, at = child, at + length
                continue
            common = common_bytes(child.run, tokens[at : at + length])
            node = self._split(child, common)
            node.count, node.last, at = node.count + 1, index, at + common
            if at < end:
                self._put(node, tokens[at:], index)
            break
        if self.used > self.budget:
            self._forget()
        return Shared(at // TOKEN_BYTES, partner if at else -1)

    def nodes(self) -> Iterator[Node]:
        """All nodes but the roots, parents first."""
        stack = [child for root in self.roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _put(self, parent: Node, run: bytes, index: int) -> None:
        parent.children[run[:TOKEN_BYTES]] = Node(run, parent, 1, index)
        self.used += NODE_BYTES + len(run)

    def _split(self, node: Node, at: int) -> Node:
        """Cut a run in two; returns the upper half."""
        parent = node.parent
        assert parent is not None
        upper = Node(node.run[:at], parent, node.count, node.last)
        node.run, node.parent = node.run[at:], upper
        upper.children[node.run[:TOKEN_BYTES]] = node
        parent.children[upper.run[:TOKEN_BYTES]] = upper
        self.used += NODE_BYTES
        return upper

    def _forget(self) -> None:
        """Cut off leaves, those of one prompt before those of many, then the longest not seen, until there is room."""
        while self.used > KEPT * self.budget:
            leaves = sorted((n for n in self.nodes() if not n.children), key=lambda n: (n.count > 1, n.last))
            if not leaves:
                return
            for node in leaves:
                parent = node.parent
                assert parent is not None
                del parent.children[node.run[:TOKEN_BYTES]]
                self.used -= NODE_BYTES + len(node.run)
                self.forgotten_tokens += len(node.run) // TOKEN_BYTES
                if self.used <= KEPT * self.budget:
                    return


def common_bytes(one: bytes, other: bytes) -> int:
    """Bytes of the longest common prefix, in whole tokens."""
    low, high = 0, min(len(one), len(other)) // TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if one[low * TOKEN_BYTES : middle * TOKEN_BYTES] == other[low * TOKEN_BYTES : middle * TOKEN_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low * TOKEN_BYTES
