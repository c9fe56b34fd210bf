"""Feedback and inputs whose squares overflow are refused where they come in."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import RBFKernel
from refusals import refused
from strategy_table import equal, make_candidates, make_kernel
from torch import Tensor

from botorch_sparse.strategies import (
    BBKB,
    GPUCB,
    GSSBO,
    SBPE,
    RandomSearch,
    Strategy,
    ThompsonSampling,
    TrustRegionBBKB,
    UncertaintyReduction,
)
from botorch_sparse.strategies.data.domain import LARGEST_VALUE

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
X = make_candidates(30)
BEYOND = math.nextafter(LARGEST_VALUE, math.inf)
OPTIONS = {"optimizer_options": {"num_restarts": 1, "raw_samples": 8}}
LEARNING: dict[str, Callable[[], Strategy]] = {
    "thompson": lambda: ThompsonSampling(X, batch_size=2),
    "thompson-kernel": lambda: ThompsonSampling(X, make_kernel(), batch_size=2),
    "bbkb": lambda: BBKB(X, batch_size=2),
    "bbkb-box": lambda: BBKB(bounds=BOUNDS, batch_size=2, **OPTIONS),
    "gpucb": lambda: GPUCB(X, batch_size=2),
    "trust": lambda: TrustRegionBBKB(bounds=BOUNDS, batch_size=2),
    "gssbo": lambda: GSSBO(bounds=BOUNDS, num_initial=2, **OPTIONS),
    "sbpe": lambda: SBPE(X, num_evaluations=9, num_initial=2, schedule=[7]),
}


@pytest.mark.one_in(5)
@pytest.mark.filterwarnings("ignore")  # of scales
@pytest.mark.parametrize("name", LEARNING)
def test_large_feedback_is_refused_before_it_is_recorded(name: str) -> None:
    strategy = LEARNING[name]()
    batch = strategy.ask(2)
    before = strategy.state_dict()
    for value in (BEYOND, -BEYOND):
        refused(r"as large as 1e\+150", strategy.tell, batch, [0.0, value])
        refused("squares overflow", strategy.tell, batch.X, [value, 0.0])
    assert equal(strategy.state_dict(), before)
    strategy.tell(batch, [LARGEST_VALUE, -LARGEST_VALUE])
    for _ in range(3):  # the run goes on
        batch = strategy.ask(2)
        strategy.tell(batch, batch.X[:, 0])
    strategy.ask(1)


def test_what_learns_nothing_takes_all_that_is_finite() -> None:
    strategy = RandomSearch(X, batch_size=2)
    strategy.tell(strategy.ask(), [1e300, -1e300])
    assert len(strategy.history) == 2


@pytest.mark.parametrize("how", ["at once", "executor"])
def test_a_run_tells_the_others_first(how: str) -> None:
    strategy = ThompsonSampling(X, make_kernel(), batch_size=4)

    def objective(X: Tensor) -> Tensor:
        return torch.where(X[:, 0] == bad, 1e200, X[:, 0])

    bad = strategy.ask().X[2, 0]
    with ThreadPoolExecutor(1) as executor:
        given: dict[str, Any] = {"executor": executor} if how == "executor" else {}
        refused(r"1e\+150", strategy.run, objective, 4, progress=False, **given)
    assert 2 in strategy.pending_ids.tolist()
    if how == "at once":
        assert strategy.pending_ids.tolist() == [2]
    assert 1e200 not in strategy.history.values.tolist()


MAKES: dict[str, Callable[..., Strategy]] = {
    "bbkb": BBKB,
    "thompson": ThompsonSampling,
    "gpucb": GPUCB,
    "sbpe": SBPE,
    "reduction": UncertaintyReduction,
}


@pytest.mark.parametrize("name", MAKES)
def test_large_inputs_with_a_kernel(name: str) -> None:
    kernel = RBFKernel().double().requires_grad_(False)
    match = r"Got candidates as large as \de\+300 with a kernel.*leave covar_module"
    refused(match, MAKES[name], [[0.0], [2e300], [-3e300]], covar_module=kernel)
    MAKES[name]([[0.0], [LARGEST_VALUE]], covar_module=kernel)


@pytest.mark.parametrize("make", [BBKB, ThompsonSampling])
def test_a_spread_whose_square_underflows_is_announced(
    make: Callable[..., Strategy],
) -> None:
    """Once; not where all values are equal, or differ by rounding, or by enough."""
    start = "The feedback varies by .*e-161, whose square underflows"
    strategy = make(X, batch_size=4, seed=0)
    batch = strategy.ask()
    with pytest.warns(InputDataWarning, match=start):
        strategy.tell(batch, 1e-160 * batch.X[:, 0])
        strategy.learn()
        deviation = strategy.predict(X)[1]  # type: ignore[index]
    assert deviation.isnan().all()
    for size, offset in ((1e-160, 0.0), (0.0, 1e-160), (1e-16, 1.0), (1e-149, 0.0)):
        strategy = strategy if size == 1e-160 else make(X, batch_size=4, seed=0)
        batch = strategy.ask()
        strategy.tell(batch, offset + size * batch.X[:, 0])  # warnings are errors
        strategy.learn()


def test_a_column_whose_range_overflows_is_named() -> None:
    wide = X.clone().double()
    wide[:, 1] = 1.7e308 * (wide[:, 1] - 0.5).sign()
    match = r"whose columns 'x1' differ by more than 1\.8e308.*Rescale"
    refused(match, ThompsonSampling, wide)
    assert len(ThompsonSampling(wide.clamp(min=0.0)).ask(2)) == 2


@pytest.mark.parametrize("make", [BBKB, GSSBO, TrustRegionBBKB])
def test_large_bounds_with_a_kernel(make: Callable[..., Strategy]) -> None:
    bounds = [[0.0], [1e200]]
    refused("Got bounds as large as", make, bounds=bounds, covar_module=make_kernel())
    for low, high in ((0.0, 1e200), (1e200, 2e200)):  # they are scaled
        strategy = make(bounds=[[low], [high]])
        X = low + (high - low) * torch.tensor([[0.1], [0.2], [0.9]]).double()
        strategy.tell(X, [0.0, 1.0, 0.5])
        assert strategy.ask(1).X.shape == (1, 1)
