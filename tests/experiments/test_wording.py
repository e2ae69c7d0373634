"""Numbers in words."""

from __future__ import annotations

import pytest

from experiments.wording import number, signed_percent


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.123, "+12%"), (-0.123, "−12%"), (0.0, "0%"), (-0.0, "0%"), (-0.001, "0%"), (0.004, "0%"), (-1.3, "−130%")],
)
def test_a_share_has_a_sign_only_where_it_is_not_nothing(share: float, text: str) -> None:
    assert signed_percent(share) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 prompts"), (1, "1 prompt"), (1234, "1,234 prompts")])
def test_a_noun_agrees_with_its_count(count: int, text: str) -> None:
    assert number(count, "prompt") == text
