"""Tables as text: what is read, and every way in which a file can be wrong."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from botorch.exceptions import InputDataError

from botorch_sparse.command_line import quoted
from botorch_sparse.suggest.csv_reader import read_table

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str | bytes, name: str = "table.csv") -> Path:
        path = tmp_path / name
        data = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


TEXT = (
    "\ufeffid, heat ,solvent\r\nc1, 20.10 ,water\r\n\r\n,,\r\n"
    'c2,3e1,"oil,\nhot"\r\nc3,1,x'
)


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_cells_keep_their_text_and_rows_their_lines(write: Write, name: str) -> None:
    table = read_table(write(TEXT, name), key="id")
    assert list(table.columns) == ["id", "heat", "solvent"] and len(table) == 3
    assert table.typed["heat"].tolist() == [" 20.10 ", "3e1", "1"]
    assert table.columns["heat"] == ["20.10", "3e1", "1"]
    assert table.columns["solvent"][1] == "oil,\nhot"
    assert list(table.lines) == [2, 5, 7]
    assert table.numbers("heat").tolist() == [20.1, 30, 1]
    assert table.values("solvent") == ["water", "oil,\nhot", "x"]
    assert table.different("id") == ["c1", "c2", "c3"]


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
@pytest.mark.parametrize("mark", [";", "\t"])
def test_semicolons_and_tabs_are_read_where_the_header_has_them_alone(
    write: Write, mark: str, name: str
) -> None:
    text = (
        f'\ufeff{mark}\r\nid|"heat, C"|"a""b"\r\nc1|20.5|"x|y"\r\n\r\nc2|1,5|1,2,3\r\n'
    )
    table = read_table(write(text.replace("|", mark), name), key="id")
    assert list(table.columns) == ["id", "heat, C", 'a"b']
    assert table.columns['a"b'] == [f"x{mark}y", "1,2,3"]
    assert list(table.lines) == [3, 5]
    with pytest.raises(InputDataError, match=r"line 5 .*'1,5' is no .* decimal point"):
        table.values("heat, C")


def test_a_header_that_may_be_separated_otherwise_is_said_to_be(write: Write) -> None:
    """By commas it is read; where that leads to an error, the other mark is named."""
    table = read_table(write("id;heat, C\na;1,5\n"))
    assert list(table.columns) == ["id;heat", "C"]
    with pytest.raises(
        InputDataError, match=r"no column 'id'.* There are semicolons in"
    ):
        table.need(["id"], "the --key")
    with pytest.raises(InputDataError, match=r"line 2: there are 1 cells.*semicolons"):
        read_table(write("id;heat, C\na;1.5\n"))
    with pytest.raises(
        InputDataError, match=r"There are semicolons and tabs in .* with"
    ):
        read_table(write("id;heat\tC\na\tb,1\n"))


@pytest.mark.parametrize("text", ["", "\n\n", " , \n", "\ufeff"])
def test_an_empty_file_has_no_columns(write: Write, text: str) -> None:
    table = read_table(write(text))
    assert table.columns == {} and len(table) == 0


def test_a_header_alone_has_no_rows(write: Write) -> None:
    table = read_table(write("a,b\n"))
    assert list(table.columns) == ["a", "b"] and len(table) == 0


def test_columns_without_name_and_cells_are_left_out(write: Write) -> None:
    """Spreadsheets write them, and leave them out at the end of some rows."""
    table = read_table(write("id,,loss,,\r\na,,1,,\r\nb, ,2\r\n,,,,\r\nc,,3, , \r\n"))
    assert table.columns == {"id": ["a", "b", "c"], "loss": ["1", "2", "3"]}
    assert list(table.lines) == [2, 3, 5]
    assert list(read_table(write("id,loss,\n")).columns) == ["id", "loss"]
    for text in ("id,loss,,\na,1,,\nb,2,,x\n", "a,b,c,,e\n1,2,3,,5\n1,2,3,x,5\n"):
        with pytest.raises(InputDataError, match=r"Column 4 of .*, but 'x' in line 3;"):
            read_table(write(text))


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "\ufeffSEP=;"])
def test_a_first_line_may_say_what_separates_cells(
    write: Write, first: str, name: str
) -> None:
    table = read_table(write(f"{first}\r\nid;a,b\r\n\r\nc;1,5\r\n", name))
    assert table.columns == {"id": ["c"], "a,b": ["1,5"]} and list(table.lines) == [4]
    assert read_table(write("sep=|\na|b,c;d\n1|2\n")).columns["b,c;d"] == ["2"]
    assert read_table(write("sep=,\na,b;c\n1,2\n")).columns["b;c"] == ["2"]
    with pytest.raises(InputDataError, match="line 3: no CSV"):
        read_table(write('sep=;\na;b\n1;"2\n3;4\n'))
    assert read_table(write("sep=;\n")).columns == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", r"line 3: there are 1 cells, but the header has 2"),
        ("a,b\n\n1,2,3\n", r"line 3: there are 3 cells"),
        ("a,,b\n1,2,3\n", "Column 2 of .* has no name in .*, but '2' in line 2"),
        ("a,b,a\n1,2,3\n", "repeats the column names 'a'"),
        ("1,2\n3,4\n", "must name the columns"),
        ('a,b\n1,"2\n3,4\n', "line 2: no CSV"),
        (b"a,b\n1,\xe9\n", r"line 2: byte 0xe9 is no UTF-8"),
        (b"a,b\n" + b"1,2\n" * 9999 + b"1,\xff\n", r"line 10001: byte 0xff is no"),
        ("a,b\n1,2\n".encode("utf-16"), "line 1: byte 0xff is no UTF-8"),
        ("a,b\n1," + "x" * 200_000, "line 2: no CSV"),
    ],
)
def test_a_wrong_file_is_refused_by_line(
    write: Write, text: str | bytes, message: str
) -> None:
    with pytest.raises(InputDataError, match=message) as caught:
        read_table(write(text))
    assert "\n" not in str(caught.value) and "table.csv" in str(caught.value)


def test_other_files_of_tables_are_said_to_be_such(write: Write) -> None:
    with pytest.raises(InputDataError, match=r"table\.XLSX is a .*; save it as CSV"):
        read_table(write(b"PK\x03\x04", "table.XLSX"))
    with pytest.raises(InputDataError, match=r"table\.csv is a spreadsheet"):
        read_table(write(b"\xd0\xcf\x11\xe0\xa1", "table.csv"))
    text = read_table(write(b"a\tb\n1\t2\n", "table.xls"))  # what devices write
    assert text.columns == {"a": ["1"], "b": ["2"]}
    with pytest.raises(InputDataError, match=r"no column 'a'.* write sep=\| into a"):
        read_table(write("a|b\n1|2\n")).need(["a"], "the --key")


def test_files_that_cannot_be_read(write: Write, tmp_path: Path) -> None:
    with pytest.raises(InputDataError, match=r"no file .*none\.csv"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(InputDataError, match="cannot be read: Is a directory"):
        read_table(tmp_path)
    for name in ("plain.csv.gz", "cut.csv.gz"):
        path = tmp_path / name
        data = gzip.compress(b"a,b\n" + b"1,2\n" * 99)[:25]
        path.write_bytes(b"a,b\n1,2\n" if name.startswith("plain") else data)
        with pytest.raises(InputDataError, match=f"{name} cannot be read"):
            read_table(path)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1", " ", "3"], r"line 3 \(key 'k2'\), column 'c': the cell is empty"),
        (["1", "nan", "3"], r"line 3 .*'nan' is no finite number, but 2 of 3 cells"),
        (["1", "2", "n/a"], r"line 4 .*'n/a' is no finite number.*--text"),
        (["nan", "inf", "1"], r"line 2 .*'nan' is no finite number, but 1 of 3"),
        (["1", "2", "1_0"], r"line 4 .*'1_0' is no finite number, but 2 of 3"),
    ],
)
def test_a_column_that_is_neither_numbers_nor_text(
    write: Write, cells: list[str], message: str
) -> None:
    rows = "".join(f"k{i},{cell}\n" for i, cell in enumerate(cells, start=1))
    table = read_table(write(f"id,c\n{rows}"), key="id")
    with pytest.raises(InputDataError, match=message):
        table.values("c")
    with pytest.raises(InputDataError, match="line"):
        table.numbers("c")


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        (["1,5", "-2,5", "3,5e-4"], 2),
        (["1", "2,5", "3,5"], 3),
        (["x", "1,5", "2,5"], 3),
        (["2,5", "3", "x"], 2),
    ],
)
def test_a_decimal_comma_makes_no_category(
    write: Write, cells: list[str], line: int
) -> None:
    table = read_table(write("c\n" + "".join(f'"{cell}"\n' for cell in cells)))
    reason = rf"line {line}, column 'c': '.*,.*' is no number; .* point, .*--text"
    with pytest.raises(InputDataError, match=reason):
        table.values("c")
    mostly_text = read_table(write('c\n"1,5"\nx\n"1,x"\n"1,2,3"\n'))
    assert mostly_text.values("c") == ["1,5", "x", "1,x", "1,2,3"]


def test_a_decimal_comma_among_numbers_is_said_so(write: Write) -> None:
    table = read_table(write('c\n1\n"2,5"\n'))
    with pytest.raises(
        InputDataError, match=r"line 3, .* is needed; write a decimal p"
    ):
        table.numbers("c")


@pytest.mark.parametrize(
    ("cell", "hint"),
    [
        ("1,037", "may be a thousands separator or a .* write 1037 or 1.037, which"),
        ("-12,037", "write -12037 or -12.037"),
        ("1,037.5", "write 1037.5, without commas between thousands"),
        ("1,037,500", "write 1037500, without commas between thousands"),
        ("1.037,5", "write 1037.5, with a decimal point and no other mark"),
        ("1037,500", "write a decimal point, not a comma"),
        ("1,03", "write a decimal point, not a comma"),
        ("0,320", "write a decimal point, not a comma .--decimal ','"),
        ("-0,320", "write a decimal point, not a comma"),
    ],
)
def test_a_comma_between_thousands_is_not_taken_for_a_point(
    write: Write, cell: str, hint: str
) -> None:
    table = read_table(write(f'c,d\n1,"{cell}"\n"{cell}","{cell}"\n'))
    with pytest.raises(InputDataError, match=f"line 3, column 'c': .*{hint}"):
        table.numbers("c")
    with pytest.raises(InputDataError, match=f"line 2, column 'd': .*{hint}"):
        table.values("d")


def test_words_for_no_value_make_no_categories_of_numbers(write: Write) -> None:
    table = read_table(write("c,d\nNA,Na\nn/a,K\n1.5,1\nNA,Na\n"))
    with pytest.raises(
        InputDataError, match=r"line 2, .*'NA' is no finite number, but 1 of 4 .*--text"
    ):
        table.values("c")
    assert table.values("d") == ["Na", "K", "1", "Na"]


def test_text_with_some_numbers_is_text(write: Write) -> None:
    table = read_table(write("c\na\n2\nb\n1\n"))
    assert table.values("c") == ["a", "2", "b", "1"]
    with pytest.raises(InputDataError, match="line 2, column 'c': 'a' is no number"):
        table.numbers("c")


def test_keys_that_repeat_are_named_with_both_lines(write: Write) -> None:
    table = read_table(write("id,c\na,1\nb,2\n a,3\n"), key="id")
    with pytest.raises(
        InputDataError, match=r"line 4 \(key 'a'\).*line 2 has the same"
    ):
        table.different("id")


def test_columns_that_are_missing_are_named(write: Write) -> None:
    table = read_table(write("a,b\n1,2\n"))
    table.need(["b", "a"], "the --key")
    with pytest.raises(InputDataError, match=r"no column 'c', the --key; .* 'a', 'b'"):
        table.need(["a", "c"], "the --key")


def test_what_could_steer_a_terminal_is_escaped() -> None:
    assert quoted("\x1b[2Jé\u202e") == r"'\x1b[2Jé\u202e'"
    assert len(quoted("x" * 1000)) == 62
