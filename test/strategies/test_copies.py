"""Copies of a strategy: they are strategies of their own, whatever made them."""

import gc
import pickle
from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any
from weakref import ref

import box_table
import pytest
import torch
from strategy_cases import CASES, sampled
from strategy_table import are_alike

HOW: dict[str, Callable[[Any], Any]] = {
    "copy": copy,
    "deepcopy": deepcopy,
    "pickle": lambda strategy: pickle.loads(pickle.dumps(strategy)),
}


@pytest.mark.one_in(3)
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


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["bkb-inferred", "thompson", "gssbo", "regions"])
def test_a_copy_made_during_inference_can_learn(name: str, how: str) -> None:
    strategy = box_table.TABLE[name]()
    strategy.run(box_table.objective, 6, progress=False, batch_size=3)
    with torch.inference_mode():
        other = HOW[how](strategy)
    for each in (strategy, other):
        each.run(box_table.objective, 9, progress=False, batch_size=3)
    assert are_alike(strategy, other)
