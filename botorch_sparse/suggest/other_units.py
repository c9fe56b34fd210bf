"""Numbers that may be in another unit than others of them, or than their name says."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

# In so few values nothing is said of any; and so many are enough to be one kind of two.
FEW_VALUES, ENOUGH_OF_A_KIND = 5, 3
# Temperatures in K are from here on, and a column has at most so many different ones.
HOT, FEW_TEMPERATURES = 200.0, 20
# Values in two units differ by so many times.
GAP = 10.0
# Of two groups of values in units that are ten times apart, either end differs by so
# many times at most.
UNIT_ENDS = 2.0
# Logarithms are less than this, and the numbers beside them are more.
LOGARITHM, ITS_NUMBER, LOG_GAP = 20.0, 1e4, 1e3
# A column of per cents, but for those of mixtures, which may all be small; and those
# that may be below 0 or above 100.
PER_CENT = re.compile(
    r"(?<!mol)(?<!mol )(?<!wt)(?<!wt )(?<!vol)(?<!vol )(%|percent|pct|prozent)",
    re.IGNORECASE,
)
OF_DIFFERENCES = re.compile(
    r"\bee\b|excess|chang|differ|deviat|inhib|activ|growth|recover|relativ|wachstum"
    r"|hemm|abweich",
    re.IGNORECASE,
)
# Errors of a measurement bring a per cent up to here; so large a share of the values
# shows that they may be above.
MOST_PER_CENT, USUAL = 110.0, 0.25


def are_fractions(column: str, values: Sequence[float]) -> bool:
    """Whether a column is named as one of per cents, and has numbers from 0 to 1."""
    y = np.asarray(values, dtype=np.float64)
    y = y[np.isfinite(y)]
    return bool(
        PER_CENT.search(column)
        and len(y) >= ENOUGH_OF_A_KIND
        and 0 <= y.min() <= y.max() <= 1
        and y.max() > 0
    )


def beyond_per_cent(column: str, values: Sequence[float]) -> list[int]:
    """Places of the values of a column of per cents that can be none.

    They are below 0 or far above 100, and few of all; of few values two at most.
    """
    if not PER_CENT.search(column) or OF_DIFFERENCES.search(column):
        return []
    y = np.asarray(values, dtype=np.float64)
    places: list[int] = np.flatnonzero((y < 0) | (y > MOST_PER_CENT)).tolist()
    return places if len(places) <= max(2, USUAL * np.isfinite(y).sum()) else []


def kelvin_among(values: Sequence[float]) -> list[float]:
    """The numbers that may be temperatures in K where others are in degrees Celsius.

    Of a column of few numbers two or more are from 200 on, and each of these is
    another one, below 200, and 273, or 273.15.
    """
    kinds = np.unique(np.asarray(values, dtype=np.float64))
    low, high = kinds[kinds < HOT], kinds[kinds >= HOT]
    if len(kinds) > FEW_TEMPERATURES or len(high) < 2:
        return []
    apart = high[:, None] - low
    is_other = np.isclose(apart, 273) | np.isclose(apart, 273.15)
    return high.tolist() if is_other.any(axis=1).all() else []


def fractions_among(values: Sequence[float]) -> list[int]:
    """Places of the values that may be fractions where others are per cents.

    The positive values fall into two groups by a gap of ten times: from 0 to 1, and
    from 1 to 100. As per cents the lower ones would lie among the upper ones, give or
    take a factor of two. Half of them have a second decimal, which per cents close to 0
    rarely have, and 0.70 as a number has not. A single one has more decimals than each
    of the others.
    """
    y = np.asarray(values, dtype=np.float64)
    known = np.flatnonzero(y > 0)
    order = known[y[known].argsort(kind="stable")]
    ordered = y[order]
    if len(known) <= ENOUGH_OF_A_KIND or ordered[-1] > 100:
        return []
    ratios = ordered[1:] / ordered[:-1]
    cut = int(ratios.argmax()) + 1
    low, high = ordered[:cut], ordered[cut:]
    is_odd = (
        ratios.max() >= GAP
        and low[-1] <= 1 <= high[0]
        and (len(known) > FEW_VALUES or len(high) >= ENOUGH_OF_A_KIND)
        and high[0] / 2 <= 100 * low[0]
        and 100 * low[-1] <= 2 * high[-1]
        and _are_finer(low, high)
    )
    return sorted(order[:cut].tolist()) if is_odd else []


def _are_finer(low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
    """Whether half of several numbers have two decimals, or one has more than all."""
    if len(low) == 1:
        decimals = max(map(_num_decimals, high))
        return _num_decimals(low[0]) > decimals
    is_fine = ~np.isclose(10 * low, np.round(10 * low), rtol=0, atol=1e-9)
    return bool(2 * is_fine.sum() >= len(low))


def _num_decimals(value: float) -> int:
    """How many decimals a number needs to be written."""
    return max(0, -int(Decimal(repr(float(value))).normalize().as_tuple().exponent))


def unit_changes(values: Sequence[float]) -> int:
    """The place from which on values may be in another unit; 0 for none.

    All values from there on are above those before, or all below, with three or more on
    each side. The gap between the two groups is wider than the spread of each.
    Multiplied by a power of ten, the lower group overlaps with the upper one; if that
    is ten, it ends near the upper one.

    Args:
        values: Numbers in the order of the files; NaN for none. Those that are not
            above 0 are passed over. Cost: O(n log n).
    """
    y = np.asarray(values, dtype=np.float64)
    known = np.flatnonzero(y > 0)
    if len(known) < 2 * ENOUGH_OF_A_KIND:
        return 0
    ordered = np.sort(y[known])
    ratios = ordered[1:] / ordered[:-1]
    cut = int(ratios.argmax()) + 1
    low, high = ordered[:cut], ordered[cut:]
    is_low = y[known] < high[0]
    changes = np.flatnonzero(np.diff(is_low))
    spread = max(low[-1] / low[0], high[-1] / high[0])
    power = round(math.log10(float(np.median(high) / np.median(low))))
    scaled = 10.0**power * low
    ends = np.abs(np.log(scaled[[0, -1]] / high[[0, -1]]))
    is_odd = (
        len(changes) == 1
        and min(len(low), len(high)) >= ENOUGH_OF_A_KIND
        and power > 0
        and ratios.max() > spread
        and scaled[0] <= high[-1]
        and scaled[-1] >= high[0]
        and (power > 1 or ends.max() <= math.log(UNIT_ENDS))
    )
    return int(known[changes[0] + 1]) if is_odd else 0


def limit_apart(values: Sequence[float], limit: float, mark: str) -> bool:
    """Whether all values, of one sign, are ten times beyond a limit."""
    y = np.asarray(values, dtype=np.float64)
    y = y[np.isfinite(y)]
    if not len(y) or limit <= 0 or y.min() <= 0:
        return False
    return bool(y.min() >= GAP * limit if mark == "<=" else GAP * y.max() <= limit)


def logarithms_among(values: Sequence[float]) -> list[int]:
    """Places of the values that may be logarithms of numbers such as the others.

    Three or more are below 20, the others above 10,000 and a thousand times as large.
    Their decimal logarithms, give or take two, are where the others are.
    """
    y = np.asarray(values, dtype=np.float64)
    known = y[y > 0]
    low, high = known[known < LOGARITHM], known[known > ITS_NUMBER]
    if min(len(low), len(high)) < ENOUGH_OF_A_KIND or len(low) + len(high) < len(known):
        return []
    least, most = np.log10([high.min(), high.max()])
    is_log = high.min() >= LOG_GAP * low.max() and (
        least - 2 <= low.min() and low.max() <= most + 2
    )
    places: list[int] = np.flatnonzero((y > 0) & (y < LOGARITHM)).tolist()
    return places if is_log else []
