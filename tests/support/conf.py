"""The yaml files under conf, one at a time or composed as a run would compose them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

CONF = Path(__file__).parents[2] / "conf"
MODELS = CONF.parent / "data" / "models"
"""Where the packaged model is imported to, once for all tests."""


def options(group: str) -> list[str]:
    """Every yaml of a group, so that a new file is under test the moment it exists."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def composed(*overrides: str, config_name: str = "replay") -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(config_name, overrides=list(overrides))


@cache
def node(group: str, option: str) -> DictConfig:
    """One yaml of a group, beside the keys of the primary config that it may interpolate."""
    return OmegaConf.create({"seed": 0, "block_size": 512, group: OmegaConf.load(CONF / group / f"{option}.yaml")})


def build(group: str, option: str, **parameters: Any) -> Any:
    """The object that `group=option` names, with some parameters of its own."""
    return instantiate(node(group, option)[group], **parameters)


def parameters_of(group: str, option: str) -> dict[str, Any]:
    """What a yaml hands to the constructor it names."""
    plain = OmegaConf.to_container(node(group, option)[group], resolve=True)
    return {key: value for key, value in plain.items() if not key.startswith("_")}


ONLINE_EVICTORS = [name for name in options("evictor") if name != "belady"]
"""Policies that need no future and so can run under any traffic."""

SHARING = [name for name in options("allocator") if name != "naive"]
"""Allocators that find and keep prefixes."""


def sharing_allocator(name: str, num_blocks: float, block_size: int, **parts: Any) -> Any:
    """The allocator that `allocator=name` names, with `builtin` keys and `lru` unless told otherwise."""
    told = {"hasher": build("hasher", "builtin"), "evictor": build("evictor", "lru")} | parts
    return get_class(node("allocator", name).allocator._target_)(num_blocks=num_blocks, block_size=block_size, **told)
