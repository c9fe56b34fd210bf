"""Values that may be typing errors: named by line, and taken all the same."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from botorch_sparse.argument_checks import short_list, short_repr

# At most this share of the values lies apart from the others, by three times the range
# of these.
APART_SHARE = 0.1
APART = 3.0
# In so few values nothing is said of any.
FEW_VALUES = 5
# Numbers that instruments and people write where there is no value.
PLACEHOLDERS = frozenset({99.0, 999.0, 9999.0, 99999.0, 999999.0})
# Repeats of one row differ by so many times what repeats of others do.
REPEATS_APART = 10.0
# Other rows that have repeats, for these to tell the noise.
ENOUGH_REPEATED = 2


def values_apart(values: Sequence[float]) -> list[int]:
    """Places of the values that lie far from all others, ascending.

    At either end the sorted values are cut at the widest gap with at most a tenth of
    them beyond it. Those beyond lie apart if the gap is three times the range of the
    others. A placeholder such as -999 lies apart where it is the least or the greatest
    value.

    Args:
        values: Any numbers; NaN for none. Cost: O(n log n).
    """
    y = np.asarray(values, dtype=np.float64)
    known = np.flatnonzero(np.isfinite(y))
    if len(known) <= FEW_VALUES:
        return []
    order = known[y[known].argsort(kind="stable")]
    found = {*_tail(y, order), *_tail(-y, order[::-1])}
    least, most = y[order[0]], y[order[-1]]
    for place in (order[0], order[-1]):
        is_end = np.count_nonzero(y[known] == y[place]) <= APART_SHARE * len(known) + 1
        if abs(y[place]) in PLACEHOLDERS and least < most and is_end:
            found |= {*np.flatnonzero(y == y[place])}
    return sorted(map(int, found))


def _tail(y: NDArray[np.float64], order: NDArray[np.intp]) -> list[int]:
    """Places of the greatest values, in ascending order given, that lie apart."""
    ordered = y[order]
    most = max(1, int(APART_SHARE * len(order)))
    gaps = np.diff(ordered[-most - 1 :])
    cut = len(order) - most + int(gaps.argmax())
    others = ordered[cut - 1] - ordered[0]
    is_apart = others > 0 and gaps.max() > APART * others
    return [int(place) for place in order[cut:]] if is_apart else []


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
