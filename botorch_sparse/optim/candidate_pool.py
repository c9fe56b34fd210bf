r"""All candidates of a finite set, embedded under one Nystrom posterior.

References:
    [Calandriello2020]_ Section 3.1 and Appendix A.3 (pre-embedding, lazy evaluation).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.optim.choosable import ALL, Choosable
from botorch_sparse.optim.device_ucb import BlockUCB, EagerUCB, eager_is_cheaper
from botorch_sparse.optim.ucb import LazyUCB
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.pseudo_data import (
    pseudo_data_factor,
    whitening_matrix,
)
from botorch_sparse.posteriors.substitution import BlockedSubstitution

# Bytes that the pool may keep beside the candidates themselves.
MAX_MEMORY = 2 * 1024**3
# Candidates embedded at a time. Few long products: each is a barrier for the threads.
CHUNK_SIZE = 2**15
# Entries of `X` above which a kernel column by itself costs more than as one of many.
LARGE_POOL = 2**20


class CandidatePool:
    r"""Moments of all candidates, and what a batch needs [Calandriello2020]_.

    After `update(posterior)` the pool holds the mean and the variance of all `A`
    candidates at the last feedback and, where they fit into `max_memory`, their
    covariances `k_S(x)` with the inducing points, which one small matrix turns into
    features, :math:`w(x) = L_B^{-1} L^{-1} k_S(x)`; a larger pool is streamed in row
    chunks, and covariances are computed again for the few candidates that a step looks
    at. `ucb` starts a batch: an exact argmax of the upper confidence bound whose
    variances shrink with every point.

    The variances of all candidates take one forward substitution: the posterior is that
    of an exact GP with pseudo-observations at the inducing points
    (`pseudo_data_factor`).

    On the CPU the kernel's columns `k(X, x_s)` of points that have once been inducing
    points are kept in what is left of `max_memory` (unless there are very many
    candidates): the next inducing set shares most of them. Each column is computed by
    itself, so that its bits do not depend on what was kept before; a run that was saved
    and loaded rounds alike.

    Cost: O(A m^2) for `update`.

    Args:
        X: `A x d` candidates.
        max_memory: Bytes for covariances with inducing points, past and present.
        chunk_size: Rows embedded at a time.

    Raises:
        BotorchTensorDimensionError: If `X` is not `A x d` with `A > 0`.
        InputDataError: If `X` is not finite floating point.
    """

    def __init__(
        self,
        X: Tensor,
        *,
        max_memory: int = MAX_MEMORY,
        chunk_size: int = CHUNK_SIZE,
    ) -> None:
        validate_candidates(X)
        self.X = X
        self.max_memory = max_memory
        self.chunk_size = chunk_size
        self._columns = _KernelColumns()
        self._buffers = [X.new_empty(0)] * 2
        self.reset()

    def reset(self) -> None:
        """Forget the posterior."""
        self.posterior: NystromPosterior | None = None
        self.mean = self.X.new_zeros(len(self.X))
        self.variance = self.X.new_zeros(len(self.X))
        self.whitening = self.X.new_empty(0, 0)
        self._cross: Tensor | None = None

    def snapshot(self) -> dict[str, Any]:
        """What `restore` needs; nothing is copied."""
        return {
            "posterior": self.posterior,
            "mean": self.mean,
            "variance": self.variance,
            "whitening": self.whitening,
            "_cross": self._cross,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Become what the pool was at the snapshot.

        Covariances that an update has overwritten are computed again where needed.
        """
        overwritten = self._cross is not snapshot["_cross"]
        vars(self).update(snapshot)
        self._columns = _KernelColumns()
        if overwritten:
            self._cross = None

    def __len__(self) -> int:
        return self.X.shape[0]

    def fits_in_memory(self, num_inducing: int) -> bool:
        """Whether `k_S(x)` of all candidates is kept; it may take half the memory."""
        size = len(self) * num_inducing * self.X.element_size()
        return 2 * size <= self.max_memory

    @torch.no_grad()
    def update(
        self,
        posterior: NystromPosterior,
        k_diag: Tensor | None = None,
        *,
        is_awaited: bool = True,
    ) -> None:
        """Embed all candidates under a new posterior.

        Args:
            posterior: An unbatched posterior.
            k_diag: `A` prior variances of the candidates, if they are known.
            is_awaited: If False, the host waits for nothing. All variances may be NaN
                then, for rounding alone, and the pool has to be updated once more.
        """
        m, num = posterior.num_inducing, len(self)
        in_memory = self.fits_in_memory(m)
        points = posterior.inducing_points
        slots = self._kept_columns(posterior, points) if in_memory else None
        self._cross = None  # until it is whole: covariances are streamed meanwhile
        cross = self._room(0, m, num) if in_memory else None
        solve = self._substitution(pseudo_data_factor(posterior, is_awaited=is_awaited))
        whitening = whitening_matrix(posterior)
        weights = posterior.weights @ whitening
        mean = posterior.mean_module(self.X).clone()
        if k_diag is None:
            k_diag = posterior.covar_module(self.X, diag=True)
        variance = k_diag.clone()
        for start in range(0, num, self.chunk_size):
            rows = slice(start, min(start + self.chunk_size, num))
            K = None if cross is None else cross[:, rows]
            K = self._cross_covariance(posterior, slots, rows, out=K)
            mean[rows] += weights @ K
            variance[rows] -= solve(K).square_().sum(0)
        rounding = torch.finfo(variance.dtype).eps * k_diag
        self.variance, self.mean = torch.maximum(variance, rounding), mean
        self.posterior, self.whitening, self._cross = posterior, whitening, cross

    def hold(self, posterior: NystromPosterior) -> None:
        """Take a posterior without embedding the candidates; moments are not known.

        For sample paths, which need neither variances nor features. Cost: O(A).
        """
        self.reset()
        self.posterior = posterior
        self.mean = self.variance = self.X.new_full((len(self.X),), torch.nan)

    def _substitution(self, L: Tensor) -> Callable[[Tensor], Tensor]:
        """The solution of `L y = K` for a chunk; good until the next one."""
        if self.on_device:
            return lambda K: torch.linalg.solve_triangular(L, K, upper=False)
        scratch = self._room(1, len(L), min(self.chunk_size, len(self))).view(-1)
        solve = BlockedSubstitution(L).solve
        return lambda K: solve(K, out=scratch[: K.numel()].view(K.shape))

    def _cross_covariance(
        self,
        posterior: NystromPosterior,
        slots: Tensor | None,
        rows: slice,
        out: Tensor | None,
    ) -> Tensor:
        """`k_S(x)` of a chunk of candidates, `m x chunk`, kept in `out` if given."""
        if slots is None:
            K = posterior.covariance_with_inducing(self.X[rows])
        elif out is not None and out.is_contiguous():
            return torch.index_select(self._columns.values[:, rows], 0, slots, out=out)
        else:
            K = self._columns.values[:, rows].index_select(0, slots)
        return K if out is None else out.copy_(K)

    def _room(self, place: int, num_rows: int, num_columns: int) -> Tensor:
        """Memory for a matrix, used again by later updates."""
        size = num_rows * num_columns
        if self._buffers[place].numel() < size:
            self._buffers[place] = self.X.new_empty(size + size // 4)
        return self._buffers[place][:size].view(num_rows, num_columns)

    @torch.no_grad()
    def cross_covariance(self, index: Tensor | slice) -> Tensor:
        """`k_S(x)` of some candidates, `m x k`; looked up, or computed if streamed."""
        if self._cross is not None:
            return self._cross[:, index]
        return self._embedded().covariance_with_inducing(self.X[index])

    def whitened_features(self, index: Tensor | slice) -> Tensor:
        """`w(x)` of some candidates, `k x m`. Cost: O(k m^2)."""
        return (self.whitening @ self.cross_covariance(index)).mT

    @property
    def on_device(self) -> bool:
        """Whether a copy to the host has to wait for an accelerator."""
        return self.X.device.type != "cpu"

    @property
    def in_memory(self) -> bool:
        """Whether the covariances of all candidates with `S` are at hand."""
        return self._cross is not None

    def ucb(
        self, multiplier: float, noise: float, choosable: Choosable = ALL
    ) -> LazyUCB | EagerUCB | BlockUCB:
        r"""Start a batch with the bound :math:`\mu(x) + \beta^{1/2} \sigma_t(x)`.

        Args:
            multiplier: What multiplies the Bayesian standard deviation.
            noise: Noise variance of a pending evaluation (lambda).
            choosable: What may be chosen; all candidates by default.
        """
        m = self._embedded().num_inducing
        if not self.on_device:
            return LazyUCB(self, multiplier, noise, choosable)
        if self.in_memory and eager_is_cheaper(len(self), m):
            return EagerUCB(self, multiplier, noise, choosable)
        return BlockUCB(self, multiplier, noise, choosable)

    @torch.no_grad()
    def squared_covariances(self, index: Tensor) -> Tensor:
        r"""Squared posterior covariances of all candidates with the points of a batch.

        .. math:: \mathrm{cov}(x, x_s)^2, \qquad (w(x)^\top w(x_s))^2

        the terms of the local bound ([Calandriello2020]_ Lemma 3, Appendix B.3). With
        :math:`\phi = L_B w` both come from one product:
        :math:`\mathrm{cov}(x, x_s) = k(x, x_s) + w(x)^\top (I - L_B^\top L_B) w(x_s)`.

        Args:
            index: `k` candidates `x_s`.

        Returns:
            A `k x 2 x A` tensor. Cost: O(k A m).
        """
        posterior = self._embedded()
        L_B, X_s, k = posterior.chol_inner, self.X[index], len(index)
        w_s = self.whitened_features(index)  # k x m
        both = torch.stack([w_s - (w_s @ L_B.mT) @ L_B, w_s], dim=1) @ self.whitening
        both = both.view(2 * k, -1)
        slots = self._kept_columns(posterior, X_s) if self.in_memory else None
        step = len(self) if self.in_memory else self.chunk_size
        squares = self.mean.new_empty(k, 2, len(self))
        for start in range(0, len(self), step):
            rows = slice(start, start + step)
            products = (both @ self.cross_covariance(rows)).view(k, 2, -1)
            products[:, 0] += (
                posterior.covar_module(X_s, self.X[rows]).to_dense()
                if slots is None
                else self._columns.values[slots, rows]
            )
            squares[..., rows] = products.square_()
        return squares

    def _embedded(self) -> NystromPosterior:
        if self.posterior is None:
            raise InputDataError(
                "The pool has no posterior yet: call update(posterior) first."
            )
        return self.posterior

    def _kept_columns(
        self, posterior: NystromPosterior, points: Tensor
    ) -> Tensor | None:
        """Where the columns `k(X, x_s)` are kept, or None where not worth it."""
        column = len(self) * self.X.element_size()
        capacity = self.max_memory // 2 // column
        large = self.on_device or self.X.numel() > LARGE_POOL
        if large or not 0 < len(points) <= capacity:
            return None
        return self._columns.find(posterior.covar_module, self.X, points, capacity)


class _KernelColumns:
    """Kernel columns by point, the least recently used ones replaced first.

    All are dropped when the kernel or one of its parameters is another than before.

    Attributes:
        values: `slots x A` columns.
    """

    def __init__(self) -> None:
        self.values = torch.empty(0, 0)
        self._slot: dict[bytes, int] = {}  # in the order of the last use
        self._kernel: tuple[Any, ...] = ()

    def find(
        self,
        covar_module: Kernel,
        X: Tensor,
        points: Tensor,
        capacity: int,
    ) -> Tensor:
        """The slots of `points`; columns not kept are computed one at a time."""
        kernel = (covar_module, *(p.tolist() for p in covar_module.parameters()))
        if kernel != self._kernel:
            self._slot, self._kernel = {}, kernel
        keys = [point.tobytes() for point in points.cpu().numpy()]
        for key, point in zip(keys, points, strict=True):
            if key not in self._slot:
                column = covar_module(point.unsqueeze(0), X).to_dense()
                slot = self._free_slot(X, capacity, keys)
                self.values[slot] = column.squeeze(0)
                self._slot[key] = slot
        for key in keys:
            self._slot[key] = self._slot.pop(key)
        return torch.tensor([self._slot[key] for key in keys], device=X.device)

    def _free_slot(self, X: Tensor, capacity: int, keys: Sequence[bytes]) -> int:
        """A new slot up to the capacity, else the stalest that is not in `keys`."""
        used = len(self._slot)
        if used >= capacity:
            needed = set(keys)
            return self._slot.pop(next(k for k in self._slot if k not in needed))
        if used == len(self.values):
            room = X.new_empty(min(capacity - used, max(16, used)), len(X))
            self.values = torch.cat([self.values.to(X).view(used, len(X)), room])
        return used


def validate_candidates(X: Tensor) -> None:
    """Check a table of candidates at the door; see `CandidatePool`."""
    if X.dim() != 2 or X.shape[0] == 0 or X.shape[1] == 0:
        raise BotorchTensorDimensionError(
            f"Got candidates of shape {tuple(X.shape)}; need `A x d` with A, d > 0."
        )
    if not X.is_floating_point() or not X.isfinite().all():
        raise InputDataError(
            f"Got candidates of dtype {X.dtype} with {int((~X.isfinite()).sum())} "
            "entries that are not finite; need float32 or float64 without NaN or "
            "infinity."
        )
