"""Names that `botorch_sparse` itself has: imported when they are used."""

import ast
import subprocess
import sys
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


def test_the_command_line_uses_public_names_of_the_core_alone():
    """It imports what a user can import: nothing from inside of `strategies`."""
    folder = Path(botorch_sparse.__file__).parent / "suggest"
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and "botorch_sparse" in str(
                node.module
            ):
                module = str(node.module)
                assert module == "botorch_sparse.strategies" or module.startswith(
                    "botorch_sparse.suggest."
                )
