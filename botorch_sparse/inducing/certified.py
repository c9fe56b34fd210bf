r"""Inducing points that grow until their accuracy is certified.

References:
    .. [Deshpande2006]
        A. Deshpande, L. Rademacher, S. Vempala and G. Wang. Matrix approximation and
        projective clustering via volume sampling. SODA 2006. (Adaptive sampling in
        proportion to residuals.)
    .. [Efraimidis2006]
        P. S. Efraimidis and P. G. Spirakis. Weighted random sampling with a reservoir.
        Information Processing Letters 97(5), 2006.
"""

import math
from dataclasses import dataclass, replace

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.inducing.base import covariance_matrix, validate_cap
from botorch_sparse.inducing.certificate import AccuracyCertificate, certify
from botorch_sparse.inducing.spectral import DENSE_SIZE, ScaledResidual, Summary
from botorch_sparse.kernels import in_double
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

    tolerance: float = 1.0
    max_inducing_points: int | None = 1000
    num_initial: int = 64
    growth: float = 1.15
    delta: float = 1e-3

    def __post_init__(self) -> None:
        if (
            not self.tolerance > 0
            or not 1 < self.growth <= FASTEST
            or not 0 < self.delta < 1
        ):
            raise InputDataError(
                f"Got tolerance={self.tolerance}, growth={self.growth} and "
                f"delta={self.delta}; need tolerance > 0, 1 < growth <= 1.6 and "
                "0 < delta < 1."
            )
        if self.num_initial < 1:
            raise InputDataError(
                f"Got num_initial={self.num_initial}; need at least 1."
            )
        validate_cap(self.max_inducing_points)

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
        return self.draw(covar_module, X, noise, generator=generator).index

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
            failure probability is that of all rounds together.
        """
        kernel = in_double(covar_module, X.dtype)
        X, noise = X.double(), noise.double()
        n, limit = len(noise), self.max_inducing_points
        cap = n if limit is None else min(limit, n)
        size = min(self.num_initial, cap)
        variance, nothing = kernel(X, diag=True), torch.arange(0, device=X.device)
        # On a device it is first assumed, and found out with all else, that no point
        # drawn is redundant or without variance: a round is then one wait.
        is_singular = X.is_cpu
        available = None if is_singular else n
        index = extend(nothing, variance / noise, size, generator, available)
        spent, attempt = 0.0, 0
        while True:
            S, check = X[index], None
            K = covariance_matrix(kernel, S, variance[index])
            if is_singular:
                factor = factorize_batch(K, is_singular=True)
            else:
                factor, check = plain_factor(K)
            features = NystromFeatures.from_factor(kernel, S, factor)
            error = ScaledResidual(features, X, noise, variance)
            summary = error.summary(index, check)
            if not summary.is_sound:
                is_singular = True
                index = _with_variance(index, variance)
                continue
            r = math.sqrt(summary.largest * summary.trace)
            if summary.largest <= self.tolerance or len(index) >= cap:
                attempt += 1
                share = 6 * self.delta / (math.pi * attempt) ** 2  # sums to delta
                method = self._method(summary)
                certificate = certify(error, summary, method, share, generator)
                r = certificate.lambda_max
                spent += share if certificate.failure_probability > 0 else 0.0
                if r <= self.tolerance or len(index) >= cap:
                    certificate = replace(certificate, failure_probability=spent)
                    kept = index[features.inducing_index].sort().values
                    kept = kept if len(kept) > 0 else index[:1]
                    return CertifiedDraw(kept, certificate, r <= self.tolerance)
            before = len(index)
            size, available = min(cap, self._next(before, r)), before + summary.num_left
            index = extend(index, summary.leverage, size, generator, available)
            if len(index) == before:
                cap = before  # nothing is left to add but rounding

    def _method(self, summary: Summary) -> str:
        """The cheapest method that can decide."""
        if summary.trace <= self.tolerance:
            return "trace"
        return "auto" if len(summary.leverage) <= DENSE_SIZE else "sampled"

    def _next(self, size: int, r: float) -> int:
        """Points in the next round."""
        factor = self.growth * (r / self.tolerance) ** 0.25
        return max(size + 1, math.ceil(size * min(FASTEST, max(self.growth, factor))))


def _with_variance(index: Tensor, variance: Tensor) -> Tensor:
    """The points whose prior is not zero, and at least one of all."""
    some = index[variance[index] > 0]
    return some if len(some) > 0 else index[:1]


def extend(
    index: Tensor,
    leverage: Tensor,
    size: int,
    generator: torch.Generator,
    available: int | None = None,
) -> Tensor:
    """`size` points: `index` and others, weighted by `leverage`, without replacement.

    The largest of `weight / exponential` variates are such a sample [Efraimidis2006]_.
    Points without any leverage stay out: `available` is the number of points in `index`
    or with some, where it is known.
    """
    uniform = torch.rand(
        len(leverage), generator=generator, dtype=torch.float64, device=generator.device
    )
    keys = leverage / -uniform.clamp_min(1e-300).log().to(leverage)
    keys = keys.index_fill(0, index, math.inf)
    available = int((keys > 0).sum()) if available is None else available
    size = max(min(size, available), min(1, len(keys)))
    return keys.topk(size).indices.sort().values
