"""Input that would be read as something else: it is read right, or refused."""

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from gpytorch.kernels import RBFKernel
from refusals import refused

from botorch_sparse.acquisition import (
    BatchUpperConfidenceBound,
    discretization_constant,
)
from botorch_sparse.batching import FixedSize, optimize_adaptive_batch
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.strategies import (
    BBKB,
    SBPE,
    RandomSearch,
    Strategy,
    ThompsonSampling,
    TrustRegionBBKB,
)
from botorch_sparse.strategies.surrogates import table_posterior

X = torch.rand(60, 3, generator=torch.Generator().manual_seed(0)).double()
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]])


TABLE, CONTINUOUS = {"candidates": X}, {"bounds": BOX}


@pytest.mark.parametrize(
    ("make", "domain"),
    [
        (ThompsonSampling, TABLE),
        (BBKB, TABLE),
        (ThompsonSampling, CONTINUOUS),
        (BBKB, CONTINUOUS),
        (TrustRegionBBKB, CONTINUOUS),
    ],
)
def test_deviations_are_in_the_units_of_the_feedback(
    make: Any, domain: dict[str, Any]
) -> None:
    """With two results; with one, or with equal ones, nothing says their unit."""
    points = X[:2, : 3 if "candidates" in domain else 2]

    def predicted(*Y: float) -> tuple[torch.Tensor, ...]:
        strategy: Strategy = make(**domain)
        strategy.tell(points[: len(Y)], list(Y))
        predicted = strategy.predict(points + 0.1)
        assert predicted is not None
        return predicted

    small, large = predicted(10.0, 30.0), predicted(1e4, 3e4)
    for a, b in zip(small, large, strict=True):
        torch.testing.assert_close(1000 * a, b)
    assert bool((small[1] < 30.0).all()) and bool((small[1] > 0.1).all())
    for same in (predicted(10.0), predicted(10.0, 10.0)):
        torch.testing.assert_close(same[0], torch.full_like(same[0], 10.0))
        assert bool(same[1].isnan().all())


def test_repeats_that_differ_say_the_unit() -> None:
    strategy = ThompsonSampling(X)
    strategy.tell(X[[0, 0]], [1e4, 3e4])
    _, sd = strategy.predict(X[20:]) or ()
    assert 1e4 < float(sd.max()) < 2e4


def test_the_unit_survives_a_state() -> None:
    strategy, other = ThompsonSampling(X), ThompsonSampling(X)
    strategy.tell(X[:2], [10.0, 30.0])
    strategy.learn()
    other.load_state_dict(strategy.state_dict())
    for a, b in zip(strategy.predict(X) or (), other.predict(X) or (), strict=True):
        assert torch.equal(a, b)


def test_frames_are_predicted_at_by_the_names_of_their_columns() -> None:
    kinds = ["a", "b", "c"] * 20
    frame = pd.DataFrame(X.numpy(), columns=["x", "y", "z"]).assign(kind=kinds)
    strategy = ThompsonSampling(frame)
    strategy.tell(frame[:20], X[:20, 0].numpy())
    expected = strategy.predict(strategy.candidates[:5])
    found = strategy.predict(frame[["kind", "z", "x", "y"]][:5])
    for a, b in zip(expected or (), found or (), strict=True):
        torch.testing.assert_close(a, b)
    refused("'y'", strategy.predict, frame[["kind", "z", "x"]])
    refused("none of its categories", strategy.predict, frame[:2].assign(kind="d"))


def test_pending_points_in_other_units_are_refused() -> None:
    table = 60 + 40 * X
    strategy = RandomSearch(table, batch_size=5, seed=0)
    batch = strategy.ask()
    mixed = batch.X * torch.tensor([1.0, 1.8, 1.0]) + torch.tensor([0.0, 32.0, 0.0])
    for told in (100 * batch.X, mixed):
        refused("in other units", strategy.tell, told, torch.zeros(5))
    beside = 60 + 40 * torch.rand(5, 3, generator=torch.Generator().manual_seed(3))
    strategy.tell(beside, torch.zeros(5))
    assert len(strategy.pending_batch()) == 5
    strategy.tell(batch.X, torch.zeros(5))
    assert len(strategy.pending_batch()) == 0


def test_six_digits_of_points_that_share_a_value() -> None:
    """A column that does not vary among the pending points is in no other unit."""
    rows = [[1 / 24, (1000 + i) / 3] for i in range(6)] + [[0.5, 400.0]]
    table = torch.tensor(rows, dtype=torch.float64)
    strategy = RandomSearch(table)
    pending = strategy.restore_trials([0, 1, 0])
    told = [[float(f"{value:.6g}") for value in row] for row in pending.X.tolist()]
    strategy.tell(told, [1.0, 2.0, 3.0])
    assert strategy.history.indices.tolist() == [0, 1, 0]
    assert len(strategy.pending) == 0


def test_ranges_of_features_are_no_bounds() -> None:
    """As `scipy.optimize` has them; where it can't be told they are refused."""
    for ranges in ([(0, 1), (2, 5)], np.array([[-5.0, 10.0], [0.0, 15.0]])):
        refused("two ranges", ThompsonSampling, bounds=ranges)
    for sound in ([[0.0, 2.0], [1.0, 5.0]], [[0.0, 0.0], [1.0, 1.0]]):
        bounds = torch.tensor(sound)
        assert torch.equal(ThompsonSampling(bounds=bounds).box.bounds, bounds)
    lists = [[0.0, 0.0], [1.0, 1.0]]
    assert ThompsonSampling(bounds=lists).box.bounds.tolist() == lists
    with pytest.raises(BotorchTensorDimensionError, match="a range for each feature"):
        ThompsonSampling(bounds=[(0, 1), (2, 5), (0, 3)])


@pytest.mark.parametrize("cells", [[1, "x", 3], ["a", 1.5, "b"], ["a", True, "b"]])
def test_texts_among_numbers_are_refused(cells: list[Any]) -> None:
    frame = pd.DataFrame({"mixed": cells * 5, "z": np.arange(15.0)})
    refused("'mixed'", ThompsonSampling, frame)
    frame["mixed"] = frame["mixed"].astype(str)
    assert ThompsonSampling(frame).candidates.shape == (15, 4)


def test_a_single_candidate() -> None:
    refused("a single one", ThompsonSampling, X[:1])


def test_unknown_options_of_the_optimizer() -> None:
    unknown, need = {"num_restart": 3}, "Did you mean 'num_restarts'"
    refused(need, ThompsonSampling, bounds=BOX, optimizer_options=unknown)
    acqf = BatchUpperConfidenceBound(SparseSingleTaskGP(X, X[:, :1]), beta=2.0)
    box = partial(optimize_adaptive_batch, bounds=torch.tensor([[0.0] * 3, [1.0] * 3]))
    refused(need, box, acqf, FixedSize(2), optimizer_options=unknown)


def test_many_features_of_sbpe() -> None:
    """The grid of its theorem is beyond float64; practical constants have none."""
    with pytest.raises(InputDataError, match="constants='practical'"):
        discretization_constant(300, 5.0)
    assert discretization_constant(300, 0.01) == 1.0
    expected = 300 * math.log(0.1 * 300**0.5)
    assert math.log(discretization_constant(300, 0.1)) == pytest.approx(expected)
    bounds = torch.stack([torch.zeros(300), torch.ones(300)])
    strategy = SBPE(bounds=bounds, num_initial=4, num_evaluations=12)
    strategy.run(lambda X: X[:, 0], 4, progress=False)
    assert len(strategy.ask()) > 0
    known = {"bounds": bounds, "covar_module": RBFKernel(), "num_evaluations": 4}
    refused("a box of 300 features.*'practical'", SBPE, **known)
    assert len(SBPE(**known, constants="practical").ask(1)) == 1


@pytest.mark.parametrize("num", [0, 1, 2])
def test_batches_of_many_paths_are_chosen_in_parts(
    num: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row once, and those of the first part are those of a batch of its size."""
    outcomes = [None, ["a"], ["a", "b"]][num]
    wanted = {} if outcomes is None else {"outcomes": _wanted(outcomes)}

    def chosen(size: int, most: int) -> list[int]:
        monkeypatch.setattr(table_posterior, "MOST_PATHS", most)
        strategy = ThompsonSampling(X, unique=True, seed=0, batch_size=size, **wanted)
        strategy.tell(X[:9], X[:9, : max(1, num)])
        rows = strategy.ask().indices
        assert rows is not None
        return rows.tolist()

    rows = chosen(40, 16)
    assert len(set(rows)) == 40 and not set(rows) & set(range(9))
    assert rows[:16] == chosen(16, 16)


def _wanted(names: list[str]) -> list[Any]:
    from botorch_sparse.strategies import Constraint, Objective

    kinds = [Objective("a"), Constraint("b", upper=0.9)]
    return kinds[: len(names)]
