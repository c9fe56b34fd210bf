"""Problems of known norm, and how far f lies outside a radius, for the coverage tests.

Each case plays one random problem with a radius and its own posterior, and returns the
least factor of the radius's width that holds everywhere: above 1 the interval missed.
Only candidates whose deviation is above rounding count.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import oracles
import torch
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    BBKBRadius,
    BKBRadius,
    ChowdhuryGopalanRadius,
    ConfidenceRadius,
    GSSBORadius,
    RadiusStatistics,
    SBPEContinuousRadius,
    SBPERadius,
    SrinivasAgnosticRadius,
    SrinivasCompactRadius,
    SrinivasFiniteRadius,
    SubsetStatistics,
    discretization_constant,
)
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies import BBKB, BKB, GPBUCB, GPUCB

DELTA, LAM, NORM, EVALUATIONS = 0.1, 0.04, 2.0, 40
NUM_CANDIDATES, DIM = 49, 2
dense = oracles.DENSE["matern52"]  # lengthscale 0.6
COMMON: dict[str, Any] = {"norm_bound": NORM, "noise_variance": LAM, "delta": DELTA}


class Problem(NamedTuple):
    """Candidates `A x d`, values `A` of f, noise drawn for any number of points."""

    X: Tensor
    f: Tensor
    noise: Callable[[int], Tensor]
    generator: torch.Generator


def in_rkhs(seed: int, noise: str = "gaussian", num: int = NUM_CANDIDATES) -> Problem:
    """A sum of kernel functions, of norm exactly `NORM`."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(num, DIM, generator=g, dtype=torch.float64)
    C = torch.rand(20, DIM, generator=g, dtype=torch.float64)
    w = torch.randn(20, generator=g, dtype=torch.float64)
    w = NORM * w / (w @ dense(C, C) @ w).sqrt()
    return Problem(X, dense(X, C) @ w, lambda n: draw_noise(n, noise, g), g)


def from_prior(seed: int) -> Problem:
    """A draw of the Gaussian process on a grid."""
    g = torch.Generator().manual_seed(seed)
    side = torch.linspace(0, 1, 7, dtype=torch.float64)
    X = torch.cartesian_prod(side, side)
    K = dense(X, X) + 1e-10 * torch.eye(len(X), dtype=X.dtype)
    f = torch.linalg.cholesky(K) @ torch.randn(len(X), generator=g, dtype=X.dtype)
    return Problem(X, f, lambda n: draw_noise(n, "gaussian", g), g)


def draw_noise(n: int, kind: str, g: torch.Generator) -> Tensor:
    """Noise of scale `sqrt(LAM)`."""
    if kind == "gaussian":
        unit = torch.randn(n, generator=g, dtype=torch.float64)
    elif kind == "bounded":  # the worst of its kind
        unit = torch.randint(2, (n,), generator=g).double() * 2 - 1
    else:  # E exp(h (E - 1)) <= exp(h^2 4 / 2) on |h| <= 1/2
        unit = torch.empty(n, dtype=torch.float64).exponential_(generator=g) - 1
    return math.sqrt(LAM) * unit


def factor_needed(
    problem: Problem,
    mean: Tensor,
    variance: Tensor,
    radius: ConfidenceRadius,
    statistics: RadiusStatistics,
) -> float:
    """The least factor of the width that covers f at all candidates."""
    width = radius.multiplier(statistics) * variance.clamp_min(1e-12).sqrt()
    error = (problem.f - mean).abs()
    return float((error / (width + radius.offset(statistics))).max())


def play(strategy: Any, problem: Problem) -> float:
    """Run a strategy; the largest factor needed at the start of any batch."""
    worst = 0.0
    while len(strategy.history) < EVALUATIONS:
        batch = strategy.ask(EVALUATIONS - len(strategy.history))
        y = problem.f[batch.indices] + problem.noise(len(batch))
        strategy.tell(batch, y)
        mean, variance = present_moments(strategy, problem)
        found = factor_needed(
            problem, mean, variance, strategy.radius, strategy.statistics
        )
        worst = max(worst, found)
    return worst


def present_moments(strategy: Any, problem: Problem) -> tuple[Tensor, Tensor]:
    """The posterior of a strategy; the exact one is computed densely here."""
    if isinstance(strategy.posterior, NystromPosterior):
        return strategy.posterior.moments(problem.X)
    X, y = strategy.history.X, strategy.history.Y
    exact = oracles.exact(dense, X, y, torch.full_like(y, LAM), problem.X)
    return exact.mean, exact.variance


def strategy_case(cls: Any, radius: ConfidenceRadius, make: Any = in_rkhs) -> Any:
    """A case that plays a strategy, with the theory's oversampling where it has one."""

    def case(seed: int) -> float:
        problem = make(seed)
        arguments: dict[str, Any] = {
            "candidates": problem.X,
            "covar_module": oracles.make_kernel("matern52", dtype=torch.float64),
            "lam": LAM,
            "radius": radius,
            "seed": seed,
        }
        if cls in {BKB, BBKB}:  # 6 alpha / eps^2 = 72 for eps = 1/2, alpha = 3
            threshold = 2.0 if cls is BBKB else 1.0
            log = math.log(4 * EVALUATIONS / DELTA)
            arguments["oversampling"] = 72 * threshold * log
        return play(cls(**arguments), problem)

    return case


def blind_case(radius: ConfidenceRadius, noise: str = "gaussian") -> Any:
    """A case of points chosen without feedback, with few inducing points."""

    def case(seed: int) -> float:
        continuous = isinstance(radius, SBPEContinuousRadius)
        problem = in_rkhs(seed, noise, 400 if continuous else NUM_CANDIDATES)
        rows = torch.randint(
            len(problem.X), (EVALUATIONS,), generator=problem.generator
        )
        X = problem.X[rows]
        y, d = problem.f[rows] + problem.noise(EVALUATIONS), torch.full((40,), LAM)
        S = X[:12].unique(dim=0)
        posterior = oracles.dtc(dense, X, y, d.double(), S, problem.X)
        residual = dense(X, X) - oracles.nystrom_kernel(dense, S)(X, X)
        statistics = RadiusStatistics(
            lam=LAM,
            num_evaluations=EVALUATIONS,
            lambda_max=float(torch.linalg.eigvalsh(residual)[-1]) / LAM,
        )
        return factor_needed(
            problem, posterior.mean, posterior.variance, radius, statistics
        )

    return case


def subset_case(seed: int) -> float:
    """The posterior of GSSBO's Theorem 5.1, with most points in the subset."""
    problem = from_prior(seed)
    rows = torch.randperm(NUM_CANDIDATES, generator=problem.generator)[:30]
    X, y = problem.X[rows], problem.f[rows] + problem.noise(30)
    K_hat = oracles.nystrom_kernel(dense, X[:24])(X, X)
    k = dense(X, problem.X)
    gain = torch.linalg.solve(K_hat + LAM * torch.eye(30, dtype=X.dtype), k).mT
    variance = (1 - (gain * k.mT).sum(-1)).clamp_min(0.0)
    error = torch.linalg.matrix_norm(dense(X, X) - K_hat, 2)
    statistics = SubsetStatistics(
        lam=LAM,
        num_evaluations=30,
        lambda_max=float(error) / LAM,
        feedback_norm=float(y.norm()),
        cross_covariance_norm=float(k.norm(dim=0).max()),
    )
    radius = GSSBORadius(DIM, DELTA, **GRADIENTS, penalty="offset")
    return factor_needed(problem, gain @ y, variance, radius, statistics)


# The partial derivatives are Gaussian, of deviation s = sqrt(5/3) / lengthscale;
# P(sup > L) <= a exp(-L^2 / b^2) with b = 2 s for a few dozen independent ones, a = 40.
GRADIENTS = {
    "gradient_amplitude": 40.0,
    "gradient_scale": 2 * math.sqrt(5 / 3) / oracles.LENGTHSCALE,
}
LIPSCHITZ = math.sqrt(5 / 3) / oracles.LENGTHSCALE
INTERVALS = 2 * NUM_CANDIDATES
LIGHT_TAILS = {
    "noise_variance": 4 * LAM,
    "mgf_radius": 0.5 / math.sqrt(LAM),
    "num_intervals": INTERVALS,
}
THEORY: dict[str, Any] = COMMON | {"constants": "theory"}
CG = ChowdhuryGopalanRadius

# Name: the case, and a factor of the width that is too small for most problems, by
# which the test shows that it can fail.
CASES: dict[str, tuple[Callable[[int], float], float]] = {
    "bbkb": (strategy_case(BBKB, BBKBRadius(**THEORY)), 0.08),
    "bkb": (strategy_case(BKB, BKBRadius(**THEORY)), 0.1),
    "gpbucb": (strategy_case(GPBUCB, BBKBRadius(**THEORY)), 0.08),
    "igp-ucb": (strategy_case(GPUCB, CG(**THEORY)), 0.2),
    "igp-ucb-practical": (strategy_case(GPUCB, CG(**COMMON)), 0.2),
    "igp-ucb-batches": (strategy_case(GPBUCB, CG(**THEORY)), 0.15),
    "srinivas-agnostic": (
        strategy_case(
            GPUCB,
            SrinivasAgnosticRadius(**THEORY),
            lambda seed: in_rkhs(seed, "bounded"),
        ),
        0.006,
    ),
    "srinivas-finite": (
        strategy_case(
            GPUCB,
            SrinivasFiniteRadius(NUM_CANDIDATES, DELTA, constants="theory"),
            from_prior,
        ),
        0.45,
    ),
    "srinivas-compact": (
        strategy_case(
            GPUCB,
            SrinivasCompactRadius(DIM, DELTA, **GRADIENTS, constants="theory"),
            from_prior,
        ),
        0.3,
    ),
    "s-bpe": (blind_case(SBPERadius(**COMMON, num_intervals=INTERVALS)), 0.08),
    "s-bpe-sharp": (
        blind_case(SBPERadius(**COMMON, num_intervals=INTERVALS, bias="sharp")),
        0.1,
    ),
    "s-bpe-light-tails": (
        blind_case(SBPERadius(**(COMMON | LIGHT_TAILS)), "exponential"),
        0.03,
    ),
    "s-bpe-continuous": (
        blind_case(
            SBPEContinuousRadius(
                **COMMON,
                dim=DIM,
                discretization=discretization_constant(DIM, LIPSCHITZ),
            )
        ),
        0.025,
    ),
    "gssbo": (subset_case, 0.0005),
}
