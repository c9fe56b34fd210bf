"""Notebooks made of scripts, run, and compared with what they print.

Each tutorial is a script in the percent format (`NAME/NAME.py`), which is what one
edits, and the notebook with its outputs (`NAME/NAME.ipynb`), which is made from it.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
NAMES = (
    "find_the_best",
    "several_outcomes",
    "molecules",
    "drop_in",
    "ten_thousand",
    "candidate_table",
    "variance_starvation",
    "elimination",
    "gradient_selection",
    "ax_client",
    "own_rules",
)
SMOKE_VARIABLE = "SMOKE_TEST"  # as in BoTorch's tutorials
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SECONDS_PER_CELL = 1800
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?(e[-+]?\d+)?|\bnan\b|\binf\b)", re.IGNORECASE)


def script_path(name: str) -> Path:
    """The script of a tutorial."""
    return FOLDER / name / f"{name}.py"


def notebook_path(name: str) -> Path:
    """The notebook of a tutorial."""
    return script_path(name).with_suffix(".ipynb")


def read_script(name: str) -> NotebookNode:
    """The script as a notebook without outputs."""
    notebook = jupytext.read(script_path(name), fmt="py:percent")
    return _cleaned(notebook)


def read_notebook(name: str) -> NotebookNode:
    """The notebook as it is stored."""
    return nbformat.read(notebook_path(name), as_version=4)


def run(name: str, *, smoke: bool) -> NotebookNode:
    """Run the script's cells in a new kernel.

    Args:
        name: Of the tutorial.
        smoke: Whether to set `SMOKE_TEST`, which makes the tutorials small.

    Returns:
        The notebook with outputs, and nothing in it that changes from run to run but
        what the cells print.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
    """
    notebook = read_script(name)
    environment = {k: v for k, v in os.environ.items() if k != SMOKE_VARIABLE}
    root = str(FOLDER.parent)
    paths = [root, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if smoke:
        environment |= {SMOKE_VARIABLE: "1", "OMP_NUM_THREADS": "1"}
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": root}},
    )
    client.execute(env=environment)
    return _cleaned(notebook)


def build(name: str) -> None:
    """Run the script in full and store the notebook."""
    notebook = run(name, smoke=False)
    notebook.metadata["botorch_sparse"] = {"made_from": fingerprint(notebook)}
    nbformat.validate(notebook)
    nbformat.write(notebook, notebook_path(name))


def retell(name: str) -> None:
    """Take over the script's text, and keep the outputs: its code must be the same.

    Raises:
        ValueError: If the code is another one.
    """
    notebook, stored = read_script(name), read_notebook(name)
    if fingerprint(notebook) != stored.metadata["botorch_sparse"]["made_from"]:
        raise ValueError(f"the code of {name} has changed: build it")
    pairs = zip(_code_cells(notebook), _code_cells(stored), strict=True)
    for cell, old in pairs:
        cell.outputs = old.outputs
    notebook.metadata = stored.metadata
    nbformat.write(notebook, notebook_path(name))


def fingerprint(notebook: NotebookNode) -> str:
    """A hash of the code, by which outputs of other code are recognized."""
    code = "\n\0".join(cell.source for cell in _code_cells(notebook))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def faults_of_pair(script: NotebookNode, stored: NotebookNode) -> Iterator[str]:
    """What is wrong with a stored notebook, without running anything.

    Args:
        script: Of `read_script`.
        stored: Of `read_notebook`.

    Yields:
        One sentence for each fault.
    """
    ours, theirs = (
        [(cell.cell_type, cell.source) for cell in notebook.cells]
        for notebook in (script, stored)
    )
    if ours != theirs:
        yield "the cells of script and notebook differ"
    made_from = stored.metadata.get("botorch_sparse", {}).get("made_from")
    if made_from != fingerprint(stored):
        yield "its outputs are those of other code"
    for number, cell in enumerate(_code_cells(stored)):
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                yield f"code cell {number} holds an error or a warning"


def faults_of_run(stored: NotebookNode, fresh: NotebookNode) -> Iterator[str]:
    """Where a new run prints something of another structure than the stored one.

    Args:
        stored: Of `read_notebook`.
        fresh: Of `run`.

    Yields:
        One sentence for each fault.
    """
    pairs = zip(_code_cells(stored), _code_cells(fresh), strict=True)
    for number, (old, new) in enumerate(pairs):
        before, after = structure(old), structure(new)
        if before != after:
            yield f"code cell {number} shows\n{after}\nand its notebook\n{before}"


def structure(cell: NotebookNode) -> str:
    """What a code cell shows, with each number as `#` and each gap as one space."""
    lines = []
    for output in cell.outputs:
        data = output.get("data", {})
        text = output.get("text", data.get("text/plain", ""))
        kinds = [output.get("name", ""), *sorted(data)]
        lines.append(f"[{output.output_type} {' '.join(kinds)}]")
        for line in NUMBER.sub("#", text).splitlines():
            lines.append(" ".join(line.split()))
    return "\n".join(lines)


def _code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _cleaned(notebook: NotebookNode) -> NotebookNode:
    """Without identifiers, times, counts and settings of editors."""
    notebook.metadata = NotebookNode(
        kernelspec=NotebookNode(KERNEL), language_info=NotebookNode(name="python")
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", NotebookNode()
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [_cleaned_output(o) for o in _merged(cell.outputs)]
    return notebook


def _cleaned_output(output: NotebookNode) -> NotebookNode:
    if "execution_count" in output:
        output.execution_count = None
    if "metadata" in output:
        output.metadata = NotebookNode()
    return output


def _merged(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Outputs with neighbouring pieces of one stream joined: how many is chance."""
    merged: list[NotebookNode] = []
    for output in outputs:
        last = merged[-1] if merged else None
        is_stream = output.output_type == "stream"
        if is_stream and last is not None and last.get("name") == output.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged
