"""Any sweep folder becomes one table and plots, or a sentence that says why not."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas
import pytest
from matplotlib.text import Text
from support.browser import Browser, find_browser

from experiments.errors import UserError
from experiments.plots.ledger import COLORS, EVENTS
from experiments.plots.series import draw_series
from experiments.plots.serving import draw_serving
from experiments.plots.style import BLUE, label_ends, looks, panels, paper, render, spread, thousands
from experiments.record import RecordWriter, StoredRecord
from experiments.report import Report, main, write_report
from experiments.reporting.differences import config_differences
from experiments.reporting.table import one_row_per_point

RATES = {"lru": 0.4, "fifo": 0.35, "belady": 0.6}


def put(folder: Path, config: dict[str, Any] | None = None, **metrics: Any) -> None:
    """A finished run with these metrics."""
    size = metrics.get("block_size", 16)
    metrics = {
        "workload": "toy",
        "workload_fingerprint": "aaaa",
        "allocator": "hash_chain",
        "hasher": "builtin",
        "evictor": "lru",
        "block_size": size,
        "pool": "5%",
        "num_blocks": 1600 // size,
        "requests": 9,
        "refused": 0,
        "prompt_tokens": 99,
        "ceiling_token_hit_rate": 0.9,
        "token_hit_rate": 0.4,
        **metrics,
    }
    metrics.setdefault("pool_tokens", metrics["num_blocks"] * size)
    record = RecordWriter(folder, config or {"name": folder.name})
    record.begin()
    record.add("environment.json", b'{"cpu": "c", "python": "3", "git": null}')
    record.commit(metrics)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    for evictor, rate in RATES.items():
        for size in (16, 32):
            for share, pool in (("5%", 1600), ("10%", 3200), ("inf", float("inf"))):
                name = f"{evictor}-{size}-{share}"
                count, rate = (pool, 0.9) if share == "inf" else (pool // size, rate + pool / 1e5)
                put(
                    tmp_path / name,
                    evictor=evictor,
                    block_size=size,
                    pool=share,
                    num_blocks=count,
                    token_hit_rate=rate,
                )
    return write_report(tmp_path)


def test_a_sweep_becomes_a_table_and_three_plots(report: Report) -> None:
    assert {path.name for path in report.files} == {
        f"{name}.{suffix}"
        for name, suffixes in {
            "hit_rate_by_pool": ("png", "svg"),
            "hit_rate_by_block_size": ("png", "svg"),
            "gap_closed": ("png", "svg"),
            "report": ("parquet", "md", "html"),
        }.items()
        for suffix in suffixes
    }
    frame = pandas.read_parquet(report.folder / "report.parquet")
    assert len(frame) == 18
    assert frame.num_blocks.max() == float("inf")
    assert "of prompt tokens" in (report.folder / "report.md").read_text()


def test_the_share_of_the_gap_is_0_for_lru_and_1_for_belady(report: Report) -> None:
    finite = report.frame[report.frame.pool_group == "5%"].groupby("policy").gap_closed.mean()
    assert finite["lru"] == 0
    assert finite["belady"] == 1
    assert finite["fifo"] < 0
    assert report.frame[report.frame.pool_group == "inf"].gap_closed.isna().all(), "no gap, no share of it"


def test_a_second_report_is_the_same_to_the_byte(report: Report) -> None:
    before = {path.name: path.read_bytes() for path in report.files}
    assert {path.name: path.read_bytes() for path in write_report(report.folder).files} == before


def test_runs_over_different_workloads_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "a")
    put(tmp_path / "b", workload_fingerprint="bbbb")
    with pytest.raises(UserError, match=r"2 different workloads.*do not compare"):
        write_report(tmp_path)


def test_broken_and_unfinished_runs_are_left_out_and_named(tmp_path: Path) -> None:
    put(tmp_path / "good")
    put(tmp_path / "cut")
    (tmp_path / "cut" / "metrics.json").write_text('{"a"')
    RecordWriter(tmp_path / "begun", {}).begin()
    report = write_report(tmp_path)
    assert len(report.frame) == 1
    assert "begun (the run did not finish)" in report.notes[0]
    assert "cut (metrics.json is not JSON)" in report.notes[0]


def test_a_folder_without_records_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no record of a finished run"):
        write_report(tmp_path)
    with pytest.raises(UserError, match="is no folder"):
        write_report(tmp_path / "nowhere")


def test_pools_counted_in_blocks_are_not_compared_across_block_sizes(tmp_path: Path) -> None:
    for size in (16, 32):
        put(tmp_path / str(size), block_size=size, pool="100", num_blocks=100)
    report = write_report(tmp_path)
    assert not report.plots
    assert any("block sizes are not compared" in note for note in report.notes)


def test_the_naive_allocator_is_no_policy(tmp_path: Path) -> None:
    put(tmp_path / "a", allocator="naive", token_hit_rate=0.0)
    put(tmp_path / "b")
    assert set(write_report(tmp_path).frame.policy) == {"no sharing", "lru"}


def test_a_policy_looks_the_same_in_every_plot_and_new_ones_need_no_edit() -> None:
    assert looks(["lru", "arc"])["lru"] == looks(["lru"])["lru"]
    assert len(set(looks(["arc", "s3fifo", "lru", "two_queue", "belady"]).values())) == 5


def test_eight_combinations_have_eight_colours() -> None:
    names = [f"lru · {order} · {victim} · {how}" for order in "ab" for victim in "cd" for how in "ef"]
    assert len({look.color for look in looks(names).values()}) == 8
    assert looks([*names, "lru"])["lru"].color not in {
        look.color for name, look in looks([*names, "lru"]).items() if name != "lru"
    }


def test_labels_are_moved_apart_and_no_further_than_needed() -> None:
    assert spread([0.0, 5.0, 9.0], [1.0, 1.0]) == [0.0, 5.0, 9.0]
    places = spread([1.0, 1.0, 1.1, 7.0], [1.0, 1.0, 1.0])
    assert places == pytest.approx([1.0333 - 1, 1.0333, 1.0333 + 1, 7.0], abs=1e-3)


def test_labels_of_several_lines_do_not_overlap() -> None:
    with paper():
        figure, (axes,) = panels(1)
        axes.set(xlim=(0, 1), ylim=(0, 1))
        label_ends(
            axes, [("so far", 1, 0.71, BLUE), ("infinite cache\n(whole run)", 1, 0.72, BLUE), ("x", 1, 0.73, BLUE)]
        )
        figure.draw_without_rendering()
        boxes = sorted((Text.get_window_extent(text) for text in axes.texts), key=lambda box: box.y0)
    assert len(boxes) == 3
    assert all(below.y1 <= above.y0 + 1 for below, above in pairwise(boxes))


def test_no_colour_of_a_ledger_stands_for_two_things() -> None:
    events = {name: color for name, _, color in EVENTS}
    assert len(set(COLORS.values())) == len(COLORS)
    assert events["hit"] == COLORS["hit"]
    assert events["missed"] == COLORS["evicted"], "blocks missed since they were evicted, in both panels"
    assert events["evicted"] not in COLORS.values(), "an eviction is no reason of a lookup"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (2.5, "2.5"), (12.5, "12.5"), (738.0, "738"), (999.6, "1 k"), (999_999, "1 M"), (1_234_567, "1.23 M")],
)
def test_a_number_on_an_axis_says_what_it_is(count: float, text: str) -> None:
    assert thousands(count) == text


def test_counts_of_requests_are_marked_at_whole_numbers() -> None:
    levels = {"used_blocks": 1, "cached_blocks": 1, "free_blocks": 1, "waiting": 0, "swapped": 0}
    series = [{"time": float(time), "running": running, **levels} for time, running in enumerate((0, 16, 3))]
    row = {"ttft": 0.1, "tpot": 0.1, "e2e": 1.0, "arrival": 0.0, "error": None}
    (figure,) = draw_serving([row, row | {"arrival": 2.0}], series, {"slo_ttft": 2.0, "slo_tpot": 0.1}).values()
    figure.canvas.draw()
    for panel in figure.axes[:2]:
        assert all(float(label.get_text()).is_integer() for label in panel.get_yticklabels())


def test_the_plot_of_one_run_bears_gaps_and_an_unbounded_pool() -> None:
    series = [
        {"request": index, "hit_rate": 0.1, "window_hit_rate": None, "used_blocks": 1, "cached_blocks": index}
        | {"free_blocks": None, "evictions": 0, "age_at_hit": None, "age_at_eviction": None}
        for index in range(3)
    ]
    assert draw_series([], {}) == {}
    files = render(draw_series(series, {"ceiling_token_hit_rate": 0.5})["series"])
    assert files["png"][:4] == b"\x89PNG"
    assert files["svg"].startswith(b"<?xml")


def test_the_page_answers_a_question_names_differences_and_machines(report: Report) -> None:
    text = (report.folder / "report.html").read_text()
    for words in (
        "9 requests",
        "of prompt tokens",
        "What differs between the runs",
        "Where the runs were made",
        "name",
    ):
        assert words in text
    assert text.count("<svg") == 4, "two block sizes over pools, two finite pools over block sizes"
    assert "http" not in text.replace("http-equiv", ""), "nothing remote"


def served(folder: Path, seed: int = 0, **chosen: Any) -> None:
    """A run of a sweep over groups (order, victim, ...) and settings."""
    rate = 0.4 + 0.1 * (chosen.get("order") == "longest_prefix") + 0.05 * (chosen.get("evictor") == "belady")
    groups = {name: {"_target_": option} for name, option in chosen.items() if isinstance(option, str)}
    values = {name: value for name, value in chosen.items() if not isinstance(value, str)}
    name = ",".join(f"{key}={value}" for key, value in chosen.items()) + f",seed={seed}"
    options = {key: value for key, value in chosen.items() if isinstance(value, str)}
    put(folder / name, {**groups, **values, "seed": seed}, seed=seed, token_hit_rate=rate + seed / 100, **options)


def test_no_axis_of_a_sweep_is_averaged_over_without_a_word(tmp_path: Path) -> None:
    for order in ("fcfs", "longest_prefix"):
        for victim in ("last", "cheapest_recompute"):
            for preemption in ("recompute", "swap"):
                for seed in (0, 1):
                    served(tmp_path, seed, order=order, victim=victim, preemption=preemption)
    report = write_report(tmp_path)
    names = {f"lru · {o} · {v} · {p}" for o in ("fcfs", "longest_prefix") for v in ("last", "cheapest_recompute")
             for p in ("recompute", "swap")}  # fmt: skip
    assert set(report.frame.policy) == names
    points = one_row_per_point(report.frame).set_index("policy").token_hit_rate
    assert points["lru · fcfs · last · swap"] == pytest.approx(0.405)
    assert points["lru · longest_prefix · last · swap"] == pytest.approx(0.505)
    assert any("the mean over up to 2 seeds" in note for note in report.notes)


def test_a_swept_value_is_told_apart_too_and_a_gap_is_one_within_a_setup(tmp_path: Path) -> None:
    for evictor in ("lru", "belady"):
        for order in ("fcfs", "longest_prefix"):
            served(tmp_path, evictor=evictor, order=order)
    for half_life in (10, 20):
        lfu = {"_target_": "lfu", "half_life": half_life}
        config = {"evictor": lfu, "allocator": {"evictor": lfu}, "order": {"_target_": "fcfs"}}
        put(tmp_path / f"lfu {half_life}", config, evictor="lfu", order="fcfs", token_hit_rate=0.425)
    frame = write_report(tmp_path).frame.set_index("policy")
    assert {"lfu · fcfs · half_life=10", "lfu · fcfs · half_life=20"} <= set(frame.index)
    assert frame.gap_closed["lfu · fcfs · half_life=10"] == pytest.approx(0.5)
    assert frame.gap_closed["belady · longest_prefix"] == 1
    assert frame.gap_closed["lru · longest_prefix"] == 0


def test_runs_of_one_config_made_twice_are_told(tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(tmp_path / name, {"evictor": {}}, seed=0, token_hit_rate=0.4 if name == "a" else 0.5)
    assert any("1 runs repeat another one's config" in note for note in write_report(tmp_path).notes)


def test_folders_that_do_not_go_together_are_told_by_the_runs_that_differ(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    put(a / "x")
    record = RecordWriter(b / "y", {"name": "y"})
    record.begin()
    record.add("environment.json", b"{}")
    record.commit({"workload": "toy"})
    with pytest.raises(UserError, match=rf"{b}/y has no hit rate at one pool size, as {a}/x has"):
        write_report(a, b)
    shutil.rmtree(b)
    put(b / "y", workload_fingerprint="bbbb")
    with pytest.raises(UserError, match=rf"{a} and {b} together hold runs over 2 .*: {a}/x is over .*, {b}/y over"):
        write_report(a, b)
    shutil.rmtree(b)
    put(b / "y", {"report": "some.other"})
    with pytest.raises(UserError, match=rf"{a}/x and {b}/y are runs of different experiments"):
        write_report(a, b)


def test_markup_in_a_record_is_shown_not_run(tmp_path: Path) -> None:
    put(tmp_path / "a", workload="<script>alert(1)</script>")
    text = (write_report(tmp_path).folder / "report.html").read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_config_differences_are_told_once_and_the_rest_apart() -> None:
    configs = [{"evictor": {"kind": k}, "size": s, "allocator": {"size": s}} for k in "ab" for s in (1, 2)]
    differing, common = config_differences([StoredRecord(Path(), {**c, "seed": 0}, {}, {}) for c in configs])
    assert differing == {"evictor.kind": [("a", 2), ("b", 2)], "size": [("1", 2), ("2", 2)]}
    assert common == {"seed": "0"}


def test_records_of_many_machines_join_and_copies_count_once(tmp_path: Path) -> None:
    put(tmp_path / "a" / "x")
    put(tmp_path / "a" / "y", evictor="fifo")
    shutil.copytree(tmp_path / "a" / "x", tmp_path / "b" / "x")
    put(tmp_path / "b" / "z", evictor="lfu")
    report = write_report(tmp_path / "a", tmp_path / "b", out=tmp_path / "joined")
    assert sorted(report.frame.policy) == ["fifo", "lfu", "lru"]
    assert (tmp_path / "joined" / "report.html").exists()
    assert any("1 runs lie in more than one" in note for note in report.notes)
    assert not (tmp_path / "a" / "report.html").exists()


def test_one_name_for_two_pools_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "a", num_blocks=100)
    put(tmp_path / "b", num_blocks=101, evictor="fifo")
    with pytest.raises(UserError, match="whose pool of 5% is not the same: a has 100 blocks, b 101"):
        write_report(tmp_path)


def test_policies_that_never_had_the_same_pool_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "a", num_blocks=100, pool="100")
    put(tmp_path / "b", num_blocks=200, pool="200", evictor="fifo")
    with pytest.raises(UserError, match="no two policies with the same pool"):
        write_report(tmp_path)
    put(tmp_path / "c", num_blocks=100, pool="100", evictor="fifo")
    assert len(write_report(tmp_path).frame) == 3


@pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine")
def test_the_page_works_in_a_browser_on_a_phone_and_a_desk(report: Report, tmp_path: Path) -> None:
    browser = Browser(tmp_path)
    try:
        for width, dark in ((390, False), (1280, False), (1280, True)):
            browser.open(report.folder / "report.html", width, dark=dark)
            assert browser.run("document.documentElement.scrollWidth") <= width, "nothing to scroll sideways"
            box = browser.run(
                "(b => [b.x, b.y, b.width, b.height])(document.querySelector('svg').getBoundingClientRect())"
            )
            browser.move(box[0] + box[2] / 2, box[1] + box[3] / 2)
            said = browser.run("document.querySelector('.hover').innerText")
            assert "of prompt tokens hit" in said or "infinite cache" in said
            browser.run("document.querySelector('.legend button[data-line=fifo]').click()")
            assert browser.run("document.querySelector('g[data-line=fifo]').style.display") == "none"
            assert browser.run("document.querySelector('g[data-line=lru]').style.display") == ""
            assert browser.complaints() == []
        browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=\"https://example.invalid/x.png\">')")
        browser.run("new Promise(done => setTimeout(done, 200))")
        assert browser.complaints(), "the test would have seen a page that loads something"
    finally:
        browser.close()


def test_one_command_joins_folders_and_answers_the_question_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "here" / "x")
    put(tmp_path / "there" / "y", evictor="fifo")
    folders = [str(tmp_path / name) for name in ("here", "there")]
    question = ["--question", "Which <one>?"]
    monkeypatch.setattr("sys.argv", ["report", *folders, "--out", str(tmp_path / "joined"), *question])
    main()
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == 2
    assert "Which &lt;one&gt;?" in (tmp_path / "joined" / "report.html").read_text()
    assert all(Path(file).exists() for file in told["files"])
