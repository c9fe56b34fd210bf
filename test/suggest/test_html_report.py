"""The page of `suggest --report`: its parts, its numbers, and that it loads nothing."""

import base64
import builtins
import math
import os
import re
import shutil
import struct
import subprocess
import zlib
from argparse import Namespace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions.warnings import InputDataWarning
from laboratory import DEFAULTS, DOSE, HEAT, NUM, SOLVENT, Laboratory, loss, measured

from botorch_sparse.strategies import (
    Batch,
    CandidateTable,
    Constraint,
    Objective,
    ThompsonSampling,
)
from botorch_sparse.suggest import learned_columns
from botorch_sparse.suggest.candidate_pool import read_pool
from botorch_sparse.suggest.learned_columns import (
    column_effect,
    column_lengthscales,
    column_names,
    column_shares,
    left_out,
)
from botorch_sparse.suggest.results import read_results
from botorch_sparse.suggest.selection import rebuild

pytest.importorskip("matplotlib")

FIRST = ["Next rows", "What was read"]
WHOLE = [
    "Best so far",
    "Next rows",
    "Progress",
    "Predicted against measured",
    "What each column does",
    "What was read",
]
VOID = {"meta", "img", "wbr"}


class Page(HTMLParser):
    """A page as a reader has it: headings, texts, tables, pictures."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.headings: list[str] = []
        self.texts: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.pictures: list[str] = []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.pictures.append(svg_in(dict(attrs)["src"] or ""))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag in ("p", "li", "h2", "h3"):
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "h2":
            self.headings.append(self.texts[-1])

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        elif self.open and self.open[-1] in ("p", "li", "h2", "h3"):
            self.texts[-1] += data

    def table(self, *columns: str) -> list[dict[str, str]]:
        """The rows of the table that has some columns."""
        ((header, *rows),) = (t for t in self.tables if {*columns} <= {*t[0]})
        return [dict(zip(header, row, strict=True)) for row in rows]

    def says(self, words: str) -> str:
        """The one text that has some words."""
        (text,) = (text for text in self.texts if words in text)
        return text


def svg_in(source: str) -> str:
    start, data = source.split(",")
    assert start == "data:image/svg+xml;base64"
    return base64.b64decode(data).decode()


def page_of(lab: Laboratory, *words: object, **named: Any) -> Page:
    path = lab.folder / "report.html"
    lab("--report", path, *words, **named)
    return Page(path.read_text(encoding="utf-8"))


def results(lab: Laboratory, num: int) -> list[object]:
    return ["--results", lab.write("m.csv", measured(num))]


def outcomes(lab: Laboratory, num: int) -> list[object]:
    """Two targets and a limit, for which a third of the rows is too large."""
    rows = [["id", "loss", "gain", "dust"]]
    rows += [[f"c{i}", loss(i), HEAT[i] - 10 * DOSE[i], i % 3] for i in range(num)]
    words = ["--results", lab.write("m.csv", rows), "--minimize", "loss"]
    return [*words, "--target", "gain", "--constraint", "dust<=1"]


def test_a_first_batch_is_a_table_and_a_sentence(lab):
    page = page_of(lab, "--batch", 4)
    assert page.headings == FIRST and page.pictures == []
    assert page.says("no results yet")
    rows = page.table("id", "reason")
    assert len(rows) == 4
    assert {row["reason"] for row in rows} == {"first batch, spread over the table"}
    assert "img" not in page.tags


@pytest.mark.one_in(3)
@pytest.mark.parametrize("num", [1, 2, 4])
def test_few_results_say_that_they_are_few(lab, num):
    page = page_of(lab, *results(lab, num), "--minimize", "--batch", 2)
    assert page.headings == WHOLE
    assert f"{num}; 5 are needed" in page.says("Too few rows")
    assert ("nothing is learned yet" in " ".join(page.texts)) == (num == 1)


def test_the_page_has_the_lines_and_the_rows_that_the_call_writes(lab):
    path = lab.folder / "report.html"
    answer = lab("--report", path, *results(lab, 20), "--minimize", "--batch", 3)
    page = Page(path.read_text(encoding="utf-8"))
    assert page.headings == WHOLE
    shown = {text.casefold() for text in page.texts}
    assert {line.casefold() for line in answer.said.splitlines()} <= shown
    assert page.table("id", "reason") == answer.rows


def test_quiet_calls_write_the_same_page_and_equal_calls_the_same_bytes(lab):
    words = [*results(lab, 20), "--report", lab.folder / "report.html"]
    lab(*words)
    before = (lab.folder / "report.html").read_bytes()
    assert lab(*words, "--quiet").said == ""
    assert (lab.folder / "report.html").read_bytes() == before


def test_one_target_has_progress_predictions_and_effects(lab):
    page = page_of(lab, *results(lab, 20), "--minimize")
    assert len(page.pictures) == 4  # with lines and with bars
    progress, predicted, lines, bars = page.pictures
    assert "best so far" in progress and ">loss, predicted<" in predicted
    assert ">heat<" in lines and ">oil<" in bars
    assert {row["column"] for row in page.table("matters", "share")} == {
        "heat",
        "solvent",
        "dose",
        "lid",
    }
    assert page.table("matters", "share")[0]["matters"] == "much"


CASES = {
    "rises": (lambda i: HEAT[i], "good", r"rises from (\S+) to (\S+)", (20, 80)),
    "falls": (
        lambda i: 1e9 * (90 - HEAT[i]),
        "good",
        r"falls from (\S+) to (\S+)",
        (7e10, 1e10),
    ),
    "bends": (
        lambda i: (HEAT[i] - 50) ** 2,
        "good",
        r"greatest at (?:20|80) \((\S+)\), least at",
        (900,),
    ),
    "noise": (lambda i: math.sin(i * i), "poor", "", ()),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("target", "quality", "effect", "ends"), CASES.values(), ids=CASES
)
def test_words_follow_the_numbers(lab, target, quality, effect, ends):
    """Ends of an effect are predicted to a fiftieth of the largest."""
    rows = [["id", "loss"], *([f"c{i}", target(i)] for i in range(26))]
    page = page_of(lab, "--results", lab.write("m.csv", rows))
    assert page.says("R\u00b2 = ").startswith(f"Predictions are {quality}:")
    first, *others = page.table("matters", "share")
    if quality == "poor":
        shares = [int(row["share"].removesuffix("%")) for row in (first, *others)]
        words = ["much" if s >= 25 else "some" for s in shares]
        assert [row["matters"] for row in (first, *others)] == words
        return
    assert (first["column"], first["matters"]) == ("heat", "much")
    assert int(first["share"].removesuffix("%")) >= 95
    found = re.match(effect, first["predicted loss"])
    assert [float(end) for end in found.groups()] == pytest.approx(
        ends, abs=max(ends) / 50
    )
    assert {row["matters"] for row in others} == {"little"}
    assert {row["predicted loss"] for row in others} == {"hardly changes"}


@pytest.mark.slow
def test_several_targets_have_a_front_and_parts_for_each_outcome(lab):
    page = page_of(lab, *outcomes(lab, 24), "--batch", 2)
    assert page.headings == WHOLE
    front = page.table("row", "loss", "gain", "dust")
    assert "front so far" in page.says("not dominated").casefold()
    best = [(loss(i), HEAT[i] - 10 * DOSE[i]) for i in range(24) if i % 3 <= 1]
    kept = [
        (x, y)
        for x, y in best
        if not any((a <= x and b >= y) and (a, b) != (x, y) for a, b in best)
    ]
    assert [row["loss"] for row in front] == [f"{x:.6g}" for x, _ in sorted(kept)]
    assert page.texts.count("Front") == 1 and page.texts.count("dust") == 2
    assert "hypervolume" in page.pictures[0] and "infeasible" in page.pictures[1]


BESIDE = "id,loss,heat,solvent,dose,lid|" + "|".join(
    f"old{i},{loss(i)},{HEAT[i]},oil,{DOSE[i]},{i}" for i in range(8)
)
TWO = "id,loss,gain,dust|" + "|".join(
    f"c{i},{loss(i)},{HEAT[i]},{i % 2}" for i in range(8)
)
SITUATIONS: dict[str, tuple[str, str]] = {
    "all are beside the pool": (BESIDE, "--minimize"),
    "no row is feasible": (TWO, "--constraint dust>=5"),
    "no row of a front is feasible": (TWO, "--target gain --constraint dust>=5"),
    "one row of several targets": (TWO[:40], "--target gain --target dust"),
    "three targets": (TWO, "--target gain --target dust"),
    "equal values": ("id,loss|" + "|".join(f"c{i},2" for i in range(8)), ""),
    "no key": (BESIDE, "--ignore id"),
    "bbkb": (TWO, "--strategy bbkb"),
    "letters that a font may lack": (TWO.replace("loss", "\u6e29"), "--target \u6e29"),
}


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", SITUATIONS)
def test_other_situations_have_all_parts(lab, name):
    table, words = SITUATIONS[name]
    path = lab.write("m.csv", table)
    named = {"key": None} if name == "no key" else {}
    if "\u6e29" in words:
        named, words = {"target": "\u6e29"}, ""
    page = page_of(lab, "--results", path, *words.split(), **named)
    assert page.headings == WHOLE and page.pictures


@pytest.mark.slow
def test_four_targets_have_no_picture_of_the_front(lab):
    rows = [["id", "a", "b", "c", "d"]]
    rows += [[f"c{i}", HEAT[i], -HEAT[i], DOSE[i], -DOSE[i]] for i in range(8)]
    more = [word for name in "bcd" for word in ("--target", name)]
    path = lab.write("m.csv", rows)
    page = page_of(lab, "--results", path, *more, target="a")
    assert "Front" not in page.texts and page.table("row", "a", "d")


def test_outcomes_that_lack_in_all_rows_are_said_to(lab):
    rows = [["id", "loss", "gain"], *([f"c{i}", loss(i), ""] for i in range(9))]
    path = lab.write("m.csv", rows)
    page = page_of(lab, "--results", path, "--target", "gain")
    assert page.says("No row has a value of each outcome yet")
    assert "0; 5 are needed" in page.says("Too few rows")
    assert page.says("nothing is learned yet")


def test_failed_and_excluded_rows_are_in_the_lines(lab):
    rows = [*measured(7), ["c9", "failed"]]
    words = ["--results", lab.write("m.csv", rows), "--exclude", "solvent=oil"]
    page = page_of(lab, *words)
    assert re.search("1 failed, .* excluded", page.says("rows, 7 of them measured"))


def test_a_call_that_proposes_no_row_says_so(lab):
    page = page_of(lab, *results(lab, NUM))
    assert page.says("No row is proposed") and page.says("NO ROW IS PROPOSED")


@pytest.mark.slow
def test_of_many_columns_ten_are_shown(lab):
    rng = np.random.default_rng(0)
    X = rng.random((40, 60))
    names = [f"x{i}" for i in range(60)]
    lab.pool = lab.write("wide.csv", [["id", *names], *([i, *X[i]] for i in range(40))])
    told = [["id", "loss"], *([i, X[i, 7] + X[i, 3]] for i in range(30))]
    page = page_of(lab, "--results", lab.write("m.csv", told))
    shares = page.table("matters", "share")
    assert len(shares) == 10 and {row["column"] for row in shares[:2]} == {"x7", "x3"}
    assert "50 more columns" in page.says("have a share of at most")
    assert "48 more columns are in the CSV" in page.says("are in the CSV")


NASTY = ['<script>alert("1")</script>', "a & b > c", "$x_1$ and $y^", "</style>"]


def nasty_page(lab: Laboratory) -> tuple[str, Page]:
    lab.pool = lab.write(
        "<b>pool.csv",
        [
            ["<i>id", *NASTY],
            *(
                [f"<u>{i}", HEAT[i], DOSE[i], i % 4, f"<img src=x>{i % 3}"]
                for i in range(NUM)
            ),
        ],
    )
    told = [["<i>id", "</p>"], *([f"<u>{i}", loss(i)] for i in range(12))]
    path = lab.folder / "report.html"
    words = ["--results", lab.write("m.csv", told), "--report", path]
    lab(*words, key="<i>id", target="</p>")
    content = path.read_text(encoding="utf-8")
    return content, Page(content)


def test_what_comes_from_the_files_is_escaped(lab):
    content, page = nasty_page(lab)
    assert not {"script", "b", "i", "u"} & {*page.tags}
    assert page.headings == WHOLE
    assert {row["column"] for row in page.table("matters", "share")} == {*NASTY}
    assert {*NASTY, "<i>id"} <= {*page.tables[0][0]}
    assert page.tags.count("img") == len(page.pictures) == content.count("<img ")
    assert content.count("</style>") == 1


def test_nothing_is_loaded(lab):
    content, page = nasty_page(lab)
    assert "http:" not in content and "https:" not in content
    sources = {"src", "href", "data", "srcset", "background", "action"}
    links = [value or "" for name, value in page.attributes if name in sources]
    assert links and all(link.startswith("data:") for link in links)
    assert "url(" not in content and "@import" not in content
    policy = [value for name, value in page.attributes if name == "content"]
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in policy
    for svg in page.pictures:
        assert "<script" not in svg
        for link in re.findall(r'(?:href|src)="([^"]*)"', svg):
            assert link.startswith(("#", "data:"))


def test_without_matplotlib_there_are_words_and_tables(lab, monkeypatch):
    load = builtins.__import__

    def without(name: str, *args: Any, **named: Any) -> Any:
        if name == "botorch_sparse" and "plotting" in (
            args[2] if len(args) > 2 else ()
        ):
            raise ImportError("no matplotlib")
        return load(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    page = page_of(lab, *results(lab, 20))
    assert page.headings == WHOLE and page.pictures == []
    assert "botorch_sparse[plot]" in page.says("matplotlib is missing")
    assert page.table("matters", "share") and page.says("R\u00b2")


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ("pool.csv", "is given twice"),
        ("next.csv", "is given twice"),
        ("no/report.html", "no such folder"),
        (".", "no such folder"),
    ],
)
def test_paths_that_cannot_be_written_are_refused(lab, report, words):
    before = lab.pool.read_bytes()
    line = lab.refused(
        "--output", lab.folder / "next.csv", "--report", lab.folder / report
    )
    assert words in line and repr(str(lab.folder / report)) in line
    assert lab.pool.read_bytes() == before and not (lab.folder / "next.csv").exists()


def test_a_call_that_fails_leaves_the_page_as_it_was(lab, monkeypatch):
    path = lab.write("report.html", "old")
    lab.refused("--report", path, "--exclude", "nothing=1")
    assert path.read_bytes() == b"old"

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(SystemExit):
        lab("--report", path, "--state", lab.state)
    assert str(path) in lab.capture.readouterr().err.decode()
    assert path.read_bytes() == b"old" and not lab.state.exists()
    assert [p.name for p in lab.folder.glob(".report*")] == []


def test_results_of_the_pool_and_beside_it_keep_the_order_of_their_file(lab):
    header = ["id", "loss", "heat", "solvent", "dose", "lid"]
    rows = [["old", 9.0, 33, "oil", 0.5, 1], ["c2", 1.0, "", "", "", ""]]
    rows += [["older", 8.0, 35, "oil", 0.5, 1], ["c1", 2.0, "", "", "", ""]]
    for row in rows:
        if row[0].startswith("c"):
            i = int(row[0][1:])
            row[2:] = [
                f"{HEAT[i]:.17g}",
                SOLVENT[i % 3],
                f"{DOSE[i]:.17g}",
                f"{i % 4}.50",
            ]
    path = lab.write("m.csv", [header, *rows])
    pool = read_pool(lab.pool, "id", (Objective("loss"),))
    told = read_results([path], pool)
    assert (told.rows, told.order) == ([2, 1], [2, 0, 3, 1])
    options = Namespace(strategy="thompson", batch=3, **DEFAULTS)
    assert rebuild(options, pool, told, []).history.Y.tolist() == [9.0, 1.0, 8.0, 2.0]


# What the page tells, compared with other computations of it.
HAMMING = 3


LOSS = (Objective("y", minimize=True),)


def learned(outcomes: Any = LOSS) -> ThompsonSampling:
    """A strategy with two numbers and a category; some rows are measured twice."""
    g = torch.Generator().manual_seed(1)
    u, v = torch.rand(2, 90, generator=g, dtype=torch.float64).mul(50).tolist()
    kinds = [("oil", "water", "air, wet")[i % HAMMING] for i in range(90)]
    table = CandidateTable.from_columns(
        {
            "u": u,
            "kind": kinds,
            "v": v,
            "same": [1.0] * 90,
            "other": [i % 7 for i in range(90)],
        }
    )
    with pytest.warns(InputDataWarning, match="Columns same of the candidates"):
        strategy = ThompsonSampling(table, outcomes=outcomes, batch_size=2)
    rows = torch.tensor([*range(40), 3, 5, 5])
    y = torch.tensor(
        [
            math.sin(u[r] / 8)
            + 0.4 * (r % 3)
            + 0.003 * v[r]
            + 0.05 * math.sin(91.0 * i)
            for i, r in enumerate(rows.tolist())
        ]
    ).double()
    Y = torch.stack([y, *([-2 * y] * (len(outcomes) - 1))], -1)
    strategy.tell(Batch(table.X[rows], rows), Y if len(outcomes) > 1 else y)
    strategy.learn()
    return strategy


def dense_refits(strategy: ThompsonSampling, sign: float) -> tuple[Any, Any, Any]:
    """Means of the rows, and moments of measurements, by `n` solves without them."""
    view = strategy.surrogate.parts[0].view
    told: dict[int, list[float]] = {}
    history = strategy.history
    for row, y in zip(history.indices.tolist(), history.Y.tolist(), strict=True):
        told.setdefault(row, []).append(y)
    rows = [*told]
    y = np.array([np.mean(told[r]) for r in rows])
    noise = view.prior.lam / np.array([len(told[r]) for r in rows])
    Z = view.source.inputs(strategy.candidates[rows])
    K = view.prior.covar_module(Z).to_dense().detach().numpy()
    scale = view.prior.scale
    center = sign * scale * float(view.posterior.mean_module(Z)[0])
    mean, variance = np.empty(len(y)), np.empty(len(y))
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        S = K[np.ix_(rest, rest)] + np.diag(noise[rest])
        w = np.linalg.solve(S, K[rest, i])
        mean[i] = center + w @ (y[rest] - center)
        variance[i] = K[i, i] - w @ K[rest, i] + noise[i]
    return y, mean, scale * np.sqrt(variance)


@pytest.mark.parametrize("minimize", [True, False])
def test_left_out_rows_are_predicted_as_by_dense_refits(minimize):
    strategy = learned(outcomes=(Objective("y", minimize),))
    left = left_out(strategy, 0)
    y, mean, sd = dense_refits(strategy, -1.0 if minimize else 1.0)
    np.testing.assert_allclose(left.measured, y, rtol=1e-12)
    np.testing.assert_allclose(left.mean, mean, rtol=1e-6)
    ends = [mean - 1.96 * sd, mean + 1.96 * sd]
    np.testing.assert_allclose(left.ends, ends, rtol=1e-6)
    assert left.rows[3] == 3 and len(left) == 40
    error, spread = ((y - mean) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    assert left.explained == pytest.approx(1 - error / spread, rel=1e-6)
    assert 0.5 < left.explained < 1
    assert left.num_within == (abs(y - mean) <= 1.96 * sd).sum()


def test_left_out_rows_on_a_logarithmic_scale():
    """By dense refits there: medians of the values, and their ranges."""
    X = torch.rand(40, 2, generator=torch.Generator().manual_seed(1)).double()
    steep = ThompsonSampling(X, minimize=True)
    steep.tell(X, (8 * X[:, 0]).exp() + X[:, 1])
    steep.learn()
    view, warp = steep.surrogate.parts[0].view, steep.surrogate.parts[0].view.prior.warp
    assert warp is not None
    left, history = left_out(steep, 0), steep.history
    Z = view.source.inputs(steep.candidates[history.indices])
    W = warp(-history.Y.double()).numpy() / view.prior.scale
    K = view.prior.covar_module(Z).to_dense().detach().numpy()
    center, within = float(view.posterior.mean_module(Z)[0]), 0
    for i in range(len(W)):
        rest = np.arange(len(W)) != i
        S = K[np.ix_(rest, rest)] + view.prior.lam * np.eye(len(W) - 1)
        w = np.linalg.solve(S, K[rest, i])
        mean = center + w @ (W[rest] - center)
        sd = np.sqrt(K[i, i] - w @ K[rest, i] + view.prior.lam)
        ends = mean + sd * np.array([1.96, 0.0, -1.96])
        low, median, high = -warp.inverse(torch.from_numpy(view.prior.scale * ends))
        assert left.mean[i] == pytest.approx(float(median), rel=1e-6)
        assert left.ends[0, i] == pytest.approx(float(low), rel=1e-5)
        assert left.ends[1, i] == pytest.approx(float(high), rel=1e-5)
        within += bool(low <= history.Y[i] <= high)
    assert left.num_within == within > 30


def test_a_second_outcome_has_its_own_units_and_sign():
    strategy = learned(outcomes=(Objective("y", True), Constraint("z", upper=1.0)))
    first, second = left_out(strategy, 0), left_out(strategy, 1)
    np.testing.assert_allclose(second.measured, -2 * first.measured)
    np.testing.assert_allclose(second.mean, -2 * first.mean, rtol=0.02, atol=0.02)
    assert second.explained == pytest.approx(first.explained, abs=0.02)


def frame_of(strategy: ThompsonSampling) -> list[dict[str, Any]]:
    return [dict(row) for _, row in strategy.table.frame().iterrows()]


def predicted(strategy: ThompsonSampling, rows: list[dict[str, Any]]) -> Any:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    mean, _ = strategy.predict(strategy.table.encode(columns))
    return mean.numpy()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("column", [0, 1, 4])
def test_effects_are_averages_over_rows(column):
    strategy = learned()
    name = column_names(strategy)[column]
    effect = column_effect(strategy, column)
    rows, own = frame_of(strategy), [row[name] for row in frame_of(strategy)]
    if name == "u":
        assert len(effect.levels) == 25
        assert effect.levels[0] == min(own) and effect.levels[-1] == max(own)
        np.testing.assert_allclose(np.diff(effect.levels, 2), 0, atol=1e-9)
    else:
        assert [*effect.levels] == [*dict.fromkeys(own)]  # a number has few here
    for level, (mean,) in zip(effect.levels, effect.means, strict=True):
        total = sum(predicted(strategy, [{**row, name: level}])[0] for row in rows)
        assert mean == pytest.approx(total / len(rows), rel=1e-9)


def test_averages_are_over_some_rows_of_many(monkeypatch):
    monkeypatch.setattr(learned_columns, "NUM_AVERAGED", 10)
    asked = []
    predict = ThompsonSampling.predict

    def count(self: Any, X: Any) -> Any:
        asked.append(len(X))
        return predict(self, X)

    monkeypatch.setattr(ThompsonSampling, "predict", count)
    column_effect(learned(), 0)
    assert asked == [10] * 25


def test_of_many_categories_those_with_most_rows_are_kept(monkeypatch):
    monkeypatch.setattr(learned_columns, "MAX_BARS", 2)
    table = CandidateTable.from_columns(
        {"kind": [*"abbccc"], "x": [0.0, 1, 2, 3, 4, 5]}
    )
    strategy = ThompsonSampling(table, unique=True)
    strategy.tell(table.X[[0, 1, 3]], torch.tensor([1.0, 2.0, 3.0]).double())
    strategy.learn()
    assert column_effect(strategy, 0).levels == ["b", "c"]


def test_shares_are_those_of_exchanged_cells(monkeypatch):
    strategy, orders = learned(), []
    keep = torch.randperm
    monkeypatch.setattr(
        torch, "randperm", lambda *a, **k: orders.append(keep(*a, **k)) or orders[-1]
    )
    shares = column_shares(strategy)[:, 0]
    rows = [frame_of(strategy)[i] for i in orders[-1].tolist()]
    mean = predicted(strategy, rows)
    for name, share in zip(column_names(strategy), shares, strict=True):
        others = [rows[i - 1][name] for i in range(len(rows))]
        changed = [{**row, name: cell} for row, cell in zip(rows, others, strict=True)]
        change = ((predicted(strategy, changed) - mean) ** 2).sum()
        pairs = sum((mean[i] - mean[i - 1]) ** 2 for i in range(len(rows)))
        assert share == pytest.approx(change / pairs, abs=1e-9)
    u, kind, v, same, other = shares
    assert u > kind > max(v, other) and same == 0.0


def test_lengthscales_are_distances_at_which_the_kernel_falls():
    strategy = learned()
    view = strategy.surrogate.parts[0].view
    lengths = dict(
        zip(column_names(strategy), column_lengthscales(strategy, 0), strict=True)
    )
    row = frame_of(strategy)[0]

    def distance(name: str, one: Any, two: Any) -> float:
        """The squared distance of the kernel, :math:`-2 log k`."""
        columns = {key: [cell, cell] for key, cell in row.items()} | {name: [one, two]}
        Z = view.source.inputs(strategy.table.encode(columns))
        return -2 * math.log(float(view.prior.covar_module(Z).to_dense()[0, 1]))

    own = [each["u"] for each in frame_of(strategy)]
    assert lengths["u"] ** -2 == pytest.approx(
        distance("u", min(own), max(own)), rel=1e-6
    )
    kinds = ["oil", "water", "air, wet"]
    pairs = [distance("kind", a, b) for a in kinds for b in kinds if a != b]
    assert lengths["kind"] ** -2 == pytest.approx(np.mean(pairs), rel=1e-6)
    assert math.isinf(lengths["same"])


# The page in a browser.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
MEASURE = """<script>addEventListener("load", () => {
  for (const image of document.images)
    image.alt = `${image.naturalWidth} ${image.getBoundingClientRect().height}`;
  document.title = getComputedStyle(document.querySelector("td")).borderBottomWidth;
});</script>"""


def browse(path: Path, folder: Path, *words: str) -> str:
    assert BROWSER is not None
    options = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync"
    )
    home = folder / "profile"
    command = [BROWSER, *options.split(), f"--user-data-dir={home}", *words]
    ended = subprocess.run([*command, path.as_uri()], capture_output=True, check=True)
    return ended.stdout.decode()


def pixels(png: bytes) -> tuple[int, int, set[bytes]]:
    """Width, height, and the different lines of a PNG of 8 bits, as they are stored."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    place, data = 8, b""
    while place < len(png):
        (size,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + size]
        place += 12 + size
    raw, step = zlib.decompress(data), 1 + width * {2: 3, 6: 4}[kind]
    assert depth == 8 and len(raw) == height * step
    return width, height, {raw[i : i + step] for i in range(0, len(raw), step)}


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed: {BROWSERS}")
def test_a_browser_shows_the_page(lab, tmp_path):
    path = tmp_path / "report.html"
    answer = lab("--report", path, *outcomes(lab, 24), "--batch", 3)
    dom = Page(browse(path, tmp_path, "--dump-dom"))
    assert dom.headings == WHOLE
    shown = dom.table("id", "reason")
    assert shown == answer.rows
    picture = tmp_path / "page.png"
    browse(path, tmp_path, f"--screenshot={picture}", "--window-size=900,700")
    width, height, different = pixels(picture.read_bytes())
    assert (width, height) == (900, 700) and len(different) > 50
    # A copy without the policy runs a script that measures what is drawn.
    copy = tmp_path / "copy.html"
    content = path.read_text(encoding="utf-8")
    bare = re.sub("<meta http-equiv[^>]*>", "", content)
    copy.write_text(bare.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    measured_dom = browse(copy, tmp_path, "--dump-dom")
    sizes = re.findall(r'alt="([\d.]+) ([\d.]+)"', measured_dom)
    assert len(sizes) == len(dom.pictures) > 5
    assert all(float(w) > 100 and float(h) > 100 for w, h in sizes)
    assert "<title>1px</title>" in measured_dom  # styles are in use
    # The policy runs no script.
    stopped = content.replace("</body>", f"{MEASURE}</body>")
    copy.write_text(stopped, encoding="utf-8")
    assert (
        re.findall(r'alt="[\d.]+ [\d.]+"', browse(copy, tmp_path, "--dump-dom")) == []
    )
