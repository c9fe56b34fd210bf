r"""Inducing points that grow until their accuracy is certified.

References:
    .. [Deshpande2006]
        A. Deshpande, L. Rademacher, S. Vempala and G. Wang. Matrix approximation and
        projective clustering via volume sampling. SODA 2006. (Adaptive sampling in
        proportion to residuals.)
    [Efraimidis2006]_ (see `botorch_sparse.inducing.sampler`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError
from torch import Tensor

from botorch_sparse.argument_checks import check_finite, check_number, check_whole
from botorch_sparse.inducing.certificate import (
    DENSE_SIZE,
    AccuracyCertificate,
    ScaledResidual,
    Summary,
    certify,
)
from botorch_sparse.inducing.sampler import (
    covariance_matrix,
    validate_cap,
    weighted_sample,
)
from botorch_sparse.kernels import in_double, prior_variance
from botorch_sparse.posteriors import NystromFeatures
from botorch_sparse.posteriors.factorization import factorize_batch, plain_factor

# Largest factor between rounds: it bounds the overshoot.
FASTEST = 1.6


@dataclass(frozen=True)
class CertifiedDraw:
    """Inducing points and what they are worth.

    Attributes:
        index: Sorted indices of the points.
        certificate: Their certificate.
        is_certified: Whether `certificate.lambda_max` is within the tolerance; if not,
            the cap was reached, or all points are inducing points.
    """

    index: Tensor
    certificate: AccuracyCertificate
    is_certified: bool


@dataclass(frozen=True)
class CertifiedSampler:
    r"""Grows the inducing points until the certificate is within a tolerance.

    From a few points on, chosen by their prior variance, points are drawn without
    replacement in proportion to their residual leverage
    :math:`(k_{ii} - \phi_i^\top \phi_i) / d_i` [Deshpande2006]_, until the upper bound
    `r` on the largest eigenvalue of :math:`D^{-1/2} (K - Q) D^{-1/2}` is within the
    tolerance (see `accuracy_certificate`) or the cap is reached.

    The tolerance has a meaning: at `r <= 1`, with probability `1 - delta`, the
    posterior variance is within the factor 2.62 of the exact one everywhere, either way
    (0.5: 2; 0.1: 1.37). That is the worst case, typical errors are far smaller. The
    number of points follows from the data: two to four effective dimensions on the
    tables and functions where it was measured, fewer and less scattered than the other
    samplers draw for the same `r`.

    A round multiplies the number of points by a factor between `growth` and 1.6, so
    that all rounds together cost O(n m^2) with the final `m`, plus O(s^2 m) for each
    certificate from `s <= 3000` sampled rows. There is none where a single point's
    residual leverage, a lower bound on the eigenvalue, already exceeds the tolerance.

    Args:
        tolerance: Largest `r` accepted, positive.
        max_inducing_points: Cap on the number of points, or None for no cap.
        num_initial: Points drawn at first, at least one.
        growth: Smallest factor between rounds, in (1, 1.6].
        delta: Failure probability of all certificates together, in (0, 1).
    """

    uses_variance: ClassVar[bool] = False
    returns_valid_indices: ClassVar[bool] = True

    tolerance: float = 1.0
    max_inducing_points: int | None = 1000
    num_initial: int = 64
    growth: float = 1.15
    delta: float = 1e-3

    def __post_init__(self) -> None:
        need = "need tolerance > 0, 1 < growth <= 1.6 and 0 < delta < 1."
        check_number("tolerance", self.tolerance, "(0, inf)", need)
        check_number("growth", self.growth, f"(1, {FASTEST}]", need)
        check_number("delta", self.delta, "(0, 1)", need)
        check_whole("num_initial", self.num_initial)
        validate_cap(self.max_inducing_points)

    @torch.no_grad()
    def __call__(
        self,
        covar_module: Kernel,
        X: Tensor,
        noise: Tensor,
        *,
        generator: torch.Generator,
        variance: Tensor | None = None,
    ) -> Tensor:
        """Draw inducing points; see `InducingPointSampler`. `variance` is not used."""
        check_finite(X=X, noise=noise)
        data = _Data.of(covar_module, X, noise)
        return self._grown(data, self._shares(), generator)[0].in_use

    @torch.no_grad()
    def draw(
        self,
        covar_module: Kernel,
        X: Tensor,
        noise: Tensor,
        *,
        generator: torch.Generator,
    ) -> CertifiedDraw:
        """Draw inducing points and report their certificate.

        Args:
            covar_module: The kernel.
            X: `n x d` unique training points.
            noise: `n` noise variances of the (folded) observations.
            generator: Source of randomness.

        Returns:
            The points, at least one when `n > 0`, and the last certificate. Its
            failure probability is for all rounds together.
        """
        shares = self._shares()
        data = _Data.of(covar_module, X, noise)
        drawn, certificates = self._grown(data, shares, generator)
        last = certificates[-1] if certificates else None
        if last is None or last.lambda_max > self.tolerance:
            last = self._certify(drawn, next(shares), generator)
            certificates.append(last)
        spent = sum(each.failure_probability for each in certificates)
        certificate = replace(last, failure_probability=spent)
        is_certified = certificate.lambda_max <= self.tolerance
        return CertifiedDraw(drawn.in_use, certificate, is_certified)

    @torch.no_grad()
    def _grown(
        self, data: "_Data", shares: Iterator[float], generator: torch.Generator
    ) -> tuple["_Round", list[AccuracyCertificate]]:
        """The last round, and the certificates so far; none for a round at the cap."""
        cap = len(data.X)
        if self.max_inducing_points is not None:
            cap = min(self.max_inducing_points, cap)
        index = _first_points(data, min(self.num_initial, cap), generator)
        is_singular, certificates = data.X.is_cpu, list[AccuracyCertificate]()
        while True:
            is_last = len(index) >= cap
            drawn = _Round.of(data, index, is_singular, is_last)
            size, is_singular = len(drawn.index), drawn.is_singular
            if size >= cap:
                return drawn, certificates
            r = drawn.estimate
            if drawn.summary.largest <= self.tolerance:
                share = next(shares)
                certificates.append(self._certify(drawn, share, generator))
                r = certificates[-1].lambda_max
                if r <= self.tolerance:
                    return drawn, certificates
            index = drawn.extended(min(cap, self._next(size, r)), generator)
            if len(index) == size:
                cap = size  # nothing is left to add but rounding

    def _shares(self) -> Iterator[float]:
        """Failure probabilities of one certificate after the other, `delta` in all."""
        return (6 * self.delta / (math.pi * k) ** 2 for k in count(1))

    def _certify(
        self, drawn: "_Round", share: float, generator: torch.Generator
    ) -> AccuracyCertificate:
        """A certificate that fails with probability `share` at most."""
        method = self._method(drawn.summary)
        return certify(drawn.error, drawn.summary, method, share, generator)

    def _method(self, summary: Summary) -> str:
        """The cheapest method that can decide."""
        if summary.trace <= self.tolerance:
            return "trace"
        return "auto" if len(summary.leverage) <= DENSE_SIZE else "sampled"

    def _next(self, size: int, r: float) -> int:
        """Points in the next round."""
        factor = self.growth * (r / self.tolerance) ** 0.25
        return max(size + 1, math.ceil(size * min(FASTEST, max(self.growth, factor))))


@dataclass(frozen=True, eq=False)
class _Data:
    """What is drawn from, in float64, with the `n` prior variances."""

    kernel: Kernel
    X: Tensor
    noise: Tensor
    variance: Tensor

    @classmethod
    def of(cls, covar_module: Kernel, X: Tensor, noise: Tensor) -> "_Data":
        """Data in any precision."""
        kernel, X, noise = in_double(covar_module, X.dtype), X.double(), noise.double()
        return cls(kernel, X, noise, prior_variance(kernel, X))

    @property
    def valid(self) -> Tensor:
        """Whether all variances over noise are finite, a boolean on their device."""
        return (self.variance / self.noise).isfinite().all()


@dataclass(frozen=True, eq=False)
class _Round:
    """The points of one round and what they leave over."""

    index: Tensor  # sorted indices
    error: ScaledResidual  # the matrix `E`
    is_singular: bool  # whether points may be redundant, or without variance
    check: Tensor | None  # whether the factor will do, not read yet; None if it will

    @classmethod
    def of(
        cls, data: _Data, index: Tensor, is_singular: bool, is_last: bool
    ) -> "_Round":
        """The round of these points; the last one is not summarized.

        If not `is_singular`, points are taken to be neither redundant nor without
        variance. That is found out with all else: one wait for a device then, and two
        if it is wrong.
        """
        drawn = cls._assumed(data, index, is_singular)
        if is_last:
            valid, check = data.valid, drawn.check
            check = torch.ones_like(valid) if check is None else check
            is_valid, is_sound = torch.stack([valid, check]).tolist()
            if not is_valid:
                raise NanError(
                    "Got prior variances over noise variances that are not finite: the "
                    "noise variances are too small for the kernel, or the kernel "
                    "returned NaN. Check both."
                )
        else:
            is_sound = is_singular or drawn.summary.is_sound
        if is_sound:
            return drawn
        return cls._assumed(data, _with_variance(index, data.variance), True)

    @classmethod
    def _assumed(cls, data: _Data, index: Tensor, is_singular: bool) -> "_Round":
        """The round, which is sound where the assumption is right."""
        S, check = data.X[index], None
        K = covariance_matrix(data.kernel, S, data.variance[index])
        if is_singular:
            factor = factorize_batch(K, is_singular=True)
        else:
            factor, check = plain_factor(K)
        features = NystromFeatures.from_factor(data.kernel, S, factor)
        error = ScaledResidual(features, data.X, data.noise, data.variance)
        return cls(index, error, is_singular, check)

    @cached_property
    def summary(self) -> Summary:
        """What the matrix says. Cost: O(n m^2), once, and a wait for a device."""
        return self.error.summary(self.index, self.check)

    @property
    def estimate(self) -> float:
        """A guess at the largest eigenvalue, between its bounds."""
        return math.sqrt(self.summary.largest * self.summary.trace)

    @property
    def in_use(self) -> Tensor:
        """The points that are not redundant, sorted, and at least one of all."""
        kept = self.index[self.error.features.inducing_index].sort().values
        return kept if len(kept) > 0 else self.index[:1]

    def extended(self, size: int, generator: torch.Generator) -> Tensor:
        """`size` points, these and others in proportion to residual leverage."""
        available = len(self.index) + self.summary.num_left
        return weighted_sample(
            self.index, self.summary.leverage, size, generator, available
        )


def _first_points(data: _Data, size: int, generator: torch.Generator) -> Tensor:
    """Points in proportion to prior leverage; on a device no count is waited for."""
    nothing = torch.arange(0, device=data.X.device)
    available = None if data.X.is_cpu else len(data.X)
    return weighted_sample(
        nothing, data.variance / data.noise, size, generator, available
    )


def _with_variance(index: Tensor, variance: Tensor) -> Tensor:
    """The points whose prior is not zero, and at least one of all."""
    some = index[variance[index] > 0]
    return some if len(some) > 0 else index[:1]
