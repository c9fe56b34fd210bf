"""The evaluations of a strategy with repeated points folded."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class FoldedValues:
    """Unique points in the order of their first evaluation, all on the host.

    Attributes:
        point: `n_u` numbers of the points.
        Y: `n_u` mean observations, in float64 as `counts`.
        counts: `n_u` numbers of evaluations.
    """

    point: Tensor
    Y: Tensor
    counts: Tensor

    @classmethod
    def of(cls, point: Tensor, values: Tensor) -> "FoldedValues":
        """Fold `n` observations by the numbers of their points.

        Sums are taken in the order of the feedback, so that a prefix of a history
        always gives the same bits. Cost: O(n log n).
        """
        number, first, inverse, counts = np.unique(
            point.numpy(),
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        total = np.bincount(inverse, weights=values.numpy(), minlength=len(number))
        order = np.argsort(first)
        return cls(
            point=torch.from_numpy(number[order]),
            Y=torch.from_numpy((total / counts)[order]),
            counts=torch.from_numpy(counts[order]).double(),
        )

    def __len__(self) -> int:
        return len(self.point)

    def places(self, numbers: Sequence[int]) -> Tensor:
        """Where some points stand, by their numbers."""
        place = {number: row for row, number in enumerate(self.point.tolist())}
        return torch.tensor([place[number] for number in numbers], dtype=torch.long)


@dataclass(frozen=True)
class FoldedEvaluations:
    """`FoldedValues` where the points of a history are, but for `point`.

    Attributes:
        point: `n_u` point numbers (see `History.point`), on the host.
        X: `n_u x d` coordinates, in float64 as `Y` and `counts`.
        Y: `n_u` mean observations.
        counts: `n_u` numbers of evaluations.
        number: `point` again.
        chosen: `m` places among the points.
    """

    point: Tensor
    X: Tensor
    Y: Tensor
    counts: Tensor
    number: Tensor
    chosen: Tensor

    def __len__(self) -> int:
        return len(self.point)
