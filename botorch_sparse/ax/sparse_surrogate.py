"""Models for Ax whose slow parts are computed at scheduled sizes of the data."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from ax.core.search_space import SearchSpaceDigest
from ax.generators.torch.botorch_modular.surrogate import Surrogate, SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.model import Model
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from botorch_sparse.ax.extended_inducing import extended_inducing_points
from botorch_sparse.ax.inferred_noise import (
    has_unknown_noise,
    inferred_noise,
    with_noise,
)
from botorch_sparse.ax.size_schedule import (
    DEFAULT_GROWTH,
    first_rows,
    scheduled_size,
    validate_growth,
)
from botorch_sparse.models import SubsetSingleTaskGP


@dataclass(frozen=True, eq=False)
class _Fit:
    """A model that was fitted, and what it depends on."""

    dataset: SupervisedDataset
    search_space_digest: SearchSpaceDigest
    noise: Tensor | None
    model: Model

    def is_of(self, dataset: SupervisedDataset, digest: SearchSpaceDigest) -> bool:
        """Whether a fit to these data would be the same."""
        return self.search_space_digest == digest and _same(self.dataset, dataset)


class _Rows(np.ndarray):
    """Inputs as an array, with the one method of tensors that Ax calls of them."""

    @classmethod
    def of(cls, X: Tensor) -> "_Rows":
        """The observations of a tensor."""
        return X.cpu().numpy().view(cls)

    def clone(self) -> "_Rows":
        """A copy: of learning curves Ax sets all to the last progression."""
        return self.copy()


class SparseSurrogate(Surrogate):
    """Ax's `Surrogate` with fits at scheduled sizes, and partly known noise.

    Ax fits a new model for each trial. Here hyperparameters and inducing points come
    from a model of the first `scheduled_size(n)` observations; the model of all data
    takes them over, and inducing points for what the new observations add. The fit
    starts afresh each time. So a model is a function of its data: after saving and
    loading it is the same.

    Standard errors may be known for some observations only; see `inferred_noise`.

    Cost for each trial: O(n m^2) once, for the posterior.

    Args:
        refit_growth: See `scheduled_size`; the other arguments are as in `Surrogate`.
    """

    def __init__(
        self,
        surrogate_spec: SurrogateSpec | None = None,
        allow_batched_models: bool = True,
        refit_on_cv: bool = False,
        warm_start_refit: bool = True,
        metric_to_best_model_config: dict[str, ModelConfig] | None = None,
        refit_growth: float = DEFAULT_GROWTH,
    ) -> None:
        super().__init__(
            surrogate_spec=surrogate_spec,
            allow_batched_models=allow_batched_models,
            refit_on_cv=refit_on_cv,
            warm_start_refit=warm_start_refit,
            metric_to_best_model_config=metric_to_best_model_config,
        )
        validate_growth(refit_growth)
        self.refit_growth = refit_growth
        self._gives_arrays = False
        self._fits: dict[tuple[str, ...], _Fit] = {}

    @property
    def Xs(self) -> list[Any]:
        """The inputs of each outcome, `n x d`; see `inputs_as_arrays`."""
        Xs = super().Xs
        return [_Rows.of(X) for X in Xs] if self._gives_arrays else Xs

    @contextmanager
    def inputs_as_arrays(self) -> Iterator[None]:
        """`Xs` are NumPy arrays, which Ax goes over number by number.

        From tensors that takes far longer, and on a GPU a transfer for each number.
        """
        self._gives_arrays = True
        try:
            yield
        finally:
            self._gives_arrays = False

    def _serialize_attributes_as_kwargs(self) -> dict[str, Any]:
        kwargs = super()._serialize_attributes_as_kwargs()
        return {**kwargs, "refit_growth": self.refit_growth}

    def _construct_model(
        self,
        dataset: SupervisedDataset,
        search_space_digest: SearchSpaceDigest,
        model_config: ModelConfig,
        state_dict: Mapping[str, Tensor] | None,
        refit: bool,
    ) -> Model:
        """A model of the data; see `Surrogate._construct_model`."""
        digest, config = search_space_digest, model_config
        if type(dataset) is not SupervisedDataset or state_dict is not None:
            dataset = self._with_noise(dataset, digest)
            return super()._construct_model(dataset, digest, config, state_dict, refit)
        size = scheduled_size(len(dataset.X), self.refit_growth)
        fit = self._fit_to(first_rows(dataset, size), digest, config)
        if size == len(dataset.X):
            return fit.model
        points = config.model_options.get("inducing_points")
        if points is None:
            points = extended_inducing_points(fit.model, dataset.X[size:])
        if points is not None:
            options = {**config.model_options, "inducing_points": points}
            config = replace(config, model_options=options)
        if fit.noise is not None or has_unknown_noise(dataset):
            dataset = self._with_noise(dataset, digest, fit.noise)
        state_dict = fit.model.state_dict()
        with warnings.catch_warnings():
            # The outcomes of the fit have mean zero and variance one, these nearly so.
            warnings.simplefilter("ignore", category=InputDataWarning)
            model = super()._construct_model(dataset, digest, config, state_dict, False)
        return model.reselect() if isinstance(model, SubsetSingleTaskGP) else model

    def _fit_to(
        self,
        dataset: SupervisedDataset,
        search_space_digest: SearchSpaceDigest,
        model_config: ModelConfig,
    ) -> _Fit:
        """A model fitted to all of the data; the last one if it is the same."""
        key = (*dataset.outcome_names, repr(model_config))
        known = self._fits.get(key)
        if known is not None and known.is_of(dataset, search_space_digest):
            return known
        noise, filled = None, dataset
        if has_unknown_noise(dataset):
            noise = inferred_noise(dataset, _bounds(dataset, search_space_digest))
            filled = with_noise(dataset, noise)
        model = super()._construct_model(
            filled, search_space_digest, model_config, None, True
        )
        self._fits[key] = _Fit(dataset, search_space_digest, noise, model)
        return self._fits[key]

    def _with_noise(
        self,
        dataset: SupervisedDataset,
        search_space_digest: SearchSpaceDigest,
        noise: Tensor | None = None,
    ) -> SupervisedDataset:
        """The data with unknown noise variances filled in by the fit."""
        if type(dataset) is not SupervisedDataset or not has_unknown_noise(dataset):
            return dataset
        if noise is None or noise.isnan().any():
            inferred = inferred_noise(dataset, _bounds(dataset, search_space_digest))
            noise = inferred if noise is None else noise.where(~noise.isnan(), inferred)
        return with_noise(dataset, noise)


def _bounds(dataset: SupervisedDataset, digest: SearchSpaceDigest) -> Tensor:
    """The bounds of the search space, `2 x d`."""
    return torch.tensor(digest.bounds).to(dataset.X).T


def _same(first: SupervisedDataset, second: SupervisedDataset) -> bool:
    """Whether two data sets are equal, unknown noise variances included."""
    if (first.Yvar is None) != (second.Yvar is None):
        return False
    names = [(data.feature_names, data.outcome_names) for data in (first, second)]
    pairs = [(first.X, second.X), (first.Y, second.Y)]
    if first.Yvar is not None:
        pairs.append((first.Yvar.nan_to_num(-1.0), second.Yvar.nan_to_num(-1.0)))
    return names[0] == names[1] and all(torch.equal(a, b) for a, b in pairs)
