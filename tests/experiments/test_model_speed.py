"""The race asks every contestant the same, in turns, and keeps the best."""

from __future__ import annotations

from collections.abc import Sequence

from support.tiny_models import FAMILIES

from experiments.model_speed import Ours, race
from model.backend.sdpa import SdpaBackend
from model.pretrained import tiny


class Scripted:
    """Answers 5 seconds to warm up, then 3, 2, 4, and remembers who was asked when."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self.name, self.asked, self.turn = name, asked, 0

    def cold(self, prompt: Sequence[int]) -> float:
        self.asked.append(self.name)
        self.turn += 1
        return [5.0, 3.0, 2.0, 4.0][(self.turn - 1) % 4]

    def warm(self, prompt: Sequence[int], cached: int) -> float:
        return self.cold(prompt)

    def decode(self, prompt: Sequence[int], batch_size: int, steps: int) -> float:
        return self.cold(prompt)


def test_contestants_take_turns_and_the_warm_up_does_not_count() -> None:
    asked: list[str] = []
    rows = race([Scripted("a", asked), Scripted("b", asked)], [1, 2, 3], 2, batch_sizes=[1])
    assert asked == ["a", "b"] * 12
    assert rows[0] == {"contestant": "a", "cold_ttft_s": 2.0, "warm_ttft_s": 2.0, "decode_step_s_batch1": 2.0}


def test_our_runner_races_in_both_modes() -> None:
    decoder = tiny(**FAMILIES["llama"]).decoder
    contestants = [Ours(decoder, SdpaBackend(), 64, 8, invariant) for invariant in (False, True)]
    rows = race(contestants, list(range(60)), 48, batch_sizes=[1, 3], steps=2, rounds=1)
    assert [row["contestant"] for row in rows] == ["fast", "invariant"]
    assert all(row[key] > 0 for row in rows for key in row if key != "contestant")
