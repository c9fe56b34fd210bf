r"""Nystrom features: what a kernel and inducing points explain without any data.

With :math:`L L^\top = K_{SS}` every point has the features and the residual

.. math:: \phi(x) = L^{-1} k_S(x), \qquad
    r(x, x') = k(x, x') - \phi(x)^\top \phi(x'),

so that :math:`\phi(x)^\top \phi(x')` is what the inducing points `S` explain of the
prior covariance, and `r` what they do not.

A batched solve would copy the one `m x m` factor `t` times for points of shape
`t x q x d`. With `t q` rows it is one solve.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from botorch.exceptions import BotorchTensorDimensionError
from gpytorch import Module
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.argument_checks import check_kind, check_tensors
from botorch_sparse.kernels import dense_covariance, prior_variance
from botorch_sparse.kernels.kernel_matrices import is_thread_safe
from botorch_sparse.posteriors.factorization import InducingFactor, factorize_batch
from botorch_sparse.threads import KERNEL_ENTRY, row_chunks

# Rows of a block of `solve_triangular`, and columns below which blocks launch too much.
BLOCK_ROWS, MANY_COLUMNS = 128, 1024


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool) -> Tensor:
    """`A^-1 B` as `torch.linalg.solve_triangular` has it, `batch_shape x m x k`.

    cuBLAS' substitution of many columns is slow beside its products. So on a device
    many columns of one matrix in float64, whose gradient nobody wants, are solved for
    in blocks of rows: what is known is subtracted by a product, and the inverse of a
    diagonal block multiplies what is left. The residual of a row is bounded as that of
    a substitution, times the condition of its diagonal block. Cost: O(m^2 k).
    """
    has_graph = torch.is_grad_enabled() and (A.requires_grad or B.requires_grad)
    is_large = A.shape[-1] > BLOCK_ROWS and B.shape[-1] >= MANY_COLUMNS
    is_one = A.dim() == 2 and B.dim() == 2 and B.dtype == torch.float64
    if B.is_cpu or has_graph or not (is_large and is_one):
        return torch.linalg.solve_triangular(A, B, upper=upper)
    return _by_blocks(A, B, upper)


def _by_blocks(A: Tensor, B: Tensor, upper: bool) -> Tensor:
    m, X = len(A), torch.empty_like(B)
    eye = torch.eye(BLOCK_ROWS, dtype=A.dtype, device=A.device)
    starts = range(0, m, BLOCK_ROWS)
    for start in reversed(starts) if upper else starts:
        rows = slice(start, min(start + BLOCK_ROWS, m))
        known = slice(rows.stop, m) if upper else slice(0, start)
        left = torch.addmm(B[rows], A[rows, known], X[known], alpha=-1)
        own = eye[: rows.stop - start, : rows.stop - start]
        inverse = torch.linalg.solve_triangular(A[rows, rows], own, upper=upper)
        X[rows] = inverse @ left
    return X


def by_rows(
    rows: Tensor, batch_shape: torch.Size, fn: Callable[[Tensor], Tensor]
) -> Tensor:
    """Apply `fn` with the batch dimensions that `batch_shape` lacks moved to the rows.

    Such a dimension of the `rows_batch x q x c` rows is not in `batch_shape`, or has
    size one there. `fn` maps `batch x r x c` to `batch x r x k`, each row by itself.
    The result is `broadcast(rows_batch, batch_shape) x q x k`.
    """
    own = len(batch_shape)
    rows = rows[(None,) * max(0, own - rows.dim() + 2)]
    extra = rows.dim() - 2 - own
    ones = [i for i, size in enumerate(batch_shape) if size == 1]
    moved = [*range(extra), *(extra + i for i in ones)]
    beside_rows = list(range(-2 - len(moved), -2))
    sizes = [rows.shape[i] for i in moved]
    flat = rows.movedim(moved, beside_rows).flatten(own - len(ones), -2)
    for i in ones:
        flat = flat.unsqueeze(i)
    result = fn(flat).squeeze(ones)
    return result.unflatten(-2, (*sizes, rows.shape[-2])).movedim(beside_rows, moved)


def solve_rows(L: Tensor, rows: Tensor) -> Tensor:
    """The rows `L^-1 r`, `broadcast(rows_batch, batch_shape) x q x m`; O(m^2) each."""
    return by_rows(
        rows,
        L.shape[:-2],
        lambda r: solve_triangular(L, r.mT, upper=False).mT,
    )


def inner_rows(rows: Tensor, vector: Tensor) -> Tensor:
    """Inner products of `rows_batch x q x m` rows with `batch_shape x m` vectors.

    Leading dimensions broadcast; rows are not copied for the batches of the vector.
    """
    product = by_rows(vector.unsqueeze(-2), rows.shape[:-2], lambda v: v @ rows.mT)
    return product.squeeze(-2)


# Rows embedded at a time: a chunk of m = 100 features is about the size of an L2 cache.
# A device would wait for its launches: it embeds 128 MB of features in float64.
CHUNK_SIZE, DEVICE_FEATURES = 2048, 2**24


@dataclass(frozen=True, eq=False)
class NystromFeatures:
    r"""The map :math:`\phi(x) = L^{-1} k_S(x)` of a kernel and inducing points.

    For whoever asks what inducing points explain; `NystromPosterior` adds data to it.
    Build it with `of`. Batch dimensions broadcast.

    Attributes:
        covar_module: The kernel `k`.
        inducing_points: `batch_shape x m x d`, in the order of the pivots.
        inducing_index: `batch_shape x m`, where each point kept stands among the
            inducing points that were asked for.
        chol_inducing: `batch_shape x m x m`, the factor `L` of `K_SS`.
        chunk_size: Rows embedded at a time; None for 2,048, and on a device for more
            where none are kept.
        kept: `batch_shape x m`, False for inducing points that are left out of one
            element of a batch but not of another; None where all are in.
    """

    covar_module: Kernel
    inducing_points: Tensor
    inducing_index: Tensor
    chol_inducing: Tensor
    chunk_size: int | None = None
    kept: Tensor | None = None

    @classmethod
    def of(
        cls,
        covar_module: Kernel,
        inducing_points: Tensor,
        *,
        chunk_size: int | None = None,
    ) -> Self:
        """The features of a kernel at inducing points.

        Args:
            covar_module: The kernel `k`.
            inducing_points: `batch_shape x m x d`; points that the others explain to
                rounding are left out.
            chunk_size: As in the field.

        Returns:
            The features. Cost: O(m^3).

        Raises:
            BotorchTensorDimensionError: If the points are no matrix, or batch of these.
            InputDataError: If one argument is of another type.
        """
        check_kind("covar_module", covar_module, Kernel, "a GPyTorch kernel")
        check_tensors(inducing_points=inducing_points)
        if inducing_points.dim() < 2:
            raise BotorchTensorDimensionError(
                f"Got inducing_points of shape {tuple(inducing_points.shape)}; need "
                "`batch_shape x m x d`."
            )
        K_SS = covar_module(inducing_points).to_dense()
        factor = factorize_batch(K_SS)
        return cls.from_factor(
            covar_module, inducing_points, factor, chunk_size=chunk_size
        )

    @classmethod
    def from_factor(
        cls,
        covar_module: Kernel,
        inducing_points: Tensor,
        factor: InducingFactor,
        *,
        chunk_size: int | None = None,
    ) -> Self:
        """The same, given the factor of `K_SS`.

        Args:
            covar_module: The kernel `k`.
            inducing_points: As in `of`.
            factor: What `factorize_batch` returned for their covariance.
            chunk_size: As in the field.
        """
        L, index = factor.chol, factor.index
        S = inducing_points.expand(*L.shape[:-2], *inducing_points.shape[-2:])
        if index.dim() == 1:
            S = S.index_select(0, index)
        else:
            S = torch.take_along_dim(S, index.unsqueeze(-1), dim=-2)
        return cls(
            covar_module=covar_module,
            inducing_points=S,
            inducing_index=index,
            chol_inducing=L,
            chunk_size=chunk_size,
            kept=factor.kept,
        )

    @property
    def num_inducing(self) -> int:
        """The number `m` of inducing points in use."""
        return self.chol_inducing.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the features of a `q x d` tensor."""
        return self.chol_inducing.shape[:-2]

    def features(self, X: Tensor) -> Tensor:
        r"""Nystrom features :math:`\phi(x) = L^{-1} k_S(x)`, one row for each point.

        Args:
            X: A `batch_shape x q x d` tensor.

        Returns:
            A `batch_shape x q x m` tensor. Cost: O(q m^2).
        """
        return by_rows(
            X,
            self.batch_shape,
            lambda Z: self.features_from_covariance(self.covariance_with_inducing(Z)),
        )

    def covariance_with_inducing(self, X: Tensor) -> Tensor:
        """Prior covariance `k_S(x)`, `batch_shape x m x q`, inducing points first."""
        if self.num_inducing == 0:
            return X.new_zeros(*X.shape[:-2], 0, X.shape[-2])
        covariance = dense_covariance(self.covar_module, self.inducing_points, X)
        return covariance if self.kept is None else covariance * self.kept.unsqueeze(-1)

    def features_from_covariance(self, covariance: Tensor) -> Tensor:
        """Features `batch_shape x q x m` from `k_S(x)` (`batch_shape x m x q`)."""
        return solve_triangular(self.chol_inducing, covariance, upper=False).mT

    def residual(self, X: Tensor, features: Tensor) -> Tensor:
        r"""Residual variance :math:`r(x, x)`, `batch_shape x q`, clamped at zero."""
        k_diag = prior_variance(self.covar_module, X)
        return (k_diag - features.square().sum(-1)).clamp_min(0.0)

    def chunks(self, X: Tensor) -> list[slice]:
        """The rows of `X` in chunks."""
        size = self.chunk_size or CHUNK_SIZE
        if self.chunk_size is None and not X.is_cpu:
            batch = torch.broadcast_shapes(X.shape[:-2], self.batch_shape).numel()
            width = max(1, self.num_inducing, X.shape[-1])
            size = max(size, DEVICE_FEATURES // max(1, batch * width))
        return row_chunks(X.shape[-2], size) or [slice(0, 0)]

    def work(self, X: Tensor, *means: Module) -> float:
        """Floating point operations for features of points; 0 if no threads share them.

        Some kernels can't be evaluated by several threads, nor can some means that are
        taken as well. A device has threads of its own.
        """
        if not (X.is_cpu and is_thread_safe(self.covar_module, *means)):
            return 0.0
        batches = torch.broadcast_shapes(X.shape[:-2], self.batch_shape).numel()
        m = self.num_inducing
        return batches * X.shape[-2] * m * (2 * m + KERNEL_ENTRY)
