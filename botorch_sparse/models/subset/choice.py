"""The choice of the rows that a subset model is conditioned on."""

from typing import Any, Self

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.models.subset.data import FullData, RowsInUse
from botorch_sparse.models.subset.selection import (
    forced_rows,
    selection_generator,
    validate_chosen,
)
from botorch_sparse.models.subset.validation import (
    validate_observations,
    validate_subset_size,
)


class SubsetChoiceMixin:
    """Chooses rows again whenever there are new ones, or on request."""

    subset_size: int | None
    num_initial: int
    num_newest: int
    seed: int
    num_selections: int
    num_observations: int
    selection: Any
    _selection: Any
    _full: FullData | None
    _subset: RowsInUse | None
    _data: Any
    _take: Any
    _retransformed: Any

    def add_observations(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Self:
        """Add observations to the full data, in place, and choose the rows again.

        Args:
            X: `batch_shape x q x d` inputs, before the input transform.
            Y: `batch_shape x q x m` observations, before the outcome transform, which
                is applied as it is.
            Yvar: `batch_shape x q x m` noise variances; needed where those of the data
                are known.
            generator: Source of randomness; by default it follows from the seed and
                the number of selections.

        Returns:
            The model. Cost: see the class.

        Raises:
            BotorchTensorDimensionError: If shapes do not fit the data.
            InputDataError: If dtypes or devices differ, a value is not finite, or noise
                variances are given for new or old observations alone.
        """
        full = self._data()
        validate_observations(X, Y, Yvar, full.X, full.Y)
        if full.Yvar is None and full.noise is not None:
            raise UnsupportedError(
                "The noise variances of the data are part of a likelihood that was "
                "given, so that those of new observations have no place. Build the "
                "model with train_Yvar instead."
            )
        if (Yvar is None) != (full.Yvar is None):
            raise InputDataError(
                f"Got Yvar={'None' if Yvar is None else 'noise variances'}, but those "
                f"of the data are {'known' if Yvar is None else 'inferred'}; they must "
                "be known for all observations or for none."
            )
        with torch.no_grad():
            self._full = self._retransformed(full.append(X, Y, Yvar))
        try:
            return self._choose(generator, num_newest=X.shape[-2])
        except BaseException:
            self._full = full  # nothing was taken yet
            raise

    def reselect(
        self, generator: torch.Generator | None = None, num_newest: int = 0
    ) -> Self:
        """Choose the rows again, in place, under the present hyperparameters.

        Args:
            generator: As in `add_observations`.
            num_newest: The last rows that must be chosen, at least the model's own
                `num_newest`.

        Returns:
            The model.
        """
        return self._choose(generator, num_newest)

    def set_subset(self, indices: Tensor) -> Self:
        """Use exactly these rows of the full data, in this order, in place.

        Args:
            indices: A vector of different indices. The factor is updated where rows
                that are in use come first, in their order.

        Returns:
            The model.

        Raises:
            InputDataError: If it is no such vector.
        """
        none, n = torch.empty(0, dtype=torch.int64), self.num_observations
        num = len(indices) if isinstance(indices, Tensor) else 0
        host = validate_chosen(indices, max(num, 1), n, none).clone()
        self._subset = RowsInUse.of(host, self._data().X.device)
        self._take(host)
        return self

    def _choose(
        self, generator: torch.Generator | None = None, num_newest: int = 0
    ) -> Self:
        """Choose rows by the model's selection."""
        n, num = len(self._data()), self._num_rows()
        if num == n:
            self._take(torch.arange(n))
            return self
        if generator is None:
            generator = selection_generator(self.seed, self.num_selections + 1)
        forced = self._forced(num_newest)
        is_ours = isinstance(self.selection, str)
        given = forced if is_ours else forced.to(self._data().X.device)
        with torch.no_grad():
            chosen = self._selection(self, num, given, generator)
        self.num_selections += 1
        self._take(validate_chosen(chosen, num, n, forced))
        return self

    def _num_rows(self) -> int:
        """Rows to use."""
        n = len(self._data())
        validate_subset_size(self.subset_size, self.num_initial)
        return n if self.subset_size is None else min(n, self.subset_size)

    def _forced(self, num_newest: int) -> Tensor:
        """The rows that must be in the subset, on the host."""
        newest, num = max(self.num_newest, num_newest), self._num_rows()
        return forced_rows(len(self._data()), num, self.num_initial, newest)
