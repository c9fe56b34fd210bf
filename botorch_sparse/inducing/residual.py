"""The matrix :math:`E = D^{-1/2} (K - Q) D^{-1/2}` that inducing points leave over.

Upper bounds on its largest eigenvalue, which certificates are made of.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from linear_operator.utils.errors import NanError
from torch import Tensor

from botorch_sparse.kernels import in_double, prior_variance
from botorch_sparse.posteriors import NystromFeatures
from botorch_sparse.posteriors.inner_factor import inner_cholesky

# Rows up to which E is kept for the products of one bound: 72 MB.
DENSE_SIZE = 3000
# Rows of E or of the kernel matrix that are taken at a time.
BLOCK_ROWS = 512


class Summary(NamedTuple):
    r"""The diagonal of `E`, and what it says on the host.

    Attributes:
        leverage: `n`, the diagonal.
        largest: Its largest entry.
        trace: Its sum.
        lower: :math:`\mathrm{tr} \, Q (Q + D)^{-1}`.
        upper: That and :math:`\sum_i E_{ii} / (1 + E_{ii})`.
        num_left: The number of positive entries that are not those of inducing points.
        is_sound: Whether the factor of the inducing points passed its check.
    """

    leverage: Tensor
    largest: float
    trace: float
    lower: float
    upper: float
    num_left: int
    is_sound: bool


@dataclass(frozen=True, eq=False)
class ScaledResidual:
    r"""The matrix `E` for given inducing points, never formed if large.

    Everything is float64.

    Args:
        features: Those of the inducing points, float64.
        X: `n x d` points, float64.
        noise: `n` noise variances, float64.
        variance: `n` prior variances, where they are known.
    """

    features: NystromFeatures
    X: Tensor
    noise: Tensor
    variance: Tensor | None = None

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
        """Some rows and columns, those of row `i` divided by the root of `weight_i`."""
        return ScaledResidual(self.features, self.X[index], self.noise[index] * weight)

    def summary(
        self, inducing: Tensor | None = None, check: Tensor | None = None
    ) -> Summary:
        """The diagonal of `E`, and what it says, for one wait.

        Args:
            inducing: The rows that are inducing points, if they are to be counted out.
            check: A boolean to be read as well, whether the factor will do.

        Returns:
            The summary. Cost: O(n m^2) time, O(chunk_size m) memory.

        Raises:
            NanError: If a factor that passed its check leads to NaN on a device.
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
        m, size = self.features.num_inducing, self.features.chunk_size
        inner = torch.eye(m, dtype=torch.float64, device=self.X.device)
        variance = self.variance
        if variance is None:
            variance = prior_variance(self.features.covar_module, self.X)
        diagonal = [self.noise.new_zeros(0)]
        chunks = (t.split(size) for t in (self.X, self.noise, variance))
        for X, noise, k_diag in zip(*chunks, strict=True):
            phi = self.features.features(X)
            diagonal.append((k_diag - phi.square().sum(-1)).clamp_min(0.0) / noise)
            inner = inner + phi.mT @ (phi / noise.unsqueeze(-1))
        return torch.cat(diagonal), inner

    def row_blocks(self) -> Iterator[Tensor]:
        """`E` in blocks of rows, `b x n` each; in one where it is kept."""
        return iter([self._dense]) if len(self) <= DENSE_SIZE else self._streamed()

    def _streamed(self) -> Iterator[Tensor]:
        """`E` in blocks of rows. Cost: O(n^2 m)."""
        for X, F, noise in zip(
            self.X.split(BLOCK_ROWS),
            self._features.split(BLOCK_ROWS),
            self.noise.split(BLOCK_ROWS),
            strict=True,
        ):
            K = self.features.covar_module(X, self.X).to_dense()
            yield K / noise.unsqueeze(-1).sqrt() / self.noise.sqrt() - F @ (
                self._features.mT
            )

    def __matmul__(self, v: Tensor) -> Tensor:
        """The product with `v`, `n`. Cost: O(n^2 d + n m), O(n^2) where it is kept."""
        if len(self) <= DENSE_SIZE:
            return self._dense @ v
        scaled, scale = v / self.noise.sqrt(), self.noise.sqrt()
        Kv = torch.cat(
            [
                self.features.covar_module(X, self.X).to_dense() @ scaled
                for X in self.X.split(BLOCK_ROWS)
            ]
        )
        return Kv / scale - self._features @ (self._features.mT @ v)

    @cached_property
    def _features(self) -> Tensor:
        """Scaled features, `n x m`."""
        chunks = self.features.chunks(self.X)
        phi = torch.cat([self.features.features(X) for X in chunks])
        return phi / self.noise.unsqueeze(-1).sqrt()

    @cached_property
    def _dense(self) -> Tensor:
        return torch.cat(list(self._streamed()))


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
    """A bound of which the device knows what the host does not.

    Attributes:
        figures: What is to be read.
        finish: The bound, given that on the host.
    """

    figures: Tensor
    finish: Callable[[Tensor], Bound]

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

    Args:
        matrix: The matrix.
        delta: Failure probability.
        generator: Source of the start vector.

    Returns:
        The bound, and the Ritz value as its estimate.
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

    Its largest eigenvalue, a Ritz value, never exceeds that of the matrix. With full
    reorthogonalization. Cost: `steps` products, O(n steps^2), and no wait.
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
    space of the columns of `A`. Row `i`, drawn with probability
    :math:`E_{ii} / T`, contributes :math:`T (a_i^\top u)^2 / E_{ii} \in [0, T]`, with
    mean :math:`\lambda_\max`. By Chernoff's bound for this one direction, the average
    of `s` draws, and so the largest eigenvalue :math:`\hat\lambda` of the sampled and
    reweighted `s x s` matrix, is below :math:`(1 - \epsilon) \lambda_\max` with
    probability at most :math:`\exp(-\epsilon^2 s \lambda_\max / 2 T)`. Solved for the
    eigenvalue,

    .. math::
        \sqrt{\lambda_\max} \le \tfrac12 \big( c + \sqrt{c^2 + 4 \hat\lambda} \big),
        \qquad c^2 = 2 T \log(1 / \delta) / s.

    It is of the order of :math:`\lambda_\max + T / s`, where the trace is `T`. Half of
    `delta` goes to the draw, half to the Lanczos bound on :math:`\hat\lambda`.

    Args:
        matrix: The matrix.
        diagonal: Its diagonal, `n`, with a positive sum.
        delta: Failure probability.
        generator: Source of randomness.
        size: The number `s` of rows drawn; by default `150 T`, at least 500 and at most
            3000; with `150 T` and `delta = 1e-3`, `c^2` is 0.1. If that is no less than
            `n` all rows are taken, by `lanczos_upper_bound`.
        trace: The sum of the diagonal, where it is known.

    Returns:
        The bound. Its estimate is the Ritz value of the sampled matrix. Cost:
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
