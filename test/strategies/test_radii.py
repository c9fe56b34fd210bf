"""What strategies tell a radius of each posterior: how accurate it is, its norm."""

from dataclasses import replace
from typing import Any

import box_table
import oracles
import pytest
import strategy_table
import torch
from botorch.exceptions import UnsupportedError
from gpytorch.means import Mean, ZeroMean
from torch import Tensor

from botorch_sparse.acquisition import (
    BBKBRadius,
    ConfidenceRadius,
    FixedBeta,
    GuessAndDouble,
    RandomizedRadius,
    SBPERadius,
    ShiftedExponentialRadius,
)
from botorch_sparse.strategies.ucb import with_chain_rule

# The function's norm is a hundred times the guess, which the radius finds out.
pytestmark = pytest.mark.filterwarnings("ignore:The feedback varies by")
NOISE, GUESS = 1e-2, 0.05
INNER = BBKBRadius(GUESS, NOISE, 0.1)
TABLES: dict[str, Any] = {
    **{f"table-{name}": build for name, build in strategy_table.TABLE.items()},
    **{f"box-{name}": build for name, build in box_table.KNOWN.items()},
}
NAMES = ["table-bbkb-global-local", "table-bkb", "table-gpbucb-sum"]
NAMES += ["box-bbkb-global-local", "box-gpucb"]
C = torch.rand(12, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
W = 20 * torch.randn(12, generator=torch.Generator().manual_seed(4)).double()


def build(name: str, radius: ConfidenceRadius, **kwargs: Any) -> Any:
    return TABLES[name](radius=radius, lam=NOISE, **kwargs)


def kernel_of(strategy: Any) -> Any:
    return strategy.settings.covar_module if strategy.box else KERNEL


KERNEL = strategy_table.make_kernel()


def function(strategy: Any) -> tuple[Any, float]:
    """A sum of kernel functions, and its RKHS norm."""
    kernel = kernel_of(strategy)
    K = kernel(C).to_dense().detach()

    def f(X: Tensor) -> Tensor:
        return (kernel(X, C).to_dense() @ W).detach()

    return f, float((W @ K @ W).sqrt())


def dense_norm_and_trace(strategy: Any) -> tuple[float, float]:
    """Both from matrices over the evaluations, repeats as they are."""
    X, Y = strategy.history.X, strategy.history.Y
    kernel, numbers = kernel_of(strategy), strategy.surrogate
    S = X.unique(dim=0)
    if numbers.sampler is not None:
        S = strategy.history.points(torch.tensor(numbers.state_dict()["inducing"]))

    def dense(A: Tensor, B: Tensor) -> Tensor:
        return kernel(A, B).to_dense().detach()

    Q = oracles.nystrom_kernel(dense, S)(X, X)
    trace = float((dense(X, X) - Q).trace()) / NOISE
    covariance = Q + NOISE * torch.eye(len(X)).to(Q)
    if (
        strategy.settings.mean_module is None
    ):  # the constant of generalized least squares
        weights = torch.linalg.solve(covariance, torch.ones_like(Y))
        Y = Y - weights @ Y / weights.sum()
    alpha = torch.linalg.solve(covariance, Y)
    return float((alpha @ Q @ alpha).sqrt()), trace


@pytest.mark.one_in(5)
@pytest.mark.parametrize("mean_module", [ZeroMean(), None], ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_norm_doubles_within_a_run(
    name: str, mean_module: Mean | None
) -> None:
    """The evidence is that of a dense computation, and the bound stays below 2 |f|."""
    radius = GuessAndDouble(INNER)
    strategy = build(name, radius, mean_module=mean_module)
    f, norm = function(strategy)
    strategy.run(f, 8 if strategy.box else 30, progress=False)
    strategy.ask()  # learns what is left
    mean_norm, trace = dense_norm_and_trace(strategy)
    statistics = strategy.statistics
    if strategy.surrogate.sampler is None:
        trace = 0.0
    assert statistics.lambda_max == pytest.approx(trace, rel=1e-3, abs=1e-3)
    start = replace(statistics, norm_lower_bound=0.0)
    evidence = radius.update(start, mean_norm).norm_lower_bound
    assert statistics.norm_lower_bound >= evidence * (1 - 1e-3)
    assert GUESS < evidence <= statistics.norm_lower_bound * (1 + 1e-3)
    assert statistics.norm_lower_bound <= norm
    assert radius.norm_bound(statistics) >= 4 * GUESS
    assert strategy.radius.multiplier(statistics) > INNER.multiplier(statistics)


def test_other_radii_cost_nothing() -> None:
    """`lambda_max` for those that look at it alone, the norm likewise."""
    for radius, measured in ((SBPERadius(1.0, NOISE, 0.1), True), (INNER, False)):
        strategy = build("table-bbkb-global", radius)
        strategy.run(strategy_table.objective, 20, progress=False)
        assert (strategy.statistics.lambda_max > 0) is measured
        assert strategy.statistics.norm_lower_bound == 0
    assert not RandomizedRadius(FixedBeta(4.0)).needs_lambda_max


def test_other_hyperparameters_are_another_norm() -> None:
    strategy = build("box-bbkb-global", GuessAndDouble(INNER))
    f, _ = function(strategy)
    strategy.run(f, 8, progress=False)
    statistics = strategy.statistics
    assert statistics.norm_lower_bound > 0
    statistics = replace(statistics, log_det_sum=1e-9, log_det_sum_inflated=1e-9)
    gain = strategy.surrogate.view.information_gain(strategy.record)
    for is_other, kept in ((True, 0.0), (False, statistics.norm_lower_bound)):
        again = with_chain_rule(
            statistics, strategy.surrogate, strategy.record, is_other
        )
        assert again.norm_lower_bound == kept
        sums = again.log_det_sum, again.log_det_sum_inflated
        assert sums == ((gain, 3 * gain) if is_other else (1e-9, 1e-9))


def test_stopping_takes_the_interval_without_the_draw() -> None:
    """A random factor is for choosing points: a small one must not end a run."""
    drawn = RandomizedRadius(INNER, mean_excess=1e-6)
    strategy = build("table-bbkb-global", drawn)
    strategy.run(strategy_table.objective, 20, progress=False)
    gap = strategy.confidence_gap()
    assert drawn.multiplier(strategy.statistics) < 1e-4
    strategy.radius = INNER
    assert gap == strategy.confidence_gap() > 0
    strategy.radius = ShiftedExponentialRadius(150)
    with pytest.raises(UnsupportedError, match="no interval to stop by"):
        strategy.confidence_gap()
