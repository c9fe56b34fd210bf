r"""An exact GP on a well-chosen part of its data.

References:
    [Wei2025]_ (GSSBO; see `botorch_sparse.inducing.gradient_diversity`).
"""

from typing import Any

import torch
from botorch import settings
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.module import Module
from torch import Tensor

from botorch_sparse.inducing import (
    GradientFactors,
    exact_gradients,
    pilot_gradients,
)
from botorch_sparse.models.subset.choice import SubsetChoiceMixin
from botorch_sparse.models.subset.conditioning import SubsetConditioningMixin
from botorch_sparse.models.subset.error import SubsetErrorBounds, subset_error_bounds
from botorch_sparse.models.subset.factorization import SubsetFactorizationMixin
from botorch_sparse.models.subset.selection import SubsetSelection, selection_named
from botorch_sparse.models.subset.training_data import SubsetTrainingDataMixin
from botorch_sparse.models.subset.validation import validate_subset_options
from botorch_sparse.models.validation import (
    validate_modules,
    validate_scaling,
    validate_training_data,
)


class SubsetSingleTaskGP(
    SubsetConditioningMixin,
    SubsetFactorizationMixin,
    SubsetChoiceMixin,
    SubsetTrainingDataMixin,
    SingleTaskGP,
):
    r"""`SingleTaskGP` on at most `subset_size` rows of its data [Wei2025]_.

    It is the exact GP of the chosen rows, `train_inputs` and `train_targets`, whatever
    is asked of it: fits, predictions, fantasies and pathwise samples cost what they
    cost for `M = subset_size` observations. The full data are `all_train_X` and
    `all_train_Y`; each new observation is added to them and the rows are chosen again.
    Use it for long runs of Bayesian optimization whose cost per iteration must not
    grow. It forgets what is not chosen: where the posterior of all data is wanted, and
    certified, use `SparseSingleTaskGP`.

    Cost of `add_observations` with `selection="gradient"`: O(n M^2), a few matrix
    products and M matrix-vector products. The Cholesky factor of the subset is updated
    while the hyperparameters stand, O(M^2) for each row that leaves or joins; where
    more than three leave, what is left is factorized again from the kernel values that
    are there, which is faster. The greedy choice often replaces half of the subset;
    `"recent"` replaces one row.

    Outputs, and the elements of a batch of data, share the choice of rows.

    Transforms are fitted on all data, not on the subset, and stay as they are until
    `refit_transforms`: hyperparameters are in units of the transformed observations,
    and the units must not change with each choice of rows while they stand. (On data
    of 300 evaluations of Hartmann6 and Levy10, M = 80 and 6 seeds, neither way was more
    accurate beyond the spread of the seeds.)

    Args:
        train_X: `batch_shape x n x d` training inputs, all of them.
        train_Y: `batch_shape x n x m` observations.
        train_Yvar: `batch_shape x n x m` noise variances, or None to infer one.
        likelihood: As in `SingleTaskGP`.
        covar_module: As in `SingleTaskGP`.
        mean_module: As in `SingleTaskGP`.
        outcome_transform: As in `SingleTaskGP`.
        input_transform: As in `SingleTaskGP`.
        subset_size: The largest number M of rows in use; None for all.
        num_initial: The first rows that are always in the subset, such as an initial
            design; the paper's is 20.
        selection: `"gradient"` (diverse gradients), `"random"`, `"recent"` or a
            callable, see `SubsetSelection`.
        reading: The gradient of a sample, `"contribution"`, `"column"` or `"scalar"`;
            see `botorch_sparse.inducing.gp_gradients`.
        gradients: `"pilot"` for the Nystrom approximation on the present subset, or
            `"exact"`, in O(n^3).
        noise_scale: Standard deviation of the perturbation of the gradients, by default
            that of the paper, whose variance is 0.01.
        num_newest: The last rows that are always in the subset, at least those that
            were added together, where they fit.
        seed: Of the randomness of selections, a non-negative integer.

    Attributes:
        num_selections: Selections made so far; with the seed it fixes the next one's
            randomness.

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
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        subset_size: int | None = None,
        num_initial: int = 0,
        selection: str | SubsetSelection = "gradient",
        reading: str = "contribution",
        gradients: str = "pilot",
        noise_scale: float = 0.1,
        num_newest: int = 1,
        seed: int = 0,
    ) -> None:
        is_scaled = input_transform is not None
        validate_training_data(train_X, train_Y, train_Yvar, is_scaled)
        validate_modules(likelihood, covar_module, mean_module, None)
        validate_subset_options(
            subset_size=subset_size,
            num_initial=num_initial,
            num_newest=num_newest,
            reading=reading,
            gradients=gradients,
            noise_scale=noise_scale,
            seed=seed,
        )
        with settings.validate_input_scaling(False):  # see `validate_scaling`
            super().__init__(
                train_X=train_X,
                train_Y=train_Y,
                train_Yvar=train_Yvar,
                likelihood=likelihood,
                covar_module=covar_module,
                mean_module=mean_module,
                outcome_transform=outcome_transform,
                input_transform=input_transform,
            )
        validate_scaling(self, train_X, check_nans_only=covar_module is not None)
        self.selection = selection
        self._selection = selection_named(selection)
        self.subset_size, self.num_initial = subset_size, num_initial
        self.num_newest, self.seed, self.num_selections = num_newest, seed, 0
        self.reading, self.gradients = reading, gradients
        self.noise_scale = noise_scale
        self._set_full_data(train_X, train_Y, train_Yvar)

    def sample_gradients(self) -> Tensor | GradientFactors:
        """Gradients of the log likelihood with respect to all observations, by sample.

        Returns:
            What `select_by_gradient_diversity` takes, by the model's `gradients` and
            `reading`. Cost: O(n M^2), or O(n^3) for exact ones.
        """
        with torch.no_grad():
            X, targets = self._all_inputs(), self._all_targets()
            error, noise = targets - self.mean_module(X), self._all_noise(X)
        if self.gradients == "exact":
            return exact_gradients(
                self.covar_module, X, error, noise, reading=self.reading
            )
        return pilot_gradients(
            self.covar_module,
            X,
            error,
            noise,
            self.subset_indices,
            reading=self.reading,
        )

    def error_bounds(self, X: Tensor, **kwargs: Any) -> SubsetErrorBounds:
        """How far the posterior at `X` may be from that of all data.

        Args:
            X: `q x d` inputs, before the input transform.
            **kwargs: For `botorch_sparse.models.subset.error.subset_error_bounds`.

        Returns:
            Bounds for mean and variance, each `q x m`.
        """
        return subset_error_bounds(self, X, **kwargs)

    def subset_output(self, idcs: list[int]) -> "SubsetSingleTaskGP":
        """The model of some outputs, on the same rows."""
        model = super().subset_output(idcs)
        if list(idcs) != list(range(self.num_outputs)):
            model._keep_outputs(list(idcs))
        return model

    @classmethod
    def construct_inputs(
        cls,
        training_data: SupervisedDataset,
        subset_size: int | None = None,
        num_initial: int = 0,
        selection: str | SubsetSelection = "gradient",
        reading: str = "contribution",
        gradients: str = "pilot",
        noise_scale: float = 0.1,
        num_newest: int = 1,
        seed: int = 0,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Constructor arguments from a data set and the model options of Ax.

        Args:
            training_data: The data.
            subset_size: As in the constructor, as the others up to `seed`.
            num_initial: See there.
            selection: See there.
            reading: See there.
            gradients: See there.
            noise_scale: See there.
            num_newest: See there.
            seed: See there.
            **kwargs: What Ax passes to every model; ignored.

        Returns:
            Keyword arguments of the constructor.
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
