"""A step computes what its integers say: every backend, any mix of prefill and decode, on a poisoned pool."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

import pytest
import torch
from hydra.utils import get_method
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from support.conf import CONF, build, options
from support.serving import Served, Server
from support.tiny_models import FAMILIES

from cache.store import KVStore
from model.backend.base import Backend
from model.backend.sdpa import SdpaBackend
from model.batch import Batch
from model.cuda_graph import bucket_for, pad_decode
from model.pretrained import tiny
from model.runner import ModelRunner

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def ids(seed: int, count: int) -> list[int]:
    return torch.randint(0, 97, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.sampled_from([1, 3, 8, 16]), st.data())
def test_a_mixed_batch_gives_each_sequence_what_it_gets_alone(
    family: str, block_size: int, data: st.DataObject
) -> None:
    decoder = tiny(**FAMILIES[family]).decoder
    together = Server(decoder, 2400 // block_size, block_size)
    seqs = [together.sequence(ids(i, data.draw(st.integers(1, 70)))) for i in range(data.draw(st.integers(1, 5)))]
    found: list[list[torch.Tensor]] = [[] for _ in seqs]
    while any(seq.computed < len(seq.tokens) for seq in seqs):
        parts = []
        for i, seq in enumerate(seqs):
            left = len(seq.tokens) - seq.computed
            count = min(left, data.draw(st.sampled_from([1, 1, 2, 17, 64]))) if left else 0
            if count:
                parts.append((i, seq, count))
        for (i, _, _), out in zip(parts, together.step(*((s, n) for _, s, n in parts)), strict=True):
            found[i].append(out)
    for seq, pieces in zip(seqs, found, strict=True):
        alone = Server(decoder, 200, 16)
        wanted = alone.prefill(alone.sequence(seq.tokens))
        torch.testing.assert_close(torch.cat(pieces), wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3"])
@pytest.mark.parametrize("invariant", [False, True], ids=["fast", "invariant"])
def test_the_triton_backend_computes_what_the_torch_backend_does(family: str, invariant: bool) -> None:
    from model.backend.triton import TritonBackend

    told = FAMILIES[family] | {"num_hidden_layers": 2}
    decoder = tiny(device=DEVICE, **told).decoder
    outs = []
    for backend in (SdpaBackend(), TritonBackend("interpreter")):
        server = Server(decoder, 64, 8, invariant, backend, device=DEVICE)
        first, second = server.sequence(ids(0, 33)), server.sequence(ids(1, 9))
        out = [*server.step((first, 32), (second, 5)), *server.step((second, 1), (first, 1)), *server.step((second, 3))]
        outs.append(torch.cat(out))
    torch.testing.assert_close(outs[1], outs[0], atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("name", options("backend"))
def test_every_backend_of_conf_is_built(name: str) -> None:
    assert isinstance(build("backend", name), Backend)


@pytest.mark.parametrize("name", options("model"))
def test_every_model_of_conf_names_a_loader_that_takes_its_keys(name: str) -> None:
    node = OmegaConf.load(CONF / "model" / f"{name}.yaml").weights
    if node is None:
        pytest.skip("a shape to simulate; it has no weights")
    keys = {key for key in node if key != "_target_"}
    parameters = signature(get_method(node._target_)).parameters
    assert keys <= set(parameters) or "config" in parameters


def test_a_pool_in_another_memory_order_is_refused_not_copied(llama: Any) -> None:
    server = Step(llama)
    batch = server.batch(server.sequence([1, 2, 3]), 3)
    server.store.k[0] = server.store.k[0].transpose(1, 2).contiguous().transpose(1, 2)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        server.runner.run(batch)


class Step(Server):
    """Builds a batch and hands it out, to be spoiled."""

    def batch(self, seq: Served, count: int) -> Batch:
        new = seq.tokens[seq.computed : seq.computed + count]
        return Batch.of([(new, seq.computed, seq.table)], self.store.block_size)


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny(**FAMILIES["llama"]).decoder


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        ({"token_ids": [1, 97, 2]}, "token id 97 at index 1 is outside the vocabulary 0..96"),
        ({"token_ids": [1, 2, -1]}, "token id -1 at index 2"),
        ({"positions": [0, 1, 3]}, r"positions of sequence 0"),
        ({"positions": [0, 1]}, "positions has 2 entries for 3 tokens"),
        ({"slot_mapping": [0, 1, 10**6]}, "slot_mapping names slot 1000000"),
        ({"query_start_loc": [0, 2]}, "query_start_loc must run from 0 to 3"),
        ({"block_tables": [[10**6]]}, r"block_tables\[0\] does not hold 3 tokens"),
        ({"block_tables": [[]]}, r"block_tables\[0\]"),
        ({"seq_lens": [600]}, r"seq_lens\[0\] is 600 with 3 new tokens; the model takes 512"),
        ({"logit_rows": [3]}, "logit_rows must lie in 0..2"),
    ],
)
def test_a_step_that_contradicts_itself_is_refused_and_writes_nothing(llama: Any, spoil: Any, match: str) -> None:
    server = Step(llama)
    good = server.batch(server.sequence([1, 2, 3]), 3)
    with pytest.raises(ValueError, match=match):
        server.runner.run(replace(good, **spoil))
    assert all(bool(pool.isnan().all()) for pool in server.store.k)
    assert server.runner.run(good).shape == (1, 97)


def test_a_negative_slot_writes_nothing(llama: Any) -> None:
    server = Step(llama)
    seq = server.sequence([1, 2, 3, 4])
    batch = server.batch(seq, 4)
    server.runner.run(replace(batch, slot_mapping=[*batch.slot_mapping[:3], -1]))
    kv = server.kv(seq, 0, 4)
    assert not kv[:, :3].isnan().any()
    assert kv[:, 3].isnan().all()


def test_only_the_rows_asked_for_become_logits(llama: Any) -> None:
    server = Step(llama)
    whole = server.runner.run(replace(server.batch(server.sequence(ids(0, 9)), 9), logit_rows=range(9)))
    some = server.runner.run(replace(server.batch(server.sequence(ids(0, 9)), 9), logit_rows=[7, 2]))
    torch.testing.assert_close(some, whole[[7, 2]])
    assert server.runner.run(replace(server.batch(server.sequence(ids(0, 9)), 9), logit_rows=[])).shape == (0, 97)


def test_an_empty_step_is_no_step(llama: Any) -> None:
    assert Step(llama).runner.run(Batch([], [], [], [0], [], [], [])).shape == (0, 97)


def test_reading_what_nobody_wrote_is_noticed(llama: Any) -> None:
    server = Step(llama)
    seq = server.sequence(ids(0, 20))
    seq.computed = 16  # as if a prefix were cached, which it is not
    assert server.runner.run(server.batch(seq, 4)).isnan().all()


def test_a_pool_of_another_shape_is_refused(llama: Any) -> None:
    with pytest.raises(ValueError, match="has 2 layers, the model 3"):
        ModelRunner(llama, KVStore(4, 8, 2, 2, 16), SdpaBackend())
    with pytest.raises(ValueError, match=r"holds \[2, 8\] .* the model writes \[2, 16\]"):
        ModelRunner(llama, KVStore(4, 8, 3, 2, 8), SdpaBackend())


def test_graphs_need_cuda_and_triton(llama: Any) -> None:
    with pytest.raises(ValueError, match="graph_batch_sizes needs a model on CUDA"):
        ModelRunner(llama, KVStore(4, 8, 3, 2, 16), SdpaBackend(), graph_batch_sizes=[1, 2])


def test_a_step_takes_the_smallest_bucket_that_holds_it() -> None:
    assert [bucket_for(n, [1, 4, 8]) for n in (1, 2, 4, 5, 9)] == [1, 4, 4, 8, None]


def test_the_sequences_that_fill_a_bucket_change_no_result_and_no_slot() -> None:
    """What a graph would replay, run eagerly through the interpreter."""
    from model.backend.triton import TritonBackend

    decoder = tiny(device=DEVICE, **(FAMILIES["llama"] | {"num_hidden_layers": 2})).decoder
    server = Server(decoder, 64, 8, backend=TritonBackend("interpreter"), device=DEVICE)
    seqs = [server.sequence(ids(i, 6 + i)) for i in range(2)]
    server.step(*((seq, len(seq.tokens) - 1) for seq in seqs))
    batch = Batch.of([([seq.tokens[-1]], len(seq.tokens) - 1, seq.table) for seq in seqs], 8)
    wanted = server.runner.run(batch)
    before = [pool.clone() for pool in (*server.store.k, *server.store.v)]
    padded = pad_decode(batch, 4, 32)
    backend, store = server.runner.backend, server.store
    with torch.inference_mode():
        step = backend.prepare(padded, store, (decoder.cos, decoder.sin), False)
        ids_ = torch.tensor(padded.token_ids, device=DEVICE)
        x = decoder.forward(ids_, lambda i, q, k, v: step.attend(i, q, k, v, None))
        torch.testing.assert_close(decoder.logits(x)[:2], wanted, atol=1e-5, rtol=1e-5)
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(before, (*store.k, *store.v), strict=True))
