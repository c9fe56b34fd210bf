"""Posteriors that keep what they know of the points that come with each candidate.

`qLogNoisyExpectedImprovement` and its relatives ask for the joint posterior of a
candidate and the same baseline points at each step of their maximization.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import torch
from torch import Tensor

from botorch_sparse.posteriors.nystrom import NystromPosterior


class KnownRows(NamedTuple):
    """Points in the transformed space, `r x d`, and what belongs to them."""

    X: Tensor
    features: Tensor  # batch_shape x r x m
    whitened: Tensor  # batch_shape x r x m
    chol_inner: Tensor  # that the last are of


@dataclass(frozen=True, eq=False)
class KnownRowsPosterior(NystromPosterior):
    """`NystromPosterior` whose features of some points are computed once.

    They are used for tensors that begin with these points, all of them in their order.
    No gradient flows through what is known. Cost for a candidate: O(m^2) with any
    number of them, instead of O(r m^2).

    Attributes:
        known: The points.
    """

    known: KnownRows | None = None

    @classmethod
    def of(cls, posterior: NystromPosterior, X: Tensor) -> Self:
        """The same posterior that knows `r x d` transformed points."""
        state = {f.name: getattr(posterior, f.name) for f in fields(NystromPosterior)}
        features = posterior.features(X)
        whitened = posterior.whiten(features)
        known = KnownRows(X, features, whitened, posterior.chol_inner)
        return cls(**state, known=known)

    def features(self, X: Tensor) -> Tensor:
        """See `NystromPosterior`."""
        if not self._begins(X, "X"):
            return super().features(X)
        return self._joined("features", X, super().features)

    def whiten(self, features: Tensor) -> Tensor:
        """See `NystromPosterior`."""
        if not self._begins(features, "features"):
            return super().whiten(features)
        return self._joined("whitened", features, super().whiten)

    def _begins(self, rows: Tensor, name: str) -> bool:
        """Whether the rows begin with the known ones, of this very posterior."""
        known = self.known
        if known is None or known.chol_inner is not self.chol_inner or self.updates:
            return False
        start = getattr(known, name)
        if rows.dim() < start.dim() or rows.shape[-2] <= len(known.X):
            return False
        first = rows[..., : len(known.X), :]
        return torch.equal(first, start.expand_as(first))

    def _joined(
        self, name: str, rows: Tensor, fn: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """What is known, and a function of the other rows."""
        known = getattr(self.known, name)
        rest = fn(rows[..., known.shape[-2] :, :])
        return torch.cat([known.expand(*rest.shape[:-2], -1, -1), rest], dim=-2)
