"""Conditioning a sparse model on new observations, with its inducing points fixed."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from botorch.models.model import Model
from botorch.models.utils.assorted import (
    fantasize as fantasize_flag,
)
from botorch.models.utils.assorted import (
    gpt_posterior_settings,
    multioutput_to_batch_mode_transform,
)
from botorch.sampling.base import MCSampler
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse.models.inducing_set import same_tensor
from botorch_sparse.models.training_data import JoinedNoise, JoinedRows, append_rows
from botorch_sparse.posteriors import NystromPosterior

# What a fantasy model does not take over from its parent: data, and what is made of it.
OF_THE_DATA = (
    "_inputs",
    "_targets",
    "_original_inputs",
    "_cached_posterior",
    "_known_features",
    "_fantasy_posterior",
    "_conditioned",
    "_inducing",
    "_certificate",
    "prediction_strategy",
)


class Conditioned(NamedTuple):
    """The inducing points that conditioning keeps, as long as the data stay.

    Attributes:
        rows: The raw training inputs that came out of it.
        points: `batch_shape x m x d` raw inducing points; None for an exact model.
    """

    rows: Any
    points: Tensor | None


class ConditioningMixin:
    """`condition_on_observations` and `fantasize` of a model with inducing points.

    A fantasy model's posterior is its parent's after a rank-`q` update: O(q m^2), with
    nothing of the size of the data. Its data are `JoinedRows`. Once it is trained, or
    its posterior is dropped for another reason, it is built from the data again, on the
    same inducing points.
    """

    training: bool
    likelihood: Any
    outcome_transform: Any
    inducing_points: Tensor
    prediction_strategy: Any
    train_inputs: Any
    transform_inputs: Callable[..., Tensor]
    _prediction_posterior: Callable[[], NystromPosterior]
    _validate_new_data: Callable[[Tensor, Tensor], None]
    _checked_noise: Callable[[Tensor], Tensor]
    _validate_tensor_args: Callable[..., None]
    _num_outputs: int
    _input_batch_shape: torch.Size
    _aug_batch_shape: torch.Size
    _inputs: Any
    _targets: Any
    _original_inputs: Any
    _raw_rows: Any
    _has_transformed_inputs: bool
    _modules: dict[str, Any]
    _given_points: Tensor | None

    _conditioned: Conditioned | None = None
    _fantasy_posterior: NystromPosterior | None = None

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> Model:
        """Condition on new observations, as in `SingleTaskGP`.

        Inducing points stay, and an exact model stays exact, however many observations
        come: `resparsify` draws points for all of them.

        Args:
            X: `batch_shape x q x d` inputs.
            Y: `batch_shape x q x m` observations. It may have one leading dimension
                more than `X`: several observations of the same inputs.
            **kwargs: `noise`, the noise variances after the outcome transform, of the
                shape of `Y` or of `X`'s batch. A fixed-noise model needs it.

        Returns:
            A model of all observations. Cost: O(q m^2) time and O(q m) memory for each
            element of the batch of `X`, whatever `n` is.

        Raises:
            InputDataError: If observations (not fantasies) or their noise are on the
                CPU and not finite, or a noise variance is negative.
        """
        self._check_is_in_eval_mode()
        noise = kwargs.get("noise")
        if noise is not None and fantasize_flag.off():
            noise = kwargs["noise"] = self._checked_noise(noise)
        if self.is_exact:  # type: ignore[attr-defined]
            parent: Any = super()
            model = parent.condition_on_observations(X, Y, **kwargs)
            model._conditioned = Conditioned(model._raw_rows, None)
            return model
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform(Y, X=X)
        if fantasize_flag.off():
            self._validate_tensor_args(X=X, Y=Y, Yvar=noise, strict=False)
        if self._num_outputs > 1:
            X, Y, noise = multioutput_to_batch_mode_transform(
                train_X=X, train_Y=Y, num_outputs=self._num_outputs, train_Yvar=noise
            )
        else:
            Y, noise = Y.squeeze(-1), None if noise is None else noise.squeeze(-1)
        return self._condition(self.transform_inputs(X), Y, noise, raw=X)

    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, **kwargs: Any
    ) -> Model:
        """Condition on transformed inputs and targets, as in `ExactGP`.

        Args:
            inputs: `batch_shape x q x d`, with the outputs as the last batch dimension.
            targets: `target_batch x q`; it may have one leading dimension more.
            **kwargs: `noise`, of the shape of `targets` or of `batch_shape x q`.

        Returns:
            A model of all observations; see `condition_on_observations`.
        """
        self._check_is_in_eval_mode()
        if not self.is_exact:  # type: ignore[attr-defined]
            return self._condition(inputs, targets, kwargs.get("noise"), raw=inputs)
        self._validate_new_data(inputs, targets)
        if self.prediction_strategy is None:
            with gpt_posterior_settings():
                self(self.train_inputs[0][..., :1, :])  # type: ignore[operator]
        parent: Any = super()
        model = parent.get_fantasy_model(inputs, targets, **kwargs)
        model._conditioned = Conditioned(model._raw_rows, None)
        return model

    def fantasize(
        self,
        X: Tensor,
        sampler: MCSampler,
        observation_noise: Tensor | None = None,
        **kwargs: Any,
    ) -> Model:
        """As in `SingleTaskGP`; the mean of fixed noise is that of all observations.

        Args:
            X: `batch_shape x q x d` inputs.
            sampler: Samples the observations.
            observation_noise: `batch_shape x q x m` or `batch_shape x 1 x m` noise
                variances, after the outcome transform.
            **kwargs: As in `SingleTaskGP`.

        Returns:
            The fantasy model, of batch shape `sample_shape x batch_shape`.
        """
        noise_covar = getattr(self.likelihood, "noise_covar", None)
        if observation_noise is None and isinstance(noise_covar, JoinedNoise):
            mean = noise_covar.mean()
            second = getattr(self.likelihood, "second_noise", 0.0)
            observation_noise = (mean + second).unsqueeze(-1)
            if self._num_outputs > 1:
                observation_noise = (mean + second).mT
        if X.shape[-2] == 0:
            return self._fantasize_nothing(X, sampler)
        parent: Any = super()
        return parent.fantasize(X, sampler, observation_noise, **kwargs)

    def _fantasize_nothing(self, X: Tensor, sampler: MCSampler) -> Model:
        """The fantasy model without new points, which only has the fantasies' batch."""
        batch_shape = torch.broadcast_shapes(X.shape[:-2], self._input_batch_shape)
        shape = (*batch_shape, 0, self._num_outputs)
        kwargs = {}
        if isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            kwargs["noise"] = X.new_zeros(shape)
        X = X.expand(*batch_shape, 0, X.shape[-1])
        Y = X.new_zeros(*sampler.sample_shape, *shape)
        with fantasize_flag():
            return self.condition_on_observations(X, Y, **kwargs)

    def _condition(
        self, X: Tensor, Y: Tensor, noise: Tensor | None, *, raw: Tensor
    ) -> Self:
        """The model with the posterior conditioned on transformed data."""
        self._validate_new_data(X, Y)
        input_batch, target_batch = self._fantasy_batches(X, Y)
        q = X.shape[-2]
        X, raw = (t.expand(*input_batch, q, t.shape[-1]) for t in (X, raw))
        likelihood, d = self._fantasy_likelihood(X, noise)
        posterior = self._prediction_posterior()
        dtype = posterior.inducing_points.dtype
        points = self._kept_points()
        model = self._without_data(likelihood)
        model._fantasy_posterior = posterior.condition(
            X.to(dtype), Y.to(dtype), d.to(dtype)
        )
        inputs = self._inputs if isinstance(self._inputs, JoinedRows) else None
        old_X = self._inputs[0] if inputs is None else inputs
        model.__dict__["_inputs"] = append_rows(old_X, X, target_batch, 2)
        model.__dict__["_targets"] = append_rows(self._targets, Y, target_batch, 1)
        if self._has_transformed_inputs:
            old_raw, new_raw = self._original_inputs, raw.detach()
            joined_raw = append_rows(old_raw, new_raw, target_batch, 2)
            model.__dict__["_original_inputs"] = joined_raw
        model._conditioned = Conditioned(model._raw_rows, points)
        model._aug_batch_shape = target_batch
        is_single = self._num_outputs == 1
        model._input_batch_shape = target_batch if is_single else target_batch[:-1]
        return model

    def _fantasy_batches(self, X: Tensor, Y: Tensor) -> tuple[torch.Size, torch.Size]:
        """The batch shapes of new inputs and targets together with the model's.

        Raises:
            RuntimeError: With the messages of `ExactGP`, if they do not fit.
        """
        own, X_batch, Y_batch = self._aug_batch_shape, X.shape[:-2], Y.shape[:-1]
        try:
            input_batch = torch.broadcast_shapes(own, X_batch)
            target_batch = torch.broadcast_shapes(input_batch, Y_batch)
        except RuntimeError as error:
            raise RuntimeError(
                f"Model batch shape ({own}) and target batch shape ({Y_batch}) are not "
                "broadcastable."
            ) from error
        if len(target_batch) - len(input_batch) > 1:
            raise RuntimeError(
                f"Unsupported batch shapes: The target batch shape ({Y_batch}) must "
                "have either the same dimension as or one more dimension than the "
                f"input batch shape ({X_batch})"
            )
        return input_batch, target_batch

    def _fantasy_likelihood(
        self, X: Tensor, noise: Tensor | None
    ) -> tuple[Likelihood, Tensor]:
        """The likelihood of all observations, and the new ones' noise variances.

        Raises:
            RuntimeError: If a fixed-noise model gets no noise.
        """
        likelihood = self.likelihood
        kwargs = {} if noise is None else {"noise": noise}
        if noise is None or not isinstance(likelihood, FixedNoiseGaussianLikelihood):
            new = likelihood.get_fantasy_likelihood(**kwargs)
        else:
            old = likelihood.noise_covar
            rows = old.rows if isinstance(old, JoinedNoise) else old.noise
            new_noise = JoinedNoise(rows, noise)
            new = copy.deepcopy(likelihood, {id(old): new_noise})
            # GPyTorch would count noise that is given twice where it learns more.
            d = new_noise.newest + likelihood.second_noise
            return new, d.expand(torch.broadcast_shapes(X.shape[:-1], d.shape))
        shape = X.shape[:-1]
        if kwargs:
            shape = torch.broadcast_shapes(shape, kwargs["noise"].shape)
            kwargs["noise"] = kwargs["noise"].expand(shape)
        zeros = X.new_zeros(shape)
        noiseless = MultivariateNormal(zeros, DiagLinearOperator(zeros))
        covariance = likelihood(noiseless, X, **kwargs).lazy_covariance_matrix
        return new, covariance.diagonal(dim1=-1, dim2=-2)

    def _without_data(self, likelihood: Likelihood) -> Self:
        """A copy with another likelihood and no data. Cost: independent of `n`."""
        model = self.__class__.__new__(self.__class__)
        modules = {k: v for k, v in self._modules.items() if k != "likelihood"}
        state = {k: v for k, v in self.__dict__.items() if k not in OF_THE_DATA}
        # A view of the data would be copied with all of them.
        memo: dict[int, Any] = {id(self): model}
        memo[id(self._given_points)] = self._given_points
        state = copy.deepcopy({**state, "_modules": modules}, memo)
        state["_modules"]["likelihood"] = likelihood
        model.__dict__.update(state)
        model.__dict__.update(_inputs=None, _targets=None, prediction_strategy=None)
        return model

    def _kept_points(self) -> Tensor:
        """The inducing points, without a look at the data where possible."""
        known = self._conditioned
        if (
            known is not None
            and known.points is not None
            and self._keeps_conditioning()
        ):
            return known.points
        return self.inducing_points

    def _keeps_conditioning(self) -> bool:
        """Whether the data are still those that conditioning left. Cost: O(1)."""
        if self._conditioned is None:
            return False
        rows, known = self._raw_rows, self._conditioned.rows
        if rows is known:
            return True
        known = known._joined if isinstance(known, JoinedRows) else known
        if not isinstance(rows, Tensor) or not isinstance(known, Tensor):
            return False
        return same_tensor(rows, known)

    def _check_is_in_eval_mode(self) -> None:
        """Conditioning is on predictions.

        Raises:
            RuntimeError: In train mode, as `ExactGP` does.
        """
        if self.training:
            raise RuntimeError(
                "Fantasy observations can only be added after making predictions with "
                "a model so that all test independent caches exist. Call the model on "
                "some data first, or `model.eval()`."
            )
