"""Remarks, flags, units and colours beside the results are named by their lines."""

from pathlib import Path
from typing import Any

import pytest
from laboratory import Laboratory

pytest.importorskip("pandas")

VOID = "may say that results are void"
NOT_NOW = "may say that rows are not to be measured"


@pytest.mark.one_in(12)
@pytest.mark.parametrize(
    ("remark", "is_noted"),
    [
        ("WRONG SUBSTRATE - discard this value", True),
        ("Aborted", True),
        ("rejected (QC)", True),
        ("superseded by R2b", True),
        ("outlier?", True),
        ("Blank", True),
        ("neg. control", True),
        ("failed", True),
        ("value is void", True),
        ("ung\u00fcltig", True),
        ("Ausrei\u00dfer", True),
        ("verworfen, falsches Substrat", True),
        ("valeur aberrante", True),
        ("mesure annul\u00e9e", True),
        ("ne pas utiliser", True),
        ("labels mixed up", True),
        ("starting material contaminated; yield not reliable", True),
        ("unreliable", True),
        ("Ausbeute nicht verwertbar", True),
        ("unbrauchbar", True),
        ("not usable", True),
        ("reaction still running", True),
        ("In progress", True),
        ("running", True),
        ("planned", True),
        ("interim value", True),
        ("preliminary", True),
        ("vorl\u00e4ufiger Wert", True),
        ("r\u00e9action en cours", True),
        ("valeur peu fiable", True),
        ("inutilisable", True),
        ("cancelled - out of SM", True),
        ("not run yet", True),
        ("value from literature", True),
        ("HPLC injection failed", True),
        ("flask cracked, lost half of it", True),
        ("spilled during workup", True),
        ("leak, no pressure", True),
        ("Kolben geplatzt", True),
        ("Probe versch\u00fcttet", True),
        ("\u00e9chantillon perdu", True),
        ("typo? check notebook", True),
        ("stirrer bar stuck overnight", True),
        ("septum blew off, solvent evaporated", True),
        ("predicted value", True),
        ("not measured", True),
        ("to be repeated", True),
        ("brown oil", False),
        ("solvent evaporated", False),
        ("emulsion broken with brine", False),
        ("vacuum broken with N2", False),
        ("no leaks", False),
        ("nothing lost", False),
        ("estimated by NMR", False),
        ("ee not measured", False),
        ("not run under argon", False),
        ("failed to crystallise", False),
        ("higher than predicted", False),
        ("white solid, aqueous layer discarded", False),
        ("elutes in the void volume", False),
        ("no outlier", False),
        ("keine Ausrei\u00dfer", False),
        ("ne pas de produit", False),
        ("we don't see product by TLC", False),
        ("THF (peroxide free)", False),
        ("blank was subtracted", False),
        ("temperature control by a bath", False),
        ("air was excluded", False),
        ("solide blanc", False),
        ("avoid light", False),
        ("not contaminated", False),
        ("fraction 3 in running buffer", False),
        ("interim storage at 4 \u00b0C", False),
        ("solide form\u00e9 en cours de chauffage", False),
        ("Completed", False),
    ],
)
def test_remarks_that_void_a_value(
    lab: Laboratory, remark: str, is_noted: bool
) -> None:
    """Among many others that do not, and in a column that the candidates have too."""
    table = f"id,loss,remarks|c1,45,brown oil|c2,97,{remark}|c3,62,white solid"
    told = lab.write("m.csv", [line.split(",", 2) for line in table.split("|")])
    said = lab("--results", told).said
    note = f"m.csv: line 3 (key 'c2'), {remark!r} in 'remarks' {VOID}, and"
    assert (note in said) == (VOID in said) == is_noted
    lab.write("pool.csv", "id,x,remarks|c1,1,|c2,5,|c3,2,|c4,9,")
    assert (note in lab("--results", told).said) == is_noted


def test_a_remark_of_the_candidates_voids_no_result(lab: Laboratory) -> None:
    """The output has their columns; in one file of both a remark may be of a result."""
    lab.write("pool.csv", "id,x,lot|c1,1,a|c2,5,expired|c3,2,b")
    told = lab.write("m.csv", "id,x,lot,loss|c1,1,a,3|c2,5,expired,4")
    assert VOID not in lab("--results", told, "--ignore", "lot").said
    both = lab.write("pool.csv", "id,x,lot,loss|c1,1,,3|c2,5,discard,4|c3,2,,|c4,3,,")
    said = lab("--results", both, "--ignore", "lot").said
    assert f"line 3 (key 'c2'), 'discard' in 'lot' {VOID}" in said
    both = lab.write("pool.csv", "id,x,lot,loss|c1,1,,3|c2,5,,4|c3,2,discard,|c4,3,,")
    assert VOID not in lab("--results", both, "--ignore", "lot").said


def test_a_long_remark_is_shown_where_it_warns(lab: Laboratory) -> None:
    told = lab.write("m.csv", f"id,loss,note|c1,3,{'so brown ' * 9}discard it|c2,4,x")
    assert f"'...discard it' in 'note' {VOID}" in lab("--results", told).said


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("column", "cells", "place"),
    [
        ("valid", "1,0,1", 1),
        ("Valid?", "yes,no,yes", 1),
        ("valid", "x,,x", 1),
        ("g\u00fcltig", "ja,ja,nein", 2),
        ("outlier", "0,1,0", 1),
        ("is_outlier", "False,True,False", 1),
        ("exclude", ",x,", 1),
        ("exclude", ",Q test,", 1),
        ("exclude", "no,no,yes", 2),
        ("valid", "1,1,1", None),
        ("valid", "1,2,3", None),
        ("outlier score", "0.1,0.2,1", None),
        ("estimated purity", ",98,", None),
        ("exclude", "no,no,", None),
        ("reliable", "yes,no,yes", 1),
        ("preliminary", "0,1,0", 1),
        ("outlier", "ok,?,ok", None),
        ("QC", "ok,fail,ok", 1),
        ("Use", "1,0,1", 1),
        ("use in model?", "yes,yes,no", 2),
        ("include in evaluation", "TRUE,FALSE,TRUE", 1),
        ("QC flag", "P,F,P", 1),
        ("replicate OK", "y,n,y", 1),
        ("passed", "true,false,true", 1),
        ("aktiv", "1,1,0", 2),
        ("weight", "1,0,1", 1),
        ("omit", "0,1,0", 1),
        ("gestrichen", ",x,", 1),
        ("weight", "12,14,12", None),
        ("use", "test,test,series", None),
        ("sieves used", "y,n,y", None),
        ("stirred", "1,0,1", None),
        ("in stock", "1,0,1", None),
    ],
)
def test_flags_that_void_a_value(
    lab: Laboratory, column: str, cells: str, place: int | None
) -> None:
    kinds = cells.split(",")
    rows = [[f"c{i}", 40 + 9 * i, kind] for i, kind in enumerate(kinds)]
    told = lab.write("m.csv", [["id", "loss", column], *rows])
    said = lab("--results", told).said
    assert (VOID in said) == (place is not None)
    if place is not None:
        at = f"line {place + 2} (key 'c{place}'), {kinds[place]!r} in '{column}' {VOID}"
        assert at in said


def test_the_flag_of_the_best_row_is_shown_with_it(lab: Laboratory) -> None:
    """It may be a number, and those that are no flags are not shown."""
    told = lab.write("m.csv", "id,loss,use,plate|c1,1,0,3|c2,5,0,4|c3,2,1,5|c4,3,0,6")
    assert "; 'use' there: '0'.\n" in lab("--results", told).said


@pytest.mark.parametrize(
    ("column", "cells", "shown"),
    [
        ("status", "ok,discontinued,ok,ok", "discontinued"),
        ("status", "ok,out of stock,ok,ok", "out of stock"),
        ("status", "ok,not available,ok,ok", "not available"),
        ("status", "ok,sold out,ok,ok", "sold out"),
        ("status", "ok,blocked,ok,ok", "blocked"),
        ("status", "ok,nicht lieferbar,ok,ok", "nicht lieferbar"),
        ("status", "ok,\u00e9puis\u00e9,ok,ok", "\u00e9puis\u00e9"),
        ("in stock", "yes,no,yes,yes", "no"),
        ("stock (g)", "5,0,2.5,1", "0"),
        ("Vorrat (g)", "1.5,0,2.5,0.5", "0"),
        ("valid", "1,0,1,1", "0"),
        ("expired", "0,1,0,0", "1"),
        ("status", "ok,running (Max),ok,ok", "running (Max)"),
        ("status", "ok,cancelled,ok,ok", "cancelled"),
        ("status", "ok,done: Max,ok,ok", "done: Max"),
        ("medium", "buffer,running buffer,gas,gas", None),
        ("finish", "none,finished surface,none,none", None),
        ("stock solution (mL)", "5,0,2.5,1", None),
        ("type", "sample,blank,sample,control", None),
        ("group", "blocked amine,free amine,free amine,free", None),
        ("base", "yes,no,yes,yes", None),
        ("soil", "clean,contaminated,clean,contaminated", None),
        ("state", "ok,in progress,ok,ok", None),
    ],
)
def test_candidates_that_cannot_be_had(
    lab: Laboratory, column: str, cells: str, shown: str | None
) -> None:
    rows = [[f"c{i}", i * i, kind] for i, kind in enumerate(cells.split(","))]
    lab.write("pool.csv", [["id", "x", column], *rows])
    said = lab().said
    assert (NOT_NOW in said) == (shown is not None)
    note = f"pool.csv: line 3 (key 'c1'): {shown!r} of {column!r} {NOT_NOW}"
    assert shown is None or note in said


def test_rows_that_cannot_be_proposed_need_no_warning(lab: Laboratory) -> None:
    """They are measured, or excluded; and columns that are left out warn too."""
    rows = "c1,1,done|c2,5,do not run|c3,2,|c4,9,do not run|c5,8,"
    lab.write("pool.csv", f"id,x,note|{rows}")
    told = lab.write("m.csv", "id,loss|c1,1|c3,3")
    words = ["--results", told, "--ignore", "note"]
    note = f"line 3 (key 'c2') and 1 more: 'do not run' of 'note' {NOT_NOW}"
    assert f"note: {lab.pool}: {note}" in lab(*words).said
    assert NOT_NOW not in lab(*words, "--exclude", "note=do not run").said
    both = lab.write("pool.csv", "id,x,ok,loss|c1,1,yes,3|c2,5,no,4|c3,2,,|c4,3,,")
    assert NOT_NOW not in lab("--results", both, "--ignore", "ok").said


def test_remarks_that_are_no_feature_forbid_rows_too(lab: Laboratory) -> None:
    rows = [[f"c{i}", i * i, f"lot {i}" if i != 7 else "do not use"] for i in range(25)]
    lab.write("pool.csv", [["id", "x", "remark"], *rows])
    assert f"'do not use' of 'remark' {NOT_NOW}" in lab().said


@pytest.mark.parametrize(
    ("column", "kinds", "is_noted"),
    [
        ("unit", ["mg", "g", "mg"], True),
        ("unit", ["g", "", "l"], True),
        ("Einheit", ["h", "d", "d"], True),
        ("amount in", ["mg", "g", "mg"], True),
        ("cost unit", ["$/kg", "$/g", "$/kg"], True),
        ("unit", ["EUR/kg", "EUR / mol", "\u20ac/g"], True),
        ("unit", ["$/kg", "$/kg", "$/kg"], False),
        ("unit", ["$/lot", "$/kg", "$/kg"], False),
        ("unit", ["mg", "mg", "mg"], False),
        ("operator", ["M", "S", "M"], False),
        ("unit", ["A1", "g", "mg"], False),
    ],
)
def test_a_column_of_units_beside_the_results(
    lab: Laboratory, column: str, kinds: list[str], is_noted: bool
) -> None:
    values = [45, 0.097, 31]
    rows = [[f"c{i}", values[i], kind] for i, kind in enumerate(kinds)]
    told = lab.write("m.csv", [["id", "loss", column], *rows])
    note = f"m.csv: the cells of column '{column}', {kinds[0]!r}, "
    assert (note in lab("--results", told).said) == is_noted


@pytest.mark.parametrize(
    ("column", "cells", "is_noted"),
    [
        ("dilution", ["1/10", "1/10", "1/100"], True),
        ("Verd\u00fcnnung", ["10", "1", "10"], True),
        ("dilution", ["1/10", "1/10", "1/10"], False),
        ("dilution", ["in water", "in oil", ""], False),
        ("plate", ["1", "2", "3"], False),
    ],
)
def test_a_column_of_dilutions(
    lab: Laboratory, column: str, cells: list[str], is_noted: bool
) -> None:
    rows = [[f"c{i}", 9 * i, cell] for i, cell in enumerate(cells)]
    told = lab.write("m.csv", [["id", "loss", column], *rows])
    note = f"column '{column}' has different dilutions"
    assert (note in lab("--results", told).said) == is_noted


def test_remarks_of_the_best_row_are_shown_with_it(lab: Laboratory) -> None:
    """Whatever their words; but no numbers, and nothing that all results have."""
    header = ["id", "loss", "remark", "operator", "plate"]
    rows = [[f"c{i}", i, f"oil {i}", "MS", i] for i in range(6)]
    told = lab.write("m.csv", [header, *rows, ["c5", 5, "smells odd", "MS", 9]])
    best = [
        x for x in lab("--results", told).notes if x.startswith("best so far: 'c5'")
    ]
    assert len(best) == 1
    assert best[0].endswith("; 'remark' there: 'oil 5', 'smells odd'.")
    low = lab("--results", told, "--minimize").said
    assert "'remark' there: 'oil 0'.\n" in low and "oil 5" not in low
    lab.write("pool.csv", "id,x,remark|" + "|".join(f"c{i},{i * i}," for i in range(9)))
    assert "'remark' there: 'oil 5', 'smells odd'.\n" in lab("--results", told).said
    table = [["id", "x", "remark"], *([f"c{i}", i * i, f"oil {i}"] for i in range(25))]
    lab.write("pool.csv", table)
    copied = lab.write("m.csv", [header, *rows])
    assert " there: 'oil" not in lab("--results", copied).said


def test_remarks_of_the_front_and_beside_the_list_are_shown(lab: Laboratory) -> None:
    lab.write("pool.csv", "id,x|c0,1|c1,4|c2,9|c3,16|c4,25")
    table = "id,x,loss,gain,remark|c0,1,3,1,a|c1,4,2,2,b|c2,9,1,1,c|old,30,0,3,d"
    told = lab.write("m.csv", table)
    said = lab("--results", told).said
    assert "'c0' (line 2 of" in said and "; 'remark' there: 'a'.\n" in said
    said = lab("--results", told, "--minimize").said
    assert "best so far: line 5 (key 'old')" in said
    assert "; 'remark' there: 'd'.\n" in said
    front = lab("--results", told, "--target", "gain").said
    shown = [x for x in front.splitlines() if x.startswith("front: ")]
    assert [x[-4:] for x in shown] == ["'a'.", "'b'.", "'d'."]


ACTUAL = "has the values of"


@pytest.mark.parametrize(
    ("column", "planned", "actual", "shown"),
    [
        (
            "measured heat",
            [25, 75, 100, 50, 100, 25],
            [25, 75, 100, 50, 27, 25],
            "line 6 (key 'c4'): 27 for 100",
        ),
        ("heat found", [1, 2, 2], [1, 2, 4], "line 4 (key 'c2'): 4 for 2"),
        ("found", [1, 2, 2], [1, 2, 4], None),  # of so few kinds it may be chance
        ("found", [1, 2, 3, 4], ["1", "2.0", "3", "n.d."], None),
        ("found", [1, 2, 3, 4, 5], ["1", "2", "3", "", "7"], "line 6"),
        ("found", [1, 2, 3, 4, 5], [1, 2, 3, 5, 4], None),
        ("found", [1, 2, 3, 4], [1, 2, 3, 4], None),
        ("found", [1, 2, 3, 4], [1.1, 1.9, 3.1, 4.1], None),
        ("found", [1.26, 2, 3, 4], [1.3, 2, 3, 4], None),  # rounded
        ("actual heat", [1, 2], [1, 3], None),
    ],
)
def test_actual_values_of_a_feature(
    lab: Laboratory,
    column: str,
    planned: list[float],
    actual: list[Any],
    shown: str | None,
) -> None:
    """A column that is not used, and has a feature's values in most results."""
    rows = [[f"c{i}", heat] for i, heat in enumerate(planned)]
    rows += [["c8", 61], ["c9", 93]]
    lab.write(
        "pool.csv", [["id", "heat", "dose"], *([*x, i] for i, x in enumerate(rows))]
    )
    table = [[f"c{i}", 9 * i % 7, value] for i, value in enumerate(actual)]
    told = lab.write("m.csv", [["id", "loss", column], *table])
    said = lab("--results", told).said
    note = f"m.csv: column {column!r} {ACTUAL} 'heat' except in {shown}"
    assert (ACTUAL in said) == (shown is not None) == (note in said)


@pytest.mark.parametrize(
    ("feature", "column", "values", "shown"),
    [
        ("T", "T internal", [20.4, 49.6, 70.2, 81], "line 5 (key 'c3'): 81 for 20"),
        ("T (K)", "oil (K)", [20.4, 49.6, 70.2, 81], "line 5 (key 'c3'): 81 for 20"),
        ("T", "oil", [20.4, 49.6, 70.2, 81], None),
        ("T (K)", "oil (h)", [20.4, 49.6, 70.2, 81], None),
        ("T", "T internal", [20.4, 49.6, 70.2, 21.9], None),
        ("T", "T internal", [20.4, 53, 66, 81], None),  # most are other ones
    ],
)
def test_measured_values_near_those_of_a_feature(
    lab: Laboratory, feature: str, column: str, values: list[float], shown: str | None
) -> None:
    """A thermometer never shows the very numbers that were planned."""
    lab.write("pool.csv", f"id,{feature},x|c0,20,1|c1,50,2|c2,70,4|c3,20,9|c4,60,9")
    table = [[f"c{i}", 9 * i % 7, value] for i, value in enumerate(values)]
    told = lab.write("m.csv", [["id", "loss", column], *table])
    said = lab("--results", told).said
    note = f"column {column!r} has nearly the values of {feature!r} except in {shown}."
    assert ("the values of" in said) == (shown is not None) == (note in said)


@pytest.mark.parametrize(
    ("column", "cells", "shown"),
    [
        ("solvent used", "THF,oil,oil,thf", "line 4 (key 'c2'): oil for THF."),
        ("found", "THF,oil,water,oil", "line 5 (key 'c3'): oil for THF."),
        ("found", "THF,oil,oil,THF", None),  # of two kinds it may be chance
        ("solvent used", "THF,oil,THF,", None),
        ("solvent lot", "A1,A2,A1,B1", None),
    ],
)
def test_actual_categories_of_a_feature(
    lab: Laboratory, column: str, cells: str, shown: str | None
) -> None:
    water = "water" if "water" in cells else "THF"
    pool = f"id,solvent,x|c0,THF,1|c1,oil,2|c2,{water},3|c3,THF,5|c4,gas,9"
    lab.write("pool.csv", pool)
    table = [[f"c{i}", 9 * i % 7, x] for i, x in enumerate(cells.split(","))]
    told = lab.write("m.csv", [["id", "loss", column], *table])
    said = lab("--results", told).said
    note = f"column {column!r} {ACTUAL} 'solvent' except in {shown}"
    assert (ACTUAL in said) == (shown is not None) == (note in said)


PER_CENT = "named as a per cent"


@pytest.mark.parametrize(
    ("columns", "rows", "noted"),
    [
        (
            ["yield (%)", "dirt (%)"],
            [(0.45, 0.03), (0.91, 0.08), (0.62, 0.012)],
            "'yield (%)', 'dirt (%)' are",
        ),
        (["% yield", "dirt"], [(0.45, 0.03), (0.91, 8), (1, 1)], "'% yield' is"),
        (["yield (%)", "dirt (%)"], [(45, 0.03), (91, 0.08), (62, 0.012)], None),
        (["yield", "dirt"], [(0.45, 0.03), (0.91, 0.08), (0.62, 0.012)], None),
        (["yield (%)", "dirt"], [("0.45 %", 1), ("0.9 %", 2), ("1 %", 3)], None),
        (["yield (%)", "dirt"], [(0.45, 1), (0.9, 2), (1.4, 3)], None),
        (["yield (%)", "dirt"], [(0, 1), (0, 2), (0, 3)], None),
        (["yield (%)", "dirt"], [(0.4, 1), (0.5, 2)], None),
    ],
)
def test_fractions_in_a_column_of_per_cents(
    lab: Laboratory, columns: list[str], rows: list[tuple[Any, Any]], noted: str | None
) -> None:
    """Impurities below 1 are usual, and yields are not."""
    told = [["id", *columns], *([f"c{i}", *row] for i, row in enumerate(rows))]
    words = ["--constraint", f"{columns[1]}<=5", "--results", lab.write("m.csv", told)]
    said = lab(*words, target=columns[0]).said
    assert (PER_CENT in said) == (noted is not None)
    assert noted is None or f"note: {noted} {PER_CENT}, and nothing is above 1" in said


@pytest.mark.parametrize(
    ("column", "values", "shown"),
    [
        ("yield (%)", [45, 131.5, -4, 62, 31], "131.5 (line 3 (key 'c1')), -4 (line 4"),
        ("yield (%)", [45, 103.5, 0, 62, 31], None),
        ("inhibition (%)", [45, 131.5, -4, 62, 31], None),
        ("ee (%)", [45, -98, -4, 62, 31], None),
        ("yield (mg)", [45, 131.5, -4, 62, 31], None),
        ("growth (%)", [145, 131.5, 181, 162, 131], None),
        ("potency (%)", [145, 131.5, 181, 62, 131], None),
    ],
)
def test_per_cents_below_0_or_far_above_100(
    lab: Laboratory, column: str, values: list[float], shown: str | None
) -> None:
    rows = [[f"c{i}", value] for i, value in enumerate(values)]
    told = lab.write("m.csv", [["id", column], *rows])
    said = lab("--results", told, target=column).said
    assert (PER_CENT in said) == (shown is not None)
    assert shown is None or f"'{column}' is {PER_CENT}, and has {shown}" in said


def coloured(path: Path, num: int, cells: str, colour: Any = "FFFF0000") -> Path:
    """A workbook of results, of which some cells have a colour."""
    openpyxl = pytest.importorskip("openpyxl")
    from openpyxl.styles import PatternFill

    book = openpyxl.Workbook()
    book.active.append(["id", "loss", "note"])
    for i in range(num):
        book.active.append([f"c{i}", i * i % 7, f"n{i % 2}"])
    for place in cells.split():
        book.active[place].fill = PatternFill("solid", fgColor=colour)
    book.save(path)
    return path


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("num", "cells", "shown"),
    [
        (2, "B3", "'B3'"),
        (8, "B3 B9", "'B3', 'B9'"),
        (8, "A3 B3 C3", "'A3', 'B3'"),
        (8, "A1 B1 C1", None),  # the header
        (8, "B3 B5 B7", None),
        (8, "C3", None),  # no key and no result
        (2, "A3 B3 C3", None),  # every second line
        (8, "A3 B3 C3 A5 B5 C5 A7 B7 C7 A9 B9 C9", None),
        (8, "B15", None),  # empty
    ],
)
def test_a_few_cells_with_a_colour_are_named(
    lab: Laboratory, tmp_path: Path, num: int, cells: str, shown: str | None
) -> None:
    note = "cells with a colour of their own count as the others: "
    path = coloured(tmp_path / "m.xlsx", num, cells)
    said = lab("--results", path).said
    assert (note in said) == (shown is not None)
    assert shown is None or f"m.xlsx: {note}{shown}; " in said
    coloured(path, num, cells, "FFFFFFFF")
    assert note not in lab("--results", path).said


def test_white_of_a_theme_is_no_colour(lab: Laboratory, tmp_path: Path) -> None:
    colours = pytest.importorskip("openpyxl.styles.colors")
    for tint, is_noted in ((0.0, False), (-0.25, True)):
        colour = colours.Color(theme=0, tint=tint)
        path = coloured(tmp_path / "m.xlsx", 8, "B3", colour)
        said = lab("--results", path).said
        assert ("cells with a colour of their own" in said) == is_noted


def test_keys_of_candidates_with_a_colour_are_named(
    lab: Laboratory, tmp_path: Path
) -> None:
    lab.pool = coloured(tmp_path / "pool.xlsx", 9, "A4 C5")
    said = lab("--ignore", "loss").said
    assert "pool.xlsx: cells with a colour of their own count as the others: 'A4';" in (
        said
    )
