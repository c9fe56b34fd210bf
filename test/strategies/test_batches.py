"""What a batch is: when it is over, and when it is learned."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from strategy_table import (
    BATCHED,
    GP,
    TABLE,
    equal,
    objective,
    unending,
    without_times,
)

from botorch_sparse.acquisition.confidence import FixedBeta
from botorch_sparse.strategies import Batch, RandomSearch, Strategy
from botorch_sparse.strategies.surrogates.surrogate import Surrogate

LAM = 1e-2
OUTSIDE = torch.tensor([[1.5, -0.5], [0.1, 2.0]], dtype=torch.float64)
gp_strategies = pytest.mark.parametrize("name", GP)
# Batches of some points, and of many: a threshold of 2 is used up at once.
THRESHOLD = 8.0


def started(name: str, **overrides: Any) -> Any:
    """A strategy that has learned, and has nothing pending."""
    strategy = TABLE[name](lam=LAM, **overrides)
    strategy.run(objective, 40, progress=False)
    return strategy


def of_several(name: str) -> Any:
    """The same, with batches of several points."""
    return started(name, ratio_threshold=THRESHOLD, radius=FixedBeta(100.0))


def ask_all(strategy: Strategy, size: int = 1) -> list[Batch]:
    """Batches until there is nothing more to ask for."""
    batches = [strategy.ask(size)]
    while len(batches[-1]):
        batches.append(strategy.ask(size))
    return batches[:-1]


def count_learning(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the history at each time that the strategy learns from now on."""
    lengths, learn = [], Surrogate.learn

    def spy(self: Surrogate, history: Any, *args: Any) -> Any:
        lengths.append(len(history))
        return learn(self, history, *args)

    monkeypatch.setattr(Surrogate, "learn", spy)
    return lengths


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", BATCHED)
def test_asking_one_by_one_ends_where_the_batch_does(name: str) -> None:
    """The threshold is one for all calls, whatever is told between them."""
    whole, parts, told = (of_several(name) for _ in range(3))
    batch = whole.ask()
    assert len(batch) > 2
    indices = [b.indices for b in ask_all(parts)]
    assert torch.equal(torch.cat(indices), batch.indices)
    chosen = []
    while len(part := told.ask(1)):
        chosen.append(part.indices)
        if len(chosen) % 2 and len(chosen) < len(batch):
            told.ask(1)
            told.tell(told.pending_ids[-1:], objective(told.X_pending[-1:]))
            chosen.append(told.history.indices[-1:])
    assert torch.equal(torch.cat(chosen), batch.indices)
    for strategy in (whole, parts):
        strategy.tell(batch.X, objective(batch.X))
    told.tell(told.pending_ids, objective(told.X_pending))
    for strategy in (parts, told):  # learned at the same place
        assert torch.equal(strategy.ask().indices[:1], whole.ask(1).indices)
        whole.withdraw(whole.pending_ids)


@pytest.mark.one_in(3)
@gp_strategies
def test_an_empty_batch_says_why_and_changes_nothing(name: str) -> None:
    strategy = started(name)
    ask_all(strategy)
    before = without_times(strategy.state_dict())
    batch = strategy.ask()
    assert len(batch) == 0 and batch.X.shape == (0, 2)
    assert batch.ids is not None and batch.indices is not None
    assert len(batch.ids) == len(batch.indices) == 0 and batch.number == -1
    assert "Tell their feedback" in batch.note and "learn()" not in batch.note
    assert equal(without_times(strategy.state_dict()), before)
    strategy.tell(batch, torch.zeros(0))
    strategy.fail(batch)
    strategy.withdraw(batch)
    assert equal(without_times(strategy.state_dict()), before)
    pending = strategy.pending_batch()
    assert pending.note == ""
    strategy.tell(pending, objective(pending.X))
    assert len(strategy.ask()) > 0


@pytest.mark.parametrize("name", GP)
def test_the_first_points_are_a_batch(name: str) -> None:
    """Nothing can be chosen by a posterior before they are told."""
    strategy = TABLE[name]()
    first = strategy.ask()
    assert len(first) == 1 and len(strategy.ask()) == 0
    strategy = TABLE[name](num_initial=5)
    assert [len(strategy.ask(size)) for size in (2, 9, 1)] == [2, 3, 0]


@pytest.mark.parametrize("name", ["bbkb-global", "bkb", "thompson", "random"])
def test_batches_of_a_size_are_never_over(name: str) -> None:
    strategy = TABLE[name](batch_size=3)
    strategy.run(objective, 9, progress=False)
    assert [len(strategy.ask()) for _ in range(3)] == [3, 3, 3]


def test_points_that_are_given_up_leave_their_room() -> None:
    strategy = of_several("bbkb-global")
    batches = ask_all(strategy)
    strategy.withdraw(batches[0])
    strategy.fail(batches[1])
    assert len(strategy.ask(1)) == 1
    strategy.fail(batches[2], retry=True)
    ask_all(strategy)
    assert len(strategy.ask()) == 0
    strategy.fail(batches[2], retry=True)
    again = strategy.ask()
    assert torch.equal(again.ids, batches[2].ids) and again.note == ""


@gp_strategies
def test_a_part_is_not_learned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by `tell` nor by `ask`, before the last point of a batch is told."""
    strategy = unending(name, lam=LAM)
    strategy.run(objective, 40, progress=False)
    learned = count_learning(strategy, monkeypatch)
    first, second = strategy.ask(3), strategy.ask(3)
    strategy.tell(first, objective(first.X))
    third = strategy.ask(1)
    strategy.tell(OUTSIDE[:1], objective(OUTSIDE[:1]))  # nobody waited for it
    strategy.tell(third, objective(third.X))
    strategy.tell(second.ids[:2], objective(second.X[:2]))
    assert learned == []
    strategy.tell(second.ids[2:], objective(second.X[2:]))
    assert learned == [48]
    strategy.tell(OUTSIDE[1:], objective(OUTSIDE[1:]))  # nothing is pending
    assert learned == [48, 49]


def test_what_is_given_up_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next `ask` learns once the rest of a batch has failed or is withdrawn."""
    strategy = of_several("bbkb-global")
    learned = count_learning(strategy, monkeypatch)
    ids = torch.cat([batch.ids for batch in ask_all(strategy)])
    strategy.tell(ids[2:], objective(strategy.X_pending[2:]))
    strategy.withdraw(ids[:1])
    assert learned == []
    strategy.fail(ids[1:2], retry=True)
    again = strategy.ask()
    assert learned == [38 + len(ids)]
    assert again.ids[0] == ids[1] and len(again) > 1


def test_learning_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing then stays pending, and no later batch waits for it."""
    strategy = of_several("bbkb-global")
    learned = count_learning(strategy, monkeypatch)
    old = ask_all(strategy)
    strategy.learn()  # nothing is told
    assert learned == []
    strategy.tell(old[0], objective(old[0].X))
    assert "learn() from the 1 that are told" in strategy.ask().note
    strategy.learn()
    assert learned == [41]
    assert strategy.pending_ids.tolist() == [int(b.ids) for b in old[1:]]
    strategy.tell(old[1], objective(old[1].X))
    assert learned == [41]  # the others are out still
    strategy.withdraw(old[2])
    new = strategy.ask(1)
    assert learned == [41]
    strategy.tell(new, objective(new.X))
    assert learned == [41, 43] and len(strategy.pending) == len(old) - 3


def test_pending_points_of_before_count_in_the_next_batch() -> None:
    """Whoever learns with all but one told has less room than with all told."""
    strategy = started("bbkb-global", ratio_threshold=1.2)
    batch = strategy.ask()
    strategy.tell(OUTSIDE[:1], objective(OUTSIDE[:1]))
    strategy.learn()
    variance = strategy.surrogate.view.pool.all_variances()
    assert 1 + float(variance[batch.indices].sum()) / LAM > 1.2  # still
    assert len(strategy.ask()) == 0


def test_batches_of_a_size_are_learned_when_as_many_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With more out than that, as where workers are kept busy."""
    strategy = TABLE["bbkb-global"](batch_size=4)
    strategy.run(objective, 12, progress=False)
    learned = count_learning(strategy, monkeypatch)
    strategy.ask()
    for _ in range(8):
        strategy.ask(1)
        oldest = strategy.pending_ids[:1]
        strategy.tell(oldest, objective(strategy.X_pending[:1]))
    assert learned == [16, 20] and len(strategy.pending) == 4


@pytest.mark.parametrize("threads", [False, True], ids=["one by one", "at once"])
def test_a_run_learns_once_a_batch(
    threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where results are told one by one."""
    strategy = of_several("bbkb-global")
    learned, num_batches = (
        count_learning(strategy, monkeypatch),
        len(strategy.history.batches),
    )
    with ThreadPoolExecutor(3) as executor:
        how: dict[str, Any] = {"executor": executor} if threads else {"catch": KeyError}
        strategy.run(objective, 80, progress=False, **how)
    new = strategy.history.batches[num_batches:]
    assert len(learned) == len(new) < 40 and learned[-1] == 80


def test_a_run_goes_on_with_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = of_several("bbkb-global")
    batches = ask_all(strategy)
    learned = count_learning(strategy, monkeypatch)
    strategy.run(objective, 41, progress=False)
    assert learned == []
    strategy.run(objective, 40 + len(batches), progress=False)
    assert learned == [40 + len(batches)]


def test_a_strategy_of_ones_own_may_end_its_batches() -> None:
    """By the hook, or by choosing nothing."""

    class Pairs(RandomSearch):
        def _is_batch_over(self) -> bool:
            return len(self.batch_points()) >= 2

    class Nothing(RandomSearch):
        def _select(self, max_batch_size: int | None) -> list[int]:
            return [] if len(self.pending) else super()._select(max_batch_size)

    for cls in (Pairs, Nothing):
        strategy = cls(OUTSIDE, batch_size=2)
        assert [len(strategy.ask()) for _ in range(2)] == [2, 0]
        assert len(strategy.history.batches) == 1
        strategy.tell(strategy.pending_ids, [1.0, 2.0])
        assert len(strategy.run(lambda X: X[:, 0], 9, progress=False)) == 9
