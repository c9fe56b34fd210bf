"""An exact GP with the Nystrom posterior, whatever its data and modules look like."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import gpytorch
import torch
from botorch import settings
from botorch.models.model import Model
from botorch.models.utils.assorted import gpt_posterior_settings
from botorch.sampling.base import MCSampler
from botorch.utils.types import DEFAULT
from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import ExactGP
from gpytorch.module import Module
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from botorch_sparse.argument_checks import check_flag, check_generator, check_tensors
from botorch_sparse.inducing import CertifiedSampler, InducingPointSampler
from botorch_sparse.inducing.sampler import with_cap
from botorch_sparse.kernels import in_double
from botorch_sparse.models.conditioning import (
    NewData,
    check_is_in_eval_mode,
    checked_noise,
    fantasize_nothing,
    validate_new_data,
)
from botorch_sparse.models.dense_prior import DensePrior
from botorch_sparse.models.fantasy import SparseFantasyModel
from botorch_sparse.models.inducing_points import InducingPoints, InducingSet
from botorch_sparse.models.model_warnings import ModelWarnings
from botorch_sparse.models.nystrom_prior import nystrom_prior
from botorch_sparse.models.outliers import (
    OrdinaryStandardize,
    far_noise,
    found_outliers,
)
from botorch_sparse.models.summary import (
    LikelihoodGap,
    ModelCertificate,
    ModelSummary,
    certify,
    summarize,
)
from botorch_sparse.models.training_data import (
    TrainingData,
    before_transform,
    outputs_in_batch,
    raw_inputs,
    same_tensor,
    validate_call,
    validate_inducing_points,
    validate_modules,
    validate_options,
    validate_points,
    validate_training_data,
    validate_transforms,
    without_learning,
)
from botorch_sparse.posteriors import KnownFeatures, NystromPosterior
from botorch_sparse.threads import (
    data_unchecked,
    one_thread,
    one_thread_backward,
)


@dataclass(frozen=True, eq=False)
class SparseState:
    """What a model has made of its data and hyperparameters."""

    chosen: InducingSet | None = None
    posterior: NystromPosterior | None = None  # under these inducing points
    targets: Tensor | None = None  # the posterior's observations
    known: KnownFeatures | None = None  # see `remember`
    certificate: ModelCertificate | None = None  # by the default bounds
    gap: LikelihoodGap | None = None  # that a summary looked for


class SparseGP(ExactGP):
    r"""What sparse models share: inducing points, posterior, fits and certificate.

    A base class of `SparseSingleTaskGP` and `SparseMultiTaskGP`, beside the model of
    BoTorch that each of them replaces, which says what data and modules are.

    Args:
        train_X: As in the class of BoTorch, as the next ones.
        train_Y: See there.
        train_Yvar: See there.
        inducing_points: As in `SparseSingleTaskGP`, as the next ones.
        inducing_sampler: See there.
        max_inducing_points: See there.
        objective: See there.
        max_memory: See there.
        learn_inducing_points: See there.
        robust: See there.
        **given: The other arguments of the class of BoTorch.
    """

    rounds: ClassVar[int] = 2
    max_fit_inducing_points: ClassVar[int | None] = 256
    prediction_strategy: Any  # the caches of the exact GP

    _state = SparseState()
    _likelihood_gap: LikelihoodGap | None = None  # of a fit to these data
    _outlier_noise: Tensor | None = None  # `aug_batch x n`; None before a search

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        inducing_points: Tensor | None = None,
        inducing_sampler: InducingPointSampler | None = None,
        max_inducing_points: int | None = None,
        objective: str = "elbo",
        max_memory: int | None = None,
        learn_inducing_points: bool = False,
        robust: bool = False,
        **given: Any,
    ) -> None:
        transforms = (given["input_transform"], given["outcome_transform"])
        modules = (given["likelihood"], given["covar_module"], given["mean_module"])
        is_scaled = transforms[0] is not None
        validate_training_data(train_X, train_Y, train_Yvar, is_scaled)
        validate_modules(*modules, inducing_sampler)
        validate_transforms(*transforms)
        check_flag("learn_inducing_points", learn_inducing_points)
        check_flag("robust", robust)
        if robust and given["outcome_transform"] == DEFAULT:
            num_outputs, batch_shape = train_Y.shape[-1], train_Y.shape[:-2]
            own = OrdinaryStandardize(num_outputs, batch_shape=batch_shape)
            given["outcome_transform"] = own
        with data_unchecked():  # see `validate_scaling`
            super().__init__(
                train_X=train_X, train_Y=train_Y, train_Yvar=train_Yvar, **given
            )
        validate_options(max_inducing_points, objective, max_memory)
        if inducing_points is not None:
            validate_inducing_points(inducing_points, train_X)
        self.register_buffer("_given_points", inducing_points, persistent=False)
        self.register_buffer("learned_points", None)  # in state dicts once there are
        self._keeps_all_of_few = inducing_sampler is None
        sampler = CertifiedSampler() if inducing_sampler is None else inducing_sampler
        self.inducing_sampler = with_cap(sampler, max_inducing_points)
        self.max_inducing_points = _as_int(max_inducing_points)
        self.max_memory = _as_int(max_memory)
        self.objective = objective
        self.learn_inducing_points = learn_inducing_points
        self.robust = robust
        self._warnings = ModelWarnings()
        # A fit goes back to checkpoints, with its points, and has a `DensePrior`.
        self._is_fitting = False

    @property
    def inducing_points(self) -> Tensor:
        """The inducing points, `batch_shape x m x d`, before the input transform."""
        return self._inducing_set().points

    @property
    def num_inducing(self) -> int:
        """The number `m` of inducing points."""
        return self.inducing_points.shape[-2]

    @property
    def inducing_cap(self) -> int:
        """The largest number of inducing points that are drawn, where not all are."""
        return self._points().cap(self._aug_batch_shape.numel())

    @property
    def is_exact(self) -> bool:
        """Whether it runs the code of the exact GP: few points, all inducing points."""
        return self._inducing_set().is_exact

    @property
    def outlier_noise(self) -> Tensor:
        """Noise variances that outliers have besides, `aug_batch x n`, else zero.

        In the units of `train_targets`. All zero before a robust model looked for them.
        """
        extra = self._outlier_noise
        return torch.zeros_like(self.train_targets) if extra is None else extra

    @outlier_noise.setter
    def outlier_noise(self, extra: Tensor) -> None:
        self._clear_cache()
        self._outlier_noise = extra

    def sparsify(self) -> InducingSet:
        """Draw the inducing points, unless the present data have some.

        Each call of the model begins with it. In eval mode a robust model then finds
        the outliers of data that were not fitted.

        Returns:
            The inducing points. Cost: O(n m^2) the first time, then O(1).
        """
        chosen = self._state.chosen
        if chosen is None or not chosen.belongs_to(raw_inputs(self)):
            self._teach_transform()
            chosen = self._draw(self._points())
            self._take(chosen)
            self._warn_if_capped()
        if self.robust and self._outlier_noise is None and not self.training:
            self._outlier_noise = self._found_outliers()
            self._warnings.outliers(self._outlier_noise)
        return chosen

    def _found_outliers(self, least_scale: float = 1.0) -> Tensor:
        """What `outlier_noise` is under the present hyperparameters; O(n m^2)."""
        known, self._outlier_noise = self._outlier_noise, None
        try:
            with torch.inference_mode(False), torch.no_grad(), one_thread():
                start = far_noise(self.train_targets) if known is None else known
                blank, data = self._prior_and_data(torch.float64)
                return found_outliers(blank, data, start, least_scale)
        finally:
            self._outlier_noise = known

    def resparsify(self, generator: torch.Generator | None = None) -> Self:
        """Draw the inducing points again under the present hyperparameters.

        Learned ones are forgotten. Inducing points that were given stay.

        Args:
            generator: Source of randomness; by default a new one with a fixed seed.

        Returns:
            The model. Cost: O(n m^2).
        """
        check_generator("generator", generator)
        self.learned_points = None
        self._teach_transform()
        self._take(self._draw(self._points(), generator))
        self._warn_if_capped()
        return self

    def _points(self) -> InducingPoints:
        """How it comes by its inducing points."""
        learned = self.learned_points
        return InducingPoints(
            self._given_points if learned is None else learned,
            self.inducing_sampler,
            self._keeps_all_of_few,
            self.max_inducing_points,
            self.max_memory,
        )

    def _inducing_set(self) -> InducingSet:
        """The inducing points of the present data; nothing is kept. O(n m^2) if new."""
        chosen = self._state.chosen
        if chosen is not None and chosen.belongs_to(raw_inputs(self)):
            return chosen
        return self._draw(self._points())

    def _draw(
        self, points: InducingPoints, generator: torch.Generator | None = None
    ) -> InducingSet:
        """Inducing points under the present hyperparameters; nothing is kept."""
        known, X = self._state.chosen, raw_inputs(self)
        known = known if known is not None and known.belongs_to(X) else None
        with torch.no_grad():
            data = TrainingData.of(self, None if known is None else known.rows)
        return points.draw(self.covar_module, data, previous=known, generator=generator)

    def _take(self, chosen: InducingSet | None) -> None:
        """Use these inducing points, and drop what was made with others.

        None for new ones when they are needed.
        """
        self._clear_cache()
        self._state = SparseState(chosen)

    def _teach_transform(self) -> None:
        """Let the input transform learn from the training data, as in train mode."""
        if self.training and hasattr(self, "input_transform"):
            with torch.no_grad():
                self.transform_inputs(self.train_inputs[0])

    def _transformed(self, points: Tensor) -> Tensor:
        """Raw inducing points as the kernel sees them, `aug_batch x m x d`."""
        points = points.unsqueeze(-3) if outputs_in_batch(self) > 1 else points
        points = points.expand(*self.train_targets.shape[:-1], *points.shape[-2:])
        if not hasattr(self, "input_transform"):
            return points
        with without_learning(self.input_transform):
            return self.input_transform.preprocess_transform(points)

    def transform_inputs(
        self, X: Tensor, input_transform: Module | None = None
    ) -> Tensor:
        """As in `SingleTaskGP`; `posterior` and all that takes inputs comes here.

        Raises:
            InputDataError: If they are no tensor.
        """
        check_tensors(X=X)
        return super().transform_inputs(X, input_transform)

    def __call__(self, *args: Tensor, **kwargs: object) -> MultivariateNormal:
        """Prior at the training inputs in train mode, posterior at `X` in eval mode.

        Args:
            *args: In eval mode one `batch_shape x q x d` tensor of transformed inputs.
            **kwargs: For the exact GP.

        Returns:
            A Gaussian over `batch_shape x q`.
        """
        if self.train_inputs is None or self.train_targets is None:
            return super().__call__(*args, **kwargs)
        validate_call(self, *args)
        if not self.training and gpytorch.settings.prior_mode.on():
            return super().__call__(*args, **kwargs)
        with one_thread():
            output = self._output(*args, **kwargs)
        covariance = output.lazy_covariance_matrix
        if isinstance(covariance, DenseLinearOperator):
            one_thread_backward(output.loc, covariance.tensor)
        return output

    def _output(self, *args: Tensor, **kwargs: object) -> MultivariateNormal:
        """The prior or posterior of a call that was looked at."""
        self.sparsify()
        if self.training:
            return self._with_outlier_noise(super().__call__(*args, **kwargs))
        if self.is_exact:
            return super().__call__(*args, **kwargs)
        X = args[0].unsqueeze(-1) if args[0].dim() == 1 else args[0]
        posterior, known = self.nystrom_posterior(), self._state.known
        embedded = None if known is None else known.embed(posterior, X)
        on_dense = self._warnings.large_joint
        return posterior.predict(X, embedded=embedded, on_dense=on_dense)

    def _get_train_prior_distribution(
        self, train_inputs: Sequence[Tensor], **kwargs: object
    ) -> MultivariateNormal:
        """What GPyTorch conditions an exact model on."""
        prior = super()._get_train_prior_distribution(train_inputs, **kwargs)
        return self._with_outlier_noise(prior)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at `x` (`batch_shape x n x d`); in train mode the low-rank one."""
        chosen = self._inducing_set() if self.training else None
        if chosen is None or self.is_exact:
            self._warn_of_exact_prior(x)
            prior = self._exact_prior(x)
            if self.training and self._is_fitting:
                return DensePrior.of(prior)
            return prior
        X = self.transform_inputs(x)
        is_data = same_tensor(x, self.train_inputs[0])
        return nystrom_prior(
            self.covar_module,
            self.mean_module,
            self._transformed(chosen.points),
            X,
            chosen.rows if is_data else None,
            with_residual=self.objective == "elbo",
        )

    def _with_outlier_noise(self, prior: MultivariateNormal) -> MultivariateNormal:
        """A prior at the training inputs, with what outliers have besides."""
        extra = self._outlier_noise
        if extra is None or not extra.any():
            return prior
        covariance = prior.lazy_covariance_matrix.add_diagonal(extra)
        return type(prior)(prior.mean, covariance)

    def _exact_prior(self, x: Tensor) -> MultivariateNormal:
        """The prior without inducing points."""
        return super().forward(x)

    def nystrom_posterior(self) -> NystromPosterior:
        """The Nystrom posterior, in the transformed spaces of inputs and outcomes.

        Of the batch shape of the model, with the outputs as the last dimension. It is
        kept, and without gradient, unless gradients propagate (as with the caches of
        `ExactGP`). Cost: O(n m^2) for the first call.
        """
        self.sparsify()
        if _has_gradients():
            return self._condition_on_data()
        known = self._state.posterior
        if known is not None and self._state.targets is self.train_targets:
            return known
        with torch.inference_mode(False), torch.no_grad():
            posterior = self._condition_on_data(torch.float64)
        self._state = SparseState(self._state.chosen, posterior, self.train_targets)
        return posterior

    def remember(self, X: Tensor) -> Self:
        """Keep what posteriors need of fixed points that many of them begin with.

        `qLogNoisyExpectedImprovement` and its relatives ask at each step for the joint
        posterior of the same baseline and a new candidate: call
        `model.remember(acqf.X_baseline)` before maximizing, and the baseline costs O(m)
        a row instead of O(m^2). Predictions are the same, but not their gradients with
        respect to these points. It lasts as long as the caches do; the exact GP has
        nothing to remember.

        Args:
            X: `r x d` points, before input transforms.

        Returns:
            The model, in eval mode. Cost: O(r m^2).

        Raises:
            BotorchTensorDimensionError: For points that are not `r x d`.
        """
        validate_points(X)
        with torch.no_grad():
            Z = self.eval().transform_inputs(X)
        validate_call(self, Z)
        self.sparsify()
        if self.is_exact:
            return self
        with (
            torch.inference_mode(False),
            torch.no_grad(),  # after it: leaving inference mode enables gradients
            settings.propagate_grads(False),
            gpytorch.settings.detach_test_caches(True),
        ):
            posterior = self.nystrom_posterior()
            Z = Z.clone().to(posterior.inducing_points)
            known = KnownFeatures.of(posterior, Z)
            self._state = replace(self._state, known=known)
        return self

    def _condition_on_data(self, dtype: torch.dtype | None = None) -> NystromPosterior:
        """Condition on the different training points. Cost: O(n m^2).

        In the dtype of the data by default, which leaves gradients to the
        hyperparameters.
        """
        # Not `from_data`, which looks at the noise: a likelihood keeps it positive.
        prior, data = self._prior_and_data(dtype)
        folded = data.folded
        rows = (data.points, folded.Y, folded.noise)
        return prior.condition(*(t.to(dtype) for t in rows))

    def _prior_and_data(
        self, dtype: torch.dtype | None
    ) -> tuple[NystromPosterior, TrainingData]:
        """The posterior without data, and what it is conditioned on."""
        chosen = self._inducing_set()
        data = TrainingData.of(self, chosen.rows)
        source = data.X.dtype if dtype else torch.float64
        prior = NystromPosterior.prior(
            in_double(self.covar_module, source),
            self._transformed(chosen.points).to(dtype),
            mean_module=in_double(self.mean_module, source),
        )
        return prior, data

    def set_train_data(
        self,
        inputs: Tensor | Sequence[Tensor] | None = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """As in `ExactGP`; inducing points are drawn again where inputs changed.

        In eval mode inputs are those that the input transform returned.

        Raises:
            UnsupportedError: In eval mode, if the transform cannot be undone.
        """
        raw = self._raw_of(inputs)
        super().set_train_data(inputs=inputs, targets=targets, strict=strict)
        if raw is not None:
            self._original_train_inputs = raw
        self._state = SparseState(self._state.chosen)
        self._likelihood_gap = self._outlier_noise = None

    def _set_transformed_inputs(self) -> None:
        with self._same_data():
            super()._set_transformed_inputs()

    def _revert_to_original_inputs(self) -> None:
        with self._same_data():
            super()._revert_to_original_inputs()

    @contextmanager
    def _same_data(self) -> Iterator[None]:
        """What a fit found stays where inputs are set to what they are, transformed."""
        found = self._likelihood_gap, self._outlier_noise
        try:
            yield
        finally:
            self._likelihood_gap, self._outlier_noise = found

    def _raw_of(self, inputs: Tensor | Sequence[Tensor] | None) -> Tensor | None:
        """New training inputs in eval mode before the transform; None if known."""
        if inputs is None or not self._has_transformed_inputs:
            return None
        X = inputs if isinstance(inputs, Tensor) else inputs[0]
        X = X.unsqueeze(-1) if X.dim() == 1 else X
        known = (self._original_train_inputs, self.train_inputs[0])
        if any(same_tensor(X, Z) for Z in known if Z is not None):
            return None
        return before_transform(self.input_transform, X)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> Model:
        """Condition on new observations, as in `SingleTaskGP`.

        Inducing points stay, and an exact model stays exact, however many observations
        come: `resparsify` draws points for all of them.

        Args:
            X: `batch_shape x q x d` inputs.
            Y: `batch_shape x q x m` observations. It may have one leading dimension
                more than `X`: several observations of the same inputs.
            **kwargs: `noise`, the noise variances after the outcome transform, of the
                shape of `Y` or of `X`'s batch. A fixed-noise model needs it. An exact
                model is conditioned by GPyTorch, whose mean leaves it out where noise
                is inferred.

        Returns:
            A model of all observations: a `SparseSingleTaskGP`, or a
            `SparseFantasyModel` for batches that the model does not have, for fantasies
            and where gradients flow. Cost: O(q m^2) time and O(q m) memory for each
            element of the batch of `X`; whatever `n` is, but for a copy of the data in
            a `SparseSingleTaskGP`.

        Raises:
            InputDataError: If they are no tensors; if observations (not fantasies) or
                their noise are on the CPU and not finite, or a noise variance is
                negative.
        """
        check_tensors(X=X, Y=Y)
        check_is_in_eval_mode(self)
        noise = checked_noise(kwargs.get("noise"))
        self.sparsify()
        if not self.is_exact:
            d = self.train_inputs[0].shape[-1]
            return self._conditioned(NewData.observed(self, X, Y, noise, d))
        given = {} if noise is None else {"noise": noise}
        model = super().condition_on_observations(X, Y, **{**kwargs, **given})
        return model._with_all_points()

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
        check_is_in_eval_mode(self)
        validate_call(self, inputs)
        self.sparsify()
        if not self.is_exact:
            noise, d = kwargs.get("noise"), self.train_inputs[0].shape[-1]
            new = NewData.transformed(self, inputs, targets, noise, raw_X=inputs, d=d)
            return self._conditioned(new)
        validate_new_data(inputs, targets)
        if self.prediction_strategy is None:
            with gpt_posterior_settings():
                self(self.train_inputs[0][..., :1, :])
        # GPyTorch takes them off for a copy, and puts them back if that succeeds.
        off = ("train_inputs", "train_targets", "likelihood", "prediction_strategy")
        held = {name: getattr(self, name) for name in off}
        try:
            model = super().get_fantasy_model(inputs, targets, **kwargs)
        except BaseException:
            for name, value in held.items():
                setattr(self, name, value)
            raise
        return model._with_all_points()

    def _with_all_points(self) -> Self:
        """An exact model after conditioning: it stays exact."""
        # Without a graph, which a copy for another conditioning may not have.
        self._state = SparseState(InducingSet.of_all(raw_inputs(self).detach()))
        if self._extend_outlier_noise():
            # GPyTorch computes the mean's cache anew, from the prior of all inputs.
            known = self.prediction_strategy
            known.train_prior_dist = self._with_outlier_noise(known.train_prior_dist)
        return self

    def _extend_outlier_noise(self) -> bool:
        """New observations have their noise alone; says whether there are some."""
        if (extra := self._outlier_noise) is None:
            return False
        num_new = self.train_targets.shape[-1] - extra.shape[-1]
        self._outlier_noise = torch.nn.functional.pad(extra, (0, num_new))
        return num_new > 0

    def fantasize(
        self,
        X: Tensor,
        sampler: MCSampler,
        observation_noise: Tensor | None = None,
        **kwargs: object,
    ) -> Model:
        """As in `SingleTaskGP`; the mean of fixed noise is taken over all observations.

        Args:
            X: `batch_shape x q x d` inputs.
            sampler: Samples the observations.
            observation_noise: `batch_shape x q x m` or `batch_shape x 1 x m` noise
                variances, after the outcome transform.
            **kwargs: As in `SingleTaskGP`.

        Returns:
            The fantasy model, of batch shape `sample_shape x batch_shape`.
        """
        check_tensors(X=X)
        if X.shape[-2] == 0:
            return fantasize_nothing(self, X, sampler)
        return super().fantasize(X, sampler, observation_noise, **kwargs)

    def _conditioned(self, new: NewData) -> Model:
        """The model with the posterior conditioned on transformed data."""
        if not new.is_plain(self) or _has_gradients():
            return SparseFantasyModel.of(self, self.nystrom_posterior(), new)
        with torch.inference_mode(False), torch.no_grad(), one_thread():
            posterior = self.nystrom_posterior()
            dtype = posterior.inducing_points.dtype
            rows = (new.X, new.Y, new.noise)
            posterior = posterior.condition(*(t.to(dtype) for t in rows))
            model = self._copy_of_shared_data()
            X = torch.cat([self.train_inputs[0], new.X], dim=-2)
            model.train_inputs = (X,)
            model.train_targets = torch.cat([self.train_targets, new.Y], dim=-1)
            if self._has_transformed_inputs:
                raw = torch.cat([self._original_train_inputs, new.raw_X], dim=-2)
                model._original_train_inputs = raw
            model.likelihood = new.likelihood(self.likelihood)
            model._extend_outlier_noise()
        points = self.inducing_points
        chosen = InducingSet(raw_inputs(model), None, points, stays=True)
        posterior = model._with_own_modules(posterior, self)
        model._state = SparseState(chosen, posterior, model.train_targets)
        model._likelihood_gap = None
        return model

    def _with_own_modules(
        self, posterior: NystromPosterior, source: "SparseGP"
    ) -> NystromPosterior:
        """A posterior of the model it was copied from, whose modules may change."""
        if posterior.covar_module is source.covar_module:
            features = replace(posterior.feature_map, covar_module=self.covar_module)
            posterior = replace(posterior, feature_map=features)
        if posterior.mean_module is source.mean_module:
            posterior = replace(posterior, mean_module=self.mean_module)
        return posterior

    def _copy_of_shared_data(self) -> Self:
        """A copy that shares all data with this one, until it gets its own."""
        shared = (
            self.train_inputs,
            self.train_targets,
            self._original_train_inputs,
            self._given_points,
            self._state,
            self.likelihood,
            self.prediction_strategy,
        )
        return copy.deepcopy(self, {id(value): value for value in shared})

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable[[], tuple[Tensor, Sequence[Tensor | None]]] | None = None,
        closure_kwargs: dict[str, object] | None = None,
        optimizer_kwargs: dict[str, object] | None = None,
        rounds: int | None = None,
        max_fit_inducing_points: int | None = None,
        **kwargs: object,
    ) -> MarginalLogLikelihood:
        """Fit with the inducing points fixed, draw them again, and refit.

        `fit_gpytorch_mll` calls this. Within a round the objective does not change, and
        the fit is BoTorch's own, retries and checkpoints included, over the logarithms
        of positive hyperparameters where there is one output. It starts from the
        present hyperparameters, so that a second fit after a little more data is short.
        By default, where the model draws its points, up to 3,000 observations (fewer
        with several outputs or within `max_memory`) are fitted by the exact likelihood
        of all of them. Beyond, the bound stops when new inducing points change it by
        less than 0.01 per observation, and the exact likelihood of 1,500 random
        observations is fitted as well: the hyperparameters whose model predicts
        observations better that are left out are kept, and `summary` says how far they
        are from the optimum of that likelihood. Fits of one output end where a step
        gains less than 1e-5 for each observation, unless `ftol` or `gtol` is among the
        options. Without `optimizer_kwargs` optima of 500 rows from two other starts and
        shorter lengthscales are tried then, since the likelihood may have an optimum
        there that no small steps lead to. Asking for `rounds`, a cap or a limit of time
        asks for the bound alone, and `rounds` for SciPy's own criteria. A robust model
        still looks for outliers by exact fits of 500 rows, unless time is limited.

        Hyperparameters are fitted with at most `max_fit_inducing_points`, where the
        model draws them itself; the final, larger set is drawn once, under the fitted
        hyperparameters. With `learn_inducing_points` a single fit moves the points
        together with the hyperparameters, until 200 evaluations lower the loss per
        observation by less than 5e-4, or by SciPy's own criteria where `ftol` or `gtol`
        is among the options; a `closure` of one's own moves none.

        With BoTorch's `RobustRelevancePursuitMixin` as another base its pursuit of
        outliers runs, with its options and a fit of the standard model for each number
        of them.

        Args:
            mll: The marginal log likelihood of this model.
            closure: As in `fit_gpytorch_mll`.
            closure_kwargs: As in `fit_gpytorch_mll`.
            optimizer_kwargs: As in `fit_gpytorch_mll`.
            rounds: Number of fits, at least one; by default at most `self.rounds`.
            max_fit_inducing_points: Largest number of inducing points during the fit,
                at least one; `self.max_fit_inducing_points` by default.
            **kwargs: As in `fit_gpytorch_mll`.

        Returns:
            `mll`, in eval mode. Cost: O(n m^2) for an evaluation, some fifty of them;
            O(n^3) up to 3,000 observations, some thirty of 1,500 and ten of all.

        Raises:
            InputDataError: If `rounds` or `max_fit_inducing_points` is not an integer
                above zero.
            ModelFittingError: If all attempts of a round failed. The model is then as
                it was before the fit.
        """
        # BoTorch's optimizers take time to import, and a fit alone needs them.
        from botorch_sparse.models.fit import fit

        fit(
            self,
            mll,
            rounds=rounds,
            max_fit_inducing_points=max_fit_inducing_points,
            closure=closure,
            closure_kwargs=closure_kwargs,
            optimizer_kwargs=optimizer_kwargs,
            **kwargs,
        )
        self._warnings.outliers(self.outlier_noise)
        return mll

    def certificate(
        self,
        *,
        method: str = "auto",
        delta: float = 1e-3,
        generator: torch.Generator | None = None,
    ) -> ModelCertificate:
        """What the inducing points are worth under the present hyperparameters.

        For every `x`, the variances of the model and of the exact GP with the same
        hyperparameters differ at most by the factor `alpha`, either way. This says
        nothing about the hyperparameters. The last answer is kept as long as the
        posterior is.

        Args:
            method: How `lambda_max` is bounded, see `accuracy_certificate`.
            delta: Failure probability of the bounds together, in (0, 1).
            generator: Source of randomness; by default a new one with a fixed seed.

        Returns:
            The certificate. Cost: O(n m^2); the model is then in eval mode.
        """
        self.eval()
        chosen = self.sparsify()
        posterior = None if self.is_exact else self.nystrom_posterior()
        is_default = method == "auto" and delta == 1e-3 and generator is None
        if is_default and self._state.certificate is not None:
            return self._state.certificate
        certificate = certify(
            chosen,
            self._points(),
            TrainingData.of(self, chosen.rows),
            posterior,
            method=method,
            delta=delta,
            generator=generator,
        )
        if is_default:
            self._state = replace(self._state, certificate=certificate)
        return certificate

    def summary(self) -> ModelSummary:
        """Sizes, hyperparameters and certificate, to print or to show in a notebook.

        One row says how far hyperparameters are from the exact likelihood's optimum.
        After a default fit that is known. After others, such as fits to given inducing
        points, within a limit of time or in few steps, the likelihood of up to 1,000
        random observations is maximized from there, on a copy: some seconds, the first
        time. Of several outputs it is said only after a default fit.

        Example:
            >>> from botorch_sparse.models import SparseSingleTaskGP
            >>> X = torch.linspace(0, 1, 20, dtype=torch.double).unsqueeze(-1)
            >>> print(SparseSingleTaskGP(X, X.sin()).summary())  # doctest: +ELLIPSIS
            SparseSingleTaskGP, exact
              observations...20
              ...
        """
        certificate, gap = self.certificate(), self._likelihood_gap or self._state.gap
        if gap is None:
            from botorch_sparse.models.fit import gap_from_here

            gap = gap_from_here(self)
            self._state = replace(self._state, gap=gap)
        return summarize(self, certificate, self.objective, gap)

    def _clear_cache(self) -> None:
        super()._clear_cache()
        self._state = SparseState(self._state.chosen)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        *args: object,
        **kwargs: object,
    ) -> None:
        """Forget points of other hyperparameters; learned ones come along."""
        if self._is_fitting:
            super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
            self._clear_cache()
            return
        points = state_dict.pop(f"{prefix}learned_points", None)
        self.learned_points = None
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if points is not None and self.learn_inducing_points:
            self.learned_points = points.detach().to(raw_inputs(self), copy=True)
        self._clear_cache()
        chosen = self._state.chosen
        stays = chosen is not None and chosen.stays
        self._state = SparseState(chosen if stays else None)
        self._likelihood_gap = self._outlier_noise = None

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        before, chosen = self._dtypes_and_devices(), self._state.chosen
        is_valid = chosen is not None and chosen.belongs_to(raw_inputs(self))
        super()._apply(fn)
        if self._original_train_inputs is not None:
            self._original_train_inputs = fn(self._original_train_inputs)
        if self._dtypes_and_devices() == before:
            return self  # analytic acquisition functions call `.to` each time
        self._clear_cache()
        if self._outlier_noise is not None:
            self._outlier_noise = fn(self._outlier_noise)
        moved = None
        if chosen is not None and is_valid:
            moved = chosen.moved(raw_inputs(self), fn)
        self._state = SparseState(moved)
        return self

    def _dtypes_and_devices(self) -> set[tuple[torch.dtype, torch.device]]:
        """Dtypes and devices of all that it holds."""
        tensors = [*self.parameters(), *self.buffers()]
        tensors += [t for t in (self.train_targets,) if t is not None]
        return {(t.dtype, t.device) for t in tensors}

    def __getstate__(self) -> dict[str, object]:
        """A copy that is made during a fit is not being fitted."""
        return {**self.__dict__, "_is_fitting": False}

    def _warn_if_capped(self) -> None:
        """Say once that the inducing points reached a cap the model was not given."""
        chosen, points, cap = self._inducing_set(), self._points(), self.inducing_cap
        is_capped = chosen.given is None and chosen.points.shape[-2] >= cap
        is_asked_for = cap == self.max_inducing_points
        if is_asked_for or not is_capped or chosen.is_complete:
            return
        remedy = "max_inducing_points (and an inducing_sampler that allows it)"
        if points.is_bound_by_memory(self._aug_batch_shape.numel()):
            remedy = "max_memory"
        self._warnings.cap(cap, remedy)

    def _warn_if_far(self) -> None:
        """Say once that a fit ended far from the exact likelihood's optimum."""
        if self._likelihood_gap is not None:
            self._warnings.far_fit(self._likelihood_gap)

    def _warn_of_exact_prior(self, x: Tensor) -> None:
        """Say once that the prior at all data, without the predictions, is dense.

        That is what `botorch.cross_validation.loo_cv` asks for, and nothing else does
        in eval mode, but in prior mode.
        """
        has_data = not self.training and self.train_inputs is not None
        if not has_data or gpytorch.settings.prior_mode.on():
            return
        if (
            same_tensor(x, self.train_inputs[0])
            and not self._inducing_set().is_complete
        ):
            self._warnings.exact_prior(x.shape[-2])


def _as_int(value: int | None) -> int | None:
    """A number that may be NumPy's as Python's."""
    return None if value is None else int(value)


def _has_gradients() -> bool:
    """Whether posteriors are to have gradients with respect to hyperparameters."""
    is_detached = gpytorch.settings.detach_test_caches.on()
    return settings.propagate_grads.on() or not is_detached
