"""What a command line asks of the yamls that they do not have: one sentence, with what was probably meant.

Hydra composes the config before an experiment runs. Its errors are told here in the words of the command line, and
`check_overrides` finds what Hydra lets pass: `+key=value` for a key that nobody reads, `seed=x`.

Knows nothing of what the settings mean.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from inspect import Parameter, signature

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import CompactHydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.errors import UserError
from experiments.options import CONF
from experiments.suggest import listing, nearest, no_option

NOT_SETTINGS = ("hydra", "report")
CHECKED_WHERE_USED = ("block_size", "num_blocks", "prefix_caching")
"""Settings that take more than one kind of value; who reads them says better what they take."""
KINDS = {bool: "true or false", int: "a whole number", float: "a number"}
AMBIGUOUS = re.compile(r"Ambiguous value for argument '(.+?)'")
NO_GROUP = re.compile(r"Could not (?:override|append) '(\S+?)'\. No match in the defaults list")


def explain_composition(error: Exception) -> str | None:
    """One sentence for an option or a key that does not exist, or an override that is none; None for all else."""
    if not isinstance(error, CompactHydraException):
        return None
    if isinstance(error, MissingConfigException):
        group, _, name = str(error.missing_cfg_file or "").rpartition("/")
        return no_option(group, name.removesuffix(".yaml"), error.options) if error.options else _first_line(error)
    if found := AMBIGUOUS.search(str(error)):
        return f"{found[1]} has several values: add -m to run them all, or write [...] around them for a list."
    if found := NO_GROUP.search(str(error)):
        return f"there is no {found[1]} to choose in this experiment."
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override!r} is no setting: write KEY=VALUE without blanks around the =, and in quotes what the "
            f"shell or Hydra would take apart ('num_blocks=[1%,5%]', \"'key=a b'\"). {_first_line(error)}"
        )
    cause = error.__cause__
    if isinstance(cause, OmegaConfBaseException) and cause.full_key and "Could not override" in str(error):
        node = cause.parent_node
        return unknown_key(str(cause.full_key), _root(node)) if isinstance(node, DictConfig) else None
    return None


def unknown_key(key: str, root: DictConfig) -> str:
    """The sentence for a key that the config lacks; `root`: the whole config."""
    parent = key.rpartition(".")[0]
    if parent and _select(root, parent) is None:
        return unknown_key(parent, root)
    node = _select(root, parent) if parent else root
    if not isinstance(node, DictConfig):
        return f"there is no setting {key}: {parent} is the value {node}, which has no settings of its own."
    names = _settings(node)
    own = [f"{parent}.{name}" if parent else name for name in names]
    if parent and key.rpartition(".")[2] in _constructor_names(node):
        return f"{key} is not among the settings of {parent} in its yaml, but it takes it: write +{key}=..."
    meant = nearest(key, own) or nearest(key, _leaves(root))
    hint = f": did you mean {meant}?" if meant else "."
    if not names:
        return f"there is no setting {key}{hint} {parent} has no settings."
    return f"there is no setting {key}{hint} The settings {f'of {parent} ' if parent else ''}are {listing(names)}."


def explain_null_option() -> str:
    """The sentence for an option of a config group that is null, which Hydra takes for a bug."""
    named = ", ".join(text for text in sys.argv[1:] if text.endswith("=null")) or "one of the settings"
    return f"{named}: null is no option of a config group. Name one of its yamls in conf/, or leave the setting out."


def check_overrides(config: DictConfig) -> None:
    """Raises UserError for a key that nothing reads, and for a value of another kind than the yaml's.

    `config`: as Hydra's callbacks get it. A key that is added with + below a node with a `_target_` goes to its
    constructor, which refuses what it does not take. Where a yaml says null or a text, any value may be meant.
    """
    loader = GlobalHydra.instance().config_loader()
    parser = OverridesParser.create(config_loader=loader)
    given = parser.parse_overrides(list(config.hydra.overrides.task))
    groups = [override for override in given if loader.get_group_options(override.key_or_group)]
    values = [override for override in given if override not in groups and not override.is_delete()]
    added = [override for override in given if override.is_add() or override.is_force_add()]
    if not values and not added:
        return
    chosen = [o.input_line for o in groups if o.input_line and not (o in added or o.is_sweep_override())]
    base = loader.load_configuration(config.hydra.job.config_name, chosen, RunMode.RUN)
    for override in [*added, *(override for override in values if override not in added)]:
        key = override.key_or_group.replace("/", ".")
        if key.partition(".")[0] in NOT_SETTINGS:
            continue
        if _has(base, key):
            _check_kind(override, key, _select(base, key))
        elif override in added and not _reaches_a_constructor(base, key):
            told = unknown_key(key, base)
            raise UserError(f"{override.input_line}: {told} A setting that nothing reads is not added.")


def check_sweep(name: str, keys: Iterable[str], config: DictConfig) -> None:
    """Raises UserError where a sweep's yaml varies what the experiment does not have: it is another one's."""
    choices = config.hydra.runtime.choices
    missing = [key for key in keys if key not in choices and not _has(config, key)]
    if missing:
        path = CONF / "sweep" / f"{name}.yaml"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        command = next((line.lstrip("# ") for line in lines if line.startswith("# python")), None)
        raise UserError(
            f"sweep={name} varies {', '.join(missing)}, which {config.hydra.job.name} does not have: it belongs to "
            f"another experiment{f' ({command})' if command else ''}."
        )


def _check_kind(override: Override, key: str, usual: object) -> None:
    kind = type(usual)
    if kind not in KINDS or key in CHECKED_WHERE_USED:
        return
    values = override.sweep_iterator() if override.is_sweep_override() else [override.value()]
    for value in values:
        wrong = not isinstance(value, bool) if kind is bool else isinstance(value, str | bool)  # a list may be meant
        if wrong:
            raise UserError(f"{key}={value} must be {KINDS[kind]}; the yaml says {str(usual).lower()}.")


def _reaches_a_constructor(root: DictConfig, key: str) -> bool:
    parts = key.split(".")[:-1]
    nodes = [_select(root, ".".join(parts[: i + 1])) for i in range(len(parts))]
    return any(isinstance(node, DictConfig) and "_target_" in node for node in nodes)


def _has(root: DictConfig, key: str) -> bool:
    parent, _, name = key.rpartition(".")
    node = _select(root, parent) if parent else root
    return isinstance(node, DictConfig) and name in node


def _settings(node: DictConfig) -> list[str]:
    return [str(name) for name in node if name not in (*NOT_SETTINGS, "_target_", "_partial_", "_recursive_")]


def _leaves(node: DictConfig, prefix: str = "") -> Iterator[str]:
    """Dotted keys of the whole config, nearer ones first."""
    names = _settings(node)
    yield from (f"{prefix}{name}" for name in names)
    for name in names:
        child = None if OmegaConf.is_interpolation(node, name) else node._get_node(name)
        if isinstance(child, DictConfig) and not child._is_none():
            yield from _leaves(child, f"{prefix}{name}.")


def _constructor_names(node: DictConfig) -> list[str]:
    if "_target_" not in node:
        return []
    try:
        parameters = signature(get_object(node["_target_"])).parameters.values()
    except Exception:  # a wrong _target_ is told when it is built
        return []
    return [p.name for p in parameters if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]


def _select(root: DictConfig, key: str) -> object:
    try:
        return OmegaConf.select(root, key)
    except OmegaConfBaseException:
        return None


def _root(node: DictConfig) -> DictConfig:
    while isinstance(parent := node._get_parent(), DictConfig):
        node = parent
    return node


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].strip()
