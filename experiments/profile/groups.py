"""What the tree of prompts says to a person: the path most prompts take, and the groups that share, and how far.

Knows nothing of text: ids only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from cache.tokens import TOKEN_BYTES, unpack
from experiments.profile.tree import Node, PrefixTree

LEAVING = 0.1
"""Where so large a share of a group goes elsewhere, the group ends."""

SMALLEST = 8
"""Tokens that a group shares beyond the group above it; less is a step on the way, not a group."""


@dataclass(frozen=True, slots=True)
class Step:
    """One token of the path that most prompts take."""

    position: int
    token: int
    prompts: int
    """Prompts that have gone all the way to this token."""
    others: list[tuple[int, int]]
    """(token, prompts) of those that part here, the most frequent first."""
    ended: int
    """Prompts that end in front of this token."""


@dataclass(frozen=True, slots=True)
class Group:
    """Prompts that share their first tokens."""

    number: int
    parent: int | None
    level: int
    prompts: int
    shared_tokens: int
    ids: list[int]
    """What they share beyond their parent group."""
    forks: int
    """Different tokens that follow."""


def main_path(tree: PrefixTree, length: int) -> list[Step]:
    """The first `length` tokens of the path where the larger part goes on at every fork."""
    if not tree.roots:
        return []
    node = max(tree.roots.values(), key=lambda root: root.count)
    steps: list[Step] = []
    while len(steps) < length and node.children:
        ways = sorted(node.children.values(), key=lambda child: -child.count)
        ended = max(0, node.count - sum(way.count for way in ways))
        others = [(_head(way), way.count) for way in ways[1:]]
        node = ways[0]
        for i, token in enumerate(unpack(node.run[: (length - len(steps)) * TOKEN_BYTES])):
            steps.append(Step(len(steps), token, node.count, others if i == 0 else [], ended if i == 0 else 0))
    return steps


def agreed(tree: PrefixTree) -> int:
    """How many tokens all prompts begin with."""
    nodes = list(tree.roots.values())
    length = 0
    while len(nodes) == 1 and nodes[0].count == tree.num_prompts:
        length += len(nodes[0].run) // TOKEN_BYTES
        nodes = list(nodes[0].children.values())
    return length


def groups(tree: PrefixTree, share: float = 0.02, most: int = 40) -> list[Group]:
    """Groups of at least `share` of all prompts (and two), parents before children, at most `most`.

    A group goes on as long as nine tenths of it agree; where more leave, it ends, and its parts are new groups.
    """
    least = max(2, ceil(share * tree.num_prompts))
    found: list[Group] = []
    waiting: list[tuple[Node, int, int | None, int]] = [
        (child, 0, None, 0)
        for root in tree.roots.values()
        for child in sorted(root.children.values(), key=lambda c: c.count)
        if child.count >= least
    ]
    while waiting and len(found) < most:
        node, depth, parent, level = waiting.pop()
        runs = [node.run]
        depth += len(node.run) // TOKEN_BYTES
        large = _large(node, least)
        while len(large) == 1 and large[0].count >= (1 - LEAVING) * node.count:
            node = large[0]
            runs.append(node.run)
            depth += len(node.run) // TOKEN_BYTES
            large = _large(node, least)
        own = unpack(b"".join(runs))
        if len(own) >= SMALLEST:
            found.append(Group(len(found), parent, level, node.count, depth, own, len(node.children)))
            parent, level = found[-1].number, level + 1
        waiting += [(child, depth, parent, level) for child in large]
    return found


def _large(node: Node, least: int) -> Sequence[Node]:
    return sorted((child for child in node.children.values() if child.count >= least), key=lambda child: child.count)


def _head(node: Node) -> int:
    return unpack(node.run[:TOKEN_BYTES])[0]
