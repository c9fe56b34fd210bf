"""The evaluations of a strategy with repeated points folded."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.strategies.history import History


@dataclass(frozen=True)
class FoldedEvaluations:
    """Unique points in the order of their first evaluation.

    Attributes:
        point: `n_u` point numbers (see `History.point`), on the host.
        X: `n_u x d` coordinates, in float64 as `Y` and `counts`.
        Y: `n_u` mean observations.
        counts: `n_u` numbers of evaluations.
    """

    point: Tensor
    X: Tensor
    Y: Tensor
    counts: Tensor

    @classmethod
    def of(cls, history: History, num_evaluations: int) -> "FoldedEvaluations":
        """Fold the first evaluations of a history.

        Sums are taken in the order of the feedback, so that a prefix of the history
        always gives the same bits. Cost: O(n log n) on the host.
        """
        evaluated = history.point[:num_evaluations].numpy()
        number, first, inverse, counts = np.unique(
            evaluated, return_index=True, return_inverse=True, return_counts=True
        )
        Y = np.asarray(history.values[:num_evaluations])
        total = np.bincount(inverse, weights=Y, minlength=len(number))
        order = np.argsort(first)
        point = torch.from_numpy(number[order])
        X = history.points(point).double()
        return cls(
            point=point,
            X=X,
            Y=torch.from_numpy((total / counts)[order]).to(X),
            counts=torch.from_numpy(counts[order]).to(X),
        )

    def __len__(self) -> int:
        return len(self.point)
