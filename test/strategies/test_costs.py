"""Costs of rows, and a budget: the rule, and what is spent."""

from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from botorch_sparse.pools.path_maximizers import Price, path_maximizers
from botorch_sparse.pools.sample_paths import SamplePaths
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies import BBKB, Constraint, Objective, ThompsonSampling

NUM = 60
X = torch.linspace(0, 1, NUM, dtype=torch.double).unsqueeze(-1)
COST = 1.0 + 4.0 * torch.rand(NUM, generator=torch.Generator().manual_seed(1)).double()


def objective(x: Tensor) -> Tensor:
    return (6 * x).sin().squeeze(-1)


def posterior(measured: Tensor) -> NystromPosterior:
    kernel = ScaleKernel(MaternKernel(nu=2.5)).double().requires_grad_(False)
    kernel.base_kernel.lengthscale = 0.2
    blank = NystromPosterior.prior(kernel, measured)
    return blank.condition(
        measured, objective(measured), torch.full((len(measured),), 1e-2).double()
    )


@pytest.mark.parametrize("exponent", [1.0, 0.4, 0.0])
@pytest.mark.parametrize("num_measured", [3, 12])
def test_each_path_gains_most_for_its_cost(exponent: float, num_measured: int) -> None:
    """Computed path by path from all values at once."""
    measured = X[:: NUM // num_measured]
    known, price = posterior(measured), COST**exponent
    with manual_seed(3):
        f = SamplePaths.draw(known, 40, 512)
        values, attained = f(X), f(measured).max(-1).values
    with manual_seed(3):
        chosen = path_maximizers(X, [known], 40, price=Price(price, measured))
    rounding = 512 * torch.finfo(torch.float32).eps * COST.max()  # 512 features
    for path, best, row in zip(values, attained, chosen, strict=True):
        gain = path - best
        ratio = gain / price if bool((gain > rounding).any()) else gain * price
        assert float(ratio[row]) >= float(ratio.max()) - rounding
    if exponent == 0.0:
        with manual_seed(3):
            assert chosen == path_maximizers(X, [known], 40)


def asked(num_batches: int, **given: Any) -> list[int]:
    strategy = ThompsonSampling(X, batch_size=4, seed=2, **given)
    rows = list[int]()
    for _ in range(num_batches):
        batch = strategy.ask()
        assert batch.indices is not None
        rows += batch.indices.tolist()
        strategy.tell(batch, objective(batch.X))
    return rows


def test_equal_costs_change_nothing() -> None:
    assert asked(5) == asked(5, cost=[2.5] * NUM)
    assert asked(5) != asked(5, cost=COST)


def test_of_two_equal_rows_the_cheap_one_is_chosen() -> None:
    """Rows that are there twice, at 1 and at 3: twice is as good, for a third."""
    twice, cost = X.repeat(2, 1), torch.tensor([3.0, 1.0]).repeat_interleave(NUM)
    strategy = ThompsonSampling(twice, batch_size=5, cost=cost, unique=False)
    strategy.tell(X[::6], objective(X[::6]))
    batch = strategy.ask()
    assert batch.indices is not None and bool((batch.indices >= NUM).all())


def test_a_budget_is_kept_and_ends_the_run() -> None:
    strategy = ThompsonSampling(X, batch_size=4, cost=COST, budget=60.0, seed=0)
    rows, exponents = list[int](), list[float]()
    while not strategy.is_finished:
        assert strategy.costs is not None
        price = strategy.costs.price(torch.tensor(rows, dtype=torch.long))
        exponents.append(float(price[0].log() / COST[0].log()))
        left = 1 - float(COST[rows].sum()) / 60
        assert exponents[-1] == pytest.approx(left, abs=1e-9)
        batch = strategy.ask()
        assert batch.indices is not None and len(batch)
        rows += batch.indices.tolist()
        assert strategy.spent == pytest.approx(float(COST[rows].sum()))
        strategy.tell(batch, objective(batch.X))
    left = 60 - float(COST[rows].sum())
    unseen = COST[~torch.isin(torch.arange(NUM), torch.tensor(rows))]
    assert 0 <= left < float(unseen.min())
    assert exponents == sorted(exponents, reverse=True) and len(exponents) > 3
    with pytest.raises(UnsupportedError, match="cost more than what is left of 60"):
        strategy.ask()


@pytest.mark.parametrize("batch_size", [1, 30])
@pytest.mark.parametrize("dtype", [torch.double, torch.float32])
def test_a_budget_pays_to_the_last_cent(batch_size: int, dtype: torch.dtype) -> None:
    """0.3 - 0.1 - 0.1 is less than 0.1 in binary."""
    cost = torch.full((NUM,), 0.1, dtype=dtype)
    options: dict[str, Any] = {"batch_size": batch_size, "seed": 0}
    strategy = ThompsonSampling(X, cost=cost, budget=0.3, **options)
    assert len(strategy.run(objective, NUM, progress=False)) == 3
    assert strategy.is_finished


def test_what_fails_or_is_withdrawn_costs_nothing() -> None:
    strategy = ThompsonSampling(X, batch_size=4, cost=COST, budget=60.0, seed=0)
    batch = strategy.ask()
    assert batch.indices is not None and batch.ids is not None
    cost = COST[batch.indices]
    strategy.fail(batch.ids[:1])
    strategy.withdraw(batch.ids[1:2])
    assert strategy.spent == pytest.approx(float(cost[2:].sum()))


def test_a_saved_run_goes_on_to_the_same_rows() -> None:
    def build(**other: Any) -> ThompsonSampling:
        given: dict[str, Any] = {"cost": COST, "budget": 60.0} | other
        return ThompsonSampling(X, batch_size=4, seed=0, **given)

    first = build()
    batch = first.ask()
    first.tell(batch, objective(batch.X))
    first.ask()
    second = build()
    second.load_state_dict(first.state_dict())
    assert first.ask().X.equal(second.ask().X)
    for other in ({"budget": 61.0}, {"cost": COST * 2}):
        with pytest.raises(InputDataError):
            build(**other).load_state_dict(first.state_dict())


def test_with_constraints_costs_count_among_feasible_values() -> None:
    """Cheap rows are infeasible: none of them is worth its price."""
    cost = torch.where(X.squeeze(-1) < 0.5, 0.01, 1.0)
    strategy = ThompsonSampling(
        X,
        batch_size=6,
        cost=cost,
        seed=0,
        outcomes=[Objective("y"), Constraint("x", lower=0.5)],
    )
    Z = X[::3]
    strategy.tell(Z, torch.stack([objective(Z), Z.squeeze(-1)], -1))
    batch = strategy.ask()
    assert bool((batch.X >= 0.45).all())


def test_one_budget_pays_for_reports_in_parts_once() -> None:
    outcomes = [Objective("y"), Objective("z", minimize=True)]
    strategy = ThompsonSampling(X, batch_size=3, cost=COST, outcomes=outcomes, seed=0)
    batch = strategy.ask()
    assert batch.indices is not None
    spent = strategy.spent
    Y = torch.stack([objective(batch.X), batch.X.squeeze(-1)], -1)
    strategy.tell(batch, Y * torch.tensor([1.0, torch.nan]))
    strategy.tell(batch, Y * torch.tensor([torch.nan, 1.0]))
    assert strategy.spent == spent == pytest.approx(float(COST[batch.indices].sum()))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"cost": COST[:-1]}, r"cost of shape \(59,\) for 60 rows"),
    ({"cost": COST - 1.5}, r"cost -?0\.\d+ of row \d+; need a positive"),
    ({"cost": torch.full((NUM,), torch.nan)}, "cost nan of row 0"),
    ({"budget": 3.0}, "budget=3.0 without cost"),
    ({"cost": COST, "budget": 0.0}, "budget"),
    ({"cost": "price"}, "cost"),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_bad_costs_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputDataError, match=message):
        ThompsonSampling(X, **given)


def test_costs_are_of_one_table() -> None:
    with pytest.raises(InputDataError, match="for 0 rows"):
        ThompsonSampling(bounds=[[0.0], [1.0]], cost=COST)
    with pytest.raises((InputDataError, TypeError), match="cost"):
        BBKB(X, cost=COST)
    strategy = ThompsonSampling(X, cost=COST)
    with pytest.raises(UnsupportedError, match="costs of the new one"):
        strategy.set_candidates(X[:30])
