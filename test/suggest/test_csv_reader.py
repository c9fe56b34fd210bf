"""Tables as text: cells that are read, and all ways in which a file can be wrong."""

# ruff: noqa: E501 (a case is one line)

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from botorch.exceptions import InputDataError
from refusals import refused

pytest.importorskip("pandas")

from botorch_sparse.argument_checks import short_repr
from botorch_sparse.suggest.csv_reader import TextTable, read_table

Read = Callable[..., TextTable]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a table from text or bytes."""

    def read(text: str | bytes, name: str = "table.csv", **options: str) -> TextTable:
        data = text if isinstance(text, bytes) else text.encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return read_table(path, **options)

    return read


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_cells_keep_their_text_and_rows_their_lines(read: Read, name: str) -> None:
    text = (
        "\ufeffid, heat ,solvent\r\nc1, 20.10 ,water\r\n\r\n,,\r\n"
        'c2,3e1,"oil,\nhot"\r\nc3,1,x'
    )
    table = read(text, name, key="id")
    assert list(table.columns) == ["id", "heat", "solvent"] and len(table) == 3
    assert table.typed["heat"].tolist() == [" 20.10 ", "3e1", "1"]
    assert table.columns["solvent"] == ["water", "oil,\nhot", "x"]
    assert list(table.lines) == [2, 5, 7]
    assert table.numbers("heat").tolist() == [20.1, 30, 1]
    assert table.different("id") == ["c1", "c2", "c3"]


# Text, its columns, and the lines of its rows.
READ = [
    ("", {}, []),
    ("\n\n", {}, []),
    (" , \n", {}, []),
    ("\ufeff", {}, []),
    ("sep=;\n", {}, []),
    ("a,b\n", {"a": [], "b": []}, []),
    ("id,loss,\n", {"id": [], "loss": []}, []),
    ("id,,loss,,\r\na,,1,,\r\nb, ,2\r\n,,,,\r\nc,,3, , \r\n",
     {"id": ["a", "b", "c"], "loss": ["1", "2", "3"]}, [2, 3, 5]),
    ("a,b\n1,2,,\n3,4\n", {"a": ["1", "3"], "b": ["2", "4"]}, [2, 3]),
    (",,,,\na,b\n1,2\n", {"a": ["1"], "b": ["2"]}, [3]),
    ('"a\nb","c"\n\n1,"x\r\ny"\n2,3', {"a b": ["1", "2"], "c": ["x\r\ny", "3"]}, [4, 6]),
    ("a,b\nNA,\nnan,None\n", {"a": ["NA", "nan"], "b": ["", "None"]}, [2, 3]),
    ('id;"heat, C";"a""b"\nc1;1,5;"x;y"\n', {"id": ["c1"], "heat, C": ["1,5"], 'a"b': ["x;y"]}, [2]),
    ('id\t"heat\t,"\nc1\t1,2,3\n', {"id": ["c1"], "heat\t,": ["1,2,3"]}, [2]),
    ("id;heat, C\na;1,5\n", {"id;heat": ["a;1"], "C": ["5"]}, [2]),
    *[(f"{first}\r\nid;a,b\r\n\r\nc;1,5\r\n", {"id": ["c"], "a,b": ["1,5"]}, [4])
      for first in ("sep=;", '"sep=;"', "\ufeffSEP=;", "sep=;;;")],
    ("sep=;\ra;b\r1;2\r", {"a": ["1"], "b": ["2"]}, [3]),
    ('"a\n (b)","c\r\nd"\n1,2\n', {"a (b)": ["1"], "c d": ["2"]}, [4]),
    ("sep=|\na|b,c;d\n1|2\n", {"a": ["1"], "b,c;d": ["2"]}, [3]),
    ("sep=,\na,b;c\n1,2\n", {"a": ["1"], "b;c": ["2"]}, [3]),
]  # fmt: skip


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
@pytest.mark.parametrize(("text", "columns", "lines"), READ)
def test_what_is_read(
    read: Read, text: str, columns: dict[str, list[str]], lines: list[int], name: str
) -> None:
    table = read(text, name)
    assert table.columns == columns and list(table.lines) == lines


# Text, and what is said of its lines; None for nothing.
UNREAD = [
    ("a,b\n1,2\n\n3,4\n,,\n\n5,6\n7,8\n", "line 3 is empty; what .*, to line 8, is"),
    ("a,b\n1,2\n\n3,4\n\n5,6\n", None),  # each second line
    ("\na,b\n\n1,2\n3,4\n\n", None),
    ('a,b,c\n1,"2,\n3,4,5\n6",7\n', "cell in line 2 has 3 lines, and '3,4,5' in it"),
    ('a,b\n1,"2\n3,4"\n5,6\n', "cell in line 2 has 2 lines, and '3,4' in it"),
    ('a,b,c\n1,"2, in\r\noil, wet",7\n', None),
    ('a,b\n1,"2,3,4"\n', None),
    ('a\n"1\n2"\n', None),
]


@pytest.mark.parametrize(("text", "message"), UNREAD)
def test_lines_that_may_be_other_rows(
    read: Read, text: str, message: str | None
) -> None:
    said = read(text).unread
    assert len(said) == (message is not None)
    assert message is None or re.search(message, said[0])


REFUSED = [
    ("a,b\n1,2\n3\n", r"line 3: there are 1 cells, but the header has 2\. Take the"),
    ("a,b\n\n1,2,3\n", r"line 3: there are 3 cells"),
    ("a,,b\n1,2,3\n", "Column 2 of .* has no name in .*, but '2' in line 2"),
    ("id,loss,,\na,1,,\nb,2,,x\n", "Column 4 of .*, but 'x' in line 3;"),
    ("a,b,c,,e\n1,2,3,,5\n1,2,3,x,5\n", "Column 4 of .*, but 'x' in line 3;"),
    ("a,b,a\n1,2,3\n", "repeats the column names 'a'"),
    ("1,2\n3,4\n", "must name the columns"),
    ('a,b\n1,"2\n3,4\n', "line 2: no CSV"),
    ('a,b\n"1\n1",2\n"2"x,"3\n4,"5\n', "line 4: no CSV"),
    ('sep=;\na;b\n1;"2\n3;4\n', "line 3: no CSV"),
    ("a,b\n1," + "x" * 200_000, "line 2: no CSV"),
    (b"a,b\n1,\x81\n", r"line 2: byte 0x81 is no UTF-8"),
    (b"a,b\n" + b"1,2\n" * 9999 + b"1,\x9d\n", r"line 10001: byte 0x9d is no"),
    ("a,b\n°C,2\n".encode() + b"1,\xff\n", "line 3: byte 0xff is no UTF-8"),
    ("a,b\n1,2\n".encode("utf-16-le"), "line 3: there are 1 cells"),
    ("a,b\n1,2\n".encode("utf-16") + b"x", "line 3: byte 0x78 is no UTF-16"),
    ("id;heat, C\na;1.5\n", r"line 2: there are 1 cells.*semicolons"),
    ("id;heat\tC\na\tb,1\n", r"There are semicolons and tabs in .* with"),
    (
        b"\xd0\xcf\x11\xe0\xa1",
        r"table\.csv is a spreadsheet of.*; save it as .xlsx, or as CSV",
    ),
    (
        "Results of May\n\nid,loss\na,1\n",
        "line 1: 'Results of May' is .* title, and line 3",
    ),
    (";;\nMay;;\nid;b;loss\na;1;2\n", "line 2: 'May' is the only cell"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_wrong_file_is_refused_by_line(
    read: Read, text: str | bytes, message: str
) -> None:
    with pytest.raises(InputDataError, match=message) as caught:
        read(text)
    assert "\n" not in str(caught.value) and "table.csv" in str(caught.value)


def test_files_that_cannot_be_read(read: Read, tmp_path: Path) -> None:
    refused(r"no file .*none\.csv", read_table, tmp_path / "none.csv")
    refused("cannot be read: Is a directory", read_table, tmp_path)
    data = gzip.compress(b"a,b\n" + b"1,2\n" * 99)
    for content in (b"a,b\n1,2\n", data[:25]):
        path = tmp_path / "bad.csv.gz"
        path.write_bytes(content)
        refused(r"bad\.csv\.gz cannot be read", read_table, path)
    refused(
        r"table\.XLSX is an archive.*; save the table as CSV",
        read,
        b"PK\x03\x04",
        "table.XLSX",
    )
    assert read(b"a\tb\n1\t2\n", "table.xls").columns == {"a": ["1"], "b": ["2"]}


# Cells of a column, and the error that they cause as a feature; None if they are text.
FEATURES = [
    (["1", " ", "3"], r"line 3 \(key 'k2'\), column 'c': the cell is empty"),
    (["1", "nan", "3"], r"line 3 .*'nan' is no number, but most"),
    (["1", "2", "n/a"], r"line 4 .*'n/a' is no number.*--text"),
    (["nan", "inf", "1"], r"line 2 .*'nan' is no number, but most"),
    (["NA", "n/a", "1.5", "NA"], r"line 2 .*'NA' is no number, but most"),
    (["1", "2", "1_0"], r"line 4 .*'1_0' is no number, but most"),
    (["1,5", "-2,5", "3,5e-4"], r"line 2 .*'1,5' is no number, but most .* its comma .*--text"),
    (["1", "2,5", "3,5"], r"line 3 .*'2,5' is no number, but most .* its comma .*--text"),
    (["x", "1,5", "2,5"], r"line 2 .*'x' is no number, but most .*--text"),
    (["2,5", "3", "x"], r"line 2 .*'2,5' is no number, but most .* its comma .*--text"),
    (["20-", "25-", "15"], r"line 2 .*'20-' is no number.*; write the .*: -20, declare"),
    (["20-30", "25-", "x"], None),
    (["1,5", "x", "1,x", "1,2,3"], None),
    (["a", "2", "b", "1"], None),
    (["Na", "K", "1", "Na"], None),
]  # fmt: skip


@pytest.mark.parametrize(("cells", "message"), FEATURES)
def test_a_feature_is_numbers_or_text(
    read: Read, cells: list[str], message: str | None
) -> None:
    rows = "".join(f'k{i},"{cell}"\n' for i, cell in enumerate(cells, start=1))
    table = read(f"id,c\n{rows}", key="id")
    if message is None:
        assert table.values("c") == cells
    else:
        refused(message, table.values, "c")
    refused(r"line \d", table.numbers, "c")


@pytest.mark.parametrize(
    "cell", ["1,037", "-12,037", "1,037.5", "1,037,500", "1.037,5", "1,03", "-0,320"]
)
def test_a_comma_between_thousands_is_not_taken_for_a_point(
    read: Read, cell: str
) -> None:
    table = read(f'c,d\n1,"{cell}"\n"{cell}","{cell}"\n')
    refused(r"line 3, column 'c': .*separate thousands", table.numbers, "c")
    refused(r"line 2, column 'd': .*separate thousands", table.values, "d")


def test_columns_that_are_missing_are_named(read: Read) -> None:
    table = read("a,b\n1,2\n")
    table.need(["b", "a"], "the --key")
    with pytest.raises(InputDataError, match=r"no column 'c', the --key; .* 'a', 'b'"):
        table.need(["a", "c"], "the --key")
    refused(r"'a\|b'\..* bars in the", read("a|b\n1|2\n").need, ["a"], "the --key")
    refused(r"no column 'a'.*semi", read("a;b, c\n1,2\n").need, ["a"], "the --key")
    below = read("Instrument:,GC 7\nBy:,am\n\nid,loss\na,1\n")
    message = r"Line 4 has 'loss': if it has the names of the columns, take out the lin"
    refused(message, below.need, ["loss"], "the --target")
    turned = read("id,a,b\nheat,1,2\nloss,3,4\n")
    message = r"Line 3 has 'loss': if it has the values of all rows, exchange lines and"
    refused(message, turned.need, ["loss"], "the --target")
    refused(r"are 'id', 's', 'x'\.$", read("id,s,x\na,loss,1\n").need, ["loss"], "--")


def test_what_could_steer_a_terminal_is_escaped() -> None:
    assert short_repr("\x1b[2Jé\u202e") == r"'\x1b[2Jé\u202e'"
    assert len(short_repr("x" * 1000)) == 62


SHIFTED = [
    # a text, and a number, with a comma in the middle
    ("a,THF,K,1,60,|b,1,4-dioxane,K,1,60|c,DMF,Na,2,80,|d,DMF,K,2,60,", ["3"]),
    ("a,THF,K,1,60,|b,THF,K,1,5,60|c,DMF,Na,2,80,|d,THF,K,1,5,80", ["3", "5"]),
    ("a,THF,K,1,60,|b,DMF,K,2,80,dark|c,DMF,Na,2,80,|d,THF,K,1,80,", []),
    ("a,THF,K,1,60,3|b,1,4-dioxane,K,1,60", []),  # no other lines
    # in the last number
    ("a,THF,K,1,45,5|b,DMF,K,2,80,|c,DMF,Na,2,78,3|d,THF,K,1,80,", ["2", "4"]),
    ("a,THF,K,1,45,52|b,DMF,K,2,80,|c,DMF,Na,2,78,03|d,THF,K,1,80,", []),
    ("a,THF,K,1,4.5,5|b,DMF,K,2,80,|c,DMF,Na,2,78,3|d,THF,K,1,80,", []),
]


@pytest.mark.parametrize(("rows", "expected"), SHIFTED)
def test_commas_within_cells_are_named(
    read: Read, rows: str, expected: list[str]
) -> None:
    """Where the last column, of remarks, has room for one cell more."""
    text = f"id,solvent,base,dose,T,note|{rows}"
    notes = read(text.replace("|", "\n")).unread
    assert len(notes) == bool(expected)
    shown = ", ".join(f"line {line}" for line in expected)
    assert all(note.startswith(f"{shown}: they have a last cell") for note in notes)
    assert not read(text.replace(",", ";").replace("|", "\n")).unread


def test_words_among_numbers_may_be_shifted(read: Read) -> None:
    text = "id,solvent,dose,note\na,THF,1,\nb,1,4-dioxane,2\nc,THF,3,"
    advice = "'4-dioxane' is no number, .*; correct it{}, declare the column"
    for rest, hint in (("", ", put cells with a comma in quotes"), ("x", "")):
        table = read(text.replace(",\n", f",{rest}\n") + rest)
        refused(advice.format(hint), table.values, "dose")


def test_a_header_that_comes_again_is_refused(read: Read) -> None:
    refused("table.csv, line 4, has the names of the columns again", read,
            "id,x\na,1\n\nid,x\nb,2")  # fmt: skip
    refused("table.csv, line 3, has the names of the columns again", read,
            "id,x,y\na,1,2\nid,y,x\nb,2,3")  # fmt: skip
    assert len(read("no,1,2\n1,2,1\n2,1,1\n")) == 2
    assert read("id\na\nid\n").columns["id"] == ["a", "id"]
