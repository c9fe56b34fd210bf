r"""What is better of several outcomes: feasible points first, then their objectives.

A set of points is as good as its *dominated hypervolume*: the volume of all values that
some point of it reaches, above a *reference point*. Random scalarizations make of it a
number for each point ([ZhangGolovin2020]_): with reference point :math:`r`, `o`
objectives and :math:`\lambda` uniform on the positive part of the unit sphere, the
expectation of

.. math:: s_\lambda(y) = \min_i \max(0, (y_i - r_i) / \lambda_i)^o,

maximized over a set, is its hypervolume up to a known constant. Between two points the
power and the zero decide nothing, so that they are left out: a point below the
reference point still counts by how far below it is.

Constraints come first ([Eriksson2021]_): any feasible point is better than
any other, and of two points that are not the one with the smaller total violation, in
standard deviations, is better.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from botorch.utils.multi_objective.box_decompositions import DominatedPartitioning
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from botorch_sparse.strategies.data.outcomes import Objective, Outcomes
from botorch_sparse.strategies.data.run_record import RunRecord

# With several objectives, the part of the points that sample paths choose.
EXPLORED = 0.25
# The reference point that is inferred: this quantile of so many first points. Beyond so
# many points scalarizations start lower, at the quantile times that over their number.
QUANTILE, FIRST_POINTS, FALLS_FROM = 0.25, 20, 50


@dataclass(frozen=True, eq=False)
class Preference:
    """An order of values of `k` outcomes, objectives in the sign that is maximized.

    Attributes:
        outcomes: What is wanted.
        reference: `o` values of the objectives that count for nothing.
        low: `o` values that scalarizations start from.
        scale: `o` units of the objectives, positive.
        spread: `c` units of the constraints, positive.
    """

    outcomes: Outcomes
    reference: Tensor
    low: Tensor
    scale: Tensor
    spread: Tensor

    @classmethod
    def of(cls, record: RunRecord, size: int | None = None) -> "Preference":
        """The preference that a record's outcomes state, in units of what was measured.

        Scalarizations start from the reference point. Where it is inferred they start
        lower as there are more points, towards the least value of each objective among
        the first ones: the middle of the front is looked for first, and then its ends.
        Objectives are in units of how far the best value is above that, constraints in
        standard deviations. O(n_u) and a sort for each objective.

        Args:
            record: What was measured.
            size: Look at the first reports alone; None for all.
        """
        outcomes = record.outcomes
        Y = record.means(size)[1]
        low = first_quantile(
            outcomes, Y, QUANTILE * min(1, FALLS_FROM / max(1, len(Y)))
        )
        best = _at_best(Y[:, list(outcomes.objectives)])
        scale = _positive(best - low, _spread(Y[:, list(outcomes.objectives)]))
        spread = _spread(Y[:, list(outcomes.constraints)])
        return cls(outcomes, reference_point(outcomes, Y), low, scale, spread)

    @classmethod
    def stated(cls, outcomes: Outcomes) -> "Preference":
        """The preference before any feedback, in the outcomes' own units.

        The reference point has the thresholds, and zero where there is none.
        """
        reference = reference_point(outcomes, torch.empty(0, len(outcomes)).double())
        ones = torch.ones(len(outcomes), dtype=torch.double)
        units = ones[list(outcomes.objectives)], ones[list(outcomes.constraints)]
        return cls(outcomes, reference, reference, *units)

    def draw_weights(
        self, num: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """`num x o` points of the positive part of the unit sphere.

        By a generator, or else by torch's own, which threads share.
        """
        shape = num, len(self.outcomes.objectives)
        normal = torch.randn(shape, generator=generator, dtype=torch.double)
        return normal.abs() / normal.norm(dim=-1, keepdim=True)

    def draw_spread(self, num: int) -> Tensor | None:
        """`num` factors of how far paths are from the means, by torch's draws.

        With several objectives three of four points, drawn at random, go by the means
        alone: a point has to be good on `o` paths at once, and paths differ from the
        means more often together than one does. None for one objective.
        """
        if len(self.outcomes.objectives) == 1:
            return None
        return (torch.rand(num, dtype=torch.double) < EXPLORED).double()

    def value(self, Y: Tensor, weights: Tensor, smoothing: float = 0.0) -> Tensor:
        """Random scalarizations of `... x k` values, `...`.

        Args:
            Y: Values; NaN for outcomes that are not known, which are left out.
            weights: `... x o`.
            smoothing: Within so much of the smallest term others count too, for
                gradients; the value is lower by at most `smoothing * log(o)`.
        """
        unit = 1 / (self.scale * weights.to(self.scale)).to(Y)
        terms = [
            (Y[..., column] - low) * unit[..., i]
            for i, (column, low) in enumerate(
                zip(self.outcomes.objectives, self.low.tolist(), strict=True)
            )
        ]
        if smoothing == 0.0:
            return reduce(torch.fmin, terms)  # the other one where one is NaN
        known = torch.stack(terms).nan_to_num(torch.inf, posinf=torch.inf)
        return -smoothing * (-known / smoothing).logsumexp(0)

    def violation(self, Y: Tensor, margin: float = 0.0) -> Tensor:
        """Total violation of `... x k` values in standard deviations, `...`.

        Outcomes that are not known (NaN) violate nothing.

        Args:
            Y: Values.
            margin: How far inside of its limits an outcome has to be.
        """
        return self.outcomes.violations(Y, self.spread.to(Y), margin)

    def attained(self, Y: Tensor) -> tuple[float, float]:
        """How good `n x k` values are together; those with NaN are left out.

        Returns:
            The least total violation, infinite without values; and of what is feasible
            the largest value of the objective, minus infinity for none, or the
            dominated hypervolume of several.
        """
        Y = Y[~Y.isnan().any(-1)]
        violation = self.violation(Y)
        F = Y[violation <= 0][:, list(self.outcomes.objectives)]
        if F.shape[-1] > 1:
            value = dominated_hypervolume(F, self.reference)
        else:
            value = float(F.max()) if len(F) else -math.inf
        return float(violation.min()) if len(Y) else math.inf, value

    def levels(self, Y: Tensor, weights: Tensor) -> list[Tensor]:
        """What sample paths maximize, level by level; see `path_maximizers`.

        Args:
            Y: `b x q x k` values.
            weights: `b x o`, a scalarization for each path.

        Returns:
            One `b x q` tensor without constraints. With some there are two: values
            where a candidate is feasible, and minus the violation where it is not.
        """
        value = self.value(Y, weights.unsqueeze(-2))
        if not self.outcomes.constraints:
            return [value]
        violation = self.violation(Y)
        is_feasible = violation <= 0
        inside = value.masked_fill(~is_feasible, -torch.inf)
        return [inside, (-violation).masked_fill(is_feasible, -torch.inf)]


def reference_point(outcomes: Outcomes, Y: Tensor) -> Tensor:
    """The objectives' thresholds; where one is not given, inferred from the first data.

    That is the quartile of the first `FIRST_POINTS` points, which cover the space where
    nothing was told before: a quarter of them is worse. It stands still after them, so
    that hypervolumes of one run can be compared, unless these points are repeated or
    what they lacked is told. `benchmarks/RESULTS.md` has other points beside it.

    Args:
        outcomes: What is wanted.
        Y: `n x k` means of what was measured, in the order of the first feedback; NaN
            for unknown.

    Returns:
        `o` values in the sign that is maximized.
    """
    return first_quantile(outcomes, Y, QUANTILE)


def first_quantile(outcomes: Outcomes, Y: Tensor, quantile: float) -> Tensor:
    """Thresholds, and another quantile in `reference_point` where one is not given."""
    goals = [o.goal for o in outcomes.parts if isinstance(o, Objective)]
    known = [torch.nan if goal is None else goal for goal in goals]
    given = torch.tensor(known, dtype=torch.double)
    columns = [
        column[~column.isnan()][:FIRST_POINTS]
        for column in Y[:, list(outcomes.objectives)].unbind(-1)
    ]
    worst = [c.quantile(quantile) if len(c) else c.new_zeros(()) for c in columns]
    return given.where(~given.isnan(), torch.stack(worst))


def feasible_front(outcomes: Outcomes, Y: Tensor) -> Tensor:
    """Places of the `n x k` values that are feasible and not dominated; ascending.

    Values with an outcome that is not known are left out.
    """
    is_feasible = outcomes.violations(Y) <= 0
    places = (is_feasible & ~Y.isnan().any(-1)).nonzero().squeeze(-1)
    F = Y[places][:, list(outcomes.objectives)]
    return places[is_non_dominated(F, deduplicate=False)]


def dominated_hypervolume(F: Tensor, reference: Tensor) -> float:
    """The volume that `f x o` values dominate above `o` values of a reference point."""
    reference = reference.to(F)
    F = F[(F > reference).all(-1)]
    if len(F) == 0:
        return 0.0
    if F.shape[-1] == 1:
        return float(F.max() - reference)
    return float(DominatedPartitioning(reference, F).compute_hypervolume())


def hypervolumes(
    outcomes: Outcomes, point: Sequence[int], Y: Tensor, reference: Tensor
) -> Tensor:
    """The hypervolume of the feasible front after each of `n` evaluations, `n`.

    A point that is new adds what its own box has beyond the others.

    Args:
        outcomes: What is wanted.
        point: `n` numbers of the points; those of equal ones are averaged.
        Y: `n x k` values of what is maximized; NaN for unknown.
        reference: `o` values that count for nothing.
    """
    columns = list(outcomes.objectives)
    front, volume, volumes = Y.new_empty(0, len(columns)), 0.0, list[float]()
    observed, means = dict[int, list[Tensor]](), dict[int, Tensor]()
    for number, y in zip(point, Y, strict=True):
        before = means.get(number)
        observed.setdefault(number, []).append(y)
        mean = means[number] = torch.stack(observed[number]).nanmean(0)
        new = _above(outcomes, mean.unsqueeze(0), reference)
        if before is not None and bool((front == before[columns]).all(-1).any()):
            front = _above(outcomes, torch.stack([*means.values()]), reference)
            volume = dominated_hypervolume(front, reference)
        elif len(new) and not bool((front >= new).all(-1).any()):
            volume += float((new - reference).prod())
            volume -= dominated_hypervolume(front.minimum(new), reference)
            front = torch.cat([front[~(front <= new).all(-1)], new])
        volumes.append(volume)
    return torch.tensor(volumes, dtype=torch.double)


def _above(outcomes: Outcomes, Y: Tensor, reference: Tensor) -> Tensor:
    """The objectives of the feasible front of `n x k` values above a point."""
    F = Y[feasible_front(outcomes, Y)][:, list(outcomes.objectives)]
    return F[(F > reference).all(-1)]


def _at_best(Y: Tensor) -> Tensor:
    """The largest value of each column that is known; 0 where none is."""
    best = Y.nan_to_num(-torch.inf).amax(0) if len(Y) else Y.new_zeros(Y.shape[-1])
    return best.where(best.isfinite(), 0.0)


def _spread(Y: Tensor) -> Tensor:
    """The standard deviation of each column; 1 where that is not known, or zero."""
    columns = [column[~column.isnan()] for column in Y.unbind(-1)]
    spreads = [float(c.std()) if len(c) > 1 else 0.0 for c in columns]
    return torch.tensor([s if s > 0 else 1.0 for s in spreads], dtype=torch.double)


def _positive(values: Tensor, otherwise: Tensor) -> Tensor:
    """Values that are positive, and others where they are not."""
    return values.where(values > 0, otherwise)
