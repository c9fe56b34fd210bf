"""Why rows are proposed: what is predicted, the chance to gain, and what is near.

Deviations are of the function; a measurement varies more, by its noise. Chances take
the outcomes as independent normal ones, and are of the function too: that it is better
at a row than the best value that was measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor

from botorch_sparse.strategies import (
    BBKB,
    Best,
    Constraint,
    ExpectedImprovement,
    Objective,
    ThompsonSampling,
)
from botorch_sparse.suggest.candidate_pool import Matrix, Pool
from botorch_sparse.suggest.outcome_options import Outcome
from botorch_sparse.suggest.results import Results

FIRST = "first batch, drawn at random"
SPREAD = "first batch, spread over the table"
ONLY = "the only row"
DRAWN = "drawn at random: few results yet"
EQUAL = "explores: all results are equal so far"
EXPLOITS = "exploits: "
EXPLORES = "explores: "
# Standard deviations to either side of the mean within which 95% are.
WIDTH = 1.96
# Columns that a row differs in, at most, and the least share of each in its distance.
MOST_COLUMNS, LEAST_SHARE = 3, 0.1
NUM_NEAREST = 2
# Draws of several outcomes, the same for all rows.
NUM_DRAWS = 1024
# Predicted mean and standard deviation of each outcome, and the reason.
Explanation: TypeAlias = tuple[str, ...]
# Strategies that learn a posterior of a table.
Learner: TypeAlias = BBKB | ExpectedImprovement | ThompsonSampling


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
    mean, sd = predicted(strategy, strategy.candidates[list(rows)])
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
        return self.strategy.history.indices.unique().tolist()

    @cached_property
    def front(self) -> Matrix:
        """`f x o` objectives of the measured front, larger ones better."""
        return signed(
            self.outcomes, self.strategy.history.pareto().values.cpu().numpy()
        )

    @cached_property
    def best(self) -> Best | None:
        """The best row; None for several objectives, or if no row has all outcomes."""
        Y = self.strategy.history.Y.reshape(-1, len(self.outcomes))
        is_single = sum(isinstance(o, Objective) for o in self.outcomes) == 1
        is_known = is_single and bool((~Y.isnan()).all(-1).any())
        return self.strategy.history.best() if is_known else None

    @cached_property
    def relevance(self) -> Tensor:
        """`d` squared units of the features: of the squared distance by the kernels.

        It is their mean over the outcomes. Zero for features that do not vary.
        """
        low, high = self.strategy.candidates.double().aminmax(dim=0)
        posteriors = self.strategy.posterior
        each = posteriors if isinstance(posteriors, tuple) else (posteriors,)
        kernels = [p.covar_module for p in each if p is not None]
        bases = [getattr(kernel, "base_kernel", kernel) for kernel in kernels]
        scales = [base.lengthscale.detach().reshape(-1).double() for base in bases]
        relevance, varies = torch.zeros_like(low), high > low
        mean = torch.stack([scale**-2 for scale in scales]).mean(0)
        relevance[varies] = mean / (high - low)[varies].square()
        return relevance

    def squares(self, rows: Sequence[int], row: int) -> Tensor:
        """Squared distances of some rows from one, `k x d`, by the kernels."""
        X = self.strategy.candidates
        return (X[list(rows)] - X[row]).double().square() * self.relevance

    def nearest(self, row: int) -> list[int]:
        """The measured rows, the nearest ones to a row first."""
        order = self.squares(self.rows, row).sum(-1).argsort(stable=True)
        return [self.rows[place] for place in order.tolist()]

    def differences(self, row: int, other: int) -> list[str]:
        """The columns that set a row apart from another, with both cells."""
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
        return self.results.points[row - len(self.pool)][name]

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
    outcomes, best = known.outcomes, known.best
    places = [i for i, o in enumerate(outcomes) if isinstance(o, Objective)]
    texts = list[str]()
    within = chance_within(outcomes, mean, sd)
    is_inside = bool(is_feasible(outcomes, mean[None])[0])
    if len(places) == 1:
        m, s = mean[places[0]], sd[places[0]]
        low, high = (f"{m + side * WIDTH * s:.4g}" for side in (-1, 1))
        text = f"predicted {m:.4g} ({low} to {high})"
        is_better = True
        if best is not None and best.is_feasible:
            chance = chance_beyond(outcomes[places[0]], best.value, m, s)
            text += f", best so far {best.value:.4g} ({known.name(best.row or 0)})"
            texts.append(f"{percent(chance)} chance to beat it")
            is_better = chance >= 0.5
        texts.insert(0, text)
    else:
        chance = chance_not_dominated(outcomes, known.front, mean, sd)
        texts.append(f"{percent(chance)} chance to belong to the front")
        is_better = not dominated(known.front, signed(outcomes, mean[None]))[0]
    if within is not None:
        texts.append(f"{percent(within)} chance to keep to all limits")
    return is_better and is_inside, texts


def predicted(strategy: Learner, X: Tensor) -> tuple[Matrix, Matrix]:
    """Means and standard deviations of `q x d` rows, `q x k`."""
    mean, sd = (
        value.detach().cpu().numpy().reshape(len(X), -1)
        for value in strategy.predict(X) or ()
    )
    return mean, sd


def signed(outcomes: Sequence[Outcome], values: Matrix) -> Matrix:
    """The objectives of `n x k` values, `n x o`, larger ones better."""
    columns = [
        -values[:, i] if outcome.minimize else values[:, i]
        for i, outcome in enumerate(outcomes)
        if isinstance(outcome, Objective)
    ]
    return np.stack(columns, axis=1)


def is_feasible(outcomes: Sequence[Outcome], values: Matrix) -> NDArray[np.bool_]:
    """Which of `n x k` values keep to all limits; those that are not known do."""
    keeps = np.ones(len(values), dtype=bool)
    for i, outcome in enumerate(outcomes):
        if isinstance(outcome, Constraint):
            low, high = outcome.range
            keeps &= ~((values[:, i] < low) | (values[:, i] > high))
    return keeps


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


def chance_beyond(outcome: Outcome, value: float, mean: float, sd: float) -> float:
    """The chance that an objective is better than a value."""
    is_small = isinstance(outcome, Objective) and outcome.minimize
    sign = -1.0 if is_small else 1.0
    return float(ndtr(sign * (mean - value) / sd))


def chance_not_dominated(
    outcomes: Sequence[Outcome], front: Matrix, mean: Matrix, sd: Matrix
) -> float:
    """The chance that a row is feasible and that no measured value dominates it.

    By `NUM_DRAWS` draws, the same for all rows.
    """
    draws = np.random.default_rng(0).standard_normal((NUM_DRAWS, len(mean)))
    Y = mean + np.nan_to_num(sd) * draws
    is_new = ~dominated(front, signed(outcomes, Y)) & is_feasible(outcomes, Y)
    return float(is_new.mean())


def dominated(front: Matrix, F: Matrix) -> NDArray[np.bool_]:
    """Which of `n x o` objectives are no better than one of `f x o` in any."""
    is_dominated = np.zeros(len(F), dtype=bool)
    for values in front:
        is_dominated |= (values >= F).all(axis=1)
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
