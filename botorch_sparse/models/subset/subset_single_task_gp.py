"""An exact GP on a well-chosen part of its data [Wei2025]_."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Self, Unpack

import torch
from botorch.exceptions import InputDataError
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.module import Module
from torch import Tensor

from botorch_sparse.argument_checks import check_generator, check_tensors, check_whole
from botorch_sparse.inducing import GradientFactors, exact_gradients, pilot_gradients
from botorch_sparse.models.subset.fixed_subset import (
    FixedSubsetSingleTaskGP,
    all_observations,
)
from botorch_sparse.models.subset.full_data import FullData, Subset
from botorch_sparse.models.subset.row_indices import (
    first_rows,
    forced_rows,
    selection_generator,
)
from botorch_sparse.models.subset.row_selection import (
    SelectionOptions,
    SubsetSelection,
    rows_by_leverage,
    select_rows,
)
from botorch_sparse.models.subset.subset_checks import (
    validate_counts,
    validate_observations,
    validate_subset_size,
)
from botorch_sparse.models.subset.subset_error import (
    ErrorOptions,
    SubsetErrorBounds,
    subset_error_bounds,
)
from botorch_sparse.private_names import DefaultType


class SubsetSingleTaskGP(FixedSubsetSingleTaskGP):
    r"""`SingleTaskGP` on at most `subset_size` rows of its data [Wei2025]_.

    It is the exact GP of the chosen rows, `train_inputs` and `train_targets`, whatever
    is asked of it: fits, predictions, fantasies and pathwise samples cost what they
    cost for `M = subset_size` observations. The full data are `all_train_X` and
    `all_train_Y`; each new observation is added to them and the rows are chosen again.
    Use it for long runs of Bayesian optimization whose cost per iteration must not
    grow. It forgets what is not chosen: where the posterior of all data is wanted, and
    certified, use `SparseSingleTaskGP`.

    Which rows stay, by the distance of the mean from the exact GP on all data: 60 of
    200 rows, a known kernel, 2 and 6 inputs, noise variances of 1e-3 and 0.1, medians
    of 10 seeds as multiples of the median with random rows (ratios of what
    `python -m benchmarks.gssbo_default` prints).

    - `"leverage"`, the default: the row of which the others say least. 0.5 to 1.0 on
      uniform data, 0.3 to 0.8 on clustered ones, 0.06 to 0.4 where an optimizer chose
      the points; but there, at the best rows alone, 1.2 to 1.6.
    - `"mixed"`: the half of it, the others at random. 0.6 to 1.0, 0.5 to 0.9, 0.08 to
      0.5, and 0.8 to 1.5 at the best rows.
    - `"random"` and `"recent"`: O(n). 0.9 to 1.1, 0.7 to 1.1 and 1.0 to 1.3 for the
      last rows.
    - `"gradient"` [Wei2025]_, by `reading`, for those who follow the paper: on uniform,
      clustered and optimization data 1.0 to 1.6, 1.0 to 1.4 and 0.4 to 0.8 for
      `"contribution"`; 1.2 to 1.4, 1.0 to 1.3 and 0.1 to 0.6 for `"column"`; 0.9 to
      1.0, 0.8 to 1.1 and 0.8 to 1.0 for `"scalar"`.

    Cost of `add_observations`: O(n M^2) but for random and recent rows. The first
    prediction after it factorizes the covariance of the subset, O(M^3). (Half of the
    subset is often replaced, so that updates of the factor save little.)

    Outputs, and the elements of a batch of data, share the choice of rows.

    Args:
        train_X: `batch_shape x n x d` training inputs, all of them.
        train_Y: `batch_shape x n x m` observations.
        train_Yvar: `batch_shape x n x m` noise variances, or None to infer one.
        likelihood: As in `SingleTaskGP`, as the arguments up to `input_transform`.
        subset_size: The largest number M of rows in use; None for all.
        num_initial: The first rows that are always in the subset, such as an initial
            design; the paper's is 20.
        selection: `"leverage"`, `"mixed"`, `"random"`, `"recent"`, `"gradient"` or a
            callable, see `SubsetSelection`. By default `"gradient"` if one of the next
            three is given, and otherwise `"leverage"`.
        reading: The gradient of a sample, `"contribution"` (the default), `"column"` or
            `"scalar"`; see `botorch_sparse.inducing.gp_gradients`.
        gradients: `"pilot"` (the default) for the Nystrom approximation on the present
            subset, or `"exact"`, in O(n^3).
        noise_scale: Standard deviation of the perturbation of the gradients, by default
            the paper's 0.1.
        num_newest: The last rows that are always in the subset, at least those that
            were added together, where they fit.
        seed: Of the randomness of selections, a non-negative integer.

    Attributes:
        num_selections: Selections so far; with the seed they fix the next one's draw.

    Raises:
        InputDataError: For options out of their range, and for data that cannot work.

    Example:
        >>> X = torch.linspace(0, 1, 40, dtype=torch.double).unsqueeze(-1)
        >>> model = SubsetSingleTaskGP(X, (6 * X).sin(), subset_size=10, num_initial=3)
        >>> model.train_inputs[0].shape, model.all_train_X.shape
        (torch.Size([10, 1]), torch.Size([40, 1]))
        >>> _ = model.add_observations(X[:1] + 0.01, (6 * X[:1]).sin())
        >>> model.subset_indices[:3].tolist(), bool((model.subset_indices == 40).any())
        ([0, 1, 2], True)
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        likelihood: Likelihood | None = None,
        covar_module: Module | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        subset_size: int | None = None,
        num_initial: int = 0,
        selection: str | SubsetSelection | None = None,
        reading: str | None = None,
        gradients: str | None = None,
        noise_scale: float | None = None,
        num_newest: int = 1,
        seed: int = 0,
    ) -> None:
        validate_counts(subset_size, num_initial, num_newest, seed)
        chosen = SelectionOptions.of(selection, reading, gradients, noise_scale)
        data, modules = (train_X, train_Y, train_Yvar), (likelihood, covar_module)
        transforms = (outcome_transform, input_transform)
        super().__init__(*data, *modules, mean_module, *transforms)
        self.selection, self.reading = chosen.selection, chosen.reading
        self.gradients, self.noise_scale = chosen.gradients, chosen.noise_scale
        self.subset_size = None if subset_size is None else int(subset_size)
        self.num_initial, self.num_newest = int(num_initial), int(num_newest)
        self.seed, self.num_selections = int(seed), 0
        full = self.subset.full  # at first at random, since selections look at a subset
        num = self._num_rows(full)
        rows = first_rows(len(full), num, num_initial, num_newest, seed)
        self._choose(Subset.of(full, rows))

    @torch.no_grad()
    def sample_gradients(self) -> Tensor | GradientFactors:
        """Gradients of the log likelihood with respect to all observations, by sample.

        Returns:
            What `select_by_gradient_diversity` takes, by the model's `gradients` and
            `reading`. Cost: O(n M^2), or O(n^3) for exact ones.
        """
        kernel, seen = self.covar_module, all_observations(self)
        if self.gradients == "exact":
            return exact_gradients(kernel, *seen, reading=self.reading)
        rows = self.subset_indices
        return pilot_gradients(kernel, *seen, rows, reading=self.reading)

    def rows_by_leverage(self, num: int, forced: Tensor) -> Tensor:
        """`num` rows of the largest residual leverage, after those that are forced.

        See `botorch_sparse.models.subset.row_selection`; for selections of your own.
        """
        X, _, noise = all_observations(self)
        return rows_by_leverage(self.covar_module, X, noise, num, forced)

    def error_bounds(
        self, X: Tensor, **options: Unpack[ErrorOptions]
    ) -> SubsetErrorBounds:
        """How far the posterior at `q x d` raw inputs may be from the exact GP.

        For the options see `models.subset.subset_error.subset_error_bounds`.
        """
        check_tensors(X=X)
        return subset_error_bounds(self, X, **options)

    def add_observations(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Self:
        """Add observations to the full data, in place, and choose the rows again.

        Args:
            X: `batch_shape x q x d` inputs, before the input transform; for none of
                them the rows stay.
            Y: `batch_shape x q x m` observations, before the outcome transform, which
                is applied as it is.
            Yvar: `batch_shape x q x m` noise variances; needed where the data have
                them.
            generator: Source of randomness; by default it follows from the seed and
                the number of selections.

        Returns:
            The model. Cost: see the class.

        Raises:
            BotorchTensorDimensionError: If shapes do not fit the data.
            InputDataError: If dtypes or devices differ, a value is not finite, or noise
                variances are given for new or old observations alone.
            UnsupportedError: If a likelihood that was given has the noise variances.
        """
        full = self.subset.full
        check_generator("generator", generator)
        validate_observations(X, Y, Yvar, full)
        if X.shape[-2] == 0:
            return self
        full = self._as_transformed(full.append(X, Y, Yvar))
        return self._choose(replace(self.subset, full=full), generator, X.shape[-2])

    def reselect(
        self, generator: torch.Generator | None = None, num_newest: int = 0
    ) -> Self:
        """Choose the rows again, in place, under the present hyperparameters.

        The last `num_newest` are chosen at least; see `add_observations` for the rest.
        """
        check_generator("generator", generator)
        check_whole("num_newest", num_newest, least=0)
        return self._choose(self.subset, generator, num_newest)

    def set_train_data(
        self,
        inputs: Tensor | Sequence[Tensor] | None = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """Replace the full data, and choose the rows again."""
        super().set_train_data(inputs, targets, strict)
        if self._subset is not None:
            self._choose(self._subset)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: object
    ) -> SingleTaskGP:
        """A new model with more data, whose rows are chosen again.

        Fantasies, batches of observations for one model, and observations through which
        gradients flow leave the rows as they are and join them, as in `SingleTaskGP`.

        Args:
            X: `batch_shape x q x d` inputs, before the input transform.
            Y: `batch_shape x q x m` observations, before the outcome transform.
            noise: `batch_shape x q x m` noise variances, after the outcome transform
                (as in `SingleTaskGP`); by default the likelihood's.
            **kwargs: As in `SingleTaskGP`.

        Raises:
            InputDataError: If they are no tensors; see also `add_observations`.
        """
        check_tensors(X=X, Y=Y)
        if self._subset is None or not self._subset.full.is_like(X, Y):
            if noise is not None:
                kwargs["noise"] = noise
            return super().condition_on_observations(X, Y, **kwargs)
        if noise is not None and self.all_train_Yvar is None:
            raise InputDataError(
                "Got noise variances for new observations, but the data have "
                "inferred ones. Leave out noise."
            )
        transform = self._outcome_transform
        if noise is not None and transform is not None:
            with torch.no_grad():
                _, noise = transform.untransform(torch.zeros_like(Y), noise)
        return copy.deepcopy(self).add_observations(X, Y, noise)

    @classmethod
    def construct_inputs(
        cls,
        training_data: SupervisedDataset,
        subset_size: int | None = None,
        num_initial: int = 0,
        selection: str | SubsetSelection | None = None,
        reading: str | None = None,
        gradients: str | None = None,
        noise_scale: float | None = None,
        num_newest: int = 1,
        seed: int = 0,
        **kwargs: object,
    ) -> dict[str, object]:
        """Constructor arguments from a data set and the model options of Ax.

        The options are as in the constructor; what else Ax passes is ignored.
        """
        return {
            **super().construct_inputs(training_data),
            "subset_size": subset_size,
            "num_initial": num_initial,
            "selection": selection,
            "reading": reading,
            "gradients": gradients,
            "noise_scale": noise_scale,
            "num_newest": num_newest,
            "seed": seed,
        }

    def _num_rows(self, full: FullData) -> int:
        """Rows to use."""
        validate_subset_size(self.subset_size, self.num_initial)
        n = len(full)
        return n if self.subset_size is None else min(n, self.subset_size)

    def _choose(
        self,
        subset: Subset,
        generator: torch.Generator | None = None,
        num_newest: int = 0,
    ) -> Self:
        """Choose rows, given data and the present rows; all or nothing."""
        before, number = self.subset, self.num_selections
        try:
            return self._condition(self._chosen(subset, generator, num_newest))
        except BaseException:
            self.num_selections = number
            self._condition(before)
            raise

    def _chosen(
        self, subset: Subset, generator: torch.Generator | None, num_newest: int
    ) -> Subset:
        """The subset with the rows that are chosen, on which the model is not yet."""
        n, num = len(subset.full), self._num_rows(subset.full)
        if num == n:
            return subset.switch(torch.arange(n))
        self.num_selections += 1
        if generator is None:
            generator = selection_generator(self.seed, self.num_selections)
        newest = max(self.num_newest, num_newest)
        forced = forced_rows(n, num, self.num_initial, newest)
        self._condition(subset)  # selections look at the model
        return subset.switch(select_rows(self, num, forced, generator))
