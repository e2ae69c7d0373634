"""What a command line asks of the yamls that they do not have: one sentence, with what was probably meant.

Hydra composes the config before an experiment runs. Its errors are told here in the words of the command line, and
`refuse_unknown` finds what Hydra lets pass: `+key=value` puts a key into the config that nobody reads.

Knows nothing of what the settings mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter, signature

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.errors import UserError
from experiments.suggest import listing, nearest, no_option

NOT_SETTINGS = ("hydra", "report")


def explain_composition(error: ConfigCompositionException | OverrideParseException) -> str | None:
    """One sentence for an option or a key that does not exist, or an override that is none; None for all else."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return no_option(group, name.removesuffix(".yaml"), error.options)
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


def refuse_unknown(config: DictConfig) -> None:
    """Raises UserError for a key that was added with + or ++ where nothing reads it.

    What is added below a node with a `_target_` goes to its constructor, which refuses what it does not take.
    `config`: as Hydra's callbacks get it.
    """
    loader = GlobalHydra.instance().config_loader()
    parser = OverridesParser.create(config_loader=loader)
    given = parser.parse_overrides(list(config.hydra.overrides.task))
    added = [override for override in given if override.is_add() or override.is_force_add()]
    if not added:
        return
    base = _without_additions(config, loader, given)
    for override in added:
        key = override.key_or_group.replace("/", ".")
        if key.partition(".")[0] in NOT_SETTINGS or _reaches_a_constructor(base, key) or _has(base, key):
            continue
        raise UserError(f"{override.input_line}: {unknown_key(key, base)} A setting that nothing reads is not added.")


def _without_additions(config: DictConfig, loader: ConfigLoader, given: list[Override]) -> DictConfig:
    """The config from its yamls and the chosen options alone."""
    groups = [
        override.input_line
        for override in given
        if override.input_line
        and not (override.is_add() or override.is_force_add() or override.is_sweep_override())
        and loader.get_group_options(override.key_or_group)
    ]
    return loader.load_configuration(config.hydra.job.config_name, groups, RunMode.RUN)


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
