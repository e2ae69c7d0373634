"""One chat in every layout: the same words, tokenised as the model's template does, sharing exactly what it should."""

from __future__ import annotations

from itertools import pairwise, takewhile
from typing import Any

import pytest
from hydra.utils import instantiate
from support.conf import composed, options

from cache.tokens import unpack
from experiments.errors import UserError
from experiments.layout.field.first import First
from experiments.layout.field.middle import Middle
from experiments.layout.history.aged import Aged
from experiments.layout.history.window import Window
from experiments.layout.script import Turn, write_talks
from experiments.layout.workload import LaidOutChat
from experiments.prompt_layout import prompt_layout_job
from model.tokenizer import SmolLM2Tokenizer

CHOICES = [(group, option) for group in ("field", "history", "template", "layout") for option in options(group)]


@pytest.fixture
def lay_out(cache_dir: str) -> Any:
    def make(*overrides: str) -> LaidOutChat:
        cfg = config(cache_dir, *overrides)
        built = instantiate(cfg.workload)
        assert isinstance(built, LaidOutChat)
        return built

    return make


def config(cache_dir: str, *overrides: str) -> Any:
    small = ("workload.num_sessions=5", "turns=3", f"workload.cache_dir={cache_dir}")
    return composed(*small, *overrides, config_name="prompt_layout")


def prompts(chat: LaidOutChat) -> list[list[int]]:
    return [request.tokens.tolist() for request in chat]


def num_common(found: list[list[int]]) -> int:
    return sum(1 for _ in takewhile(lambda ids: len(set(ids)) == 1, zip(*found, strict=False)))


@pytest.mark.parametrize(("pad", "block_size"), [("false", 16), ("true", 16), ("true", 64), ("true", 256)])
@pytest.mark.parametrize("asked", [128, 256, 500, 512, 520])
def test_all_prompts_begin_with_exactly_the_common_tokens_asked_for(
    lay_out: Any, asked: int, pad: str, block_size: int
) -> None:
    chat = lay_out(f"common_tokens={asked}", f"pad={pad}", f"block_size={block_size}", "turns=1")
    wanted = -(-asked // block_size) * block_size if pad == "true" else asked
    assert num_common(prompts(chat)) == chat.prefix_tokens == wanted


@pytest.mark.parametrize(("group", "option"), CHOICES)
def test_every_choice_gives_the_ids_of_the_models_own_template_for_the_same_talks(
    lay_out: Any, smollm2: SmolLM2Tokenizer, group: str, option: str
) -> None:
    chat = lay_out(f"{group}={option}")
    texts = {
        tuple(smollm2.chat([m for part in chat.messages(t, n) for m in part])) for t in chat.talks for n in range(3)
    }
    assert set(map(tuple, prompts(chat))) == texts
    assert chat.script_fingerprint() == lay_out().script_fingerprint()


def test_a_stable_history_begins_with_the_prompt_before_and_its_answer(lay_out: Any) -> None:
    chat = lay_out()
    answered: dict[str, list[int]] = {}
    for request, reply in zip(chat, chat.replies(), strict=True):
        prompt, before = request.tokens.tolist(), answered.get(request.session, [])
        assert prompt[: len(before)] == before
        assert len(reply) == request.num_output_tokens
        answered[request.session] = prompt + reply


def test_where_the_field_stands_decides_how_far_prompts_agree(lay_out: Any) -> None:
    first, middle, last, newest = (
        num_common(prompts(lay_out(f"field={field}"))) for field in ("first", "middle", "last", "newest")
    )
    assert first < 32 < 128 < middle < 384 < 500 < last < 560
    assert newest == 512
    assert num_common(prompts(lay_out("template=timestamped"))) < 32


def test_a_field_of_the_session_stays_the_same_for_its_turns(lay_out: Any) -> None:
    def systems(changes: str) -> tuple[int, int]:
        chat = lay_out("field=first", f"field_changes={changes}")
        found = [[chat.messages(talk, turn)[0][0][1] for turn in range(3)] for talk in chat.talks]
        return len({text for texts in found for text in texts}), len(set(found[0]))

    assert systems("session") == (5, 1)
    assert systems("request") == (15, 3)


def test_fields_and_histories_write_what_they_say() -> None:
    assert First().system("rules", "noon") == "noon\n\nrules"
    assert Middle().system("a\nbb\nccc\ndddd", "noon") == "a\nbb\nnoon\nccc\ndddd"
    turns = [Turn(f"q{i}", f"a{i}", 10.0 * i) for i in range(3)]
    told = [("user", "[20 seconds ago] q1"), ("assistant", "a1"), ("user", "[10 seconds ago] q2"), ("assistant", "a2")]
    assert Aged().messages(turns[1:], 30.0) == told
    assert Window(1).messages(turns, 30.0) == [("user", "q2"), ("assistant", "a2")]


def test_what_was_sent_before_is_the_instructions_and_the_earlier_turns(
    lay_out: Any, smollm2: SmolLM2Tokenizer
) -> None:
    chat = lay_out("history=window", "history.keep=1")
    found = dict(zip(((one.session, one.turn) for one in chat._build()[1]), chat.sent_before(), strict=True))
    _, history, _ = chat.messages(chat.talks[3], 2)
    assert found[3, 2] == 512 + sum(len(smollm2.message(*message)) for message in history)
    assert found[0, 0] == 0
    assert found[4, 0] == 512


def test_talks_are_decided_by_their_seed_and_come_in_order_of_time() -> None:
    talks = write_talks(4, 3, 2, 5.0, 9.0, 0)
    assert talks == write_talks(4, 3, 2, 5.0, 9.0, 0) != write_talks(4, 3, 2, 5.0, 9.0, 1)
    assert all(a.asked_at < b.asked_at for talk in talks for a, b in pairwise(talk.turns))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("common_tokens=5000", r"common_tokens must lie in 32\.\.\d+"),
        ("common_tokens=20", "common_tokens must lie in 32"),
        ("field_changes=never", "field_changes must be request or session"),
        ("turns=0", "workload.turns must be a"),
    ],
)
def test_a_wrong_option_is_named(lay_out: Any, override: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        list(lay_out(override))


def measured(cache_dir: str, *overrides: str) -> Any:
    return prompt_layout_job(config(cache_dir, *overrides), lambda row: None)


def test_a_stable_prompt_takes_the_hit_rate_from_under_30_to_over_85_percent_and_shortens_the_wait(
    cache_dir: str,
) -> None:
    many = "workload.num_sessions=20"
    grown, cured = (
        measured(cache_dir, many, f"layout={name}").metrics for name in ("1_as_it_grew", "6_history_appended")
    )
    assert grown["token_hit_rate"] < 0.3
    assert cured["token_hit_rate"] > 0.85
    assert cured["ttft_p50"] < 0.8 * grown["ttft_p50"]
    assert cured["resent_tokens_computed_per_request"] < 40 < grown["resent_tokens_computed_per_request"]


def test_the_answers_of_earlier_turns_hit_and_nothing_hits_more_than_an_infinite_cache_would(cache_dir: str) -> None:
    result = measured(cache_dir)
    chat = instantiate(config(cache_dir).workload)
    ends: dict[str, int] = {}
    for request, reply, row in zip(chat, chat.replies(), result.tables["requests"], strict=True):
        if request.turn:
            assert row["hit_tokens"] == ends[request.session] // 16 * 16
        assert row["hit_tokens"] <= row["ceiling_tokens"] < len(request.tokens)
        assert row["resent_tokens_computed"] == max(0, row["resent_tokens"] - row["hit_tokens"])
        ends[request.session] = len(request.tokens) + len(reply) - 1
    turns = result.tables["turns"]
    assert [row["turn"] for row in turns] == [1, 2, 3]
    assert sum(row["requests"] for row in turns) == result.metrics["requests"] == 15
    hits = sum(row["hit_tokens_per_request"] * row["requests"] for row in turns)
    assert hits == pytest.approx(result.metrics["hit_tokens"])


def test_a_real_model_serves_the_same_prompts_and_hits_what_they_share(cache_dir: str) -> None:
    pytest.importorskip("tokenizers")
    cfg = config(cache_dir, "engine=true", "real.requests=3", "real.pool_tokens=4096", "turns=1")
    cfg.real.model.weights = {
        "_target_": "model.pretrained.tiny", "model_type": "llama", "architectures": ["LlamaForCausalLM"],
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 49152, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }  # fmt: skip
    result = prompt_layout_job(cfg, lambda row: None)
    rows = result.tables["real_requests"]
    assert [row["hit_tokens"] for row in rows] == [0, 512, 512]
    assert result.metrics["real_requests"] == 3
    assert 0 < result.metrics["real_ttft_ms_p50"] <= result.metrics["real_ttft_ms_p95"]


def test_a_model_that_is_only_described_serves_no_real_requests(cache_dir: str) -> None:
    with pytest.raises(UserError, match="no weights to load"):
        measured(cache_dir, "engine=true", "real.model.weights=null")


def test_the_reply_is_what_stands_between_two_prompts(lay_out: Any, smollm2: SmolLM2Tokenizer) -> None:
    chat = lay_out()
    (first, *_), laid = chat.replies(), chat._build()
    said = chat.talks[laid[1][0].session].turns[0].reply
    assert first == [*smollm2.encode(said), smollm2.special_ids["<|im_end|>"]]
    assert unpack(laid[0][0]) == smollm2.header()
