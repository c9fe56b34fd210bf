"""The confidence bounds at the end of a batch of S-BPE, from that batch alone."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    ConfidenceRadius,
    RadiusStatistics,
    SBPEContinuousRadius,
    SBPERadius,
    discretization_constant,
)
from botorch_sparse.inducing import accuracy_certificate
from botorch_sparse.kernels.lipschitz import lipschitz_constants
from botorch_sparse.pools.device_batch import read_scalars
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.incremental_variance import IncrementalVariance
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.sbpe.design import Design
from botorch_sparse.strategies.surrogates.prior import Prior
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource


@dataclass(frozen=True)
class Recommendation:
    """The point to use, and where its value lies, in units of Y.

    Attributes:
        X: `d` coordinates.
        index: Its row in the table; None on a continuous domain.
        mean: Posterior mean of the batch whose lower bound is the largest there; with
            `minimize` the one whose upper bound is the smallest.
        lower: Largest lower bound of all batches.
        upper: Smallest upper bound of all batches.
    """

    X: Tensor
    index: int | None
    mean: float
    lower: float
    upper: float

    def negated(self) -> "Recommendation":
        """The same of minus the function."""
        return replace(self, mean=-self.mean, lower=-self.upper, upper=-self.lower)


@dataclass(frozen=True, eq=False)
class BatchBounds:
    r"""Bounds :math:`\bar\mu(x) \pm (\beta \bar\sigma(x) + o)` of one batch.

    Eq. 13 of [Vakili2022]_ for finite domains (the offset is 0 there), Eq. 15 for
    continuous ones.

    Attributes:
        posterior: The batch-local posterior, of standardized feedback.
        prior: By which feedback was standardized.
        inputs: From points as they come to what the kernel takes.
        multiplier: What multiplies the standard deviation.
        offset: What is added whatever the variance.
        lambda_max: The certified `r` of the batch's points, in units of the noise.
        threshold: The largest lower bound that was found, standardized; minus infinity
            before.
        data: What the posterior is built from: `n x d` unique points `X`, standardized
            means `Y` of their observations, the `counts` of these, and the `inducing`
            points that it was asked for. From the ones that it kept, in the order of
            its pivots, it would be built with another rounding.
    """

    posterior: NystromPosterior
    prior: Prior
    inputs: Callable[[Tensor], Tensor]
    multiplier: float
    offset: float
    lambda_max: float
    threshold: float = float("-inf")
    data: dict[str, Tensor] = field(default_factory=dict)

    def interval(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds at `q x d` points of what is maximized. O(q m^2)."""
        lower, upper = self.standardized(X)
        return self.prior.restore(lower), self.prior.restore(upper)

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations at `q x d` points, likewise. O(q m^2)."""
        mean, variance = self.posterior.moments(self.inputs(X))
        sd = variance.clamp_min(0.0).sqrt()
        return self.prior.restore(mean), self.prior.scale * sd

    def standardized(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """The interval in units of the prior; differentiable."""
        mean, variance = self.posterior.moments(self.inputs(X))
        # The square root's slope at zero is infinite; the optimizer needs a finite one.
        tiny = torch.finfo(variance.dtype).tiny
        width = self.multiplier * variance.clamp_min(tiny).sqrt() + self.offset
        return mean - width, mean + width

    def slack(self, X: Tensor) -> Tensor:
        """Upper bound less threshold, `q`: negative where no maximizer can be."""
        return self.standardized(X)[1] - self.threshold

    @torch.no_grad()
    def cut_at(self, best: Tensor) -> "BatchBounds":
        """The same bounds with the lower one at a `1 x d` point as the threshold."""
        return replace(self, threshold=float(self.standardized(best.double())[0]))

    def state_dict(self) -> dict[str, Any]:
        """Data and plain numbers for `of_state`."""
        numbers = ("multiplier", "offset", "lambda_max", "threshold")
        return {"data": dict(self.data)} | {n: getattr(self, n) for n in numbers}

    @classmethod
    def of_state(
        cls,
        state: dict[str, Any],
        source: PriorSource,
        prior: Prior,
        device: torch.device,
    ) -> "BatchBounds":
        """The bounds of a saved run, to the bit."""
        data = {name: x.to(device) for name, x in state["data"].items()}
        posterior = batch_posterior(source, prior, **data)
        return cls(posterior, prior, source.inputs, **state | {"data": data})


@torch.no_grad()
def batch_posterior(
    source: PriorSource,
    prior: Prior,
    X: Tensor,
    Y: Tensor,
    counts: Tensor,
    inducing: Tensor,
) -> NystromPosterior:
    """The posterior that sees one batch only; see `BatchBounds.data`. O(n m^2)."""
    noise, kernel = prior.lam / counts, prior.covar_module
    return NystromPosterior.from_data(kernel, source.inputs(X), Y, noise, inducing)


def batch_statistics(
    posterior: NystromPosterior,
    X: Tensor,
    counts: Tensor,
    lam: float,
    lambda_max: float,
) -> RadiusStatistics:
    """What a radius looks at, of a batch-local posterior. O(n m^2)."""
    leverage = posterior.variance(X) * counts / lam
    log_det = 2.0 * posterior.chol_inner.diagonal().log().sum()
    residual = posterior.residual(X, posterior.features(X))
    # log det(I + K D^-1) <= log det B + trace, since the logarithm is concave.
    gain, num_evaluations, leverage_sum = read_scalars(
        log_det + (residual * counts).sum() / lam, counts.sum(), leverage.sum()
    )
    return RadiusStatistics(
        lam=lam,
        num_evaluations=int(num_evaluations),
        log_det_sum=gain,
        log_det_sum_inflated=3 * gain,
        leverage_sum=leverage_sum,
        lambda_max=lambda_max,
    )


@torch.no_grad()
def certified_inducing_points(
    prior: Prior,
    X: Tensor,
    counts: Tensor,
    design: Design,
    generator: torch.Generator,
) -> Tensor:
    """Inducing points of a batch that was drawn without looking at variances.

    Recursive ridge leverage scores first; then, while no certificate brings `r` to one,
    those points of the batch that are worst explained. O(n m^2).
    """
    if design.refresh == "exact":
        return X
    growing = IncrementalVariance(prior.covar_module, X, prior.lam)
    growing.counts += counts
    noise = prior.lam / counts
    chosen = design.sampler(prior.covar_module, X, noise, generator=generator)
    growing.set_inducing(chosen)
    draw = 2  # the first one is left to the bounds of the batch
    while float(counts @ growing.residual) > prior.lam:
        certificate = accuracy_certificate(
            growing.feature_map(),
            X,
            noise,
            delta=design.draw_delta(draw),
            generator=generator,
        )
        if certificate.lambda_max <= 1.0:
            break
        for _ in range(1 + growing.num_inducing // 10):
            growing.add_inducing(int((counts * growing.residual).argmax()))
        draw += 1
    return X[torch.tensor(growing.inducing, device=X.device)]


def domain_sample(domain: Domain) -> Tensor:
    """The table, or points all over the box, always the same, in float64."""
    if domain.box is None:
        return domain.own_rows[:].double()
    return domain.box.sample(2048, seed=0).double()


def confidence_radius(
    domain: Domain, source: PriorSource, prior: Prior, design: Design
) -> ConfidenceRadius:
    r"""Theorem 3.5 with :math:`\beta(\delta / (4 B |X|))`, or Corollary 3.7.

    The corollary's `k_max` is exact for stationary kernels.
    """
    if design.radius is not None:
        return design.radius
    noise_variance, num_intervals = prior.lam, 4.0 * design.num_batches
    if design.noise_std is not None:
        noise_variance = (design.noise_std / prior.scale) ** 2
    common: dict[str, Any] = {
        "norm_bound": design.norm_bound,
        "noise_variance": noise_variance,
        "delta": design.delta,
        "constants": design.constants,
        "bias": design.bias,
        "mgf_radius": design.mgf_radius * prior.scale,
    }
    if domain.box is None:
        return SBPERadius(**common, num_intervals=num_intervals * domain.num_rows)
    with torch.no_grad():
        X = source.inputs(domain_sample(domain))
        kernel_bound = float(prior.covar_module(X, diag=True).max())
    return SBPEContinuousRadius(
        **common,
        num_intervals=num_intervals,
        dim=domain.dim,
        kernel_bound=kernel_bound,
        discretization=_discretization(domain, source, prior, design),
    )


def _discretization(
    domain: Domain, source: PriorSource, prior: Prior, design: Design
) -> float:
    """The constant c of Assumption 3.6; one, which is announced, if it is unknown."""
    kernel, given = prior.covar_module, design.discretization
    if design.constants == "practical":  # without a grid
        return given or 1.0
    if source.is_inferred:  # on the unit cube, by the shortest lengthscale
        scales = kernel.lengthscale
        fitted = discretization_constant(scales.shape[-1], 1.0 / float(scales.min()))
        return max(given or 1.0, fitted)
    if (known := given or grid_constant(kernel, domain.ranges)) is not None:
        return known
    warnings.warn(
        "The constant of Assumption 3.6 is not known for the kernel "
        f"{type(kernel).__name__}: 1 is taken, and the guarantee on a continuous "
        "domain is void. Give discretization=discretization_constant(...) if its "
        "functions are Lipschitz (those of MaternKernel(nu=0.5) are not), or take "
        "an RBFKernel, an RQKernel or a smoother MaternKernel.",
        InputDataWarning,
        stacklevel=2,
    )
    return 1.0


def grid_constant(covar_module: Kernel, bounds: Tensor) -> float | None:
    r"""The constant c of [Vakili2022]_ Assumption 3.6 for a kernel on a box.

    With :math:`g_i` of `lipschitz_constants` and sides :math:`s_i`: a function of
    norm C changes by :math:`C (\sum_i g_i^2 \delta_i^2)^{1/2}` at most. A grid of
    :math:`\lceil s_i g_i \sqrt d \, C n / 2 \rceil` points along each side has cells
    within :math:`|\delta_i| \le 1/(g_i \sqrt d \, C n)` of their centers, where that is
    1/n, and for :math:`C n \ge 1` at most :math:`c (C n)^d` points,

    .. math:: c = \prod_i \max(1, s_i g_i \sqrt d).

    Args:
        covar_module: The kernel.
        bounds: `2 x d`.

    Returns:
        None where the kernel's slopes are not known; see `lipschitz_constants`.

    Raises:
        InputDataError: If it is beyond float64.
    """
    sides, dim = bounds[1] - bounds[0], bounds.shape[-1]
    if (slopes := lipschitz_constants(covar_module, dim)) is None:
        return None
    per_side = sides.double().cpu() * slopes.squares.cpu().sqrt() * math.sqrt(dim)
    if math.isinf(points := float(per_side.clamp_min(1.0).prod())):
        raise InputDataError(
            f"Got a kernel whose grid on a box of {dim} features has more points than "
            "float64 holds, and a radius of which nothing follows; need fewer "
            "features, longer lengthscales, or constants='practical', which have no "
            "grid."
        )
    return points
