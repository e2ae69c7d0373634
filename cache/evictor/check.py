"""Is my policy sound? Runs the contract every policy of this folder keeps on a class of yours.

    python -m cache.evictor.check path/to/policy.py [--class Name] [key=value ...]

Every promise is listed with pass, fail or why it does not apply. Exit code 0 where all hold, 1 where one is broken, 2
where the file cannot be checked at all.

Knows nothing of what the checks check.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cache.evictor.base import Evictor
from cache.evictor.contract import BLOCK_SIZE, CHECKS, Make, Skip


class Unusable(Exception):
    """The file holds no policy that could be checked; says why and what to do."""


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cache.evictor.check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="a Python file with a subclass of cache.evictor.base.Evictor")
    parser.add_argument("--class", dest="name", help="which class, where the file defines several")
    parser.add_argument("options", nargs="*", metavar="key=value", help="arguments of its constructor")
    given = parser.parse_args(arguments)
    try:
        policy = find_policy(load(given.path), given.path, given.name)
        options = dict(_option(text) for text in given.options)
        if "block_size" in inspect.signature(policy).parameters:
            options.setdefault("block_size", BLOCK_SIZE)
        make = factory(policy, options)
    except Unusable as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return report(policy.__name__, make)


def load(path: Path) -> ModuleType:
    """Import a file under a name of its own. Raises Unusable where that fails, with file and line."""
    if not path.is_file():
        raise Unusable(f"{path}: there is no such file. Give the path of a Python file with a policy.")
    spec = importlib.util.spec_from_file_location(f"policy_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise Unusable(f"{path} is no Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Unusable(f"{path}{_line(error, path)} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def find_policy(module: ModuleType, path: Path, name: str | None) -> type[Evictor]:
    """The policy a file defines itself. Raises Unusable unless there is exactly one, or the one called `name`."""
    found = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Evictor) and value.__module__ == module.__name__
    }
    concrete = {key: value for key, value in found.items() if not inspect.isabstract(value)}
    if (name is not None and name in found and name not in concrete) or (len(found) == 1 and not concrete):
        policy = found[name or next(iter(found))]
        missing = ", ".join(sorted(policy.__abstractmethods__))
        raise Unusable(f"{path}: {policy.__name__} does not say what to do in {missing}.")
    if name is not None and name not in concrete:
        raise Unusable(f"{path} defines no policy {name}; it defines {', '.join(concrete) or 'none'}.")
    if len(concrete) != 1 and name is None:
        what = (
            f"several policies ({', '.join(concrete)}): choose one with --class"
            if concrete
            else ("no policy: write a class that derives from cache.evictor.base.Evictor")
        )
        raise Unusable(f"{path} defines {what}.")
    return concrete[name or next(iter(concrete))]


def factory(policy: type[Evictor], options: dict[str, Any]) -> Make:
    """Makes fresh policies. Raises Unusable where the constructor does not take the options."""

    def make() -> Evictor:
        return policy(**options)

    try:
        make()
    except (TypeError, ValueError) as error:
        raise Unusable(f"{policy.__name__} cannot be made: {error}. Give arguments as key=value.") from error
    return make


def report(name: str, make: Make) -> int:
    """Run all checks and print a table; returns 1 where one failed."""
    table = Table(title=f"the contract of an eviction policy: {name}", title_justify="left", title_style="bold")
    for column in ("promise", "", "remark"):
        table.add_column(column)
    kept = failed = 0
    for promise, check in CHECKS.items():
        try:
            verdict, remark = "[green]pass[/green]", check(make) or ""
            kept += 1
        except Skip as reason:
            verdict, remark = "[dim]n/a[/dim]", str(reason)
        except Exception as error:
            failed += 1
            verdict = "[red]FAIL[/red]"
            remark = str(error) if isinstance(error, AssertionError) and str(error) else _told(error)
        table.add_row(promise, verdict, escape(remark))
    console = Console(highlight=False)
    console.print(table)
    console.print(_summary(kept, failed, len(CHECKS) - kept - failed))
    return 1 if failed else 0


def _summary(kept: int, failed: int, others: int) -> str:
    """How many promises were kept, were broken and did not apply, as far as there are any."""
    said = [(failed, "broken"), (kept, "kept"), (others, "does not apply" if others == 1 else "do not apply")]
    (first, verb), *rest = [(count, verb) for count, verb in said if count]
    return ", ".join([f"{first} promise{'s' * (first != 1)} {verb}", *(f"{count} {verb}" for count, verb in rest)])


def _told(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno}: {last.line})"


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise Unusable(f"{text!r} is no argument of a constructor: write key=value.")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def _line(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return f", line {lines[-1]}" if lines else ""


if __name__ == "__main__":
    sys.exit(main())
