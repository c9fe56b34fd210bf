"""Copies of a strategy: they are strategies of their own, whatever made them."""

import gc
from weakref import ref

import pytest
from strategy_cases import CASES, sampled


@pytest.mark.one_in(15)
@pytest.mark.parametrize("name", sampled(CASES))
def test_it_goes_without_the_garbage_collector(name: str) -> None:
    """Which comes too late for matrices; a history that is kept keeps its strategy."""
    make, objective, start = CASES[name]
    strategy = make()
    gc.collect()
    gc.disable()
    try:
        history = strategy.run(objective, start, progress=False, batch_size=3)
        strategy.tell(strategy.ask(1), [0.5])
        strategy.predict(strategy.history.X)
        last = ref(strategy)
        del strategy
        assert len(history) == start + 1 and last() is not None
        del history
        assert last() is None
    finally:
        gc.enable()
