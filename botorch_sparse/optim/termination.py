r"""Rules that end a batch, incremental over a finite candidate set.

Inside a batch the variances shrink while mean and inducing set stand still. Each rule
bounds the ratio of variances `var_fb(x) / var_t(x)` for all candidates `x`; a batch
goes on while the bound is at most the threshold, and the point that crosses it belongs
to the batch. All variances are Bayesian, hence the divisions by lambda.

References:
    [Calandriello2020]_ Lemma 1 (global), Lemma 3 and Appendix B.3 (local);
    [Desautels2014]_ Eq. 20 (product). The first prints standard deviations where its
    proofs have variances.
"""

from abc import ABC, abstractmethod
from collections import Counter
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from botorch_sparse.acquisition.ratios import (
    LocalBound,
    local_ratio,
    local_sum,
    validate_local_bound,
)
from botorch_sparse.optim.candidate_pool import CandidatePool
from botorch_sparse.optim.exact_pool import ExactCandidatePool

Pool: TypeAlias = CandidatePool | ExactCandidatePool

# New points of a batch whose squares are computed in one pass over the candidates.
POINTS_AT_A_TIME = 8


class TerminationRule(ABC):
    """Bounds the ratio of variances within one batch.

    Args:
        noise: Lambda.
        ratio_threshold: Largest ratio of variances allowed, at least one.
    """

    def __init__(self, noise: float, ratio_threshold: float) -> None:
        self._noise = noise
        self._threshold = ratio_threshold
        self.bound = 1.0

    def add(
        self, index: int, variance: float | Tensor, initial: float | None = None
    ) -> bool:
        """Add a candidate to the batch.

        Args:
            index: The candidate.
            variance: Its variance `var_{s-1}(x_s)` just before.
            initial: Its variance `var_fb(x_s)` at the start, looked up if left out.

        Returns:
            Whether the batch may go on.
        """
        goes_on = self.add_unread(index, variance, initial)
        return self.decide(float(goes_on)) if isinstance(goes_on, Tensor) else goes_on

    @abstractmethod
    def add_unread(
        self, index: int, variance: float | Tensor, initial: float | None = None
    ) -> bool | Tensor:
        """As `add`, or the bound as a scalar on the device, for `decide`."""

    def decide(self, bound: float) -> bool:
        """Whether the batch may go on with a bound that has been read."""
        self.bound = bound
        return bound <= self._threshold


class GlobalRule(TerminationRule):
    r"""The sum rule of Lemma 1 [Calandriello2020]_.

    .. math:: 1 + \sum_s \mathrm{var}_{fb}(x_s) / \lambda

    Args:
        pool: A pool at the start of the batch.
        noise: Lambda.
        ratio_threshold: Largest ratio of variances allowed, at least one.
    """

    def __init__(self, pool: Pool, noise: float, ratio_threshold: float) -> None:
        super().__init__(noise, ratio_threshold)
        self._variance = pool.variance

    def add_unread(
        self, index: int, variance: float | Tensor, initial: float | None = None
    ) -> bool:
        """Add a candidate; O(1). See `TerminationRule`."""
        first = float(self._variance[index]) if initial is None else initial
        return self.decide(self.bound + first / self._noise)


class ProductRule(TerminationRule):
    r"""The product rule of GP-BUCB [Desautels2014]_.

    .. math:: \prod_s (1 + \mathrm{var}_{s-1}(x_s) / \lambda)

    For the exact GP it is `det(I + K_batch / lam)` under the posterior at the batch's
    start, hence never below the sum rule, one plus the trace of the same matrix.

    Args:
        pool: A pool at the start of the batch.
        noise: Lambda.
        ratio_threshold: Largest ratio of variances allowed, at least one.
    """

    def __init__(self, pool: Pool, noise: float, ratio_threshold: float) -> None:
        super().__init__(noise, ratio_threshold)

    def add_unread(
        self, index: int, variance: float | Tensor, initial: float | None = None
    ) -> bool:
        """Add a candidate; O(1). See `TerminationRule`."""
        return self.decide(self.bound * (1.0 + float(variance) / self._noise))


class GlobalLocalRule(TerminationRule):
    r"""The global bound until it crosses the threshold, then the local one.

    .. math:: 1 + \max_x \frac{\max\{\sum_s \mathrm{cov}_{fb}(x, x_s)^2,
        \sum_s (w(x)^\top w(x_s))^2\}}{\lambda \, \mathrm{var}_{fb}(x)}

    The sum of embedded covariances bounds the ratio of this posterior with its inducing
    set frozen; the sum of full ones (Lemma 3 of [Calandriello2020]_ as its code has it)
    stands for the exact GP's ratio, up to Lemma 2's factor. The full sum alone is not a
    bound on this posterior's ratio, since residual covariances may be negative.

    By Cauchy-Schwarz a point raises the local bound by at most `var_fb(x_s) / lam`:
    `bound` grows by that much until it crosses the threshold, and only then a pass over
    all candidates makes it the local bound again. Points that join the batch once more
    bring the same squares, which are kept within a quarter of the pool's memory.

    Args:
        pool: A pool at the start of the batch.
        noise: Lambda.
        ratio_threshold: Largest ratio of variances allowed, at least one.
        local_bound: `"both"` for the maximum of the two sums, `"embedded"` for the
            second alone (larger batches), `"paper"` for the published batches: the full
            sum, looked at from the first point after the global bound crossed.
    """

    def __init__(
        self,
        pool: CandidatePool,
        noise: float,
        ratio_threshold: float,
        local_bound: LocalBound = "both",
    ) -> None:
        validate_local_bound(local_bound)
        super().__init__(noise, ratio_threshold)
        self._pool = pool
        self._global = GlobalRule(pool, noise, ratio_threshold)
        self._local_bound = local_bound
        self._new: Counter[int] = Counter()  # points not in the sums yet
        self._sums = pool.variance.new_zeros(2, len(pool))  # full and embedded
        self._squares: dict[int, Tensor] = {}
        size = self._sums.numel() * self._sums.element_size()
        self._room = pool.max_memory // 4 // size if pool.in_memory else 0
        self._scale = noise * pool.variance.clamp_min(torch.finfo(pool.mean.dtype).tiny)
        self._crossed = False

    def add_unread(
        self, index: int, variance: float | Tensor, initial: float | None = None
    ) -> bool | Tensor:
        """Add a candidate; O(1), or O(A m) when the pool has to be passed over."""
        before = self._global.bound
        below = self._global.add(index, variance, initial)
        self._new[index] += 1
        self.bound += self._global.bound - before
        if below:
            self.bound = self._global.bound
            return True
        if self._local_bound == "paper" and not self._crossed:
            self._crossed = True
            return True
        return self._local() if self.bound > self._threshold else True

    def _local(self) -> Tensor:
        """The local bound, maximal over the pool: a scalar that is not read yet."""
        unknown = [index for index in self._new if index not in self._squares]
        for start in range(0, len(unknown), POINTS_AT_A_TIME):
            self._add_squares(unknown[start : start + POINTS_AT_A_TIME])
        for index, count in self._new.items():
            self._sums.add_(self._squares[index], alpha=count)
        self._new.clear()
        full, embedded = self._sums
        sums = local_sum(full, embedded, self._local_bound)
        return local_ratio(sums, self._scale).max()

    def _add_squares(self, indices: list[int]) -> None:
        """Keep the squares of new points while there is room, or sum them up."""
        # Filled in there: a list would be copied from the host.
        fill = partial(torch.full, (1,), device=self._scale.device)
        index = torch.cat([fill(point) for point in indices])
        squares = self._pool.squared_covariances(index)
        for point, square in zip(indices, squares, strict=True):
            if len(self._squares) < self._room:
                self._squares[point] = square
            else:
                self._sums.add_(square, alpha=self._new.pop(point))
