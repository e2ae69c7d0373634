"""The roofline against numbers worked out by hand and parameter counts that are public."""

from __future__ import annotations

import pytest
from hydra.utils import instantiate
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from support.conf import CONF, options

from scheduler.cost import Gpu, ModelShape, Roofline
from scheduler.step import Work

GPU = Gpu(
    "toy", flops=1000.0, bandwidth=100.0, memory=5000.0, link_bandwidth=10.0, host_bandwidth=5.0, gemm_share=0.5,
    attention_share=0.1, bandwidth_share=0.4, kernel_seconds=0.5, step_seconds=3.0, hop_seconds=2.0,
)  # fmt: skip
SHAPE = ModelShape("toy", hidden_size=4, intermediate_size=5, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=2,
                   vocab_size=10, max_model_len=100, kernels_per_layer=4)  # fmt: skip
LAYER_WEIGHTS = 2 * (4 * 6 + 4 * 2 + 4 * 2 + 6 * 4 + 3 * 4 * 5)  # q, k, v, o, and the three of the feed-forward part
FIXED = 3.0 + 2 * 4 * 0.5


def shapes() -> dict[str, ModelShape]:
    loaded = {name: OmegaConf.load(CONF / "model" / f"{name}.yaml").shape for name in options("model")}
    return {name: instantiate(shape) for name, shape in loaded.items() if shape is not None}


def test_a_small_step_waits_for_the_weights_and_a_large_one_for_the_products() -> None:
    cost = Roofline(GPU, SHAPE, 4)
    kv = 2 * 2 * 1 * 2 * 2.0
    small = Work(num_tokens=1, num_logits=1, num_seqs=1, context=3, pairs=3)
    weights = (LAYER_WEIGHTS + 40) * 2.0 / 40.0
    assert cost.seconds(small) == pytest.approx(FIXED + weights + max(4 * 2 * 3 * 2 * 3 / 100, kv * 4 / 40))
    large = Work(num_tokens=100, num_logits=1, num_seqs=1, context=100, pairs=5050)
    products = (2 * LAYER_WEIGHTS * 100 + 2 * 40) / 500
    assert cost.seconds(large) == pytest.approx(FIXED + products + 4 * 2 * 3 * 2 * 5050 / 100)


def test_a_long_context_waits_for_its_keys_and_values() -> None:
    cost = Roofline(
        Gpu("fast", 1e9, 100.0, 1.0, 1.0, 1.0, bandwidth_share=1.0, kernel_seconds=0, step_seconds=0), SHAPE, 4
    )
    near, far = (cost.seconds(Work(1, 1, 1, context, context)) for context in (0, 1000))
    assert far - near == pytest.approx(1000 * 16 / 100.0)


def test_moved_blocks_cost_bandwidth_of_the_memory_or_of_the_host() -> None:
    cost = Roofline(GPU, SHAPE, 4)
    idle = Work(1, 1, 1, 1, 1)
    block = 16.0 * 4
    assert cost.seconds(Work(1, 1, 1, 1, 1, copied_blocks=3)) - cost.seconds(idle) == pytest.approx(3 * 2 * block / 40)
    assert cost.seconds(Work(1, 1, 1, 1, 1, swapped_blocks=3)) - cost.seconds(idle) == pytest.approx(3 * block / 5)


def test_two_gpus_halve_the_work_and_pay_for_talking() -> None:
    two = ModelShape("two", 4, 5, 2, 3, 1, 2, 10, 100, kernels_per_layer=4, num_gpus=2)
    work = Work(100, 1, 1, 100, 5050)
    alone, split = Roofline(GPU, SHAPE, 4).seconds(work) - FIXED, Roofline(GPU, two, 4).seconds(work) - FIXED
    talk = 2 * 2 * 2.0 + 100 * 2 * 2 * 4 * 2.0 * (2 * 1 / 2) / 10.0
    assert split == pytest.approx(alone / 2 + talk)


@given(*[st.integers(0, 10_000)] * 4, st.integers(0, 4), st.integers(1, 1000))
def test_more_work_never_takes_less_time(
    tokens: int, logits: int, context: int, pairs: int, which: int, more: int
) -> None:
    sums = [tokens, logits, 1, context, pairs]
    cost = Roofline(GPU, SHAPE, 4)
    before = cost.seconds(Work(*sums))
    sums[which] += more
    assert cost.seconds(Work(*sums)) >= before


def test_parameter_counts_are_those_the_makers_publish() -> None:
    published = {"llama3-8b": 8.03e9, "llama3-70b-tp8": 70.55e9, "qwen3-32b": 32.76e9, "smollm2": 134.5e6}
    found = shapes()
    for name, count in published.items():
        assert found[name].num_weights == pytest.approx(count, rel=2e-3)
    assert found["llama3-8b"].kv_bytes_per_token == 131_072
    assert found["llama3-70b-tp8"].kv_bytes_per_token == 327_680


@pytest.mark.parametrize("gpu", options("gpu"))
def test_every_gpu_serves_what_fits_it_and_says_what_does_not(gpu: str) -> None:
    built: Gpu = instantiate(OmegaConf.load(CONF / "gpu" / f"{gpu}.yaml"))
    assert built.name == gpu
    for shape in shapes().values():
        cost = Roofline(built, shape, 16)
        if shape.num_weights * shape.bytes_per_weight < 0.85 * built.memory * shape.num_gpus:
            tokens = cost.num_blocks(0.9) * 16
            held = shape.num_weights * shape.bytes_per_weight + tokens * shape.kv_bytes_per_token
            assert held <= 0.9 * built.memory * shape.num_gpus
        elif shape.num_weights * shape.bytes_per_weight > 0.9 * built.memory * shape.num_gpus:
            with pytest.raises(ValueError, match="GB of weights"):
                cost.num_blocks(0.9)


def test_a_decode_step_of_llama_on_an_h200_takes_the_milliseconds_that_its_bandwidth_allows() -> None:
    gpu = instantiate(OmegaConf.load(CONF / "gpu" / "h200.yaml"))
    step = Roofline(gpu, shapes()["llama3-8b"], 16).seconds(Work(1, 1, 1, 1000, 1000))
    assert 15.0e9 / 4.8e12 < step < 3 * 15.0e9 / 4.8e12


@pytest.mark.parametrize("wrong", [{"flops": 0.0}, {"gemm_share": 1.5}, {"bandwidth_share": 0.0}])
def test_impossible_hardware_is_refused_by_field(wrong: dict[str, float]) -> None:
    fields = {"flops": 1.0, "bandwidth": 1.0, "memory": 1.0, "link_bandwidth": 1.0, "host_bandwidth": 1.0} | wrong
    with pytest.raises(ValueError, match=f"gpu.{next(iter(wrong))}"):
        Gpu("odd", **fields)  # type: ignore[arg-type]
