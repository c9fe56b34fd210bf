"""Conditioning of a subset model on observations and on fantasies."""

import copy
from typing import Any, Self

import torch
from botorch.exceptions import InputDataError
from botorch.models.utils.assorted import fantasize as fantasize_flag
from torch import Tensor

from botorch_sparse.models.subset.data import FullData, RowsInUse


class SubsetConditioningMixin:
    """New observations call for another choice of rows; fantasies do not."""

    _full: FullData | None
    _subset: RowsInUse | None
    _factor: Any
    add_observations: Any

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """A new model with more data, whose rows are chosen again.

        Fantasies, batches of observations for one model, and observations through which
        gradients flow leave the rows as they are and join them, as in `SingleTaskGP`.

        Args:
            X: `batch_shape x q x d` inputs, before the input transform.
            Y: `batch_shape x q x m` observations, before the outcome transform.
            noise: `batch_shape x q x m` noise variances, after the outcome transform
                (as in `SingleTaskGP`); by default the likelihood's.
            **kwargs: As in `SingleTaskGP`.

        Returns:
            The new model.
        """
        if not self._joins_full_data(X, Y):
            if noise is not None:
                kwargs["noise"] = noise
            return super().condition_on_observations(X, Y, **kwargs)  # type: ignore[misc]
        if noise is not None and self._full is not None and self._full.Yvar is None:
            raise InputDataError(
                "Got noise variances for new observations, but those of the data are "
                "inferred. Leave out noise."
            )
        model = self._copy_of_shared_data()
        return model.add_observations(X, Y, self._raw_variance(Y, noise))

    def get_fantasy_model(self, inputs: Any, targets: Tensor, **kwargs: Any) -> Any:
        """The exact GP on the rows in use and new ones, without the full data."""
        full, subset, factor = self._full, self._subset, self._factor
        self._full = self._subset = self._factor = None
        try:
            return super().get_fantasy_model(inputs, targets, **kwargs)  # type: ignore[misc]
        finally:
            self._full, self._subset, self._factor = full, subset, factor

    def _joins_full_data(self, X: Tensor, Y: Tensor) -> bool:
        """Whether these are observations like those that are there."""
        full = self._full
        return (
            full is not None
            and fantasize_flag.off()
            and not (X.requires_grad or Y.requires_grad)
            and X.shape[:-2] == Y.shape[:-2] == full.X.shape[:-2]
        )

    def _raw_variance(self, Y: Tensor, noise: Tensor | None) -> Tensor | None:
        """Noise variances before the outcome transform."""
        if noise is None:
            return None
        transform = getattr(self, "outcome_transform", None)
        if transform is None:
            return noise
        with torch.no_grad():
            return transform.untransform(torch.zeros_like(Y), noise)[1]  # type: ignore[no-any-return]

    def _copy_of_shared_data(self) -> Self:
        """A copy that shares the tensors of the data, which are never written to."""
        memo: dict[int, Any] = {}
        for shared in (self._full, self._subset, self._factor):
            memo[id(shared)] = shared
        return copy.deepcopy(self, memo)
