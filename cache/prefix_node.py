"""A node of the tree of all prefixes: a run of blocks, and what follows it.

Longer prompts follow it as children, told apart by their first block; so do the partly filled last blocks of prompts
that ended here. Whoever uses the tree may mark leading blocks of a run; marks are closed under prefix.

Knows nothing of walks.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from cache.tokens import TOKEN_BYTES, Tail, num_common_words

NOTHING: Any = {}
"""What follows a run until something does: shared, never written to. Most runs are never followed by anything."""


class Node:
    """A root has no blocks and no parent."""

    __slots__ = (
        "children", "data", "depth", "first", "length", "num_marked", "num_once_marked", "order", "parent", "stamp",
        "stride", "tails",
    )  # fmt: skip

    def __init__(
        self, parent: Node | None, data: bytes | bytearray, stride: int, length: int, depth: int, first: int, stamp: Any
    ) -> None:
        self.parent = parent
        self.data = data
        """Contents of its blocks (`TokenIds.packed_contents`), `stride` bytes each."""
        self.stride = stride
        self.length = length
        self.depth = depth
        """Blocks before this run in its chain."""
        self.first = first
        """The number of its first prefix; the others follow."""
        self.stamp = stamp
        """Of the walk that touched its blocks last."""
        self.num_marked = self.num_once_marked = 0
        """Leading blocks that are marked, and that were before all marks were taken off."""
        self.children: dict[bytes, Node] = NOTHING
        self.tails: dict[tuple[int, bytes], int] = NOTHING
        """Partly filled last blocks by width and content → the most tokens that one of them had."""
        self.order: dict[int, list[bytes]] | None = None
        """What follows, by width, in order, so that the longest shared part is found beside the place where a block
        would go. Made when first asked for; contents of a single word need none, they are equal or share nothing."""

    def contents(self) -> list[bytes]:
        """One content per block."""
        return [bytes(self.data[i : i + self.stride]) for i in range(0, len(self.data), self.stride)]

    def holding(self, depth: int) -> Node:
        """The run on the way to this one that holds the block before `depth`; the root for 0."""
        node = self
        while node.depth >= depth and node.parent is not None:
            node = node.parent
        return node

    def split(self, count: int) -> Node:
        """A new node takes the first `count` blocks and becomes this one's parent."""
        cut, parent = count * self.stride, self.parent
        assert parent is not None, "a root has no blocks to split"
        head = Node(parent, self.data[:cut], self.stride, count, self.depth, self.first, self.stamp)
        head.num_marked, head.num_once_marked = min(self.num_marked, count), min(self.num_once_marked, count)
        parent.children[bytes(self.data[: self.stride])] = head
        self.parent, self.data = head, self.data[cut:]
        self.length -= count
        self.depth += count
        self.first += count
        self.num_marked, self.num_once_marked = max(self.num_marked - count, 0), max(self.num_once_marked - count, 0)
        head.children = {bytes(self.data[: self.stride]): self}
        return head

    def joinable(self, stride: int, stamp: Any) -> bool:
        """Whether blocks of that width and stamp that come next may become part of this run."""
        return (
            self.stamp == stamp
            and self.stride == stride
            and self.children is NOTHING
            and self.tails is NOTHING
            and self.parent is not None
        )

    def join(self, data: bytes, count: int) -> None:
        """`count` more blocks of the same width and stamp."""
        if isinstance(self.data, bytes):  # from now on growing is amortised
            self.data = bytearray(self.data)
        self.data += data
        self.length += count

    def mark(self, start: int, stop: int) -> None:
        """Blocks `start` to `stop` of the chain that ends here are marked, as those before them are."""
        node = self.holding(stop)
        while True:
            depth = node.depth
            count = min(stop - depth, node.length)
            if node.num_marked < count:
                node.num_marked = count
            if depth <= start:
                return
            assert node.parent is not None
            node = node.parent

    def copy(self, stamp: Any) -> Node:
        """The same runs in new nodes, all with one stamp and no marks."""
        top = Node(None, self.data, self.stride, self.length, self.depth, self.first, stamp)
        waiting = [(self, top)]
        while waiting:
            node, twin = waiting.pop()
            if node.tails:
                twin.tails = dict(node.tails)
            if node.children:
                twin.children = {}
            for content, child in node.children.items():
                other = Node(twin, child.data[:], child.stride, child.length, child.depth, child.first, stamp)
                twin.children[content] = other
                waiting.append((child, other))
        return top

    def add(self, child: Node) -> None:
        """A longer prompt goes on with this run."""
        if self.children is NOTHING:
            self.children = {}
        content = bytes(child.data[: child.stride])
        self.children[content] = child
        if self.order is not None:
            self._insert(child.stride, content)

    def add_tail(self, tail: Tail) -> None:
        """A prompt ended here, in a block it did not fill."""
        content, count, stride = tail
        if self.tails is NOTHING:
            self.tails = {}
        if count > self.tails.get((stride, content), 0):
            self.tails[stride, content] = count
        if self.order is not None:
            self._insert(stride, content)

    def shared(self, content: bytes, num_tokens: int, stride: int, block_size: int) -> int:
        """The most leading tokens that a block of `num_tokens` has in common with anything that follows this node."""
        if self.children is NOTHING and self.tails is NOTHING:
            return 0
        if stride == TOKEN_BYTES:
            return min(num_tokens, self._num_tokens(content, stride, block_size))
        if self.order is None:
            self.order = {}
        entries = self.order.get(stride)
        if entries is None:
            found = {content for content in self.children if len(content) == stride}
            entries = self.order[stride] = sorted(found | {tail for width, tail in self.tails if width == stride})
        place, word, most = bisect_left(entries, content), content[:TOKEN_BYTES], 0
        for other in entries[max(place - 1, 0) : place + 2]:
            if other.startswith(word):
                count = num_common_words(content, other) * (block_size * TOKEN_BYTES // stride)
                most = max(most, min(count, num_tokens, self._num_tokens(other, stride, block_size)))
        return most

    def _num_tokens(self, content: bytes, stride: int, block_size: int) -> int:
        """Tokens of what follows with this content; 0 where nothing does."""
        return block_size if content in self.children else self.tails.get((stride, content), 0)

    def _insert(self, stride: int, content: bytes) -> None:
        assert self.order is not None
        entries = self.order.get(stride)
        if entries is not None:
            place = bisect_left(entries, content)
            if place == len(entries) or entries[place] != content:
                entries.insert(place, content)
