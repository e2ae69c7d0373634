"""Invariant mode: K, V and logits of a token are, bit for bit, a function of its own prefix."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.serving import Server
from support.tiny_models import FAMILIES

from model.backend.sdpa import SdpaBackend
from model.pretrained import tiny
from model.rows import RowTiles

LENGTH = 90
TILES = {"tile_q": 16, "tile_kv": 32}
"""Small ones, so that a short prompt crosses several."""


def tokens(seed: int, count: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(97) for _ in range(count)]


def server(family: str, seed: int = 0) -> Server:
    return Server(
        tiny(**FAMILIES[family]).decoder,
        num_blocks=260,
        block_size=8,
        invariant=True,
        backend=SdpaBackend(**TILES),
        seed=seed,
    )


@pytest.fixture(scope="module", params=FAMILIES)
def cold(request: Any) -> tuple[str, torch.Tensor, torch.Tensor]:
    """Logits, and K and V, of a prompt that ran alone and in one piece."""
    alone = server(request.param)
    seq = alone.sequence(tokens(7, LENGTH))
    return request.param, alone.prefill(seq), alone.kv(seq, 0, LENGTH)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int32)


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_chunks_neighbours_and_a_cached_prefix_leave_no_trace(cold: Any, data: st.DataObject) -> None:
    family, logits, kv = cold
    busy = server(family, seed=data.draw(st.integers(0, 9)))
    prompt = tokens(7, LENGTH)
    donor = busy.sequence([*prompt[:60], *tokens(8, 5)])
    busy.prefill(donor, data.draw(st.integers(1, 60)))
    shared = data.draw(st.integers(0, 60 // 8))
    seq = busy.sequence(prompt, donor, shared)
    others = [busy.sequence(tokens(9 + i, 60)) for i in range(data.draw(st.integers(0, 4)))]
    found = []
    while seq.computed < LENGTH:
        count = data.draw(st.integers(1, LENGTH - seq.computed))
        parts = [(seq, count)]
        for other in others:
            more = data.draw(st.integers(0, min(20, len(other.tokens) - other.computed)))
            if more:
                parts.insert(data.draw(st.integers(0, len(parts))), (other, more))
        out = busy.step(*parts)
        found.append(out[next(i for i, (who, _) in enumerate(parts) if who is seq)])
    assert torch.equal(bits(torch.cat(found)), bits(logits[shared * 8 :]))
    assert torch.equal(bits(busy.kv(seq, 0, LENGTH)), bits(kv))


def test_it_computes_what_the_fast_mode_computes(cold: Any) -> None:
    family, logits, _ = cold
    fast = Server(tiny(**FAMILIES[family]).decoder, block_size=8)
    torch.testing.assert_close(fast.prefill(fast.sequence(tokens(7, LENGTH))), logits, atol=1e-4, rtol=1e-4)


def test_the_fast_mode_does_not_promise_it() -> None:
    fast = Server(tiny(**(FAMILIES["llama"] | {"intermediate_size": 1536})).decoder, block_size=8)
    whole = fast.prefill(fast.sequence(tokens(7, LENGTH)))
    single = fast.prefill(fast.sequence(tokens(7, LENGTH)), *[1] * LENGTH)
    assert not torch.equal(whole, single)


def test_smollm2_cold_chunked_warm_and_batched_to_the_last_bit(smollm2: Any) -> None:
    draw = random.Random(3)
    prompt = [draw.randrange(49152) for _ in range(300)]
    serve = Server(smollm2.decoder, 160, invariant=True)
    seq = serve.sequence(prompt)
    logits, kv = serve.prefill(seq)[-40:], serve.kv(seq, 0, 300)
    chunked = serve.sequence(prompt)
    assert torch.equal(bits(serve.prefill(chunked, 100, 7)[-40:]), bits(logits))
    assert torch.equal(bits(serve.kv(chunked, 0, 300)), bits(kv))
    warm, other = serve.sequence(prompt, seq, 18), serve.sequence(prompt[:50])
    assert torch.equal(bits(serve.step((other, 50), (warm, 12))[1]), bits(logits[-12:]))
    assert torch.equal(bits(serve.kv(warm, 288, 300)), bits(kv[:, 288:]))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("out", "inner"), [(960, 576), (576, 1536), (37, 20), (97, 48), (4096, 2048)])
def test_a_row_of_a_tile_depends_on_itself_alone(out: int, inner: int, threads: int) -> None:
    from model.linear import Linear

    torch.set_num_threads(threads)
    try:
        g = torch.Generator().manual_seed(0)
        linear = Linear(torch.randn(out, inner, generator=g))
        x = torch.randn(53, inner, generator=g)
        tiles = RowTiles(16)

        def work(rows: torch.Tensor) -> torch.Tensor:
            return tiles.silu(linear(rows))

        whole = tiles(work, x)
        for start, stop in ((0, 1), (5, 6), (3, 20), (17, 53)):
            assert torch.equal(bits(tiles(work, x[start:stop])), bits(whole[start:stop]))
    finally:
        torch.set_num_threads(1)


def test_a_row_tile_must_be_a_multiple_of_16() -> None:
    with pytest.raises(ValueError, match="multiple of 16, got 24"):
        RowTiles(24)
