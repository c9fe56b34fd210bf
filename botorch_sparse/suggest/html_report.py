"""What `suggest --report` writes: a page for a browser or for paper."""

import csv
import io
from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from botorch_sparse.command_line import shortened
from botorch_sparse.strategies import History
from botorch_sparse.suggest.candidate_pool import Matrix, Pool
from botorch_sparse.suggest.html_parts import (
    bullets,
    heading,
    note,
    page,
    paragraph,
    picture,
    section,
    table,
)
from botorch_sparse.suggest.learned_columns import (
    Effect,
    Learner,
    LeftOut,
    column_effect,
    column_lengthscales,
    column_names,
    column_shares,
    left_out,
)
from botorch_sparse.suggest.report import (
    FRONT_ROW,
    MAX_FRONT,
    Summary,
    front_so_far,
    row_name,
)
from botorch_sparse.suggest.results import Results
from botorch_sparse.suggest.selection import added_columns

# Columns whose effect is shown, and the user's own columns of the next rows, at most.
MAX_SHOWN, MAX_OWN = 10, 12
# Targets whose front can be drawn, at most.
MAX_DRAWN_TARGETS = 3
# Fewer measured rows say little about predictions of others.
FEWEST_PREDICTED = 5
# Shares of a column from which on it matters much, and some.
MUCH, SOME = 0.25, 0.05
# A column with less than this share of the largest one hardly changes predictions.
HARDLY = 0.01
# Coefficients of determination from which on predictions are good, and fair.
GOOD, FAIR = 0.7, 0.3
# A prediction rises or falls if it goes back by less than this share of its range.
NEARLY = 0.05
# Sizes of numbers that are written without an exponent.
LEAST_PLAIN, GREATEST_PLAIN = 1e-4, 1e7
NO_PICTURES = "No picture: matplotlib is missing (pip install 'botorch_sparse[plot]')."
ABOUT_ROWS = (
    "predicted_sd is the standard deviation of the function; a measurement varies "
    "more, by its noise."
)
ABOUT_PREDICTIONS = (
    "Each measured row is left out, with all of its measurements, and predicted from "
    "the other rows. This shows how far predictions of other rows can be trusted."
)
ABOUT_COLUMNS = (
    "What the model has learned so far. A prediction along a column is an average over "
    "rows that keep all their other cells; it is no measurement."
)
ABOUT_SHARES = (
    "Share: how much of the differences between predictions is due to the column, "
    "alone or together with others; shares may add up to more than 100%. Lengthscale: "
    "how far a column has to change, in units of its range, before a measurement says "
    "little about the next one. It is short where the target bends often."
)


def html_page(
    pool: Pool,
    results: Results,
    strategy: Learner | None,
    summary: Summary,
    batch: str,
) -> str:
    """The page of a call.

    Args:
        pool: The candidates.
        results: What was measured.
        strategy: Which has learned it; None without results.
        summary: The lines that are printed.
        batch: The next rows as CSV.
    """
    parts = [paragraph(summary.count)]
    if strategy is None:
        parts.append(paragraph("There are no results yet, so nothing is predicted."))
    else:
        parts.append(_best(pool, results, strategy.history, summary))
    parts.append(_next_rows(pool, batch))
    if strategy is not None:
        plotting = _plotting()
        parts += [
            _progress(strategy.history, plotting),
            _predictions(pool, strategy, plotting),
            _columns(pool, strategy, plotting),
        ]
    read = bullets([*summary.columns, *summary.notes])
    parts.append(section("What was read", read))
    return page(f"Rows to measure next, from {pool.text.name}", parts)


def _plotting() -> Any:
    """The functions that draw; None where matplotlib is missing."""
    try:
        from botorch_sparse import plotting
    except ImportError:
        return None
    return plotting


def _drawn(plotting: Any, figure: Any, alt: str, size: tuple[float, float]) -> str:
    """A figure as a picture of so many inches."""
    figure.set_size_inches(*size)
    return picture(plotting.svg_of(figure), alt)


def _best(pool: Pool, results: Results, history: History, summary: Summary) -> str:
    """The best row; of several targets the front as a table."""
    said = [line for line in summary.best if not line.startswith(FRONT_ROW)]
    parts = [paragraph(line[:1].upper() + line[1:]) for line in said]
    if len(history.outcomes.objectives) > 1:
        front = front_so_far(pool, history)
        rows = [
            [row_name(pool, results, row), *(f"{value:.6g}" for value in values)]
            for row, values in zip(front.index, front.to_numpy(), strict=True)
        ]
        if rows:
            parts.append(table(["row", *front.columns], rows[:MAX_FRONT]))
        if (more := len(rows) - MAX_FRONT) > 0:
            parts.append(note(f"The front has {more} more rows."))
    return section("Best so far", *parts)


def _next_rows(pool: Pool, batch: str) -> str:
    """The next rows: what is predicted of them, then the user's first columns."""
    title = "Next rows"
    header, *rows = csv.reader(
        io.StringIO(batch, newline=""), delimiter=pool.text.separator
    )
    if not rows:
        return section(
            title, paragraph("No row is proposed; the last section says why.")
        )
    end = len(header) - len(added_columns(pool.outcomes))
    kept = [0, *range(end, len(header)), *range(1, min(end, 1 + MAX_OWN))]
    cells = [[row[i] for i in kept] for row in rows]
    parts = [table([header[i] for i in kept], cells)]
    if (more := len(header) - len(kept)) > 0:
        parts.append(note(f"{more} more columns are in the CSV file of these rows."))
    if any(row[end] for row in rows):
        parts.append(note(ABOUT_ROWS))
    return section(title, *parts)


def _progress(history: History, plotting: Any) -> str:
    """The values in the order of the results; of several targets the hypervolume."""
    title, num_targets = "Progress", len(history.outcomes.objectives)
    if bool(history.means()[1].isnan().any(-1).all()):
        return section(title, paragraph("No row has a value of each outcome yet."))
    if plotting is None:
        return section(title, note(NO_PICTURES))
    if num_targets == 1:
        alt = "The measured values in the order of the results, and the best so far."
        figure = plotting.plot_best_so_far(history)
        return section(title, _drawn(plotting, figure, alt, (7.2, 3.2)))
    figure = plotting.plot_hypervolume({"": history})
    figure.axes[0].set(xscale="linear", xlabel="result", ylabel="hypervolume")
    text = (
        "The hypervolume grows with each result that is better than the front before."
    )
    alt = "The hypervolume of the front after each result."
    parts = [paragraph(text), _drawn(plotting, figure, alt, (7.2, 2.6))]
    if num_targets <= MAX_DRAWN_TARGETS:
        alt = "The measured values of the targets, and the front among them."
        front = _drawn(plotting, plotting.plot_pareto(history), alt, (7.2, 4.4))
        parts += [heading("Front"), front]
    return section(title, *parts)


def _predictions(pool: Pool, strategy: Learner, plotting: Any) -> str:
    """Each measured row as the others predict it, for each outcome."""
    parts = [paragraph(ABOUT_PREDICTIONS)]
    for place, name in enumerate(pool.outcome_columns):
        if len(pool.outcomes) > 1:
            parts.append(heading(name))
        left = left_out(strategy, place)
        if len(left) < FEWEST_PREDICTED:
            few = f"Too few rows are measured to tell, {len(left)}; "
            parts.append(paragraph(f"{few}{FEWEST_PREDICTED} are needed."))
            continue
        parts.append(paragraph(_quality(left)))
        if plotting is not None:
            figure = plotting.plot_predicted(left.measured, left.mean, left.ends, name)
            alt = f"Predicted against measured values of {name}, a point for each row."
            parts.append(_drawn(plotting, figure, alt, (5.4, 4.2)))
    return section("Predicted against measured", *parts)


def _quality(left: LeftOut) -> str:
    """How good predictions are, in words and in two numbers."""
    explained, share = left.explained, left.num_within / len(left)
    within = (
        f"{left.num_within} of {len(left)} measured rows ({share:.0%}) lie within "
        "their 95% range."
    )
    if not isfinite(explained):
        return f"All measured values are equal. {within}"
    if explained >= GOOD:
        words = "good: they explain most of the differences between rows"
    elif explained >= FAIR:
        words = "fair: they explain a part of the differences between rows"
    else:
        words = "poor: they explain little of the differences between rows"
    return f"Predictions are {words} (R\u00b2 = {explained:.2f}). {within}"


def _columns(pool: Pool, strategy: Learner, plotting: Any) -> str:
    """Which columns matter, and how predictions change along them."""
    names, shares = column_names(strategy), column_shares(strategy)
    effects: dict[int, Effect] = {}
    parts = [paragraph(ABOUT_COLUMNS)]
    for place, outcome in enumerate(pool.outcome_columns):
        if len(pool.outcomes) > 1:
            parts.append(heading(outcome))
        own = shares[:, place]
        if not own.any():
            parts.append(
                paragraph("All predictions are equal: nothing is learned yet.")
            )
            continue
        order = (-own).argsort(kind="stable").tolist()
        shown, rest = order[:MAX_SHOWN], order[MAX_SHOWN:]
        effects |= {i: column_effect(strategy, i) for i in shown if i not in effects}
        lengthscales = column_lengthscales(strategy, place)
        drawn = {
            i for i in shown if own[i] > HARDLY * own.max() and len(effects[i].levels)
        }
        along = {
            names[i]: (effects[i].levels, effects[i].means[:, place]) for i in shown
        }
        rows = [
            [
                names[i],
                _importance(own[i]),
                f"{own[i]:.0%}",
                _plain(lengthscales[i], 2) if isfinite(lengthscales[i]) else "",
                _direction(*along[names[i]])
                if i in drawn or not len(effects[i].levels)
                else "hardly changes",
            ]
            for i in shown
        ]
        header = ["column", "matters", "share", "lengthscale", f"predicted {outcome}"]
        parts.append(table(header, rows))
        if rest:
            most = f"a share of at most {own[rest[0]]:.0%}"
            parts.append(note(f"{len(rest)} more columns have {most} each."))
        along = {names[i]: along[names[i]] for i in shown if i in drawn}
        parts += _effect_pictures(plotting, along, outcome)
    return section("What each column does", *parts, note(ABOUT_SHARES))


def _effect_pictures(
    plotting: Any, along: dict[str, tuple[Matrix | list[str], Matrix]], outcome: str
) -> list[str]:
    """Columns of numbers as lines, and those of categories as bars."""
    if plotting is None:
        return []
    numbers = {k: v for k, v in along.items() if isinstance(v[0], np.ndarray)}
    kinds = {k: v for k, v in along.items() if not isinstance(v[0], np.ndarray)}
    alt = f"The average prediction of {outcome} along columns, as in the table."
    return [
        picture(plotting.svg_of(plot(each, outcome)), alt)
        for plot, each in (
            (plotting.plot_effects, numbers),
            (plotting.plot_category_effects, kinds),
        )
        if each
    ]


def _importance(share: float) -> str:
    """How much a column matters, in a word."""
    if share >= MUCH:
        return "much"
    return "some" if share >= SOME else "little"


def _direction(levels: Matrix | Sequence[str], means: Matrix) -> str:
    """How a prediction changes along a column, in words."""
    if not len(levels):
        return "depends on the parts of the molecule"
    low, high = int(means.argmin()), int(means.argmax())
    if low == high:
        return "does not change"
    if isinstance(levels, np.ndarray):
        steps, span = np.diff(means), NEARLY * np.ptp(means)
        ends = f"from {_plain(means[0])} to {_plain(means[-1])}"
        if -steps[steps < 0].sum() <= span:
            return f"rises {ends}"
        if steps[steps > 0].sum() <= span:
            return f"falls {ends}"
        levels = [*map(_plain, levels)]
    top, bottom = (
        f"{shortened(levels[place], 64)} ({_plain(means[place])})"
        for place in (high, low)
    )
    return f"greatest at {top}, least at {bottom}"


def _plain(value: float, digits: int = 4) -> str:
    """A number with so many digits, and without an exponent where that is short."""
    if value and not LEAST_PLAIN <= abs(value) < GREATEST_PLAIN:
        return f"{value:.{digits}g}"
    return f"{float(f'{value:.{digits}g}'):.10f}".rstrip("0").rstrip(".")
