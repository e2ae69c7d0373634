"""Options of a config group by name, for experiments that go through several of them in one run.

Knows nothing of what the options are.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.errors import UserError
from experiments.suggest import no_option

CONF = Path(__file__).parents[1] / "conf"


def names(group: str) -> list[str]:
    """Every option of a group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def chosen_names(group: str, asked: Any) -> list[str]:
    """The options asked for: a list of names, or "all". Raises UserError for a name that is none."""
    known = names(group)
    wanted = known if asked == "all" else [str(name) for name in ([asked] if isinstance(asked, str) else asked or [])]
    for name in wanted:
        if name not in known:
            raise UserError(no_option(group, name, known))
    return list(dict.fromkeys(wanted))


def with_options(cfg: DictConfig, values: dict[str, Any], **options: str) -> DictConfig:
    """A copy of the config with these values, and with these options of groups in the place of the chosen ones."""
    made = cfg.copy()
    for key, value in values.items():
        OmegaConf.update(made, key, value)
    for group, name in options.items():
        made[group] = OmegaConf.load(CONF / group / f"{name}.yaml")
    return made


def listed(value: Any) -> Iterable[Any]:
    """A value, or the values of a list."""
    return value if OmegaConf.is_list(value) or isinstance(value, list | tuple) else [value]
