"""The confidence bounds at the end of a batch of S-BPE, from that batch alone."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import ConfidenceRadius, RadiusStatistics
from botorch_sparse.inducing import RecursiveRLSSampler, accuracy_certificate
from botorch_sparse.optim.transfers import read
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.growing import GrowingPosterior
from botorch_sparse.strategies.sbpe.exploration import CertificatePolicy
from botorch_sparse.strategies.sbpe.units import UNITS_OF_Y, Units


class BatchData(NamedTuple):
    """The feedback of one batch with repeats folded, all float64.

    Attributes:
        X: `n x d` unique points.
        Y: `n` means of their observations, or of these in units of their own.
        counts: `n` numbers of observations.
    """

    X: Tensor
    Y: Tensor
    counts: Tensor


@dataclass(frozen=True, eq=False)
class BatchBounds:
    r"""Bounds :math:`\bar\mu(x) \pm (\beta \bar\sigma(x) + o)` of one batch.

    Eq. 13 of [Vakili2022]_ for finite domains (the offset is 0 there), Eq. 15 for
    continuous ones.

    Attributes:
        posterior: The batch-local posterior.
        multiplier: What multiplies the standard deviation.
        offset: What is added whatever the variance.
        lambda_max: The certified `r` of the batch's points, in units of the noise.
        threshold: The largest lower bound that was found, in `units`; minus infinity
            before.
        state: From which the posterior can be built again.
        units: What the posterior sees of feedback; so does all above.
    """

    posterior: NystromPosterior
    multiplier: float
    offset: float
    lambda_max: float
    threshold: float = float("-inf")
    state: dict[str, Tensor] = field(default_factory=dict)
    units: Units = UNITS_OF_Y

    def interval(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds at `q x d` points of what is maximized. O(q m^2)."""
        lower, upper = self.standardized(X)
        return self.units.restore(lower), self.units.restore(upper)

    def standardized(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """The same in `units`; differentiable."""
        mean, variance = self.posterior.moments(X)
        # The square root's slope at zero is infinite; the optimizer needs a finite one.
        tiny = torch.finfo(variance.dtype).tiny
        width = self.multiplier * variance.clamp_min(tiny).sqrt() + self.offset
        return mean - width, mean + width

    def slack(self, X: Tensor) -> Tensor:
        """Upper bound less threshold, `q`: negative where no maximizer can be."""
        return self.standardized(X)[1] - self.threshold

    def state_dict(self) -> dict[str, Any]:
        """Data and plain numbers for `from_state`."""
        return {
            "data": dict(self.state),
            "multiplier": self.multiplier,
            "offset": self.offset,
            "lambda_max": self.lambda_max,
            "threshold": self.threshold,
        }

    @classmethod
    def from_state(
        cls,
        covar_module: Kernel,
        lam: float,
        state: dict[str, Any],
        device: torch.device,
        units: Units,
    ) -> "BatchBounds":
        """The bounds of a saved run, to the bit."""
        tensors = {name: x.to(device) for name, x in state["data"].items()}
        data = BatchData(tensors["X"], tensors["Y"], tensors["counts"])
        posterior = batch_posterior(covar_module, lam, data, tensors["inducing"])
        numbers = {name: value for name, value in state.items() if name != "data"}
        return cls(posterior, **numbers, state=tensors, units=units)

    def with_threshold(self, threshold: float) -> "BatchBounds":
        """The same bounds with the largest lower bound known."""
        return replace(self, threshold=threshold)


@torch.no_grad()
def batch_posterior(
    covar_module: Kernel, lam: float, data: BatchData, inducing_points: Tensor
) -> NystromPosterior:
    """The posterior that sees one batch only. O(n m^2)."""
    return NystromPosterior.from_data(
        covar_module, data.X, data.Y, lam / data.counts, inducing_points
    )


@torch.no_grad()
def bounds_of_batch(
    posterior: NystromPosterior,
    data: BatchData,
    inducing_points: Tensor,
    radius: ConfidenceRadius,
    lam: float,
    lambda_max: float,
    units: Units,
) -> BatchBounds:
    """What a radius makes of a batch-local posterior.

    The inducing points are those that the posterior was asked for: from those that it
    kept, in the order of its pivots, it would be built with another rounding.
    """
    leverage = posterior.variance(data.X) * data.counts / lam
    log_det = 2.0 * posterior.chol_inner.diagonal().log().sum()
    residual = posterior.residual(data.X, posterior.features(data.X))
    # log det(I + K D^-1) <= log det B + trace, since the logarithm is concave.
    gain, num_evaluations, leverage_sum = read(
        log_det + (residual * data.counts).sum() / lam,
        data.counts.sum(),
        leverage.sum(),
    )
    statistics = RadiusStatistics(
        lam=lam,
        num_evaluations=int(num_evaluations),
        log_det_sum=gain,
        log_det_sum_inflated=3 * gain,
        leverage_sum=leverage_sum,
        lambda_max=lambda_max,
    )
    return BatchBounds(
        posterior=posterior,
        multiplier=radius.multiplier(statistics),
        offset=radius.offset(statistics),
        lambda_max=lambda_max,
        state={**data._asdict(), "inducing": inducing_points},
        units=units,
    )


@torch.no_grad()
def certified_inducing_points(
    covar_module: Kernel,
    lam: float,
    data: BatchData,
    policy: CertificatePolicy,
    generator: torch.Generator,
) -> Tensor:
    """Inducing points of a design that was drawn without looking at variances.

    Recursive ridge leverage scores first; then, while no certificate brings `r` to one,
    those points of the batch that are worst explained. O(n m^2).

    Returns:
        `m x d` points.
    """
    if policy.refresh == "exact":
        return data.X
    growing = GrowingPosterior(covar_module, data.X, lam)
    growing.counts += data.counts
    sampler: RecursiveRLSSampler = policy.sampler
    chosen = sampler(covar_module, data.X, lam / data.counts, generator=generator)
    growing.set_inducing(chosen)
    draw = 2  # the first one is left to the bounds of the batch
    while float(data.counts @ growing.residual) > lam:
        certificate = accuracy_certificate(
            growing.feature_map(),
            data.X,
            lam / data.counts,
            delta=policy.draw_delta(draw),
            generator=generator,
        )
        if certificate.lambda_max <= 1.0:
            break
        for _ in range(1 + growing.num_inducing // 10):
            growing.add_inducing(int((data.counts * growing.residual).argmax()))
        draw += 1
    return data.X[torch.tensor(growing.inducing, device=data.X.device)]
