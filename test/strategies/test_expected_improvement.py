"""Expected improvement on tables, against a dense GP and numerical integrals."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from scipy.integrate import quad
from scipy.stats import norm
from strategy_table import make_candidates, make_kernel, objective
from torch import Tensor

from botorch_sparse.pools import nystrom_pool
from botorch_sparse.strategies import (
    Constraint,
    ExpectedImprovement,
    Objective,
    ThompsonSampling,
    expected_improvement,
    model_strategy,
)

LAM = 1e-2
X = make_candidates(80)
TOLD = torch.arange(0, 80, 7)
COST = 1.0 + 5.0 * torch.rand(80, generator=torch.Generator().manual_seed(3)).double()


class DenseGP:
    """A zero-mean GP with a constant by generalized least squares, all rows at once."""

    def __init__(self, rows: Tensor, y: Tensor) -> None:
        self.K = make_kernel()(X).to_dense().detach().numpy()
        self.rows, one = rows.numpy(), np.ones(len(rows))
        weights = np.linalg.inv(self.gram(self.rows))
        constant = one @ weights @ y.numpy() / (one @ weights @ one)
        rest = weights @ (y.numpy() - constant)
        self.mean = constant + self.K[:, self.rows] @ rest

    def gram(self, rows: np.ndarray) -> np.ndarray:
        """The covariance of observations; pending ones have the noise too."""
        K: np.ndarray = self.K[np.ix_(rows, rows)] + LAM * np.eye(len(rows))
        return K

    def sd(self, pending: list[int]) -> np.ndarray:
        """Standard deviations given the rows told and some pending ones."""
        rows = np.array([*self.rows, *pending], dtype=int)
        k = self.K[:, rows]
        explained = np.einsum("ij,ij->i", k @ np.linalg.inv(self.gram(rows)), k)
        sd: np.ndarray = np.sqrt((1.0 - explained).clip(1e-12))
        return sd


def integrated(mean: float, sd: float, best: float) -> float:
    """Expected improvement as an integral of its definition."""

    def gain(f: float) -> float:
        return (f - best) * math.exp(-0.5 * ((f - mean) / sd) ** 2)

    value, _ = quad(gain, best, max(best, mean) + 12 * sd, limit=200)
    return float(value) / (sd * math.sqrt(2 * math.pi))


def chosen_by_hand(
    num: int,
    values: Tensor,
    limit: tuple[Tensor, float] | None = None,
    price: Tensor | None = None,
    unique: bool = True,
) -> list[int]:
    """Rows by the definition, one after the other."""
    gp = DenseGP(TOLD, values[TOLD])
    other = None if limit is None else DenseGP(TOLD, limit[0][TOLD])
    rows = list[int]()
    for _ in range(num):
        known = [*TOLD.tolist(), *rows]
        is_in = [limit is None or other.mean[i] <= limit[1] for i in known]  # type: ignore[union-attr]
        best = max(
            gp.mean[i] for i, is_inside in zip(known, is_in, strict=True) if is_inside
        )
        sd = gp.sd(rows)
        score = np.array(
            [integrated(m, s, best) for m, s in zip(gp.mean, sd, strict=True)]
        )
        if limit is not None and other is not None:
            score *= norm.cdf(limit[1], other.mean, other.sd(rows))
        if price is not None:
            score /= price.numpy()
        if unique:
            score[known] = -1.0
        rows.append(int(score.argmax()))
    return rows


def asked(values: Tensor, num: int = 5, unique: bool = True, **given: Any) -> list[int]:
    strategy = ExpectedImprovement(
        X, make_kernel(), LAM, 1e9, batch_size=num, unique=unique, **given
    )
    strategy.tell(X[TOLD], values[TOLD])
    indices = strategy.ask().indices
    assert indices is not None
    return indices.tolist()


@pytest.mark.parametrize("memory", [nystrom_pool.MAX_MEMORY, 0])
@pytest.mark.parametrize("block", [1, 7, 80])
def test_rows_are_those_of_the_definition(
    memory: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With covariances kept or not, and some or all rows brought up to date."""
    of_domain = partial(model_strategy.surrogate_of, max_memory=memory)
    monkeypatch.setattr(expected_improvement, "surrogate_of", of_domain)
    monkeypatch.setattr(expected_improvement, "FIRST_BLOCK", block)
    values = objective(X)
    assert asked(values, 12) == chosen_by_hand(12, values)
    assert asked(-values, 12, minimize=True) == chosen_by_hand(12, values)


def test_few_rows_are_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row whose bound is below the best value is never looked at again."""
    looked_at = list[int]()
    moments = expected_improvement._PendingMoments

    class Counting(moments):  # type: ignore[misc, valid-type]
        def deviation(self, rows: Tensor | slice) -> Tensor:
            deviations = super().deviation(rows)
            looked_at.append(len(deviations))
            return deviations

    monkeypatch.setattr(expected_improvement, "_PendingMoments", Counting)
    monkeypatch.setattr(expected_improvement, "FIRST_BLOCK", 4)
    asked(objective(X), 10)
    assert looked_at[0] == len(X)
    assert sum(looked_at[1:]) < len(X)  # for nine points


def test_rows_may_come_again() -> None:
    values = objective(X)
    by_hand = chosen_by_hand(12, values, unique=False)
    assert asked(values, 12, unique=False) == by_hand
    assert len({*by_hand}) < 12


def test_of_many_rows_the_posterior_is_exact() -> None:
    Z = make_candidates(200)
    strategy = ExpectedImprovement(Z, seed=0)
    strategy.tell(Z[:150], objective(Z[:150]))
    strategy.learn()
    assert len(strategy.surrogate.inducing) == 150


@pytest.mark.parametrize("size", [0, nystrom_pool.SCREENED])
def test_a_resumed_run_is_the_same(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded too, of tables however large."""
    monkeypatch.setattr(nystrom_pool, "SCREENED", size)
    whole, first, second = (
        ExpectedImprovement(X, make_kernel(), LAM, batch_size=4, seed=0)
        for _ in range(3)
    )
    for strategy in (whole, first):
        strategy.tell(X[TOLD], objective(X[TOLD]))
        strategy.ask(2)
    second.load_state_dict(first.state_dict())
    assert whole.ask(2).indices.tolist() == second.ask(2).indices.tolist()  # type: ignore[union-attr]
    largest = [
        [each.max_variance for each in strategy.history.batches]
        for strategy in (whole, second)
    ]
    assert largest[0] == largest[1]


@pytest.mark.parametrize("num", [5, 14])
def test_with_limits_by_the_probability_to_keep_them(
    num: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected_improvement, "FIRST_BLOCK", 1)
    values, other = objective(X), X[:, 0] + 0.3 * X[:, 1]
    outcomes = [Objective("y"), Constraint("c", upper=0.6)]
    Y = torch.stack([values, other], dim=-1)
    by_hand = chosen_by_hand(num, values, (other, 0.6))
    assert asked(Y, num, outcomes=outcomes) == by_hand
    assert by_hand != chosen_by_hand(num, values)


def test_a_limit_becomes_more_likely_to_be_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the variance shrinks where the mean keeps it; no objective is known."""
    monkeypatch.setattr(expected_improvement, "FIRST_BLOCK", 1)
    other = X[:, 0] + 0.3 * X[:, 1]
    upper = float(other[TOLD].sort().values[1])
    outcomes = [Objective("y"), Constraint("c", upper=upper)]
    Y = torch.stack([torch.full_like(other, torch.nan), other], dim=-1)
    gp, by_hand = DenseGP(TOLD, other[TOLD]), list[int]()
    for _ in range(12):
        chance = norm.cdf(upper, gp.mean, gp.sd(by_hand))
        chance[[*TOLD.tolist(), *by_hand]] = -1.0
        by_hand.append(int(chance.argmax()))
    assert asked(Y, 12, outcomes=outcomes) == by_hand


def test_without_a_feasible_row_limits_alone_decide() -> None:
    other = X[:, 0]
    outcomes = [Objective("y"), Constraint("c", lower=9.0)]
    Y = torch.stack([objective(X), other], dim=-1)
    gp = DenseGP(TOLD, other[TOLD])
    log_chance = norm.logsf(9.0, gp.mean, gp.sd([]))
    log_chance[TOLD] = -np.inf
    assert asked(Y, 1, outcomes=outcomes) == [int(log_chance.argmax())]


def test_costs_divide() -> None:
    values = objective(X)
    by_hand = chosen_by_hand(5, values, price=COST)
    assert asked(values, cost=COST) == by_hand != chosen_by_hand(5, values)
    budget = 2.0 * float(COST[TOLD].sum())
    by_hand = chosen_by_hand(5, values, price=COST**0.5)
    assert asked(values, cost=COST, budget=budget) == by_hand


def test_rows_without_hope_are_told_apart() -> None:
    """Improvements of 10^-300 and less: the nearest to the best comes first."""
    Z = torch.linspace(0, 1, 101, dtype=torch.double).unsqueeze(-1)
    strategy = ExpectedImprovement(Z, make_kernel(5.0), lam=1e-6, unique=True)
    strategy.tell(Z[::10], -((Z[::10, 0] - 0.5) ** 2))
    indices = strategy.ask(2).indices
    assert indices is not None and {*indices.tolist()} == {49, 51}


def test_pending_rows_are_in_the_batch() -> None:
    """Asked for in two parts, a batch is the same."""
    values = objective(X)
    strategy = ExpectedImprovement(X, make_kernel(), LAM, 1e9, unique=True)
    strategy.tell(X[TOLD], values[TOLD])
    parts = [strategy.ask(2), strategy.ask(3)]
    rows = [row for part in parts for row in part.indices.tolist()]  # type: ignore[union-attr]
    assert rows == chosen_by_hand(5, values)


def test_it_finds_the_best_of_a_table_in_few_batches() -> None:
    """Random rows find it in 40 of 400 evaluations once in ten; medians of nine."""
    Z = make_candidates(400)
    Y = objective(Z)
    ranks = []
    for seed in range(9):
        strategy = ExpectedImprovement(Z, batch_size=8, num_initial=8, seed=seed)
        for _ in range(5):
            batch = strategy.ask()
            strategy.tell(batch, objective(batch.X))
        ranks.append(int((strategy.history.Y.max() < Y).sum()) + 1)
    assert sorted(ranks)[4] <= 2


def test_an_outcome_without_data_is_left_out() -> None:
    strategy = ExpectedImprovement(
        X, batch_size=3, outcomes=[Objective("y"), Constraint("c", upper=0.5)]
    )
    Y = torch.stack([objective(X), torch.full((80,), torch.nan).double()], dim=-1)
    strategy.tell(X[TOLD], Y[TOLD])
    assert len(strategy.ask()) == 3


def test_what_it_does_not_take() -> None:
    with pytest.raises(InputDataError, match="need candidates"):
        ExpectedImprovement(None, bounds=[[0.0], [1.0]])
    two = [Objective("a"), Objective("b")]
    with pytest.raises(UnsupportedError, match=r"Got 2 objectives; .* takes one"):
        ExpectedImprovement(X, outcomes=two)
    ThompsonSampling(X, outcomes=two)
