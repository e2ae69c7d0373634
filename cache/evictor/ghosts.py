"""Keys of blocks that have left, with what a policy wants to remember of them: bounded, the oldest forgotten first.

What is remembered together is a batch: a list of keys with one memory. Batches wait in line, the oldest in front, and a
key knows its batch. A batch from which nothing was recalled is forgotten without a look at its keys one by one; what
was recalled is skipped where its batch comes to the front, or swept out once it outnumbers the rest.

Knows nothing of why a key is remembered. O(1) per key, amortised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

Stretch = tuple[int, T]
"""(place behind its last key, what was remembered of these keys: None where nothing was)"""

MOST_JOINED = 64
"""Single keys of one memory form batches of at most so many."""


class Batch(Generic[T]):
    """Keys remembered with one memory, oldest first; of those from `first` on, `live` are still remembered."""

    __slots__ = ("first", "keys", "live", "memory")

    def __init__(self, keys: list[Hashable], memory: T) -> None:
        self.keys = keys
        self.memory = memory
        self.first = 0
        self.live = len(keys)


class Ghosts(Generic[T]):
    """A mapping from key to memory that forgets from its old end."""

    def __init__(self) -> None:
        self._batch_of: dict[Hashable, Batch[T]] = {}
        self._batches: deque[Batch[T]] = deque()
        self._num_listed = 0

    def __len__(self) -> int:
        return len(self._batch_of)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._batch_of

    def items(self) -> Iterator[tuple[Hashable, T]]:
        """Keys and memories, oldest first."""
        for batch in self._batches:
            for key in self._living(batch):
                yield key, batch.memory

    def remember(self, key: Hashable, memory: T, limit: int) -> None:
        """Remember `key` as the newest; then forget the oldest until at most `limit` are left."""
        old, batches = self._batch_of.pop(key, None), self._batches
        if old is not None:
            old.live -= 1
        batch = batches[-1] if batches else None
        if batch is not None and batch.memory == memory and batch.live == len(batch.keys) - batch.first < MOST_JOINED:
            self._batch_of[key] = batch
            batch.keys.append(key)
            batch.live += 1
            self._num_listed += 1
        else:  # where one was recalled it may come again, and a batch holds a key once
            self._append(Batch([key], memory))
        self.shrink(limit)

    def remember_all(self, keys: Sequence[Hashable], memory: T, limit: int) -> None:
        """`remember` each of these keys, the last one as the newest; slow where one of them is a ghost already."""
        if keys:
            self._append(Batch(list(keys), memory))
        self.shrink(limit)

    def knows_none_of(self, keys: Iterable[Hashable]) -> bool:
        """Whether none of these is remembered, at the cost of a glance at each."""
        return self._batch_of.keys().isdisjoint(keys)

    def recall(self, key: Hashable) -> T | None:
        """What was remembered of `key`, which is a ghost no more; None where nothing was."""
        batch = self._batch_of.pop(key, None)
        if batch is None:
            return None
        batch.live -= 1
        return batch.memory

    def recall_all(self, keys: Sequence[Hashable]) -> list[Stretch[T | None]]:
        """`recall` each of these keys: the answers in their order, neighbours that were remembered together as one."""
        pop = self._batch_of.pop
        batches = [pop(key, None) for key in keys]
        stretches: list[Stretch[T | None]] = []
        start, batch = 0, batches[0] if batches else None
        for place, other in enumerate(batches):
            if other is not batch:
                stretches.append(self._recalled(batch, start, place))
                start, batch = place, other
        if batches:
            stretches.append(self._recalled(batch, start, len(batches)))
        return stretches

    def shrink(self, limit: int) -> None:
        """Forget the oldest until at most `limit` are left."""
        batch_of, batches = self._batch_of, self._batches
        over = len(batch_of) - max(limit, 0)
        while over > 0:
            batch = batches[0]
            keys, first, going = batch.keys, batch.first, min(over, batch.live)
            stop = first + going
            if batch.live == len(keys) - first:
                for key in keys[first:stop]:
                    del batch_of[key]
            else:
                stop, left = first, going
                while left:
                    key = keys[stop]
                    stop += 1
                    if batch_of.get(key) is batch:
                        del batch_of[key]
                        left -= 1
            over -= going
            batch.live -= going
            batch.first = stop
            self._num_listed -= stop - first
            if not batch.live:
                batches.popleft()
                self._num_listed -= len(keys) - stop

    def _append(self, batch: Batch[T]) -> None:
        batch_of = self._batch_of
        before = len(batch_of)
        batch_of.update(dict.fromkeys(batch.keys, batch))
        self._batches.append(batch)
        self._num_listed += batch.live
        if len(batch_of) - before < batch.live:  # ghosts already, or two blocks of one key
            batch.keys = list(dict.fromkeys(batch.keys))
            self._sweep()
        elif self._num_listed > 2 * len(batch_of) + MOST_JOINED:
            self._sweep()

    def _sweep(self) -> None:
        """Take out of the batches what was recalled, or has moved on to a later one."""
        for batch in self._batches:
            batch.keys, batch.first = self._living(batch), 0
            batch.live = len(batch.keys)
        self._batches = deque(batch for batch in self._batches if batch.live)
        self._num_listed = len(self._batch_of)

    def _living(self, batch: Batch[T]) -> list[Hashable]:
        batch_of = self._batch_of
        return [key for key in batch.keys[batch.first :] if batch_of.get(key) is batch]

    def _recalled(self, batch: Batch[T] | None, start: int, stop: int) -> Stretch[T | None]:
        if batch is None:
            return stop, None
        batch.live -= stop - start
        return stop, batch.memory
