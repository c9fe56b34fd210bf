"""Dense closed forms, written independently of the package, for the tests.

Everything here is float64 on the CPU, forms `n x n` matrices and eigendecomposes them.
Kernel values come from direct differences of the inputs, not from GPyTorch.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import mpmath
import torch
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

LENGTHSCALE, OUTPUTSCALE, SLOPE, OFFSET, POWER = 0.6, 1.7, 0.8, 0.5, 2


_rounding: tuple[torch.Generator, float] | None = None


def _distance(X: Tensor, Z: Tensor) -> Tensor:
    """Scaled distances through differences: exactly 0 between equal points."""
    squared = (X.unsqueeze(-2) - Z.unsqueeze(-3)).square().sum(-1)
    if _rounding is not None:
        g, eps = _rounding
        size = X.square().sum(-1).unsqueeze(-1) + Z.square().sum(-1).unsqueeze(-2)
        u = torch.rand(squared.shape, generator=g, dtype=torch.float64)
        squared = squared + eps * u * size
    return squared.sqrt() / LENGTHSCALE


@contextmanager
def rounded_distances(
    dtype: torch.dtype = torch.float64, seed: int = 0
) -> Iterator[None]:
    """Distances in this context are as inexact as those of GPyTorch.

    It expands `|x - z|^2` into products, by which equal points are `|x| sqrt(2 eps)`
    apart or not, as the CPU rounds: a Matern-1/2 kernel feels that in half of its
    digits, and smoother kernels in the last ones.
    """
    global _rounding
    _rounding = torch.Generator().manual_seed(seed), torch.finfo(dtype).eps
    try:
        yield
    finally:
        _rounding = None


def effect_of_rounding(
    compute: Callable[[], Tensor], dtype: torch.dtype = torch.float64
) -> float:
    """The largest change by which `rounded_distances` move what is computed.

    Ten times the largest of three draws: rounding is of the size of the draws, not one
    of them.
    """
    exact, changes = compute(), []
    for seed in range(3):
        with rounded_distances(dtype, seed):
            changes.append((compute() - exact).abs().max().item())
    return 10 * max(changes)


def _rbf(X: Tensor, Z: Tensor) -> Tensor:
    return torch.exp(-0.5 * _distance(X, Z).square())


def _matern12(X: Tensor, Z: Tensor) -> Tensor:
    return torch.exp(-_distance(X, Z))


def _matern32(X: Tensor, Z: Tensor) -> Tensor:
    r = math.sqrt(3) * _distance(X, Z)
    return (1 + r) * torch.exp(-r)


def _matern52(X: Tensor, Z: Tensor) -> Tensor:
    r = math.sqrt(5) * _distance(X, Z)
    return (1 + r + r.square() / 3) * torch.exp(-r)


def _linear(X: Tensor, Z: Tensor) -> Tensor:
    return SLOPE * (X.unsqueeze(-2) * Z.unsqueeze(-3)).sum(-1)


def _polynomial(X: Tensor, Z: Tensor) -> Tensor:
    return ((X.unsqueeze(-2) * Z.unsqueeze(-3)).sum(-1) + OFFSET) ** POWER


DENSE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rbf": _rbf,
    "matern12": _matern12,
    "matern32": _matern32,
    "matern52": _matern52,
    "linear": _linear,
    "polynomial": _polynomial,
    "scaled": lambda X, Z: OUTPUTSCALE * _matern52(X, Z),
    "sum": lambda X, Z: OUTPUTSCALE * _rbf(X, Z) + _linear(X, Z),
    "product": lambda X, Z: _matern32(X, Z) * _polynomial(X, Z),
}
KERNELS = list(DENSE)


def make_kernel(name: str, **tkwargs: object) -> Kernel:
    """The GPyTorch kernel of the same name and hyperparameters."""
    if name == "sum":
        # In this order GPyTorch does not factorize the first to add the second.
        kernel = make_kernel("linear") + ScaleKernel(make_kernel("rbf"))
    elif name == "product":
        kernel = make_kernel("matern32") * make_kernel("polynomial")
    elif name == "scaled":
        kernel = ScaleKernel(make_kernel("matern52"))
    elif name == "linear":
        kernel = LinearKernel()
    elif name == "polynomial":
        kernel = PolynomialKernel(power=POWER)
    else:
        nu = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}.get(name)
        kernel = RBFKernel() if nu is None else MaternKernel(nu=nu)
    kernel = kernel.to(**tkwargs)
    _set_hyperparameters(kernel)
    return kernel.requires_grad_(False)


def _set_hyperparameters(kernel: Kernel) -> None:
    """Set after the cast and from float64 tensors: a Python float would be rounded."""
    values = {
        RBFKernel: ("lengthscale", LENGTHSCALE),
        MaternKernel: ("lengthscale", LENGTHSCALE),
        ScaleKernel: ("outputscale", OUTPUTSCALE),
        LinearKernel: ("variance", SLOPE),
        PolynomialKernel: ("offset", OFFSET),
    }
    for module in kernel.modules():
        if type(module) in values:
            attribute, value = values[type(module)]
            setattr(module, attribute, torch.tensor(value, dtype=torch.float64))


class Dense(NamedTuple):
    """A dense posterior: mean `q`, covariance `q x q`."""

    mean: Tensor
    covariance: Tensor

    @property
    def variance(self) -> Tensor:
        return self.covariance.diagonal()


def nystrom_kernel(
    dense: Callable[[Tensor, Tensor], Tensor], S: Tensor, rtol: float = 1e-13
) -> Callable[[Tensor, Tensor], Tensor]:
    """The kernel `q(x, z) = k_S(x)' K_SS^+ k_S(z)`, eigenvalues below `rtol` cut.

    Through eigenfeatures: the pseudo-inverse itself would lose half the digits.
    """
    eigenvalues, U = torch.linalg.eigh(dense(S, S))
    keep = eigenvalues > rtol * eigenvalues[-1:].clamp_min(1e-300)
    basis = U[:, keep] / eigenvalues[keep].sqrt()
    return lambda X, Z: (dense(X, S) @ basis) @ (dense(Z, S) @ basis).mT


def dtc(
    dense: Callable[[Tensor, Tensor], Tensor],
    X: Tensor,
    y: Tensor,
    d: Tensor,
    S: Tensor,
    Z: Tensor,
    rtol: float = 1e-13,
) -> Dense:
    """DTC in its function-space form: an `n x n` solve with `Q_XX + D`."""
    q = nystrom_kernel(dense, S, rtol)
    inverse = torch.linalg.inv(q(X, X) + torch.diag(d))
    gain = q(Z, X) @ inverse
    return Dense(gain @ y, dense(Z, Z) - gain @ q(X, Z))


def exact(
    dense: Callable[[Tensor, Tensor], Tensor],
    X: Tensor,
    y: Tensor,
    d: Tensor,
    Z: Tensor,
) -> Dense:
    """The exact GP."""
    gain = torch.linalg.solve(dense(X, X) + torch.diag(d), dense(X, Z)).mT
    return Dense(gain @ y, dense(Z, Z) - gain @ dense(X, Z))


def dtc_log_likelihood(
    dense: Callable[[Tensor, Tensor], Tensor],
    X: Tensor,
    y: Tensor,
    d: Tensor,
    S: Tensor,
) -> Tensor:
    """`log N(y; 0, Q_XX + D)`, densely."""
    C = nystrom_kernel(dense, S)(X, X) + torch.diag(d)
    quadratic = y @ torch.linalg.solve(C, y)
    return -0.5 * (quadratic + torch.logdet(C) + len(y) * math.log(2 * math.pi))


def mp_rbf_dtc(
    X: Tensor, y: Tensor, d: Tensor, S: Tensor, Z: Tensor, digits: int = 60
) -> tuple[Tensor, Tensor]:
    """DTC mean and variance of the RBF kernel in multiple precision.

    `k - k_S K_SS^-1 k_S + k_S A^-1 k_S` with `A = K_SS + K_SX D^-1 K_XS`, without any
    pseudo-inverse: at these digits `K_SS` of distinct points is regular.
    """
    with mpmath.workdps(digits):
        scale = 2 * mpmath.mpf(LENGTHSCALE) ** 2

        def gram(A: Tensor, B: Tensor) -> mpmath.matrix:
            rows, columns = _mp_points(A), _mp_points(B)
            values = [[_mp_square(a, b) / scale for b in columns] for a in rows]
            return mpmath.matrix(values).apply(lambda t: mpmath.exp(-t))

        K_SS, K_SX, K_SZ = gram(S, S), gram(S, X), gram(S, Z)
        weighted = K_SX.copy()
        for j, noise in enumerate(d.tolist()):
            for i in range(weighted.rows):
                weighted[i, j] /= mpmath.mpf(noise)
        A_inverse = (K_SS + weighted * K_SX.T) ** -1
        difference = K_SS**-1 - A_inverse
        alpha = A_inverse * (weighted * mpmath.matrix(y.tolist()))
        columns = [K_SZ[:, j] for j in range(K_SZ.cols)]
        means = [float((k.T * alpha)[0]) for k in columns]
        variances = [float(1 - (k.T * difference * k)[0]) for k in columns]
    return (
        torch.tensor(means, dtype=torch.float64),
        torch.tensor(variances, dtype=torch.float64),
    )


def _mp_points(X: Tensor) -> list[list[mpmath.mpf]]:
    return [[mpmath.mpf(value) for value in row] for row in X.tolist()]


def _mp_square(a: list[mpmath.mpf], b: list[mpmath.mpf]) -> mpmath.mpf:
    return sum((s - t) ** 2 for s, t in zip(a, b, strict=True))


def alpha(r: Tensor) -> Tensor:
    """Two-sided factor between the Nystrom and the exact variance, from `r`."""
    return 1 + (r + (r.square() + 4 * r).sqrt()) / 2


def to_cpu(*tensors: Tensor) -> list[Tensor]:
    """Float64 copies on the CPU, where the oracles live."""
    return [t.detach().cpu().double() for t in tensors]


class RecordingKernel(RBFKernel):
    """Notes the shape of each matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[torch.Size] = []

    def forward(self, x1: Tensor, x2: Tensor, **params: Any) -> Tensor:
        out = super().forward(x1, x2, **params)
        self.shapes.append(out.shape)
        return out
