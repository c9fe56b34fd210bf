r"""A batch that is chosen by confidence bounds on several outcomes together.

Each outcome has a batch of its own, whose points shrink its variances by its own
rank-one updates, and bounds :math:`l_j(x) \le f_j(x) \le u_j(x)` with a radius of its
own. A point is *optimistically feasible* if each constraint's bounds reach its limits.
Among these points the next one maximizes a random scalarization
:math:`s_\lambda(u(x))` of the objectives' upper bounds, with a new :math:`\lambda` for
each point ([Xu2023]_ Algorithm 1 with one objective, [ZhangGolovin2020]_ for several).
Where no point is optimistically feasible, the smallest total violation decides.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.ratios import LocalBound
from botorch_sparse.batching.acquisition_batch import BoxBatch
from botorch_sparse.batching.rules import (
    ContinueFunction,
    GrowingBatch,
    always_continue,
)
from botorch_sparse.pools.table_batch import TableBatch
from botorch_sparse.strategies.local_maximization import of_points
from botorch_sparse.strategies.surrogates.box_posterior import joint_maximizers
from botorch_sparse.strategies.surrogates.surrogate import JointOutcomes


class Width(NamedTuple):
    """How far bounds are from the mean.

    Attributes:
        multiplier: What multiplies the standard deviation.
        offset: What is added to that, in units of the prior's scale.
    """

    multiplier: float
    offset: float = 0.0


class JointBatch(GrowingBatch):
    """The batches of `k` outcomes as one, which ends when the first of them ends.

    As a view for rules it is as far as the outcome whose variances have shrunk most;
    variances are in units of the noise.

    Args:
        joint: The outcomes, and what is wanted of them.
        widths: `k` of them; None for an outcome that has learned nothing.
        draw_weights: The `1 x o` weights of a point of the batch, by its place there.
        batches: `k` batches of the same points; None for an outcome without data.
    """

    def __init__(
        self,
        joint: JointOutcomes,
        widths: Sequence[Width | None],
        draw_weights: Callable[[int], Tensor],
        batches: Sequence[GrowingBatch | None],
    ) -> None:
        super().__init__(1.0, None)
        self.joint, self.widths, self.draw_weights = joint, widths, draw_weights
        self.batches = tuple(batches)
        self.known = tuple(batch for batch in batches if batch is not None)

    def _best_values(self, bounds: "Sequence[tuple[Tensor, Tensor] | None]") -> Tensor:
        """The best values between bounds in the feedback's units, `1 x q x k`.

        Args:
            bounds: For each outcome means of `q` points, and these with a multiple of
                the standard deviation on top; in the views' units, None without data.
        """
        lower, upper = list[Tensor | None](), list[Tensor | None]()
        for each, width in zip(bounds, self.widths, strict=True):
            if each is None or width is None:
                lower.append(None)
                upper.append(None)
            else:
                mean, bound = each[0].double(), each[1].double() + width.offset
                lower.append((2.0 * mean - bound).unsqueeze(0))
                upper.append(bound.unsqueeze(0))
        outcomes = self.joint.preference.outcomes
        return outcomes.best_between(self.joint.stack(lower), self.joint.stack(upper))

    @override
    def append(self, row: int) -> None:
        for batch in self.known:
            batch.append(row)
        self.rows.append(row)
        self.variances.append(max(b.variances[-1] / b.noise for b in self.known))
        before = [b.variances_before[-1] / b.noise for b in self.known]
        self.variances_before.append(max(before))
        self.sum_ratio_before = self.sum_ratio
        self.sum_ratio = max(batch.sum_ratio for batch in self.known)
        self.product_ratio = max(batch.product_ratio for batch in self.known)

    @property
    @override
    def is_exhausted(self) -> bool:
        return all(batch.is_exhausted for batch in self.known)

    @override
    def is_over(self) -> bool:
        return any(batch.is_over() for batch in self.known)

    @override
    def _largest_local(self, covariance: LocalBound, threshold: float) -> float:
        bounds = [batch.local_ratio(covariance, threshold) for batch in self.known]
        return max(map(float, bounds))

    @property
    def weights(self) -> Tensor:
        """The scalarization of the next point, `1 x o`."""
        return self.draw_weights(self.size)


# Rows whose bounds are refreshed first; later blocks double.
FIRST_BLOCK = 256


class JointTableBatch(JointBatch):
    """Points among the rows of a table, the lowest of equals.

    Stale bounds are wider than those with all pending points, so that a row is no
    better than they say: the best row is known once it is one of those refreshed.

    Cost of a point: O(A k), and O(m) for each outcome of the rows that are refreshed.
    """

    batches: tuple[TableBatch | None, ...]  # type: ignore[assignment]
    known: tuple[TableBatch, ...]  # type: ignore[assignment]

    @override
    @torch.no_grad()
    def argmax(self) -> int:
        weights = self.weights
        levels = self._levels([batch.stale_values() for batch in self.known], weights)
        is_fresh = torch.zeros_like(levels[0], dtype=torch.bool)
        size = FIRST_BLOCK
        while not is_fresh[best := int(_first_level(levels).argmax())]:
            behind = _first_level(levels).masked_fill(is_fresh, -torch.inf)
            rows = behind.topk(min(size, len(behind))).indices
            uppers = [batch.refresh(rows) for batch in self.known]
            levels[:, rows] = self._levels(uppers, weights, rows)
            is_fresh[rows] = True
            size *= 2
        return self._best_of_ranks(levels[:, best], best)

    def _levels(
        self, uppers: list[Tensor], weights: Tensor, rows: Tensor | None = None
    ) -> Tensor:
        """What is maximized level by level, `l x a`; minus infinity where closed.

        Args:
            uppers: Upper bounds of the outcomes with data.
            weights: The scalarization.
            rows: Whose bounds they are; None for all rows.
        """
        rest = iter(uppers)
        bounds = list[tuple[Tensor, Tensor] | None]()
        for batch in self.batches:
            mean = None if batch is None else batch.points.all_moments().mean
            if mean is None:
                bounds.append(None)
            else:
                mean = mean if rows is None else mean[rows]
                bounds.append((mean, next(rest)))
        Y = self._best_values(bounds)
        levels = torch.cat(self.joint.preference.levels(Y, weights.to(Y.device)))
        levels = levels.where(~levels.isnan(), 0.0)  # of no objective that is known
        return levels.where(uppers[0] > -torch.inf, -torch.inf)

    def _best_of_ranks(self, levels: Tensor, row: int) -> int:
        """The best of all ranks' best rows; of equals the lowest."""
        shard = self.known[0].points.shard
        is_there = shard.ranks.max(levels) > -torch.inf
        level = levels[int(is_there.int().argmax())]
        return shard.ranks.argmax(float(level), shard.start + row)


def _first_level(levels: Tensor) -> Tensor:
    """Of `l x a` the first level in which there is something, `a`."""
    return levels[int((levels.amax(-1) > -torch.inf).int().argmax())]


class JointBoxBatch(JointBatch):
    """Points of a box, each by `optimize_acqf`: O(m^2) for each outcome and look."""

    batches: tuple[BoxBatch | None, ...]  # type: ignore[assignment]
    known: tuple[BoxBatch, ...]  # type: ignore[assignment]

    @override
    def choose(
        self, limit: int, continues: ContinueFunction = always_continue
    ) -> list[int]:
        return super().choose(self.known[0].most_of(limit), continues)

    @override
    def argmax(self) -> int:
        first, preference = self.known[0], self.joint.preference

        def values(X: Tensor, number: Tensor) -> Tensor:
            return self._values(X)[0]

        def search(function: Callable[[Tensor, Tensor], Tensor], **more: Any) -> Tensor:
            acqf = of_points(lambda X: function(X, torch.zeros(len(X)).long()))
            X, _ = first.maximizers(acqf, return_best_only=False, **more)
            return X.squeeze(-2).unsqueeze(0)

        X = joint_maximizers(values, preference, self.weights, search)
        row = first.add(X)
        for batch in self.known[1:]:
            batch.add(X, row)
        return row

    def _values(self, X: Tensor) -> Tensor:
        """The best values between bounds at `q x d` points, `1 x q x k`."""
        bounds = list[tuple[Tensor, Tensor] | None]()
        for batch, width in zip(self.batches, self.widths, strict=True):
            if batch is None or width is None:
                bounds.append(None)
                continue
            assert isinstance(batch.acqf, BatchUpperConfidenceBound)
            f = batch.frozen.features(X)
            variance = batch.frozen.present_variance(f)
            mean, sd = batch.acqf.moments(X, f, variance)
            bounds.append((mean, mean + width.multiplier * sd))
        return self._best_values(bounds)
