"""The confidence bounds at the end of a batch of S-BPE, from that batch alone."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.acquisition.confidence import ConfidenceRadius, RadiusStatistics
from botorch_sparse.inducing import accuracy_certificate
from botorch_sparse.pools.device_batch import read_scalars
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.incremental_variance import IncrementalVariance
from botorch_sparse.strategies.sbpe.design import CertificatePolicy
from botorch_sparse.strategies.sbpe.exploration import BatchExploration
from botorch_sparse.strategies.sbpe.search_prior import (
    UNITS_OF_Y,
    OutcomeScale,
    SearchPrior,
)


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
    units: OutcomeScale = UNITS_OF_Y

    def interval(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds at `q x d` points of what is maximized. O(q m^2)."""
        lower, upper = self.standardized(X)
        return self.units.restore(lower), self.units.restore(upper)

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations at `q x d` points, likewise. O(q m^2)."""
        mean, variance = self.posterior.moments(X)
        sd = variance.clamp_min(0.0).sqrt()
        return self.units.restore(mean), self.units.scale * sd

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
        """Data and plain numbers for `of_state`."""
        numbers = ("multiplier", "offset", "lambda_max", "threshold")
        return {"data": dict(self.state)} | {n: getattr(self, n) for n in numbers}

    @classmethod
    def of_state(
        cls, state: dict[str, Any], prior: SearchPrior, device: torch.device
    ) -> "BatchBounds":
        """The bounds of a saved run, to the bit."""
        tensors = {name: x.to(device) for name, x in state["data"].items()}
        data = BatchData(*(tensors[name] for name in BatchData._fields))
        posterior = batch_posterior(prior, data, tensors["inducing"])
        numbers = {name: value for name, value in state.items() if name != "data"}
        return cls(posterior, **numbers, state=tensors, units=prior.units)

    @torch.no_grad()
    def cut_at(self, best: Tensor) -> "BatchBounds":
        """The same bounds with the lower one at a `1 x d` point as the threshold."""
        return replace(self, threshold=float(self.standardized(best.double())[0]))


@torch.no_grad()
def batch_posterior(
    prior: SearchPrior, data: BatchData, inducing_points: Tensor
) -> NystromPosterior:
    """The posterior that sees one batch only, in the prior's units. O(n m^2)."""
    noise = prior.lam / data.counts
    return NystromPosterior.from_data(
        prior.covar_module, data.X, data.Y, noise, inducing_points
    )


@torch.no_grad()
def bounds_of_feedback(
    data: BatchData,
    prior: SearchPrior,
    radius: ConfidenceRadius,
    policy: CertificatePolicy,
    exploration: BatchExploration | None,
    generator: torch.Generator,
) -> BatchBounds:
    """The bounds that feedback for a batch, or a part of it, gives. O(n m^2).

    The residual matrix of a part is a principal submatrix of that of the batch: the
    bound on its largest eigenvalue holds for it too. The state has the inducing points
    that the posterior was asked for: from those that it kept, in the order of its
    pivots, it would be built with another rounding.

    Args:
        data: The feedback, in units of Y.
        prior: Kernel, noise and units.
        radius: The confidence radius.
        policy: For what is drawn.
        exploration: Of the batch; None where its points were drawn blindly.
        generator: For what is drawn.

    Raises:
        InputDataError: If the kernel returns NaN or infinity.
    """
    data = data._replace(Y=prior.units.standardize(data.Y))
    if exploration is None:
        inducing = certified_inducing_points(prior, data, policy, generator)
    else:
        inducing = exploration.posterior.X[exploration.posterior.inducing]
    posterior = batch_posterior(prior, data, inducing)
    num_draws = 0 if exploration is None else exploration.num_draws
    r = accuracy_certificate(
        posterior,
        data.X,
        prior.lam / data.counts,
        delta=policy.draw_delta(num_draws + 1),
        generator=generator,
    ).lambda_max
    if exploration is not None:
        r = min(r, exploration.bound)
    statistics = batch_statistics(posterior, data, prior.lam, r)
    mean, variance = posterior.moments(data.X)
    if not bool((mean + variance).isfinite().all()):
        raise InputDataError(
            "The kernel returned NaN or infinity, and nothing was learned. Check the "
            "kernel's hyperparameters."
        )
    return BatchBounds(
        posterior=posterior,
        multiplier=radius.multiplier(statistics),
        offset=radius.offset(statistics),
        lambda_max=r,
        state={**data._asdict(), "inducing": inducing},
        units=prior.units,
    )


def batch_statistics(
    posterior: NystromPosterior, data: BatchData, lam: float, lambda_max: float
) -> RadiusStatistics:
    """What a radius looks at, of a batch-local posterior. O(n m^2)."""
    leverage = posterior.variance(data.X) * data.counts / lam
    log_det = 2.0 * posterior.chol_inner.diagonal().log().sum()
    residual = posterior.residual(data.X, posterior.features(data.X))
    # log det(I + K D^-1) <= log det B + trace, since the logarithm is concave.
    gain, num_evaluations, leverage_sum = read_scalars(
        log_det + (residual * data.counts).sum() / lam,
        data.counts.sum(),
        leverage.sum(),
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
    prior: SearchPrior,
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
    growing = IncrementalVariance(prior.covar_module, data.X, prior.lam)
    growing.counts += data.counts
    noise = prior.lam / data.counts
    chosen = policy.sampler(prior.covar_module, data.X, noise, generator=generator)
    growing.set_inducing(chosen)
    draw = 2  # the first one is left to the bounds of the batch
    while float(data.counts @ growing.residual) > prior.lam:
        certificate = accuracy_certificate(
            growing.feature_map(),
            data.X,
            noise,
            delta=policy.draw_delta(draw),
            generator=generator,
        )
        if certificate.lambda_max <= 1.0:
            break
        for _ in range(1 + growing.num_inducing // 10):
            growing.add_inducing(int((data.counts * growing.residual).argmax()))
        draw += 1
    return data.X[torch.tensor(growing.inducing, device=data.X.device)]
