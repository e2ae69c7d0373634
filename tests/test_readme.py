"""What the README promises exists and works as written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.conf import CONF, options
from support.replays import drawn_prompts, replayed

from cache.evictor.lru import Lru

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_policy_written_in_the_readme_works_as_shown() -> None:
    namespace: dict[str, Any] = {}
    exec(re.search(r"```python\n(.*?)```", README, re.DOTALL)[1], namespace)
    path = re.search(r"_target_: cache\.evictor\.mru\.(\w+)", README)[1]
    evictor = namespace[path]()
    prompts = [(i % 6, 0, 0) for i in range(60)]
    hits, _ = replayed(prompts, 1, 12, evictor)
    lru_hits, _ = replayed(prompts, 1, 12, Lru())
    assert sum(hits) > sum(lru_hits) == 0, "on a loop larger than the pool MRU wins and LRU never hits"
    replayed(drawn_prompts(1), 2, 15, namespace[path]())


@pytest.mark.parametrize("group", ["workload", "allocator", "evictor", "hasher", "tracker", "sweep"])
def test_the_table_of_overrides_names_every_option(group: str) -> None:
    row = re.search(rf"^\| `{group}=` \|(.*)\|$", README, re.MULTILINE)[1]
    named = set(re.findall(r"`([\w]+)`", row))
    if group == "sweep":  # the table is of replay; other experiments have sweeps of their own
        ours = {o for o in options(group) if "experiments.replay" in (CONF / "sweep" / f"{o}.yaml").read_text("utf-8")}
        assert named >= ours
    else:
        assert len(named & set(options(group))) >= 2


def test_every_file_the_readme_names_is_there() -> None:
    root = Path(__file__).parents[1]
    linked = re.findall(r"\]\(([^)]+)\)", README)
    named = re.findall(r"`((?:cache|experiments|conf|notebooks|model|tests)/[\w/.]+\.\w+)`", README)
    assert linked
    missing = [name for name in [*linked, *named] if not (root / name).exists() and "mru" not in name]
    assert not missing
