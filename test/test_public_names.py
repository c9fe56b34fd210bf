"""Names that `botorch_sparse` itself has: imported when they are used."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import botorch_sparse
from botorch_sparse import acquisition, batching, models, strategies


def test_the_package_is_imported_without_torch():
    code = "import sys, botorch_sparse; print({'torch', 'botorch'} & {*sys.modules})"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"


@pytest.mark.parametrize("name", botorch_sparse.__all__)
def test_a_name_is_the_sub_packages_own(name):
    packages = (acquisition, batching, models, strategies)
    (package,) = (each for each in packages if name in each.__all__)
    assert getattr(botorch_sparse, name) is getattr(package, name)
    assert name in dir(botorch_sparse)


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'BBKBB'"):
        _ = botorch_sparse.BBKBB  # type: ignore[attr-defined]


# Modules beside the packages, and what the command lines share.
SHARED = ("argument_checks", "command_line", "lazy_exports", "private_names")


@pytest.mark.parametrize("product", ["suggest", "demo", "ax", "plotting"])
def test_a_product_uses_public_names_of_the_core_alone(product):
    """It imports what a user can import: names that their package lists."""
    if product == "demo":
        pytest.importorskip("matplotlib")
    for path in (Path(botorch_sparse.__file__).parent / product).glob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        for node in (n for n in nodes if isinstance(n, ast.ImportFrom)):
            top, *inner = str(node.module).split(".")
            if top == "botorch_sparse" and inner and inner[0] not in (product, *SHARED):
                public = import_module(str(node.module)).__all__
                assert {alias.name for alias in node.names} <= {*public}, path
