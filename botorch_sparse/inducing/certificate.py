r"""How far inducing points are from the exact GP, as figures that can be relied on.

With the features :math:`\phi` of the inducing points, :math:`Q = \Phi^\top \Phi` and
the noise variances `D`, everything follows from the largest eigenvalue `r` of

.. math:: E = D^{-1/2} (K - Q) D^{-1/2}.

For every `x`, the variance of the Nystrom posterior is within a factor
:math:`\alpha(r)` of the exact one. Proof: write the exact posterior's precision in
feature space as :math:`\Psi \Psi^\top + I` with :math:`\Psi = P \Psi + C`, where `P`
projects on the inducing points' features and :math:`\|C\|^2 = r`. For `t > 0`,
:math:`|\Psi^\top v|^2 \le (1 + t) |\Psi^\top P v|^2 + (1 + 1/t) r |v|^2`, and the same
with both sides exchanged; `t` with :math:`(1 + 1/t) r = t` gives
:math:`\alpha = 1 + t`.

References:
    [Kuczynski1992]_ (see `botorch_sparse.inducing.residual`).
"""

import math
from dataclasses import dataclass
from itertools import product

import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from torch import Tensor

from botorch_sparse.argument_checks import (
    check_finite,
    check_kind,
    check_number,
    check_tensors,
)
from botorch_sparse.inducing.residual import (
    Bound,
    ScaledResidual,
    Summary,
    lanczos_upper_bound,
    read_bounds,
    row_sum_bound,
    sampled_upper_bound,
)
from botorch_sparse.kernels import kernel_at
from botorch_sparse.posteriors import NystromFeatures, NystromPosterior

METHODS = ("auto", "trace", "row-sum", "lanczos", "sampled")
# Up to this many points an O(n^2) pass over the kernel is affordable.
QUADRATIC_SIZE = 5000
# Below this trace (alpha = 1.1) nothing is gained by a closer look.
NEGLIGIBLE = 0.01
DEFAULT_SEED = 0


def variance_inflation(r: float) -> float:
    r"""The factor :math:`\alpha(r) = 1 + (r + \sqrt{r^2 + 4 r}) / 2`.

    Example:
        >>> round(variance_inflation(1.0), 3)
        2.618
    """
    if r == r:  # NaN where nothing is known
        check_number("r", r, "[0, inf]")
    return 1.0 + (r + math.sqrt(r * r + 4.0 * r)) / 2.0


@dataclass(frozen=True)
class AccuracyCertificate:
    r"""What a set of inducing points is worth at the training points.

    For every `x`, `variance / alpha <= exact variance <= alpha * variance`, with
    probability at least `1 - failure_probability` over the random vectors and rows that
    the certificate drew.

    Attributes:
        num_points: The number `n` of (unique) training points.
        num_inducing: The number `m` of inducing points in use.
        effective_dimension: An upper bound on :math:`d_\mathrm{eff} =
            \mathrm{tr} \, K (K + D)^{-1}`:
            :math:`\mathrm{tr} \, Q (Q + D)^{-1} + \sum_i E_{ii} / (1 + E_{ii})`. It
            needs no randomness: the trace of a concave function that is zero at zero is
            subadditive, and Jensen's inequality bounds its diagonal.
        effective_dimension_lower: The lower bound
            :math:`\mathrm{tr} \, Q (Q + D)^{-1}`.
        lambda_max: The upper bound `r` on the largest eigenvalue of `E`, in units of
            the noise variance; at most `trace`.
        trace: The trace of `E`.
        method: What gave the bound: "trace", "row-sum", "lanczos" or "sampled".
        failure_probability: Of the bound `lambda_max`; zero for the deterministic ones.
        lambda_max_estimate: A Ritz value, which bounds the eigenvalue from below (on
            all points) or estimates it (on sampled rows), or None.
    """

    num_points: int
    num_inducing: int
    effective_dimension: float
    lambda_max: float
    method: str
    failure_probability: float
    lambda_max_estimate: float | None
    effective_dimension_lower: float = 0.0
    trace: float = math.inf

    @property
    def alpha(self) -> float:
        """The factor between the posterior variance and the exact one, either way."""
        return variance_inflation(self.lambda_max)


@torch.no_grad()
def accuracy_certificate(
    posterior: NystromFeatures | NystromPosterior,
    X: Tensor,
    noise: Tensor,
    *,
    method: str = "auto",
    delta: float = 1e-3,
    generator: torch.Generator | None = None,
) -> AccuracyCertificate:
    r"""Upper bound on the error of a posterior's inducing points.

    The bound `r` is the smallest of those that were asked for:

    ==============  =================================================  ============
    method          bound                                              cost
    ==============  =================================================  ============
    ``"trace"``     trace of `E` (always taken)                        O(n m^2)
    ``"row-sum"``   largest absolute row sum of `E`                    O(n^2 m)
    ``"lanczos"``   Ritz value over `1 - eps` [Kuczynski1992]_         O(20 n^2 m)
    ``"sampled"``   from up to 3000 rows, see `sampled_upper_bound`    O(3000^2 m)
    ``"auto"``      to n = 5000 all but the last; above it the last    O(n m^2)
    ==============  =================================================  ============

    "auto" stops at a trace below 0.01. No `n x n` matrix is kept. The inducing points
    alone matter, so `NystromFeatures` will do. All is computed in float64; the rounding
    of float32 features is not part of the figures.

    Args:
        posterior: Unbatched features, or a posterior, whose data do not matter.
        X: `n x d` unique training points.
        noise: `n` noise variances of the (folded) observations, positive.
        method: One of the above.
        delta: Failure probability allowed to the methods that draw, in (0, 1).
        generator: Source of randomness; by default a new one with a fixed seed.

    Returns:
        The certificate.

    Raises:
        UnsupportedError: If `posterior` is batched.
        InputDataError: For an unknown method, a `delta` outside of (0, 1), noise that
            is not positive, or points that are not finite.
        BotorchTensorDimensionError: If `X` and `noise` do not fit.
    """
    features = _feature_map(posterior)
    check_tensors(X=X, noise=noise)
    _validate(features, X, noise, method, delta)
    if generator is None:
        generator = torch.Generator().manual_seed(DEFAULT_SEED)
    error = ScaledResidual.of(features, X, noise)
    return certify(error, error.summary(), method, delta, generator)


def accuracy_certificates(
    posterior: NystromFeatures | NystromPosterior,
    X: Tensor,
    noise: Tensor,
    *,
    method: str = "auto",
    delta: float = 1e-3,
    generator: torch.Generator | None = None,
) -> list[AccuracyCertificate]:
    """One certificate for each element of a batch.

    Args:
        posterior: Features of inducing points `m x d`, in a batch or not, or a
            posterior.
        X: `n x d` training points, in a batch or not.
        noise: `n` noise variances, in a batch or not.
        method: As in `accuracy_certificate`, as are the arguments after it; each
            certificate fails with probability at most `delta`.
        delta: See there.
        generator: See there.

    Returns:
        Certificates of the batch that all three broadcast to, in row-major order.
    """
    check_tensors(X=X, noise=noise)
    features = _feature_map(posterior)
    S = features.inducing_points
    batch_shape = torch.broadcast_shapes(S.shape[:-2], X.shape[:-2], noise.shape[:-1])
    X = X.expand(*batch_shape, *X.shape[-2:])
    noise = noise.expand(*batch_shape, noise.shape[-1])
    S = S.expand(*batch_shape, *S.shape[-2:])
    return [
        accuracy_certificate(
            _element(features, S, index),
            X[index],
            noise[index],
            method=method,
            delta=delta,
            generator=generator,
        )
        for index in product(*map(range, batch_shape))
    ]


def _feature_map(posterior: NystromFeatures | NystromPosterior) -> NystromFeatures:
    if isinstance(posterior, NystromPosterior):
        return posterior.feature_map
    need = "a NystromPosterior or NystromFeatures; a model has its own certificate()"
    check_kind("posterior", posterior, NystromFeatures, need)
    return posterior


def _element(
    features: NystromFeatures, S: Tensor, index: tuple[int, ...]
) -> NystromFeatures:
    """The features of one element of a batch, whose inducing points are `S`."""
    if len(index) == 0:
        return features
    kernel = kernel_at(features.covar_module, index)
    return NystromFeatures.of(kernel, S[index], chunk_size=features.chunk_size)


def certify(
    error: ScaledResidual,
    summary: Summary,
    method: str,
    delta: float,
    generator: torch.Generator,
) -> AccuracyCertificate:
    """The certificate, for one wait at most; unchecked arguments.

    Args:
        error: The matrix `E`.
        summary: What `error.summary()` returned.
        method: As in `accuracy_certificate`, as are the arguments after it.
        delta: See there.
        generator: See there.
    """
    if method == "auto" and summary.trace <= NEGLIGIBLE:
        method = "trace"
    bound = _smallest_bound(error, summary, method, delta, generator)
    return AccuracyCertificate(
        num_points=len(error),
        num_inducing=error.features.num_inducing,
        effective_dimension=summary.upper,
        lambda_max=bound.value,
        method=bound.method,
        failure_probability=bound.failure_probability,
        lambda_max_estimate=bound.estimate,
        effective_dimension_lower=summary.lower,
        trace=summary.trace,
    )


def _smallest_bound(
    error: ScaledResidual,
    summary: Summary,
    method: str,
    delta: float,
    generator: torch.Generator,
) -> Bound:
    """The smallest of the bounds that `method` names; the trace is always one."""
    is_auto, is_small = method == "auto", len(error) <= QUADRATIC_SIZE
    diagonal, trace = summary.leverage, summary.trace
    pending = []
    if trace > 0 and (method == "row-sum" or (is_auto and is_small)):
        pending.append(row_sum_bound(error))
    if trace > 0 and (method == "lanczos" or (is_auto and is_small)):
        pending.append(lanczos_upper_bound(error, delta, generator))
    if trace > 0 and (method == "sampled" or (is_auto and not is_small)):
        pending.append(
            sampled_upper_bound(error, diagonal, delta, generator, trace=trace)
        )
    bounds = [Bound(trace, "trace"), *read_bounds(pending)]
    smallest = min(bounds, key=lambda bound: bound.value)
    return smallest._replace(estimate=bounds[-1].estimate)


def _validate(
    features: NystromFeatures, X: Tensor, noise: Tensor, method: str, delta: float
) -> None:
    if features.inducing_points.dim() > 2 or X.dim() > 2:
        raise UnsupportedError(
            f"Got inducing points of shape {tuple(features.inducing_points.shape)} "
            f"and X of shape {tuple(X.shape)}; need `m x d` and `n x d`. Use "
            "accuracy_certificates for a batched posterior."
        )
    if method not in METHODS:
        raise InputDataError(f"Got method={method!r}; need one of {METHODS}.")
    check_number("delta", delta, "(0, 1)", "need 0 < delta < 1.")
    if X.dim() != 2 or noise.shape != X.shape[:1]:
        raise BotorchTensorDimensionError(
            f"Got X of shape {tuple(X.shape)} and noise of shape {tuple(noise.shape)}; "
            "need `n x d` and `n`. Try noise.expand(len(X))."
        )
    if (d := features.inducing_points.shape[-1]) != X.shape[-1]:
        raise BotorchTensorDimensionError(
            f"Got X of shape {tuple(X.shape)} for inducing points of dimension {d}; "
            f"need `n x {d}`."
        )
    if not ((noise > 0).all() & X.isfinite().all()):
        check_finite(X=X.cpu())
        raise InputDataError(
            f"Got noise variances as small as {noise.min().item():.3g}; all must be "
            "positive."
        )
