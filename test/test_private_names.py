"""Private names of other libraries: one file has them, and they are where it says."""

import ast
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from unittest.mock import Mock

import pytest

from botorch_sparse import private_names

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "botorch_sparse"
LIBRARIES = "ax botorch gpytorch linear_operator scipy sklearn torch".split()
CHECKED, INHERITED = private_names.CHECKED, private_names.INHERITED
OWNED = [(owner, name) for owner in INHERITED for name in INHERITED[owner].split()]
LISTED = {name for _, name in OWNED}


def is_private(name: str) -> bool:
    return name.startswith("_") and name[1:2].isalpha() and name.isidentifier()


@cache
def trees() -> dict[Path, ast.Module]:
    """The files of the package but for those that list names."""
    paths = (path for path in PACKAGE.rglob("*.py") if path.name != "private_names.py")
    return {path: ast.parse(path.read_text()) for path in paths}


def private_imports(tree: ast.Module) -> Iterator[str]:
    """What is imported of libraries by a private name or from a private module."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for name in (f"{module}{alias.name}" for alias in node.names):
            parts = name.split(".")
            if parts[0] in LIBRARIES and any(map(is_private, parts)):
                yield name


def private(tree: ast.Module, with_read: bool = True) -> set[str]:
    """The private names that are defined or assigned, in strings, or only read."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Constant(value=str(name)):
                found.add(name)  # a string may be that of `getattr` or `setattr`
            case ast.Attribute(attr=name, ctx=ctx):
                if with_read or isinstance(ctx, ast.Store):
                    found.add(name)
    return set(filter(is_private, found))


@cache
def source(kind: type) -> ast.Module:
    """That of a class; empty where it is not written in Python."""
    with suppress(OSError, TypeError):
        return ast.parse(dedent(inspect.getsource(kind)))
    return ast.parse("")


def of_libraries(kind: type) -> set[str]:
    """The private names that a class has from libraries, on itself or its instances."""
    bases = [b for b in kind.__mro__ if b.__module__.partition(".")[0] in LIBRARIES]
    return set().union(*(private(source(base), with_read=False) for base in bases))


def classes() -> Iterator[type]:
    """Those of the package."""
    for module in pkgutil.walk_packages([str(PACKAGE)], "botorch_sparse."):
        if not module.name.endswith("__main__"):
            found = vars(importlib.import_module(module.name)).values()
            kinds = filter(inspect.isclass, found)
            yield from (kind for kind in kinds if kind.__module__ == module.name)


def test_private_names_are_imported_in_one_file():
    assert [*private_imports(ast.parse(inspect.getsource(private_names)))]
    elsewhere = [name for tree in trees().values() for name in private_imports(tree)]
    assert elsewhere == [], "move these imports to botorch_sparse/private_names.py"


@pytest.mark.parametrize(("owner", "name"), OWNED)
def test_inherited_names_are_where_they_are_said_to_be(owner, name):
    library, (module, _, kind) = owner.partition(".")[0], owner.rpartition(".")
    pytest.importorskip(module)  # `ax` alone may be the folder of tests
    version = importlib.import_module(library).__version__
    assert name in of_libraries(getattr(importlib.import_module(module), kind)), (
        f"{library} {version} has moved {kind}.{name}, which botorch_sparse uses; "
        f"checked was {library} {CHECKED[library]}"
    )


def test_names_shared_with_classes_of_libraries_are_listed():
    """What our classes override, assign or read of bases that are not ours."""
    pytest.importorskip("ax.api")
    pytest.importorskip("matplotlib")
    ours = list(classes())
    shared = set().union(*(private(source(k)) & of_libraries(k) for k in ours))
    assert len(ours) > 200 and len(shared) > 40
    assert sorted(shared - LISTED) == [], "list them in private_names.py"


# Documented in spite of the underscore: of named tuples, and of `os`.
PUBLIC = {"_asdict", "_exit", "_fields", "_replace"}


def test_attributes_of_other_objects_are_listed():
    """What the package reads and does not define, but for public ones."""
    own = set().union(*(private(tree, with_read=False) for tree in trees().values()))
    used = set().union(*map(private, trees().values())) - PUBLIC
    assert sorted(used - own - LISTED) == [], "list them in private_names.py"
    assert sorted(LISTED - used) == [], "take them out of private_names.py"


def test_versions_are_those_that_the_tests_run_with():
    pins = (ROOT / "constraints.txt").read_text().replace("ax-platform", "ax").split()
    needed = {f"{name}=={version}" for name, version in CHECKED.items()}
    assert needed <= {*pins}, "after a run of the tests, change the versions in CHECKED"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("fit_fallback", "botorch.fit"),
        ("GaussianLikelihoodBase", "gpytorch.likelihoods"),
    ],
)
def test_error_says_which_library_moved_a_name(name, module, monkeypatch):
    library = module.partition(".")[0]
    monkeypatch.delitem(vars(private_names), name, raising=False)
    monkeypatch.setitem(sys.modules, module, ModuleType(module))
    words = rf"{library} \d.* has moved a private name.*cannot import name '_\w+'.*"
    with pytest.raises(ImportError, match=words + f"{library} {CHECKED[library]}"):
        getattr(private_names, name)


def test_other_failures_keep_their_words(monkeypatch):
    error = ImportError("No module named 'scipy.gone'", name="scipy.gone")
    broken = ModuleType("botorch.fit")
    monkeypatch.setattr(broken, "__getattr__", Mock(side_effect=error), raising=False)
    monkeypatch.delitem(vars(private_names), "fit_fallback", raising=False)
    monkeypatch.setitem(sys.modules, "botorch.fit", broken)
    with pytest.raises(ImportError, match=r"^No module named 'scipy.gone'$"):
        _ = private_names.fit_fallback
