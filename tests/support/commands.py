"""Every command the documentation shows: taken out of the text, made parseable, and parsed without running anything."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import get_object
from omegaconf import OmegaConf

from support.conf import CONF

ROOT = CONF.parent
ROOMS = ("cache", "conf", "experiments", "kernels", "model", "notebooks", "scheduler", "tests")
GUIDES = sorted([*ROOT.glob("*.md"), *(path for room in ROOMS for path in (ROOT / room).rglob("README.md"))])
START = r"(?:\.venv/bin/)?(?:python -m|make) [\w.]"
SPAN = re.compile(rf"`({START}[^`]*)`")
LINE = re.compile(rf"^\s*({START}.*)$", re.MULTILINE)


def in_guides() -> dict[str, str]:
    """Command to the guide that shows it first: code blocks, and code within text."""
    found: dict[str, str] = {}
    for path in GUIDES:
        for command in _commands(path.read_text("utf-8")):
            found.setdefault(command, str(path.relative_to(ROOT)))
    return found


def elsewhere() -> dict[str, str]:
    """The same of notebooks, docstrings, and yaml files."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        for command in _commands(text):
            found.setdefault(command, path.name)
    for room in ("cache", "experiments", "kernels", "model", "scheduler"):
        for path in sorted((ROOT / room).rglob("*.py")):
            docstring = path.read_text("utf-8").partition('"""')[2].partition('"""')[0]
            for command in _commands(docstring):
                found.setdefault(command, str(path.relative_to(ROOT)))
    for path in sorted(CONF.rglob("*.yaml")):
        for line in path.read_text("utf-8").splitlines():
            if match := re.match(r"(?:#\s*|command: )\"?(python -m [^\"]*)", line):
                found.setdefault(_plain(match[1]), str(path.relative_to(ROOT)))
    return {command: place for command, place in found.items() if "[" not in command.split("=")[0]}


def _commands(text: str) -> Iterator[str]:
    blocks = re.split(r"^```.*$", text, flags=re.MULTILINE)
    for i, block in enumerate(blocks):
        lines = block if i % 2 else "\n".join(line for line in block.splitlines() if line.startswith("    "))
        yield from (_plain(match) for match in LINE.findall(lines))
        if i % 2 == 0:
            yield from (_plain(" ".join(match.split())) for match in SPAN.findall(block))


def _plain(command: str) -> str:
    """Without the folder of the interpreter and without the remark behind it."""
    return re.split(r"\s{2,}|\s+#", command.removeprefix(".venv/bin/").strip())[0]


def words(command: str) -> list[str]:
    """As a shell would split it; what stands for anything (`...`) is left out."""
    return [word for word in shlex.split(command) if "..." not in word]


def written_in_the_readme(class_name: str) -> str:
    """The Python block that defines the class."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    (source,) = (block for block in blocks if f"class {class_name}(" in block)
    return str(source)


class _Parsed(Exception):
    """Raised in place of running."""


def parse(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises, or fails, where the command could not even start."""
    first, *rest = words(command)
    if first == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert set(rest) <= set(targets)
    elif rest[1] == "pytest":
        assert all((ROOT / word.partition("::")[0]).exists() for word in rest[2:] if word.startswith("tests"))
    elif (CONF / f"{rest[1].rpartition('.')[2]}.yaml").exists() and rest[1].startswith("experiments."):
        for name in _named(composed_from(rest[1].rpartition(".")[2], rest[2:])):
            assert get_object(name)
    else:
        _parse_arguments(rest[1], rest[2:], monkeypatch)


def composed_from(config_name: str, arguments: list[str]) -> Any:
    """The config of the run, or of the first job of the sweep."""
    overrides = []
    for override in OverridesParser.create().parse_overrides([word for word in arguments if word != "-m"]):
        value = next(override.sweep_string_iterator()) if override.is_sweep_override() else None
        overrides.append(str(override.input_line) if value is None else f"{override.get_key_element()}={value}")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose(config_name, overrides), resolve=True)


def _named(node: Any) -> Iterator[str]:
    """All classes and functions a config names."""
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key == "_target_")
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _named(child)


def _parse_arguments(module: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = argparse.ArgumentParser.parse_args

    def only_parse(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        plain(self, args, namespace)
        raise _Parsed

    package = importlib.util.find_spec(module)
    assert package is not None, f"there is no module {module}"
    if package.submodule_search_locations is not None:
        module = f"{module}.__main__"
    elif "argparse" not in Path(str(package.origin)).read_text("utf-8"):
        assert not arguments, f"{module} takes none"
        return
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only_parse)
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    with pytest.raises(_Parsed):
        importlib.import_module(module).main()
