"""Bad inputs at every public name are refused in words.

A new public name needs a row in the file of its package, or a place in `MADE` if nobody
calls it with values of their own.
"""

import importlib
import re
import warnings
from typing import Any

import pytest
from door_rows import Row

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the small models that rows are made with
    import ax_rows
    import model_rows
    import radius_rows
    import strategy_rows
    import table_rows

ROWS: list[Row] = [
    row
    for module in (strategy_rows, radius_rows, model_rows, table_rows, ax_rows)
    for row in module.ROWS
]
PACKAGES = (
    *("strategies", "models", "acquisition", "optim", "inducing", "posteriors"),
    *("kernels", "linear_operators", "datasets", "plotting", "ax"),
)
# Protocols, base classes, what calls return, and the adapter, which Ax builds itself.
MADE = {
    *("Strategy", "ConfidenceRadius", "Constants", "InducingPointSampler", "Rule"),
    *("BatchView", "Points", "RatioBound", "RankError", "joined_ranks"),
    *("BatchRecord", "Best", "History", "ShardedDomain", "AdaptiveBatch"),
    *("BatchState", "CertifiedDraw", "AccuracyCertificate", "GradientFactors"),
    *("FoldedData", "KnownFeatures", "PosteriorCovarianceLinearOperator"),
    *("NystromPrior", "SparseFantasyModel"),
    "SparseAdapter",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_bad_input_is_refused_in_words(row: Row) -> None:
    with pytest.raises(row.error) as caught:
        row.call()
    for word in row.words:
        assert re.search(word, str(caught.value)), f"{word!r} in {caught.value}"


def public_callables(package: str) -> set[str]:
    """The names of a package that can be called."""
    module = importlib.import_module(f"botorch_sparse.{package}")
    own = [n for n, v in vars(module).items() if is_own(v, module.__name__)]
    names: Any = getattr(module, "__all__", own)
    return {name for name in names if callable(getattr(module, name))}


def is_own(value: Any, module: str) -> bool:
    """Whether a module without `__all__` defines something public."""
    is_public = not getattr(value, "__name__", "_").startswith("_")
    return getattr(value, "__module__", "") == module and is_public


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_callable_has_a_row(package: str) -> None:
    missing = public_callables(package) - MADE - {row.name for row in ROWS}
    assert not missing, f"{sorted(missing)} of {package} need rows of bad inputs"


def test_what_is_made_by_others_is_public() -> None:
    known = set[str]().union(*map(public_callables, PACKAGES))
    assert known >= MADE
