"""Predictions of a subset model from the factor of its rows."""

from typing import Any

import torch
from botorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.models.exact_prediction_strategies import (
    DefaultPredictionStrategy,
    prediction_strategy,
)
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse.models.subset.prediction import (
    FactoredPredictionStrategy,
    SubsetFactor,
    flat_state,
    is_default_prediction,
)


class SubsetFactorizationMixin:
    """A factor that follows the rows in use while the hyperparameters stand."""

    train_inputs: Any
    train_targets: Any
    training: bool
    likelihood: Any
    covar_module: Any
    prediction_strategy: Any
    _full: Any
    _rows: Any
    _factor: SubsetFactor | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> MultivariateNormal:
        """As in `ExactGP`, from the factor where that is in order."""
        if self._can_use_factor():
            with torch.inference_mode(False), torch.no_grad():
                self.prediction_strategy = self._factored_strategy(kwargs)
        return super().__call__(*args, **kwargs)  # type: ignore[misc, no-any-return]

    def _can_use_factor(self) -> bool:
        """Whether a prediction strategy is to be made that needs no gradients."""
        return (
            not self.training
            and self.prediction_strategy is None
            and self._full is not None
            and self.train_targets is not None
            and settings.propagate_grads.off()
            and is_default_prediction()
        )

    def _factored_strategy(self, kwargs: dict[str, Any]) -> DefaultPredictionStrategy:
        """GPyTorch's strategy for the kernel; ours where that is the default one."""
        inputs = list(self.train_inputs)
        prior = self._get_train_prior_distribution(inputs, **kwargs)  # type: ignore[attr-defined]
        default = prediction_strategy(
            train_inputs=inputs,
            train_prior_dist=prior,
            train_labels=self.train_targets,
            likelihood=self.likelihood,
        )
        if type(default) is not DefaultPredictionStrategy:
            return default
        return FactoredPredictionStrategy(
            inputs,
            prior,
            self.train_targets,
            self.likelihood,
            chol=self.subset_factor().cholesky.chol,
        )

    @torch.no_grad()
    def subset_factor(self) -> SubsetFactor:
        """The factor of the covariance of the observations in use.

        Updated from the last one, or built where the hyperparameters have changed.
        """
        X, rows = self.train_inputs[0], self._rows().on_host
        noise, known = self._noise_in_use(X), self._factor
        state = flat_state(
            self.covar_module, self.likelihood, getattr(self, "input_transform", None)
        )
        factor = None
        present: Any = {"noise": noise, "hyperparameters": state}
        if known is not None:
            factor = known.move_to(rows, self.covar_module, X, **present)
        if factor is None:
            factor = SubsetFactor.build(self.covar_module, X, rows=rows, **present)
        self._factor = factor
        return factor

    def _noise_in_use(self, X: Tensor) -> Tensor:
        """Noise variances of the rows in use."""
        zero = MultivariateNormal(
            self.train_targets, DiagLinearOperator(torch.zeros_like(self.train_targets))
        )
        covariance = self.likelihood(zero, X).lazy_covariance_matrix
        return covariance.diagonal(dim1=-1, dim2=-2).clone()
