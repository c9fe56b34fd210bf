"""What a batch makes of the variance at some points: computed once, or kept along."""

from functools import cached_property

import torch
from torch import Tensor

from botorch_sparse.acquisition.frozen.base import Features, FrozenPosterior


class FrozenPoints:
    """Variances and covariances at points, computed where they are asked for.

    Gradients flow to the points.

    Args:
        frozen: The posterior with its batch.
        X: `N x d` points.

    Attributes:
        features: Their features, `aug x N x ...`.
    """

    def __init__(self, frozen: FrozenPosterior, X: Tensor) -> None:
        self.frozen = frozen
        self.features: Features = frozen.features(X)

    @cached_property
    def variance(self) -> Tensor:
        r""":math:`\mathrm{var}_{fb}(x)`, above rounding; `aug x N`."""
        return self._above_rounding(self.frozen.initial_variance(self.features))

    @property
    def reduced_variance(self) -> Tensor:
        r""":math:`\mathrm{var}_t(x)`, above rounding; `aug x N`."""
        residual, embedded = self.frozen.parts(self.features)
        left = (embedded - self._reduction()).clamp_min(0.0)
        return self._above_rounding(residual + left)

    def sums(self) -> tuple[Tensor, Tensor]:
        r"""Sums over the batch, :math:`1/d_s` times squared covariances; `aug x N`.

        Returns:
            The sum of full, and of embedded covariances.
        """
        full, embedded = self.frozen.covariances(self.features)
        weights = self.frozen.noise.reciprocal().unsqueeze(-1)
        return (
            (full.square() @ weights).squeeze(-1),
            (embedded.square() @ weights).squeeze(-1),
        )

    def _reduction(self) -> Tensor:
        return self.frozen.reduction(self.features).square().sum(-1)

    def _above_rounding(self, variance: Tensor) -> Tensor:
        # A kernel is known to eps; a ratio of less is one of rounding errors.
        eps = torch.finfo(variance.dtype).eps
        return torch.maximum(variance, eps * self.features.prior_variance)


class FrozenTable(FrozenPoints):
    r"""The same for a table of choices, brought up to date point by point.

    Features are kept. A new point of the batch lowers the variances at once, at O(A m);
    its squared covariances are added when the sums are next asked for, at O(A m).

    Args:
        frozen: The posterior; its batch may have points already.
        X: `A x d` choices.
    """

    def __init__(self, frozen: FrozenPosterior, X: Tensor) -> None:
        with torch.no_grad():
            super().__init__(frozen, X)
            self.X = X
            self.mean = frozen.mean(self.features)
            self._rows = frozen.reduction(self.features)
            self._drop = self._rows.square().sum(-1)
            self._sums = self.mean.new_zeros(2, *self.mean.shape)
            self._num_summed = 0

    def choose(self, index: Tensor) -> None:
        """Make one of the choices pending, with the features that are kept.

        Args:
            index: Its row, one element. It stays on its device.
        """
        features = self.features.rows(index)
        self.add(self.frozen.add_features(self.X[index], features))

    @torch.no_grad()
    def add(self, frozen: FrozenPosterior) -> None:
        """Bring the table up to date with a posterior that has one more point."""
        row = frozen.last_reduction(self.features, self._rows)
        if frozen.needs_all_rows:
            self._rows = torch.cat([self._rows, row.unsqueeze(-1)], -1)
        self._drop = self._drop + row.square()
        self.frozen = frozen

    def _reduction(self) -> Tensor:
        return self._drop

    @torch.no_grad()
    def sums(self) -> tuple[Tensor, Tensor]:
        """See `FrozenPoints`; only points not summed yet cost anything."""
        start, stop = self._num_summed, len(self.frozen.X_batch)
        weights = self.frozen.noise.reciprocal().unsqueeze(-1)[..., start:stop, :]
        if start < stop:
            both = self.frozen.covariances(self.features, start)
            squares = torch.stack([c.square() @ weights for c in both])
            self._sums = self._sums + squares.squeeze(-1)
            self._num_summed = stop
        full, embedded = self._sums
        return full, embedded
