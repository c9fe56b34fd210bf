r"""Upper bounds on the largest eigenvalue of the residual matrix `E`.

References:
    .. [Kuczynski1992]
        J. Kuczynski and H. Wozniakowski. Estimating the largest eigenvalue by the power
        and Lanczos algorithms with a random start. SIAM Journal on Matrix Analysis and
        Applications 13(4), 1992. Theorem 4.2.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_sparse.inducing.residual import DENSE_SIZE, ScaledResidual

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
