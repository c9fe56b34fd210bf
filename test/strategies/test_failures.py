"""What fails leaves a strategy as it was, to the bit."""

from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from strategy_table import (
    GP,
    TABLE,
    are_alike,
    equal,
    faulty_kernel,
    objective,
)

OUTSIDE = torch.tensor([[1.5, -0.5], [0.1, 2.0], [1.5, -0.5]], dtype=torch.float64)
all_strategies = pytest.mark.parametrize("name", TABLE)
gp_strategies = pytest.mark.parametrize("name", GP)


@pytest.mark.one_in(5)
@gp_strategies
@pytest.mark.parametrize("outside", [False, True], ids=["table", "outside"])
def test_a_kernel_that_raises(name: str, outside: bool) -> None:
    """`tell` is tried with a failure at its first, second, ... call of the kernel."""
    kernel = faulty_kernel()
    strategy, twin = TABLE[name](covar_module=kernel), TABLE[name]()
    for s in (strategy, twin):
        s.run(objective, 12, progress=False)
        s.tell(OUTSIDE[:1], objective(OUTSIDE[:1]))
        s.ask(3)
    X = torch.cat([strategy.candidates[strategy.pending], strategy.candidates[[5, 9]]])
    if outside:
        X = torch.cat([X, OUTSIDE, OUTSIDE + 1])
    before = strategy.state_dict()
    failures = 0
    while failures < 60:
        kernel.countdown = failures
        try:
            strategy.tell(X, objective(X))
        except RuntimeError:
            failures += 1
            assert equal(strategy.state_dict(), before), failures
            continue
        break
    kernel.countdown = None
    assert failures > 2
    twin.tell(X, objective(X))
    for s in (strategy, twin):
        s.run(objective, 28, progress=False)
    assert are_alike(strategy, twin)


@pytest.mark.one_in(5)
@gp_strategies
def test_a_kernel_that_returns_nan(name: str) -> None:
    """No NaN is learned in silence: either an error and no trace, or no NaN."""
    kernel = faulty_kernel()
    kernel.returns_nan = True
    strategy = TABLE[name](covar_module=kernel)
    strategy.run(objective, 12, progress=False)
    batch = strategy.ask(3)
    before, caught = strategy.state_dict(), 0
    for call in range(12):
        kernel.countdown = call
        try:
            strategy.tell(batch, objective(batch.X))
        except (InputDataError, RuntimeError):
            caught += 1
            kernel.countdown = None
            assert equal(strategy.state_dict(), before)
            continue
        break
    kernel.countdown = None
    assert caught > 0
    strategy.run(objective, 30, progress=False)
    assert strategy.surrogate.view.pool.all_moments().mean.isfinite().all()


BROKEN: dict[str, dict[str, Any]] = {
    "no history": {"history": None},
    "empty history": {"history": {}},
    "pending": {"pending": [[4]]},
    "generator": {"generator": torch.zeros(3, dtype=torch.uint8)},
    "surrogate": {"surrogate": None},
    "statistics": {"statistics": None},
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("part", BROKEN)
@gp_strategies
def test_a_load_that_fails_takes_over_nothing(name: str, part: str) -> None:
    """All is computed aside, so that nothing is to be computed anew."""
    strategy, other = TABLE[name](seed=1), TABLE[name](seed=2)
    for s in (strategy, other):
        s.run(objective, 12, progress=False)
    before, parts = strategy.state_dict(), dict(vars(strategy))
    history = strategy.history
    state = other.state_dict()
    with pytest.raises(InputDataError, match="damaged"):
        strategy.load_state_dict(state | BROKEN[part])
    assert vars(strategy).keys() == parts.keys()
    assert all(vars(strategy)[key] is value for key, value in parts.items())
    assert equal(strategy.state_dict(), before)
    strategy.load_state_dict(state)
    assert torch.equal(history.Y, strategy.history.Y)  # it shows the present record
    assert equal(strategy.state_dict(), state)
