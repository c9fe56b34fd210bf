"""Imports go one way: between packages in their order, between modules never back.

All imports count, those inside of functions and for type checkers too.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "botorch_sparse"
# A package imports those before it, and those beside it without a circle of modules.
LAYERS = [
    {"linear_operators", "kernels"},
    {"posteriors"},
    {"inducing"},
    {"models"},
    {"acquisition"},
    {"batching", "pools"},
    {"strategies"},
    {"distributed", "command_line"},
    {"demo", "suggest", "ax", "plotting"},
]
# Circles that are left, for whoever works there to remove; none may be added.
KNOWN: list[set[str]] = []


def name_of(path: Path) -> str:
    """A module's name within the package; of a package that of its directory."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[str]:
    """What a file names in its imports of the package, modules or not."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}, line {node.lineno}: a relative import"
            names = [str(node.module)]
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        own = [name for name in names if name.startswith(f"{ROOT.name}.")]
        yield from (name.removeprefix(f"{ROOT.name}.") for name in own)


@cache
def graph() -> dict[str, set[str]]:
    """The modules of the package, and the others that each imports."""
    files = {name_of(path): path for path in ROOT.rglob("*.py")}
    found = {name: {*imported(path)} & {*files} for name, path in files.items()}
    return {name: others - {name} for name, others in found.items()}


def reached_from(start: str) -> set[str]:
    """The modules that a module imports, and those that these import."""
    ahead, seen = list(graph()[start]), set[str]()
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += graph()[name]
    return seen


def circles() -> set[frozenset[str]]:
    """Sets of modules that reach one another."""
    reached = {name: reached_from(name) for name in graph()}
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph()
        if name in reached[name]
    }


def test_no_module_imports_one_that_imports_it():
    new = [
        sorted(circle)
        for circle in circles()
        if not any(circle <= known for known in KNOWN)
    ]
    assert new == []


def test_the_graph_is_that_of_the_package():
    """Imports of names, of modules, inside of functions and for type checkers."""
    assert "inducing.certificate" in graph()["inducing"]
    assert "models.pathwise" in graph()["models"]
    assert "pools.table_batch" in graph()["pools.host_batch"]
    assert "kernels" in reached_from("ax") and "ax" not in reached_from("strategies")


@pytest.mark.parametrize("rank", range(len(LAYERS)))
def test_packages_import_those_before_them(rank):
    later = set().union(*LAYERS[rank + 1 :])
    for name, others in graph().items():
        package = name.split(".")[0]
        if package in LAYERS[rank]:
            targets = {other.split(".")[0] for other in others} - {package}
            assert not targets & later, f"{name} imports {sorted(targets & later)}"
