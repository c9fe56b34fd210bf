r"""What rows of a table cost, and what may be spent on them.

`ThompsonSampling` chooses, for a sample path `f`, the row with the largest gain for its
cost,

.. math:: \frac{f(x) - f^*}{c(x)^\alpha}, \qquad f^* = \max_{x' \text{ measured}} f(x'),

where a path is larger than at all measured points; else the one that maximizes
:math:`(f(x) - f^*) \, c(x)^\alpha`, which is negative. `ExpectedImprovement` divides by
:math:`c(x)^\alpha` too. Values of a lone objective are on the scale on which they are
modelled. With a budget the exponent is the share of it that is left,
from 1 to 0 ([Lee2020]_, cost-cooling); without one it is 1.

References:
    .. [Lee2020]
        E. H. Lee, V. Perrone, C. Archambeau and M. Seeger. Cost-aware Bayesian
        optimization. arXiv:2003.10870, 2020.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import as_numbers, check_number
from botorch_sparse.strategies.data.domain import rows_checksum

# By how much costs may exceed a budget, as a part of it: they may be of float32.
SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of the rows of a table, and a budget.

    Attributes:
        cost: `A` costs, positive, float64.
        budget: What may be spent in all; infinite for no limit.
    """

    cost: Tensor
    budget: float = math.inf

    @classmethod
    def of(cls, cost: Any, budget: float | None, num_rows: int) -> "Costs | None":
        """From arguments of a strategy; None for neither.

        Raises:
            InputDataError: If there are not as many costs as rows, or one is not a
                positive number; if the budget is none, or comes without costs.
        """
        if cost is None:
            if budget is None:
                return None
            raise InputDataError(
                f"Got budget={budget} without cost; need the cost of each candidate."
            )
        need = "need a positive number for each candidate of a table."
        values = as_numbers("cost", cost, need).double().cpu().clone()
        if values.shape != (num_rows,) or not num_rows:
            raise InputDataError(
                f"Got cost of shape {tuple(values.shape)} for {num_rows} rows; {need}"
            )
        is_sound = values.isfinite() & (values > 0)
        if not bool(is_sound.all()):
            row = int((~is_sound).nonzero()[0])
            raise InputDataError(f"Got cost {float(values[row])} of row {row}; {need}")
        if budget is None:
            return cls(values)
        check_number("budget", budget, "(0, inf)")
        return cls(values, float(budget))

    def spent(self, points: Tensor) -> float:
        """What evaluations of some points cost; points beside the table are free."""
        return float(self.cost[points[points < len(self.cost)]].sum())

    def left(self, points: Tensor) -> float:
        """What may be spent after evaluations of some points."""
        return self.budget - self.spent(points)

    def price(self, points: Tensor) -> Tensor:
        r"""`A` values of :math:`c^\alpha`, after evaluations of some points."""
        alpha = 1.0
        if self.budget < math.inf:
            alpha = max(self.left(points), 0.0) / self.budget
        return self.cost**alpha

    def beyond(self, points: Tensor) -> list[int]:
        """The rows that cost more than what is left, ascending."""
        if self.budget == math.inf:
            return []
        most = self._most(self.left(points))
        rows: list[int] = (self.cost > most).nonzero().squeeze(-1).tolist()
        return rows

    def affordable(self, rows: Sequence[int], points: Tensor) -> list[int]:
        """Those of some rows that can all be paid, the first ones first."""
        left, chosen = self.left(points), list[int]()
        for row in rows:
            cost = float(self.cost[row])
            if cost <= self._most(left):
                chosen.append(row)
                left -= cost
        return chosen

    def _most(self, left: float) -> float:
        """What an evaluation may cost where so much is left."""
        return left + SLACK * self.budget

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        return {"cost": rows_checksum(self.cost), "budget": self.budget}
