"""What a batch of S-BPE looks at before it decides, in few reads of the device."""

import math
from typing import NamedTuple

from linear_operator.utils.errors import NanError
from torch import Tensor

from botorch_sparse.optim.transfers import read
from botorch_sparse.posteriors.growing import GrowingPosterior

WHY = "lam is too small for the kernel, or the kernel returned NaN. Check both."


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

        Raises:
            NanError: If it is NaN.
        """
        return cls.of(read(*cls.scalars(posterior, counts)))

    @classmethod
    def of(cls, values: list[float]) -> "Worst":
        """What was read of `scalars`."""
        row, share, unexplained = values
        if math.isnan(share):
            raise NanError(f"Got a residual of {share}: {WHY}")
        return cls(int(row), share, unexplained > 0)

    @staticmethod
    def scalars(posterior: GrowingPosterior, counts: Tensor) -> list[Tensor]:
        """Three tensors of one element."""
        shares = counts * posterior.residual
        worst = shares.argmax().view(1)
        return [worst, shares.index_select(0, worst), posterior.unexplained(worst)]


class Glance(NamedTuple):
    """What every point of a batch asks for.

    Attributes:
        trace: Of the residuals of the observations since `r_1`.
        next_row: The row of largest variance; ties go to the lowest.
        worst: Since `r_0`; None on the host, which looks for it where it needs it. From
            a device it comes in the same read.
    """

    trace: float
    next_row: int
    worst: Worst | None

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
        is_there = not variance.is_cpu
        trace, largest, next_row, *worst = read(
            since @ posterior.residual,
            variance.index_select(0, row),
            row,
            *(Worst.scalars(posterior, after_base) if is_there else ()),
        )
        if math.isnan(trace + largest):
            raise NanError(
                f"Got a largest variance of {largest:.3g} and residuals of "
                f"{trace:.3g} together: {WHY}"
            )
        return cls(trace, int(next_row), Worst.of(worst) if is_there else None)
