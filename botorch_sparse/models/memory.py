"""How many inducing points a memory budget allows."""

import math

# Peak of a fit and of a first posterior, in float64 numbers: measured 26 m^2 at
# m = 1000 and 22 m^2 at m = 2000, whatever n is, and blocks of rows.
PER_PAIR, PER_POINT = 26, 8192
BYTES = 8


def affordable_inducing_points(max_memory: int) -> int:
    """The largest `m` whose fit and posterior stay within a budget, at least one.

    Nothing of the size of the data is kept, so that the budget does not depend on `n`.

    Args:
        max_memory: Bytes.

    Example:
        >>> affordable_inducing_points(2**30)
        2119
    """
    # PER_PAIR m^2 + PER_POINT m = budget
    budget = max_memory / BYTES
    half = PER_POINT / (2 * PER_PAIR)
    return max(1, math.floor(math.sqrt(half**2 + budget / PER_PAIR) - half))
