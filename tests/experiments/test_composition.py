"""What a command line gets wrong is told in one sentence, with what was probably meant; nothing is silently ignored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import OmegaConf
from support import toy_lab
from support.conf import CONF

from experiments.cli import explain
from experiments.composition import check_overrides, check_sweep
from experiments.errors import UserError
from experiments.suggest import nearest


@pytest.fixture
def lab() -> Iterator[None]:
    """Hydra as it is while an experiment starts."""
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        yield


def started(experiment: str, *overrides: str) -> None:
    """What happens before a job runs; raises what would be told."""
    plain = [text for text in overrides if "," not in text]
    config = compose(config_name=experiment, overrides=plain, return_hydra_config=True)
    OmegaConf.set_readonly(config, False)
    config.hydra.overrides.task = list(overrides)
    config.hydra.job.config_name = experiment
    check_overrides(config)


def told(experiment: str, *overrides: str) -> str:
    with pytest.raises((HydraException, UserError)) as error:
        started(experiment, *overrides)
    text = explain(error.value)
    assert text is not None
    assert "\n" not in text
    return text


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(
    ("experiment", "override", "words"),
    [
        ("replay", "evictr=lru", "there is no setting evictr: did you mean evictor? The settings are record, alloc"),
        ("replay", "+evictr=lru", "+evictr=lru: there is no setting evictr: did you mean evictor?"),
        ("simulate", "++rat=3", "++rat=3: there is no setting rat: did you mean rate?"),
        ("simulate", "+slo.ttfb=1", "there is no setting slo.ttfb: did you mean slo.ttft?"),
        ("curves", "sample.rat=0.1", "did you mean sample.rate? The settings of sample are rate, count"),
        ("replay", "limit=5", "there is no setting limit: did you mean workload.limit?"),
        ("replay", "workload.limti=5", "there is no setting workload.limti: did you mean workload.limit?"),
        ("replay", "evictor.half_life=3", "there is no setting evictor.half_life. evictor has no settings."),
        ("replay", "+gpu=l4", "there is no setting gpu."),
        ("replay", "evictor=lruu", "there is no evictor=lruu: did you mean evictor=lru? The choices are arc, belady"),
        ("replay", "gpu=l4", "there is no gpu to choose in this experiment."),
        ("generate", "model=tinny", "there is no model=tinny: did you mean model=tiny? The choices are folder"),
        ("replay", "evictor", "'evictor' is no setting: write KEY=VALUE"),
        ("replay", "seed=x", "seed=x must be a whole number; the yaml says 0."),
        ("replay", "seed=1,x", "seed=x must be a whole number"),
        ("replay", "watch=perhaps", "watch=perhaps must be true or false; the yaml says false."),
        ("replay", "seed=true", "seed=True must be a whole number"),
        ("prompt_layout", "record.redo=1", "record.redo=1 must be true or false"),
        ("simulate", "slo.ttft=fast", "slo.ttft=fast must be a number; the yaml says 2.0."),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it_and_what_was_meant(experiment: str, override: str, words: str) -> None:
    assert words in told(experiment, override)


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(
    ("experiment", "override"),
    [
        ("replay", "evictor=lfu"),
        ("replay", "++block_size=32"),
        ("replay", "num_blocks=100"),
        ("replay", "+workload.reply_tokens=3"),  # its constructor says whether it takes it
        ("replay", "workload.limit=5"),
        ("replay", "evictor=lru,lfu"),
        ("generate", "prefix_caching=compare"),
        ("simulate", "slo.ttft=1"),
        ("simulate", "rate=null"),
        ("curves", "sample.above=inf"),
        ("block_size", "sizes=[16,32]"),
        ("replay", "seed=0,1,2"),
        ("replay", "+hydra.launcher.n_jobs=2"),
    ],
)
def test_what_is_meant_is_let_pass(experiment: str, override: str) -> None:
    started(experiment, override)


@pytest.mark.usefixtures("lab")
def test_a_sweep_of_another_experiment_is_told_with_its_command() -> None:
    config = compose(config_name="replay", return_hydra_config=True)
    check_sweep("quick", ["evictor", "block_size", "workload.limit"], config)
    with pytest.raises(UserError, match=r"varies order, rate, which .* does not have.*experiments\.simulate sweep=joi"):
        check_sweep("joint", ["evictor", "order", "rate"], config)


def test_other_mistakes_of_the_command_line_are_sentences_too() -> None:
    parser = OverridesParser.create()
    with pytest.raises(HydraException) as blank:
        parser.parse_overrides(["evictor", "=", "lru"])
    assert "without blanks around the =" in str(explain(blank.value))
    null = ValueError("Config group override must be a string or a list. Got NoneType")
    assert "null is no option of a config group" in str(explain(null))
    ambiguous = ConfigCompositionException("Ambiguous value for argument 'block_size=16,32'\n1. To use it as a list")
    assert (
        explain(ambiguous) == "block_size=16,32 has several values: add -m to run them all, or write [...] around "
        "them for a list."
    )


def test_the_nearest_word_counts_the_end_of_a_dotted_key_and_nothing_far() -> None:
    assert nearest("limti", ["seed", "workload.limit"]) == "workload.limit"
    assert nearest("LRU", ["lru", "lfu"]) == "lru"
    assert nearest("xylophone", ["lru", "lfu"]) is None


def test_an_added_setting_stops_a_single_run_and_a_sweep_before_any_job(tmp_path) -> None:
    toy_lab.make_toy_lab(tmp_path)
    for more in ([], ["-m", "block_size=16,32"]):
        code, out, err = toy_lab.run(tmp_path, *more, "+evictr=lru")
        assert (code, out) == (2, "")
        assert "did you mean evictor?" in err
    assert toy_lab.calls(tmp_path) == []
