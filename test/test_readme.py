"""The examples of the README run as they stand."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=["table", "model", "batch", "ax", "strategy"]
)
def test_example_runs(example: str) -> None:
    if "botorch_sparse.ax" in example:
        pytest.importorskip("ax")
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    exec(compile(example, str(README), "exec"), names)
    if "best" in names:
        history = names["strategy"].history
        assert len(history) == history.num_unique == 100
        # Of 10,000 points in the unit cube nine are nearer on average.
        assert names["best"].value > -(0.06**2)
    elif "candidate" in names:
        assert names["model"].num_inducing < 1500 and names["candidate"].shape == (1, 2)
    elif "client" in names:
        assert len(names["client"].summarize()) == 2
    elif "batch" in names and "strategy" not in names:
        assert 1 <= len(names["batch"].X) <= 20 and names["batch"].X.shape[1] == 2
    else:
        history = names["strategy"].history
        # Uniform choice is 0.6 away on average.
        assert (history.X[-10:] - 0.3).norm(dim=-1).mean() < 0.1
