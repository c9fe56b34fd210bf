"""Values that lie far from all others are moved, count less, and are announced."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from torch import Tensor

from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPUCB,
    Objective,
    RandomSearch,
    ThompsonSampling,
)
from botorch_sparse.strategies.data.run_record import FoldedEvaluations
from botorch_sparse.strategies.surrogates.robust_evaluations import lie_apart

WRONG = -1e6


def table(num: int = 300) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.rand(num, 2, generator=generator, dtype=torch.float64)


def value(X: Tensor) -> Tensor:
    return (4 * X[:, :1]).sin() + (3 * X[:, 1:]).cos()


def measured(share: float, seed: int, wrong: float = WRONG) -> Callable[..., Tensor]:
    """The value with some noise; a share of all evaluations is wrong."""
    generator = torch.Generator().manual_seed(seed)

    def objective(X: Tensor) -> Tensor:
        Y = value(X)
        Y = Y + 0.02 * torch.randn(Y.shape, generator=generator, dtype=Y.dtype)
        is_wrong = torch.rand(Y.shape, generator=generator) < share
        return Y.masked_fill(is_wrong, wrong)

    return objective


def run(strategy: Any, objective: Callable[..., Tensor], num: int = 40) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=InputDataWarning)
        strategy.run(objective, num, progress=False)
    return strategy


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (range(20), []),
        ([*range(20), 500], [20]),
        ([*range(20), 150], []),  # a gap of 131, less than ten ranges
        ([*range(20), -500, -900, -501], [20, 21, 22]),
        ([*range(20), 1e4, -1e4], [20, 21]),
        ([*range(8), 1e4], []),  # nine values
        ([*range(8), 1e4, 8], [8]),
        ([*range(12), *[1e4] * 4], []),  # a quarter
        ([0.0] * 15 + [5.0], []),  # the others have no range
    ],
)
def test_which_values_lie_apart(values, expected):
    values = torch.tensor([*values], dtype=torch.float64)
    assert lie_apart(values).nonzero().squeeze(-1).tolist() == expected
    assert torch.equal(lie_apart(-values), lie_apart(values))


def test_weighted_means():
    """Precisions add up, and means are weighted by them."""
    point = torch.tensor([4, 2, 4, 4])
    values = torch.tensor([1.0, 5.0, 3.0, 8.0], dtype=torch.float64)
    weights = torch.tensor([1.0, 0.5, 0.25, 1.0], dtype=torch.float64)
    folded = FoldedEvaluations.of(point, values, weights)
    assert folded.point.tolist() == [4, 2]
    torch.testing.assert_close(folded.counts, torch.tensor([2.25, 0.5]).double())
    mean = (1.0 + 0.25 * 3.0 + 8.0) / 2.25
    torch.testing.assert_close(folded.Y, torch.tensor([mean, 5.0]).double())


@pytest.mark.parametrize("make", [GPUCB, BKB])
def test_posterior_is_the_dense_one(make):
    """Of the moved value, with the variance that its likelihood is largest at."""
    X, lam, ell = table(), 0.01, 0.4
    places = torch.arange(0, 90, 3)
    Y = value(X[places])
    Y[7] = 1e5
    strategy = make(
        X,
        RBFKernel().initialize(lengthscale=ell).double(),
        lam,
        mean_module=ZeroMean(),
        robust=True,
        **({} if make is GPUCB else {"oversampling": 1e4}),
    )
    with pytest.warns(InputDataWarning, match="Values lie.*evaluations 7 .counted"):
        strategy.tell(X[places], Y)
    x, y = X[places].numpy(), Y[:, 0].numpy().copy()
    rest = np.delete(np.arange(len(x)), 7)
    y[7] = y[rest].max() + y[rest].std(ddof=1)

    def k(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-((a[:, None] - b) ** 2).sum(-1) / (2 * ell**2))

    K = k(x, x)
    w = np.linalg.solve(K[np.ix_(rest, rest)] + lam * np.eye(len(rest)), K[rest, 7])
    error, variance = y[7] - w @ y[rest], 1 - w @ K[rest, 7] + lam
    assert error**2 > 40 * variance
    noise = np.full(len(x), lam)
    noise[7] += error**2 - variance
    Z = X[100:110]
    A = K + np.diag(noise)
    mean = k(Z.numpy(), x) @ np.linalg.solve(A, y)
    cross = k(Z.numpy(), x)
    sd = np.sqrt(1 - (cross * np.linalg.solve(A, cross.T).T).sum(-1))
    found = strategy.predict(Z)
    torch.testing.assert_close(found[0], torch.from_numpy(mean), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[1], torch.from_numpy(sd), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_region_of_failures():
    """Told as a very low value, it takes about a fifth of the evaluations at most."""

    def objective(X: Tensor) -> Tensor:
        square = (X - 0.5).square().sum(-1, keepdim=True)
        return (-square).masked_fill(square < 0.15**2, WRONG)

    strategy = run(GPUCB(table(), seed=1, robust=True), objective, 45)
    assert 2 < int((strategy.history.Y < -1e5).sum()) <= 45 / 5 + 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", [GPUCB, ThompsonSampling])
def test_clean_values_are_taken_as_they_are(make):
    """The points are those without the option, to the last one."""
    runs = [
        run(make(table(), seed=1, **option), measured(0.0, 0), 20)
        for option in ({}, {"robust": True})
    ]
    first = runs[0].history.indices
    assert all(torch.equal(first, each.history.indices) for each in runs[1:])
    assert runs[0].surrogate.apart == ()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", [GPUCB, BKB])
def test_ahead_of_random_search(make):
    """With one evaluation of twenty at -1e6; the plain strategy has more regret."""
    best = value(table()).max()
    strategies = {
        "robust": make(table(), seed=1, robust=True),
        "plain": make(table(), seed=1),
        "random": RandomSearch(table(), seed=1),
    }
    regret = {}
    for name, strategy in strategies.items():
        run(strategy, measured(0.05, 21), 35)
        chosen = value(table()[strategy.history.indices])
        regret[name] = float((best - chosen).mean())
    assert regret["robust"] < 0.5 * regret["random"]
    assert regret["robust"] < regret["plain"]


@pytest.mark.parametrize(
    ("make", "is_box"),
    [(GPUCB, False), (BKB, False), (ThompsonSampling, False), (BKB, True)],
)
def test_resumed_runs(make, is_box):
    """A state has what was announced; the rest follows from the data."""
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    few = {"optimizer_options": {"num_restarts": 2, "raw_samples": 16}}
    place = {"bounds": bounds, **few} if is_box else {"candidates": table()}
    num = 1 if is_box else 12
    first, second = (make(**place, seed=2, robust=True) for _ in range(2))
    with pytest.warns(InputDataWarning, match="lie far"):
        X = table()[:12]
        first.tell(X, value(X).index_fill(0, torch.tensor([3, 8]), WRONG))
    assert first.surrogate.apart == (3, 8)
    run(first, measured(0.0, 0), num)
    second.load_state_dict(first.state_dict())
    assert second.surrogate.apart == first.surrogate.apart
    one, other = first.predict(X), second.predict(X)
    assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    assert torch.equal(first.ask().X, second.ask().X)
    assert (first.predict(X)[0].abs() < 10).all()


def test_a_box_has_a_model_with_extra_noise():
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    strategy, X = BBKB(bounds=bounds, robust=True), table(30)
    with pytest.warns(InputDataWarning, match="evaluations 3"):
        strategy.tell(X, value(X).index_fill(0, torch.tensor([3]), 6740.0))
    extra = strategy.model.outlier_noise
    assert (extra > 0).nonzero().squeeze(-1).tolist() == [3]
    strategy.tell(X[:1] + 0.01, value(X[:1]))  # said once: warnings are errors


def test_a_tell_that_fails_changes_nothing(monkeypatch):
    strategy, X = GPUCB(table(), seed=0, robust=True), table()
    strategy.tell(X[:12], value(X[:12]))
    before = strategy.surrogate
    Y = value(X[12:14]).index_fill(0, torch.tensor([1]), WRONG)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputDataWarning, match="lie far"):
            strategy.tell(X[12:14], Y)
    assert strategy.surrogate is before and len(strategy.history) == 12


def test_several_outcomes():
    """Each has evaluations of its own that lie apart."""
    X = table(40)
    Y = torch.cat([value(X), X.sum(-1, keepdim=True)], dim=-1)
    Y[5, 1] = 1e4
    Y[9, 0] = torch.nan
    strategy = BBKB(X, outcomes=[Objective("a"), Objective("b")], robust=True)
    with pytest.warns(InputDataWarning, match="Values in the outcome 'b'"):
        strategy.tell(X, Y)
    assert [part.apart for part in strategy.surrogate.parts] == [(), (5,)]
    assert strategy.predict(X)[0][:, 1].max() < 10


@pytest.mark.parametrize("make", [ThompsonSampling, GPUCB])
def test_far_values_are_announced_when_they_are_new(make):
    """And taken as they are; warnings are errors."""
    X = table()
    strategy = make(X, unique=True, seed=0)
    strategy.tell(X[:12], value(X[:12]))
    Y = value(X[12:15]).index_fill(0, torch.tensor([1]), 6740.0)
    with pytest.warns(InputDataWarning, match="evaluations 13 .* robust=True"):
        strategy.tell(X[12:15], Y)
    assert strategy.history.best().value == 6740.0
    strategy.tell(X[15:16], value(X[15:16]))
    strategy.tell(X[16:17], torch.tensor([[900.0]], dtype=torch.float64))
    with pytest.warns(InputDataWarning, match="evaluations 17 "):
        strategy.tell(X[17:18], torch.tensor([[WRONG]], dtype=torch.float64))
    again = make(X, unique=True, seed=0)
    again.load_state_dict(strategy.state_dict())
    again.tell(X[18:19], torch.tensor([[6750.0]], dtype=torch.float64).neg())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GPUCB(X, RBFKernel().double(), 0.01).tell(X[:18], strategy.history.Y)
    assert "lie far" not in " ".join(str(each.message) for each in caught)


def test_first_values_of_a_run_that_is_nearly_over_are_not_announced():
    X = table()
    strategy = ThompsonSampling(X, unique=True, seed=0)
    strategy.tell(X[:2], torch.tensor([[-300.0], [-200.0]], dtype=torch.float64))
    for i in range(2, 14):
        near = torch.tensor([[-(2.0**-i)]], dtype=torch.float64)
        strategy.tell(X[i : i + 1], near)
    assert lie_apart(strategy.record.values)[:2].all()


def test_evaluations_are_named_as_the_history_counts_them():
    """Where outcomes are missing, and are told later."""
    outcomes = [Objective("a"), Objective("b")]
    strategy = ThompsonSampling(table(), outcomes=outcomes, batch_size=14, seed=0)
    batch = strategy.ask()
    Y = value(batch.X).repeat(1, 2)
    Y[[0, 1, 4], 1] = torch.nan
    Y[6, 1] = WRONG
    with pytest.warns(InputDataWarning, match="outcome 'b' .* evaluations 6 "):
        strategy.tell(batch, Y)
    later = torch.tensor([[torch.nan, 1e7]], dtype=torch.float64)
    with pytest.warns(InputDataWarning, match="outcome 'b' .* evaluations 4 "):
        strategy.tell([batch.ids[4]], later)
        strategy.learn()
    assert strategy.history.Y[4, 1] == 1e7


def test_all_feedback_is_taken_as_it_is_by_default():
    """With a kernel and without one."""
    kernel = RBFKernel().double()
    assert not GPUCB(table(), kernel, 0.01).surrogate.is_robust
    assert GPUCB(table(), kernel, 0.01, robust=True).surrogate.is_robust
    assert not GPUCB(table()).surrogate.is_robust
    with pytest.raises(InputDataError, match="robust=True"):
        GPUCB(table(), kernel, 0.01, constants="theory", robust=True)
    with pytest.raises(InputDataError, match="robust"):
        GPUCB(table(), robust="yes")  # type: ignore[arg-type]
