"""Which changing fields keep prompts from sharing, and what mending each is worth, by replaying the mended tokens.

    sample ──part where?──> fields seen there ──mend each, replay──> the best one stays mended ──┐
       ^                                                                                         │
       └───────────── mended sample: the next field behind it comes to light ────────────────────┘

Every rate is a replay of real token ids through the real cache; nothing is extrapolated.

Knows nothing of how a prompt is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cache.manager import CacheManager
from cache.tokens import PackedTokens, pack, unpack
from experiments.profile.detector import Correction, Detector, Parting, common_chars
from experiments.profile.markup import place_of
from experiments.profile.shown import show_tokens, visible
from experiments.profile.text import Pieces, TokenText
from experiments.profile.tree import PrefixTree
from experiments.replay import replay
from experiments.workload.base import Request, Workload

UNBOUNDED = 1 << 62
CANDIDATES = 6
"""Fields tried per round, those at most partings first."""
EXAMPLES = 3
BEFORE, BEHIND = 6, 10
"""Tokens shown around a parting."""
FREQUENT = 0.05
"""Share of prompts that must part at a field for it to be mended although that gives nothing by itself."""
WORTH = 0.0005
"""Share of the prompt tokens that mending must make shared to count. Tokens, not rates: mending may shorten prompts."""


@dataclass(slots=True)
class Held:
    """One prompt of the sample: the request it came from, and its ids as mended so far."""

    request: Request
    prompt: TokenText


@dataclass(frozen=True, slots=True)
class Measured:
    """What a replay of the sample counted."""

    prompt_tokens: int
    hit_tokens: int
    shared_tokens: int
    """What blocks of one token and an infinite cache would hit: free of how prompts happen to lie in blocks."""

    @property
    def rate(self) -> float:
        """Token hit rate."""
        return self.hit_tokens / max(self.prompt_tokens, 1)

    @property
    def computed(self) -> int:
        """Tokens that did not hit."""
        return self.prompt_tokens - self.hit_tokens

    @property
    def unshared(self) -> int:
        """Tokens that no earlier prompt has at its beginning."""
        return self.prompt_tokens - self.shared_tokens


@dataclass(frozen=True, slots=True)
class Place:
    """Where prompt `index` parts from prompt `partner`, and what would mend it."""

    index: int
    partner: int
    token: int
    correction: Correction


@dataclass(slots=True)
class Fix:
    """One field, and what the sample hits once it is mended."""

    correction: Correction
    partings: int
    """Prompts that parted from their nearest earlier one at this field."""
    prompts: int
    """Prompts that the correction changes."""
    position: int
    """Where the field begins, in tokens: median over the partings."""
    char: int
    where: str
    examples: list[str]
    kind: str
    lines: tuple[str, str]
    """The two sides of one parting, token by token."""
    alone: Measured = Measured(0, 0, 0)
    """With only this field mended."""
    together: Measured = Measured(0, 0, 0)
    """With this and all fields before it in the list mended."""


class Sample(Workload):
    """Requests in memory, in order."""

    def __init__(self, requests: Sequence[Request]) -> None:
        super().__init__()
        self._requests = requests

    def requests(self) -> Iterator[Request]:
        return iter(self._requests)

    def fingerprint(self) -> str:
        """None is needed: a sample is never recorded by itself."""
        raise NotImplementedError


class Mender:
    """Finds and measures; `new_cache` makes a cold cache for every replay."""

    def __init__(
        self,
        requests: Sequence[Request],
        pieces: Pieces,
        detectors: Sequence[Detector],
        new_cache: Callable[[], CacheManager],
        most: int = 8,
    ) -> None:
        """`requests`: the sample, at least one; `most`: fields to mend at most."""
        self._pieces, self._detectors, self._new_cache, self._most = pieces, detectors, new_cache, most
        self._original = [Held(r, TokenText(unpack(r.tokens.packed()), pieces)) for r in requests]
        self.before = self._measure(self._original)

    def fixes(self) -> list[Fix]:
        """Fields in the order in which mending them gives most, each on top of those before it.

        Where no field gives anything by itself, the one at most partings is mended all the same, since there may be
        another behind it in the same block; such fields stay in the list only if something behind them gives more.
        """
        held, found, least = self._original, list[Fix](), self.before.unshared
        worth = WORTH * self.before.prompt_tokens
        tried: set[Hashable] = set()
        while len(found) < self._most:
            trials = []
            for fix in self._candidates(held, tried):
                mended = self._mended(held, fix.correction)
                fix.prompts = sum(one is not other for one, other in zip(held, mended, strict=True))
                fix.together = self._measure(mended)
                trials.append((fix, mended))
            if not trials:
                break
            fix, mended = min(trials, key=lambda trial: trial[0].together.unshared)
            if fix.together.unshared > least - worth:
                fix, mended = trials[0]
                if fix.partings < FREQUENT * len(held):
                    break
            held, least = mended, min(least, fix.together.unshared)
            tried.add(fix.correction.key)
            found.append(fix)
        while found and found[-1].together.unshared > self._without_last(found) - worth:
            found.pop()
        for fix in found:
            fix.alone = self._measure(self._mended(self._original, fix.correction))
        return found

    def _without_last(self, found: Sequence[Fix]) -> int:
        return min((fix.together.unshared for fix in found[:-1]), default=self.before.unshared)

    def _candidates(self, held: Sequence[Held], tried: set[Hashable]) -> list[Fix]:
        """Fields at which prompts part, the most frequent first."""
        tree, seen = PrefixTree(UNBOUNDED), dict[Hashable, list[Place]]()
        for index, one in enumerate(held):
            shared = tree.add(pack(one.prompt.ids), one.request.extra_keys.encode())
            partner = shared.partner if shared.partner >= 0 else self._first_other(held, index)
            if partner is None or shared.tokens == len(one.prompt.ids):
                continue
            parting = self._parting(one, held[partner], shared.tokens)
            if parting is None:
                continue
            correction = next((c for d in self._detectors if (c := d.find(parting)) is not None), None)
            if correction is not None and correction.key not in tried:
                seen.setdefault(correction.key, []).append(Place(index, partner, shared.tokens, correction))
        fixes = [self._fix(held, places) for places in seen.values()]
        return sorted(fixes, key=lambda fix: -fix.partings)[:CANDIDATES]

    @staticmethod
    def _first_other(held: Sequence[Held], index: int) -> int | None:
        """A prompt that shares not even the first token is compared with the one before it."""
        return index - 1 if index and held[index - 1].request.extra_keys == held[index].request.extra_keys else None

    def _parting(self, one: Held, other: Held, token: int) -> Parting | None:
        if token >= len(other.prompt.ids):
            return None  # the earlier prompt simply ends: the later one continues it
        start = one.prompt.char_of(token)
        char = common_chars(one.prompt.text, other.prompt.text, start)
        return Parting(one.prompt, other.prompt, token, char, self._pieces.tokenizer)

    def _fix(self, held: Sequence[Held], places: Sequence[Place]) -> Fix:
        middle = sorted(places, key=lambda place: place.token)[len(places) // 2]
        correction, token = middle.correction, middle.token
        prompt, other = held[middle.index].prompt, held[middle.partner].prompt
        char = prompt.char_of(token)
        begins = [edit.start for edit in correction.edits(prompt) if edit.start <= char < edit.stop]
        char = begins[-1] if begins else char
        values = [v for place in places[:200] if (v := correction.value(held[place.index].prompt))]
        values = list(dict.fromkeys(values))
        return Fix(
            correction=correction,
            partings=len(places),
            prompts=0,
            position=min(prompt.token_of(char), token),
            char=char,
            where=place_of(prompt.text, char),
            examples=values[:EXAMPLES],
            kind=_counter(correction.kind, values),
            lines=(self._around(prompt, token), self._around(other, token)),
        )

    def _around(self, prompt: TokenText, token: int) -> str:
        return show_tokens(prompt.ids[max(0, token - BEFORE) : token + BEHIND], self._pieces)

    def _mended(self, held: Sequence[Held], correction: Correction) -> list[Held]:
        """The prompts after a correction; those it does not change are the same objects."""
        mended = []
        for one in held:
            edits = correction.edits(one.prompt)
            ids = one.prompt.edited(edits) if edits else one.prompt.ids
            mended.append(one if ids == one.prompt.ids or not ids else Held(one.request, TokenText(ids, self._pieces)))
        return mended

    def _measure(self, held: Sequence[Held]) -> Measured:
        requests, tree = [_with(one.request, one.prompt.ids) for one in held], PrefixTree(UNBOUNDED)
        metrics = replay(Sample(requests), self._new_cache())
        shared = sum(
            min(tree.add(request.tokens.packed(), request.extra_keys.encode()).tokens, len(request.tokens) - 1)
            for request in requests
        )
        return Measured(metrics["prompt_tokens"], metrics["hit_tokens"], shared)


def _counter(kind: str, values: Sequence[str]) -> str:
    """A number that only grows is a counter."""
    if kind != "number" or not all(value.isdigit() for value in values) or len(values) < EXAMPLES:
        return kind
    numbers = [int(value) for value in values]
    return "counter" if numbers == sorted(numbers) else kind


def _with(request: Request, ids: list[int]) -> Request:
    return Request(PackedTokens(pack(ids)), request.arrival, request.num_output_tokens, request.session, request.turn,
                   request.category, request.extra_keys)  # fmt: skip


def row_of(fix: Fix, before: Measured) -> dict[str, Any]:
    """A fix as a row of a table."""
    return {
        "kind": fix.kind,
        "where": fix.where,
        "token": fix.position,
        "char": fix.char,
        "context": visible(getattr(fix.correction, "context", ""), marks=False),
        "examples": [visible(value, marks=False) for value in fix.examples],
        "one": fix.lines[0],
        "other": fix.lines[1],
        "remedy": visible(fix.correction.remedy, marks=False),
        "partings": fix.partings,
        "prompts": fix.prompts,
        "token_hit_rate_before": before.rate,
        "token_hit_rate_alone": fix.alone.rate,
        "token_hit_rate_with_those_above": fix.together.rate,
        "computed_tokens_before": before.computed,
        "computed_tokens_alone": fix.alone.computed,
        "computed_tokens_with_those_above": fix.together.computed,
    }
