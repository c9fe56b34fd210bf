"""Several threads share one strategy."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import box_table
import pytest
import sbpe_problems
import strategy_table
import torch
from botorch.exceptions import InputDataError
from strategy_cases import SEVERAL
from torch import Tensor

from botorch_sparse.strategies import Batch, Strategy

THREADS = 8
KNOWN: dict[str, Any] = {"covar_module": box_table.make_kernel(), "lam": box_table.LAM}
CASES: dict[str, tuple[Callable[..., Strategy], Callable[[Tensor], Tensor]]] = {
    **{
        f"table-{name}": (strategy_table.TABLE[name], strategy_table.objective)
        for name in ("bbkb-global-local", "thompson", "random")
    },
    **{
        f"box-{name}": (box_table.TABLE[name], box_table.objective)
        for name in ("bbkb-global", "random", "gssbo-known")
    },
    "box-regions": (
        partial(box_table.TABLE["regions-two"], **KNOWN),
        box_table.objective,
    ),
    "sbpe-table": (sbpe_problems.TABLE["table"], sbpe_problems.objective),
    "sbpe-box": (
        partial(sbpe_problems.TABLE["box"], num_evaluations=80, raw_samples=4),
        sbpe_problems.objective,
    ),
}
CASES |= {name: SEVERAL[name][:2] for name in SEVERAL if "inferred" not in name}
TABLES = [name for name in CASES if name.startswith("table")]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", CASES)
def test_no_evaluation_is_lost_or_of_another_point(name: str) -> None:
    """Eight threads ask, tell, withdraw, fail and look, each at its own pace."""
    make, objective = CASES[name]
    strategy = make()
    share(strategy, objective, lambda seed, turn: look(strategy))
    twin = make()
    twin.load_state_dict(strategy.state_dict())
    assert torch.equal(strategy.ask(2).X, twin.ask(2).X)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", TABLES)
def test_files_and_other_tables_beside_them(name: str, tmp_path: Path) -> None:
    """Half of the threads save, the others change the order of the candidates."""
    make, objective = CASES[name]
    strategy = make()
    tables = [strategy.candidates, strategy.candidates.flip(0)]

    def beside(seed: int, turn: int) -> None:
        if seed % 2:
            strategy.save(tmp_path / f"{seed}-{turn}")
        else:
            strategy.set_candidates(tables[(seed // 2 + turn) % 2])

    share(strategy, objective, beside)
    twins = []
    for table in tables:
        twins.append(make())
        twins[-1].set_candidates(table)
    for path in tmp_path.iterdir():
        twin = resumed(twins, path)
        look(twin)
        assert len(twin.history) <= len(strategy.history)
    strategy.save(tmp_path / "last")
    assert torch.equal(strategy.ask(2).X, resumed(twins, tmp_path / "last").ask(2).X)


def share(
    strategy: Strategy,
    objective: Callable[[Tensor], Tensor],
    beside: Callable[[int, int], None],
) -> None:
    """Use a strategy from many threads, and compare its history with what was told."""
    told: list[tuple[int, Tensor, Tensor]] = []
    num = len(strategy.record.outcomes)

    def work(seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        for turn in range(3):
            batch = asked(strategy, 1 + seed % 3)
            if turn == 1 and seed % 4 == 1:
                strategy.withdraw(batch)
                continue
            if turn == 2 and seed % 4 == 2:
                strategy.fail(batch)
                continue
            assert batch.ids is not None
            Y = objective(batch.X).reshape(len(batch), num)
            for part in torch.randperm(len(batch) * num, generator=g).tolist():
                i, outcome = divmod(part, num)  # one outcome of a trial at a time
                y = torch.full((1, num), torch.nan, dtype=torch.double)
                y[0, outcome] = Y[i, outcome]
                strategy.tell([int(batch.ids[i])], y)
            told.extend(zip(batch.ids.tolist(), batch.X, Y, strict=True))
            beside(seed, turn)

    with ThreadPoolExecutor(THREADS) as executor:
        for done in [executor.submit(work, seed) for seed in range(THREADS)]:
            done.result()
    history = strategy.history
    at = {id: place for place, id in enumerate(history.trial.tolist())}
    assert sorted(at) == sorted(id for id, _, _ in told) and len(at) == len(history)
    for id, x, y in told:
        assert torch.equal(history.X[at[id]], x)
        assert torch.equal(history.Y[at[id]].reshape(num), y)
    assert len(strategy.pending) == 0 and len(told) >= 2 * THREADS


def asked(strategy: Strategy, size: int) -> Batch:
    """The next batch that is not empty: other threads have what it waits for."""
    for _ in range(5000):
        if len(batch := strategy.ask(size)):
            return batch
        strategy.learn()
        time.sleep(0.01)
    raise AssertionError("All batches are empty, and no thread goes on.")


def look(strategy: Strategy) -> None:
    """What is read between steps is of whole steps."""
    state: dict[str, Any] = strategy.state_dict()
    columns = [state["history"][name] for name in ("point", "Y", "batch", "trial")]
    assert len({len(column) for column in columns}) == 1
    pending = {trial[0] for trial in state["pending"]}
    assert not pending & set(columns[3].tolist())
    assert strategy.X_pending.shape[-1] == 2
    assert not bool(strategy.history.pareto().values.isnan().any())


def resumed(twins: list[Strategy], path: Path) -> Strategy:
    """The one of two whose table a file is of; the other refuses it."""
    fitting = []
    for twin in twins:
        try:
            fitting.append(twin.resume(path))
        except InputDataError as error:
            assert "'candidates'" in str(error)
    (only,) = fitting
    return only


def test_a_copy_has_a_lock_of_its_own() -> None:
    strategy = strategy_table.TABLE["random"]()
    other = deepcopy(strategy)
    with strategy._lock, ThreadPoolExecutor(1) as executor:
        assert len(executor.submit(other.ask, 2).result()) == 2
