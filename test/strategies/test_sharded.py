"""Strategies over a table that ranks share choose what one process chooses."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from device_cases import sweep
from gpytorch.kernels import RBFKernel
from thread_ranks import together
from torch import Tensor

from botorch_sparse.distributed import Ranks, ShardedDomain
from botorch_sparse.pools.shard import RANK_TILE
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPUCB,
    SBPE,
    RandomSearch,
    StopOnConfidenceGap,
    Strategy,
)

ROWS = 4 * RANK_TILE - 300
HOST = torch.device("cpu")
Build = Callable[..., Strategy]


def table(device: torch.device = HOST) -> Tensor:
    """Candidates of which some are alike."""
    X = torch.rand(ROWS, 2, generator=torch.Generator().manual_seed(0)).double()
    X[RANK_TILE + 7] = X[3 * RANK_TILE + 7] = X[5]
    return X.to(device)


def domain_of(ranks: Ranks) -> ShardedDomain:
    return ShardedDomain.of(table(), ranks)


def objective(X: Tensor) -> Tensor:
    return (7 * X).sin().sum(-1)


def known(build: type[Strategy], **options: Any) -> Build:
    """A strategy with a kernel, short and smooth enough for batches to end."""

    def make(candidates: Any) -> Strategy:
        X = candidates.X if isinstance(candidates, ShardedDomain) else candidates
        kernel = RBFKernel().to(X)
        kernel.lengthscale = 0.4
        return build(candidates, covar_module=kernel, lam=0.05, **options)

    return make


CASES: dict[str, Build] = {
    "global": known(BBKB, termination="global"),
    "global-local": known(BBKB, ratio_threshold=4.0),
    "once": known(BBKB, unique=True),
    "bkb": known(BKB),
    "inferred": lambda X: BBKB(X, batch_size=6),
    "minimize": lambda X: BBKB(X, batch_size=6, minimize=True, seed=3),
    "random": lambda X: RandomSearch(X, batch_size=7),
}


def run(strategy: Strategy, num: int = 24, **options: Any) -> list[int]:
    history = strategy.run(objective, num, progress=False, **options)
    return history.indices.tolist()


@pytest.mark.one_in(3)
@sweep("name", CASES, ["global-local", "inferred", "once"])
def test_choices_are_those_of_one_process(name: str, device: torch.device) -> None:
    whole = run(CASES[name](table(device)))
    size = {"inferred": 4, "global-local": 2}.get(name, 3)
    chosen = together(size, lambda ranks: run(CASES[name](domain_of(ranks))), device)
    assert chosen == [whole] * size
    assert len({row // RANK_TILE for row in whole}) > 1


@pytest.mark.one_in(2)
@pytest.mark.slow_sim
@sweep("name", ["global-local", "inferred"], ["inferred"])
def test_a_run_goes_on_with_another_number_of_ranks(
    name: str, tmp_path: Path, device: torch.device
) -> None:
    """Saved by two, resumed by four, and by one process with the whole table."""
    build, path = CASES[name], tmp_path / "state.pt"
    whole = run(build(table(device)), 30)
    begun = build(table(device))
    begun.run(objective, 12, progress=False)
    first = len(begun.history) if name == "inferred" else 12

    def begin(ranks: Ranks) -> list[int]:
        return run(build(domain_of(ranks)), first, checkpoint=path)

    def go_on(ranks: Ranks) -> list[int]:
        strategy = build(domain_of(ranks)).resume(path)
        return run(strategy, 30)

    together(2, begin, device)
    expected = run(copy.deepcopy(build(table(device))).resume(path), 30)
    assert together(4, go_on, device) == [expected] * 4
    assert expected[:first] == whole[:first]


@pytest.mark.parametrize("kind", ["path", "memmap", "array"])
def test_a_table_may_stay_in_a_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "X.npy"
    np.save(path, table().numpy())
    given: Any = {
        "path": path,
        "memmap": np.load(path, mmap_mode="r"),
        "array": table().numpy(),
    }[kind]

    def rows(ranks: Ranks) -> tuple[Tensor, Tensor]:
        domain = ShardedDomain.of(given, ranks)
        return domain.X, domain.rows(torch.tensor([ROWS - 1, 3, RANK_TILE]))

    parts = together(3, rows)
    assert torch.equal(torch.cat([own for own, _ in parts]), table())
    for _, found in parts:
        assert torch.equal(found, table()[[ROWS - 1, 3, RANK_TILE]])


def test_a_state_is_that_of_one_process() -> None:
    ours, *_ = together(3, lambda r: CASES["global"](domain_of(r)).state_dict())
    assert ours["config"] == CASES["global"](table()).state_dict()["config"]


def test_ranks_with_another_seed_or_option_are_refused() -> None:
    def seeds(ranks: Ranks) -> str:
        strategy = RandomSearch(domain_of(ranks), seed=ranks.rank)
        with pytest.raises(InputDataError) as error:
            run(strategy)
        return str(error.value)

    def options(ranks: Ranks) -> str:
        strategy = RandomSearch(domain_of(ranks), batch_size=2 + ranks.rank // 2)
        with pytest.raises(InputDataError) as error:
            run(strategy)
        return str(error.value)

    assert all("Ranks [1, 2] have another seed" in e for e in together(3, seeds))
    assert all("Ranks [2] have another strategy" in e for e in together(3, options))


def test_the_objective_is_called_on_one_rank_and_its_error_raised_on_all() -> None:
    calls: list[int] = []

    def run_counted(ranks: Ranks) -> None:
        def counted(X: Tensor) -> Tensor:
            calls.append(ranks.rank)
            return objective(X)

        RandomSearch(domain_of(ranks), batch_size=5).run(counted, 10, progress=False)

    together(3, run_counted)
    assert calls == [0, 0]

    def fail(ranks: Ranks) -> None:
        with pytest.raises(ZeroDivisionError, match="division"):
            RandomSearch(domain_of(ranks)).run(lambda X: 1 / 0, 10, progress=False)

    together(3, fail)


def test_callbacks_may_ask_for_what_all_ranks_know(device: torch.device) -> None:
    def gap(ranks: Ranks) -> tuple[float, int]:
        strategy = CASES["global"](domain_of(ranks))
        run(strategy, 60, callbacks=[StopOnConfidenceGap(6.0)])
        return strategy.confidence_gap(), len(strategy.history)

    whole = CASES["global"](table(device))
    run(whole, 60, callbacks=[StopOnConfidenceGap(6.0)])
    expected = (whole.confidence_gap(), len(whole.history))
    assert together(2, gap, device) == [expected] * 2


def test_what_ranks_do_not_share_is_refused() -> None:
    def refuse(ranks: Ranks) -> None:
        with pytest.raises(UnsupportedError, match="Exact posteriors are not shared"):
            GPUCB(domain_of(ranks))
        with pytest.raises(UnsupportedError, match="SBPE does not share tables"):
            SBPE(domain_of(ranks))
        strategy = CASES["global"](domain_of(ranks))
        batch = strategy.ask()
        with pytest.raises(UnsupportedError, match="not found by these"):
            strategy.tell(batch.X, objective(batch.X))
        for by_points in ({"timeout": 5.0}, {"catch": ValueError}):
            with pytest.raises(UnsupportedError, match="leave executor, timeout and"):
                strategy.run(objective, 90, progress=False, **by_points)
        strategy.tell(replace(batch, ids=None), objective(batch.X))
        assert len(strategy.history) == len(batch) and len(strategy.pending) == 0

    together(2, refuse)
