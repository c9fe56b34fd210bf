"""The examples of the README and of the how-to pages run as they stand."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = (
    "run_a_strategy",
    "several_outcomes",
    "use_in_botorch",
    "use_in_ax",
    "add_a_member",
)


def names_after(text: str) -> dict[str, Any]:
    """What the Python examples of a text leave behind, run in their order."""
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "example"}
    for example in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(example, "example", "exec"), names)
    return names


def test_the_readme():
    assert len(README.splitlines()) <= 150
    names = names_after(README)
    history = names["strategy"].history
    assert len(history) == history.num_unique == 100
    # Of 10,000 points in the unit cube nine are nearer on average.
    assert names["best"].value > -(0.06**2)
    assert names["model"].num_inducing < 1500 and names["candidate"].shape == (1, 2)


@pytest.mark.filterwarnings("ignore:1 of 5.. observations are taken to be outliers")
@pytest.mark.parametrize("page", PAGES)
def test_the_pages(page):
    if page == "use_in_ax":
        pytest.importorskip("ax.api")
    names = names_after((ROOT / "docs" / "how_to" / f"{page}.md").read_text())
    if "client" in names:
        assert len(names["client"].summarize()) == 10 and names["front"]
    elif "model" in names:
        assert 1 <= len(names["batch"].X) <= 20 and names["batch"].X.shape[1] == 2
        assert names["candidates"].shape == (2, 4) and names["best"].shape == (1, 4)
        assert not any(each.is_exact for each in names["models"].models)
    elif "history" in names:
        assert len(names["history"]) >= 20
    else:
        assert 1 <= len(names["strategy"].ask()) <= 8


def test_files_that_are_named_are_there():
    """With their path from the repository, the package, its strategies, or the page."""
    package = ROOT / "botorch_sparse"
    folders = (ROOT, package, package / "strategies")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*/**/*.md")]
    pages.remove(ROOT / "CHANGELOG.md")
    for page in pages:
        for name in re.findall(r"[a-z_/]+/[a-z_]+\.py\b", page.read_text()):
            near = (*folders, page.parent)
            assert any((folder / name).exists() for folder in near), (page, name)


def test_the_command_line(tmp_path):
    """`suggest` writes a header and a batch."""
    rows = np.random.default_rng(0).random((60, 2))
    pool = "".join(f"r{i},{x},{y}\n" for i, (x, y) in enumerate(rows))
    (tmp_path / "pool.csv").write_text(f"id,x,y\n{pool}")
    measured = "".join(f"r{i},{rows[i].sum()}\n" for i in range(10))
    (tmp_path / "measured.csv").write_text(f"id,loss\n{measured}")
    command = re.search(
        r"^python -m botorch_sparse suggest .+?(?= >)", README, re.M | re.S
    )
    assert command is not None
    words = [sys.executable, *shlex.split(command[0].replace("\\\n", ""))[1:]]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert len(done.stdout.splitlines()) == 21
