"""An exact GP on rows of its data that are given."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple, Self

import torch
from botorch.exceptions import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.module import Module
from torch import Tensor

from botorch_sparse.argument_checks import check_tensors
from botorch_sparse.models.subset.full_data import FullData, Subset, fixed_noise
from botorch_sparse.models.subset.row_indices import most_recent_rows, validate_chosen
from botorch_sparse.models.training_data import (
    likelihood_noise,
    validate_modules,
    validate_scaling,
    validate_training_data,
    validate_transforms,
)
from botorch_sparse.private_names import DefaultType
from botorch_sparse.threads import data_unchecked


class FixedSubsetSingleTaskGP(SingleTaskGP):
    """`SingleTaskGP` on some rows of its data, at first on all.

    All that it holds beside `SingleTaskGP` is one value, `subset`. Training data follow
    from it by `_condition`, so that nothing that is derived from data outlives it.

    Transforms are fitted on all data, not on the subset, and stay as they are until
    `refit_transforms`: hyperparameters are in units of the transformed observations,
    and the units must not change with each choice of rows while they stand.

    Args:
        train_X: `batch_shape x n x d` training inputs, all of them.
        train_Y: `batch_shape x n x m` observations.
        train_Yvar: `batch_shape x n x m` noise variances, or None to infer one.
        likelihood: As in `SingleTaskGP`, as the arguments after it.

    Raises:
        InputDataError: For data that cannot work.
    """

    _subset: Subset | None = None  # None in a fantasy model

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
    ) -> None:
        is_scaled = input_transform is not None
        validate_training_data(train_X, train_Y, train_Yvar, is_scaled)
        validate_modules(likelihood, covar_module, mean_module, None)
        validate_transforms(input_transform, outcome_transform)
        with data_unchecked():  # see `validate_scaling`
            super().__init__(
                train_X,
                train_Y,
                train_Yvar,
                likelihood=likelihood,
                covar_module=covar_module,
                mean_module=mean_module,
                outcome_transform=outcome_transform,
                input_transform=input_transform,
            )
        validate_scaling(self, train_X, check_nans_only=covar_module is not None)
        noise = fixed_noise(self.likelihood, self.train_targets)
        full = FullData(train_X, train_Y, train_Yvar, self.train_targets, noise)
        self._subset = Subset.of(full, torch.arange(len(full)))

    @property
    def subset(self) -> Subset:
        """The full data, and the rows of them in use.

        Raises:
            UnsupportedError: In a fantasy model.
        """
        if self._subset is None:
            raise UnsupportedError(
                "This is a fantasy model: it is conditioned on the rows that were in "
                "use and on the fantasies, and holds no further data. Use train_inputs "
                "and train_targets."
            )
        return self._subset

    @property
    def all_train_X(self) -> Tensor:
        """All inputs before the input transform, `batch_shape x n x d`."""
        return self.subset.full.X

    @property
    def all_train_Y(self) -> Tensor:
        """All observations before the outcome transform, `batch_shape x n x m`."""
        return self.subset.full.Y

    @property
    def all_train_Yvar(self) -> Tensor | None:
        """All noise variances before the transform, None where they are inferred."""
        return self.subset.full.Yvar

    @property
    def num_observations(self) -> int:
        """The number `n` of observations, in use or not."""
        return len(self.subset.full)

    @property
    def subset_indices(self) -> Tensor:
        """Rows of the full data in use, in the order of `train_inputs`."""
        return self.subset.index

    def set_subset(self, indices: Tensor) -> Self:
        """Use exactly these rows of the full data, in this order, in place.

        Args:
            indices: A vector of different indices.

        Raises:
            InputDataError: If it is no such vector.
        """
        full, none = self.subset.full, torch.empty(0, dtype=torch.int64)
        num = len(indices) if isinstance(indices, Tensor) else 0
        rows = validate_chosen(indices, max(num, 1), len(full), none).clone()
        return self._condition(Subset.of(full, rows))

    @torch.no_grad()
    def refit_transforms(self) -> Self:
        """Learn the transforms again from all data, in place, before a fit.

        Hyperparameters are in units of the transformed data.
        """
        full, transform = self.subset.full, self._outcome_transform
        inputs = getattr(self, "input_transform", None)
        if inputs is not None:
            inputs.train()
            inputs(full.X)
        if transform is not None:
            transform.train()
            full = full.retransform(transform)
        self.train(self.training)
        return self._condition(replace(self.subset, full=full))

    def transform_inputs(
        self, X: Tensor, input_transform: Module | None = None
    ) -> Tensor:
        """As in `SingleTaskGP`; `posterior` and all that takes inputs comes here.

        Raises:
            InputDataError: If they are no tensor.
        """
        check_tensors(X=X)
        return super().transform_inputs(X, input_transform)

    def set_train_data(
        self,
        inputs: Tensor | Sequence[Tensor] | None = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """Replace the full data.

        As many rows as before stay in use, if there are: the same ones, and the last
        for those that are gone.

        Args:
            inputs: All inputs, before the input transform.
            targets: All targets, in the transformed space, as in `ExactGP`.
            strict: Whether the shapes must be as before.

        Raises:
            BotorchTensorDimensionError: If inputs and targets differ in `n`.
            InputDataError: If there are more rows than known noise variances.
        """
        if self._subset is None:
            super().set_train_data(inputs, targets, strict)
            return
        old, rows = self._subset.full, self._subset.rows
        X = old.X if inputs is None else _one_tensor(inputs, old.X.dim())
        targets = old.targets if targets is None else targets
        if strict and (X.shape, targets.shape) != (old.X.shape, old.targets.shape):
            raise RuntimeError(
                f"Cannot modify the shapes of the data from {tuple(old.X.shape)} and "
                f"{tuple(old.targets.shape)} to {tuple(X.shape)} and "
                f"{tuple(targets.shape)}. Use strict=False."
            )
        with torch.no_grad():
            full = old.with_targets(X, targets, self._outcome_transform)
        n, kept = len(full), rows[rows < len(full)]
        rows = most_recent_rows(n, min(n, len(rows)), kept)
        self._condition(Subset.of(full, rows))

    def get_fantasy_model(
        self, inputs: Tensor | list[Tensor], targets: Tensor, **kwargs: object
    ) -> SingleTaskGP:
        """The exact GP on the rows in use and new ones, without the full data."""
        fantasy = super().get_fantasy_model(inputs, targets, **kwargs)
        fantasy._subset = None
        return fantasy

    def subset_output(self, idcs: list[int]) -> Self:
        """The model of some outputs, on the same rows."""
        model = super().subset_output(idcs)
        if self._subset is not None and list(idcs) != list(range(self.num_outputs)):
            full = self._subset.full.subset_outputs(idcs)
            model._condition(replace(self._subset, full=full))
        return model

    def load_state_dict(
        self,
        state_dict: Mapping[str, object],
        strict: bool = True,
        keep_transforms: bool = True,
        assign: bool = False,
    ) -> None:
        """As in `SingleTaskGP`; all targets follow the loaded outcome transform."""
        if self._subset is None or not keep_transforms:
            super().load_state_dict(state_dict, strict, keep_transforms, assign)
            return
        super().load_state_dict(state_dict, strict, False, assign)
        for name in ("input_transform", "outcome_transform"):
            if hasattr(self, name):
                getattr(self, name).eval()
        full = self._as_transformed(self.subset.full)
        self._condition(replace(self.subset, full=full))

    def train(self, mode: bool = True) -> Self:
        """As in `SingleTaskGP`, but input transforms learn nothing from the subset."""
        super().train(mode)
        if self._subset is not None and hasattr(self, "input_transform"):
            for module in self.input_transform.modules():
                if hasattr(module, "learn_coefficients"):
                    module.training = False
        return self

    def _condition(self, subset: Subset) -> Self:
        """Take a subset, and its rows as training data."""
        self._subset, noise = subset, subset.noise
        if noise is not None:
            self.likelihood.noise_covar.noise = noise
        super().set_train_data(self._inputs_in_use(subset.X), subset.targets, False)
        return self

    @torch.no_grad()
    def _inputs_in_use(self, X: Tensor) -> Tensor:
        """Inputs of the rows, transformed if the model shows them so."""
        if not self._has_transformed_inputs:
            return X
        self._original_train_inputs = X
        return self.input_transform.preprocess_transform(X)

    def _set_transformed_inputs(self) -> None:
        if self._subset is None:
            super()._set_transformed_inputs()
        elif hasattr(self, "input_transform") and not self._has_transformed_inputs:
            self._show_inputs(self._subset.X, are_transformed=True)

    def _revert_to_original_inputs(self) -> None:
        if self._subset is None:
            super()._revert_to_original_inputs()
        elif self._has_transformed_inputs:
            self._show_inputs(self._subset.X, are_transformed=False)

    def _show_inputs(self, X: Tensor, *, are_transformed: bool) -> None:
        self._has_transformed_inputs = are_transformed
        super().set_train_data(self._inputs_in_use(X), strict=False)

    @property
    def _outcome_transform(self) -> OutcomeTransform | None:
        return getattr(self, "outcome_transform", None)

    @torch.no_grad()
    def _as_transformed(self, full: FullData) -> FullData:
        """With targets by the outcome transform as it is."""
        transform = self._outcome_transform
        if transform is None:
            return full.retransform(None)
        return full.retransform(deepcopy(transform).eval())  # no mode is changed

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: bool) -> Self:
        subset = self._subset
        super()._apply(fn, *args)
        if subset is not None:
            probe = subset.full.X.new_empty(0)
            if fn(probe) is not probe:  # a move, and no look at where the data are
                self._condition(subset.apply(fn))
        return self


def _one_tensor(inputs: Tensor | Sequence[Tensor], dim: int) -> Tensor:
    """The inputs as one tensor with a row for each point."""
    X = inputs if isinstance(inputs, Tensor) else inputs[0]
    return X.unsqueeze(-1) if X.dim() == 1 and dim == 2 else X


class Observations(NamedTuple):
    """What the likelihood of all data is made of, after the transforms."""

    X: Tensor  # `batch_shape x (m) x n x d` inputs
    error: Tensor  # `batch_shape x (m) x n`, observations less the prior mean
    noise: Tensor  # noise variances, which broadcast to the errors


def all_observations(model: FixedSubsetSingleTaskGP) -> Observations:
    """All observations, in use or not; no input transform may make more rows."""
    full, X = model.subset.full, model.subset.full.inputs()
    if hasattr(model, "input_transform"):  # which learns nothing here
        X = model.input_transform.preprocess_transform(X)
    if X.shape[-2] != len(full):
        raise UnsupportedError(
            f"The input transform makes {X.shape[-2]} rows of {len(full)}; their "
            "gradients cannot be compared. Use transform_on_train=False, or "
            'selection="random".'
        )
    known = {} if full.noise is None else {"noise": full.noise}
    zeros = torch.zeros_like(full.targets)
    noise = likelihood_noise(model.likelihood, X, zeros, **known)
    return Observations(X, full.targets - model.mean_module(X), noise)
