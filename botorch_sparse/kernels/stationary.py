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
from typing import Any, NamedTuple

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


class Profile(NamedTuple):
    """A covariance by squared distances, up to scale."""

    # From squared distances, which it may overwrite, to their covariance and a multiple
    # of its derivative.
    value_and_slope: Callable[[Tensor], tuple[Tensor, Tensor]]
    factor: float  # that makes the derivative of the multiple


def _rbf(D: Tensor) -> tuple[Tensor, Tensor]:
    K = D.mul_(-0.5).exp_()
    return K, K


def _matern32(D: Tensor) -> tuple[Tensor, Tensor]:
    a = D.mul_(3.0).sqrt_()
    e = torch.exp(-a)
    return a.add_(1.0).mul_(e), e


def _matern52(D: Tensor) -> tuple[Tensor, Tensor]:
    a = D.mul_(5.0).sqrt_()
    e = torch.exp(-a)
    slope = (a + 1.0).mul_(e)
    return a.square_().mul_(e).div_(3.0).add_(slope), slope


RBF = Profile(_rbf, -1 / 2)
# By the smoothness of a Matern kernel.
MATERN = {1.5: Profile(_matern32, -3 / 2), 2.5: Profile(_matern52, -5 / 6)}


def stationary_covariance(Z: Tensor, Z2: Tensor, profile: Profile) -> Tensor:
    """The covariance of scaled points, `batch_shape x n x n2`, with its gradient.

    Args:
        Z: `batch_shape x n x d` points, divided by their lengthscales.
        Z2: `batch_shape x n2 x d` points.
        profile: The kernel.

    Returns:
        The matrix; O(n n2 d) time, and O(n n2) memory for two of them.
    """
    # torch.broadcast_shapes imports sympy when it is first called, for 0.3 s.
    shape = np.broadcast_shapes(Z.shape[:-2], Z2.shape[:-2])
    middle = Z.detach().mean(-2, keepdim=True)  # of which no distance depends
    parts = ((X - middle).expand(*shape, *X.shape[-2:]) for X in (Z, Z2))
    covariance: Tensor = _Covariance.apply(*parts, profile)
    return covariance


class _Covariance(torch.autograd.Function):
    """The covariance of points around zero; second derivatives are torch's."""

    @staticmethod
    def forward(ctx: Any, Z: Tensor, Z2: Tensor, profile: Profile) -> Tensor:
        shape = *Z.shape[:-1], Z2.shape[-2]
        K = Z.new_empty(shape)
        slope = K if profile is RBF else torch.empty_like(K)
        is_square = torch.equal(Z, Z2)

        def fill(rows: slice) -> None:
            D = _squared_distances(Z[..., rows, :], Z2)
            if is_square:  # zero but for rounding
                D[..., rows].diagonal(dim1=-2, dim2=-1).zero_()
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
    n = K.shape[-2]
    beside = max(1, K.numel() // max(1, n))
    is_small = K.numel() <= 2 * ENTRIES or K.device.type != "cpu"
    return row_chunks(n, n if is_small else max(1, ENTRIES // beside))


def _squared_distances(Z: Tensor, Z2: Tensor) -> Tensor:
    squares = [X.square().sum(-1) for X in (Z, Z2)]
    D = torch.matmul(Z, Z2.mT).mul_(-2.0)
    D.add_(squares[0].unsqueeze(-1)).add_(squares[1].unsqueeze(-2))
    return D.clamp_min_(0.0)


def _pull(W: Tensor, Z: Tensor, Z2: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of `W_ij (z_i - z'_j)` over `j`, and with the other sign over `i`."""
    first = W.sum(-1).unsqueeze(-1) * Z - W @ Z2
    return first, W.sum(-2).unsqueeze(-1) * Z2 - W.mT @ Z


def _slope(Z: Tensor, Z2: Tensor, profile: Profile) -> Tensor:
    """What `value_and_slope` has as the second one, by steps that torch follows."""
    D = (Z.unsqueeze(-2) - Z2.unsqueeze(-3)).square().sum(-1)
    if profile is RBF:
        return (-0.5 * D).exp()
    if profile is MATERN[1.5]:
        return (-(sqrt(3.0) * _root(D))).exp()
    a = sqrt(5.0) * _root(D)
    return (1.0 + a) * (-a).exp()


def _root(D: Tensor) -> Tensor:
    """The root, whose derivative at zero counts for nothing: so does its factor."""
    return D.clamp_min(1e-30).sqrt()
