"""What the README and the guides of the rooms promise exists and works as written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.commands import GUIDES, ROOMS, ROOT, written_in_the_readme
from support.conf import CONF, options, sharing_allocator
from support.replays import drawn_prompts, replayed

from cache.evictor.lru import Lru
from cache.manager import CacheManager
from experiments.replay import replay

README = (ROOT / "README.md").read_text("utf-8")


def test_the_policy_written_in_the_readme_works_as_shown() -> None:
    evictor = _class(re.search(r"_target_: cache\.evictor\.\w+\.(\w+)", README)[1])
    prompts = [(i % 6, 0, 0) for i in range(60)]
    hits, _ = replayed(prompts, 1, 12, evictor())
    lru_hits, _ = replayed(prompts, 1, 12, Lru())
    assert sum(hits) > sum(lru_hits) == 0, "on a loop larger than the pool it wins and LRU never hits"
    replayed(drawn_prompts(1), 2, 15, evictor())


def test_the_workload_written_in_the_readme_works_as_shown() -> None:
    workload = _class("OneQuestion")
    first, *rest = workload(limit=4)
    assert [request.tokens.contents(16) for request in rest] == [first.tokens.contents(16)] * 3
    assert workload(num_tokens=5).fingerprint() != workload().fingerprint() == workload().fingerprint()
    manager = CacheManager(sharing_allocator("radix", 40, 16))
    metrics = replay(workload(), manager)
    assert metrics["hit_blocks"] == 99 * (299 // 16), "all but the first prompt hit wholly"


def _class(name: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(written_in_the_readme(name), namespace)
    return namespace[name]


@pytest.mark.parametrize("group", ["workload", "allocator", "evictor", "hasher", "ledger", "tracker", "sweep"])
def test_the_table_of_overrides_names_options_that_are_there(group: str) -> None:
    row = re.search(rf"^\| `{group}=` \|(.*)\|$", README, re.MULTILINE)[1]
    named = set(re.findall(r"`([\w]+)`", row))
    assert named <= set(options(group))
    if group == "sweep":  # the table is of replay; other experiments have sweeps of their own
        ours = {o for o in options(group) if "experiments.replay" in (CONF / "sweep" / f"{o}.yaml").read_text("utf-8")}
        assert named == ours
    else:
        assert len(named) >= 2


@pytest.mark.parametrize(
    "group", ["gpu", "model", "order", "victim", "preemption", "backend", "op", "variant", "kernel"]
)
def test_tables_of_the_guides_name_options_that_are_there(group: str) -> None:
    text = "\n".join(path.read_text("utf-8") for path in GUIDES)
    rows = re.findall(rf"^\| `{group}=` \|(.*)\|$", text, re.MULTILINE)
    assert rows
    for row in rows:
        assert set(re.findall(r"`([a-z][\w-]+)`", row)) <= set(options(group))


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_a_guide_names_is_there(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    linked = [path.parent / link for link in re.findall(r"\]\(([^)#]+)\)", text)]
    rooms = "|".join(ROOMS)
    named = [ROOT / name for name in re.findall(rf"`((?:{rooms})/[\w/.]+\.\w+)`", text)]
    made_up = ("evict_latest", "one_question", "NAME", "twice")
    missing = [str(p) for p in (*linked, *named) if not p.exists() and not any(name in p.name for name in made_up)]
    assert not missing


def test_every_notebook_has_a_line_in_the_order_to_read_them() -> None:
    listed = re.findall(r"\]\((\w+\.ipynb)\)", (ROOT / "notebooks" / "README.md").read_text("utf-8"))
    assert listed == sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
