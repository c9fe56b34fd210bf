"""The features of points that come with each candidate, computed once.

`qLogNoisyExpectedImprovement` and its relatives ask for the joint posterior of a
candidate and the same baseline points at each step of their maximization.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from botorch_sparse.posteriors.nystrom import NystromPosterior


@dataclass(frozen=True, eq=False)
class KnownFeatures:
    """Points and what one posterior makes of them, without gradients.

    Attributes:
        posterior: The posterior.
        X: `r x d` transformed points.
        features: `batch_shape x r x m`, their features.
        whitened: `batch_shape x r x m`, the same whitened.
    """

    posterior: NystromPosterior
    X: Tensor
    features: Tensor
    whitened: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, posterior: NystromPosterior, X: Tensor) -> Self:
        """What a posterior makes of `r x d` points in its dtype. Cost: O(r m^2)."""
        phi = posterior.features(X)
        return cls(posterior, X, phi, posterior.whiten(phi))

    def begin(self, posterior: NystromPosterior, X: Tensor) -> bool:
        """Whether these are the first rows of `X` for this very posterior.

        The host waits for a device once.

        Args:
            posterior: The posterior that is asked.
            X: A `batch_shape x q x d` tensor, with rows beyond these.
        """
        if posterior is not self.posterior or X.shape[-2] <= len(self.X):
            return False
        first = X[..., : len(self.X), :].to(self.X.dtype)
        return torch.equal(first, self.X.expand_as(first))

    def embed(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """The features of points that begin with these, and the same whitened.

        No gradient flows through what is known.

        Args:
            X: A `batch_shape x q x d` tensor that begins with these points, in the
                dtype of the posterior.

        Returns:
            Two tensors `batch_shape x q x m`. Cost: O(m^2) for each further row.
        """
        phi = self.posterior.features(X[..., len(self.X) :, :])
        w = self.posterior.whiten(phi)
        return _joined(self.features, phi), _joined(self.whitened, w)


def _joined(first: Tensor, rest: Tensor) -> Tensor:
    return torch.cat([first.expand(*rest.shape[:-2], -1, -1), rest], dim=-2)
