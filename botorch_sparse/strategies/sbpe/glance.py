"""What a batch of S-BPE looks at before it decides: one read of the device."""

import math
from typing import NamedTuple

from linear_operator.utils.errors import NanError
from torch import Tensor

from botorch_sparse.optim.transfers import read
from botorch_sparse.posteriors.growing import GrowingPosterior


class Glance(NamedTuple):
    """Of a batch with observations since `r_0`, and since a later `r_1`.

    Attributes:
        trace: Of the residuals of the observations since `r_1`.
        next_row: The row of largest variance; ties go to the lowest.
        worst: The row that contributes most to the trace of those since `r_0`.
        share: What it contributes.
        is_unexplained: Whether the inducing points leave some of it.
    """

    trace: float
    next_row: int
    worst: int
    share: float
    is_unexplained: bool

    @classmethod
    def at(
        cls,
        posterior: GrowingPosterior,
        since: Tensor,
        after_base: Tensor,
        num_rows: int,
    ) -> "Glance":
        """Look at a posterior. O(A).

        Args:
            posterior: The rows.
            since: `A` numbers of observations since `r_1`.
            after_base: `A` numbers of observations since `r_0`.
            num_rows: How many rows there are to choose from.

        Raises:
            NanError: If a variance or a residual is NaN.
        """
        variance = posterior.variance[:num_rows]
        row = variance.argmax().view(1)
        shares = after_base * posterior.residual
        worst = shares.argmax().view(1)
        trace, largest, next_row, worst_row, share, unexplained = read(
            since @ posterior.residual,
            variance.index_select(0, row),
            row,
            worst,
            shares.index_select(0, worst),
            posterior.unexplained(worst),
        )
        if math.isnan(trace + largest):
            raise NanError(
                f"Got a largest variance of {largest:.3g} and residuals of "
                f"{trace:.3g} together: lam is too small for the kernel, or the "
                "kernel returned NaN. Check both."
            )
        return cls(trace, int(next_row), int(worst_row), share, unexplained > 0)
