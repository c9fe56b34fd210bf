"""A saved state with one thing changed is refused, and nothing of it taken over.

Left out are changes that make the state of another run, which nothing else of it
contradicts: `OTHER_RUNS`.
"""

import re
from itertools import islice
from typing import Any

import pytest
import strategy_cases
import strategy_table
from botorch.exceptions import InputDataError
from state_changes import changes
from strategy_cases import Case, reduction, sampled
from strategy_table import equal

from botorch_sparse.strategies import Strategy

# What was measured, other feedback, trials given up, rows to be proposed again, fewer
# samples of a model, other draws to come.
OTHER_RUNS = re.compile(
    r"history\.Y\.\d+=-1e\+300"
    r"|history\.batches\.(\w+_seconds|beta|max_variance)"
    r"(\.\d+=(nan|inf|-1e\+300)|=torch\.float64\(\d+,\))"
    r"|history\.batches\.num_inducing\.\d+=1000000000"
    r"|history\.rounds\.\d+\.(num_evaluations|num_inducing|survivors)=1000000000"
    r"|history\.rounds\.\d+\.(beta|offset|fraction|lambda_max|max_width)="
    r"(nan|inf|-1e\+300)"
    r"|history\.rounds\.\d+\.survivors=None"
    r"|runs\.regions\.\d+\.center=None"
    r"|(pending|failed)=\[\]|(pending|failed)\.\d+ left out"
    r"|surrogate\.inducing\.\d+ left out"
    r"|surrogate\.subset\.(indices=torch\.int64\(\d+,\)|num_selections=1000000000)"
    r"|surrogate\.last_fit=None|learning_time=-1e\+300"
    r"|buffer\.initial(=\[\]|\.\d+ left out|\.\d+=-1e\+300)"
    r"|(last_bounds|left\.cuts\.\d+)\.data\.inducing=torch\.float64\(\d+, 2\)"
    r"|(last_bounds|left\.cuts\.\d+)\.(threshold|data\.Y\.\d+)=-1e\+300"
    r"|surrogate\.\w+\.(hyper)?parameters\.likelihood\..*raw_noise\.\d+=-1e\+300"
    r"|fit\.center=-1e\+300|lengths\.0=1000000000"
)


def collecting(**overrides: Any) -> Strategy:
    """A strategy whose dataset is being collected."""
    strategy = reduction(**overrides)
    strategy.collect_dataset(6)
    return strategy


def initializing(**overrides: Any) -> Strategy:
    """One that begins with uncertainty sampling."""
    return strategy_table.TABLE["bbkb-global"](min_batch_width=4, **overrides)


CASES = {
    **strategy_cases.CASES,
    **strategy_cases.INFERRED,
    "reduction": Case(collecting, strategy_table.objective, 0),
    "initializing": Case(initializing, strategy_table.objective, 12),
}


def used(name: str) -> Strategy:
    """A strategy in the middle of a batch: pending, told, and failed trials."""
    make, objective, num = CASES[name]
    strategy: Strategy = make()
    if num:
        strategy.run(objective, num, progress=False)
    batch = strategy.pending_batch() if len(strategy.pending) else strategy.ask(5)
    strategy.fail(batch.ids[:1], retry=True)
    if len(batch) > 1:
        strategy.tell(batch.ids[1:2], objective(batch.X[1:2]))
    strategy.fail(batch.ids[2:3])
    return strategy


def check(name: str, every: int) -> None:
    """Load a state with one change or another, one in `every` of them."""
    state, accepted = used(name).state_dict(), list[str]()
    make = CASES[name][0]
    strategy = make()
    before = strategy.state_dict()
    for what, bad in islice(changes(state), sum(map(ord, name)) % every, None, every):
        try:
            strategy.load_state_dict(bad)
        except InputDataError:
            assert equal(strategy.state_dict(), before), what
        else:
            accepted.append(what)
            strategy = make()
            before = strategy.state_dict()
    unknown = [what for what in accepted if not OTHER_RUNS.fullmatch(what)]
    assert not unknown
    strategy = make()
    strategy.load_state_dict(state)
    assert equal(strategy.state_dict(), state)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sampled(CASES))
def test_a_state_with_one_change_is_refused(name: str) -> None:
    check(name, 5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_any_one_change(name: str) -> None:
    check(name, 1)
