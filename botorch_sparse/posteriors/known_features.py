"""The features of points that come with each candidate, computed once.

`qLogNoisyExpectedImprovement` and its relatives ask for the joint posterior of a
candidate and the same baseline points at each step of their maximization.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from botorch_sparse.posteriors.joint_covariance import Embedded
from botorch_sparse.posteriors.nystrom import NystromPosterior


@dataclass(frozen=True, eq=False)
class KnownFeatures:
    """Points and their features under one posterior, without gradients.

    Attributes:
        posterior: The posterior.
        points: `r x d` transformed points, embedded.
    """

    posterior: NystromPosterior
    points: Embedded

    @classmethod
    @torch.no_grad()
    def of(cls, posterior: NystromPosterior, X: Tensor) -> Self:
        """The features of `r x d` points in the posterior's dtype. Cost: O(r m^2)."""
        return cls(posterior, posterior.embed(X))

    def embed(self, posterior: NystromPosterior, X: Tensor) -> Embedded | None:
        """The features of points that begin with these; None for any others.

        No gradient flows through what is known. The host waits for a device once.

        Args:
            posterior: The posterior that is asked; these points are of one alone.
            X: A `batch_shape x q x d` tensor.

        Returns:
            The points embedded. Cost: O(m^2) for each row beyond these.
        """
        r = len(self.points.X)
        if posterior is not self.posterior or X.shape[-2] <= r:
            return None
        Z = X.to(self.points.X)
        first, rest = Z[..., :r, :], Z[..., r:, :]
        if not torch.equal(first, self.points.X.expand_as(first)):
            return None
        return Embedded(Z, *map(_joined, self.points[1:], posterior.embed(rest)[1:]))


def _joined(first: Tensor, rest: Tensor) -> Tensor:
    return torch.cat([first.expand(*rest.shape[:-2], -1, -1), rest], dim=-2)
