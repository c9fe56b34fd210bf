"""The page for laboratories: its commands print what it says."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("openpyxl")

from page_commands import SUGGEST, agree, copy_tables, printed, shown_and_found

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "tutorials" / "reactions.md"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def test_the_page_shows_what_its_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the second batch the header and the length: a processor may change rows."""
    copy_tables(PAGE.with_suffix(""), tmp_path)
    monkeypatch.chdir(tmp_path)
    texts = 0
    for block, found in shown_and_found(PAGE.read_text(encoding="utf-8")):
        shown = block["text"]
        if block["kind"] == "text" or not block["name"].startswith("batch_2"):
            assert agree(shown, found), found
            texts += 1
        else:
            proposed = found.splitlines()
            assert shown.splitlines()[0] == proposed[0] and len(proposed) == 7
    assert texts >= 10
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Predicted against measured" in page and "R280" in page


def test_lines_that_differ_do_not_agree() -> None:
    assert agree("a 1.00 b\n", "a 1.004 b\n") and not agree("a 1.00\n", "a 1.03\n")
    assert agree("x\n...\ny\n", "x\n1\n2\ny\n") and not agree("x\n", "x\ny\n")
    assert not agree("R121, 5\n", "R122, 5\n")


@pytest.mark.parametrize(
    "page", [PAGE, DOCS / "reference" / "other_programs.md"], ids=lambda page: page.stem
)
def test_options_that_are_named_are_there(page: Path) -> None:
    named = {*OPTION.findall(page.read_text(encoding="utf-8"))}
    assert len(named) >= 8
    assert named <= {*OPTION.findall(printed(f"{SUGGEST}suggest --help"))}
