"""Script and notebook of each tutorial agree, and the check sees where they do not.

The notebooks are run by `python -m tutorials check`, not here.
"""

import importlib.util
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

jupytext = pytest.importorskip("jupytext")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location(
    "notebooks", ROOT / "tutorials" / "notebooks.py"
)
notebooks: Any = importlib.util.module_from_spec(SPEC)  # type: ignore[arg-type]
SPEC.loader.exec_module(notebooks)  # type: ignore[union-attr]

SIZE_LIMIT = 300_000  # bytes; a picture has about 40,000
TABLE = "method     regret\nBBKB         0.32\nGP-UCB     1.5e-3\n"


def cell(source: str, *outputs: Any) -> Any:
    return nbformat.v4.new_code_cell(source, outputs=list(outputs))


def printed(text: str, name: str = "stdout") -> Any:
    return nbformat.v4.new_output("stream", name=name, text=text)


def picture() -> Any:
    data = {"image/png": "AA==", "text/plain": "<Figure size 500x380 with 1 Axes>"}
    return nbformat.v4.new_output("display_data", data=data)


def notebook(*cells: Any) -> Any:
    made = nbformat.v4.new_notebook(cells=list(cells))
    made.metadata["botorch_sparse"] = {"made_from": notebooks.fingerprint(made)}
    return made


@pytest.fixture
def stored() -> Any:
    text = nbformat.v4.new_markdown_cell("# Title")
    return notebook(text, cell("print(table)", printed(TABLE)), cell("f", picture()))


def test_every_folder_is_listed() -> None:
    folders = {path.parent.name for path in (ROOT / "tutorials").glob("*/*.py")}
    assert folders == set(notebooks.NAMES)


def test_the_documentation_has_all_of_them() -> None:
    listed = (ROOT / "docs" / "tutorials" / "index.md").read_text()
    assert all(f"notebooks/{name}/{name}" in listed for name in notebooks.NAMES)


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_the_notebook_is_made_from_the_script(name: str) -> None:
    made = notebooks.read_notebook(name)
    nbformat.validate(made)
    assert list(notebooks.faults_of_pair(notebooks.read_script(name), made)) == []


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_the_notebook_is_small_and_clean(name: str) -> None:
    assert notebooks.notebook_path(name).stat().st_size < SIZE_LIMIT
    made = notebooks.read_notebook(name)
    assert notebooks.SMOKE_VARIABLE in made.cells[1].source
    outputs = [o for c in made.cells if c.cell_type == "code" for o in c.outputs]
    assert outputs, "a tutorial shows something"
    for c in made.cells:
        assert c.metadata == {} and c.get("execution_count") is None
    for path in ("/work", "/home", "/tmp", "/root", "object at 0x"):
        assert path not in nbformat.writes(made)


def test_other_numbers_have_the_same_structure(stored: Any) -> None:
    fresh = deepcopy(stored)
    fresh.cells[1].outputs[
        0
    ].text = "method     regret\nBBKB       -12.75\nGP-UCB       nan\n"
    assert list(notebooks.faults_of_run(stored, fresh)) == []


@pytest.mark.parametrize(
    "text",
    [
        TABLE.replace("GP-UCB", "GP-BUCB"),
        TABLE.replace("regret", "regret best"),
        TABLE + "random 1.0\n",
        TABLE.replace("0.32", ""),
    ],
    ids=["a name", "a column", "a row", "a number"],
)
def test_another_table_is_a_fault(stored: Any, text: str) -> None:
    fresh = deepcopy(stored)
    fresh.cells[1].outputs[0].text = text
    assert "code cell 0" in next(iter(notebooks.faults_of_run(stored, fresh)))


def test_a_missing_picture_and_a_new_warning_are_faults(stored: Any) -> None:
    fresh = deepcopy(stored)
    fresh.cells[2].outputs = []
    fresh.cells[1].outputs.append(printed("careful", name="stderr"))
    assert len(list(notebooks.faults_of_run(stored, fresh))) == 2


def test_edited_code_is_a_fault_even_where_both_files_have_it(stored: Any) -> None:
    script = deepcopy(stored)
    script.cells[1].source = "print(2 * table)"
    assert "script and notebook differ" in next(
        iter(notebooks.faults_of_pair(script, stored))
    )
    stored.cells[1].source = "print(2 * table)"
    assert list(notebooks.faults_of_pair(script, stored)) == [
        "its outputs are those of other code"
    ]


def test_new_text_is_taken_over_with_the_outputs_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    (tmp_path / "short").mkdir()
    script = notebooks.script_path("short")
    script.write_text("# %% [markdown]\n# Old\n\n# %%\nprint(1)\n")
    made = notebooks.read_script("short")
    made.cells[1].outputs = [printed("1\n")]
    made.metadata["botorch_sparse"] = {"made_from": notebooks.fingerprint(made)}
    nbformat.write(made, notebooks.notebook_path("short"))
    script.write_text(script.read_text().replace("Old", "New"))
    notebooks.retell("short")
    told = notebooks.read_notebook("short")
    assert told.cells[0].source == "New" and told.cells[1].outputs == [printed("1\n")]
    script.write_text(script.read_text().replace("print(1)", "print(2)"))
    with pytest.raises(ValueError, match="the code of short has changed"):
        notebooks.retell("short")


def test_edited_text_needs_no_new_run(stored: Any) -> None:
    stored.cells[0].source = "# Another title"
    assert list(notebooks.faults_of_pair(deepcopy(stored), stored)) == []


def test_stored_errors_and_warnings_are_faults(stored: Any) -> None:
    error = nbformat.v4.new_output("error", ename="E", evalue="", traceback=[])
    made = notebook(cell("a", error), cell("b", printed("careful", name="stderr")))
    found = list(notebooks.faults_of_pair(deepcopy(made), made))
    assert found == [f"code cell {i} holds an error or a warning" for i in (0, 1)]
