"""Values that may be typing errors: named by line, and taken all the same."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.strategies import Constraint, Objective
from botorch_sparse.suggest.other_units import (
    ENOUGH_OF_A_KIND,
    FEW_VALUES,
    ITS_NUMBER,
    fractions_among,
    limit_apart,
    logarithms_among,
    unit_changes,
)
from botorch_sparse.suggest.outcome_options import Outcome

# At most this share of the values lies apart from the others, by three times the range
# of these.
APART_SHARE = 0.1
APART = 3.0
# Of fewer values than these one or two may be far above the rest, by such a factor.
MANY_VALUES, FAR_ABOVE = 20, 20.0
# Numbers that instruments and people write where there is no value. One of them may be
# a yield: it needs a gap to the others, in the range of these.
PER_CENT, LEAST_GAP = 99.0, 0.25
PLACEHOLDERS = frozenset({99.0, 999.0, 9999.0, 99999.0, 999999.0})
# Repeats of one row differ by so many times what repeats of others do.
REPEATS_APART = 10.0
# Other rows that have repeats, for these to tell the noise.
ENOUGH_REPEATED = 2
# Rows with repeats, for these to be compared with all rows.
ENOUGH_ALIKE = 3
# At the limit of an instrument is at least this share of the values; of the others at
# least so large a share are different.
AT_LIMIT, DIFFERENT = 0.25, 0.9
# So many values that follow each other in equal steps were filled in by a spreadsheet.
ENOUGH_STEPS = 5
# What is said of results that may be no repeats.
KEEP_ONE_KIND = (
    "They count as repeats of one measurement; if they are not, keep one kind of them "
    "in the results"
)
# Rows go along with a column in the same order by chance, once in so many columns.
BY_CHANCE = 100


def values_apart(values: Sequence[float]) -> list[int]:
    """Places of the values that lie far from all others, ascending.

    Placeholders such as -999 are looked for first. At either end the other sorted
    values are cut at the widest gap with at most a tenth of them beyond it. Those
    beyond lie apart if the gap is three times the range of the others. Of fewer than 20
    values the greatest one or two lie apart if they are above 100, differ, and are many
    times as large as at least three others, which are positive.

    Args:
        values: Any numbers; NaN for none. Cost: O(n log n).
    """
    y = np.asarray(values, dtype=np.float64)
    found = [*_placeholders(y)]
    is_left = np.isfinite(y)
    is_left[found] = False
    known = np.flatnonzero(is_left)
    order = known[y[known].argsort(kind="stable")]
    tails = {*_tail(y, order), *_tail(-y, order[::-1]), *_greatest(y, order)}
    return sorted({*found, *tails})


def _placeholders(y: NDArray[np.float64]) -> Iterator[int]:
    """Places of the least or the greatest value, if it stands for no value.

    It may repeat if it alone is below 0, or if it is further from the others than these
    are from 0. Else it is rare, and 99 is not close to the others.
    """
    known = y[np.isfinite(y)]
    others = known[~np.isin(np.abs(known), [*PLACEHOLDERS])]
    for end in np.unique(known)[[0, -1]].tolist() if len(others) else ():
        gap, num = np.abs(others - end).min(), int((known == end).sum())
        is_rare = num <= APART_SHARE * len(known) + 1 and len(known) > FEW_VALUES
        is_far = end != PER_CENT or gap > LEAST_GAP * np.ptp(others)
        is_alone = end < 0 <= others.min() or gap > np.abs(others).max()
        is_clear = is_alone and end != PER_CENT
        if abs(end) in PLACEHOLDERS and (is_clear or (is_rare and is_far)):
            yield from np.flatnonzero(y == end).tolist()


def _tail(y: NDArray[np.float64], order: NDArray[np.intp]) -> list[int]:
    """Places of the greatest values, in ascending order given, that lie apart."""
    if len(order) <= FEW_VALUES:
        return []
    ordered = y[order]
    most = max(1, int(APART_SHARE * len(order)))
    gaps = np.diff(ordered[-most - 1 :])
    cut = len(order) - most + int(gaps.argmax())
    others = ordered[cut - 1] - ordered[0]
    is_apart = others > 0 and gaps.max() > APART * others
    return [int(place) for place in order[cut:]] if is_apart else []


def _greatest(y: NDArray[np.float64], order: NDArray[np.intp]) -> list[int]:
    """Places of the greatest one or two of few values, if these lie far above the rest.

    The factor between them and the rest is above 20, and above the square of the factor
    within the rest: values over many powers of ten are as far from each other.
    """
    ordered = y[order]
    for num in (1, 2) if len(order) < MANY_VALUES else ():
        rest, far = ordered[:-num], ordered[-num:]
        if len(rest) < ENOUGH_OF_A_KIND or rest[0] <= 0 or len({*far}) < num:
            continue
        within, above = rest[-1] / rest[0], far[0] / rest[-1]
        if far[0] > 100 and within > 1 and above > max(FAR_ABOVE, within**2):
            return order[-num:].tolist()
    return []


def repeats_apart(
    points: Sequence[Hashable], values: Sequence[float]
) -> list[tuple[int, int]]:
    """Pairs of places with the same point whose values differ by far too much.

    They differ by ten times the usual difference between repeats of other points, the
    median; where too few others have repeats, by more than half of all values do: their
    interquartile range.

    Args:
        points: `n` points, repeats allowed.
        values: `n` values; NaN for none.
    """
    places = defaultdict[Hashable, list[int]](list)
    for place, (point, value) in enumerate(zip(points, values, strict=True)):
        if math.isfinite(value):
            places[point].append(place)
    repeated = [each for each in places.values() if len(each) > 1]
    means = [np.mean([values[i] for i in each]) for each in places.values()]
    low, high = np.quantile(means, [0.25, 0.75]) if means else (0.0, 0.0)
    pairs = [_extremes(each, values) for each in repeated]
    ranges = [values[j] - values[i] for i, j in pairs]
    found = []
    for k, pair in enumerate(pairs):
        others = ranges[:k] + ranges[k + 1 :]
        usual = float(np.median(others)) if len(others) >= ENOUGH_REPEATED else 0.0
        limit = REPEATS_APART * usual or high - low
        if len(means) > FEW_VALUES and ranges[k] > limit > 0:
            found.append((min(pair), max(pair)))
    return found


def _extremes(places: Sequence[int], values: Sequence[float]) -> tuple[int, int]:
    ordered = sorted(places, key=lambda place: values[place])
    return ordered[0], ordered[-1]


def notes_on(
    column: str,
    values: Sequence[float],
    line_of: Callable[[int], str],
    points: Sequence[Hashable] = (),
) -> Iterator[str]:
    """What messages say of odd values in a column.

    Args:
        column: Its name.
        values: `n` numbers; NaN for none.
        line_of: From the place of one to its line, in messages.
        points: What they are of, if values of one point are to agree.
    """
    advice = "They are taken as they are; correct them if they are mistakes"
    if apart := values_apart(values):
        rest = np.delete(np.asarray(values), apart)
        shown = [f"{values[i]:.6g} ({line_of(i)})" for i in apart]
        yield (
            f"{short_repr(column)} has values far from all others, which are from "
            f"{np.nanmin(rest):.6g} to {np.nanmax(rest):.6g}: "
            f"{short_list(shown, 3, show=str)}. {advice}"
        )
    pairs = repeats_apart(points, values) if points else []
    if pairs:
        shown = [
            f"{values[i]:.6g} and {values[j]:.6g} ({line_of(i)}, {line_of(j)})"
            for i, j in pairs
        ]
        yield (
            f"{short_repr(column)} differs widely between measurements of one row: "
            f"{short_list(shown, 3, show=str)}. {advice}"
        )


def notes_on_outcome(
    outcome: Outcome,
    values: Sequence[float],
    line_of: Callable[[int], str],
    points: Sequence[Hashable],
    others: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """What messages say of an outcome whose values may be of two kinds.

    Args:
        outcome: What was measured.
        values: `n` numbers; NaN for none.
        line_of: From the place of one to its line, in messages.
        points: `n` points that they are of.
        others: `n` cells of each column that is not used.
    """
    column = short_repr(outcome.name)
    if odd := fractions_among(values):
        shown = [f"{values[i]:.6g} ({line_of(i)})" for i in odd]
        yield (
            f"{column} has {short_list(shown, 3, show=str)}: fractions among per "
            "cents? They are taken as they are; write all in one unit"
        )
    elif place := unit_changes(values):
        before, after = _shown_range(values[:place]), _shown_range(values[place:])
        yield (
            f"{column} is {after} in the results from {line_of(place)} on, and "
            f"{before} in those before. In another unit? They are taken as they are; "
            "write all in one"
        )
    yield from _pattern_notes(outcome, values, line_of, points)
    if isinstance(outcome, Objective) and (odd := minus_ones(values)):
        shown = [line_of(i) for i in odd]
        yield (
            f"{column} is -1 in {len(odd)} results ({short_list(shown, 3, show=str)}), "
            "and above 0 in the others. They are taken as they are; if they stand for "
            "no value, leave these rows out, or write failed"
        )
    for mark, limit in _limits(outcome).items():
        if limit_apart(values, limit, mark):
            low, high = np.nanmin(values), np.nanmax(values)
            yield (
                f"no result keeps {column} {mark} {limit:.6g}: values are from "
                f"{low:.6g} to {high:.6g}, and the limit may be in another unit"
            )
    if repeats_like_rows(points, values):
        differ = _columns_between_repeats(points, others)
        which = f", which differ in {short_list(differ)}" if differ else ""
        yield (
            f"{column} differs as much between measurements of one row{which} as "
            f"between rows. {KEEP_ONE_KIND}"
        )
    elif followed := [
        name for name, cells in others.items() if follows(points, cells, values)
    ]:
        yield (
            f"{column} of each row goes along with {short_list(followed)} in the same "
            f"way. {KEEP_ONE_KIND}"
        )


def _pattern_notes(
    outcome: Outcome,
    values: Sequence[float],
    line_of: Callable[[int], str],
    points: Sequence[Hashable],
) -> Iterator[str]:
    """What messages say of values that people or instruments write for others."""
    column, advice = short_repr(outcome.name), "They are taken as they are"
    if run := equal_steps(values):
        first, last = run
        step = values[first + 1] - values[first]
        yield (
            f"{column} has steps of {step:.6g} from {values[first]:.6g} "
            f"({line_of(first)}) to {values[last]:.6g} ({line_of(last)}), as a "
            f"spreadsheet fills cells down. {advice}; correct them if it did"
        )
    apart = {values[place] for place in values_apart(values)}  # which are named
    for limit in (x for x in values_at_limit(points, values) if x not in apart):
        num = sum(value == limit for value in values)
        yield (
            f"{column} is {limit:.6g} in {num} results, and the others differ: the "
            f"limit of an instrument, or no value? {advice}"
        )
    if places := logarithms_among(values):
        shown = [f"{values[i]:.6g} ({line_of(i)})" for i in places]
        yield (
            f"{column} has {short_list(shown, 3, show=str)}: logarithms among numbers "
            f"above {ITS_NUMBER:.0f}? {advice}; write all in one way"
        )


def equal_steps(values: Sequence[float]) -> tuple[int, int] | None:
    """The first and the last place of the first values in equal steps; None for none.

    They are five or more. Where all values are in ascending or descending order, which
    makes equal steps likely, they are half of all.

    Args:
        values: Numbers in the order of the files; NaN for none. Cost: O(n).
    """
    y = np.asarray(values, dtype=np.float64)
    steps = np.diff(y)
    largest = np.abs(y[np.isfinite(y)]).max(initial=0.0)
    is_same = (np.abs(np.diff(steps)) <= 1e-9 * largest) & (steps[1:] != 0)
    known = np.diff(y[np.isfinite(y)])
    is_sorted = bool((known >= 0).all() or (known <= 0).all())
    least = max(ENOUGH_STEPS, (len(known) + 1) / 2 if is_sorted else 0)
    first = 0
    for place, same in enumerate([*is_same, False]):
        if same:
            continue
        if place - first + 2 >= least:
            return first, place + 1
        first = place + 1
    return None


def values_at_limit(points: Sequence[Hashable], values: Sequence[float]) -> list[float]:
    """The least or the greatest value, if it may be the limit of an instrument.

    A quarter of the points or more have it, at least three, and the others have
    different numbers. At 0 and 100 yields end too: 0 is one if the others are far from
    it.
    """
    pairs = {(p, y) for p, y in zip(points, values, strict=True) if math.isfinite(y)}
    known = np.array([value for _, value in pairs], dtype=np.float64)
    found = []
    for end in np.unique(known)[[0, -1]].tolist() if len(known) else ():
        others = known[known != end]
        num = len(known) - len(others)
        if (
            num >= max(ENOUGH_OF_A_KIND, AT_LIMIT * len(known))
            and len(others) > FEW_VALUES
            and len(np.unique(others)) >= DIFFERENT * len(others)
            and (end != 0 or np.abs(others).min() > APART * np.ptp(others))
            and end != 100
        ):
            found.append(end)
    return found


def follows(
    points: Sequence[Hashable], cells: Sequence[str], values: Sequence[float]
) -> bool:
    """Whether the measurements of each row differ in a column, which values follow.

    Each point has the same cells of the column, each of them once; ordered by them, the
    values of all points go up and down alike, which is hardly by chance.
    """
    of_point = defaultdict[Hashable, dict[str, float]](dict)
    num = 0
    for point, cell, value in zip(points, cells, values, strict=True):
        if math.isfinite(value):
            of_point[point][cell] = value
            num += 1
    first, *rest = of_point.values() or [{}]
    kinds = sorted(first)
    is_same = all(other.keys() == first.keys() for other in rest)
    if not is_same or num != len(kinds) * len(of_point) or "" in kinds:
        return False
    orders = {tuple(sorted(kinds, key=each.__getitem__)) for each in of_point.values()}
    chances = math.factorial(len(kinds)) ** len(rest)
    return len(kinds) > 1 and len(orders) == 1 and chances >= BY_CHANCE


def minus_ones(values: Sequence[float]) -> list[int]:
    """Places of -1, if it comes more than once and all other values are positive."""
    y = np.asarray(values, dtype=np.float64)
    others = y[np.isfinite(y) & (y != -1)]
    places: list[int] = np.flatnonzero(y == -1).tolist()
    return places if len(places) > 1 and len(others) and others.min() > 0 else []


def _limits(outcome: Outcome) -> dict[str, float]:
    """The limits of a constraint, or the threshold of a target, by their marks."""
    if isinstance(outcome, Constraint):
        limits = {"<=": outcome.upper, ">=": outcome.lower}
    else:
        limits = {"<=" if outcome.minimize else ">=": outcome.threshold}
    return {mark: limit for mark, limit in limits.items() if limit is not None}


def _shown_range(values: Sequence[float]) -> str:
    """From the least to the greatest of some numbers."""
    return f"from {np.nanmin(values):.6g} to {np.nanmax(values):.6g}"


def repeats_like_rows(points: Sequence[Hashable], values: Sequence[float]) -> bool:
    """Whether repeats of a row differ as much as rows do.

    The variance within rows, of three rows with repeats or more, is no less than the
    variance of the means of all rows: the noise is as large as all effects together.
    """
    groups = [*_by_point(points, values).values()]
    several = [each for each in groups if len(each) > 1]
    if len(several) < ENOUGH_ALIKE or len(groups) <= FEW_VALUES:
        return False
    means = [np.mean(each) for each in groups]
    squares = sum(float(np.var(each)) * len(each) for each in several)
    within = squares / sum(len(each) - 1 for each in several)
    return within >= float(np.var(means, ddof=1)) and within > 0


def _by_point(
    points: Sequence[Hashable], values: Sequence[float]
) -> dict[Hashable, list[float]]:
    """The finite values of each point."""
    found = defaultdict[Hashable, list[float]](list)
    for point, value in zip(points, values, strict=True):
        if math.isfinite(value):
            found[point].append(value)
    return found


def _columns_between_repeats(
    points: Sequence[Hashable], others: Mapping[str, Sequence[str]]
) -> list[str]:
    """Columns whose cells differ between the repeats of each row that has some."""
    repeated = [point for point, num in Counter(points).items() if num > 1]
    found = []
    for column, cells in others.items():
        pairs = Counter(zip(points, cells, strict=True))
        kinds = Counter(point for point, _ in pairs)
        if all(kinds[point] > 1 for point in repeated):
            found.append(column)
    return found
