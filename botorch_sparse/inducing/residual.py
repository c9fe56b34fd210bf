r"""The matrix :math:`E = D^{-1/2} (K - Q) D^{-1/2}` that inducing points leave over."""

import math
from collections.abc import Iterator
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
