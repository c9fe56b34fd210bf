r"""Gradients of many samples in low-rank form, and their inner products.

References:
    [Wei2025]_ Section 4 (see `botorch_sparse.inducing.gradient_diversity`).
"""

import copy
from dataclasses import dataclass

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import nonfinite_names


@dataclass(frozen=True, eq=False)
class GradientFactors:
    r"""`n` gradients of length `n`, which are not formed.

    .. math::
        g_i = s_i (\mathrm{diag}(d) - U U^\top) e_i \; (+ \; \epsilon_i)

    is the form of :math:`K_y^{-1} e_i` where :math:`K_y` is a diagonal and a matrix of
    low rank. Batch elements (several outputs) are further coordinates: the inner
    product of two samples is the sum of the elements'. All is in float64.

    Args:
        diagonal: `batch_shape x n`, the vector `d`.
        rows: `batch_shape x n x m`, the matrix `U`.
        scale: `batch_shape x n`, the factors `s`.
        noise: `batch_shape x n`, what the perturbation is made of, see `perturbed`.

    Raises:
        BotorchTensorDimensionError: If the shapes do not fit.
        InputDataError: If an entry is not finite.
    """

    diagonal: Tensor
    rows: Tensor
    scale: Tensor
    noise: Tensor | None = None

    def __post_init__(self) -> None:
        shape = self.rows.shape[:-1]
        if self.rows.dim() < 2 or not self.diagonal.shape == self.scale.shape == shape:
            raise BotorchTensorDimensionError(
                f"Got rows of shape {tuple(self.rows.shape)}, a diagonal of shape "
                f"{tuple(self.diagonal.shape)} and scales of shape "
                f"{tuple(self.scale.shape)}; need `... x n x m`, `... x n`, `... x n`."
            )
        names = ("diagonal", "rows", "scale")
        for name in names:
            object.__setattr__(self, name, getattr(self, name).detach().double())
        bad = nonfinite_names({name: getattr(self, name) for name in names})
        if bad:
            raise InputDataError(
                f"Got {', '.join(bad)} of gradients with NaN or infinity. Check the "
                "kernel, the noise variances and the observations."
            )

    def __len__(self) -> int:
        return self.rows.shape[-2]

    @property
    def device(self) -> torch.device:
        """The device of the factors."""
        return self.rows.device

    def perturbed(
        self, noise_scale: float, generator: torch.Generator | None = None
    ) -> "GradientFactors":
        r"""With Gaussian noise :math:`\epsilon_i \sim N(0, \mathrm{noise\_scale}^2 I)`.

        Independent noise for each coordinate of each sample would be an `n x n` matrix.
        The one taken is made of `n` independent normal numbers,
        :math:`\epsilon_{ik} = \zeta_{(i + k) \bmod n}`: each sample has independent
        noise in its coordinates, the inner product of two samples' noise has the mean
        0 and the variance :math:`n \sigma^4` that it would have, and products with
        the matrix are correlations, by FFT.

        Args:
            noise_scale: The standard deviation.
            generator: Source of randomness, on any device.

        Returns:
            New factors. Cost: O(n).
        """
        perturbed = copy.copy(self)  # without another look at the values
        noise = noise_scale * standard_normal(self.diagonal, generator)
        object.__setattr__(perturbed, "noise", noise)
        return perturbed

    def to_dense(self) -> Tensor:
        """All gradients, perturbed, as the rows of an `n x (batch n)` matrix."""
        n = len(self)
        inverse = torch.diag_embed(self.diagonal) - self.rows @ self.rows.mT
        gradients = self.scale.unsqueeze(-1) * inverse
        if self.noise is not None:
            i = torch.arange(n, device=self.device)
            gradients = gradients + self.noise[..., (i.unsqueeze(-1) + i) % n]
        return torch.cat(list(gradients.reshape(-1, n, n)), dim=-1)

    def gram(self) -> "FactoredGram":
        """Their inner products. Cost: O(n m^2), and O(n m log n) for noise."""
        n, m = self.rows.shape[-2:]
        d, s = self.diagonal.reshape(-1, 1, n), self.scale.reshape(-1, 1, n)
        U = self.rows.mT.reshape(-1, m, n)  # rows of n numbers, for BLAS and FFT
        A, C = s * U, U @ U.mT
        dA = d * A
        noise = None if self.noise is None else self.noise.reshape(-1, n)
        if noise is None and bool((d == d[..., :1]).all()):
            left, right = A, C @ A - 2 * dA
        else:
            T = torch.zeros_like(U) if noise is None else _correlate(noise, U)
            left = torch.cat([A, dA + T], -2)
            right = torch.cat([C @ A - dA - T, -A], -2)
        corner = (s * d).squeeze(-2)
        return FactoredGram(left.reshape(-1, n), right.reshape(-1, n), corner, noise)


class FactoredGram:
    r"""Inner products :math:`\langle g_i, g_j \rangle`, one row at a time.

    .. math::
        \langle g_i, g_j \rangle = \ell_i^\top r_j + \delta_{ij} c_i^2
            + (c_i + c_j) \zeta_{i + j} + R_{i - j}, \qquad c_i = s_i d_i

    with the circular autocorrelation `R` of the noise. It follows from :math:`u_i^\top
    C u_j - (d_i + d_j) u_i^\top u_j`, with :math:`C = U^\top U`, for the gradients, and
    :math:`-s_i u_i^\top T_j` for a gradient and noise, with `T` the noise matrix times
    `U`. `left` and `right` are `k x n`, with the vectors as columns; `corner` (the
    numbers `c`) and `noise` are `batch x n`. `squared_norms` is the diagonal, `n`.
    """

    def __init__(
        self, left: Tensor, right: Tensor, corner: Tensor, noise: Tensor | None
    ) -> None:
        # As columns in memory: a product is then 2 to 3 times faster.
        self.left, self.right = left.mT, right
        self.corner, self.noise = corner, noise
        self.corner_squared = corner.square().sum(0)
        norms = (left * right).sum(0) + self.corner_squared
        if noise is not None:
            n = left.shape[-1]
            power = torch.fft.rfft(noise).abs().square()
            lags = torch.fft.irfft(power, n=n).sum(0)
            # Twice in a row, so that a shift is an offset.
            self.twice = torch.cat([noise, noise], -1)
            self.lags = torch.cat([lags, lags])
            self.order = torch.arange(n, device=left.device)
            own = self.twice.index_select(-1, 2 * self.order)
            norms = norms + 2 * (corner * own).sum(0) + lags[0]
        self.squared_norms = norms.clamp_min(0.0)

    def row(self, j: Tensor) -> Tensor:
        """Inner products of gradient `j` (an index of one element) with all; O(n k)."""
        products = torch.mv(self.left, self.right.index_select(-1, j).squeeze(-1))
        products.index_add_(0, j, self.corner_squared.index_select(0, j))
        if self.noise is None:
            return products
        shifted = self.twice.index_select(-1, self.order + j)
        both = self.corner + self.corner.index_select(-1, j)
        products += (both * shifted).sum(0)
        products += self.lags.index_select(0, self.order - j + len(self.order))
        return products


def perturb(
    gradients: Tensor, noise_scale: float, generator: torch.Generator | None
) -> Tensor:
    """Dense gradients with independent noise in each coordinate."""
    return gradients + noise_scale * standard_normal(gradients, generator)


def standard_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers, the same for a seed wherever the data live."""
    device = torch.device("cpu") if generator is None else generator.device
    numbers = torch.randn(
        like.shape, generator=generator, dtype=torch.float64, device=device
    )
    return numbers.to(like)


def _correlate(noise: Tensor, U: Tensor) -> Tensor:
    r""":math:`T_i = \sum_k \zeta_{(i+k) \bmod n} U_k`, `batch x m x n`, by FFT.

    Cost: O(n m log n) for `noise` of `batch x n` and `U` of `batch x m x n`.
    """
    spectrum = torch.fft.rfft(noise).unsqueeze(-2) * torch.fft.rfft(U).conj()
    return torch.fft.irfft(spectrum, n=U.shape[-1])
