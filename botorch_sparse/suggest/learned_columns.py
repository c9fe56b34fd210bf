r"""What a strategy has learned, in numbers: how well it predicts, what columns do.

Predictions are checked by leaving out one measured row at a time, with all of its
measurements. The hyperparameters, the constant mean among them, stay those of all rows.

The share of a column is its total Sobol index by Jansen's estimator,

.. math:: T_j = \frac{\sum_i (\mu(x_i) - \mu(x_i^{(j)}))^2}
    {\sum_i (\mu(x_i) - \mu(x_i'))^2},

where :math:`x_i^{(j)}` is :math:`x_i` with column `j` of another row :math:`x_i'`: how
much of the differences between predictions is due to the column, alone or together with
others. Shares may add up to more than one. The same pairs are in both sums, so that the
share of a column that alone matters is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.kernels import TanimotoKernel
from botorch_sparse.posteriors import leave_one_out
from botorch_sparse.strategies import BBKB, ExpectedImprovement, ThompsonSampling
from botorch_sparse.suggest.candidate_pool import Matrix

# Strategies that learn a posterior of a table.
Learner: TypeAlias = BBKB | ExpectedImprovement | ThompsonSampling

# Rows that predictions are averaged over, at most, and numbers along a column.
NUM_AVERAGED, NUM_LEVELS = 400, 25
# Categories whose predictions are shown, at most: those with most rows.
MAX_BARS = 12
# Predictions that differ by less than this part of them are equal.
ROUNDING = 1e-9
# Of a normal distribution, so many standard deviations hold 95 percent.
NORMAL_95 = 1.96


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Measured rows, each predicted from all others.

    Attributes:
        rows: `n` rows of the table, those beside the pool behind it.
        measured: `n` means of what was measured.
        mean: `n` predicted means.
        ends: `2 x n` ends of the ranges that hold `measured` with 95 percent, its noise
            included.
    """

    rows: list[int]
    measured: Matrix
    mean: Matrix
    ends: Matrix

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def explained(self) -> float:
        """The coefficient of determination; NaN where all measured are equal."""
        spread = np.square(self.measured - self.measured.mean()).sum()
        error = np.square(self.measured - self.mean).sum()
        return float(1 - error / spread) if spread > 0 else float("nan")

    @property
    def num_within(self) -> int:
        """How many of the measured lie within the 95 percent range."""
        low, high = self.ends
        return int(((low <= self.measured) & (self.measured <= high)).sum())


@dataclass(frozen=True, eq=False)
class Effect:
    """The prediction along a column, averaged over rows with all else as it is.

    Attributes:
        levels: `l` numbers, ascending, or categories.
        means: `l x k` predicted means of the outcomes.
    """

    levels: Matrix | list[str]
    means: Matrix


def left_out(strategy: Learner, outcome: int) -> LeftOut:
    """Each measured row predicted from the others, in the units of the user.

    Empty where the outcome has no value yet.
    """
    view, record = strategy.surrogate.parts[outcome].view, strategy.record
    values, prior = record.folded(outcome=outcome), view.prior
    if view.posterior is None or not len(values):
        return LeftOut([], np.empty(0), np.empty(0), np.empty((2, 0)))
    Z = view.source.inputs(record.points(values.point))
    noise = prior.lam / values.counts
    Y = prior.standardize(values.Y)
    mean, variance = leave_one_out(view.posterior, Z, Y, noise)
    width = NORMAL_95 * (variance + noise).sqrt()
    ends = prior.restore(torch.stack([mean - width, mean + width]))
    signed = record.outcomes.signed
    return LeftOut(
        values.point.tolist(),
        signed(values.Y, outcome).numpy(),
        signed(prior.restore(mean), outcome).numpy(),
        signed(ends, outcome).sort(dim=0).values.numpy(),
    )


def column_names(strategy: Learner) -> list[str]:
    """The columns of the table, as `column_shares` and others count them."""
    return [str(spec.label) for spec in _specs(strategy)]


def column_shares(strategy: Learner) -> Matrix:
    """The shares of `p` columns in the predictions of `k` outcomes, `p x k`.

    Zeros where predictions differ by rounding alone.
    """
    X = _some_rows(strategy)
    mean, _ = predicted(strategy, X)
    differences = np.square(np.roll(mean, 1, axis=0) - mean).sum(axis=0)
    is_known = np.ptp(mean, axis=0) > ROUNDING * abs(mean).max(axis=0)
    spread = np.where(is_known, differences, np.inf)
    shares = []
    for spec in _specs(strategy):
        Z, part = X.clone(), slice(spec.start, spec.start + spec.width)
        Z[:, part] = X[:, part].roll(1, 0)
        shares.append(np.square(predicted(strategy, Z)[0] - mean).sum(axis=0) / spread)
    return np.array(shares)


def column_lengthscales(strategy: Learner, outcome: int) -> Matrix:
    r"""Lengthscales of `p` columns in units of their ranges; infinite for constants.

    Categories have one that stands for all: :math:`\ell^{-2}` is the mean over pairs of
    :math:`\ell_a^{-2} + \ell_b^{-2}`, the squared distance of two of them.
    """
    inverse = inverse_squares(strategy, outcome)
    squares = [
        inverse[spec.start : spec.start + spec.width].mean()
        * (1 if spec.categories is None else 2)
        for spec in _specs(strategy)
    ]
    with np.errstate(divide="ignore"):
        return 1 / np.sqrt(np.array(squares))


def inverse_squares(strategy: Learner, outcome: int) -> Matrix:
    """Inverse squared lengthscales of `d` encoded columns, in units of their ranges.

    Zero for those that do not vary, and for fingerprints of molecules.
    """
    view = strategy.surrogate.parts[outcome].view
    parts = view.prior.covar_module.modules()
    inverse = np.zeros(strategy.candidates.shape[-1])
    is_used, columns = np.ones(len(inverse), dtype=bool), view.source.inputs.columns
    if columns is not None:
        is_used[:] = False
        is_used[columns.numpy()] = True
    for block in strategy.domain.fingerprints:
        is_used[block] = False
    if is_used.any():
        kernel = next(k for k in parts if getattr(k, "has_lengthscale", False))
        inverse[is_used] = 1 / kernel.lengthscale.detach().flatten().square()
    return inverse


def molecule_weights(strategy: Learner, outcome: int) -> list[float]:
    """How much each column of molecules counts in the kernel, from 0 to 1."""
    modules = strategy.surrogate.parts[outcome].view.prior.covar_module.modules()
    kernels = [part for part in modules if isinstance(part, TanimotoKernel)]
    return [w for k in kernels for w in (k.weight.tolist() if k.blocks else [1.0])]


def column_effect(strategy: Learner, column: int) -> Effect:
    """The average prediction along a column from its least to its greatest value.

    Of a category with many values those with most rows are kept. There is none along
    molecules.
    """
    spec, X = _specs(strategy)[column], _some_rows(strategy)
    part = slice(spec.start, spec.start + spec.width)
    if spec.num_counts:
        return Effect([], np.empty((0, len(strategy.surrogate.parts))))
    own = strategy.candidates[:][:, part]
    if spec.categories is None:
        levels = own.unique()
        if len(levels) > NUM_LEVELS:
            ends = own.min(), own.max()
            levels = torch.linspace(*ends, NUM_LEVELS, dtype=own.dtype)
        return Effect(
            levels.numpy(), _averages(strategy, X, part, levels.unsqueeze(-1))
        )
    kept = own.sum(0).argsort(descending=True, stable=True)[:MAX_BARS].sort().values
    names = [str(spec.categories[place]) for place in kept.tolist()]
    return Effect(
        names, _averages(strategy, X, part, torch.eye(spec.width).to(own)[kept])
    )


def _averages(strategy: Learner, X: Tensor, part: slice, levels: Tensor) -> Matrix:
    """Average predictions with some encoded columns at `l` levels, `l x k`."""
    means = []
    for level in levels:
        Z = X.clone()
        Z[:, part] = level
        means.append(predicted(strategy, Z)[0].mean(axis=0))
    return np.array(means)


def _specs(strategy: Learner) -> Sequence[Any]:
    """How the columns of the table are encoded."""
    table = strategy.table
    return () if table is None else table.columns


def _some_rows(strategy: Learner) -> Tensor:
    """Rows of the table in random order; always the same ones."""
    g = torch.Generator().manual_seed(0)
    order = torch.randperm(len(strategy.candidates), generator=g)
    return strategy.candidates[order[:NUM_AVERAGED]]


def predicted(strategy: Learner, X: Tensor) -> tuple[Matrix, Matrix]:
    """Means and standard deviations of `q x d` rows, `q x k`."""
    both: Any = strategy.predict(X)  # it has learned
    mean, sd = (each.detach().cpu().numpy().reshape(len(X), -1) for each in both)
    return mean, sd
