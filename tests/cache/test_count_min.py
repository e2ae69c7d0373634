"""The sketch: never too low, right where nothing collides, and wide rows that seldom collide twice."""

from __future__ import annotations

import random
from math import gcd

from hypothesis import given
from hypothesis import strategies as st

from cache.evictor.count_min import CountMin

WRITES = st.lists(st.tuples(st.lists(st.integers(), max_size=6), st.integers(1, 255)), max_size=20)


@given(writes=WRITES, counters=st.integers(1, 40))
def test_no_count_reads_lower_than_it_was_written(writes: list[tuple[list[int], int]], counters: int) -> None:
    sketch, highest = CountMin(counters), dict[int, int]()
    for keys, count in writes:
        sketch.write(keys, count)
        for key in keys:
            highest[key] = max(highest.get(key, 0), count)
    for key, count in zip(highest, sketch.read(list(highest)), strict=True):
        assert highest[key] <= count <= max(highest.values())


def test_in_wide_rows_nearly_every_count_is_exact_and_strangers_read_zero() -> None:
    draw, sketch = random.Random(1), CountMin(8192)
    written = {draw.getrandbits(60): draw.randrange(1, 16) for _ in range(1500)}
    for key, count in written.items():
        sketch.write([key], count)
    strangers = [draw.getrandbits(60) for _ in range(1500)]
    known = sum(count > 0 for count in sketch.read(strangers))
    assert known < 80, "one in six cells is taken, so a 36th of 1500 strangers, 42, find both of theirs taken"
    wrong = sum(a != b for a, b in zip(sketch.read(list(written)), written.values(), strict=True))
    assert wrong < 50


def test_halving_halves_every_count() -> None:
    sketch = CountMin(997)
    for key in range(16):
        sketch.write([key], key)
    sketch.halve()
    assert sketch.read(range(16)) == [key // 2 for key in range(16)]


@given(counters=st.integers(1, 100_000))
def test_the_rows_have_widths_without_a_common_divisor(counters: int) -> None:
    one, two = (len(row) for row in CountMin(counters)._rows)
    assert one == counters
    assert gcd(one, two) == 1


@given(
    batches=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 150), st.integers(1, 255)), max_size=12),
    counters=st.integers(1, 400),
)
def test_many_keys_at_once_are_written_and_read_as_they_would_be_one_by_one(
    batches: list[tuple[int, int, int]], counters: int
) -> None:
    together, singly = CountMin(counters), CountMin(counters)
    for first, number, count in batches:
        keys = [hash(("key", first + i)) for i in range(number)]
        together.write(keys, count)
        for key in keys:
            singly.write([key], count)
        together.halve()
        singly.halve()
        assert together.read(keys) == [known for key in keys for known in singly.read([key])]
    assert together._rows == singly._rows
