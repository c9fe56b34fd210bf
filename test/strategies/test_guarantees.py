"""`constants="theory"`: what the theorems ask for, against their formulas."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from botorch.exceptions.warnings import BotorchWarning
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean, ZeroMean
from refusals import refused
from torch import Tensor

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.batching import FixedSize, Global, Local, Single
from botorch_sparse.inducing import BLESSSampler, PosteriorVarianceSampler
from botorch_sparse.models import RefitSchedule
from botorch_sparse.strategies import BBKB, BKB, GPBUCB, GPUCB

X = torch.linspace(0, 1, 60, dtype=torch.float64).unsqueeze(-1)
T, DELTA, LAM, XI, F = 500, 0.1, 0.5, 0.2, 2.0
KERNEL = ScaleKernel(RBFKernel()).double().requires_grad_(False)
KERNEL.outputscale, KERNEL.base_kernel.lengthscale = 1.5, 0.3
CLAIMS: dict[str, Any] = {
    "candidates": X,
    "covar_module": KERNEL,
    "lam": LAM,
    "noise_variance": XI**2,
    "norm_bound": F,
    "delta": DELTA,
    "constants": "theory",
}
SPARSE = [
    pytest.param(partial(s, **CLAIMS, num_evaluations=T), id=s.__name__)
    for s in (BBKB, BKB)
]
EXACT = [pytest.param(partial(s, **CLAIMS), id=s.__name__) for s in (GPBUCB, GPUCB)]


def function() -> tuple[Tensor, Tensor]:
    """Values of a function of norm F at the candidates, and noisy ones' generator."""
    weights = torch.tensor([1.0, -0.7, 0.4], dtype=torch.float64)
    centers = X[[5, 30, 50]]
    norm = (weights @ KERNEL(centers).to_dense() @ weights).sqrt()
    return KERNEL(X, centers).to_dense() @ weights * F / norm, weights


def run(strategy: Any, num: int) -> Tensor:
    """A run of some batches with bounded, hence sub-Gaussian noise; its function."""
    values, _ = function()
    noise = torch.Generator().manual_seed(3)

    def objective(rows: Tensor) -> Tensor:
        signs = torch.randint(2, rows.shape, generator=noise) * 2 - 1
        return values[rows] + XI * signs

    strategy.run(objective, num, progress=False, by_index=True)
    return values


@pytest.mark.parametrize("make", SPARSE)
def test_delta_is_shared_and_oversampling_is_that_of_the_proof(make: Any) -> None:
    strategy = make()
    q = strategy.surrogate.sampler.oversampling
    # The sampler's share is a quarter: 24 times 3 log(4 T / (delta / 4)).
    assert q == pytest.approx(24 * 3 * math.log(16 * T / DELTA), rel=1e-12)
    assert strategy.radius.delta == DELTA / 2
    start = strategy.surrogate.initial_sampler
    assert (start.oversampling, start.max_inducing_points) == (16, None)
    shares = strategy.radius.delta + DELTA / 4 + 3 * start.delta
    assert shares == pytest.approx(DELTA, rel=1e-12)


@pytest.mark.parametrize("make", SPARSE)
def test_radius_is_that_of_theorem_2(make: Any) -> None:
    """After one evaluation: one variance, that of the prior."""
    strategy = make()
    run(strategy, 1)
    C = 2.0 if isinstance(strategy, BBKB) else 1.0
    gain = math.log(1 + 3 * 1.5 / LAM)
    noise = 2 * XI * math.sqrt(gain + math.log(2 / DELTA))
    beta = noise + (1 + math.sqrt(2)) * math.sqrt(LAM) * F
    expected = math.sqrt(C / LAM) * beta
    assert strategy.radius.multiplier(strategy.statistics) == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("make", EXACT)
def test_exact_radius_is_that_of_the_evaluated_points(make: Any) -> None:
    """Chowdhury's Theorem 2 with the log-determinant, dense."""
    strategy = make()
    run(strategy, 6)
    K = KERNEL(strategy.history.X).to_dense()
    log_det = torch.linalg.slogdet(torch.eye(6).double() + K / LAM)[1]
    width = math.sqrt(log_det + 2 + 2 * math.log(1 / DELTA))
    expected = F + XI / math.sqrt(LAM) * width
    found = strategy.radius.multiplier(strategy.statistics)
    if isinstance(strategy, GPUCB):
        assert found == pytest.approx(expected, rel=1e-9)
    else:  # frozen variances give more, and deviations shrink by the root of C
        assert found >= math.sqrt(2) * expected * (1 - 1e-9)


@pytest.mark.parametrize("make", [*SPARSE, *EXACT])
def test_function_is_inside_of_its_bounds(make: Any) -> None:
    """All candidates after each of eight batches; and variances within a factor 3.

    The guarantee fails with a probability of at most 0.1; seeds are fixed, and the
    bounds are wider than the errors by a factor.
    """
    strategy = make()
    for num in range(1, 9):
        values = run(strategy, 4 * num)
        mean, sd = strategy.predict(X)
        width = strategy.radius.multiplier(strategy.statistics) * sd
        assert bool(((values - mean).abs() <= width).all())
        seen = strategy.history.X
        K = KERNEL(seen).to_dense() + LAM * torch.eye(len(seen)).double()
        k = KERNEL(seen, X).to_dense()
        exact = 1.5 - (k * torch.linalg.solve(K, k)).sum(0)
        assert bool((exact / 3 <= sd.square() * (1 + 1e-9)).all())
        assert bool((sd.square() <= 3 * exact * (1 + 1e-9)).all())


@pytest.mark.parametrize("make", [*SPARSE, *EXACT])
def test_prior_mean_is_that_of_the_theorems(make: Any) -> None:
    """Zero where none is given; a given one is taken as it is."""
    assert isinstance(make().surrogate.view.prior.mean_module, ZeroMean)
    mean = ConstantMean().double().requires_grad_(False)
    assert make(mean_module=mean).surrogate.view.prior.mean_module is mean


CONTRADICTIONS: dict[str, Any] = {
    "radius": FixedBeta(4.0),
    "refit": RefitSchedule(),
    "batch_size": 5,
    "repeat": "until-uncertainty-halves",
}
DRAWS: dict[str, Any] = {
    "sampler": PosteriorVarianceSampler(1e4),
    "initial_sampler": BLESSSampler(),
    "oversampling": 2.0,
    "num_evaluations": None,
}


@pytest.mark.parametrize("make", [*SPARSE, *EXACT])
def test_contradictions_are_refused(make: Any) -> None:
    refused(r"theory.*without covar_module", make, covar_module=None, lam=None)
    draws = DRAWS if make.func in (BBKB, BKB) else {}
    for argument, value in (CONTRADICTIONS | draws).items():
        refused(rf"{argument}.*theory", make, **{argument: value})
    for rule in (FixedSize(3), Local(2.0, "embedded"), Local(2.0, "paper")):
        refused(r"theory.*bound", BBKB, **CLAIMS, num_evaluations=T, rule=rule)


@pytest.mark.parametrize("rule", [Single(), Global(3.0), Local(1.5)])
def test_rules_of_the_theorems_are_taken(rule: Any) -> None:
    assert BBKB(**CLAIMS, num_evaluations=T, rule=rule).rule == rule


def test_more_oversampling_and_batches_of_one_are_taken() -> None:
    strategy = BBKB(**CLAIMS, num_evaluations=T, oversampling=1e4, batch_size=1)
    assert strategy.surrogate.sampler == PosteriorVarianceSampler(1e4)


def test_a_horizon_without_theory_is_refused() -> None:
    refused(r"num_evaluations=9.*practical", BBKB, X, KERNEL, num_evaluations=9)
    with pytest.raises(TypeError, match="num_evaluations"):
        GPUCB(X, KERNEL, num_evaluations=9)  # type: ignore[call-arg]


def test_feedback_beyond_the_horizon_is_announced_once() -> None:
    strategy = BKB(**CLAIMS, num_evaluations=4)
    run(strategy, 4)
    with pytest.warns(BotorchWarning, match="more than the horizon") as caught:
        run(strategy, 5)
    assert len(caught) == 1
    run(strategy, 7)  # a warning would be an error


def test_many_data_to_start_from_are_drawn_from_by_the_theorem() -> None:
    """Above some two thousand points the first draw is a draw; r is at most one."""
    lots = torch.linspace(0, 1, 2500, dtype=torch.float64).unsqueeze(-1)
    claims = CLAIMS | {"candidates": lots}
    strategy = BBKB(**claims, num_evaluations=10_000)
    strategy.tell(lots, torch.zeros(2500))
    posterior = strategy.posterior
    residual = posterior.residual(lots, posterior.features(lots))
    assert 0 < posterior.num_inducing < 2500
    assert float(residual.sum()) / LAM <= 1  # the trace, above the largest eigenvalue
