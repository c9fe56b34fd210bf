r"""Covariances of stationary kernels and their gradients, a few rows at a time.

With scaled points :math:`z`, squared distances :math:`D_{ij} = |z_i - z'_j|^2`, a
covariance :math:`K = \varphi(D)` and what comes back to it, `G`,

.. math::
    W = G \circ \varphi'(D), \qquad
    \frac{\partial}{\partial z_i} = 2 \sum_j W_{ij} (z_i - z'_j).

GPyTorch backpropagates through each step to `K`, in some twenty passes over matrices
that no cache holds. Here rows that one holds go through all steps, and of these only
:math:`\varphi'(D)` is kept.
"""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.threads import (
    KERNEL_ENTRY,
    for_each,
    row_chunks,
    sum_over,
)

# Entries of the rows that are done at once: with their intermediate results a cache
# holds them.
ENTRIES = 2**16
# Rows that are done at once at least: each chunk has sums of its own over all columns.
FEWEST_ROWS = 64


class Profile(NamedTuple):
    """A covariance by squared distances, up to scale."""

    value: Callable[[Tensor], Tensor]  # in the place of squared distances
    # The same, and a multiple of its derivative.
    value_and_slope: Callable[[Tensor], tuple[Tensor, Tensor]]
    factor: float  # that makes the derivative of the multiple


def _rbf(D: Tensor) -> Tensor:
    return D.mul_(-0.5).exp_()


def _rbf_and_slope(D: Tensor) -> tuple[Tensor, Tensor]:
    K = _rbf(D)
    return K, K


def _matern32(D: Tensor) -> Tensor:
    return _matern32_and_slope(D)[0]


def _matern32_and_slope(D: Tensor) -> tuple[Tensor, Tensor]:
    a = D.mul_(3.0).sqrt_()
    e = a.neg().exp_()
    return a.add_(1.0).mul_(e), e


def _matern52(D: Tensor) -> Tensor:
    a = D.mul_(5.0).sqrt_()
    e = a.neg().exp_()
    return a.addcmul_(a, a, value=1 / 3).add_(1.0).mul_(e)


def _matern52_and_slope(D: Tensor) -> tuple[Tensor, Tensor]:
    a = D.mul_(5.0).sqrt_()
    e = a.neg().exp_()
    slope = (a + 1.0).mul_(e)
    return a.square_().mul_(e).div_(3.0).add_(slope), slope


RBF = Profile(_rbf, _rbf_and_slope, -1 / 2)
# By the smoothness of a Matern kernel.
MATERN = {
    1.5: Profile(_matern32, _matern32_and_slope, -3 / 2),
    2.5: Profile(_matern52, _matern52_and_slope, -5 / 6),
}


def stationary_covariance(
    X: Tensor, X2: Tensor, lengthscale: Tensor, profile: Profile
) -> Tensor:
    """The covariance of points, `batch_shape x n x n2`, with its gradient.

    Args:
        X: `batch_shape x n x d` points.
        X2: `batch_shape x n2 x d` points.
        lengthscale: `batch_shape x 1 x d` lengthscales, or one for all features.
        profile: The kernel.

    Returns:
        The matrix; O(n n2 d) time, and O(n n2) memory for two of them.
    """
    # Of which no distance depends; an offset would cost digits of each gradient.
    middle = X.detach().mean(-2, keepdim=True)
    Z = (X - middle) / lengthscale
    Z2 = Z if X2 is X else (X2 - middle) / lengthscale
    # torch.broadcast_shapes imports sympy when it is first called, for 0.3 s.
    shape = np.broadcast_shapes(Z.shape[:-2], Z2.shape[:-2])
    is_same, Z = Z2 is Z, Z.expand(*shape, *Z.shape[-2:])
    Z2 = Z if is_same else Z2.expand(*shape, *Z2.shape[-2:])
    if not torch.is_grad_enabled() or not (Z.requires_grad or Z2.requires_grad):
        with torch.no_grad():
            return _values(Z, Z2, profile)
    covariance: Tensor = _Covariance.apply(Z, Z2, profile)
    return covariance


def stationary_sums(
    X: Tensor, X2: Tensor, weights: Tensor, lengthscale: Tensor, profile: Profile
) -> Tensor:
    r"""Sums :math:`\sum_j w_{ij} k(x_i, x'_j)`, with first derivatives in `X` alone.

    Args:
        X: `n x d` points.
        X2: `n2 x d` points.
        weights: `n x n2` of them.
        lengthscale: As in `stationary_covariance`.
        profile: The kernel.

    Returns:
        `n` sums; O(n n2 d) time.
    """
    with torch.no_grad():
        middle = X2.mean(-2, keepdim=True)
        Z, Z2 = ((points - middle) / lengthscale for points in (X, X2))
        a, b = (points.square().sum(-1) for points in (Z, Z2))
        D = torch.addmm(b, Z, Z2.mT, alpha=-2.0).add_(a.unsqueeze(-1)).clamp_min_(0.0)
        K, slope = profile.value_and_slope(D)
        sums = (weights * K).sum(-1)
        W = slope.mul_(weights)
        pulled = (W.sum(-1, keepdim=True) * Z - W @ Z2) / lengthscale
    return with_gradient(X, sums, 2.0 * profile.factor * pulled)


def with_gradient(X: Tensor, values: Tensor, gradients: Tensor) -> Tensor:
    """Values at a point each, `n`, that get these gradients, `n x d`, in `X`."""
    known: Tensor = _WithGradient.apply(X, values, gradients)
    return known


class _WithGradient(torch.autograd.Function):
    """Values whose gradient is known; second derivatives are refused."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, values: Tensor, gradients: Tensor) -> Tensor:
        ctx.save_for_backward(gradients)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # what comes back is differentiated once more
            raise NotImplementedError("There are first derivatives alone.")
        (gradients,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * gradients, None, None


def _values(Z: Tensor, Z2: Tensor, profile: Profile) -> Tensor:
    """The matrix without gradients, in its own memory."""
    K = Z.new_empty(*Z.shape[:-1], Z2.shape[-2])
    distances = _SquaredDistances.of(Z, Z2)

    def fill(rows: slice) -> None:
        profile.value(distances.of_rows(rows, out=K[..., rows, :]))

    for_each(_rows(K), KERNEL_ENTRY * K.numel(), lambda: fill)
    return K


class _Covariance(torch.autograd.Function):
    """The covariance of points around zero; second derivatives are torch's."""

    @staticmethod
    def forward(ctx: Any, Z: Tensor, Z2: Tensor, profile: Profile) -> Tensor:
        K = Z.new_empty(*Z.shape[:-1], Z2.shape[-2])
        slope = K if profile is RBF else torch.empty_like(K)
        distances = _SquaredDistances.of(Z, Z2)

        def fill(rows: slice) -> None:
            D = distances.of_rows(rows)
            K[..., rows, :], derivative = profile.value_and_slope(D)
            if slope is not K:
                slope[..., rows, :] = derivative

        for_each(_rows(K), KERNEL_ENTRY * K.numel(), lambda: fill)
        ctx.save_for_backward(Z, Z2, slope)
        ctx.profile = profile
        return K

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        Z, Z2, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # what comes back is differentiated once more
            slope = _slope(Z, Z2, ctx.profile)
            first, second = _pull(grad * slope, Z, Z2)
        else:
            first = torch.empty_like(Z)

            def add_up(parts: Sequence[slice]) -> tuple[Tensor]:
                total = torch.zeros_like(Z2)
                for rows in parts:
                    W = grad[..., rows, :] * slope[..., rows, :]
                    first[..., rows, :], part = _pull(W, Z[..., rows, :], Z2)
                    total += part
                return (total,)

            work = KERNEL_ENTRY * slope.numel()
            (second,) = sum_over(_rows(slope), work, add_up)
        factor = 2.0 * ctx.profile.factor
        return factor * first, factor * second, None


def _rows(K: Tensor) -> list[slice]:
    """Rows of a matrix that are done at once; all of a small one, or on a device."""
    n = max(1, K.shape[-2])
    beside = max(1, K.numel() // n)
    is_small = K.numel() <= 2 * ENTRIES or K.device.type != "cpu"
    return row_chunks(n, n if is_small else max(FEWEST_ROWS, ENTRIES // beside))


class _SquaredDistances(NamedTuple):
    """Squared distances as products: of `(-2 z, |z|^2, 1)` and `(z', 1, |z'|^2)`."""

    left: Tensor  # `batch_shape x n x (d + 2)`
    right: Tensor  # `batch_shape x (d + 2) x n2`
    is_square: bool  # whether both are of the same points

    @classmethod
    def of(cls, Z: Tensor, Z2: Tensor) -> Self:
        """Of all points."""
        (a, b), is_square = (X.square().sum(-1, True) for X in (Z, Z2)), Z is Z2
        left = torch.cat([-2.0 * Z, a, torch.ones_like(a)], dim=-1)
        right = torch.cat([Z2, torch.ones_like(b), b], dim=-1).mT.contiguous()
        return cls(left, right, is_square or torch.equal(Z, Z2))

    def of_rows(self, rows: slice, out: Tensor | None = None) -> Tensor:
        """Of some points to all others; zero of a point to itself, but for rounding."""
        D = torch.matmul(self.left[..., rows, :], self.right, out=out)
        D.clamp_min_(0.0)
        if self.is_square:
            D[..., rows].diagonal(dim1=-2, dim2=-1).zero_()
        return D


def _pull(W: Tensor, Z: Tensor, Z2: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of `W_ij (z_i - z'_j)` over `j`, and with the other sign over `i`."""
    first = W.sum(-1).unsqueeze(-1) * Z - W @ Z2
    return first, W.sum(-2).unsqueeze(-1) * Z2 - W.mT @ Z


def _slope(Z: Tensor, Z2: Tensor, profile: Profile) -> Tensor:
    """What `value_and_slope` has as the second one, by steps that torch follows."""
    squares = [each.square().sum(-1) for each in (Z, Z2)]
    D = squares[0].unsqueeze(-1) + squares[1].unsqueeze(-2) - 2.0 * (Z @ Z2.mT)
    if torch.equal(Z, Z2):  # zero but for rounding
        D = D * (1.0 - torch.eye(D.shape[-1], dtype=D.dtype, device=D.device))
    if profile is RBF:
        return (-0.5 * D).exp()
    if profile is MATERN[1.5]:
        return (-(sqrt(3.0) * _root(D))).exp()
    a = sqrt(5.0) * _root(D)
    return (1.0 + a) * (-a).exp()


def _root(D: Tensor) -> Tensor:
    """The root, whose derivative at zero counts for nothing: so does its factor."""
    return D.clamp_min(1e-30).sqrt()
