"""The full data of a subset model, and the rows of them that are in use."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse.models.subset.data import FullData, RowsInUse
from botorch_sparse.models.subset.selection import (
    at_random,
    other_rows,
    selection_generator,
)


class SubsetTrainingDataMixin:
    """Full data beside the training data of a `BatchedMultiOutputGPyTorchModel`.

    GPyTorch's `train_inputs` and `train_targets` are the rows in use, in the order of
    `subset_indices`; transforms and state dicts work on them as ever.
    """

    train_inputs: Any
    train_targets: Any
    training: bool
    likelihood: Any
    input_transform: Any
    _original_train_inputs: Any
    _has_transformed_inputs: bool
    seed: int
    prediction_strategy: Any
    _factor: Any
    _choose: Callable[..., Any]
    _num_rows: Callable[[], int]
    _forced: Callable[[int], Tensor]

    _full: FullData | None = None
    _subset: RowsInUse | None = None
    _is_internal: bool = False

    @property
    def all_train_X(self) -> Tensor:
        """All inputs before the input transform, `batch_shape x n x d`."""
        return self._data().X

    @property
    def all_train_Y(self) -> Tensor:
        """All observations before the outcome transform, `batch_shape x n x m`."""
        return self._data().Y

    @property
    def all_train_Yvar(self) -> Tensor | None:
        """All noise variances before the transform, None where they are inferred."""
        return self._data().Yvar

    @property
    def num_observations(self) -> int:
        """The number `n` of observations, in use or not."""
        return len(self._data())

    @property
    def subset_indices(self) -> Tensor:
        """Rows of the full data in use, in the order of `train_inputs`."""
        return self._rows().on_device

    def _rows(self) -> RowsInUse:
        """Rows of the full data in use."""
        self._data()
        return self._subset  # type: ignore[return-value]

    def refit_transforms(self) -> Self:
        """Learn the transforms again from all data, in place.

        To be called before a fit of the hyperparameters, which are in units of the
        transformed data.

        Returns:
            The model.
        """
        full, transform = self._data(), getattr(self, "outcome_transform", None)
        inputs = getattr(self, "input_transform", None)
        with torch.no_grad():
            if inputs is not None:
                inputs.train()
                inputs(full.X)
            if transform is not None:
                transform.train()
                self._full = full.retransform(transform)
                transform.train(self.training)
            self.train(self.training)
        self._take(self._rows().on_host)
        return self

    def train(self, mode: bool = True) -> Self:
        """As in `SingleTaskGP`, but input transforms learn nothing from the subset."""
        super().train(mode)  # type: ignore[misc]
        transform = getattr(self, "input_transform", None)
        if transform is not None and self._full is not None:
            for module in transform.modules():
                if hasattr(module, "learn_coefficients"):
                    module.training = False
        return self

    def set_train_data(
        self,
        inputs: Any = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """Replace the full data, and choose the rows again.

        Rows at the beginning that are as before stay known as such, so that data with
        more rows at the end update the factor of the subset.

        Args:
            inputs: All inputs, before the input transform.
            targets: All targets, in the transformed space, as in `ExactGP`.
            strict: Whether shape, dtype and device must be as before.

        Raises:
            BotorchTensorDimensionError: If inputs and targets differ in `n`.
            InputDataError: If there are more rows than known noise variances.
        """
        if self._is_internal or self._full is None:
            super().set_train_data(inputs, targets, strict)  # type: ignore[misc]
            return
        self._replace_data(inputs, targets, strict)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """As in `SingleTaskGP`; all targets follow the loaded outcome transform."""
        with self._on_rows_in_use():
            result = super().load_state_dict(state_dict, *args, **kwargs)  # type: ignore[misc]
        if self._full is not None and kwargs.get("keep_transforms", True):
            with torch.no_grad():
                self._full = self._retransformed(self._full)
            self._take(self._rows().on_host)
        return result

    def _set_transformed_inputs(self) -> None:
        with self._on_rows_in_use():
            super()._set_transformed_inputs()  # type: ignore[misc]

    def _revert_to_original_inputs(self) -> None:
        with self._on_rows_in_use():
            super()._revert_to_original_inputs()  # type: ignore[misc]

    @contextmanager
    def _on_rows_in_use(self) -> Iterator[None]:
        """Inside, `set_train_data` is that of `ExactGP`."""
        was_internal, self._is_internal = self._is_internal, True
        try:
            yield
        finally:
            self._is_internal = was_internal

    def _data(self) -> FullData:
        """The full data; of a fantasy model those that it is conditioned on."""
        if self._full is None:
            raise UnsupportedError(
                "This is a fantasy model: it is conditioned on the rows that were in "
                "use and on the fantasies, and holds no further data. Use train_inputs "
                "and train_targets."
            )
        return self._full

    def _set_full_data(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        """Hold the data that the model was built with, and choose rows."""
        noise = self._fixed_noise()
        targets = self.train_targets
        self._full = FullData(X, Y, Yvar, targets, noise)
        n, num = len(self._full), self._num_rows()
        self._subset = RowsInUse.of(torch.arange(n), X.device)
        if num < n:
            # A first subset, for what selections compute from the present one.
            forced = self._forced(0)
            generator = selection_generator(self.seed, 0)
            self._take(at_random(self, num, forced, generator))  # type: ignore[arg-type]
        self._choose(None)

    def _fixed_noise(self) -> Tensor | None:
        """Known noise variances of the targets, one for each row."""
        if not isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            return None
        noise = self.likelihood.noise_covar.noise
        return noise.expand_as(self.train_targets)

    def _replace_data(self, inputs: Any, targets: Tensor | None, strict: bool) -> None:
        """`set_train_data` of the full data."""
        old = self._data()
        X = old.X if inputs is None else _one_tensor(inputs, old.X.dim())
        Z = old.targets if targets is None else targets
        if strict and (X.shape, Z.shape) != (old.X.shape, old.targets.shape):
            raise RuntimeError(
                f"Cannot modify the shapes of the data from {tuple(old.X.shape)} and "
                f"{tuple(old.targets.shape)} to {tuple(X.shape)} and {tuple(Z.shape)}. "
                "Use strict=False."
            )
        if X.shape[-2] != Z.shape[-1]:
            raise BotorchTensorDimensionError(
                f"Got inputs of shape {tuple(X.shape)} and targets of shape "
                f"{tuple(Z.shape)}; they need the same n. Pass both."
            )
        if old.noise is not None and X.shape[-2] != len(old):
            raise InputDataError(
                f"Got {X.shape[-2]} rows for {len(old)} known noise variances. Use "
                "add_observations(X, Y, Yvar), or build a new model."
            )
        Y = old.outputs_last(Z)
        transform = getattr(self, "outcome_transform", None)
        if transform is not None:
            with torch.no_grad():
                Y, _ = transform.untransform(Y, X=X)
        self._full = FullData(X, Y, old.Yvar, Z, old.noise)
        self._keep_known_rows(old)
        self._choose(None)

    def _keep_known_rows(self, old: FullData) -> None:
        """Of the present subset, the rows whose inputs are still the same."""
        new, subset = self._data(), self._rows().on_host
        n = min(len(old), len(new))
        same = (old.X[..., :n, :] == new.X[..., :n, :]).all(-1)
        same = same.reshape(-1, n).all(0).cpu()
        if n < len(old):
            same = torch.nn.functional.pad(same, (0, len(old) - n))
        kept = subset[same[subset]]
        num = self._num_rows()
        if len(kept) < num:
            others = other_rows(len(new), kept)
            kept = torch.cat([kept, others[len(others) - (num - len(kept)) :]])
        self._factor = self._factor if bool(same[subset].all()) else None
        self._take(kept[:num])

    def _take(self, index: Tensor) -> None:
        """Condition on some rows, on the host; those in use stay first, in order."""
        full, present = self._data(), self._rows().on_host
        stays = present[torch.isin(present, index)]
        index = torch.cat([stays, index[~torch.isin(index, stays)]])
        self._subset = RowsInUse.of(index, full.X.device)
        index = self._subset.on_device
        targets = full.targets.index_select(-1, index)
        X = full.inputs(index)
        if full.noise is not None:
            self.likelihood.noise_covar.noise = full.noise.index_select(-1, index)
        if self._has_transformed_inputs:
            self._original_train_inputs = X
            with torch.no_grad():
                X = self.input_transform.preprocess_transform(X)
        with self._on_rows_in_use():
            self.set_train_data(X, targets, strict=False)

    def _retransformed(self, full: FullData) -> FullData:
        """With targets by the outcome transform as it is."""
        transform = getattr(self, "outcome_transform", None)
        if transform is None:
            return full.retransform(None)
        was_training = transform.training
        transform.eval()
        full = full.retransform(transform)
        transform.train(was_training)
        return full

    def _all_inputs(self) -> Tensor:
        """All inputs after the input transform, which they do not teach."""
        X = self._data().inputs()
        if not hasattr(self, "input_transform"):
            return X
        X = self.input_transform.preprocess_transform(X)
        if X.shape[-2] != len(self._data()):
            raise UnsupportedError(
                f"The input transform makes {X.shape[-2]} rows of {len(self._data())}; "
                "their gradients cannot be compared. Use transform_on_train=False, or "
                'selection="random".'
            )
        return X

    def _all_targets(self) -> Tensor:
        """All targets, `batch_shape x (m) x n`."""
        return self._data().targets

    def _all_noise(self, X: Tensor) -> Tensor:
        """Noise variances of all targets, `batch_shape x (m) x n`."""
        full = self._data()
        zero = MultivariateNormal(
            full.targets, DiagLinearOperator(torch.zeros_like(full.targets))
        )
        known = {} if full.noise is None else {"noise": full.noise}
        covariance = self.likelihood(zero, X, **known).lazy_covariance_matrix
        return covariance.diagonal(dim1=-1, dim2=-2)

    def _keep_outputs(self, idcs: list[int]) -> None:
        """After `subset_output`, the data of those outputs."""
        if self._full is not None:
            self._full = self._full.subset_outputs(idcs)
        original = getattr(self, "_original_train_inputs", None)
        if original is not None and self._has_transformed_inputs:
            index = idcs[0] if len(idcs) == 1 else idcs
            self._original_train_inputs = original[..., index, :, :]

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any) -> Self:
        full = self._full
        if full is not None:
            probe = torch.empty(0, dtype=full.X.dtype, device=full.X.device)
            if fn(probe) is not probe:
                self._move(fn)
        super()._apply(fn, *args)  # type: ignore[misc]
        return self

    def _move(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Take the data to another dtype or device."""
        self._full = self._data().apply(fn)
        device = self._full.X.device
        self._subset = RowsInUse.of(self._rows().on_host, device)
        self._factor, self.prediction_strategy = None, None
        if self._has_transformed_inputs:
            self._original_train_inputs = fn(self._original_train_inputs)


def _one_tensor(inputs: Any, dim: int) -> Tensor:
    """The inputs as one tensor with a row for each point."""
    X: Tensor = inputs if isinstance(inputs, Tensor) else inputs[0]
    return X.unsqueeze(-1) if X.dim() == 1 and dim == 2 else X
