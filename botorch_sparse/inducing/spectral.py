r"""The matrix :math:`E = D^{-1/2} (K - Q) D^{-1/2}` and its largest eigenvalue.

References:
    .. [Kuczynski1992]
        J. Kuczynski and H. Wozniakowski. Estimating the largest eigenvalue by the power
        and Lanczos algorithms with a random start. SIAM Journal on Matrix Analysis and
        Applications 13(4), 1992. Theorem 4.2.
"""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.precision import in_double

# Rows up to which E is kept for the products of one bound: 72 MB.
DENSE_SIZE = 3000
# Rows of E or of the kernel matrix that are taken at a time.
BLOCK_ROWS = 512
# Inflation of Ritz values: they are divided by 1 - EPSILON.
EPSILON = 0.1


class Bound(NamedTuple):
    """An upper bound on the largest eigenvalue, and how it came about."""

    value: float
    method: str
    failure_probability: float = 0.0
    estimate: float | None = None


class ScaledResidual:
    r"""The matrix `E` for the inducing points of a posterior, never formed if large.

    Everything is float64.

    Args:
        prior: Inducing points and kernel, float64.
        X: `n x d` points, float64.
        noise: `n` noise variances, float64.
    """

    def __init__(self, prior: NystromPosterior, X: Tensor, noise: Tensor) -> None:
        self.prior = prior
        self.X = X
        self.noise = noise

    @classmethod
    def of(
        cls, posterior: NystromPosterior, X: Tensor, noise: Tensor
    ) -> "ScaledResidual":
        """The residual of a posterior in any precision."""
        S = posterior.inducing_points
        if S.dtype != torch.float64:
            kernel = in_double(posterior.covar_module, S.dtype)
            posterior = NystromPosterior.prior(kernel, S.double())
        return cls(posterior, X.double(), noise.double())

    def __len__(self) -> int:
        return len(self.noise)

    def rows(self, index: Tensor, weight: Tensor) -> "ScaledResidual":
        """Some rows and columns, those of row `i` divided by the root of `weight_i`."""
        return ScaledResidual(self.prior, self.X[index], self.noise[index] * weight)

    def summary(self) -> tuple[Tensor, float]:
        r"""The diagonal of `E`, `n`, and :math:`\mathrm{tr} \, Q (Q + D)^{-1}`.

        Cost: O(n m^2) time, O(chunk_size m) memory.
        """
        m = self.prior.num_inducing
        inner = torch.eye(m, dtype=torch.float64, device=self.X.device)
        diagonal = [self.noise.new_zeros(0)]
        chunks = zip(
            self.X.split(self.prior.chunk_size),
            self.noise.split(self.prior.chunk_size),
            strict=True,
        )
        for X, noise in chunks:
            phi = self.prior.features(X)
            diagonal.append(self.prior.residual(X, phi) / noise)
            inner = inner + phi.mT @ (phi / noise.unsqueeze(-1))
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(inner))
        return torch.cat(diagonal), m - inverse.trace().item()

    def row_blocks(self) -> Iterator[Tensor]:
        """`E` in blocks of rows, `b x n` each. Cost: O(n^2 m)."""
        for X, F, noise in zip(
            self.X.split(BLOCK_ROWS),
            self._features.split(BLOCK_ROWS),
            self.noise.split(BLOCK_ROWS),
            strict=True,
        ):
            K = self.prior.covar_module(X, self.X).to_dense()
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
                self.prior.covar_module(X, self.X).to_dense() @ scaled
                for X in self.X.split(BLOCK_ROWS)
            ]
        )
        return Kv / scale - self._features @ (self._features.mT @ v)

    def largest_row_sum(self) -> float:
        """The largest absolute row sum, an upper bound on the largest eigenvalue."""
        blocks = [self._dense] if len(self) <= DENSE_SIZE else self.row_blocks()
        return max(block.abs().sum(-1).max().item() for block in blocks)

    @cached_property
    def _features(self) -> Tensor:
        """Scaled features, `n x m`."""
        chunks = self.X.split(self.prior.chunk_size)
        phi = torch.cat([self.prior.features(X) for X in chunks])
        return phi / self.noise.unsqueeze(-1).sqrt()

    @cached_property
    def _dense(self) -> Tensor:
        return torch.cat(list(self.row_blocks()))


def lanczos_upper_bound(
    matrix: ScaledResidual, delta: float, generator: torch.Generator
) -> Bound:
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
        largest = torch.linalg.eigvalsh(torch.cat(list(matrix.row_blocks())))[-1]
        value = largest.clamp_min(0.0).item()
        return Bound(value, "lanczos", 0.0, value)
    theta = ritz_value(matrix, steps, generator)
    return Bound(theta / (1 - EPSILON), "lanczos", delta, theta)


def ritz_value(matrix: ScaledResidual, steps: int, generator: torch.Generator) -> float:
    """Largest Ritz value of some Lanczos steps, with full reorthogonalization.

    It never exceeds the largest eigenvalue. Cost: `steps` products.
    """
    start = torch.randn(
        len(matrix), generator=generator, dtype=torch.float64, device=generator.device
    ).to(matrix.X.device)
    basis, images = (
        start.new_zeros(steps, len(start)),
        start.new_zeros(steps, len(start)),
    )
    v, count = start / start.norm(), 0
    for j in range(steps):
        basis[j], images[j], count = v, matrix @ v, j + 1
        u = images[j]
        for _ in range(2):
            u = u - basis[:count].mT @ (basis[:count] @ u)
        norm = u.norm()
        if norm <= 1e-13 * images[j].norm():
            break  # an invariant subspace: the Ritz values are eigenvalues
        v = u / norm
    projected = basis[:count] @ images[:count].mT
    theta = torch.linalg.eigvalsh((projected + projected.mT) / 2)[-1]
    return theta.clamp_min(0.0).item()


def sampled_upper_bound(
    matrix: ScaledResidual,
    diagonal: Tensor,
    delta: float,
    generator: torch.Generator,
    size: int | None = None,
) -> Bound:
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

    Returns:
        The bound. Its estimate is the Ritz value of the sampled matrix. Cost:
        O(n + s m^2 + s^2 m).
    """
    cumulative = diagonal.cumsum(0)
    trace = cumulative[-1]
    if size is None:
        size = min(DENSE_SIZE, max(500, math.ceil(150 * trace.item())))
        if size >= len(diagonal):
            return lanczos_upper_bound(matrix, delta, generator)
    uniform = torch.rand(
        size, generator=generator, dtype=torch.float64, device=generator.device
    ).to(diagonal.device)
    index = torch.searchsorted(cumulative, uniform * trace, right=True)
    index = index.clamp_max(len(diagonal) - 1)
    sample = matrix.rows(index, size * diagonal[index] / trace)
    top = lanczos_upper_bound(sample, delta / 2, generator)
    c2 = 2 * trace.item() * math.log(2 / delta) / size
    root = (math.sqrt(c2) + math.sqrt(c2 + 4 * top.value)) / 2
    return Bound(root * root, "sampled", delta, top.estimate)
