"""Bad inputs at every public name are refused in words.

A new public name needs a row in the file of its package, or a place in `MADE` if nobody
calls it with values of their own; a method with arguments needs one too, or a place in
`OTHERS_CALL`.
"""

import importlib
import inspect
import re
import warnings
from typing import Any

import pytest
from argument_rows import Row

pytest.importorskip("ax.api")

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
    *("strategies", "models", "acquisition", "batching", "pools", "inducing"),
    *("distributed", "posteriors", "kernels", "linear_operators", "demo.datasets"),
    *("plotting", "ax"),
)
PACKAGES_OF_METHODS = ("strategies", "models")
# Protocols, base classes, what calls return, and the adapter, which Ax builds itself.
MADE = {
    *("Strategy", "ConfidenceRadius", "Constants", "InducingPointSampler", "Rule"),
    *("BatchView", "Points", "RatioBound", "RankError", "joined_ranks"),
    *("BatchRecord", "Best", "History", "Pareto", "ShardedDomain"),
    "AdaptiveBatch",
    *("TableBatch", "CertifiedDraw", "AccuracyCertificate", "GradientFactors"),
    *("FoldedData", "KnownFeatures", "PosteriorCovarianceLinearOperator"),
    *("NystromPrior", "SparseFantasyModel", "ModelCertificate", "Moments"),
    "SparseAdapter",
}
# Methods of other classes that users have no reason to call, and who calls them.
OTHERS_CALL = {
    "CandidateTable.in_columns_of": "set_candidates",
    **{
        f"{model}.{method}": caller
        for model in ("SparseSingleTaskGP", "SubsetSingleTaskGP")
        for method, caller in {
            "construct_inputs": "Ax; the constructor checks the options",
            "set_train_data": "GPyTorch's own checks, before ours change anything",
            "subset_output": "ModelListGP and BoTorch's acquisition functions",
            "transform_inputs": "posterior, which has rows",
        }.items()
    },
    "SparseMultiTaskGP.construct_inputs": "Ax; the constructor checks the options",
    "SparseSingleTaskGP.forward": "the model itself",
    "SubsetSingleTaskGP.get_fantasy_model": "condition_on_observations",
    "SubsetSingleTaskGP.load_state_dict": "PyTorch's own checks",
    "SubsetSingleTaskGP.rows_by_leverage": "selections, whose rows are checked",
    "SubsetSingleTaskGP.train": "PyTorch",
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


def public_methods(package: str) -> list[set[str]]:
    """The methods that take arguments, each by its names in all classes that have it.

    Those that other libraries define are theirs to check.
    """
    module = importlib.import_module(f"botorch_sparse.{package}")
    names: dict[Any, set[str]] = {}
    for owner in public_callables(package) - MADE:
        for name in filter(re.compile("[^_]").match, dir(getattr(module, owner))):
            found = inspect.getattr_static(getattr(module, owner), name)
            method = getattr(found, "__func__", found)
            is_ours = getattr(method, "__module__", "").startswith("botorch_sparse.")
            if is_ours and inspect.isfunction(method) and takes_arguments(method):
                names.setdefault(method, set()).add(f"{owner}.{name}")
    return list(names.values())


def takes_arguments(method: Any) -> bool:
    """Whether there is one beside the object or the class."""
    return len(inspect.signature(method).parameters) > 1


@pytest.mark.parametrize("package", PACKAGES_OF_METHODS)
def test_every_public_method_has_a_row(package: str) -> None:
    known = OTHERS_CALL.keys() | {row.name for row in ROWS}
    missing = [min(names) for names in public_methods(package) if not names & known]
    assert not missing, f"{sorted(missing)} need rows of bad inputs"


def test_what_others_call_is_there() -> None:
    methods = (names for p in PACKAGES_OF_METHODS for names in public_methods(p))
    assert set[str]().union(*methods) >= OTHERS_CALL.keys()


def test_what_is_made_by_others_is_public() -> None:
    known = set[str]().union(*map(public_callables, PACKAGES))
    assert known >= MADE
