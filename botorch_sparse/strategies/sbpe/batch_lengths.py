r"""How long the batches of S-BPE are.

References:
    .. [Vakili2022]
        S. Vakili, J. Scarlett, D. Shiu, A. Bernacchia. Improved Convergence Rates for
        Sparse Approximation Methods in Kernel-Based Learning. ICML 2022.
    .. [Li2022]
        Z. Li, J. Scarlett. Gaussian Process Bandit Optimization with Few Batches.
        AISTATS 2022.
"""

import math
from collections.abc import Sequence
from typing import Literal

from botorch.exceptions import InputDataError

Schedule = Literal["sqrt", "doubling"]


def batch_lengths(
    num_evaluations: int, schedule: Schedule | Sequence[int] = "sqrt"
) -> list[int]:
    r"""Lengths of the batches, the last one cut so that they sum up to the horizon.

    `"sqrt"`, [Vakili2022]_ Algorithm 1 after [Li2022]_, with :math:`N_0 = 1`:

    .. math:: N_i = \lceil \sqrt{N N_{i-1}} \rceil

    has O(log log N) batches. `"doubling"` starts at the same
    :math:`N_1 = \lceil \sqrt N \rceil` and doubles, O(log N) batches: more rounds of
    feedback, and eliminations come sooner. A sequence of lengths is taken as it is, its
    last entry repeated while the horizon is not reached.

    Args:
        num_evaluations: The horizon N.
        schedule: A name, or positive lengths in a list, an array or a tensor.

    Returns:
        Positive lengths.

    Raises:
        InputDataError: If the horizon or a length is below one, or the name is unknown.

    Example:
        >>> batch_lengths(10_000)
        [100, 1000, 3163, 5625, 112]
        >>> batch_lengths(1000, "doubling")
        [32, 64, 128, 256, 512, 8]
    """
    N = at_least_one("num_evaluations", num_evaluations)
    fixed = None if isinstance(schedule, str) else _validate_lengths(schedule)
    if fixed is None and schedule not in ("sqrt", "doubling"):
        raise InputDataError(
            f"Got schedule={schedule!r}; need 'sqrt', 'doubling' or a list of lengths."
        )
    lengths: list[int] = []
    while (left := N - sum(lengths)) > 0:
        if fixed is not None:
            length = fixed[min(len(lengths), len(fixed) - 1)]
        elif schedule == "sqrt" or not lengths:
            length = _ceil_sqrt(N * (lengths[-1] if lengths else 1))
        else:
            length = 2 * lengths[-1]
        lengths.append(min(length, left))
    return lengths


def max_num_batches(
    num_evaluations: int, schedule: Schedule | Sequence[int] = "sqrt"
) -> int:
    r"""The number B of batches that the confidence level is shared among.

    :math:`B = \lceil \log_2 \log_2 N \rceil + 1` for `"sqrt"` ([Li2022]_ Proposition 1;
    the base is 2: with natural logarithms the bound fails at N = 10^4), and 1 for
    N = 1; the number itself for other schedules.
    """
    if not isinstance(schedule, str) or schedule != "sqrt":
        return len(batch_lengths(num_evaluations, schedule))
    N = at_least_one("num_evaluations", num_evaluations)
    return 1 if N <= 2 else math.ceil(math.log2(math.log2(N))) + 1


def _ceil_sqrt(value: int) -> int:
    """The smallest integer whose square is at least `value`; exact."""
    return math.isqrt(value - 1) + 1


def _validate_lengths(lengths: Sequence[int]) -> list[int]:
    """Positive integers, at least one of them."""
    try:
        given = [*lengths]
    except TypeError:  # a number, or an array of dimension zero
        given = []
    if not given:
        raise InputDataError(
            f"Got schedule={lengths!r}; need at least one batch length in a list."
        )
    return [at_least_one("schedule, a batch length", each) for each in given]


def at_least_one(name: str, value: int) -> int:
    """The value as an integer, if it is a positive whole number."""
    try:
        is_number = math.isfinite(value) and not isinstance(value, bool)
        whole = int(value) if is_number else 0
    except TypeError:
        whole = 0
    if whole < 1 or whole != value:
        raise InputDataError(f"Got {name}={value!r}; need a whole number from 1 on.")
    return whole
