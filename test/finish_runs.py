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


def finish(run: dict[str, Any]) -> dict[str, Any]:
    """The state at the end of a run that is built anew and goes on from a state."""
    domain = run["domain"]
    strategy = TABLES[domain][run["name"]](**run["arguments"])
    strategy.load_state_dict(run["state"])
    strategy.run(OBJECTIVES[domain], run["total"], progress=False)
    return strategy.state_dict()


if __name__ == "__main__":
    runs = torch.load(sys.argv[1], weights_only=True)
    torch.save({key: finish(run) for key, run in runs.items()}, sys.argv[2])
