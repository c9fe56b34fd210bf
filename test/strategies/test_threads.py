"""Several threads share one strategy."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import box_table
import pytest
import strategy_table
import torch
from torch import Tensor

from botorch_sparse.strategies import Strategy

THREADS = 8
CASES: dict[str, tuple[Callable[..., Strategy], Callable[[Tensor], Tensor]]] = {
    **{
        f"table-{name}": (strategy_table.TABLE[name], strategy_table.objective)
        for name in ("bbkb-global-local", "thompson", "random")
    },
    **{
        f"box-{name}": (box_table.TABLE[name], box_table.objective)
        for name in ("bbkb-global", "random")
    },
}


@pytest.mark.parametrize("name", CASES)
def test_no_evaluation_is_lost_or_of_another_point(name: str) -> None:
    """Eight threads ask, tell, withdraw, fail and look, each at its own pace."""
    make, objective = CASES[name]
    strategy = make()
    told: list[tuple[int, Tensor, float]] = []

    def work(seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        for turn in range(4):
            batch = strategy.ask(1 + seed % 3)
            if not len(batch):
                strategy.learn()
                continue
            if turn == 2 and seed % 4 == 1:
                strategy.withdraw(batch)
                continue
            if turn == 3 and seed % 4 == 2:
                strategy.fail(batch)
                continue
            assert batch.ids is not None
            Y = objective(batch.X).reshape(-1)
            for i in torch.randperm(len(batch), generator=g).tolist():
                strategy.tell(batch.ids[i : i + 1].tolist(), Y[i : i + 1])
                told.append((int(batch.ids[i]), batch.X[i], float(Y[i])))
            look(strategy)

    with ThreadPoolExecutor(THREADS) as executor:
        for done in [executor.submit(work, seed) for seed in range(THREADS)]:
            done.result()
    history = strategy.history
    at = {id: place for place, id in enumerate(history.trial.tolist())}
    assert sorted(at) == sorted(id for id, _, _ in told) and len(at) == len(history)
    for id, x, y in told:
        assert torch.equal(history.X[at[id]], x) and float(history.Y[at[id]]) == y
    assert len(strategy.pending) == 0
    twin = make()
    twin.load_state_dict(strategy.state_dict())
    assert torch.equal(strategy.ask(2).X, twin.ask(2).X)


def look(strategy: Strategy) -> None:
    """What is read between steps is of whole steps."""
    state: dict[str, Any] = strategy.state_dict()
    columns = [state["history"][name] for name in ("point", "Y", "batch", "trial")]
    assert len({len(column) for column in columns}) == 1
    pending = {trial[0] for trial in state["pending"]}
    assert not pending & set(columns[3])
    assert strategy.X_pending.shape[-1] == 2
    strategy.history.best()


def test_a_copy_has_a_lock_of_its_own() -> None:
    strategy = strategy_table.TABLE["random"]()
    other = deepcopy(strategy)
    with strategy._lock, ThreadPoolExecutor(1) as executor:
        assert len(executor.submit(other.ask, 2).result()) == 2
