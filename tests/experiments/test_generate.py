"""Text through the real stack, on random tiny weights: the same hit or miss, with errors that name file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.conf import composed

from experiments.errors import UserError
from experiments.generate import generate_job, outputs_sha256
from experiments.prompts import read_chats, read_prompts

TINY = """
shape: null
weights:
  _target_: model.pretrained.tiny
  model_type: llama
  architectures: [LlamaForCausalLM]
  hidden_size: 32
  intermediate_size: 64
  num_hidden_layers: 2
  num_attention_heads: 4
  num_key_value_heads: 2
  vocab_size: 97
  max_position_embeddings: 256
  rms_norm_eps: 1.0e-5
  tie_word_embeddings: true
"""
WORKLOAD = (
    "workload=shared_prefix", "workload.num_requests=6", "workload.num_prefixes=1", "workload.prefix_tokens=40",
    "workload.suffix_tokens=7", "workload.vocab_size=97", "sampling.max_tokens=9", "num_blocks=64", "block_size=4",
)  # fmt: skip


@pytest.fixture
def tiny_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`composed` with a model of random weights: a second folder of configs would do the same for a user."""
    from omegaconf import OmegaConf

    def compose(*overrides: str) -> Any:
        cfg = composed(*WORKLOAD, *overrides, config_name="generate")
        cfg.model = OmegaConf.create(TINY)
        return cfg

    return compose


def run(cfg: Any) -> dict[str, Any]:
    series: list[Any] = []
    result = generate_job(cfg, series.append)
    assert series
    return dict(result.metrics)


@pytest.mark.parametrize(
    "sampling",
    [
        (),
        ("sampling.temperature=0.8",),
        ("sampling.temperature=0.8", "sampling.n=2"),
        ("sampling.beam_width=2",),
    ],
    ids=["greedy", "seeded", "two", "beams"],
)
def test_the_outputs_are_the_same_with_prefix_caching_on_off_preempted_and_chunked(
    tiny_conf: Any, sampling: Any
) -> None:
    on, off = run(tiny_conf(*sampling)), run(tiny_conf(*sampling, "prefix_caching=false"))
    assert on["hit_tokens"] == 5 * 40
    assert (off["hit_tokens"], off["allocator"]) == (0, "naive")
    assert on["outputs_sha256"] == off["outputs_sha256"]
    tight = run(tiny_conf(*sampling, "num_blocks=30", "scheduler.max_chunk_tokens=5", "preemption=swap"))
    assert tight["outputs_sha256"] == on["outputs_sha256"]
    assert on["peak_blocks_in_use"] < off["peak_blocks_in_use"]
    other = run(tiny_conf(*sampling, "workload.seed=1"))
    assert other["outputs_sha256"] != on["outputs_sha256"]


def test_a_pool_too_small_for_all_preempts_and_says_the_same(tiny_conf: Any) -> None:
    free = run(tiny_conf("prefix_caching=false"))
    for preemption in ("swap", "recompute"):
        tight = run(tiny_conf("prefix_caching=false", "num_blocks=27", f"preemption={preemption}"))
        assert tight["preemptions"] > 0
        assert tight["outputs_sha256"] == free["outputs_sha256"]


def test_the_json_line_has_what_was_promised(tiny_conf: Any) -> None:
    promised = (
        "requests ttft_ms_p50 ttft_ms_p95 tpot_ms_p50 prompt_tokens hit_tokens output_tokens_per_second outputs_sha256 "
        "peak_blocks_in_use"
    )
    metrics = run(tiny_conf())
    assert set(promised.split()) <= set(metrics)
    assert metrics["requests"] == 6
    assert metrics["prompt_tokens"] == 6 * 47


def test_a_comparison_runs_both_and_says_what_was_saved(tiny_conf: Any) -> None:
    metrics = run(tiny_conf("prefix_caching=compare"))
    assert metrics["same_outputs"] is True
    saved = metrics["without_caching_ttft_ms_p50"] - metrics["ttft_ms_p50"]
    assert metrics["ttft_ms_p50_saved"] == pytest.approx(saved)


def test_a_prompt_longer_than_the_model_fails_alone(tiny_conf: Any, tmp_path: Path) -> None:
    metrics = run(
        tiny_conf("workload.prefix_tokens=0", "workload.suffix_tokens=255", "num_blocks=100", "max_requests=2")
    )
    assert metrics["failed"] == 0
    with pytest.raises(UserError, match="none of 2 prompts could be answered; the first: the prompt has 256 tokens"):
        run(tiny_conf("workload.prefix_tokens=0", "workload.suffix_tokens=256", "num_blocks=100", "max_requests=2"))


WRONG: list[tuple[tuple[str, ...], str]] = [
    (("prefix_caching=maybe",), "none of true, false, compare"),
    (("prompts=a.txt", "chat=b.jsonl"), "not both"),
    (("scheduler.max_num_batched_tokens=3",), "max_num_seqs=8"),
    (("block_size=0",), "is no block size"),
    (("num_blocks=5%",), "positive whole number of blocks"),
    (("evictor=belady",), "timed run"),
]


@pytest.mark.parametrize(("overrides", "message"), WRONG, ids=[w[0][0] for w in WRONG])
def test_a_wrong_option_is_answered_with_a_sentence(tiny_conf: Any, overrides: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(tiny_conf(*overrides))


def test_a_model_that_is_only_described_cannot_be_served() -> None:
    with pytest.raises(UserError, match="model=folder"):
        run(composed("model=llama3-8b", config_name="generate"))


def test_text_for_a_model_without_a_tokenizer_is_refused(tiny_conf: Any, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("hello\n")
    with pytest.raises(UserError, match="no tokenizer"):
        run(tiny_conf(f"prompts={tmp_path}/p.txt"))


def test_prompts_are_read_from_lines_and_json_lines(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(b"\xef\xbb\xbfWhat is a block?\r\n\r\n  And a page? \n")
    assert read_prompts(tmp_path / "p.txt") == ["What is a block?", "And a page?"]
    (tmp_path / "p.jsonl").write_text('{"prompt": "two\\nlines"}\n')
    assert read_prompts(tmp_path / "p.jsonl") == ["two\nlines"]
    (tmp_path / "c.jsonl").write_text(json.dumps([{"role": "user", "content": "hi"}]) + "\n")
    assert read_chats(tmp_path / "c.jsonl") == [[("user", "hi")]]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("p.txt", b"fine\nbad \xff byte\n", "line 2: no valid UTF-8 at byte 4"),
        ("p.txt", b"\n \n", "holds no prompts"),
        ("p.jsonl", b'{"prompt": "a"}\n{"text": "b"}\n', "line 2: Object missing required field `prompt`"),
        ("p.jsonl", b"not json\n", "line 1: JSON is malformed"),
    ],
)
def test_a_broken_prompt_file_is_named_with_its_line(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=message) as error:
        read_prompts(tmp_path / name)
    assert name in str(error.value)


def test_the_digest_tells_answers_apart_by_tokens_and_by_how_they_ended(tiny_conf: Any) -> None:
    from support.engines import fake_engine

    from model.sampling import SamplingParams

    def digest(**options: Any) -> str:
        params = SamplingParams(max_tokens=4, temperature=0, **options)
        return outputs_sha256(fake_engine().generate([[1, 2, 3]], params))

    last = fake_engine().generate([[1, 2, 3]], SamplingParams(max_tokens=4, temperature=0))[0].token_ids[-1]
    assert digest() == digest()
    assert digest() != digest(stop_token_ids=(last,))


def test_the_tiny_model_reads_the_embedded_workloads() -> None:
    cfg = composed("model=tiny", "max_requests=2", "sampling.max_tokens=2", config_name="generate")
    assert run(cfg)["failed"] == 0


def test_token_ids_that_a_model_lacks_are_told_with_what_to_do() -> None:
    cfg = composed("model=tiny", "model.weights.vocab_size=512", "max_requests=2", config_name="generate")
    with pytest.raises(UserError, match=r"model tiny knows only 512 tokens.*workload\.vocab_size=512"):
        run(cfg)
