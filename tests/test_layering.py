"""Data flows one way: who may import whom is checked on the source, not on good intentions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "kernels": set(),
    "cache": set(),
    "model": {"kernels"},
    "scheduler": {"cache", "model"},
    "experiments": {"kernels", "cache", "model", "scheduler"},
}
SOURCES = sorted(path for room in ALLOWED for path in (ROOT / room).rglob("*.py"))


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_what_lies_below_it(path: Path) -> None:
    room, tops = path.relative_to(ROOT).parts[0], {name.split(".")[0] for name in imported(path)}
    allowed = ALLOWED[room] | {room}
    if path == ROOT / "cache" / "store.py":
        allowed |= {"kernels"}
    assert not (tops & set(ALLOWED)) - allowed
    if room == "cache" and path.name != "store.py":
        assert "torch" not in tops, "the cache is integers; tensors live in cache/store.py"
    if room == "scheduler" and path.name != "torch_executor.py":
        assert "torch" not in tops, "the scheduler is integers; tensors live in scheduler/torch_executor.py"


def test_no_import_is_circular() -> None:
    modules = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in SOURCES}
    edges = {name: {m for m in imported(path) if m in modules and m != name} for name, path in modules.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"circular import: {' -> '.join((*trail, name))}"
        if name not in done:
            for target in edges[name]:
                visit(target, (*trail, name))
            done.add(name)

    for name in edges:
        visit(name, ())


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_holds_state_that_changes(path: Path) -> None:
    """Hydra's basic launcher runs every job of a sweep in one process: a global would leak from job to job."""
    tree = ast.parse(path.read_text("utf-8"))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Global)], "a function rebinds a global"
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.List | ast.Dict | ast.Set):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                assert isinstance(target, ast.Name)
                assert target.id.isupper() or target.id == "__all__", f"{target.id}: a constant is spelled in capitals"
