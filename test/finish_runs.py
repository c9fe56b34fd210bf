"""Runs of strategies on all domains, and the process that goes on with saved ones.

As a script: `python finish_runs.py IN OUT` loads saved runs, finishes each, saves.
"""

import sys
from collections.abc import Callable
from typing import Any

import box_table
import sbpe_problems
import strategy_table
import torch
from strategy_cases import ALL

from botorch_sparse.strategies import Strategy

TABLES: dict[str, dict[str, Callable[..., Strategy]]] = {
    "table": strategy_table.TABLE,
    "box": box_table.TABLE,
    "sbpe": sbpe_problems.TABLE,
}
OBJECTIVES = {
    "table": strategy_table.objective,
    "box": box_table.objective,
    "sbpe": sbpe_problems.objective,
}


def finish(name: str, strategy: Strategy) -> dict[str, Any]:
    """The state after some more evaluations of a case."""
    num = len(strategy.history) + 6
    strategy.run(ALL[name].objective, num, progress=False)
    return strategy.state_dict()


def resumed(name: str, state: dict[str, Any]) -> Strategy:
    """A case that is built anew, with another seed, and goes on from a state."""
    strategy = ALL[name].make(seed=99)
    strategy.load_state_dict(state)
    return strategy


if __name__ == "__main__":
    states = torch.load(sys.argv[1], weights_only=True)
    finished = {name: finish(name, resumed(name, s)) for name, s in states.items()}
    torch.save(finished, sys.argv[2])
