"""Results that may mean something else than they seem: refused, or named by line."""

import numpy as np
import pytest
from laboratory import NUM, Laboratory, lines, measured

pytest.importorskip("pandas")

from botorch_sparse.suggest.odd_values import (
    equal_steps,
    follows,
    minus_ones,
    repeats_like_rows,
    values_at_limit,
)
from botorch_sparse.suggest.other_units import (
    fractions_among,
    kelvin_among,
    limit_apart,
    logarithms_among,
    unit_changes,
)

RENAMED = ["Heat", "he at", "heat [K]", "HEAT / K", "heat (K)"]


@pytest.mark.parametrize("name", RENAMED)
def test_a_feature_by_another_name_is_refused(lab: Laboratory, name: str) -> None:
    """Where the results go by a key, nothing else would compare it."""
    told = lab.write("m.csv", f"id,{name},loss|c1,99,3|c2,98,2")
    line = lab.refused("--results", told)
    assert f"m.csv: column '{name}' is not used, and may be the feature 'heat'" in line
    said = lab("--results", told, "--ignore", name).said
    assert "2 of them measured" in said and f"read: '{name}': left out" in said
    then = lab.write("m.csv", f"id,{name},heat,loss|c1,99,,3|c2,98,,2")
    assert f"m.csv: not used: '{name}'." in lab("--results", then).said


def test_units_in_names_of_features(lab: Laboratory) -> None:
    lab.write("pool.csv", lines("id,T/°C,x", "c{0},{0},{0}", 9))
    told = lab.write("m.csv", "id,T/K,loss|c1,99,3|c2,98,2")
    assert "may be the feature 'T/°C'" in lab.refused("--results", told)


def test_columns_that_are_not_used_are_said(lab: Laboratory) -> None:
    """Those of the candidates are said already, and the output has its own."""
    table = "id,heat,lid,note,predicted_mean,predicted_sd_x,reason,plate,loss|"
    lab.write("m.csv", f"{table}c1,,,wrong,1,2,,P1,3")
    said = lab("--results", lab.results, "--ignore", "lid").said
    assert "m.csv: not used: 'note', 'plate'." in said
    assert "not used" not in lab("--results", lab.write("m.csv", measured(3))).said
    assert "no column 'nothing', which --ignore names" in lab.refused(
        "--results", lab.results, "--ignore", "nothing"
    )


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (
            [],
            ["'loss': the target", "2 results, numbers from 2 to 3; large values are"],
        ),
        (["--minimize"], ["numbers from 2 to 3; small values are wanted."]),
        (
            ["--constraint", "b<=5"],
            ["'b': the constraint", "; it has to be at most 5."],
        ),
        (
            ["--constraint", "b<=5", "--constraint", "b>=1"],
            ["; it has to be at least 1 and at most 5."],
        ),
    ],
)
def test_what_is_wanted_is_said(
    lab: Laboratory, options: list[str], wanted: list[str]
) -> None:
    told = lab.write("m.csv", "id,loss,b|c1,2,3|c2,3,4")
    said = lab("--results", told, *options).said
    assert all(part in said for part in wanted)


CENTS = [49.0, 74.0, 59.0, 73.5, 28.8, 81.0]
# Values of a target, and the places of those that may be fractions.
FRACTIONS = [
    ([*CENTS, 0.48, 0.438], [6, 7]),
    ([0.48, *CENTS, 0.438, 0.375, 0.8], [0, 7, 8, 9]),
    ([*CENTS, 0.48], [6]),  # with more decimals than each of the others
    ([45, 62, 0.71, 88], [2]),
    ([45, 62, 0.7, 88], [2]),
    ([45.25, 62, 0.71, 88], []),  # a single one may be a low yield
    ([45, 62, 0.71], []),
    ([45, 62, 0.13, 88], []),  # 13 per cent are below all others
    ([45, 62, 0.71, 0.55, 88], [2, 3]),
    ([*CENTS, 0.5, 0.4], []),  # and so may those with a decimal
    ([40, 50, 0.44, 61, 62, 0.7], [2, 5]),  # of 0.70
    ([40, 50, 0.44, 61, 62, 0.7, 0.5], []),
    ([*CENTS, 0.04, 0.05], []),  # 4 and 5 per cent are below all others
    ([*CENTS, 0.48, 0.438, 3.0], []),  # the gap is less than ten times
    ([*CENTS, 0.48, 0.438, 120.0], []),
    ([*CENTS, 1.48, 1.438], []),
    ([*CENTS, 0.48, 0.438, 0.0, -2.0, float("nan")], [6, 7]),
    ([0.48, 0.438, 74.0], []),
    ([0.48, 0.438, 0.5, 0.33, 0.74, 0.65], []),
]


@pytest.mark.parametrize(("values", "expected"), FRACTIONS)
def test_fractions_among_per_cents(values: list[float], expected: list[int]) -> None:
    assert fractions_among(values) == expected


def test_yields_in_per_cent_are_no_fractions() -> None:
    """Of 300 samples of skewed yields with a decimal, as they are reported."""
    g = np.random.default_rng(0)
    found = [fractions_among(np.round(100 * g.beta(0.4, 1, 20), 1)) for _ in range(300)]
    assert not any(found)


NAN = float("nan")
FIRST = [40.0, 62, 95, 71]
# Values in the order of the files, and the place where the unit may change.
CHANGES = [
    ([*FIRST, 4.3, 6.1, 9.5], 4),
    ([412, 622, 950, 0.432, 0.611, 0.955], 3),
    ([0.12, 0.6, 0.33, *FIRST], 3),  # the later ones are better
    ([NAN, *FIRST, NAN, 0, -3, 430, 610, 950], 8),
    ([*FIRST, 4.3, 6.1], 0),  # two may be low
    ([*FIRST, 4.3, 6.1, 9.5, 50], 0),  # in turn
    ([*FIRST, 4.3, 6.1, 14], 0),  # the gap is less than the spread
    ([*FIRST, 2.1, 2.5, 3.0], 0),  # 21 per cent are below half of 40
    ([*FIRST, 0.02, 0.021, 0.022], 0),  # 200 per cent are above 95
    ([*FIRST, 41, 60, 88], 0),
    ([], 0),
]


@pytest.mark.parametrize(("values", "place"), CHANGES)
def test_rounds_in_two_units(values: list[float], place: int) -> None:
    assert unit_changes(values) == place


def test_rounds_in_two_units_are_named(lab: Laboratory) -> None:
    """Also where the first round is of rows that are gone."""
    table = "id,heat,solvent,dose,lid,loss"
    first = lab.write(
        "a.csv", f"{table}|x,21,oil,0,1,41|y,22,oil,0,1,60|z,23,oil,0,1,95"
    )
    then = lab.write("b.csv", "id,loss|c1,410|c2,622|c3,950")
    said = lab("--results", first, then).said
    at = f"line 2 (key 'c1') of {then}"
    assert f"'loss' is from 410 to 950 in the results from {at} on, and from 41" in said
    assert "41 to 95 in those before. In another unit? They are taken as they" in said


def test_a_column_of_the_results_ten_times_apart(lab: Laboratory) -> None:
    """Results of no row that would be rows, in the range of the list."""
    rows = [[f"{i / 10:.1f}", i % 3, i] for i in range(1, 30)]
    lab.write("pool.csv", [["x", "y", "z"], *rows])
    told = [["x", "y", "z", "loss"], *([i, i % 3, i, 3 * i] for i in (1, 2, 4))]
    said = lab("--results", lab.write("m.csv", told), key=None).said
    assert "results would be rows of" in said
    assert "'x' were 10 times as small, such as that in line 2. Is it in" in said
    told[1:3] = [[1, 5, 7, 3], [2, 5, 7, 4]]
    said = lab("--results", lab.write("m.csv", told), key=None).said
    assert "beside it" in said and "times as" not in said


@pytest.mark.parametrize(
    ("values", "limit", "mark", "is_apart"),
    [
        ([1.5, 12.5], 0.05, "<=", True),
        ([1.5, 12.5], 0.15, "<=", True),
        ([1.5, 12.5], 0.16, "<=", False),
        ([1.5, 12.5], 125.0, ">=", True),
        ([1.5, 12.5], 124.0, ">=", False),
        ([1.5, float("nan")], 0.05, "<=", True),
        ([-1.5, 12.5], 0.05, "<=", False),
        ([1.5, 12.5], 0.0, "<=", False),
        ([float("nan")], 0.05, "<=", False),
    ],
)
def test_limits_in_another_unit(
    values: list[float], limit: float, mark: str, is_apart: bool
) -> None:
    assert limit_apart(values, limit, mark) is is_apart


def test_minus_one_for_no_value() -> None:
    assert minus_ones([-1.0, 3.0, -1.0, float("nan")]) == [0, 2]
    assert minus_ones([-1.0, -1.0, float("nan")]) == []
    for values in ([-1.0, 3.0], [-1.0, -1.0], [-1.0, -1.0, 0.0], [-2.0, -1.0, -1.0]):
        assert minus_ones(values) == []


def test_odd_outcomes_are_named(lab: Laboratory) -> None:
    rows = [[f"c{i}", y, 5] for i, y in enumerate([*CENTS, 0.48, 0.438])]
    told = lab.write("m.csv", [["id", "loss", "b"], *rows])
    said = lab("--results", told, "--constraint", "b<=0.05").said
    assert (
        "'loss' has 0.48 (line 8 (key 'c6')), 0.438 (line 9 (key 'c7')): frac" in said
    )
    assert "no result keeps 'b' <= 0.05: values are from 5 to 5, and the" in said
    told = lab.write("m.csv", "id,loss|c1,-1|c2,3|c3,-1")
    assert (
        "'loss' is -1 in 2 results (line 2 (key 'c1'), " in lab("--results", told).said
    )


def test_repeats_that_differ_as_rows_do() -> None:
    """In a long table; and not where the noise is half of what rows differ by."""
    points = [*range(10), *range(10)]
    g = np.random.default_rng(1)
    effect = g.normal(0, 2, 10)
    assert repeats_like_rows(points, [*effect, *(effect + 9)])
    noisy = np.tile(effect, 2) + g.normal(0, 1, 20)
    assert not repeats_like_rows(points, noisy.tolist())
    # By hand: 2 h^2 within rows, and 0.3 between the means 0, 1, 0, 1, 0 and 1.
    points = [0, 0, 1, 1, 2, 2, 3, 4, 5]
    for square, is_alike in ((0.151, True), (0.149, False)):
        h = np.sqrt(square)
        values = [-h, h, 1 - h, 1 + h, -h, h, 1.0, 0.0, 1.0]
        assert repeats_like_rows(points, values) is is_alike
    values = [-1.0, 1.0, 0.0, 2.0, -1.0, 1.0, 1.0, 0.0, 1.0]
    assert not repeats_like_rows(points[2:], values[2:])  # two rows have repeats
    assert not repeats_like_rows(points[:-1], values[:-1])  # five rows
    assert not repeats_like_rows(points, [0.0] * 9)


def test_a_long_table_is_named(lab: Laboratory) -> None:
    rows = [[f"c{i}", kind, 40 + 3 * i + 40 * (kind == "ee"), "x"]
            for i in range(8) for kind in ("yield", "ee")]  # fmt: skip
    told = lab.write("m.csv", [["id", "kind", "loss", "lab"], *rows])
    said = lab("--results", told).said
    assert "'loss' differs as much between measurements of one row, which" in said
    assert "differ in 'kind' as between rows." in said


def test_conditions_have_the_unit_of_the_column(lab: Laboratory) -> None:
    lab.write("pool.csv", lines("id,T,x", "c{0},{0}5 °C,{0}", NUM, 1))
    line = lab.refused("--exclude", "T>333 K")
    assert "'T>333 K' is in 'K', and column 'T' in '°C'; write the number in" in line
    said = lab("--exclude", "T>290ºC", "--exclude", "T > 999").said
    assert "read: --exclude 'T>290ºC': holds for 2 of 30 rows." in said
    assert "read: --exclude 'T > 999': holds for 0 of 30 rows." in said
    assert "'333 K', which is no number" in lab.refused("--exclude", "x>333 K")
    words = ["--ignore", "T", "--exclude", "T=25 °C"]
    assert "holds for 1 of 30 rows" in lab(*words).said
    lab.write("pool.csv", lines("id,T (°C),x", "c{0},{0}5,{0}", NUM, 1))
    line = lab.refused("--exclude", "T (°C)>10 °F")
    assert "is in '°F', and column 'T (°C)' in '°C'; write the number in" in line
    assert "holds for 2 of 30 rows" in lab("--exclude", "T (°C)>290 °C").said


def test_conditions_on_dates(lab: Laboratory) -> None:
    lab.write("pool.csv", lines("id,made,x", "c{0},2026-01-{0:02},{0}", 20, 1))
    for date in ("2026-01-03", "3.1.2026", "46025"):
        assert "holds for 17 of 20 rows" in lab("--exclude", f"made>{date}").said
    line = lab.refused("--exclude", "made>02/03/2026")
    assert "compares the dates of column 'made' with '02/03/2026', which is no" in line
    assert "write it as 2026-01-31" in line


def test_kelvin_among_degrees_celsius(lab: Laboratory) -> None:
    assert kelvin_among([25, 80, 298.15, 353.15, 25]) == [298.15, 353.15]
    assert kelvin_among([-78, 25, 298, 195, 353, 80]) == [298, 353]
    for values in ([25, 298], [25, 80, 298, 354], [298, 353], [25, 80], range(400)):
        assert kelvin_among(values) == []
    lab.write("pool.csv", "id,T|a,25|b,80|c,298|d,353|e,50")
    said = lab().said
    assert "column 'T' has 298, 353, which are other numbers of it and 273" in said


def test_an_export_that_rounds(lab: Laboratory) -> None:
    """A later file with results of an earlier one, and fewer digits."""
    first = lab.write("a.csv", "id,loss|c1,68.03|c2,41.26|c3,55.51|c4,12.7")
    later = lab.write("b.csv", "id,loss|c1,68|c2,41|c3,56|c4,31|c5,3")
    said = lab("--results", first, later).said
    assert f"3 results of {later} are those of {first} with other digits" in said
    repeats = lab.write("b.csv", "id,loss|c1,67.1|c2,41|c3,57|c4,12|c5,3")
    assert "other digits" not in lab("--results", first, repeats).said


CORRECTED = "Corrected? Both count; to keep one, take out the other line"


@pytest.mark.parametrize(
    ("later", "shown"),
    [
        (
            "c1,48.3|c2,34.5|c3,48|c5,40.1|c4,58.3",
            "3 results of {} again, and another 'loss' in others: "
            "58.3 (line 6 (key 'c4')) for 64.5 (line 5 there)",
        ),
        ("c1,48.3|c2,34.5|c3,48.0|c4,64.5|c4,58.3", None),  # measured again
        ("c1,48.3|c2,34.5|c4,58.3", None),  # of two values it may be chance
        ("c1,49.3|c2,34.5|c3,48.0|c4,58.3", None),  # two of four
        ("c1,48.3|c2,34.5|c3,48.0|c4,|c5,3", None),
    ],
)
def test_a_table_that_is_exported_again_with_a_corrected_value(
    lab: Laboratory, later: str, shown: str | None
) -> None:
    first = lab.write("a.csv", "id,loss|c1,48.3|c2,34.5|c3,48.0|c4,64.5")
    again = lab.write("b.csv", f"id,loss|{later}")
    said = lab("--results", first, again).said
    assert (CORRECTED in said) == (shown is not None)
    assert shown is None or f"{again} has {shown.format(first)}. {CORRECTED}" in said


def test_a_corrected_value_of_three_tables_is_named_once(lab: Laboratory) -> None:
    """The third has the second one's value; and an outcome is compared with itself."""
    rows = "id,loss,dirt|c1,1,3|c2,2,3|c3,3,3|c4,{},7"
    files = [lab.write(f"{x}.csv", rows.format(x)) for x in (64, 58)]
    files += [lab.write("c.csv", rows.format(58) + "|c5,9,9")]
    said = lab("--results", *files, "--constraint", "dirt<=9").said
    assert said.count(CORRECTED) == 1
    assert "58 (line 5 (key 'c4')) for 64 (line 5 there)" in said


@pytest.mark.parametrize(
    "cells, is_code",
    [
        (["0012", "0100", "7"], True),
        (["2E3", "1000", "12"], True),
        (["2E3", "1E4", "5e2"], False),
        (["1.5e3", "2E3", "12"], False),
        (["0.5", "0", "10"], False),
    ],
)
def test_numbers_that_may_be_names(
    lab: Laboratory, cells: list[str], is_code: bool
) -> None:
    rows = [f"c{i},{i}.5,{cells[i % 3]}" for i in range(9)]
    lab.write("pool.csv", "|".join(["id,heat,lot", *rows]))
    assert ("If its numbers are codes" in lab().said) == is_code


def test_times_as_text(lab: Laboratory) -> None:
    rows = [f"c{i},{i}.5,{i % 3}:30" for i in range(9)]
    lab.write("pool.csv", "|".join(["id,heat,duration", *rows]))
    assert "the times in column 'duration', such as '0:30'" in lab().said


@pytest.mark.parametrize(
    ("cells", "is_noted"),
    [
        (["60-70", "70 \u2013 80", "90"], True),
        (["1:10", "1 : 5", "1:20"], True),
        (["10^-3", "1\u00d710^-4", "2*10-5"], True),
        (["<1", "~ 5", "1/10"], True),
        (["64-17-5", "67-56-1", "67-64-1"], False),  # substances
        (["1-propanol", "60-70", "2-butanol"], False),
        (["0:30", "1:30", "2:30"], False),  # times
    ],
)
def test_numbers_with_marks_as_text(
    lab: Laboratory, cells: list[str], is_noted: bool
) -> None:
    rows = [[f"c{i}", f"{i}.5", cells[i % 3]] for i in range(9)]
    lab.write("pool.csv", [["id", "heat", "ratio"], *rows])
    said = lab().said
    assert ("ranges, ratios or powers, write one number" in said) == is_noted
    assert "read: 'ratio': 3 categories" in said


def test_fractions_of_a_constraint(lab: Laboratory) -> None:
    impurity = [0.041, 0.052, 0.101, 4.5, 2.2, 10.1, 6.0, 3.3]
    rows = [f"c{i},{i},{each}" for i, each in enumerate(impurity)]
    told = lab.write("m.csv", "|".join(["id,loss,dirt", *rows]))
    said = lab("--results", told, "--constraint", "dirt<=5").said
    assert "note: 'dirt' has 0.041" in said and "fractions among per cents?" in said


def test_lines_with_a_key_alone_and_files_in_another_unit(lab: Laboratory) -> None:
    """What stands below the table; results of no row in a second file."""
    table = "id,heat,solvent,dose,lid,loss"
    top = lab.write("a.csv", f"{table}|c1,,,,,3|c2,,,,,2|c3,,,,,|Top 2,|c1,,,,,3")
    other = lab.write("b.csv", f"{table}|x,313,oil,0,1.5,2|y,353,oil,0,1.5,3")
    said = lab("--results", top, other, "--skip-empty").said
    assert f"{top}, line 5, has 'Top 2' alone, which names no row" in said
    assert "; 1 of the rows that count stand" in said
    assert f"none of the 2 results of {other} is in" in said
    assert "'heat' is from 313 to 353 in the results" in said
    for text in (
        f"{table}|c1,,,,,3|Top 2,",
        f"{table}|c1,,,,,3|q,40,oil,0,1,2|c2,,,,,1",
    ):
        assert "alone, which" not in lab("--results", lab.write("a.csv", text)).said


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("NA,oil,?,NA", "column 's' has 'NA', '?' in 4 rows, which are categories"),
        ("oil,tbd,ale,ale", "column 's' has 'tbd' in 1 rows"),
        ("02. Jan,1-10,1-20,01. Mrz", "'02. Jan', '01. Mrz', which spreadsheets make"),
        ("Mar 01,SEPT2,X,X", "column 's' has 'Mar 01', which spreadsheets make of"),
        ("Na,K,none,none", None),
        ("+,-,+,-", None),
    ],
)
def test_categories_that_may_be_no_value(
    lab: Laboratory, cells: str, said: str | None
) -> None:
    kinds = [cells.split(",")[i % 4] for i in range(5)]
    lab.write("pool.csv", [["id", "s"], *([i, x] for i, x in enumerate(kinds))])
    answer = lab()
    assert said is None or said in answer.said
    is_noted = "categories as the others" in answer.said or "make of" in answer.said
    assert is_noted == (said is not None)


@pytest.mark.parametrize(
    "error", ["#REF!", "#N/A", "#NAME?", "#DIV/0!", "Err:508", "#NV"]
)
def test_errors_of_formulas_are_no_categories(lab: Laboratory, error: str) -> None:
    rows = [f"c{i},{i},{error if i == 3 else 'ab'[i % 2]}" for i in range(9)]
    lab.write("pool.csv", "|".join(["id,heat,solvent", *rows]))
    line = lab.refused()
    assert f"line 5 (key 'c3'), column 'solvent': '{error}' is the error of a" in line
    lab.write("pool.csv", "|".join(["id,heat,solvent", *rows]).replace(error, "#1"))
    assert "3 categories" in lab().said


@pytest.mark.parametrize("mark", ["dito", "Ditto", "idem", "\u3003"])
def test_what_stands_for_the_cell_above(lab: Laboratory, mark: str) -> None:
    rows = [f"c{i},{i},{mark if i == 3 else 'ab'[i % 2]}" for i in range(9)]
    lab.write("pool.csv", "|".join(["id,heat,solvent", *rows]))
    assert f"'{mark}' stands for the cell above" in lab.refused()


def test_unused_texts_of_a_few_kinds_are_shown(lab: Laboratory) -> None:
    """They may be units, or say that a row is void."""
    rows = "c1,1,%,a,7|c2,2,%,b,8|c3,3,mg/g,c,9|c4,4,%,d,7"
    told = lab.write("m.csv", f"id,loss,unit,who,plate|{rows}")
    said = lab("--results", told).said
    assert "m.csv: not used: 'unit' ('%', 'mg/g'), 'who', 'plate'." in said
    told = lab.write("m.csv", "id,loss,note,at|c1,1,,P1|c2,2,contaminated,P1|c3,3,,P1")
    assert (
        "m.csv: not used: 'note' ('contaminated'), 'at'." in lab("--results", told).said
    )


@pytest.mark.parametrize(
    ("texts", "is_said"),
    [
        (["brown oil", "white solid", "bath went to 60 C", "NMR clean", "dry"], True),
        (["brown", "white", "oil", "clear", "spilled"], True),
        (["vial 1", "vial 2", "vial 3", "vial 4", "vial 5"], False),
        (["3.5", "failed", "4.1", "2", "7"], False),  # numbers, in most lines
        (["scan_1.raw", "scan_2.raw", "scan_3.raw", "A-4", "A-5"], False),
        (["Jan 3, 2026", "Jan 4, 2026", "Jan 5, 2026", "3", "May 4, 2026"], False),
    ],
)
def test_the_number_of_remarks_that_are_not_read_is_said(
    lab: Laboratory, texts: list[str], is_said: bool
) -> None:
    """Whether one of them has a word that warns or not."""
    rows = [[f"c{i}", i * i % 7, cell, i] for i, cell in enumerate(texts)]
    told = lab.write("m.csv", [["id", "loss", "note", "plate"], *rows])
    many = " (5 different texts, not read: look through them)" * is_said
    said = lab("--results", told).said
    assert f"m.csv: not used: 'note'{many}, 'plate'." in said


@pytest.mark.parametrize(
    "word",
    [
        *("Mean", "TOTAL:", "Std. Dev.", "Mittelwert", "SD (n = 3)", "n = 3", "n"),
        *("\u00d8", "\u5e73\u5747", "Spec limit", "Grand Total", "\u03c3"),
    ],
)
def test_lines_that_sum_up_are_no_results(lab: Laboratory, word: str) -> None:
    """Although they have features, as a mean of all columns does."""
    row = "30,oil,0,1,2"
    told = lab.write("m.csv", f"id,heat,solvent,dose,lid,loss|c1,,,,,3|{word},{row}")
    line = lab.refused("--results", told)
    assert f"line 3 (key '{word}'), column 'id': '{word}' looks like a summary" in line
    header = "who,heat,solvent,dose,lid,loss"
    told = lab.write("m.csv", f"{header}|{word},{row}|me,31,oil,0,1,2")
    words = ["--results", told, "--ignore", "id"]
    line = lab.refused(*words, key=None)
    assert f"line 2, column 'who': '{word}' looks like a summary" in line
    lab.write("m.csv", f"{header}|{word},{row}|{word},31,oil,0,1,2")
    assert "2 results beside it" in lab(*words, key=None).said


def test_keys_that_are_nearly_the_same(lab: Laboratory) -> None:
    """They may be substances: C1CC1 is saturated, and c1cc1 is not."""
    for twin in ("C7", "c\u2077"):
        table = f"id,heat,solvent,dose,lid,loss|{twin},33,oil,0.1,0.5,2"
        said = lab("--results", lab.write("m.csv", table)).said
        assert f"nearly the key of one, such as line 2 (key '{twin}') of" in said
        assert "m.csv and 'c7' (line 9 of" in said
    for one, other in (("R7", "r7"), ("007", "7")):
        lab.write("pool.csv", f"id,x|{one},1|b,2|{other},3")
        said = lab().said
        assert f"the keys of '{one}' (line 2 of" in said
        assert f"of '{other}' (line 4 of" in said and "name two rows" in said


def test_far_values_are_named_once(lab: Laboratory) -> None:
    """By their lines, and not by the numbers that the library gives evaluations."""
    told = measured(12)
    told[5][1] = 1e7
    said = lab("--results", lab.write("m.csv", told)).said
    assert "values far from all others" in said and "robust" not in said


@pytest.mark.parametrize(
    ("values", "rows", "is_noted"),
    [
        ([78.5, 62.3, 45.9, 12.4], [4, 5, 6, 7], True),
        ([78.5, 62.3, 12.4, 45.9], [4, 5, 6, 7], False),
        ([78.5, 62.3, 45.9, 12.4], [4, 5, 2, 7], False),  # c2 has been measured
        ([78.5, 62.3, 45.9, 12.4, 3], [4, 5, 6, 7, 8], False),
    ],
)
def test_values_of_another_file(
    lab: Laboratory, values: list[float], rows: list[int], is_noted: bool
) -> None:
    """In the same order, for other rows: a column that was pasted."""
    told = [["id", "loss"], ["c0", 78.5], ["c1", 62.3], ["c2", 45.9], ["c3", 12.4]]
    first = lab.write("a.csv", told)
    rest = [[f"c{i}", value] for i, value in zip(rows, values, strict=True)]
    then = lab.write("b.csv", [["id", "loss"], *rest])
    said = lab("--results", first, then).said
    note = f"the 4 values of 'loss' in {then} are those of {first} in the same order"
    assert (note in said) == is_noted


def test_few_kinds_of_values_come_again(lab: Laboratory) -> None:
    files = [
        lab.write(f"{k}.csv", lines("id,loss", "c{0},0", 5, 5 * k) + f"|c{k + 20},7")
        for k in (0, 1)
    ]
    assert "in the same order" not in lab("--results", *files).said


def test_two_outcomes_with_the_same_values(lab: Laboratory) -> None:
    rows = [[f"c{i}", i + 0.5, i + 0.5] for i in range(4)]
    more = ["--target", "b", "--results"]
    told = lab.write("m.csv", [["id", "loss", "b"], *rows, ["c4", 3, ""]])
    note = f"'loss' and 'b' have the same value in all 4 results of {told} with both"
    assert note in lab(*more, told).said
    other = lab.write("n.csv", "id,loss,b|c9,2,1")
    assert note in lab(*more, told, other).said
    for cells in (["c4", 3, 3.1], ["c4", "", 3]):
        same = rows[:3] if cells[1] == "" else rows
        told = lab.write("m.csv", [["id", "loss", "b"], *same, cells])
        assert "have the same value in" not in lab(*more, told).said


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("c1,3.5|c2,4|c3,5|c1,3.5|c2,4|c3,5", "lines 5 to 7 of {} are lines 2 to 4"),
        ("c1,3.5|c2,4|c3,5|c2,4|c3,5", "lines 5 to 6 of {} are lines 3 to 4"),
        ("c1,3.5|c1,3.5|c1,3.5|c1,3.5", "lines 4 to 5 of {} are lines 2 to 3"),
        ("c1,3|c1,3|c1,3|c1,3", None),
        ("c1,0|c2,0|c1,0|c2,0", None),
        ("c1,3.5|c2,4|c3,5|c1,3.5|c2,5", None),
        ("c1,failed|c2,failed|c3,5|c1,failed|c2,failed", None),
    ],
)
def test_lines_that_come_twice(lab: Laboratory, cells: str, said: str | None) -> None:
    told = lab.write("m.csv", f"id,loss|{cells}")
    answer = lab("--results", told)
    assert (" again. They count as" in answer.said) == (said is not None)
    assert said is None or said.format(told) in answer.said


@pytest.mark.parametrize(
    ("values", "run"),
    [
        ([45.1, 46.1, 47.1, 48.1, 49.1], (0, 4)),
        ([3, 9, 8.7, 8.4, 8.1, 7.8, 7.5, 2], (1, 6)),
        ([3, 9, 8, 7, 6, 5, NAN], (1, 5)),
        ([1, 2, 3, 4, 9, 10, 11, 12], None),
        ([1, 2, 3, NAN, 4, 5, 6], None),
        ([1, 2, 3, 4, 5, 7, 7, 8, 12, 12], (0, 4)),
        ([1, 2, 3, 4, 5, 7, 7, 8, 12, 12, 13], None),  # sorted
        ([13, 1, 2, 3, 4, 5, 7, 7, 8, 12, 12], (1, 5)),
        ([5, 5, 5, 5, 5, 5], None),
        ([0.1, 0.2, 0.3, 0.4, 0.51], None),
        ([], None),
    ],
)
def test_values_in_equal_steps(
    values: list[float], run: tuple[int, int] | None
) -> None:
    assert equal_steps(values) == run


MANY = [1200.0, 43210, 3020, 8000, 22000, 15000]


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        ([*MANY, 65535, 65535, 65535], [65535]),
        ([*MANY, 0.2, 0.2, 0.2], [0.2]),
        ([*MANY, 65535, 65535], []),
        ([*MANY, *range(2001, 2005), 65535, 65535, 65535], []),  # less than a quarter
        ([*MANY, *MANY, 65535, 65535, 65535, 65535], []),  # others come again
        ([*MANY, 9000, 9000, 9000], []),  # at no end
        ([45, 23, 78, 91.5, 12, 33, 100, 100, 100], []),
        ([45, 23, 78, 91.5, 12, 33, 0, 0, 0], []),
        ([95.5, 97.1, 98.8, 96.2, 97.7, 99.1, 0, 0, 0], [0]),
        ([], []),
    ],
)
def test_values_at_the_limit_of_an_instrument(
    values: list[float], limits: list[float]
) -> None:
    """Of several rows: repeats of one may be equal."""
    num = len(values)
    assert values_at_limit(range(num), values) == limits
    assert values_at_limit([*range(num), *range(num)], [*values, *values]) == limits
    of_one = [min(i, 6) for i in range(len(values))]
    assert values_at_limit(of_one, values) == []


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([6.5, 3.2e6, 7.1, 1.1e5, 5.9, 8e6], [0, 2, 4]),
        ([6.5, 3.2e6, NAN, 7.1, 1.1e5, 5.9, 8e6, -1], [0, 3, 5]),
        ([6.5, 3.2e6, 7.1, 1.1e5, 8e6], []),
        ([6.5, 3.2e6, 7.1, 1.1e5, 5.9, 8e6, 30], []),  # between them
        ([0.65, 3.2e6, 0.71, 1.1e5, 0.59, 8e6], []),  # of numbers below 10
        ([16.5, 1.2e4, 17.1, 1.1e5, 15.9, 8e6], []),  # the gap is less
    ],
)
def test_logarithms_among_numbers(values: list[float], places: list[int]) -> None:
    assert logarithms_among(values) == places


@pytest.mark.parametrize(
    ("num", "kinds", "change", "is_followed"),
    [
        (8, 3, {}, True),
        (4, 3, {}, True),
        (8, 2, {}, True),
        (4, 2, {}, False),  # once in eight by chance
        (2, 3, {}, False),
        (8, 3, {4: 99.0}, False),  # one row in another order
        (8, 1, {}, False),
    ],
)
def test_repeats_that_follow_a_column(
    num: int, kinds: int, change: dict[int, float], is_followed: bool
) -> None:
    """The effect of the column is much smaller than that of rows."""
    points = np.repeat(np.arange(num), kinds).tolist()
    cells = [f"{k} h" for k in range(kinds)] * num
    values = [
        10.0 * p + 0.1 * i for p, i in zip(points, range(kinds * num), strict=True)
    ]
    for place, value in change.items():
        values[place] = value
    assert follows(points, cells, values) is is_followed
    assert not follows(points, [*cells[:-1], "other"], values)
    assert not follows([*points, 0], [*cells, "0 h"], [*values, 3.0])
    assert not follows([], [], [])


def test_patterns_of_outcomes_are_named(lab: Laboratory) -> None:
    rows = [
        [f"c{i}", f"{t} min", 40 + 7 * (i % 3) + t] for i in range(5) for t in (1, 3)
    ]
    rows += [[f"c{i}", f"{t} min", 30 + i + t] for i in range(6, 9) for t in (1, 3)]
    told = lab.write("m.csv", [["id", "time", "loss"], *rows])
    said = lab("--results", told).said
    assert "note: 'loss' of each row goes along with 'time' in the same way." in said
    steps = [[f"c{i}", 45 + i] for i in range(5)]
    said = lab("--results", lab.write("m.csv", [["id", "loss"], *steps])).said
    assert "'loss' has steps of 1 from 45 (line 2 (key 'c0')) to 49 (line 6 (" in said
    table = [["id", "loss"], *([f"c{i}", x] for i, x in enumerate([*MANY, *[7e4] * 3]))]
    said = lab("--results", lab.write("m.csv", table)).said
    assert "'loss' is 70000 in 3 results, and the others differ: the limit" in said
    logs = [6.5, 3.2e6, 7.1, 1.1e5, 5.9, 8e6]
    table = [["id", "loss"], *([f"c{i}", x] for i, x in enumerate(logs))]
    said = lab("--results", lab.write("m.csv", table)).said
    assert "'loss' has 6.5 (line 2 (key 'c0')), 7.1 (line 4 (key 'c2')), 5.9" in said
    assert ": logarithms among numbers above 10000?" in said


def test_unused_numbers_in_some_lines_are_shown(lab: Laboratory) -> None:
    """They may be decimals behind a comma."""
    told = lab.write("m.csv", "id,loss,note,n|c1,78,5,1|c2,62,,2|c3,12,4,3")
    assert "m.csv: not used: 'note' ('5', '4'), 'n'." in lab("--results", told).said
    lab.write("pool.csv", "id,x,note,n|a,1,,1|b,2,60,2|c,4,,3")
    said = lab("--ignore", "note", "--ignore", "n").said
    assert "read: 'note' ('60'), 'n': left out (--ignore)." in said


@pytest.mark.parametrize(
    ("cell", "advice"),
    [
        ("504 517", "thousands: 504517; or if these are two numbers, give each a line"),
        ("812 98", "'812 98' is no number; write one number, and give each"),
        ("7.5 / 8", "'7.5 / 8' is no number; write one number, and give each"),
        ("7.5 g x", "is no number; write a number, where nothing was found 0"),
    ],
)
def test_two_numbers_in_a_cell(lab: Laboratory, cell: str, advice: str) -> None:
    told = lab.write("m.csv", f"id,loss|c1,{cell}|c2,3|c3,4|c4,5")
    assert advice in lab.refused("--results", told)


@pytest.mark.parametrize("key", ["1-7", "7/1", "1.7"])
def test_keys_that_spreadsheets_take_for_dates(lab: Laboratory, key: str) -> None:
    lab.write("pool.csv", f"id,x|{key},1|b,2|c,4")
    for day in ("2026-07-01", "1-Jul", "01. Jul", "Jul-01"):
        told = lab.write("m.csv", f"id,loss|{day},3")
        line = lab.refused("--results", told)
        assert f"row with this key, but one with '{key}'. If a spreadsheet has" in line
    told = lab.write("m.csv", "id,loss|2026-08-01,3")
    assert "but one with" not in lab.refused("--results", told)
