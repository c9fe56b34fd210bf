"""The dynamic buffer of GSSBO, and the cost of an iteration once it is frozen."""

from collections.abc import Callable
from typing import Any

import box_table
import torch
from box_table import BOUNDS, OPTIONS, objective

from botorch_sparse.strategies import GSSBO
from botorch_sparse.strategies.gssbo.subset_surrogate import SubsetBuffer


class Script:
    """A clock that shows one duration after another: start, end, start, end, ...

    Those of learning `n` samples and of choosing by them are halves of one.

    Args:
        duration: Of `n` samples.
        first: The smallest `n`.
    """

    def __init__(self, duration: Callable[[int], float], first: int) -> None:
        self.now, self.looks, self.duration, self.first = 0.0, 0, duration, first

    def __call__(self) -> float:
        self.looks += 1
        if self.looks % 2 == 0:
            self.now += self.duration(self.first + (self.looks - 2) // 4) / 2
        return self.now


def strategy_with(
    duration: Callable[[int], float], first: int = 4, **overrides: Any
) -> GSSBO:
    """With `n` samples, from `first` on, an iteration takes `duration(n)`."""
    arguments = {
        "bounds": BOUNDS,
        "covar_module": box_table.make_kernel(),
        "num_initial": 4,
        "optimizer_options": OPTIONS | {"raw_samples": 4, "num_restarts": 1},
        "window": 3,
        "patience": 1,
        "clock": Script(duration, first),
    }
    return GSSBO(**arguments | overrides)


def test_frozen_once_an_iteration_is_too_slow() -> None:
    """Z = 4 times the mean of the first three, which is 2: more than 8."""
    seconds = {4: 1.0, 5: 2.0, 6: 3.0, 7: 7.9, 8: 8.0, 9: 8.1}
    strategy = strategy_with(lambda n: seconds.get(n, 100.0))
    sizes = []
    while len(strategy.history) < 14:
        batch = strategy.ask()
        strategy.tell(batch, objective(batch.X))
        sizes.append(strategy.buffer.size)
    # Learning the first four has its half of a duration with those, as all others.
    assert sizes == [None] * 6 + [9] * 5
    assert strategy.history.num_inducing.tolist() == [0, *range(4, 10), 9, 9, 9, 9]
    assert len(strategy.model.subset_indices) == 9
    looks = strategy.clock.looks
    strategy.run(objective, 16, progress=False)
    assert strategy.clock.looks == looks  # the clock has no say any more


def test_frozen_size_is_in_the_state() -> None:
    """With another clock a resumed run goes on as this one does."""
    strategy = strategy_with(lambda n: 1.0 if n < 9 else 100.0)
    strategy.run(objective, 11, progress=False)
    assert strategy.buffer.size == 9
    resumed = strategy_with(lambda n: 0.0, seed=5)
    resumed.load_state_dict(strategy.state_dict())
    assert resumed.buffer.size == 9
    histories = [s.run(objective, 16, progress=False) for s in (strategy, resumed)]
    assert torch.equal(histories[0].X, histories[1].X)


def test_an_open_buffer_is_in_the_state() -> None:
    """The yardstick too, and the time of an iteration that is half done."""
    strategy = strategy_with(lambda n: 1.0 if n < 8 else 4.1)
    strategy.run(objective, 8, progress=False)
    resumed = strategy_with(lambda n: 1.0 if n < 8 else 4.1, first=8)
    resumed.clock.looks = 2  # at learning those
    resumed.load_state_dict(strategy.state_dict())
    for s in (strategy, resumed):
        s.run(objective, 12, progress=False)
        assert s.buffer.size == 8


def test_patience() -> None:
    """Slow iterations count in a row."""
    buffer = SubsetBuffer("dynamic", Z=2.0, window=2, patience=2)
    for n, seconds in enumerate([1.0, 1.0, 9.0, 2.0, 9.0, 2.1]):
        assert buffer.is_open
        buffer.record(seconds, n)
    assert buffer.size == 5 and not buffer.is_open
    buffer.record(100.0, 8)
    assert buffer.size == 5
    fixed = SubsetBuffer(7, Z=2.0, window=1, patience=1)
    for _ in range(5):
        fixed.record(1.0 if fixed.size else 100.0, 50)
    assert fixed.size == 7 and not fixed.is_open
    everything = SubsetBuffer(None, Z=2.0, window=1, patience=1)
    for seconds in (1.0, 100.0):
        everything.record(seconds, 50)
    assert everything.size is None and not everything.is_open
    small = SubsetBuffer("dynamic", window=1, patience=1, smallest=20)
    for seconds in (1.0, 100.0):
        small.record(seconds, 3)
    assert small.size == 21  # room for the forced samples and the newest one
