"""Names that `botorch_sparse` itself has, and imports: when they are used."""

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
SHARED = ("argument_checks", "command_line", "lazy_exports", "private_names", "threads")


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


SLOW = {"ax", "matplotlib", "pandas", "scipy.optimize", "scipy.stats", "sklearn"}
# Those that a call needs: fits and searches on boxes have optimizers.
NONE, OPTIMIZERS, TABLES = set[str](), {"scipy.optimize"}, {"pandas", "scipy.optimize"}
ON_ROWS = """
import torch
from botorch_sparse.strategies import BBKB, ThompsonSampling
from gpytorch.kernels import RBFKernel

X = torch.rand(40, 2).double()
for strategy in (BBKB, ThompsonSampling):
    made = strategy(X, batch_size=4, seed=0, {options})
    made.run(lambda i: X[i].sum(-1), 12, progress=False, by_index=True)
"""
IN_BOX = """
from botorch_sparse.strategies import BBKB, TrustRegionBBKB

for strategy in (BBKB, TrustRegionBBKB):
    made = strategy(bounds=[[0.0, 0.0], [1.0, 1.0]], batch_size=2, seed=0)
    made.run(lambda X: X.sum(-1), 6, progress=False)
"""
MODEL = """
import torch
from botorch_sparse.models import SparseSingleTaskGP, SubsetSingleTaskGP

X = torch.rand(40, 2).double()
model = SparseSingleTaskGP(X, X.sum(-1, keepdim=True))
model.posterior(X).variance
"""
FIT = """
from botorch.fit import fit_gpytorch_mll
from gpytorch.mlls import ExactMarginalLogLikelihood

fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
"""
SUGGEST = """
from pathlib import Path
from botorch_sparse.__main__ import main

rows = [f"{i},{i % 7}" for i in range(12)] + [f"{i}," for i in range(12, 20)]
Path("pool.csv").write_text("\\n".join(["x,y", *rows]))
files = "--candidates pool.csv --results pool.csv --skip-empty --target y"
main(["suggest", *files.split(), "--output", "next.csv", "--quiet"])
"""


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("call", "needed"),
    [
        pytest.param(MODEL, NONE, id="model"),
        pytest.param(MODEL + FIT, OPTIMIZERS, id="fit"),
        pytest.param("from botorch_sparse.strategies import *", OPTIMIZERS, id="all"),
        pytest.param(
            ON_ROWS.format(options="covar_module=RBFKernel()"), NONE, id="rows"
        ),
        pytest.param(ON_ROWS.format(options=""), OPTIMIZERS, id="rows-inferred"),
        pytest.param(IN_BOX, OPTIMIZERS, id="box"),
        pytest.param(SUGGEST, TABLES, id="suggest"),
        pytest.param("import botorch_sparse.demo.demo_command", NONE, id="demo"),
    ],
)
def test_a_call_imports_what_it_needs(call, needed, tmp_path):
    show = f"\nimport sys; print(*{SLOW} & sys.modules.keys())"
    ended = subprocess.run(
        [sys.executable, "-c", call + show],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {*ended.stdout.split()} <= needed
