"""What finds its way in: numbers of any kind, and feedback of the points it is of."""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from argument_rows import BOUNDS, KERNEL, X
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.inducing import select_by_gradient_diversity
from botorch_sparse.models import SparseSingleTaskGP, SubsetSingleTaskGP
from botorch_sparse.strategies import (
    BBKB,
    GSSBO,
    SBPE,
    RandomSearch,
    Strategy,
    ThompsonSampling,
    TrustRegionBBKB,
)

TABLE = partial(RandomSearch, X, batch_size=3)
BOX = partial(RandomSearch, bounds=BOUNDS, batch_size=3)
PRECISE = [0.1234567890123, -1e-17, 3e30]  # float32 would round them
FORMS: dict[str, Any] = {
    "tensor": lambda values: torch.as_tensor(values, dtype=torch.float64),
    "array": np.array,
    "big-endian array": lambda values: np.array(values, dtype=">f8"),
    "list": list,
    "list of tensors": lambda v: [torch.tensor(y, dtype=torch.float64) for y in v],
    "Series": pd.Series,
    "frame": lambda values: pd.DataFrame({"y": values}),
    "objects": lambda values: np.array(values, dtype=object),
    "Series of objects": lambda values: pd.Series(values, dtype=object),
    "Decimals": lambda values: [Decimal(repr(value)) for value in values],
    "tensors with a gradient": lambda values: [
        torch.tensor(y, dtype=torch.float64, requires_grad=True) for y in values
    ],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", [TABLE, BOX], ids=["table", "box"])
def test_feedback_of_any_form_keeps_its_digits(make: Any, form: str) -> None:
    strategy = make()
    strategy.tell(strategy.ask(), FORMS[form](PRECISE))
    assert strategy.history.values.tolist() == PRECISE


@pytest.mark.parametrize("form", ["array", "list", "frame"])
@pytest.mark.parametrize("make", [TABLE, BOX], ids=["table", "box"])
def test_points_of_any_form_are_found(make: Any, form: str) -> None:
    strategy = make()
    batch = strategy.ask()
    points = {"array": batch.X.numpy(), "list": batch.X.tolist()}
    points["frame"] = batch.to_frame().drop(columns="trial")
    strategy.tell(points[form], PRECISE)
    assert len(strategy.pending) == 0
    assert strategy.history.trial.tolist() == batch.ids.tolist()


@pytest.mark.parametrize("make", [TABLE, BOX], ids=["table", "box"])
def test_points_that_are_one_ulp_off_are_found(make: Any) -> None:
    strategy = make()
    batch = strategy.ask()
    strategy.tell(torch.nextafter(batch.X, batch.X + 1), PRECISE)
    assert len(strategy.pending) == 0
    assert torch.equal(strategy.history.X, batch.X)


IDS: dict[str, Any] = {
    "generator": iter,
    "objects": lambda ids: np.array(ids, dtype=object),
    "Series of objects": lambda ids: pd.Series(ids, dtype=object),
}


@pytest.mark.parametrize("form", IDS)
def test_ids_of_any_form(form: str) -> None:
    strategy = BOX()
    batch = strategy.ask()
    strategy.tell(IDS[form](batch.ids.tolist()[::-1]), PRECISE)
    assert strategy.history.trial.tolist() == [2, 1, 0]


NO_NUMBERS: list[Any] = ["2", None, True, 1j, pd.NA, 10**400, np.bool_(True)]


@pytest.mark.parametrize("place", range(len(NO_NUMBERS)))
def test_objects_that_are_no_numbers_are_refused(place: int) -> None:
    strategy, bad = TABLE(), NO_NUMBERS[place]
    batch = strategy.ask()
    values = np.array([1.0, 2, bad], dtype=object)
    for Y in (values, pd.Series(values)):
        with pytest.raises(InputDataError, match=r"feedback.*need"):
            strategy.tell(batch, Y)
    with pytest.raises(InputDataError):
        strategy.tell(np.array([0, 1, bad], dtype=object), PRECISE)
    assert len(strategy.history) == 0


CANDIDATES: dict[str, Any] = {
    "array": X.numpy(),
    "big-endian array": X.numpy().astype(">f8"),
    "list": X.tolist(),
    "frame": pd.DataFrame(X.numpy()),
    "whole numbers": np.arange(6).reshape(3, 2),
    "integers": [[1, 2], [3, 4]],
}
BOXES: dict[str, Any] = {
    "list": BOUNDS.tolist(),
    "array": BOUNDS.numpy(),
    "integers": [[0, 0], [1, 1]],
}


@pytest.mark.parametrize("form", CANDIDATES)
def test_candidates_of_any_form(form: str) -> None:
    candidates = CANDIDATES[form]
    expected = torch.tensor(np.array(candidates).tolist(), dtype=torch.float64)
    assert torch.equal(RandomSearch(candidates).candidates, expected)


def test_candidates_with_gradients_give_batches_without() -> None:
    """They can be turned into arrays."""
    strategy = RandomSearch(X.clone().requires_grad_(), batch_size=3)
    batch = strategy.ask()
    assert np.array_equal(strategy.candidates.numpy(), X.numpy())
    assert batch.X.numpy().shape == (3, X.shape[-1])


def test_a_number_of_more_digits_than_python_writes() -> None:
    with pytest.raises(InputDataError, match="max_batch_size=a number of type int"):
        TABLE().ask(-(10**5000))


@pytest.mark.parametrize("form", BOXES)
def test_bounds_and_constraints_as_lists(form: str) -> None:
    as_lists = RandomSearch(
        bounds=BOXES[form], inequality_constraints=[([0, 1], [1.0, 1.0], 1.5)]
    )
    constraint = (torch.tensor([0, 1]), torch.ones(2).double(), 1.5)
    as_tensors = RandomSearch(bounds=BOUNDS, inequality_constraints=[constraint])
    drawn = as_lists.ask(5).X
    assert torch.equal(drawn, as_tensors.ask(5).X)
    assert bool((drawn.sum(-1) >= 1.5 - 1e-6).all())


@pytest.mark.parametrize("make", [TABLE, BOX], ids=["table", "box"])
def test_a_batch_told_twice_counts_once(make: Any) -> None:
    strategy = make()
    batch = strategy.ask()
    strategy.tell(batch, PRECISE)
    with pytest.raises(InputDataError, match="told already"):
        strategy.tell(batch, PRECISE)
    assert len(strategy.history) == 3


def test_a_withdrawn_batch_leaves_the_same_rows_of_another_one_pending() -> None:
    """Two rows, and two batches of both; of the first one trial is told."""
    strategy = BBKB(X[:2], covar_module=KERNEL, batch_size=2)
    first = strategy.ask()
    strategy.tell(first.ids[:1], [1.0])
    second = strategy.ask()
    strategy.withdraw(first)
    left = second.ids[~torch.isin(second.ids, first.ids)]
    assert strategy.pending_ids.tolist() == left.tolist() and len(left) > 0
    feedback: Tensor = torch.ones(len(left))
    strategy.tell(left, feedback)
    assert len(strategy.history) == 1 + len(left)


@pytest.mark.parametrize("form", ["array", "list", "float32"])
def test_predictions_at_points_of_any_form(form: str) -> None:
    strategy = BBKB(X, covar_module=KERNEL)
    strategy.run(lambda X: X[:, 0], 6, progress=False)
    points = {"array": X.numpy(), "list": X.tolist(), "float32": X.float()}
    expected = strategy.predict(points[form].double() if form == "float32" else X)
    found = strategy.predict(points[form])
    assert expected is not None and found is not None
    for there, here in zip(expected, found, strict=True):
        assert here.dtype == torch.float64 and torch.equal(here, there)


FIVE = np.int64(5)
DATA = {"train_X": X, "train_Y": X[:, :1]}
NUMPY_NUMBERS: dict[str, Callable[[], Any]] = {
    "max_inducing_points": lambda: SparseSingleTaskGP(**DATA, max_inducing_points=FIVE),
    "max_memory": lambda: SparseSingleTaskGP(**DATA, max_memory=np.int64(10**9)),
    "rows": lambda: SubsetSingleTaskGP(
        **DATA, subset_size=FIVE, num_initial=np.int64(2), num_newest=FIVE // 5
    ),
    "seed": lambda: SubsetSingleTaskGP(**DATA, subset_size=FIVE, seed=FIVE),
    "num": lambda: select_by_gradient_diversity(X, num=FIVE),
    "GSSBO": lambda: GSSBO(
        bounds=BOUNDS, subset_size=np.int64(30), num_initial=FIVE, seed=FIVE
    ),
    "window": lambda: GSSBO(bounds=BOUNDS, window=FIVE, patience=FIVE),
    "BBKB": lambda: BBKB(X, KERNEL, batch_size=FIVE, max_memory=FIVE, seed=FIVE),
    "num_initial": lambda: BBKB(X, num_initial=FIVE),
    "ThompsonSampling": lambda: ThompsonSampling(X, batch_size=FIVE),
    "RandomSearch": lambda: RandomSearch(X, batch_size=FIVE, seed=FIVE),
    "SBPE": lambda: SBPE(X, num_evaluations=np.int64(40), num_initial=FIVE),
    "schedule": lambda: SBPE(X, KERNEL, 40, schedule=[FIVE, 2 * FIVE]),
    "raw_samples": lambda: SBPE(
        covar_module=KERNEL,
        num_evaluations=40,
        bounds=BOUNDS,
        raw_samples=FIVE,
        num_restarts=FIVE // 5,
    ),
    "TrustRegionBBKB": lambda: TrustRegionBBKB(
        bounds=BOUNDS,
        batch_size=FIVE,
        num_regions=FIVE // 5,
        num_candidates=10 * FIVE,
        max_inducing_points=FIVE,
        num_initial=FIVE,
    ),
}


@pytest.mark.parametrize("name", NUMPY_NUMBERS)
def test_whole_numbers_may_be_those_of_numpy(name: str, tmp_path: Path) -> None:
    """Also in what is written to files."""
    made = NUMPY_NUMBERS[name]()
    if isinstance(made, Strategy):
        made.tell(made.ask(3), [1.0, 2.0, 3.0])
        made.save(tmp_path / "state.pt")
        NUMPY_NUMBERS[name]().resume(tmp_path / "state.pt")


@pytest.mark.parametrize("bad", [np.bool_(True), np.float64(5.0), np.int64(0)])
def test_other_scalars_of_numpy_are_refused(bad: Any) -> None:
    for argument in ("max_inducing_points", "max_memory"):
        with pytest.raises(InputDataError, match=argument):
            SparseSingleTaskGP(**DATA, **{argument: bad})
    with pytest.raises(InputDataError, match="subset_size"):
        SubsetSingleTaskGP(**DATA, subset_size=bad)
    with pytest.raises(InputDataError, match="subset_size"):
        GSSBO(bounds=BOUNDS, subset_size=bad)
