"""The branches that get one token each step, kept so that a step costs nothing for those to which nothing happens.

All members decode in every step, so the number of steps done (the *epoch*) tells how far each is: a branch that joined
at epoch e with t tokens has t + epoch − e of them. What can happen to it is known in advance: its tail block fills, or
it reaches its length. Both are events in a calendar by epoch; a step looks at the events that are due, not at the
members, and a simulator may do several steps at once up to the next event.

    joined                 tail full                          tail full      at its length
      │ t tokens               │ promote, take a block            │              │ finish
      └────────────────────────┴──────────────────────────────────┴──────────────┘  epochs

Knows nothing of blocks beyond their size, and nothing of the cache.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush

from scheduler.request import Branch


class Decoding:
    """Members, the sum of their contexts, and the calendar of events."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.members: dict[Branch, int] = {}
        """Branch → output length at which it must end, counted in tokens of prompt and output together."""
        self.epoch = 0
        self.context = 0
        """Tokens that the next step's attention reads: the sum over members of all their tokens."""
        self._calendar: defaultdict[int, list[Branch]] = defaultdict(list)
        self._epochs: list[int] = []

    def __len__(self) -> int:
        return len(self.members)

    def join(self, branch: Branch, num_tokens: int, most_tokens: int) -> None:
        """From the next step on; `num_tokens` known now, `most_tokens` when it must end."""
        branch.joined_at, branch.joined_with = self.epoch, num_tokens
        self.members[branch] = most_tokens
        self.context += num_tokens
        self.expect(branch)

    def leave(self, branch: Branch) -> None:
        """No more steps; a branch that is no member is left alone."""
        if self.members.pop(branch, None) is not None:
            self.context -= self.num_tokens(branch)
            branch.event = -1

    def num_tokens(self, branch: Branch) -> int:
        """Tokens known of a branch that is, or a moment ago was, a member."""
        return branch.joined_with + self.epoch - branch.joined_at

    def expect(self, branch: Branch) -> None:
        """Write the next event of a member into the calendar."""
        known = self.num_tokens(branch)
        computed = known - 1
        ahead = min(self.block_size - computed % self.block_size, self.members[branch] - known)
        branch.event = self.epoch + ahead
        due = self._calendar[branch.event]
        if not due:
            heappush(self._epochs, branch.event)
        due.append(branch)

    def steps_to_event(self) -> int:
        """Steps until something happens to a member; at least 1."""
        epochs, calendar = self._epochs, self._calendar
        while epochs:
            if any(branch.event == epochs[0] for branch in calendar[epochs[0]]):
                return epochs[0] - self.epoch
            del calendar[heappop(epochs)]  # everybody it was written for has left
        return 1

    def advance(self, count: int = 1) -> list[Branch]:
        """`count` steps were done; returns the members whose event is due now, in the order they were expected."""
        self.epoch += count
        self.context += count * len(self.members)
        while self._epochs and self._epochs[0] <= self.epoch:
            heappop(self._epochs)
        return [branch for branch in self._calendar.pop(self.epoch, ()) if branch.event == self.epoch]
