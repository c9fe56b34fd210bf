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

`ScaledResidual` is the matrix `E`; of the upper bounds on its largest eigenvalue a
certificate takes the smallest.

References:
    .. [Kuczynski1992]
        J. Kuczynski and H. Wozniakowski. Estimating the largest eigenvalue by the power
        and Lanczos algorithms with a random start. SIAM J. Matrix Anal. Appl. 13, 1992.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from linear_operator.utils.errors import NanError
from torch import Tensor

from botorch_sparse.argument_checks import (
    check_choice,
    check_finite,
    check_kind,
    check_number,
    check_tensors,
)
from botorch_sparse.kernels import (
    dense_covariance,
    in_double,
    kernel_at,
    prior_variance,
)
from botorch_sparse.kernels.kernel_matrices import is_thread_safe
from botorch_sparse.posteriors import NystromFeatures, NystromPosterior
from botorch_sparse.posteriors.factorization import inner_cholesky
from botorch_sparse.threads import (
    KERNEL_ENTRY,
    for_each,
    row_chunks,
    sum_over,
)

# Rows up to which E is kept for the products of one bound: 72 MB.
DENSE_SIZE = 3000
# Rows of E or of the kernel matrix that are taken at a time.
BLOCK_ROWS = 512


class Summary(NamedTuple):
    """The diagonal of `E`, and what it says on the host."""

    leverage: Tensor  # `n`, the diagonal
    largest: float  # its largest entry
    trace: float  # its sum
    lower: float  # `tr Q (Q + D)^-1`
    upper: float  # `lower`, and the sum of `E_ii / (1 + E_ii)`
    num_left: int  # the number of positive entries, inducing points left out
    is_sound: bool  # whether the factor of the inducing points passed its check


@dataclass(frozen=True, eq=False)
class ScaledResidual:
    """The matrix `E` for given inducing points, in float64, never formed if large."""

    features: NystromFeatures  # of the inducing points
    X: Tensor  # `n x d` points
    noise: Tensor  # `n` noise variances
    variance: Tensor | None = None  # `n` prior variances, where they are known

    @classmethod
    def of(
        cls, features: NystromFeatures, X: Tensor, noise: Tensor
    ) -> "ScaledResidual":
        """The residual of features in any precision."""
        S = features.inducing_points
        if S.dtype != torch.float64:
            kernel = in_double(features.covar_module, S.dtype)
            features = NystromFeatures.of(kernel, S.double())
        return cls(features, X.double(), noise.double())

    def __len__(self) -> int:
        return len(self.noise)

    def rows(self, index: Tensor, weight: Tensor) -> "ScaledResidual":
        """Some rows and columns, row `i` of both divided by the root of `weight_i`."""
        return ScaledResidual(self.features, self.X[index], self.noise[index] * weight)

    def summary(
        self, inducing: Tensor | None = None, check: Tensor | None = None
    ) -> Summary:
        """The diagonal of `E`, for one wait. Cost: O(n m^2), O(chunk_size m) memory.

        Rows in `inducing` are counted out. `check` is read as well: whether the factor
        will do. Raises `NanError` if a factor that passed leads to NaN on a device.
        """
        leverage, inner = self._moments()
        is_left = leverage > 0
        if inducing is not None:
            is_left = is_left.index_fill(0, inducing, False)
        figures = [
            torch.cat([leverage, leverage.new_zeros(1)]).max(),
            leverage.sum(),
            _fitted_dimension(inner),
            (leverage / (1 + leverage)).sum(),
            is_left.sum(),
            is_left.new_ones(()) if check is None else check,
        ]
        read = torch.stack([figure.to(inner) for figure in figures]).tolist()
        largest, trace, lower, rest, num_left, is_sound = read
        if is_sound and math.isnan(lower + trace):
            raise NanError(
                f"Got a trace of {trace:.3g} and a dimension of {lower:.3g}: the noise "
                "variances are too small for the kernel, or the kernel returned NaN. "
                "Check both."
            )
        return Summary(
            leverage, largest, trace, lower, lower + rest, int(num_left), bool(is_sound)
        )

    def _moments(self) -> tuple[Tensor, Tensor]:
        """The diagonal of `E`, `n`, and `I + Phi D^-1 Phi'`, `m x m`; O(n m^2)."""
        m, variance, noise = self.features.num_inducing, self.variance, self.noise
        if variance is None:
            variance = prior_variance(self.features.covar_module, self.X)
        diagonal = noise.new_empty(len(noise))

        def add_up(chunks: Sequence[slice]) -> tuple[Tensor]:
            inner = noise.new_zeros(m, m)
            if chunks[0].start == 0:  # the identity, once
                inner.fill_diagonal_(1.0)
            for rows in chunks:
                phi = self.features.features(self.X[rows])
                residual = (variance[rows] - phi.square().sum(-1)).clamp_min(0.0)
                diagonal[rows] = residual / noise[rows]
                inner = inner + phi.mT @ (phi / noise[rows].unsqueeze(-1))
            return (inner,)

        chunks = self.features.chunks(self.X)
        (inner,) = sum_over(chunks, self.features.work(self.X), add_up)
        return diagonal, inner

    def row_blocks(self) -> Iterator[Tensor]:
        """`E` in blocks of rows, `b x n` each; in one where it is kept."""
        if len(self) <= DENSE_SIZE:
            return iter([self._dense])
        return map(self._block, row_chunks(len(self), BLOCK_ROWS))

    def _block(self, rows: slice) -> Tensor:
        """Some rows of `E`. Cost: O(n m) for each."""
        F, noise = self._features, self.noise
        K = dense_covariance(self.features.covar_module, self.X[rows], self.X)
        return K / noise[rows].unsqueeze(-1).sqrt() / noise.sqrt() - F[rows] @ F.mT

    def _write(self, out: Tensor, of_rows: Callable[[slice], Tensor]) -> Tensor:
        """Rows computed from all others, block by block. Cost: O(n^2) and that."""

        def write(rows: slice) -> None:
            out[rows] = of_rows(rows)

        kernel, n = self.features.covar_module, len(self)
        work = n**2 * KERNEL_ENTRY if out.is_cpu and is_thread_safe(kernel) else 0.0
        for_each(row_chunks(n, BLOCK_ROWS), work, lambda: write)
        return out

    def __matmul__(self, v: Tensor) -> Tensor:
        """The product with `v`, `n`. Cost: O(n^2 d + n m), O(n^2) where it is kept."""
        if len(self) <= DENSE_SIZE:
            return self._dense @ v
        scaled, scale = v / self.noise.sqrt(), self.noise.sqrt()
        kernel, X = self.features.covar_module, self.X
        Kv = self._write(
            torch.empty_like(v),
            lambda rows: dense_covariance(kernel, X[rows], X) @ scaled,
        )
        return Kv / scale - self._features @ (self._features.mT @ v)

    @cached_property
    def _features(self) -> Tensor:
        """Scaled features, `n x m`."""
        chunks = self.features.chunks(self.X)
        phi = torch.cat([self.features.features(self.X[rows]) for rows in chunks])
        return phi / self.noise.unsqueeze(-1).sqrt()

    @cached_property
    def _dense(self) -> Tensor:
        _ = self._features  # once for all threads
        n = len(self)
        return self._write(self.noise.new_empty(n, n), self._block)


def _fitted_dimension(inner: Tensor) -> Tensor:
    r""":math:`\mathrm{tr} \, Q (Q + D)^{-1} = m - \mathrm{tr} \, B^{-1}`, given `B`."""
    eye = torch.eye(len(inner), dtype=inner.dtype, device=inner.device)
    root = torch.linalg.solve_triangular(inner_cholesky(inner), eye, upper=False)
    return len(inner) - root.square().sum()


# Inflation of Ritz values: they are divided by 1 - EPSILON.
EPSILON = 0.1


class Bound(NamedTuple):
    """An upper bound on the largest eigenvalue, and how it came about."""

    value: float
    method: str
    failure_probability: float = 0.0
    estimate: float | None = None


class PendingBound(NamedTuple):
    """A bound of which the device knows what the host does not."""

    figures: Tensor  # what is to be read
    finish: Callable[[Tensor], Bound]  # the bound, given that on the host

    def read(self) -> Bound:
        """The bound, for one wait."""
        return read_bounds([self])[0]


def read_bounds(pending: Sequence[PendingBound]) -> list[Bound]:
    """The bounds, for one wait together."""
    if len(pending) == 0:
        return []
    figures = torch.cat([bound.figures.flatten() for bound in pending]).cpu()
    parts = figures.split([bound.figures.numel() for bound in pending])
    return [
        bound.finish(part.reshape(bound.figures.shape))
        for bound, part in zip(pending, parts, strict=True)
    ]


def row_sum_bound(matrix: ScaledResidual) -> PendingBound:
    """The largest absolute row sum. Cost: O(n^2 m)."""
    sums = [block.abs().sum(-1).max() for block in matrix.row_blocks()]
    largest = torch.stack(sums).max()
    return PendingBound(largest, lambda value: Bound(value.item(), "row-sum"))


def lanczos_upper_bound(
    matrix: ScaledResidual, delta: float, generator: torch.Generator
) -> PendingBound:
    r"""A Ritz value over `1 - eps`, from a random start [Kuczynski1992]_.

    After `k` steps the Ritz value is below :math:`(1 - \epsilon) \lambda_\max` with
    probability at most :math:`1.648 \sqrt n \exp(-\sqrt \epsilon (2k - 1))`; `k` is
    chosen such that this is at most `delta` for `eps = 0.1`: 19 for n = 5000 and
    `delta = 1e-3`. Where that is no less than `n` the eigenvalue is computed.
    """
    n = len(matrix)
    log_failure = math.log(1.648 * math.sqrt(n) / delta)
    steps = math.ceil((log_failure / math.sqrt(EPSILON) + 1) / 2)
    if steps >= n:
        return PendingBound(torch.cat(list(matrix.row_blocks())), _exact_bound)

    def finish(projected: Tensor) -> Bound:
        theta = top_eigenvalue(projected)
        return Bound(theta / (1 - EPSILON), "lanczos", delta, theta)

    return PendingBound(projection(matrix, steps, generator), finish)


def _exact_bound(matrix: Tensor) -> Bound:
    value = top_eigenvalue(matrix)
    return Bound(value, "lanczos", 0.0, value)


def top_eigenvalue(matrix: Tensor) -> float:
    """The largest eigenvalue of a symmetric matrix on the host, at least zero."""
    return torch.linalg.eigvalsh((matrix + matrix.mT) / 2)[-1].clamp_min(0.0).item()


def projection(
    matrix: ScaledResidual, steps: int, generator: torch.Generator
) -> Tensor:
    """The matrix in the basis of some Lanczos steps, `steps x steps`.

    Its largest eigenvalue, a Ritz value, never exceeds the largest of the matrix. The
    basis is fully reorthogonalized. Cost: `steps` products, O(n steps^2), and no wait.
    """
    start = torch.randn(
        len(matrix), generator=generator, dtype=torch.float64, device=generator.device
    ).to(matrix.X.device)
    basis = start.new_zeros(steps, len(start))
    images: list[Tensor] = []
    v = start / start.norm()
    for k, row in enumerate(basis, start=1):
        row.copy_(v)
        images.append(matrix @ v)
        u, filled = images[-1], basis[:k]
        for _ in range(2):
            u = torch.addmv(u, filled.mT, filled @ u, alpha=-1)
        norm = u.norm()
        # In an invariant subspace the Ritz values are eigenvalues; rows of zeros after
        # it add some that are zero.
        is_over = norm <= 1e-13 * images[-1].norm()
        v = (u / norm).masked_fill_(is_over, 0.0)
    return basis @ torch.stack(images).mT


def sampled_upper_bound(
    matrix: ScaledResidual,
    diagonal: Tensor,
    delta: float,
    generator: torch.Generator,
    size: int | None = None,
    trace: float | None = None,
) -> PendingBound:
    r"""An upper bound from `s` rows, drawn in proportion to the diagonal of `E`.

    Let `T` be the trace and `u` the top eigenvector of :math:`E = A A^\top` in the
    space of the columns of `A`. Row `i`, drawn with probability :math:`E_{ii} / T`,
    contributes :math:`T (a_i^\top u)^2 / E_{ii} \in [0, T]`, with mean
    :math:`\lambda_\max`. By Chernoff's bound for this one direction, the average of `s`
    draws, and so the largest eigenvalue :math:`\hat\lambda` of the sampled and
    reweighted `s x s` matrix, is below :math:`(1 - \epsilon) \lambda_\max` with
    probability at most :math:`\exp(-\epsilon^2 s \lambda_\max / 2 T)`. Solved for the
    eigenvalue,

    .. math::
        \sqrt{\lambda_\max} \le \tfrac12 \big( c + \sqrt{c^2 + 4 \hat\lambda} \big),
        \qquad c^2 = 2 T \log(1 / \delta) / s.

    It is of the order of :math:`\lambda_\max + T / s`. Half of `delta` goes to the
    draw, half to the Lanczos bound on :math:`\hat\lambda`. By default `s` is `150 T`,
    from 500 to 3000; with `delta = 1e-3`, `c^2` is 0.1 then. If that is no less than
    `n` all rows are taken. The estimate is the Ritz value of the sampled matrix. Cost:
    O(n + s m^2 + s^2 m).
    """
    trace = diagonal.sum().item() if trace is None else trace
    if size is None:
        size = min(DENSE_SIZE, max(500, math.ceil(150 * trace)))
        if size >= len(diagonal):
            return lanczos_upper_bound(matrix, delta, generator)
    uniform = torch.rand(
        size, generator=generator, dtype=torch.float64, device=generator.device
    ).to(diagonal.device)
    cumulative = diagonal.cumsum(0)
    index = torch.searchsorted(cumulative, uniform * cumulative[-1], right=True)
    index = index.clamp_max(len(diagonal) - 1)
    sample = matrix.rows(index, size * diagonal[index] / cumulative[-1])
    top = lanczos_upper_bound(sample, delta / 2, generator)
    c2 = 2 * trace * math.log(2 / delta) / size

    def finish(figures: Tensor) -> Bound:
        bound = top.finish(figures)
        root = (math.sqrt(c2) + math.sqrt(c2 + 4 * bound.value)) / 2
        return Bound(root * root, "sampled", delta, bound.estimate)

    return PendingBound(top.figures, finish)


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
    """The certificate, for one wait at most; unchecked arguments."""
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
    check_choice("method", method, METHODS)
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
