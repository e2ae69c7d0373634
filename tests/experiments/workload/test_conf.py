"""Every yaml under conf/workload: it names a workload, spells out its arguments, and walks the same way twice."""

from __future__ import annotations

import inspect
import os
from itertools import islice
from pathlib import Path

import pytest
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

from experiments.workload.base import Workload

CONF = Path(__file__).parents[3] / "conf" / "workload"
DATA = Path(os.environ.get("PAGELAB_DATA", "data"))
every_yaml = pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)


@every_yaml
def test_a_yaml_spells_out_the_constructor_with_its_defaults(path):
    node = OmegaConf.create({"data_dir": "here", "workload": OmegaConf.load(path)}).workload
    told = dict(OmegaConf.to_container(node, resolve=True))
    parameters = inspect.signature(get_class(told.pop("_target_"))).parameters
    if "path" in parameters:
        assert str(told.pop("path")).startswith("here/")
    assert told == {name: parameter.default for name, parameter in parameters.items() if name != "path"}
    assert {"limit", "time_scale", "seed"} <= set(told)


@every_yaml
def test_a_workload_walks_the_same_way_twice(path, request):
    node = OmegaConf.create({"data_dir": str(DATA), "workload": OmegaConf.load(path)}).workload
    if "path" in node and not Path(node.path).exists():
        pytest.skip(f"{Path(node.path).name} is not in PAGELAB_DATA")
    if "cache_dir" in node:
        node.cache_dir = request.getfixturevalue("cache_dir")  # skips where the tokenizer is not installed
    workload = instantiate(node, limit=12)
    assert isinstance(workload, Workload)
    requests = list(workload)
    assert len(requests) == 12
    assert [request.arrival for request in requests] == sorted(request.arrival for request in requests)
    for one, other in zip(requests, workload, strict=True):
        assert one.tokens.packed() == other.tokens.packed()
        assert (one.arrival, one.session, one.turn) == (other.arrival, other.session, other.turn)
        assert len(one.tokens) > 0
    assert len(workload.fingerprint()) == 64
    assert len(list(islice(instantiate(node), 12))) == 12
