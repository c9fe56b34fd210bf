"""What a batch of S-BPE looks at before it decides, each in one read of the device."""

import math
from typing import NamedTuple

from linear_operator.utils.errors import NanError
from torch import Tensor

from botorch_sparse.optim.transfers import read
from botorch_sparse.posteriors.growing import GrowingPosterior


class Glance(NamedTuple):
    """What every point of a batch asks for.

    Attributes:
        trace: Of the residuals of some observations.
        next_row: The row of largest variance; ties go to the lowest.
    """

    trace: float
    next_row: int

    @classmethod
    def at(cls, posterior: GrowingPosterior, counts: Tensor, num_rows: int) -> "Glance":
        """Look at a posterior. O(A).

        Args:
            posterior: The rows.
            counts: `A` numbers of those observations.
            num_rows: How many rows there are to choose from.

        Raises:
            NanError: If a variance or a residual is NaN.
        """
        variance = posterior.variance[:num_rows]
        row = variance.argmax().view(1)
        trace, largest, next_row = read(
            counts @ posterior.residual, variance.index_select(0, row), row
        )
        if math.isnan(trace + largest):
            raise NanError(
                f"Got a largest variance of {largest:.3g} and residuals of "
                f"{trace:.3g} together: lam is too small for the kernel, or the "
                "kernel returned NaN. Check both."
            )
        return cls(trace, int(next_row))


class Worst(NamedTuple):
    """The row that contributes most to the trace of some observations.

    Attributes:
        row: The row.
        share: What it contributes.
        is_unexplained: Whether the inducing points leave some of it.
    """

    row: int
    share: float
    is_unexplained: bool

    @classmethod
    def at(cls, posterior: GrowingPosterior, counts: Tensor) -> "Worst":
        """Look for it. O(A).

        Args:
            posterior: The rows.
            counts: `A` numbers of the observations.
        """
        shares = counts * posterior.residual
        worst = shares.argmax().view(1)
        row, share, unexplained = read(
            worst, shares.index_select(0, worst), posterior.unexplained(worst)
        )
        return cls(int(row), share, unexplained > 0)
