"""Why rows are proposed: what is predicted, the chance to gain, and what is near.

Deviations are of the function; a measurement varies more, by its noise. Chances and
ranges take the outcomes as independent normal ones on the scales on which they are
modelled. They are of the function too: that it is better at a row than the best value
that was measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from botorch_sparse.command_line.csv_cells import number
from botorch_sparse.kernels import TanimotoKernel, dense_covariance
from botorch_sparse.strategies import Best, Constraint, History
from botorch_sparse.suggest.candidate_pool import Matrix, Pool
from botorch_sparse.suggest.learned_columns import (
    NORMAL_95,
    Learner,
    inverse_squares,
    molecule_weights,
    predicted,
)
from botorch_sparse.suggest.outcome_options import Outcome
from botorch_sparse.suggest.results import Results

FIRST = "first batch, drawn at random"
SPREAD = "first batch, spread over the table"
PROMISING = "first batch, among the best by earlier campaigns"
ONLY = "the only row"
DRAWN = "not chosen by the results: there are few yet"
EQUAL = "explores: all results are equal so far"
EXPLOITS = "exploits: "
EXPLORES = "explores: "
# Columns that a row differs in, at most, and the least share of each in its distance.
MOST_COLUMNS, LEAST_SHARE = 3, 0.1
NUM_NEAREST = 2
# Draws of several outcomes, by the same deviations for all rows.
NUM_DRAWS = 1024
# Predicted mean and standard deviation of each outcome, and the reason.
Explanation: TypeAlias = tuple[str, ...]


def explain(
    strategy: Learner,
    pool: Pool,
    results: Results,
    rows: Sequence[int],
    num_drawn: int,
) -> list[Explanation]:
    """Predicted mean and standard deviation of each outcome, and the reason, for rows.

    Args:
        strategy: It has learned the results.
        pool: The candidates.
        results: The measurements so far.
        rows: `q` rows of the pool.
        num_drawn: How many of the first of them were not chosen by the model.
    """
    if not rows:
        return []
    mean, sd = predicted(strategy, strategy.candidates[torch.tensor(rows)])
    known = _Measured(strategy, pool, results)
    has_data = (
        ~strategy.history.Y.reshape(-1, len(pool.outcomes)).isnan().all(0).numpy()
    )
    explained = []
    for place, (row, m, s) in enumerate(zip(rows, mean, sd, strict=True)):
        reason = DRAWN if place < num_drawn else _reason(known, row, m, s)
        shown = (
            text if is_known else ""
            for *pair, is_known in zip(m, s, has_data, strict=True)
            for text in shown_prediction(*pair)
        )
        explained.append((*shown, reason))
    return explained


@dataclass(frozen=True, eq=False)
class _Measured:
    """What is known, for rows to be compared with.

    Attributes:
        strategy: It has learned all results.
        pool: The candidates.
        results: The measurements.
    """

    strategy: Learner
    pool: Pool
    results: Results

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What is measured."""
        return self.pool.outcomes

    @cached_property
    def rows(self) -> list[int]:
        """The different rows of the table that were measured."""
        return self.history.indices.unique().tolist()

    @property
    def history(self) -> History:
        """All measurements."""
        return self.strategy.history

    @cached_property
    def front(self) -> Tensor:
        """`f x k` values of the measured front."""
        return self.history.pareto().values.cpu().double()

    @cached_property
    def best(self) -> Best | None:
        """The best row; None for several objectives, or if no row has all outcomes."""
        Y = self.history.Y.reshape(-1, len(self.outcomes))
        is_single = len(self.history.outcomes.objectives) == 1
        is_known = is_single and bool((~Y.isnan()).all(-1).any())
        return self.history.best() if is_known else None

    @cached_property
    def relevance(self) -> Tensor:
        """`d` squared units of the features: of the squared distance by the kernels.

        It is their mean over the outcomes. Zero for features that do not vary.
        """
        low, high = self.strategy.domain.ranges
        learned = [
            inverse_squares(self.strategy, place)
            for place, part in enumerate(self.strategy.surrogate.parts)
            if part.posterior is not None
        ]
        span = (high - low).where(high > low, torch.inf)
        return torch.from_numpy(np.mean(learned, axis=0)) / span.square().cpu()

    @cached_property
    def molecule_weights(self) -> list[float]:
        """What fingerprints count, the mean over the outcomes."""
        learned = [
            molecule_weights(self.strategy, place)
            for place, part in enumerate(self.strategy.surrogate.parts)
            if part.posterior is not None
        ]
        return list(map(float, np.mean(learned, axis=0)))

    def at_deviations(
        self, place: int, mean: float, sd: float, number: Matrix
    ) -> Matrix:
        """Values of an outcome that are so many deviations better than predicted."""
        signed = self.history.outcomes.signed
        m, s = torch.tensor([signed(mean, place), sd], dtype=torch.double)
        prior = self.strategy.surrogate.parts[place].view.prior
        values = prior.at_deviations(m, s, torch.from_numpy(number))
        return signed(values, place).numpy()

    def deviations(self, place: int, mean: float, sd: float, value: float) -> float:
        """How many deviations a value of an outcome is better than predicted."""
        signed = self.history.outcomes.signed
        ends = [signed(mean, place), sd, signed(value, place)]
        prior = self.strategy.surrogate.parts[place].view.prior
        return float(prior.deviations(*torch.tensor(ends, dtype=torch.double)))

    def squares(self, rows: Sequence[int], row: int) -> Tensor:
        """Squared distances of some rows from one, `k x d`, by the kernels.

        That of fingerprints, twice their weight by what similarity lacks to one, stands
        in the first of their columns.
        """
        X = self.strategy.candidates
        Z, x = X[torch.tensor(rows)], X[row]
        squares = (Z - x).double().square().cpu() * self.relevance
        for block, weight in zip(
            self.strategy.domain.fingerprints, self.molecule_weights, strict=True
        ):
            likeness = dense_covariance(TanimotoKernel(), Z[:, block], x[None, block])
            squares[:, block.start] = 2 * weight * (1 - likeness[:, 0].cpu())
        return squares

    def nearest(self, row: int) -> list[int]:
        """The measured rows, the nearest ones to a row first."""
        order = self.squares(self.rows, row).sum(-1).argsort(stable=True)
        return [self.rows[place] for place in order.tolist()]

    def differences(self, row: int, other: int) -> list[str]:
        """The columns that set a row apart from another, with both cells."""
        if len(self.pool.features) == len(self.pool.smiles) == 1:
            return []  # of two molecules their texts say little
        squares = self.squares([other], row)[0]
        parts = {
            str(column.label): float(squares[column.start :][: column.width].sum())
            for column in self.strategy.table.columns  # type: ignore[union-attr]
        }
        total = sum(parts.values())
        largest = sorted(parts, key=lambda name: -parts[name])[:MOST_COLUMNS]
        return [
            f"{name} {self._cell(row, name)} for {self._cell(other, name)}"
            for name in largest
            if parts[name] >= LEAST_SHARE * total > 0
        ]

    def _cell(self, row: int, name: str) -> str:
        """A cell as the user wrote it."""
        if row < len(self.pool):
            return str(self.pool.text.typed[name].iat[row]).strip()
        return self.with_mark(self.results.points[row - len(self.pool)][name])

    def shown(self, value: float) -> str:
        """A number with four digits."""
        return self.with_mark(f"{value:.4g}")

    def with_mark(self, cell: str) -> str:
        """A number with the decimal mark of the candidates; other cells unchanged."""
        is_other = self.pool.text.has_commas and number(cell) is not None
        return cell.replace(".", ",") if is_other else cell

    def name(self, row: int) -> str:
        """A row by its key or number; results beside the pool by their line."""
        if row >= len(self.pool):
            return self.results.beside[row - len(self.pool)]
        if self.pool.key is None:
            return f"row {row + 1}"
        return self.pool.text.columns[self.pool.key][row]


def _reason(known: _Measured, row: int, mean: Matrix, sd: Matrix) -> str:
    """Why a row is proposed, in parts that are separated by semicolons."""
    if np.isnan(sd).all():  # nothing says its unit yet
        return EQUAL
    gains, parts = _prospects(known, mean, sd)
    nearest = known.nearest(row)
    reference = nearest[0] if known.best is None else known.best.row or 0
    if columns := known.differences(row, reference):
        parts.append(f"unlike {known.name(reference)}: {', '.join(columns)}")
    names = ", ".join(map(known.name, nearest[:NUM_NEAREST]))
    parts.append(f"nearest measured: {names}")
    return (EXPLOITS if gains else EXPLORES) + "; ".join(parts)


def _prospects(known: _Measured, mean: Matrix, sd: Matrix) -> tuple[bool, list[str]]:
    """Whether the means alone are a gain, and texts: the prediction and chances."""
    outcomes = known.history.outcomes
    if len(outcomes.objectives) == 1:
        is_better, texts = _prospects_of_one(known, mean, sd)
    else:
        draws = np.random.default_rng(0).standard_normal((NUM_DRAWS, len(mean)))
        columns = zip(mean, np.nan_to_num(sd), draws.T, strict=True)
        Y = [known.at_deviations(i, *each) for i, each in enumerate(columns)]
        chance = chance_not_dominated(outcomes, known.front, np.stack(Y, axis=-1))
        texts = [f"{percent(chance)} chance to belong to the front"]
        means = torch.from_numpy(mean).unsqueeze(0)
        is_better = not bool(dominated(outcomes, known.front, means))
    within = chance_within(known.outcomes, mean, sd)
    if within is not None:
        texts.append(f"{percent(within)} chance to keep to all limits")
    is_inside = bool(outcomes.violations(torch.from_numpy(mean)) <= 0)
    return is_better and is_inside, texts


def _prospects_of_one(
    known: _Measured, mean: Matrix, sd: Matrix
) -> tuple[bool, list[str]]:
    """The same of one objective, without the limits."""
    (place,) = known.history.outcomes.objectives
    m, s = float(mean[place]), float(sd[place])
    if math.isnan(s):  # no two of its values differ
        return False, []
    ends = known.at_deviations(place, m, s, NORMAL_95 * np.array([-1.0, 1.0]))
    low, high = map(known.shown, sorted(ends))
    text, best = f"predicted {known.shown(m)} ({low} to {high})", known.best
    if best is None or not best.is_feasible:
        return True, [text]
    chance = float(ndtr(-known.deviations(place, m, s, best.value)))
    text += f", best so far {known.shown(best.value)} ({known.name(best.row or 0)})"
    return chance >= 0.5, [text, f"{percent(chance)} chance to beat it"]


def chance_within(
    outcomes: Sequence[Outcome], mean: Matrix, sd: Matrix
) -> float | None:
    """The chance that a row keeps to all limits; None without limits."""
    chances = list[float]()
    for outcome, m, s in zip(outcomes, mean, sd, strict=True):
        if isinstance(outcome, Constraint) and not math.isnan(s):
            low, high = outcome.range
            chances.append(float(ndtr((high - m) / s) - ndtr((low - m) / s)))
    return math.prod(chances) if chances else None


def chance_not_dominated(outcomes: Any, front: Tensor, values: Matrix) -> float:
    """The chance that a row is feasible and that no measured value dominates it.

    By draws of its values, `n x k`. The outcomes are those of a history.
    """
    Y = torch.from_numpy(values)
    is_new = ~dominated(outcomes, front, Y) & (outcomes.violations(Y) <= 0)
    return float(is_new.double().mean())


def dominated(outcomes: Any, front: Tensor, Y: Tensor) -> Tensor:
    """Which of `n x k` values are no better in any objective than one of `f x k`."""
    columns = list(outcomes.objectives)
    F = outcomes.signed_rows(Y)[:, columns]
    is_dominated = torch.zeros(len(F), dtype=torch.bool)
    for values in outcomes.signed_rows(front)[:, columns]:
        is_dominated |= (values >= F).all(-1)
    return is_dominated


def percent(chance: float) -> str:
    """A chance as a text, which is never quite none nor all."""
    if chance < 0.01:
        return "less than 1%"
    if chance > 0.99:
        return "more than 99%"
    return f"{100 * chance:.0f}%"


def shown_prediction(mean: float, sd: float) -> tuple[str, str]:
    """A mean and its standard deviation as texts; nothing for one that is not known."""
    if math.isnan(sd):
        return f"{mean:.6g}", ""
    return f"{mean:.{_digits(mean, sd)}g}", f"{sd:.6g}"


def _digits(mean: float, sd: float) -> int:
    """Significant digits of a mean: six, or three of its standard deviation."""
    if not (mean and sd):
        return 6
    return min(max(6, math.ceil(math.log10(abs(mean)) - math.log10(sd)) + 3), 17)
