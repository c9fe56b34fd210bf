"""Candidates left out, and each chosen once, against a brute force."""

from typing import Any

import numpy as np
import pytest
import torch
from batch_oracles import HOST, Array, Dense, assert_close, fewer, make_problem

from botorch_sparse.optim import BlockUCB, CandidatePool, EagerUCB, LazyUCB
from botorch_sparse.optim.choosable import ALL, Choosable


class SmallBlockUCB(BlockUCB):
    """Two candidates at a time, which often are too few."""

    first_block = 2


class SmallLazyUCB(LazyUCB):
    """Three candidates of a streamed pool at first."""

    first_block = 3


SPARSE = [LazyUCB, SmallLazyUCB, EagerUCB, SmallBlockUCB]
TOLERANCE = {torch.float64: 1e-8, torch.float32: 5e-3}


def test_means_of_what_may_be_chosen(double: dict[str, Any]) -> None:
    mean = torch.arange(4.0).to(**double)
    assert ALL.mean(mean) is mean
    once = Choosable(once=True).mean(mean)
    assert torch.equal(once, mean) and once is not mean  # it is going to change
    excluded = torch.tensor([0, 2], device=mean.device)
    left = Choosable(excluded).mean(mean)
    assert left.tolist() == [-np.inf, 1.0, -np.inf, 3.0]
    assert mean.tolist() == [0.0, 1.0, 2.0, 3.0]


def allowed(bounds: Array, excluded: list[int], taken: list[int], once: bool) -> Array:
    """All bounds, minus infinity where a candidate may not be chosen."""
    bounds = bounds.copy()
    bounds[[*excluded, *(taken if once else [])]] = -np.inf
    return bounds


def follow(
    ucb: Any,
    dense: Dense,
    multiplier: float,
    excluded: list[int],
    once: bool,
    pending: list[int],
    steps: int,
    tolerance: float,
) -> list[int]:
    """The batch, each of whose points attains the largest bound that is allowed."""
    batch = list(pending)
    for index in pending:
        ucb.append(index)
    for _ in range(steps):
        bounds = dense.mean + multiplier * np.sqrt(dense.variance_after(batch))
        expected = allowed(bounds, excluded, batch, once)
        index = ucb.argmax()
        assert np.isfinite(expected[index])
        assert expected[index] >= expected.max() - tolerance
        before = float(ucb.append(index))
        variance = dense.variance_after(batch)[index]
        assert before == pytest.approx(variance, rel=tolerance, abs=tolerance)
        batch.append(index)
    bounds = dense.mean + multiplier * np.sqrt(dense.variance_after(batch))
    expected = allowed(bounds, excluded, batch, once)
    assert_close(ucb.values(), expected, atol=tolerance)
    return batch[len(pending) :]


@pytest.mark.parametrize("once", [False, True], ids=["repeats", "once"])
@pytest.mark.parametrize("cls", SPARSE)
def test_sparse_pools(cls: Any, once: bool, tkwargs: dict[str, Any]) -> None:
    """In memory and streamed, with pending points among the excluded and elsewhere."""
    for seed in fewer(range(8), tkwargs, 2):
        problem, g = make_problem(seed, lam=0.1), np.random.default_rng(seed)
        A = len(problem.X)
        streamed = seed % 2 == 1 and cls is not EagerUCB
        pool = problem.pool(max_memory=0 if streamed else 2**30, **tkwargs)
        excluded = g.choice(A, A // 3, replace=False).tolist()
        pending = [excluded[0], int(g.integers(A))]
        there = torch.tensor(excluded, device=tkwargs["device"])
        multiplier = float(10 ** g.uniform(-1, 1))
        before = pool.mean.clone()
        left = A - len({*excluded, *pending})
        batch = follow(
            cls(pool, multiplier, problem.lam, Choosable(there, once)),
            Dense(problem),
            multiplier,
            excluded,
            once,
            pending,
            steps=left if once else 15,
            tolerance=TOLERANCE[tkwargs["dtype"]],
        )
        assert not once or len(set(batch)) == left  # all there are
        assert torch.equal(pool.mean, before)


@pytest.mark.parametrize("once", [False, True], ids=["repeats", "once"])
def test_exact_pools(once: bool, tkwargs: dict[str, Any]) -> None:
    for seed in fewer(range(6), tkwargs, 2):
        problem, g = make_problem(seed, lam=0.1), np.random.default_rng(seed)
        A, pool = len(problem.X), problem.exact_pool(**tkwargs)
        excluded = g.choice(A, A // 3, replace=False).tolist()
        pending = [excluded[0], int(g.integers(A))]
        there = torch.tensor(excluded, device=tkwargs["device"])
        before = pool.mean.clone()
        left = A - len({*excluded, *pending})
        batch = follow(
            pool.ucb(1.5, problem.lam, Choosable(there, once)),
            Dense(problem, "exact"),
            1.5,
            excluded,
            once,
            pending,
            steps=left if once else 15,
            tolerance=TOLERANCE[tkwargs["dtype"]],
        )
        assert not once or len(set(batch)) == left
        assert torch.equal(pool.mean, before)


@pytest.mark.parametrize("multiplier", [0.1, 2.0, 20.0])
@pytest.mark.parametrize("max_memory", [0, 2**30], ids=["streamed", "kept"])
def test_more_candidates_than_the_first_block(
    max_memory: int, multiplier: float
) -> None:
    """A pool larger than what is refreshed at first, with the class as it is."""
    problem = make_problem(4, num_candidates=600, lam=0.02, kernel="scaled")
    assert LazyUCB.first_block < len(problem.X)
    pool = problem.pool(max_memory=max_memory, **HOST)
    excluded = list(range(0, 600, 3))
    ucb = pool.ucb(multiplier, problem.lam, Choosable(torch.tensor(excluded), True))
    assert type(ucb) is LazyUCB
    follow(ucb, Dense(problem), multiplier, excluded, True, [1, 5], 25, 1e-9)


def test_long_batches_look_at_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once is no reason to look all candidates up at each step."""
    problem = make_problem(21, num_candidates=3000, lam=0.5, kernel="scaled")
    pool = problem.pool(max_memory=0, **HOST)
    looked_at, lookup = [], pool.cross_covariance

    def spy(index: torch.Tensor | slice) -> torch.Tensor:
        K = lookup(index)
        looked_at.append(K.shape[-1])
        return K

    monkeypatch.setattr(pool, "cross_covariance", spy)
    ucb = LazyUCB(pool, 1.0, problem.lam, Choosable(once=True))
    for _ in range(60):
        ucb.append(ucb.argmax())
    assert sum(looked_at) < 0.5 * 60 * len(problem.X)


def test_ties_go_to_the_lowest_that_is_allowed(double: dict[str, Any]) -> None:
    """Rows that are copies of one another, some of them excluded."""
    problem = make_problem(11, num_candidates=30, num_inducing=4, lam=0.1)
    pool = problem.pool(**double)
    best = int((pool.mean + 2 * pool.variance.sqrt()).argmax())
    pool = CandidatePool(torch.cat([pool.X, pool.X[best].expand(6, -1)]))
    pool.update(problem.posterior(**double))
    copies = [best, *range(30, 36)]
    for moments in (pool.mean, pool.variance):
        moments[copies] = moments[best].clone()
    excluded = torch.tensor([best, 30], device=pool.X.device)
    for cls in SPARSE:
        assert cls(pool, 2.0, problem.lam, Choosable(excluded)).argmax() == 31
