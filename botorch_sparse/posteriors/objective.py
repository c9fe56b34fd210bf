r"""Value and gradient of the low-rank objective, in blocks of rows.

With whitened features :math:`V = \Phi D^{-1/2}` and errors :math:`z = D^{-1/2} e`,

.. math::
    B = I + V V^\top, \quad v = B^{-1} V z, \quad
    F = -\tfrac12 \Big( z^\top z - v^\top V z + \log|B| + \log|D| + n \log 2\pi
    + \textstyle\sum_i r_i / d_i \Big).

With :math:`u = z - V^\top v` the gradient is as short:

.. math::
    \frac{\partial F}{\partial V} = v u^\top + (I - B^{-1}) V, \quad
    \frac{\partial F}{\partial e} = -D^{-1/2} u, \quad
    \frac{\partial F}{\partial d_i} = \frac{u_i^2 + V_i^\top B^{-1} V_i - 1}{2 d_i}
    + \frac{r_i}{2 d_i^2}, \quad
    \frac{\partial F}{\partial k_{ii}} = - \frac{1}{2 d_i}.

The identity in the first, the terms in `r` and the last belong to the collapsed bound
[Titsias2009]_; without them it is the DTC likelihood. Since :math:`V V^\top = B - I`
and :math:`V u = v`, what flows into `K_SS` needs `m x m` matrices alone:

.. math::
    \frac{\partial F}{\partial K_{SS}} = -\tfrac12 L^{-\top} M L^{-1}, \qquad
    M = \sum_i \frac{\partial F}{\partial V_i} V_i^\top
    = v v^\top + (I - B^{-1}) (B - I).

So two passes over blocks of rows are enough: one adds up :math:`B` and
:math:`V z`; the other computes each block again and pulls its gradient through the
kernel. Neither keeps a tensor of the size of :math:`\Phi`, but where one block is all.

Everything is in float64: :math:`z^\top z - v^\top V z` cancels where the noise is
small, and the factor of `K_SS` amplifies the rounding of a kernel a thousandfold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, pi
from typing import Any, NamedTuple

import torch
from botorch.exceptions import UnsupportedError
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_sparse.kernels import prior_variance
from botorch_sparse.posteriors.features import NystromFeatures, solve_triangular
from botorch_sparse.threads import num_groups, row_chunks, sum_over


def differentiable_tensors(kernel: Kernel, S: Tensor) -> list[Tensor]:
    """All that a kernel's gradient flows to but inputs: parameters and leaves."""
    leaves = {id(p): p for p in kernel.parameters() if p.requires_grad and p.is_leaf}
    K = kernel(S[..., :1, :].detach()).to_dense()
    seen, ahead = set(), [K.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves[id(node.variable)] = node.variable
        ahead += [function for function, _ in node.next_functions]
    return list(leaves.values())


class GradientAccumulator:
    """Tensors whose gradients add up over the blocks; None where not wanted."""

    def __init__(
        self, tensors: Sequence[Tensor], grads: Sequence[Tensor | None] = ()
    ) -> None:
        self._tensors = tensors
        self.grads = list(grads) or [None] * len(tensors)

    def pull(self, outputs: list[Tensor], grads: list[Tensor]) -> None:
        """Add what flows back from `outputs`."""
        pairs = [
            (output, grad.expand(output.shape))
            for output, grad in zip(outputs, grads, strict=False)
            if output.requires_grad
        ]
        wanted = [i for i, t in enumerate(self._tensors) if t.requires_grad]
        if not pairs or not wanted:
            return
        parts = torch.autograd.grad(
            [output for output, _ in pairs],
            [self._tensors[i] for i in wanted],
            [grad for _, grad in pairs],
            retain_graph=True,  # what computed the hyperparameters serves each block
            allow_unused=True,
        )
        for i, part in zip(wanted, parts, strict=True):
            known = self.grads[i]
            if part is not None:
                self.grads[i] = part if known is None else known + part


# Features embedded at a time: on the CPU 2 MB in float64, which stay in the cache. On
# CUDA at most 512 MB, and so many that ten such tensors, as kernels keep them for their
# gradient, take a 32nd of the device's memory.
BLOCK_SIZE, CUDA_BLOCK_SIZE, CUDA_SHARE = 2**18, 2**26, 1 / 32 / 10


def _features_at_a_time(device: torch.device, batch: int) -> int:
    """Features of a block of each element of a batch, equal on equal devices."""
    if device.type != "cuda":
        return BLOCK_SIZE
    memory = torch.cuda.get_device_properties(device).total_memory
    return min(CUDA_BLOCK_SIZE, int(CUDA_SHARE * memory / 8)) // max(1, batch)


def low_rank_objective(
    features: NystromFeatures,
    X: Tensor,
    error: Tensor,
    noise: Tensor,
    *,
    with_residual: bool = True,
    block_size: int | None = None,
) -> Tensor:
    r"""The collapsed bound [Titsias2009]_ (Eq. 9) or the DTC likelihood, `batch_shape`.

    .. math:: \log N(e; 0, \Phi^\top \Phi + D) - \tfrac12 \sum_i r(x_i, x_i) / d_i

    Differentiable once, in everything that the kernel, `X` (`batch_shape x n x d`), the
    inducing points, the errors and the noise (`batch_shape x n`) were computed from, as
    far as it is a leaf of the graph. Features, errors and noise are in float64; the
    errors are observations less their prior mean. Cost: O(n m^2) time, O(m^2 +
    block_size) memory.
    """
    L = features.chol_inducing.detach()
    if block_size is None:
        batch = torch.broadcast_shapes(X.shape[:-2], L.shape[:-2]).numel()
        block_size = _features_at_a_time(X.device, batch)
    X, S = X.to(L.dtype), features.inducing_points
    x, s = (t.detach().requires_grad_(t.requires_grad) for t in (X, S))
    features = replace(features, chol_inducing=L, inducing_points=s)
    parameters = tuple(features.covar_module.parameters())
    task = _Task(features, x, parameters, with_residual, block_size)
    if torch.is_grad_enabled() and X.shape[-2] * L.shape[-1] <= block_size:
        known = {rows.start: task.kernel(rows) for rows in task.blocks()}
        task = replace(task, known=known)
    shapes = (error.shape, noise.shape, (*L.shape[:-2], 1))
    error, noise = (t.expand(torch.broadcast_shapes(*shapes)) for t in (error, noise))
    leaves = differentiable_tensors(features.covar_module, s)
    return _LowRankObjective.apply(task, error, noise, X, S, *leaves)


@dataclass(frozen=True, eq=False)
class _Task:
    """What stays the same for all blocks."""

    features: NystromFeatures  # the features, their inducing points a leaf
    X: Tensor  # the points, a leaf
    parameters: tuple[Tensor, ...]  # the kernel's when the value was computed
    with_residual: bool  # whether the objective is the collapsed bound
    block_size: int  # features of a block at most
    known: dict[int, list[Tensor]] | None = None  # their kernels with their graphs

    def blocks(self) -> list[slice]:
        """The rows of each block; threads may share them."""
        n, m = self.X.shape[-2], self.features.chol_inducing.shape[-1]
        size = min(self.block_size // max(1, m), -(-n // num_groups(self.work)))
        return row_chunks(n, max(1, size))

    @property
    def work(self) -> float:
        """Floating point operations of a pass, that threads may share."""
        return 2 * self.features.work(self.X)

    def kernel(self, rows: slice) -> list[Tensor]:
        """`k_S(x)`, `m` rows, and `k(x, x)` where the residual is wanted."""
        if self.known is not None:
            return self.known[rows.start]
        X = self.X[..., rows, :]
        values = [self.features.covariance_with_inducing(X)]
        if self.with_residual:
            values.append(prior_variance(self.features.covar_module, X))
        return values

    def whitened(self, K: Tensor, d: Tensor) -> Tensor:
        """`V = L^-1 k_S(x) D^-1/2`, `m x rows`."""
        L = self.features.chol_inducing
        V = solve_triangular(L, K.detach(), upper=False)
        return V.mul_(d.rsqrt().unsqueeze(-2))

    def validate_gradient(self) -> None:
        """Refuse a gradient of the gradient, and one of a kernel that has changed."""
        if torch.is_grad_enabled():
            raise UnsupportedError(
                "Got create_graph=True for the gradient of the low-rank objective, "
                "which is differentiable once. Leave it out or, for second "
                "derivatives, take differences of gradients."
            )
        now = tuple(self.features.covar_module.parameters())
        if tuple(map(id, now)) != tuple(map(id, self.parameters)):
            raise UnsupportedError(
                "The kernel's parameters were replaced after the low-rank objective "
                "was computed, as torch.func.functional_call does at its end. Take "
                "the gradient before that, or copy the values into the parameters."
            )


class _Solved(NamedTuple):
    """What all rows together are worth."""

    z: Tensor
    d: Tensor
    gram: Tensor  # V V'
    L_B: Tensor
    v: Tensor


class _LowRankObjective(torch.autograd.Function):
    """The value and the gradient of `low_rank_objective`."""

    @staticmethod
    def forward(
        ctx: Any,
        task: _Task,
        error: Tensor,
        noise: Tensor,
        X: Tensor,
        S: Tensor,
        *hyperparameters: Tensor,
    ) -> Tensor:
        d, z = noise, error * noise.rsqrt()
        gram, moment, residual = _add_up(task, z, d)
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        L_B = psd_safe_cholesky(eye + gram)
        v = torch.cholesky_solve(moment.unsqueeze(-1), L_B).squeeze(-1)
        inv_quad = z.square().sum(-1) - (moment * v).sum(-1)
        log_det_B = 2 * L_B.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        terms = d.log() + log(2 * pi) + residual / d
        ctx.task = task
        ctx.save_for_backward(residual, z, d, gram, L_B, v, *hyperparameters)
        return -0.5 * (inv_quad + log_det_B + terms.sum(-1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ctx.task.validate_gradient()
        # Once: torch.utils.checkpoint gives them once.
        residual, z, d, gram, L_B, v, *hyperparameters = ctx.saved_tensors
        task, solved, scale = ctx.task, _Solved(z, d, gram, L_B, v), grad.unsqueeze(-1)
        S = task.features.inducing_points
        leaves = [task.X, S, *hyperparameters]
        grads, u, excess = _pull_data(task, solved, scale, leaves)
        with torch.enable_grad():
            K_SS = task.features.covar_module(S).to_dense()
        grad_K_SS = _grad_inducing_covariance(task, solved)
        whole = GradientAccumulator(leaves, grads)
        whole.pull([K_SS], [scale.unsqueeze(-1) * grad_K_SS])
        grad_error = -scale * u * solved.d.rsqrt()
        grad_d = 0.5 * scale * (u.square() + excess + residual / solved.d) / solved.d
        return None, grad_error, grad_d, *whole.grads


def _add_up(task: _Task, z: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sums `V V'` and `V z` over all rows, and the residual of each."""
    L, residual = task.features.chol_inducing, torch.zeros_like(d)
    shape = torch.broadcast_shapes(L.shape, (*z.shape[:-1], 1, 1))

    def add_up(blocks: Sequence[slice]) -> tuple[Tensor, Tensor]:
        gram, moment = z.new_zeros(shape), z.new_zeros(shape[:-1])
        for rows in blocks:
            K, *k_diag = task.kernel(rows)
            V = task.whitened(K, d[..., rows])
            gram += V @ V.mT
            moment += (V @ z[..., rows].unsqueeze(-1)).squeeze(-1)
            if task.with_residual:
                r = k_diag[0] - V.square().sum(-2) * d[..., rows]
                residual[..., rows] = r.clamp_min(0.0)
        return gram, moment

    gram, moment = sum_over(task.blocks(), task.work, add_up)
    return gram, moment, residual


def _pull_data(
    task: _Task, solved: _Solved, scale: Tensor, leaves: Sequence[Tensor]
) -> tuple[Sequence[Tensor | None], Tensor, Tensor]:
    """Pull the gradient of `k_S(x)` and `k(x, x)` to the leaves, block by block.

    It returns that, `u_i`, and `V_i' B^-1 V_i - 1`, for the gradient of the errors and
    the noise.
    """
    L, v = task.features.chol_inducing, solved.v
    B_inv = torch.cholesky_inverse(solved.L_B)
    u, excess = torch.empty_like(solved.z), torch.empty_like(solved.z)

    def pull(blocks: Sequence[slice]) -> tuple[Tensor | None, ...]:
        accumulator = GradientAccumulator(leaves)
        for rows in blocks:
            with torch.enable_grad():
                values = task.kernel(rows)
            d = solved.d[..., rows]
            V = task.whitened(values[0], d)
            error = solved.z[..., rows] - (v.unsqueeze(-2) @ V).squeeze(-2)
            inner = B_inv @ V
            u[..., rows] = error
            excess[..., rows] = (inner * V).sum(-2) - 1
            # dF/dV, and through V = L^-1 k_S(x) D^-1/2 on to k_S(x)
            grad_V = torch.sub(V if task.with_residual else 0, inner, out=inner)
            grad_V += v.unsqueeze(-1) * error.unsqueeze(-2)
            grad_V *= (scale * d.rsqrt()).unsqueeze(-2)
            grad_K = solve_triangular(L.mT, grad_V, upper=True)
            accumulator.pull(values, [grad_K, -0.5 * scale / d])
        return tuple(accumulator.grads)

    return sum_over(task.blocks(), 2 * task.work, pull), u, excess


def _grad_inducing_covariance(task: _Task, solved: _Solved) -> Tensor:
    """`dF/dK_SS = -1/2 L^-T M L^-1`, `m x m`."""
    L, v, gram = task.features.chol_inducing, solved.v, solved.gram
    M = v.unsqueeze(-1) * v.unsqueeze(-2) - torch.cholesky_solve(gram, solved.L_B)
    M = M + gram if task.with_residual else M
    half = torch.linalg.solve_triangular(L.mT, M, upper=True)
    return -0.5 * torch.linalg.solve_triangular(L, half, upper=False, left=False)
