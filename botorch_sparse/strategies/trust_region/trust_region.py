"""How a trust region grows, shrinks and ends."""

import math
from dataclasses import dataclass, replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.kernels.lengthscales import innermost

# In sides of the box; the first two are those of [Eriksson2019]_, which ends at 2^-7.
INITIAL_LENGTH, LARGEST_LENGTH, SMALLEST_LENGTH = 0.8, 1.6, 0.5**12
SUCCESSES = 3  # in a row, after which a region doubles
# By how much a success beats the best value, in units of its lead on the median.
MARGIN = 1e-3


@dataclass(frozen=True)
class Region:
    """A trust region, from its first points until it is too small; a value.

    Attributes:
        run: Its number; a region that begins anew has another one.
        start: Evaluations that were learned when it began.
        length: Of its side, as a part of the box's, before lengthscales scale it.
        successes: Rounds of feedback in a row that brought a better value.
        failures: Evaluations since the last of them.
        center: Number of the point in its middle; None before feedback.
    """

    run: int
    start: int = 0
    length: float = INITIAL_LENGTH
    successes: int = 0
    failures: int = 0
    center: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is too small to go on."""
        return self.length < SMALLEST_LENGTH

    def after(self, num: int, *, is_success: bool, tolerance: int) -> "Region":
        """The region after a round of feedback.

        Args:
            num: Evaluations that the round brought it.
            is_success: Whether one of them was better than all before.
            tolerance: Evaluations without success after which it is halved.
        """
        successes = self.successes + 1 if is_success else 0
        failures = 0 if is_success else self.failures + num
        length = self.length
        if successes >= SUCCESSES:
            successes, length = 0, min(2 * length, LARGEST_LENGTH)
        elif failures >= tolerance:
            failures, length = 0, length / 2
        return replace(self, length=length, successes=successes, failures=failures)


def fail_tolerance(dim: int, batch_size: int) -> int:
    r"""Evaluations without success after which a region is halved.

    :math:`q \lceil \max(4/q, d/q) \rceil`, as many whole batches as in
    [Eriksson2019]_.
    """
    return batch_size * math.ceil(max(4 / batch_size, dim / batch_size))


def is_better(new: Tensor, before: Tensor) -> bool:
    """Whether one of `k` values is better than all of `n` by more than a margin.

    The margin moves with the unit of the values, and not with what is added to them.
    Values of minus infinity do not count.
    """
    new, before = new[new > -torch.inf], before[before > -torch.inf]
    if not len(new) or not len(before):
        return len(new) > 0
    best = before.max()
    return bool(new.max() > best + MARGIN * (best - before.median()))


@torch.no_grad()
def side_weights(kernel: Kernel, span: Tensor) -> Tensor:
    """What multiplies the length in each feature, `d`, of product one.

    Proportional to the lengthscales, in sides of the box.

    Args:
        kernel: A kernel of one lengthscale, or of one for each feature; all sides are
            alike for others.
        span: `d` sides of the box in units of the kernel's inputs.
    """
    lengthscale = getattr(innermost(kernel), "lengthscale", None)
    if lengthscale is None or lengthscale.numel() not in (1, len(span)):
        return torch.ones_like(span)
    logs = (lengthscale.flatten().to(span) / span).log()
    return (logs - logs.mean()).exp()
