"""Expected improvement on tables, against a dense GP and numerical integrals."""

import copy
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import InputDataError
from scipy.integrate import quad
from scipy.stats import norm
from strategy_table import make_candidates, make_kernel, objective
from torch import Tensor

from botorch_sparse.kernels import TanimotoKernel
from botorch_sparse.pools import nystrom_pool
from botorch_sparse.strategies import (
    Constraint,
    ExpectedImprovement,
    Objective,
    RandomSearch,
    expected_improvement,
    model_strategy,
)
from botorch_sparse.strategies.data.preference import Preference
from botorch_sparse.strategies.expected_improvement import (
    DRAWS,
    MOST_KEPT,
    SMOOTHING,
    normal_draws,
)
from botorch_sparse.strategies.surrogates.table_posterior import ExactTablePosterior

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


def asked(
    values: Tensor,
    num: int = 5,
    unique: bool = True,
    parts: tuple[int, ...] = (12,),
    **given: Any,
) -> list[int]:
    strategy = ExpectedImprovement(
        X, make_kernel(), LAM, 1e9, batch_size=num, unique=unique, **given
    )
    for rows in TOLD.split(parts):
        strategy.tell(X[rows], values[rows])
        strategy.learn()
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


def test_values_that_come_later_are_appended() -> None:
    """The same rows as with all values at once, by hand."""
    values = objective(X)
    assert asked(values, 12, parts=(5, 1, 6)) == chosen_by_hand(12, values)


def run_to(strategy: ExpectedImprovement, size: int) -> ExpectedImprovement:
    """Batches of four until so many evaluations; each third one is measured twice."""
    while len(strategy.history) < size:
        batch = strategy.ask()
        strategy.tell(batch, objective(batch.X))
        strategy.tell(batch.X[::3], objective(batch.X[::3]) + 0.1)
    return strategy


@pytest.mark.parametrize(("rows", "inducing"), [(1_000, 20), (20, 20), (4, 4), (40, 9)])
def test_a_run_goes_on_from_each_of_its_states(
    rows: int, inducing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, where the posterior is exact, sparse, or changes in between.

    Also from the states of a run in which another one stands elsewhere.
    """
    monkeypatch.setattr(expected_improvement, "MOST_ROWS", rows)
    monkeypatch.setattr(expected_improvement, "MOST_INDUCING", inducing)

    def fresh() -> ExpectedImprovement:
        return ExpectedImprovement(X, batch_size=4, seed=0)

    whole, states = fresh(), list[tuple[dict[str, Any], list[int], Tensor]]()
    for size in range(6, 60, 6):
        state = run_to(whole, size).state_dict()
        batch, moments = whole.ask(), whole.surrogate.view.pool.all_moments()
        states.append((state, batch.indices.tolist(), torch.stack(moments)))  # type: ignore[union-attr]
        whole.tell(batch, objective(batch.X))
    is_exact = isinstance(whole.surrogate.view, ExactTablePosterior)
    assert is_exact == (rows == 1_000)
    assert is_exact or whole.surrogate.view.num_inducing() <= inducing
    for state, expected, moments in [*states, *states[::-1]]:
        for strategy in (fresh(), whole):
            strategy.load_state_dict(state)
            assert strategy.ask().indices.tolist() == expected  # type: ignore[union-attr]
            found = torch.stack(strategy.surrogate.view.pool.all_moments())
            assert found.equal(moments)


@pytest.mark.parametrize("robust", [False, True])
def test_rows_that_are_exact_are_fewer_where_values_may_lie_apart(
    robust: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected_improvement, "MOST_ROWS", 30)
    monkeypatch.setattr(expected_improvement, "MOST_INDUCING", 10)
    strategy = ExpectedImprovement(X, batch_size=4, seed=0, robust=robust)
    for num, is_exact in ((10, True), (20, not robust), (40, False)):
        strategy.tell(X[:num], objective(X[:num]))
        strategy.learn()
        assert isinstance(strategy.surrogate.view, ExactTablePosterior) == is_exact


def test_what_does_not_fit_on_another_table_is_sparse_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that were appended since the last fit are there no reason to fail."""
    of_domain = partial(model_strategy.surrogate_of, max_memory=2 * 80 * 40 * 8)
    monkeypatch.setattr(expected_improvement, "surrogate_of", of_domain)
    strategy = ExpectedImprovement(X, make_kernel(), LAM, batch_size=4, unique=True)
    for rows in TOLD.split(4):
        strategy.tell(X[rows], objective(X[rows]))
        strategy.learn()
    assert strategy.surrogate.view.num_rebuilt == 4
    strategy.set_candidates(torch.cat([X, make_candidates(4_000) + 2.0]))
    assert not isinstance(strategy.surrogate.view, ExactTablePosterior)
    assert len(strategy.ask()) == 4


@pytest.mark.parametrize("most", [160, 0])
def test_covariances_of_counts_are_looked_up_or_not(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all points of a batch, of two or of none: rows add the same."""
    counts = torch.randint(0, 3, (80, 30), generator=torch.Generator().manual_seed(0))
    gains = list[Tensor]()
    for kept in (MOST_KEPT, most):
        monkeypatch.setattr(expected_improvement, "MOST_KEPT", kept)
        strategy = ExpectedImprovement(
            counts.to(torch.uint8), TanimotoKernel(), LAM, unique=True
        )
        strategy.tell(counts[TOLD].double(), counts[TOLD, :3].sum(-1).double())
        strategy.learn()
        batch = strategy._no_batch()
        for row in (1, 2, 3, 4):
            batch.append_row(row)
        (part,) = batch._parts
        assert part is not None and len(part._columns) == min(kept // 80, 4)
        gains.append(batch.log_gain(slice(None)))
    assert torch.allclose(gains[0], gains[1], rtol=1e-8)


def test_who_asks_for_the_posterior_first_changes_nothing() -> None:
    """Without a graph, and copied as before; the same bits with other threads."""
    Z, num_threads = make_candidates(600), torch.get_num_threads()
    kernel, found = make_kernel().requires_grad_(), list[Tensor]()
    for threads in (1, 2):
        strategy = ExpectedImprovement(Z, kernel, LAM, unique=True)
        strategy.tell(Z[:500], objective(Z[:500]))
        strategy.learn()
        torch.set_num_threads(threads)
        try:
            with torch.inference_mode():
                strategy.predict(Z)
            posterior = copy.deepcopy(strategy).posterior
        finally:
            torch.set_num_threads(num_threads)
        x = Z[:3].clone().requires_grad_()
        posterior.mean(x).sum().backward()
        assert x.grad is not None and not posterior.weights.requires_grad
        found.append(posterior.chol_inner)
    assert found[0].equal(found[1])


def test_a_point_beside_the_table_may_be_pending() -> None:
    """Rows add as much as with the point in the table."""
    beside, values = X[40:41] + 1e-3, objective(X)
    chosen = list[list[int]]()
    for candidates in (X, torch.cat([X, beside])):
        strategy = ExpectedImprovement(
            candidates, make_kernel(), LAM, 1e9, batch_size=6, unique=True
        )
        for rows in TOLD.split((5, 1, 6)):
            strategy.tell(X[rows], values[rows])
            strategy.learn()
        batch = strategy._no_batch()
        batch.append(beside)
        gains = batch.log_gain(slice(0, 80))
        chosen.append(gains.topk(5).indices.tolist())
        if len(candidates) > 80:
            batch = strategy._no_batch()
            batch.append_row(80)
            assert torch.allclose(batch.log_gain(slice(0, 80)), gains, atol=1e-6)
    assert chosen[0] == chosen[1]


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
    assert sum(looked_at) < len(X)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("price", [None, 1.0 + torch.arange(4_000.0).cos() / 2])
def test_bounds_of_many_rows_change_no_choice(
    price: Tensor | None, is_streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows of a large table are embedded, and the same ones are chosen."""
    Z, rows = make_candidates(4_000), torch.arange(0, 4_000, 31)
    memory = 0 if is_streamed else nystrom_pool.MAX_MEMORY
    of_domain = partial(model_strategy.surrogate_of, max_memory=memory)
    monkeypatch.setattr(expected_improvement, "surrogate_of", of_domain)
    monkeypatch.setattr(expected_improvement, "MOST_ROWS", 10)
    monkeypatch.setattr(expected_improvement, "RESOLVED", 30)
    chosen, num_exact = list[list[int]](), list[int]()
    for size in (0, 10**9):
        monkeypatch.setattr(nystrom_pool, "SCREENED", size)
        strategy = ExpectedImprovement(Z, make_kernel(), LAM, batch_size=20, cost=price)
        other = ExpectedImprovement(Z, make_kernel(), LAM, batch_size=20, cost=price)
        strategy.tell(Z[rows], objective(Z[rows]))
        first = strategy.ask(10)
        other.load_state_dict(strategy.state_dict())
        batches = [first, strategy.ask(10), other.ask(10)]
        num_exact.append(strategy.surrogate.parts[0].view.pool.num_exact)
        strategy.tell(first, objective(first.X))
        if size == 0:  # what is read changes nothing
            strategy.surrogate.parts[0].view.pool.all_moments()
        batches.append(strategy.ask(10))  # with rows of the second one pending
        chosen.append([int(i) for each in batches for i in each.indices])
    assert chosen[0] == chosen[1] and chosen[0][10:20] == chosen[0][20:30]
    assert num_exact[0] < 2_000 and num_exact[1] == len(Z)


def test_of_equal_rows_the_first_is_chosen() -> None:
    score = torch.tensor([0.0, 2.0, 1.0, 3.0, 1.0, 1.0, -torch.inf])
    largest = [expected_improvement._largest(score, i).tolist() for i in (1, 3, 4, 9)]
    assert largest == [[3], [1, 2, 3], [1, 2, 3, 4], [*range(7)]]


def test_rows_may_be_measured_again() -> None:
    """Where their values are uncertain; not twice in a batch, which brings nothing."""
    values = objective(X)
    by_hand = chosen_by_hand(12, values, unique=False)
    assert asked(values, 12, unique=False) == by_hand
    assert len({*by_hand}) == 12


def test_points_beside_the_table_count_as_measured() -> None:
    """The largest mean is there, and rows are chosen as with the point in the table."""
    beside = X[40:41] + 1e-3
    Y = torch.cat([objective(X)[TOLD], objective(X).max().view(1) + 1.0])
    measured, chosen = torch.cat([X[TOLD], beside]), list[list[int]]()
    for candidates in (X, torch.cat([X, beside])):
        strategy = ExpectedImprovement(
            candidates, make_kernel(), LAM, 1e9, batch_size=6, unique=True
        )
        strategy.tell(measured, Y)
        indices = strategy.ask().indices
        assert indices is not None
        chosen.append(indices.tolist())
    assert chosen[0] == chosen[1] != asked(objective(X), 6)


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


GAIN, LOSS = Objective("gain"), Objective("loss", minimize=True)


def two_objectives(Z: Tensor) -> Tensor:
    """`b x 2` values, the second of which is minimized; they disagree."""
    return torch.stack([objective(Z), 0.5 * (Z[:, 0] - Z[:, 1] ** 2)], dim=-1)


def told_of_two(
    num: int = 5, *more: Constraint, limited: Tensor | None = None
) -> ExpectedImprovement:
    strategy = ExpectedImprovement(
        X,
        make_kernel(),
        LAM,
        1e9,
        batch_size=num,
        outcomes=[GAIN, LOSS, *more],
        unique=True,
    )
    Y = two_objectives(X)
    Y = Y if limited is None else torch.cat([Y, limited.unsqueeze(-1)], dim=-1)
    strategy.tell(X[TOLD], Y[TOLD])
    return strategy


def front_by_hand(num: int, strategy: ExpectedImprovement) -> list[int]:
    """Rows by the definition, one after the other, of two objectives."""
    wanted = Preference.of(strategy.record)
    low, unit = wanted.low.numpy(), wanted.scale.numpy()
    own = torch.Generator().manual_seed(len(TOLD))
    weights = wanted.draw_weights(DRAWS, own).numpy()
    z_own = [normal_draws(own).numpy() for _ in range(2)]
    Y = two_objectives(X)[TOLD] * torch.tensor([1.0, -1.0])
    gps = [DenseGP(TOLD, y) for y in Y.mT]

    def value(F: np.ndarray) -> np.ndarray:
        """`S x q` scalarizations of `S x q x 2` values."""
        terms: np.ndarray = (F - low) / (unit * weights[:, None])
        return terms.min(-1)

    measured = np.stack([gp.mean[TOLD.numpy()] for gp in gps], -1)
    best = value(np.broadcast_to(measured, (DRAWS, *measured.shape))).max(-1)
    generator, rows = torch.Generator().manual_seed(0), list[int]()
    z = [np.empty((DRAWS, 0)) for _ in gps]
    for _ in range(num):
        F = []
        for gp, known, new in zip(gps, z, z_own, strict=True):
            mean, sd = gp.given(rows, gp.drawn(rows, known))
            F.append(mean + new[:, None] * sd)
        score = np.maximum(value(np.stack(F, -1)) - best[:, None], 0.0).mean(0)
        score[[*TOLD, *rows]] = -1.0
        rows.append(int(score.argmax()))
        drawn = [normal_draws(generator).numpy() for _ in gps]
        z = [np.column_stack(each) for each in zip(z, drawn, strict=True)]
        F = [gp.drawn(rows, known)[:, -1:] for gp, known in zip(gps, z, strict=True)]
        best = np.maximum(best, value(np.stack(F, -1))[:, 0])
    return rows


def test_rows_of_two_objectives_are_those_of_the_definition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All rows are brought up to date: few draws may exceed a bound by a tenth."""
    monkeypatch.setattr(expected_improvement, "FIRST_BLOCK", len(X))
    monkeypatch.setattr(expected_improvement, "MOST_AT_A_TIME", 33)
    strategy = told_of_two(10)
    indices = strategy.ask().indices
    assert indices is not None
    assert indices.tolist() == front_by_hand(10, strategy)


def test_what_a_row_adds_to_a_front_is_an_integral(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over directions and values; five standard errors."""
    draws = 2**14
    monkeypatch.setattr(expected_improvement, "DRAWS", draws)
    strategy = told_of_two()
    strategy.learn()
    gains = strategy._no_batch().log_gain(slice(None)).exp()
    row = int(gains.argmax())
    wanted = Preference.of(strategy.record)
    low, unit = wanted.low.numpy(), wanted.scale.numpy()
    Y = two_objectives(X)[TOLD] * torch.tensor([1.0, -1.0])
    gps = [DenseGP(TOLD, y) for y in Y.mT]
    measured = np.stack([gp.mean[TOLD.numpy()] for gp in gps], -1)
    mean = np.array([gp.mean[row] for gp in gps])
    sd = np.array([math.sqrt(gp.covariance[row, row]) for gp in gps])
    nodes, parts = np.polynomial.legendre.leggauss(200)
    nodes, parts = (nodes + 1) / 2, parts / 2

    def powers(angle: float) -> np.ndarray:
        """Expectations of what is above the best in a direction, and of its square."""
        weight = unit * np.array([math.cos(angle), math.sin(angle)])
        best = ((measured - low) / weight).min(-1).max()
        end = max(0.0, ((mean + 8 * sd - low) / weight).min() - best)
        t = end * nodes
        chance = norm.sf(low + weight * (best + t)[:, None], mean, sd).prod(-1)
        each: np.ndarray = end * np.array([parts @ chance, parts @ (2 * t * chance)])
        return each

    first, second = sum(
        part * powers(node * math.pi / 2)
        for node, part in zip(nodes, parts, strict=True)
    )
    error = math.sqrt((second - first**2) / draws)
    assert float(gains[row]) == pytest.approx(first, abs=5 * error)
    assert 5 * error < 0.2 * first


def test_bounds_are_what_rows_add() -> None:
    """Within what is smoothed, with and without a limit, of outcomes in any order."""
    limit = Constraint("heat", upper=0.5)
    first = ExpectedImprovement(
        X, make_kernel(), LAM, 1e9, outcomes=[limit, GAIN, LOSS], unique=True
    )
    first.tell(X[TOLD], torch.cat([X[:, :1], two_objectives(X)], dim=-1)[TOLD])
    limited = told_of_two(5, limit, limited=X[:, 0])
    for strategy in (told_of_two(), limited, first):
        strategy.learn()
        batch = strategy._no_batch()
        gains = batch.log_gain(slice(None)).exp()
        more = batch.log_bound(slice(None)).exp() - gains
        assert float(gains.max()) > 1e-2
        assert float(more.min()) >= 0.0
        assert float(more.max()) <= (1 + 1e-6) * SMOOTHING


@pytest.mark.parametrize("num", [80, 2000])
def test_a_batch_of_several_objectives_is_the_same_in_parts(num: int) -> None:
    Z = make_candidates(num)
    batches = []
    for sizes in ([16], [5, 11]):
        strategy = ExpectedImprovement(
            Z, make_kernel(), LAM, 1e9, 16, outcomes=[GAIN, LOSS], unique=True
        )
        strategy.tell(Z[:12], two_objectives(Z[:12]))
        parts = [strategy.ask(size).indices for size in sizes]
        batches.append([row for part in parts for row in part.tolist()])  # type: ignore[union-attr]
    assert batches[0] == batches[1]


def test_a_row_adds_less_once_it_is_in_the_batch() -> None:
    strategy = told_of_two()
    strategy.learn()
    batch = strategy._no_batch()
    before = batch.log_gain(slice(None))
    batch.append_row(row := int(before.argmax()))
    after = batch.log_gain(slice(None))
    assert after[row] < before[row] - math.log(100)


def test_of_several_objectives_too_the_chance_to_keep_a_limit_multiplies() -> None:
    """All that is measured keeps to it."""
    limit = Constraint("heat", upper=float(X[TOLD, 0].max()) + 0.5)
    free, limited = told_of_two(), told_of_two(5, limit, limited=X[:, 0])
    gains = []
    for strategy in (free, limited):
        strategy.learn()
        gains.append(strategy._no_batch().log_gain(slice(None)).numpy())
    gp = DenseGP(TOLD, X[TOLD, 0])
    sd = np.sqrt(gp.covariance.diagonal())
    chance = norm.logcdf(limit.range[1], gp.mean, sd)
    assert chance.min() < -0.01
    assert gains[1] - gains[0] == pytest.approx(chance, abs=1e-6)


@pytest.mark.parametrize("missing", [[0], [1], [0, 1]])
def test_objectives_without_data_are_left_out(missing: list[int]) -> None:
    outcomes = [GAIN, LOSS, Constraint("heat", upper=0.5)]
    strategy = ExpectedImprovement(X, batch_size=3, outcomes=outcomes, unique=True)
    Y = torch.cat([two_objectives(X), X[:, :1]], dim=-1)
    Y[:, missing] = torch.nan
    strategy.tell(X[TOLD], Y[TOLD])
    indices = strategy.ask().indices
    assert indices is not None and not {*indices.tolist()} & {*TOLD.tolist()}
    assert float(X[indices, 0].max()) < 0.7
    batch = strategy._no_batch()
    gains = [batch.log_gain(slice(None)), batch.log_bound(slice(None))]
    assert torch.allclose(gains[0].exp(), gains[1].exp(), atol=2 * SMOOTHING)
    for column in missing:  # its draws decide nothing
        batch._z[column] = torch.full_like(batch._z[column], 7.0)
    assert batch.log_gain(slice(None)).equal(gains[0])


def test_without_a_feasible_row_a_front_counts_from_far_below() -> None:
    limit = Constraint("heat", lower=float(X[TOLD, 0].max()) + 1e-3)
    strategy = told_of_two(4, limit, limited=X[:, 0])
    indices = strategy.ask().indices
    assert indices is not None
    assert float(X[indices, 0].min()) > float(X[TOLD, 0].median())


@pytest.mark.slow
def test_it_finds_a_front_in_few_batches() -> None:
    """Five batches of eight are better than four times as many random rows."""
    Z, shares = make_candidates(400), list[float]()
    Y = two_objectives(Z)
    for seed in range(3):
        strategy = ExpectedImprovement(
            Z, batch_size=8, num_initial=8, seed=seed, outcomes=[GAIN, LOSS]
        )
        for _ in range(5):
            batch = strategy.ask()
            strategy.tell(batch, two_objectives(batch.X))
        rows = torch.randperm(400, generator=torch.Generator().manual_seed(seed))[:160]
        worst = [float(Y[:, 0].min()), float(Y[:, 1].max())]
        other = RandomSearch(Z, outcomes=[GAIN, LOSS])
        other.tell(Z[rows], Y[rows])
        found = strategy.history.hypervolume(worst)
        shares.append(found / other.history.hypervolume(worst))
    assert sorted(shares)[1] > 1.0


def test_it_needs_a_table() -> None:
    with pytest.raises(InputDataError, match="need candidates"):
        ExpectedImprovement(None, bounds=[[0.0], [1.0]])
