"""Uncertainty-reduction regression and its error bounds."""

import math
from typing import Any

import oracles
import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from gpytorch.kernels import ScaleKernel
from sbpe_problems import (
    LAM,
    NOISE,
    UNIT_BOX,
    make_kernel,
    make_table,
    rkhs_function,
    with_noise,
)
from strategy_table import equal

from botorch_sparse.inducing import variance_inflation
from botorch_sparse.strategies import UncertaintyReduction
from botorch_sparse.strategies.sbpe.bounds import batch_statistics


def build(**overrides: Any) -> UncertaintyReduction:
    plain: dict[str, Any] = {"lam": LAM, "noise_std": NOISE, "delta": 0.1}
    if "bounds" not in overrides:
        plain["candidates"] = make_table()
    plain["covar_module"] = make_kernel()
    return UncertaintyReduction(**plain | overrides)


@pytest.mark.parametrize("refresh", ["certificate", "every", "exact"])
def test_bounds_hold_uniformly(refresh: Any) -> None:
    for seed in range(3):
        f, strategy = rkhs_function(seed), build(refresh=refresh, seed=seed)
        dataset = strategy.collect_dataset(40)
        strategy.tell(dataset, with_noise(f, seed)(dataset.X))
        X = strategy.candidates
        mean, lower, upper = strategy.predict(X)
        assert bool(((lower <= f(X)) & (f(X) <= upper)).all())
        error, bound = float((mean - f(X)).abs().max()), strategy.error_bound()
        assert error <= bound.measured <= bound.theorem
        assert bound.measured == pytest.approx(float((upper - lower).max()) / 2)


def test_theorem_4_1_by_hand() -> None:
    """beta(delta / (4 |X|)) sqrt(2 alpha^3 I / (log(1 + 1 / tau^2) n)), from dense
    matrices: alpha at the certified r = 1, I from above; with kappa = 2 for k(x, x)."""
    kernel = ScaleKernel(make_kernel()).double().requires_grad_(False)
    kernel.outputscale = 2.0
    strategy = build(covar_module=kernel)
    dataset = strategy.collect_dataset(60)
    strategy.tell(dataset, rkhs_function(0)(dataset.X))
    bound, k = strategy.error_bound(), oracles.DENSE["matern52"]
    K = 2 * k(dataset.X, dataset.X)
    gain = 0.5 * float(torch.logdet(torch.eye(60).double() + K / LAM))
    assert gain <= bound.information_gain <= gain + 1.0
    L = math.log(4 * 200 / 0.1)
    beta = 2 + math.sqrt(bound.lambda_max) + NOISE * math.sqrt(2 * L / LAM)
    inner = 2 * variance_inflation(1.0) ** 3 * 2 * bound.information_gain
    expected = beta * math.sqrt(inner / (math.log(1 + 2 / LAM) * 60))
    assert bound.theorem == pytest.approx(expected, rel=1e-9)


def test_variance_chain() -> None:
    """The steps of the proof with alpha(1) in place of Lemma G.1, at every x."""
    strategy = build()
    strategy.collect_dataset(50)
    growing = strategy.progress.exploration.posterior
    X, k = growing.X, oracles.DENSE["matern52"]
    points = X[strategy.progress.exploration.points]
    d = torch.full((50,), LAM, dtype=torch.float64)
    total = 0.0
    for j in range(50):
        past = points[:j]
        variance = oracles.exact(k, past, d[:j], d[:j], points[j : j + 1]).variance
        total += float(variance)
    alpha = variance_inflation(1.0)
    assert float(growing.variance.max()) <= alpha**3 * total / 50


def test_the_dataset_is_that_of_largest_variance() -> None:
    """Greedy on the dense variance with every point inducing."""
    strategy = build(refresh="exact", candidates=make_table(60))
    dataset = strategy.collect_dataset(15)
    X, k, rows = make_table(60), oracles.DENSE["matern52"], []
    for _ in range(15):
        d = torch.full((len(rows),), LAM, dtype=torch.float64)
        rows.append(int(oracles.exact(k, X[rows], d, d, X).variance.argmax()))
    assert dataset.indices is not None and dataset.indices.tolist() == rows


def test_run_collects_a_dataset() -> None:
    runs, asks = build(), build()
    f = rkhs_function(0)
    history = runs.run(f, 30, progress=False)
    dataset = asks.collect_dataset(30)
    asks.tell(dataset, f(dataset.X))
    assert torch.equal(history.X, asks.history.X) and len(history.rounds) == 1
    assert runs.error_bound() == asks.error_bound()


def test_continuous() -> None:
    strategy = build(bounds=UNIT_BOX)
    dataset = strategy.collect_dataset(15)
    f = rkhs_function(0)
    strategy.tell(dataset, f(dataset.X))
    bound = strategy.error_bound()
    X = make_table(300, seed=5)
    mean, _, _ = strategy.predict(X)
    assert float((mean - f(X)).abs().max()) <= bound.measured
    bounds = strategy.last_bounds
    assert bounds is not None and bounds.offset > 0
    inner = 2 * variance_inflation(1.0) ** 3 * bound.information_gain
    sd = math.sqrt(inner / (math.log(1 + 1 / LAM) * 15))
    expected = bounds.multiplier * sd + bounds.offset
    assert bound.theorem == pytest.approx(expected, rel=1e-9)


def test_it_needs_a_kernel() -> None:
    """None can be fitted: the dataset is fixed before there is any feedback."""
    for domain in ({"candidates": make_table()}, {"bounds": UNIT_BOX}):
        with pytest.raises(InputDataError, match="no covar_module; need the kernel"):
            UncertaintyReduction(**domain)


def test_state_and_errors() -> None:
    strategy, other = build(), build(seed=4)
    with pytest.raises(UnsupportedError, match="call collect_dataset"):
        strategy.predict(make_table(3))
    for n in (0, 2.5):
        with pytest.raises(InputDataError, match=f"n={n}; need at least 1, a whole"):
            strategy.collect_dataset(n)  # type: ignore[arg-type]
    assert strategy.lengths == []
    with pytest.raises(UnsupportedError, match="dataset has no size yet"):
        strategy.ask()
    dataset = strategy.collect_dataset(20)
    with pytest.raises(UnsupportedError, match="has collected a dataset of 20"):
        strategy.collect_dataset(20)
    with pytest.raises(UnsupportedError, match="call collect_dataset"):
        strategy.error_bound()
    other.load_state_dict(strategy.state_dict())
    for s in (strategy, other):
        s.tell(dataset, rkhs_function(0)(dataset.X))
    assert strategy.error_bound() == other.error_bound()
    third = build()
    third.load_state_dict(other.state_dict())
    assert equal(third.state_dict(), other.state_dict())
    assert third.error_bound() == other.error_bound()


def test_a_run_that_is_refused_gives_the_dataset_no_size() -> None:
    box = torch.tensor([[0.0], [1.0]]).double()
    strategy = UncertaintyReduction(bounds=box, covar_module=make_kernel())
    with pytest.raises(InputDataError, match="by_index=True"):
        strategy.run(lambda X: X[:, 0], 4, by_index=True, progress=False)
    assert len(strategy.run(lambda X: X[:, 0], 6, progress=False)) == 6


def test_statistics_count_repeats() -> None:
    """What a radius looks at, densely, where 60 evaluations are of 20 rows."""
    strategy = build(candidates=make_table(20))
    dataset = strategy.collect_dataset(60)
    strategy.tell(dataset, rkhs_function(0)(dataset.X))
    bounds, k = strategy.last_bounds, oracles.DENSE["matern52"]
    assert bounds is not None
    X, counts = bounds.data["X"], bounds.data["counts"]
    seen = batch_statistics(bounds.posterior, X, counts, LAM, bounds.lambda_max)
    d, S = torch.full((60,), LAM, dtype=torch.float64), bounds.data["inducing"]
    posterior = oracles.dtc(k, dataset.X, d, d, S, dataset.X)
    assert counts.max() > 1 and seen.num_evaluations == 60
    expected = float(posterior.variance.sum()) / LAM
    assert seen.leverage_sum == pytest.approx(expected, rel=1e-6)
