"""Which candidates of a pool may be chosen."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Choosable:
    """All candidates but some, each any number of times or once.

    Attributes:
        excluded: `k` candidates that may not be chosen, where the pool is; None for
            none.
        once: Whether a candidate may be chosen only once within a batch.
    """

    excluded: Tensor | None = None
    once: bool = False

    def to(self, device: torch.device) -> "Choosable":
        """The same where the pool is."""
        if self.excluded is None:
            return self
        return replace(self, excluded=self.excluded.to(device))

    def mean(self, mean: Tensor) -> Tensor:
        """The means of all candidates (`A`), minus infinity where excluded.

        A copy where it is going to change.
        """
        if self.excluded is None:
            return mean.clone() if self.once else mean
        return mean.index_fill(0, self.excluded, -torch.inf)


ALL = Choosable()
