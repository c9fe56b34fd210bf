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
from botorch_sparse.strategies.expected_improvement import DRAWS, normal_draws

LAM = 1e-2
X = make_candidates(80)
TOLD = torch.arange(0, 80, 7)
COST = 1.0 + 5.0 * torch.rand(80, generator=torch.Generator().manual_seed(3)).double()


class DenseGP:
    """A zero-mean GP with a constant by generalized least squares, all rows at once."""

    def __init__(self, rows: Tensor, y: Tensor) -> None:
        K = make_kernel()(X).to_dense().detach().numpy()
        k, one = K[rows.numpy()], np.ones(len(rows))
        weights = np.linalg.inv(k[:, rows.numpy()] + LAM * np.eye(len(rows)))
        constant = one @ weights @ y.numpy() / (one @ weights @ one)
        self.mean = constant + k.T @ weights @ (y.numpy() - constant)
        self.covariance = K - k.T @ weights @ k

    def given(self, rows: list[int], values: np.ndarray) -> tuple[np.ndarray, ...]:
        """Means and standard deviations given values at rows, one set in each line."""
        c = self.covariance[rows]
        weights = np.linalg.pinv(c[:, rows], rcond=1e-12, hermitian=True) @ c
        mean = self.mean + (values - self.mean[rows]) @ weights
        variance = self.covariance.diagonal() - np.einsum("ij,ij->j", c, weights)
        return mean, np.sqrt(variance.clip(1e-18))

    def drawn(self, rows: list[int], z: np.ndarray) -> np.ndarray:
        """Values at rows, by a Cholesky factor of their covariance."""
        c = self.covariance[np.ix_(rows, rows)]
        c = c + 1e-9 * self.covariance.diagonal().max() * np.eye(len(rows))
        return self.mean[rows] + z @ np.linalg.cholesky(c).T


def improved(mean: np.ndarray, sd: np.ndarray, best: np.ndarray) -> np.ndarray:
    """The expected improvement."""
    u = (mean - best) / sd
    gain: np.ndarray = sd * (norm.pdf(u) + u * norm.cdf(u))
    return gain


def chosen_by_hand(
    num: int,
    values: Tensor,
    limit: tuple[Tensor, float] | None = None,
    price: Tensor | None = None,
    unique: bool = True,
    lam: float = LAM,
) -> list[int]:
    """Rows by the definition, one after the other."""
    gp, told = DenseGP(TOLD, values[TOLD]), TOLD.numpy()
    other = None if limit is None else DenseGP(TOLD, limit[0][TOLD])
    generator, rows = torch.Generator().manual_seed(0), list[int]()
    z, z_other = np.empty((DRAWS, 0)), np.empty((DRAWS, 0))
    is_in = np.ones(len(told), dtype=bool)
    if limit is not None and other is not None:
        is_in = other.mean[told] <= limit[1]
    least = gp.mean - 6 * np.sqrt(gp.covariance.diagonal())
    first = gp.mean[told][is_in].max() if is_in.any() else least.min()
    for _ in range(num):
        drawn = gp.drawn(rows, z)
        mean, sd = gp.given(rows, drawn)
        chance: Any = 1.0
        if limit is not None and other is not None:
            drawn_other = other.drawn(rows, z_other)
            drawn = np.where(drawn_other <= limit[1], drawn, first)
            chance = norm.cdf(limit[1], *other.given(rows, drawn_other))
        best = np.maximum(first, drawn.max(-1, initial=-np.inf))
        score = (improved(mean, sd, best[:, None]) * chance).mean(0)
        if price is not None:
            score /= price.numpy()
        if unique:
            score[[*told, *rows]] = -1.0
        rows.append(int(score.argmax()))
        z = np.column_stack([z, normal_draws(generator)])
        if limit is not None:
            z_other = np.column_stack([z_other, normal_draws(generator)])
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


def test_what_a_row_adds_is_an_integral(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first row, and a second one that brings less then; five standard errors."""
    draws = 2**14
    monkeypatch.setattr(expected_improvement, "DRAWS", draws)
    values = objective(X)
    strategy = ExpectedImprovement(X, make_kernel(), LAM, 1e9)
    strategy.tell(X[TOLD], values[TOLD])
    strategy.learn()
    gp, batch = DenseGP(TOLD, values[TOLD]), strategy._no_batch()
    alone = batch.log_gain(slice(None)).exp()
    first = int(alone.argmax())
    batch.append_row(first)
    second = int((alone - batch.log_gain(slice(None)).exp()).topk(2).indices[1])
    best, rows = gp.mean[TOLD].max(), [first, second]
    pair, mean = gp.covariance[np.ix_(rows, rows)], gp.mean[rows]
    sd, slope = math.sqrt(pair[0, 0]), pair[0, 1] / pair[0, 0]
    rest = math.sqrt(pair[1, 1] - slope * pair[0, 1])

    def power(f: float, exponent: int) -> float:
        middle, beyond = mean[1] + slope * (f - mean[0]), max(best, f)
        gain, _ = quad(lambda t: norm.sf(t, middle, rest), beyond, beyond + 12 * rest)
        return float(gain) ** exponent * float(norm.pdf(f, mean[0], sd))

    ends = mean[0] - 9 * sd, mean[0] + 9 * sd
    expected = quad(lambda f: norm.sf(f, mean[0], sd), best, best + 12 * sd)[0]
    assert float(alone[first]) == pytest.approx(expected, rel=1e-6)
    expected, square = (quad(power, *ends, (k,), points=[best])[0] for k in (1, 2))
    gain = float(batch.log_gain(torch.tensor([second])).exp())
    error = math.sqrt((square - expected**2) / draws)
    assert gain == pytest.approx(expected, abs=5 * error)
    assert gain < 0.8 * float(alone[second])


def test_draws_are_one_of_each_part() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = normal_draws(generator), normal_draws(generator)
    parts = (norm.cdf(first.numpy()) * DRAWS).astype(int)
    assert sorted(parts) == list(range(DRAWS))
    assert first.tolist() != second.tolist()
    assert abs(float(first @ second)) < 5 * math.sqrt(DRAWS)


def test_few_rows_are_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row whose bound is below the best value is never looked at again."""
    looked_at = list[int]()
    log_gain = expected_improvement._GrowingBatch.log_gain

    def counted(self: Any, rows: Tensor | slice) -> Tensor:
        gains = log_gain(self, rows)
        looked_at.append(len(gains))
        return gains

    monkeypatch.setattr(expected_improvement._GrowingBatch, "log_gain", counted)
    monkeypatch.setattr(expected_improvement, "FIRST_BLOCK", 4)
    asked(objective(X), 10)
    assert looked_at[0] == len(X)
    assert sum(looked_at[1:]) < len(X)  # for nine points


def test_rows_may_be_measured_again() -> None:
    """Where their values are uncertain; not twice in a batch, which brings nothing."""
    values = objective(X)
    by_hand = chosen_by_hand(12, values, unique=False)
    assert asked(values, 12, unique=False) == by_hand
    assert len({*by_hand}) == 12


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


def test_without_values_limits_alone_decide() -> None:
    other = X[:, 0] + 0.3 * X[:, 1]
    outcomes = [Objective("y"), Constraint("c", upper=float(other[TOLD].median()))]
    Y = torch.stack([torch.full_like(other, torch.nan), other], dim=-1)
    gp = DenseGP(TOLD, other[TOLD])
    sd = np.sqrt(gp.covariance.diagonal())
    chance = torch.from_numpy(norm.cdf(outcomes[1].upper, gp.mean, sd))  # type: ignore[attr-defined]
    chance[TOLD] = -1.0
    assert asked(Y, 1, outcomes=outcomes) == [int(chance.argmax())]


def test_without_a_feasible_row_values_count_from_far_below() -> None:
    values, other = objective(X), X[:, 0]
    outcomes = [Objective("y"), Constraint("c", lower=9.0)]
    Y = torch.stack([values, other], dim=-1)
    by_hand = chosen_by_hand(4, values, (-other, -9.0))
    assert asked(Y, 4, outcomes=outcomes) == by_hand


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
