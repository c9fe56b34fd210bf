"""The next rows on the command line: tables of cases, rounds and states."""

# ruff: noqa: E501 (a case is one line)

import csv
import errno
import json
import os
import random
import re
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from laboratory import (
    DEFAULTS,
    DOSE,
    HEADER,
    HEAT,
    NUM,
    SOLVENT,
    Laboratory,
    Table,
    lines,
    loss,
    measured,
    words_of,
)

pytest.importorskip("pandas")

from botorch_sparse.__main__ import main
from botorch_sparse.strategies import ExpectedImprovement, Objective
from botorch_sparse.suggest import proposed_rows, selection
from botorch_sparse.suggest.candidate_pool import read_pool
from botorch_sparse.suggest.reasons import DRAWN, EXPLOITS, EXPLORES, ONLY, SPREAD
from botorch_sparse.suggest.results import Results, read_results
from botorch_sparse.suggest.selection import ADDED, STRATEGIES, rebuild

LOSS = (Objective("loss", minimize=True),)

TWO_KEYS = "id,x|1.1,1|1.2,2|1.3,3|1.10,4"
# Each case: candidates, results, options, and parts of the one line. Candidates None are
# the 30 rows; results None are no file. Options begin with the key, or with a dash.
X3 = "id,x|a,1|b,2|c,3"
KINDS = "id,heat,solvent|a,1,x|b,2,y|c,3,x"
ROUNDED = "heat,dose|63.20551,0.123456789|33.10234,0.5000123|47.12345,0.7771234"
NAMED = lines("name,x", "A{0},{0}", NUM)
REFUSED: list[tuple[Table | None, Table | None, str, str]] = [
    # a pool that cannot be read
    ("", None, "id", "pool.csv is empty: a header row"),
    ("id,heat|", None, "id", "pool.csv is empty: a header row"),
    ("1,2|3,4|", None, "id", "only numbers; it must name the columns"),
    ("heat,heat,id|1,2,3|", None, "id", "repeats the column names 'heat'"),
    ("id,heat|a,1|b|", None, "id", "pool.csv, line 3: there are 1 cells"),
    ("id,heat|a,1||b,|", None, "id", "line 4 (key 'b'), column 'heat': the cell is"),
    ("id,heat|a,1|a,2|", None, "id", "line 3 (key 'a'), column 'id': line 2 has the"),
    ("id,heat|a,1|,2|", None, "id", "line 3 (key ''), column 'id': the cell is empty"),
    ("id,heat|a,1|b,2|c,hot|", None, "id", "(key 'c'), column 'heat': 'hot' is no num"),
    ("id,heat|a,1|b,inf|", None, "id", "line 3 (key 'b'), column 'heat': 'inf' is no"),
    ("name,heat|a,1|", None, "id", "has no column 'id', the --key; its columns are"),
    ("id;heat, C|a;1,5|", None, "id", "no column 'id', the --key; its columns are 'id;"),
    ("id;heat, C|a;1,5|", None, "id", "There are semicolons in the names of columns: if"),
    ("id;heat|a;1,5|b;2,500|", None, "id", "column 'heat': '1,5' is no number, but"),
    ("id|a|", None, "id", "pool.csv: Got 0 columns besides the key"),
    ("id,loss|a,1|", None, "id", "pool.csv: Got 0 columns besides the key"),
    ("id,reason|a,1|", None, "id", "has a column 'reason', which the output adds; ren"),
    ("id,heat|\x1b[2J,1|\x1b[2J,2|", None, "id", r"(key '\x1b[2J'), column 'id'"),
    ("id,\x1b[2J|a,1|b,|", None, "id", r"column '\x1b[2J': the cell is empty"),
    (b"id,heat\na,1\n\x81,2\n", None, "id", "pool.csv, line 3: byte 0x81 is no UTF-8"),
    ("row,heat|1,2", None, "", "a column 'row', which the output adds; rename it, give"),
    ("row,heat|1,2", None, "", "or leave it out with --ignore row."),
    ("a|.5|1|.5", None, "", "lines 2 and 4: the two rows have the same features"),
    # results that cannot be read
    (KINDS, "id,loss||d,1|e,2", "id", "m.csv, line 3 (key 'd'), column 'id': {pool} has"),
    (KINDS, "id,loss|d,1|e,2", "id", "no row with this key, and the features of"),
    (KINDS, "id,loss|d,1", "id", "(column 'heat': there is no such column); correct"),
    (KINDS, "id,heat,solvent,loss|d,,x,1", "id", "(column 'heat': '' is no number); corr"),
    (KINDS, "id,heat,solvent,loss|d,1,X,1", "id", "column 'solvent': 'X' is 'x' in {pool}; write it as there"),
    (KINDS, "id,heat,solvent,loss|b,2,y,", "id", "column 'loss': the cell is empty"),
    (KINDS, "id,gain|a,1", "id", "m.csv has no column 'loss', the --target; its columns"),
    (KINDS, "key,loss|a,1", "id", "m.csv has no column 'id', the --key"),
    (KINDS, "id,loss|a,1|b,", "id", "line 3 (key 'b'), column 'loss': the cell is empty"),
    (KINDS, "id,loss|a,1|b,n/a", "id", "(key 'b'), column 'loss': 'n/a' is no number"),
    (KINDS, "id,loss|a,inf", "id", "line 2 (key 'a'), column 'loss': 'inf' is no number"),
    (KINDS, "id,loss|a,1e300|b,-1e300|c,1", "id", "m.csv: Got feedback as large as 1e+300"),
    (KINDS, "id,loss|a,1,2", "id", "m.csv, line 2: there are 3 cells, but the header has 2"),
    (KINDS, "id,loss,loss|a,1,2", "id", "m.csv repeats the column names 'loss'"),
    (KINDS, "id,loss|a,\x1b[31m", "id", r"'\x1b[31m' is no number"),
    (KINDS, b"id,loss\na,\x90\n", "id", "m.csv, line 2: byte 0x90 is no UTF-8"),
    (KINDS, "id,loss|a,1|old,4", "id", "m.csv, line 3 (key 'old'), column 'id': {pool} has"),
    ("heat,solvent|1,x|2,y", "heat,loss|1,1", "", "no column 'solvent', which {pool} has; "),
    ("heat,s|1,x|2,x", "s,loss|x,1", "", "'heat', which {pool} has; add it, or name rows"),
    ("heat,solvent|1,x|2,y", "heat,loss|1,1", "", "or name rows by a --key"),
    ("a,b|1,x|2,y", "a,b,loss|1,x,1|hot,y,2", "", "line 3, column 'a': 'hot' is no number"),
    # keys and features that a spreadsheet changed, or that contradict each other
    *[
        (f"id,heat|a,0|{key},1|b,2", f"id,heat,loss|a,0,3|{told},1,4", "id", message)
        for key, told in [("0007", "7"), ("0007", "7.0"), ("1E3", "1000"), ("7", "007")]
        for message in (
            f"m.csv, line 3 (key '{told}'), column 'id': {{pool}} has no row with this",
            f"key, but one with '{key}'. If a spreadsheet has changed the key",
        )
    ],
    ("id,size|a,5|b,7", "id,size,loss|a,0,1", "id", "column 'size': '0' is not '5', which"),
    ("id,x|a,1|b,2", "id,x,loss|b,,2|a,1.7,1", "id", "line 3 (key 'a'), column 'x': '1.7' is"),
    ("id,x|a,1|b,2", "id,x,loss|b,,2|a,1.7,1", "id", "which line 2 of {pool} has for this"),
    (KINDS, "id,solvent,loss|a,y,1", "id", "column 'solvent': 'y' is not 'x', which line 2"),
    ("id,x,add|a,1,none|b,2,salt", "id,add,loss|b,None,1", "id", "'None' is not 'salt', wh"),
    # text that the list does not have, beside a key
    *[
        (KINDS, f"id,heat,solvent,loss|b,,,2|a,{cells},1", "id", message)
        for cells, message in [
            (",x (wet)", "'solvent': 'x (wet)' is not 'x', which line 2 of {pool} has"),
            (",NMP", "'solvent': 'NMP' is not 'x', which"),
            (",NMP", "cell (an empty one is not compared), or give the column of the"),
            ("bath 120,", "'heat': 'bath 120' is not '1', which line 2"),
            ("2024-01-05,x", "'heat': '2024-01-05' is not '1'"),
            ("120 °C,x", "'heat': '120 °C' is not '1'"),
        ]
    ],
    ("id,T|a,1 °C|b,2 °C", "id,T,loss|a,1 °C,3|b,2 K,1", "id", "'2 K' is not '2', which"),
    # keys that a spreadsheet makes one
    (TWO_KEYS, "id,loss|1.2,3|1.1,2", "id", "line 3 (key '1.1'), column 'id': a spreadsheet"),
    (TWO_KEYS, "id,loss|1.1,2", "id", "writes '1.10', another key of {pool}, as '1.1' too; give"),
    (TWO_KEYS, 'id,loss|"1,1",2', "id", "writes '1.10', another key of {pool}, as '1,1' too; gi"),
    (NAMED, "name,x,loss|B0,0,1", "", "m.csv, line 2, column 'name': it has 'B0', and the"),
    (NAMED, "name,x,loss|B0,0,1", "", "row 1 (line 2 of {pool}), has 'A0'; name rows by --key 'na"),
    (NAMED.replace("A", "lot 26-"), "name,x,loss|lot 26-7,3,1", "", "has 'lot 26-3'; na"),
    # features without a key: rounded, alike, in another spelling
    (ROUNDED, "heat,dose,loss|33.10234,.5,1", "", "m.csv, line 2, column 'dose': no row of"),
    (ROUNDED, "heat,dose,loss|47.12345,0.7771234,1|63.2055,0.1235,2", "", "line 3, column 'dose"),
    (ROUNDED, "heat,dose,loss|63.2,0.123,2", "", "nearest one is line 2, with '0.123456789'"),
    (ROUNDED, "heat,dose,loss|63.2,0.123,2", "", "write all digits; if it was not, zeros"),
    ("a|0.5000001|0.5000002|1", "a,loss|0.5,1", "", "to six digits this is row 1 (line 2 of {pool})"),
    ("a|0.5000001|0.5000002|1", "a,loss|0.5,1", "", "row 2 (line 3 of {pool}); name the rows by a"),
    (KINDS, "id,heat,solvent,loss|z,7,X,1", "id", "column 'solvent': 'X' is 'x' in {pool}; write it as"),
    ("heat,s|1,x|2,y", "heat,s,loss|7,X,1", "", "line 2, column 's': 'X' is 'x' in {pool}; write"),
    (lines("name,x", "n{0},{0}", 9), "x,loss|1,1", "", "if it names rows, leave it out with"),
    (lines("id,n,x", "c{0},n{0},{0}", 20), "id,x,loss|old,3,1", "id", "out with --ignore 'n'"),
    # columns
    (None, None, "id --text lids", "no column 'lids', which --text names"),
    (None, None, "id --ignore x", "no column 'x', which --ignore names"),
    (None, None, "id --ignore id", "Both --key and --ignore name 'id'"),
    (None, None, "id --text id", "Both --key and --text name 'id'; keep"),
    (None, None, "id --text lid --ignore lid", "Both --text and --ignore name 'lid'; keep"),
    (None, None, "loss", "Both --key and --target name 'loss'"),
    (lines("id,n", "c{0},n{0}", NUM), None, "id", "has no column to learn from: 'n' has 30"),
    (lines("id,note", "{0},note {0}", 1500) + "|x,note 1", None, "id --text note", "'note' holds "),
    (lines("n,x", "n{0},1", NUM), None, "", "same features; leave one out, or name rows by a"),
    (lines("id,n", "c{0},spilled", 4) + 8 * "|d,", None, "id", "are 8 of 12 of the column; fill"),
    ("id,g|a,1|b,2.5|c,|d,3", None, "id", "the column; fill it in (where cells are text"),
    ("id,s|a,oil|b,|c,oil|d,x", None, "id", "a word such as none), or leave the column out"),
    ("id,lot|a,1|b,2|c,|d,3", None, "id --text lot", "by a word such as none), or leave"),
    # values of the target
    (lines("id,x,loss", "c{0},{0},{0}", 9), None, "id", "line 2 (key 'c0'), column 'loss': '0'"),
    (lines("id,x,loss", "c{0},{0},{0}", 9), "", "id", "give the file as results too (--results"),
    (lines("id,x,loss", "c{0},{0},1", 9), "id,loss|", "id", "are named, or they are empty; give"),
    (lines("id,x,loss", "c{0},{0},failed", 2), None, "id", "'failed' is a result in the column"),
    *[
        (X3, f"id,loss|a,1|b,{word}", "id", f"'{word}' is no number; write a number, where")
        for word in ("-", "n.d.", "fail")
    ],
    (X3, "id,loss|a,", "id", "fill it in, or leave the row out, if it is measured later"),
    (X3, "id,loss|a,", "id", "may be empty with that --state: they wait on. If the measureme"),
    (X3, "id,loss|a,", "id", "write failed, or call with --skip-empty for all"),
    # decimal marks
    ("id;x|a;1,5|b;2,500", None, "id", "column 'x': '1,5' is no number, but most"),
    ("id;x|a;1,5|b;2,500", None, "id", "--decimal ',' reads all commas as decimal ones"),
    ("id;x|a;1,5|b;1.037", None, "id --decimal ,", "column 'x': with --decimal ',' the point"),
    ("id;x|a;1,5|b;1.037", None, "id --decimal ,", "write 1037 or 1,037, whichever it is"),
    ("id;x|a;1,5|b;2", "id;loss|a;1.037", "id --decimal ,", "column 'loss': with --decimal"),
    ("id;x|a;1,5|b;2", "id;x;loss|o;1.250;2", "id --decimal ,", "(key 'o'), column 'x': with"),
    # options
    (None, None, "id --batch 0", "'0' is not a whole number above 0"),
    (None, None, "id --batch 1.5", "'1.5' is not a whole number above 0"),
    (None, None, "id --seed -1", "'-1' is not a whole number from 0 on"),
    (None, None, "id \x1b[2J", r"unrecognized arguments: \x1b[2J"),
    (None, None, "id --strategy best", "invalid choice"),
    (None, None, "id --output {pool}", "is given twice; nothing was written"),
    (None, None, "id --output {pool}/next.csv", "no such folder"),
    (None, None, "id --state {folder}", "no such folder"),
    (None, None, "id --results {folder}/measrued.csv", "measrued.csv' for --results; check"),
    (None, "id,loss", "id --results {pool} {pool}", "pool.csv' is given twice as --results"),
]  # fmt: skip


@pytest.mark.parametrize(("pool", "results", "options", "message"), REFUSED)
def test_a_bad_call_is_refused_in_one_line(
    lab: Laboratory,
    pool: Table | None,
    results: Table | None,
    options: str,
    message: str,
) -> None:
    if pool is not None:
        lab.write("pool.csv", pool)
    line = lab.refused(*words_of(lab, options, results), key=None)
    assert message.format(pool=lab.pool) in line


GRID = [f"{0.2 * i:.3g},{0.05 * j:.3g}" for i in range(6) for j in range(21)]
LEFT = "|".join(["a,b", *(x for x in GRID if x not in ("0,0.5", "1,1", "0.2,0"))])
TENTHS = "|".join(["T", *(f"{20 + i / 10:g}" for i in range(300) if i != 10)])
SECONDS = "|".join(["t", *(f"{1.7e9 + 400 * i:.17g}" for i in range(10))])
# Each case: candidates, results, options, and the first column of all rows that are
# proposed, or their number.
PROPOSED: list[tuple[Table, Table | None, str, str | int]] = [
    # features without a key
    ("a|1e-9|0.3333333333|0.3|1", "a,loss|5e-6,1", "", "1 2 3 4"),
    ("a|1e-9|0.3333333333|0.3|1", "a,loss|1.4e-9,1", "", "1 2 3 4"),
    ("a|1e-9|0.3333333333|0.3|1", "a,loss|0.00000,1", "", "1 2 3 4"),
    ("a|1e-9|0.3333333333|0.3|1", "a,loss|1e-9,1", "", "2 3 4"),
    ("a|1e-9|0.3333333333|0.3|1", "a,loss|0.33333,1", "", "1 3 4"),
    ("a|1e-9|0.3333333333|0.3|1", "a,loss|3.333333e-1,1", "", "1 3 4"),
    ("a|1e-9|0.3333333333|0.3|1", "a,loss|0.33332,1", "", "1 2 3 4"),
    ("a|1e-9|0.3333333333|0.3|1", "a,loss|0.30000000000000004,1", "", "1 2 4"),
    ("a|1e-9|0.3333333333|0.3|1", "a,loss|0.30001,1", "", "1 2 3 4"),
    ("a|.5000001|.5000002|1", "a,loss|0.50000010000000011,1", "", "2 3"),
    (SECONDS, "t,loss|1700000800.0000003,1|1700002000.0000003,2", "", 8),
    (TENTHS, "T,loss|21,1|20.5,2", "--batch 999", 298),
    (lines("d", "202401{0:02}", 27, 3), "d,loss|20240105,1", "--batch 99", 26),
    ("|".join(["T", *(f"{1000 + i / 50:g}" for i in range(50))]), "T,loss|1000.07,1", "--batch 99", 50),
    (LEFT, "a,b,loss|0,0.5,1|1,1,2|0.2,0,3", "--batch 999", 123),
    (ROUNDED, "heat,dose,loss|63.205512,0.12345679,1|33.10234,0.50001234,2", "", "3"),
    (lines("n,x", "n{0},{0}", 5), "x,loss|1,1", "--ignore n", "1 3 4 5"),
    # names that were left out, and the word none
    (NAMED, "name,x,loss|B0,0,1", "--ignore name --batch 99", 29),
    (NAMED, "name,x,loss| a3,3,1", "--batch 99", 29),
    (NAMED, "name,x,loss|,3,1", "--batch 99", 29),
    (NAMED.replace("A", "lot 26-01-"), "name,x,loss|lot 26-01-3,3,1", "--batch 99", 29),
    (lines("x,add", "{0},none", 12), "x,add,loss|1,salt,1", "--batch 99", 12),
    (lines("x,add", "{0},no", 12), "x,add,loss|1,salt,1", "--batch 99", 12),
    (lines("x,add", "{0},", 12), "x,add,loss|1,salt,1", "--batch 99", 11),
    # what spreadsheets do to cells is no contradiction
    ("id,k,s|c1,2024-01-05,80.04|b,blue,7|d,red,8", "id,k,s,loss|c1,05/01/2024,80.0,4|b,,,1", "id", "d"),
    ("id,k,s|c1,red,123456789012|b,blue,7|d,red,8", "id,k,s,loss|c1,-,1E+11,4|b,,,1", "id", "d"),
    ("id,k,s|C1CC1,red,1|b,blue,7|d,red,8", "id,k,s,loss|c1cc1,red,2,4|b,,,1", "id", "C1CC1 d"),
    ("id,k,s|C1CC1,red,1|b,blue,7|d,red,8", "id,k,s,loss|c1cc1,red,1,4|b,,,1", "id", "d"),
    ("id,k,s|1.1,red,5|b,blue,7|d,red,8", "id,k,s,loss|1.10,red,33,4|b,,,1", "id", "1.1 d"),
    ("id,k,s|0e12345678901234567890,red,1|b,blue,7|d,red,8", "id,k,s,loss|other,red,2,4|b,,,1", "id", 2),
    (KINDS, "id,heat,solvent,loss|a,1.0,X,1|b,,NA,2", "id", "c"),
    (KINDS, "id,heat,solvent,loss|a,1 °C,-,1|b,none,?,2", "id", "c"),
    (TWO_KEYS, "id,loss|1.2,3|1.1,2|1.10,4", "id", "1.3"),
    (TWO_KEYS, "id,loss|1.2,3", "id", "1.1 1.10 1.3"),
    ("id,made|a,2026-01-03|b,2026-01-14", "id,made,loss|a,1/3/2026,2", "id", "b"),
    # values of the target
    ("id,x,loss|a,1,5|b,2,|c,3|d,4", "same", "id", "b c d"),
    (lines("id,x,loss", "c{0},{0},1", 4) + "|d,7,|e,8,", "same", "id", "d e"),
    (lines("id,x,loss", "c{0},{0},1", 4) + "|d,7,NA|e,8,nan", "same", "id --skip-empty", "d e"),
    (lines("x,loss", "{0},1", 4) + "|7,|8, ", "same", "", "5 6"),
    (lines("id,x,loss", "c{0},{0},1", 4) + "|c4,4,FAILED |d,7,", "same", "id", "d"),
    (lines("id,x,loss", "c{0},{0},1", 3), None, "id --ignore loss", "c0 c1 c2"),
    (lines("id,x,loss", "c{0},{0},", 3), None, "id", "c0 c1 c2"),
    (lines("id,x,loss", "c{0},{0},1", 3), "id,loss|c1,failed", "id", "c0 c2"),
    (X3, "", "id", "a b c"),
    (X3, "|", "id", "a b c"),
    (X3, "id,loss|", "id", "a b c"),
    ("id,x|a,1", None, "id", "a"),
    ("id,x|a,1", "id,loss|a,2.5", "id", ""),
    ("id,x|a,1", "id,loss|a,failed", "id", ""),
    # columns, and decimal marks
    ("id,n,x|a,,1|b,spilled,2|c,,3", None, "id --ignore n", "a b c"),
    ("name,x|a,1|b,1|c,2", None, "--text name", "1 2 3"),
    ("id;x|a;1.037,5|b;2,5", "id;loss|a;1,5", "id --decimal ,", "b"),
    ("id;x|0,5;1,5|0.5;2,5", "id;loss|0,5;1,5", "id --decimal ,", "0.5"),
    ("id;x|a;1,5|b;2", "id;x;loss|o;1250;2", "id --decimal ,", "a b"),
]  # fmt: skip


@pytest.mark.parametrize(("pool", "results", "options", "expected"), PROPOSED)
def test_rows_that_are_neither_measured_nor_failed_are_proposed(
    lab: Laboratory,
    pool: Table,
    results: Table | None,
    options: str,
    expected: str | int,
) -> None:
    """Where results of other features count beside the pool, all of its rows are."""
    lab.write("pool.csv", pool)
    if results == "same":
        words = [*words_of(lab, options, None), "--results", str(lab.pool)]
    else:
        words = words_of(lab, options, results)
    rows = lab(*words, key=None).rows
    names = sorted(next(iter(row.values())) for row in rows)
    found = len(rows) if isinstance(expected, int) else " ".join(names)
    assert found == expected


LOTS = lines("id,lot,solvent,plate", "{0},L26-{0:02},s{0},{0:03}", 9, 1)
LOTS += "|" + lines("", "{0},L26-{0:02},s1,{0:03}", 21, 10)[1:]
COUNTED = [f"c{i},{{first}},{i},{DOSE[i]}" for i in range(NUM)]
BESIDE = "id,heat,solvent,dose,lid,loss"
# Each case: candidates, results, options, and parts of stderr; `not` before what must
# not be there.
NOTED: list[tuple[Table | None, Table | None, str, list[str]]] = [
    (None, None, "id --batch 3", ["pool.csv: 30 rows, 0 of them measured; 3 proposed now.\n"]),
    (None, None, "id --batch 3 --quiet", ["not n"]),
    (None, lines("id,loss", "c{0},1", 3) + "|old,failed", "id", [
        "note: 1 of the results are of no row of {pool}, and failed: they",
        "and are left out: line 5 (key 'old')\n",
    ]),
    (None, lines("id,loss", "c{0},1", 3) + "|old,", "id --skip-empty", ["line 5 (key 'old')\n"]),
    (None, lines("id,loss", "c{0},1", 6) + "|" + lines("", "c{0},NA", 24, 6)[1:], "id --skip-empty", [
        "note: NO ROW IS PROPOSED: 24 rows failed (the word failed, or no",
    ]),
    (None, lines("id,loss", "c{0},1", 30), "id", [
        "note: NO ROW IS PROPOSED: all rows are measured or wait",
    ]),
    (LOTS, None, "id", [
        "note: {pool}: column 'lot' is left out: it has 30 different texts in 30 rows, the ",
        "first 'L26-01'", "--text 'lot'", "codes, declare it as --text 'plate'",
    ]),
    (LOTS, None, "id --text lot --text plate", ["not note:"]),
    (LOTS, None, "id --ignore lot --text plate", ["not note:"]),
    (lines("id,lot,s", "{0},L26-{0:02},s{0}", 18, 1), None, "id", [
        "note: {pool}, line 2, column 'lot': 'L26-01' is no number", "18 categories in 18 rows",
    ]),
    *[
        (f"id,{name},a|" + lines("", "c{0},{0},7.5", NUM, first)[1:], None, options, parts)
        for name, first in [("Sample no.", 1), ("index", 0), ("nr", 9)]
        for options, parts in [
            ("id", [f"column '{name}' counts the rows, and is taken", "not give it as --key"]),
            ("--ignore id", [f"column '{name}' counts the rows, and is", "give it as --key"]),
        ]
    ],
    (lines("id,heat,a", "c{0},{0},7.5", NUM), None, "id", ["not counts the rows"]),
    (lines("id,x,n", "c{0},{0},", 4) + "|d,5,NA|e,6, ", None, "id", [
        "column 'n' is left out: it has no value in any row",
    ]),
    (lines("id,x,loss", "c{0},{0},secret", 9), "id,loss|c1,2", "id", [
        "note: the target 'loss' is also a column of {pool}; it is ignored",
    ]),
    (X3, "id,loss|a,failed|b,2", "id --minimize", [
        "best so far: 'b' (line 3 of {pool}), 'loss': 2; the model's mean", "1 failed; 1 proposed",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("pool", "results", "options", "parts"), NOTED)
def test_what_is_noted(
    lab: Laboratory,
    pool: Table | None,
    results: Table | None,
    options: str,
    parts: Iterable[str],
) -> None:
    if pool is not None:
        lab.write("pool.csv", pool)
    said = lab(*words_of(lab, options, results), key=None).said
    for part in parts:
        text = part.removeprefix("not ").format(pool=lab.pool, m=lab.results)
        assert (text in said) != part.startswith("not "), part


def test_the_first_batch_covers_the_table_and_keeps_the_users_text(
    lab: Laboratory,
) -> None:
    rows = lab("--batch", 25).rows
    with lab.pool.open(newline="") as file:
        source = {row["id"]: row for row in csv.DictReader(file)}
    ids = [row["id"] for row in rows]
    assert len({*ids}) == 25
    for row in rows:
        assert [row.pop(name) for name in ADDED] == ["", "", SPREAD]
        assert row == source[row["id"]]
    assert lab("--batch", 25, "--seed", 1).ids != ids
    path = lab.folder / "next.csv"
    assert lab("--output", path, "--batch", 25).rows == []
    with path.open(newline="") as file:
        assert list(csv.DictReader(file)) == lab("--batch", 25).rows
    assert sorted(p.name for p in lab.folder.iterdir()) == ["next.csv", "pool.csv"]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("has_state", [True, False])
@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize("seed", range(2))
def test_rounds_in_which_all_files_change(
    lab: Laboratory, seed: int, key: str | None, has_state: bool
) -> None:
    """Rows are measured, fail, wait on, leave the pool and come back, at random.

    Each call proposes rows that are in the pool, and have neither a result nor been
    proposed before; as many as asked for, or all that are left. It says how many wait,
    and gives the same rows again from the same files.
    """
    draw, name = random.Random(seed), "bbkb" if seed else "thompson"
    with lab.pool.open(newline="") as file:
        cells = {row["heat"]: row for row in csv.DictReader(file)}
    columns = HEADER if key else HEADER[1:]
    inside, waiting, measured, failed = {*cells}, set[str](), set[str](), set[str]()
    files: list[Path] = []
    for step in range(6):
        kept = [heat for heat in cells if heat in inside]
        draw.shuffle(kept)
        rows = [[cells[x][c] for c in columns] for x in kept]
        lab.write("pool.csv", [columns, *rows])
        size = draw.choice([1, 3, 6, 40])
        options: list[object] = ["--batch", size, "--strategy", name, "--minimize"]
        options += ["--results", *files] if files else []
        options += ["--state", lab.state] if has_state else []
        before = lab.state.read_bytes() if lab.state.exists() else None
        answer = lab(*options, key=key)
        if before is not None:
            after = lab.state.read_bytes()
            lab.state.write_bytes(before)
            assert lab(*options, key=key) == answer
            assert lab.state.read_bytes() == after
        heats = [row["heat"] for row in answer.rows]
        left = inside - waiting - measured - failed
        assert {*heats} <= left and len({*heats}) == len(heats)
        assert len(heats) == min(size, len(left)) or (name == "bbkb" and waiting)
        has_values = all(row["predicted_mean"] for row in answer.rows)
        assert has_values == (len(measured) > 0) or not heats
        num = len(waiting & inside)
        assert (f"{num} proposed before wait for results;" in answer.said) == (num > 0)
        gone = waiting - inside
        note = f"note: {len(gone)} of the rows proposed before are"
        assert (note in answer.said) == bool(gone)
        told = []
        values = ["1.5", "2", "-3.25", "failed", "" if has_state else "0.5"]
        open_rows, num_told = sorted({*heats} | waiting), draw.randint(0, len(heats))
        for heat in draw.sample(open_rows, k=num_told):
            value = draw.choice(values)
            told.append([*(cells[heat][c] for c in columns), value])
            {"failed": failed, "": waiting}.get(value, measured).add(heat)
        waiting = (waiting | {*heats}) - measured - failed if has_state else set()
        files.append(lab.write(f"r{step}.csv", [[*columns, "loss"], *told]))
        out = draw.sample(sorted(inside), k=draw.randint(0, 4))
        inside = {
            x for x in cells if x not in out and (x in inside or draw.random() < 0.5)
        }


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_call_knows_all_that_the_files_hold(lab: Laboratory, name: str) -> None:
    pool = read_pool(lab.pool, "id", LOSS)
    results = Results("m.csv", [3, 4, 3], [[1.0], [2.0], [1.5]], [9])
    options = Namespace(strategy=name, batch=3, **DEFAULTS)
    strategy = rebuild(options, pool, results, [7, 2])
    assert strategy.pending.tolist() == [7, 2] and strategy.history.minimize
    assert strategy.history.indices.tolist() == [3, 4, 3]
    assert strategy.history.Y.tolist() == [1.0, 2.0, 1.5]
    assert set(strategy.excluded_points) == {2, 3, 4, 7, 9}
    others = rebuild(options, pool, results, [7])
    first = torch.rand(2, generator=strategy.generator)
    assert not torch.equal(first, torch.rand(2, generator=others.generator))


@pytest.fixture
def waits_for_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call refuses a state that another one uses at once, not after seconds."""
    monkeypatch.setattr(proposed_rows, "PATIENCE", 0.0)


@pytest.mark.usefixtures("waits_for_no_lock")
def test_two_calls_at_once_propose_different_rows(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins when the first has read the state, and not written it."""
    options = ["--state", lab.state, "--batch", 8]
    propose = selection.propose

    def begin_again(*args: Any) -> Any:
        monkeypatch.setattr(selection, "propose", propose)
        with pytest.raises(SystemExit):
            lab(*options)
        return propose(*args)

    monkeypatch.setattr(selection, "propose", begin_again)
    assert not {*lab(*options).ids} & {*lab(*options).ids}
    names = [".run.state.lock", "pool.csv", "run.state"]
    assert sorted(p.name for p in lab.folder.iterdir()) == names


@pytest.mark.usefixtures("waits_for_no_lock")
def test_a_state_that_another_call_uses_is_refused(lab: Laboratory) -> None:
    bad = lab.write("bad.csv", "id,loss|c1,x")
    assert "is no number" in lab.refused("--state", lab.state, "--results", bad)
    with proposed_rows.locked(lab.state):  # what has failed holds no lock
        assert "another call is using" in lab.refused("--state", lab.state)
        assert not lab.state.exists()
        assert lab("--batch", 2).rows  # without the state nothing is lost
    assert lab("--state", lab.state, "--batch", 2).rows and lab.state.exists()


def test_few_results_leave_draws_that_say_so(lab: Laboratory) -> None:
    rows = lab("--results", lab.write("m.csv", measured(3)), "--batch", 20).rows
    reasons = [row["reason"] for row in rows]
    pool = read_pool(lab.pool, "id", LOSS)
    drawn = ExpectedImprovement(pool.table).settings.num_initial - 3
    assert reasons.count(DRAWN) == drawn and set(reasons[:drawn]) == {DRAWN}
    assert all(r.startswith((EXPLOITS, EXPLORES)) for r in reasons[drawn:])


def test_pending_rows_are_known_by_their_features(lab: Laboratory) -> None:
    lab.write("pool.csv", "heat,solvent,note|1.50,x,a|2,y,b|3,y,c|4,x,d")
    options = ["--state", lab.state]
    before = lab(*options, "--batch", 2, "--text", "note", key=None).rows
    lab.write("pool.csv", "solvent,heat|y,3.0|x,1.5|x,4|y,2|z,5")
    after = lab(*options, "--batch", 9, key=None).rows
    left = {1.5, 2, 3, 4, 5} - {float(row["heat"]) for row in before}
    assert {float(row["heat"]) for row in after} == left


def test_waiting_rows_without_a_value_wait_on(lab: Laboratory) -> None:
    """A half-filled `next.csv` is taken where the state knows its rows."""
    state = ["--state", lab.state]
    first = lab(*state, "--batch", 6).ids
    told = [["id", "loss"], *([key, ""] for key in first[:3])]
    told += [[first[3], "NA"], [first[4], "Failed"], [first[5], 1.5]]
    results = lab.write("m.csv", told)
    ids = lab("--results", results, *state, "--batch", 9).ids
    assert len(ids) == 9 and not {*ids} & {*first}
    assert "the cell is empty; fill it in" in lab.refused("--results", results)
    other = next(f"c{i}" for i in range(NUM) if f"c{i}" not in {*ids, *first})
    lab.write("m.csv", [*told, [other, ""]])
    line = lab.refused("--results", results, *state)
    assert f"m.csv, line 8 (key '{other}'), column 'loss': the cell is empty" in line
    rest = lab("--results", results, *state, "--batch", 50, "--skip-empty").ids
    assert {*rest}.isdisjoint({other, *first, *ids}) and len(rest) == NUM - 6 - 9 - 1


def test_failed_rows_are_not_proposed_again(lab: Laboratory) -> None:
    state = ["--state", lab.state]
    first = lab(*state, "--batch", 3).ids
    # the second failed once, and was measured then
    told = [["id", "loss"], [first[0], " "], [first[1], ""], [first[1], 1.5]]
    words = ["--results", lab.write("m.csv", told), "--skip-empty", "--batch", 30]
    answer = lab(*words, *state)
    assert sorted([*answer.ids, *first]) == sorted(f"c{i}" for i in range(NUM))
    count = "1 of them measured, 1 failed, 1 failed repeats, 1 proposed before wait for"
    assert count in answer.said


@pytest.mark.parametrize("has_state", [True, False])
def test_an_empty_row_may_have_its_value_in_a_later_file(
    lab: Laboratory, has_state: bool
) -> None:
    """It waits no more then, and its empty line is still there in all later calls."""
    options = ["--state", lab.state] * has_state
    first = lab(*options, "--batch", 3).ids
    told = [["id", "loss"], [first[0], 1], [first[1], ""], [first[2], 2]]
    before = lab.write("r1.csv", told)
    late = lab.write("r2.csv", [["id", "loss"], [first[1], 3]])
    for _ in range(3):
        ids = lab("--results", before, late, *options, "--batch", 3).ids
        assert not {*ids} & {*first}
    assert lab("--results", late, before, "--batch", 4).rows
    lab.write("r2.csv", "id,loss|c9,3")
    assert "r1.csv, line 3" in lab.refused("--results", before, late)


def test_states_that_do_not_fit_are_refused_in_words(lab: Laboratory) -> None:
    state = ["--state", lab.state]
    lab(*state, "--batch", 2, "--minimize")
    whole = lab.state.read_bytes()
    line = lab.refused(*state)
    assert "was kept with --minimize, and this call is without --minimize." in line
    line = lab.refused(*state, "--minimize", target="gain")
    assert "with --target 'loss', and this call is with --target 'gain'." in line
    line = lab.refused(*state, "--minimize", key=None)
    assert "with --key 'id', and this call is without --key." in line
    for content in (whole[: len(whole) // 2], b"\xff", b"{}", b"[1]"):
        lab.state.write_bytes(content)
        assert "torn, or is none that this" in lab.refused(*state, "--minimize")
        assert lab.state.read_bytes() == content


@pytest.mark.parametrize("is_told", [True, False])
def test_a_key_keeps_its_row(lab: Laboratory, is_told: bool) -> None:
    """A list that was sorted and numbered anew is refused, and nothing is lost."""
    told = lab.write("m.csv", [["id", "loss"], ["c1", 1], ["c2", "failed"]])
    words = ["--results", told, "--state", lab.state, "--batch", 2]
    ids = lab(*words).ids
    before = lab.state.read_bytes()
    changed = "c2" if is_told else ids[1]
    cells = [*csv.reader(lab.pool.read_text().splitlines())]
    place = next(i for i, row in enumerate(cells) if row[0] == changed)
    old, cells[place][1] = cells[place][1], "-7"
    lab.write("pool.csv", cells)
    line = lab.refused(*words)
    assert f"row with the key of '{changed}' (line {place + 1} of " in line
    assert f"'heat' '{old}', now '-7'. If the rows have new keys" in line
    assert lab.state.read_bytes() == before
    # A spreadsheet may have rounded it; a column may be new; other rows may change.
    cells[place][1] = f"{float(old):.7g}"
    other = next(row for row in cells[1:] if row[0] not in {"c1", "c2", *ids})
    other[1] = "44"
    cells = [[*row, "new" if i == 0 else str(i % 3)] for i, row in enumerate(cells)]
    lab.write("pool.csv", cells)
    assert not {*lab(*words).ids} & {*ids}


def test_states_of_earlier_versions_are_taken(lab: Laboratory) -> None:
    """They have the keys of rows that wait, and nothing of rows with results."""
    words = ["--state", lab.state, "--batch", 3]
    ids = lab(*words).ids
    state = json.loads(lab.state.read_text())
    assert {*state["rows"][0]} == {*HEADER} and state["told"] == []
    state["rows"] = [{"id": row["id"]} for row in state["rows"]]
    del state["told"]
    lab.state.write_text(json.dumps(state))
    cells = [*csv.reader(lab.pool.read_text().splitlines())]
    lab.write("pool.csv", [row for row in cells if row[0] != ids[0]])
    answer = lab(*words)
    assert not {*ids} & {*answer.ids}
    assert f"wait on in --state: '{ids[0]}'" in answer.said
    assert len(json.loads(lab.state.read_text())["rows"]) == 6


def test_rows_are_found_by_features_that_six_digits_are_left_of(
    lab: Laboratory,
) -> None:
    text = lab.pool.read_text().splitlines()
    lab.pool.write_text("\n".join(row.split(",", 1)[1] for row in text) + "\n")
    rows = [
        [SOLVENT[i % 3], f"{HEAT[i]:.6g}", f"{DOSE[i]:.6g}", i % 4 + 0.5, loss(i), "x"]
        for i in range(12)
    ]
    header = ["solvent", "heat", "dose", "lid", "loss", "note"]

    def call() -> list[dict[str, str]]:
        results = lab.write("m.csv", [header, *rows])
        return lab("--results", results, "--batch", 30, key=None).rows

    proposed = call()
    assert [*proposed[0]] == ["row", *HEADER[1:], *ADDED]
    assert sorted(int(row["row"]) for row in proposed) == list(range(13, 31))
    first = int(proposed[0]["row"])
    assert proposed[0]["heat"] == f"{HEAT[first - 1]:.17g}"
    rows[4][1] = "55.5"
    assert len(call()) == 19
    rows[4][0] = "air"  # a category of its own
    assert len(call()) == 19


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mark", [";", "\t"])
def test_files_of_other_forms_give_the_same_rows(lab: Laboratory, mark: str) -> None:
    """Other separators, decimal commas, a target in the pool; text is another model."""
    words = ["--results", lab.write("m.csv", measured(6)), "--batch", 9]
    before = lab(*words).rows
    assert lab(*words, "--text", "lid").rows != before
    text = lab.pool.read_text()
    header, *rows = text.splitlines()
    lab.pool.write_text(
        "\n".join([f"{header},loss", *(f"{row},secret" for row in rows)])
    )
    assert lab(*words).rows == before
    lab.results.write_text(lab.results.read_text().replace(",", mark))
    text = text.replace('"gas, wet"', "gas wet").replace(",", mark)
    lab.pool.write_text(text.replace("gas wet", "gas, wet"))
    assert lab(*words).rows == before
    lab.pool.write_text(lab.pool.read_text().replace(".", ","))
    lab.results.write_text(lab.results.read_text().replace(".", ","))
    after = lab(*words, "--decimal", ",").rows
    for name in ("predicted_mean", "predicted_sd", "heat", "reason"):
        shown = [re.sub(r"(\d),(\d)", r"\1.\2", a[name]) for a in after]
        assert shown == [b[name] for b in before]
        assert any(re.search(r"\d,\d", a[name]) for a in after)
        assert not any(re.search(r"\d\.\d", a[name]) for a in after)


FORMS = [
    ('id;"T, C";s|a{0};{0},5;n°{1}', "id", ["--decimal", ","]),
    ('sep=;|id;"T, C";s|a{0};{0},5;o{1}', "id", ["--decimal", ","]),
    ('id\t"T;C"\ts|a{0}\t{0},5\tn°{1}', "id", ["--decimal", ","]),
    ("sep=/|T/s|{0}.5/o{1}", None, []),
    ("T;s|{0}.5;o{1}", None, []),
    ("T,s|{0}.5 °C,o{1}", None, []),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("form", "key", "words"), FORMS)
def test_a_batch_has_the_form_of_the_candidates(
    lab: Laboratory, form: str, key: str | None, words: list[str]
) -> None:
    """And comes back as results, with no option that the candidates did not need."""
    head, _, cells = form.rpartition("|")
    rows = [cells.format(i, i % 3) for i in range(40)]
    lab.write("pool.csv", "|".join([head, *rows]))
    batch = lab.folder / "next.csv"
    lab(*words, "--batch", 9, "--output", batch, key=key)
    mark = next((mark for mark in "\t;" if mark in head), ",")
    for num_before in (0, 9):
        text = batch.read_bytes().decode("utf-8")
        assert text.startswith("\ufeff") == ("°" in text)
        header, *lines_of = text.splitlines()
        values = [f"{i},25".replace(",", "." if not words else ",") for i in range(9)]
        full = [f"{row}{mark}{v}" for row, v in zip(lines_of, values, strict=True)]
        path = lab.folder / f"told{num_before}.csv"
        path.write_text("\n".join([f"{header}{mark}loss", *full]), encoding="utf-8")
        files = sorted(lab.folder.glob("told?.csv"))
        answer = lab(
            *words, "--results", *files, "--batch", 9, "--output", batch, key=key
        )
        assert f"{num_before + 9} of them measured; 9 proposed" in answer.said
    assert ("," in batch.read_text("utf-8").splitlines()[1].split(mark)[4]) == (
        "," in words
    )


def test_numbers_of_workbooks_have_the_decimal_mark(lab: Laboratory) -> None:
    """So that the batch has one, in a file that the same spreadsheet opens."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [["id", "x", "s"], *([f"c{i}", i + 0.125, "1.5"] for i in range(30))]:
        book.active.append(row)
    lab.pool = lab.folder / "pool.xlsx"
    book.save(lab.pool)
    told = lab.write("m.csv", "id;loss|c1;1,5|c2;2,5|c3;1|c4;7,125|c5;2|c6;3")
    batch = lab.folder / "next.csv"
    lab("--decimal", ",", "--results", told, "--output", batch, "--text", "s")
    header, first = batch.read_text("utf-8").splitlines()[:2]
    assert header == "id;x;s;predicted_mean;predicted_sd;reason"
    assert re.match(r"c\d+;\d+,125;1.5;\d+,\d+;\d+,\d+;", first)


def test_rows_without_a_key_have_one_number(lab: Laboratory) -> None:
    """The file and the messages count alike, without the header; lines are named."""
    lab.write("pool.csv", lines("x,y", "{0},{0}1", NUM))
    told = lab.write("m.csv", "x,y,loss|4,41,9|5,51,1|6,61,2|7,71,3|1,11,4|2,21,5")
    answer = lab("--results", told, "--batch", 50, key=None)
    assert f"best so far: row 5 (line 6 of {lab.pool}), 'loss': 9" in answer.said
    assert all(int(row["row"]) == int(row["x"]) + 1 for row in answer.rows)
    assert any(
        "(5)" in row["reason"] or "row 5" in row["reason"] for row in answer.rows
    )


@pytest.mark.parametrize("key", ["id", None])
def test_results_of_rows_that_were_taken_out_count_beside_the_pool(
    lab: Laboratory, key: str | None
) -> None:
    """Rows 2, 5 and 8 are used up; of the last one the category went with it."""
    first = 0 if key else 1  # without the key its column is away
    header = ["id", "heat", "solvent", "dose", "loss"][first:]
    told = [
        [f"c{i}", HEAT[i], "ale" if i == 8 else SOLVENT[i % 2], DOSE[i], -i * i][first:]
        for i in (0, 1, 2, 3, 4, 5, 6, 8)
    ]
    kept = [told[place][:-1] for place in (0, 1, 3, 4, 6)]
    lab.write("pool.csv", [header[:-1], *kept])
    path = lab.write("m.csv", [header, *told[1:]])
    pool = read_pool(lab.pool, key, LOSS)
    read = read_results([path], pool)
    assert read.rows == [1, 2, 3, 4] and read.values == [[-1], [-9], [-16], [-36]]
    assert [point["solvent"] for point in read.points] == ["water", "oil", "ale"]
    assert read.point_values == [[-4.0], [-25.0], [-64.0]]
    options = Namespace(strategy="thompson", batch=3, **DEFAULTS)
    strategy = rebuild(options, pool, read, [0])
    assert strategy.history.Y.tolist() == [-1, -4, -9, -16, -25, -36, -64]
    kinds = {2: [1, 0, 0], 5: [0, 1, 0], 8: [0, 0, 1]}
    beside = [[HEAT[i], *kind, DOSE[i]] for i, kind in kinds.items()]
    assert strategy.history.X[[1, 4, 6]].tolist() == beside
    assert strategy.is_finished  # the one row that is left is pending
    answer = lab("--results", path, key=key)
    assert [float(row["heat"]) for row in answer.rows] == [HEAT[0]]
    lines_of = {2: 3, 5: 6, 8: 8}
    names = [f"line {n}" + f" (key 'c{i}')" * bool(key) for i, n in lines_of.items()]
    place = f"'c1' (line 3 of {lab.pool})" if key else f"row 2 (line 3 of {lab.pool})"
    expected = [
        (f"note: 3 of the results are of no row of {lab.pool}", ", ".join(names)),
        (
            f"note: 1 of the results' categories are not in {lab.pool}",
            "'ale' of 'solvent'",
        ),
        (f"best so far: {place}, 'loss': -1; the model's mean", "."),
        ("", "4 of them measured, 3 results beside it; 1 proposed now."),
    ]
    for line, (start, end) in zip(answer.notes, expected, strict=True):
        assert start in line and line.endswith(end)
    said = lab("--results", path, "--minimize", key=key).said
    assert f"best so far: {names[2]} of the results, 'loss': -64; the mod" in said


def test_one_row_that_is_left_is_compared_with_those_taken_out(lab: Laboratory) -> None:
    """A column that varies among them alone counts too: the more heat, the better."""
    lab.write("pool.csv", "id,heat|left,10")
    told = [["id", "heat", "loss"], *([f"c{i}", i, 2.0 * i] for i in range(10))]
    (row,) = lab("--results", lab.write("m.csv", told)).rows
    assert row["id"] == "left" and float(row["predicted_mean"]) > 14
    lab.write("m.csv", "id,loss|")
    assert [row["reason"] for row in lab().rows] == [ONLY]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("has_state", [True, False])
def test_results_may_be_in_several_files(lab: Laboratory, has_state: bool) -> None:
    """One for each round, with the columns of its own; they count as one file does."""
    told = [*measured(8), ["c1", 2], ["c9", "failed"]]
    whole, first = lab.write("m.csv", told), lab.write("r1.csv", told[:5])
    second = lab.write(
        "r2.csv", [["x", "id", "loss"], *(["", *row] for row in told[5:])]
    )
    options = ["--state", lab.state] * has_state
    expected = lab("--results", whole, "--batch", 5).rows
    assert lab("--results", first, second, "--batch", 5, *options).rows == expected
    named = ["--results", first, "--results", second]
    assert lab(*named, "--batch", 5).rows == expected
    lab.write("r2.csv", "id,loss|c8,1|c7,x")
    assert "r2.csv, line 3 (key 'c7'), column 'loss': 'x' is" in lab.refused(*named)


def test_a_result_that_two_files_have_counts_once(lab: Laboratory) -> None:
    """An export holds what earlier ones did; what one file repeats was repeated."""
    told = "c0,,,,,1|c1,,,,,2|old,40,oil,1,2,3|"
    first = lab.write("r1.csv", f"{BESIDE}|{told}c2,,,,,failed")
    second = lab.write("r2.csv", f"{BESIDE}|{told}c0,,,,, 1|c0,,,,,1.5|c3,,,,,1")
    read = read_results([first, second], read_pool(lab.pool, "id", LOSS))
    assert read.rows == [0, 1, 0, 0, 3] and read.point_values == [[3.0]]
    assert read.values == [[1.0], [2.0], [1.0], [1.5], [1.0]] and read.failed == [2]
    said = lab("--results", first, second).said
    assert "note: 3 of the results are in an earlier file too, with the same" in said
    assert f"belong in one file): line 2 (key 'c0') of {second}, line 3 (key" in said
    assert f"count as data beside it: line 4 (key 'old') of {first}\n" in said
    assert f"best so far: line 4 (key 'old') of {first}, 'loss': 3" in said


def test_an_error_names_what_an_earlier_call_wrote(lab: Laboratory) -> None:
    """It could be taken for the new batch."""
    out, page = lab.folder / "next.csv", lab.folder / "page.html"
    wrong = lab.write("wrong.csv", "id,loss|zz,1")
    told = lab.write("m.csv", measured(3))
    words = ["--output", out, "--report", page, "--results"]
    assert "earlier call" not in lab.refused(*words, wrong)
    lab(*words, told)
    before = out.read_bytes()
    line = lab.refused(*words, wrong)
    assert line.endswith(f"still of an earlier call: '{out}', '{page}'.\n")
    assert out.read_bytes() == before
    line = lab.refused("--output", lab.pool, "--results", told)
    assert "earlier call" not in line


def test_columns_of_the_output_can_be_ignored(lab: Laboratory) -> None:
    lab.write("pool.csv", lines("id,heat,reason,row", "c{0},{0},x,{0}", 9))
    (first, *_) = lab("--ignore", "reason").rows
    assert [*first] == ["id", "heat", "row", *ADDED] and first["reason"] == SPREAD
    options = ["--ignore", "reason", "--ignore", "row", "--ignore", "id"]
    assert [*lab(*options, key=None).rows[0]] == ["row", "id", "heat", *ADDED]


def test_a_reader_that_left_costs_one_line_and_no_state(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        line = lab.refused("--state", lab.state)
    assert line.endswith("error: the output was closed before all rows were written\n")
    assert not lab.state.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_standard_output_is_named(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not written is dropped, and fails at the end no more."""
    with open("/dev/full", "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        line = lab.refused("--state", lab.state)
    assert "No space left on device: 'the standard output'\n" in line
    assert not lab.state.exists()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_names_the_output(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    out = lab.write("next.csv", "old")
    monkeypatch.setattr(os, call, full)
    line = lab.refused("--output", out, "--state", lab.state)
    assert f"No space left on device: '{out}' Not written, and still of" in line
    assert out.read_bytes() == b"old" and not lab.state.exists()
    assert [*lab.folder.glob(".next*")] == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_written_and_not_replaced(lab: Laboratory) -> None:
    """Nor a device, such as /dev/null."""
    pipe = lab.folder / "pipe.csv"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    lab("--output", pipe, "--batch", 1)
    assert pipe.is_fifo()
    assert os.read(reader, 10_000).startswith(b"id,heat")
    os.close(reader)


@pytest.mark.parametrize("name", ["pandas", "filelock"])
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, name: str
) -> None:
    for module in [m for m in sys.modules if m.startswith("botorch_sparse.suggest.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit) as caught:
        main(["suggest", "--help"])
    line = capsys.readouterr().err
    assert caught.value.code == 2 and line.count("\n") == 1
    assert f"{name} is missing; pip install 'botorch_sparse[suggest]'" in line
