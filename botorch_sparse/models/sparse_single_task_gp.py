r"""A drop-in for `SingleTaskGP` whose cost does not grow with n^2 or n^3."""

import warnings
from typing import Any, Self

import gpytorch
import torch
from botorch import settings
from botorch.exceptions import BotorchWarning
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.module import Module
from torch import Tensor

from botorch_sparse.inducing import InducingPointSampler
from botorch_sparse.models.adaptive_inducing import EXACT_SIZE, AdaptiveInducingMixin
from botorch_sparse.models.conditioning import ConditioningMixin
from botorch_sparse.models.fit_on_few import FitOnFewMixin
from botorch_sparse.models.fitting import FittingMixin
from botorch_sparse.models.inducing_set import same_tensor
from botorch_sparse.models.learned_points import LearnedPointsMixin
from botorch_sparse.models.nystrom_prior import nystrom_prior
from botorch_sparse.models.prediction import LargeJointNotice, predict
from botorch_sparse.models.summary import SummaryMixin
from botorch_sparse.models.training_data import LazyTrainingDataMixin
from botorch_sparse.models.validated import ValidatedMixin
from botorch_sparse.models.validation import (
    validate_inducing_points,
    validate_kernel,
    validate_modules,
    validate_options,
    validate_scaling,
    validate_training_data,
)
from botorch_sparse.posteriors import KnownRowsPosterior, NystromPosterior
from botorch_sparse.posteriors.precision import in_double


class SparseSingleTaskGP(
    ValidatedMixin,
    FittingMixin,
    FitOnFewMixin,
    LearnedPointsMixin,
    SummaryMixin,
    ConditioningMixin,
    AdaptiveInducingMixin,
    LazyTrainingDataMixin,
    SingleTaskGP,
):
    r"""`SingleTaskGP` on the Nystrom (DTC) posterior [Calandriello2019]_.

    .. math::
        \mu(x) = c(x) + w(x)^\top a, \qquad
        \mathrm{cov}(x, x') = r(x, x') + w(x)^\top w(x')

    with the features of `m` inducing points (see `NystromPosterior`). Use it where
    `SingleTaskGP` is too slow, from about a thousand observations on; everything else
    stays as it is, `fit_gpytorch_mll(ExactMarginalLogLikelihood(...))` included.

    Cost, with `n` different training points: O(n m^2) for an evaluation of the fit
    objective and for the first posterior, then O(m^2) for each point predicted,
    whatever `n` is. Memory O(m^2) besides the data.

    The inducing points are drawn when they are first needed, under the hyperparameters
    of that moment, and stay until `resparsify` or a fit draws them again. Where all
    training points are inducing points the model is the exact GP, by the code of
    `SingleTaskGP`; so it is by default up to 500 different points. The caches follow
    `SingleTaskGP`: they are dropped by `train`, `eval` after `train`, `set_train_data`
    and `load_state_dict`, not by assigning a hyperparameter in eval mode.

    Inducing points are not part of the state dict: a model that loads one draws its own
    under the loaded hyperparameters. Only learned ones go from one model that learns
    to another. `copy.deepcopy` and `pickle` keep the points.

    Note:
        `botorch_sparse.models.loo_cv` leaves out observations of this posterior, in
        O(n m^2). `botorch.cross_validation.loo_cv` rebuilds the exact GP from the
        training data, in O(n^3), and says so with a warning. Sample paths
        (`draw_matheron_paths`) are those of this posterior and cost O(m) for each
        point. Joint samples at `q` points cost O(q^3): to acquisition functions that
        want all data, such as `qLogNoisyExpectedImprovement`, give a few hundred of
        the best points as `X_baseline`. BoTorch's analytic `NoisyExpectedImprovement`
        and `LogNoisyExpectedImprovement` build the exact GP of their `X_observed`,
        whatever the model is: the same advice.

    Args:
        train_X: `batch_shape x n x d` training inputs.
        train_Y: `batch_shape x n x m` observations. Repeated rows of `train_X` (in a
            batch, those that repeat in every element) are folded exactly.
        train_Yvar: `batch_shape x n x m` noise variances, or None to infer one.
        likelihood: As in `SingleTaskGP`.
        covar_module: As in `SingleTaskGP`.
        mean_module: As in `SingleTaskGP`.
        outcome_transform: As in `SingleTaskGP`.
        input_transform: As in `SingleTaskGP`.
        inducing_points: `m x d` or `batch_shape x m x d` inputs as the user sees them,
            before the input transform. They are used at any `n`, and never replaced.
        inducing_sampler: Draws inducing points among the training points,
            by default `CertifiedSampler()` with a fixed seed, which adds points until
            the variance is certain to be within the factor 2.62 of the exact one. A
            sampler that wants them is given the variances under the previous inducing
            points, at first under those that `RecursiveRLSSampler` draws.
        max_inducing_points: Cap on sampled inducing points. By default that of the
            sampler, 1000 for `CertifiedSampler`. Reaching it warns once, and
            `certificate` says what it costs.
        objective: "elbo" for the collapsed bound [Titsias2009]_, which is robust, or
            "dtc" for the likelihood of the approximate model, which can overfit.
        max_memory: Bytes that a fit and a first posterior may take, besides about 250
            MB to draw inducing points and certify them; by default a quarter of what
            is free on the device when they are first drawn. It bounds their number,
            whatever `n` is.
        learn_inducing_points: Whether fits move the inducing points anywhere, starting
            from those drawn or given, by the gradient of the objective [Titsias2009]_.
            Fewer points then say as much, after a fit that takes several hundred
            evaluations and not some thirty. For models that are fitted once; in loops,
            more points that are drawn serve better. Of drawn ones at most
            `model.max_fit_inducing_points` (256) are learned; more of them have to be
            given. `resparsify` undoes it.

    Raises:
        BotorchTensorDimensionError: For inducing points that are not `m x d` or
            `batch_shape x m x d`.
        InputDataError: For inducing points that are empty, not finite or of another
            dtype or device, an unknown objective, a cap below one, and other input
            that cannot work.

    Example:
        >>> X = torch.linspace(0, 1, 40, dtype=torch.double).unsqueeze(-1)
        >>> model = SparseSingleTaskGP(X, (6 * X).sin(), inducing_points=X[::4])
        >>> model.posterior(X[:3]).mean.shape
        torch.Size([3, 1])
    """

    _cached_posterior: NystromPosterior | None = None
    _has_warned_of_prior: bool = False

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
        inducing_points: Tensor | None = None,
        inducing_sampler: InducingPointSampler | None = None,
        max_inducing_points: int | None = None,
        objective: str = "elbo",
        max_memory: int | None = None,
        learn_inducing_points: bool = False,
    ) -> None:
        is_scaled = input_transform is not None
        validate_training_data(train_X, train_Y, train_Yvar, is_scaled)
        validate_modules(likelihood, covar_module, mean_module, inducing_sampler)
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
        validate_options(max_inducing_points, objective, max_memory)
        if inducing_points is not None:
            validate_inducing_points(inducing_points, train_X)
        if covar_module is not None:
            validate_kernel(self)
        self._set_inducing_options(
            inducing_points, inducing_sampler, max_inducing_points, max_memory
        )
        self.objective = objective
        self.learn_inducing_points = learn_inducing_points
        self._joint_notice = LargeJointNotice()

    def __call__(self, *args: Tensor, **kwargs: Any) -> MultivariateNormal:
        """Prior at the training inputs in train mode, posterior at `X` in eval mode.

        Args:
            *args: In eval mode one `batch_shape x q x d` tensor of transformed inputs.
            **kwargs: For the exact GP.

        Returns:
            A Gaussian over `batch_shape x q`.
        """
        if self._fantasy_posterior is not None and not self.training:
            return self._predict(self._fantasy_posterior, args[0])
        self._validate_call(*args)
        no_data = self._inputs is None or self._targets is None
        if self.training or no_data or gpytorch.settings.prior_mode.on():
            return super().__call__(*args, **kwargs)
        if self._cached_posterior is None and self.is_exact:
            return super().__call__(*args, **kwargs)
        return self._predict(self._prediction_posterior(), args[0])

    def _predict(self, posterior: NystromPosterior, X: Tensor) -> MultivariateNormal:
        """The posterior at `X`; a vector is as many points of one dimension."""
        X = X.unsqueeze(-1) if X.dim() == 1 else X
        return predict(posterior, X, on_dense=self._joint_notice)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at `x` (`batch_shape x n x d`); in train mode the low-rank one."""
        if not self.training or self.is_exact:
            self._warn_of_exact_prior(x)
            return super().forward(x)
        X = self.transform_inputs(x)
        is_data = same_tensor(x, self.train_inputs[0])
        return nystrom_prior(
            self.covar_module,
            self.mean_module,
            self._transformed_inducing_points(),
            X,
            self._inducing_set().rows if is_data else None,
            with_residual=self.objective == "elbo",
        )

    def _warn_of_exact_prior(self, x: Tensor) -> None:
        """Say once that the prior at all data, without the predictions, is dense.

        That is what `botorch.cross_validation.loo_cv` asks for, and nothing else does
        in eval mode, but in prior mode.
        """
        if self.training or self._has_warned_of_prior:
            return
        if gpytorch.settings.prior_mode.on() or self._inputs is None:
            return
        if not same_tensor(x, self.train_inputs[0]) or self.is_exact:
            return
        self._has_warned_of_prior = True
        warnings.warn(
            f"The exact prior at all {x.shape[-2]} training points was asked for, as "
            "botorch.cross_validation.loo_cv does. Its results are those of the exact "
            "GP, at O(n^3), and not of this model: use botorch_sparse.models.loo_cv.",
            BotorchWarning,
            stacklevel=3,
        )

    def subset_output(self, idcs: list[int]) -> "SparseSingleTaskGP":
        """The model of some outputs, with the same inducing points."""
        model = super().subset_output(idcs)
        if list(idcs) == list(range(self.num_outputs)):
            return model
        original = model._original_train_inputs
        if original is not None:
            index = idcs[0] if len(idcs) == 1 else idcs
            model._original_train_inputs = original[..., index, :, :]
        if self._conditioned is not None and self._keeps_conditioning():
            model._conditioned = self._conditioned._replace(rows=model._raw_rows)
        return model

    @classmethod
    def construct_inputs(
        cls,
        training_data: SupervisedDataset,
        inducing_points: Tensor | None = None,
        inducing_sampler: InducingPointSampler | None = None,
        max_inducing_points: int | None = None,
        objective: str = "elbo",
        max_memory: int | None = None,
        learn_inducing_points: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Constructor arguments from a data set and the model options of Ax.

        Args:
            training_data: The data.
            inducing_points: As in the constructor.
            inducing_sampler: As in the constructor.
            max_inducing_points: As in the constructor.
            objective: As in the constructor.
            max_memory: As in the constructor.
            learn_inducing_points: As in the constructor.
            **kwargs: What Ax passes to every model; ignored.

        Returns:
            Keyword arguments of the constructor.
        """
        return {
            **super().construct_inputs(training_data),
            "inducing_points": inducing_points,
            "inducing_sampler": inducing_sampler,
            "max_inducing_points": max_inducing_points,
            "objective": objective,
            "max_memory": max_memory,
            "learn_inducing_points": learn_inducing_points,
        }

    def set_train_data(
        self,
        inputs: Any = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """As in `ExactGP`; inducing points are drawn again where inputs changed.

        In eval mode inputs are those that the input transform returned.

        Raises:
            UnsupportedError: In eval mode, if the transform cannot be undone.
        """
        raw = self._raw_inputs_of(inputs)
        super().set_train_data(inputs=inputs, targets=targets, strict=strict)
        if raw is not None:
            self._original_train_inputs = raw
        self._drop_posterior()

    def nystrom_posterior(self) -> NystromPosterior:
        """The Nystrom posterior, in the transformed spaces of inputs and outcomes.

        Of the batch shape of the model, with the outputs as the last dimension. It is
        kept, and without gradient, unless gradients propagate (as with the caches of
        `ExactGP`). Cost: O(n m^2) for the first call.
        """
        return self._prediction_posterior().absorbed()

    def remember(self, X: Tensor) -> Self:
        """Keep what posteriors need of fixed points that many of them begin with.

        `qLogNoisyExpectedImprovement` and its relatives ask at each step for the joint
        posterior of the same baseline and a new candidate: call
        `model.remember(acqf.X_baseline)` before maximizing, and the baseline costs O(m)
        a row instead of O(m^2). Predictions are the same, but not their gradients with
        respect to these points. It lasts as long as the caches do; the exact GP has
        nothing to remember, and fantasies do not.

        Args:
            X: `r x d` points, before input transforms.

        Returns:
            The model, in eval mode. Cost: O(r m^2).

        Raises:
            BotorchTensorDimensionError: For points that are not `r x d`.
        """
        self._validate_points(X)
        with torch.no_grad():
            Z = self.eval().transform_inputs(X)
        self._validate_call(Z)
        if self._fantasy_posterior is not None or self.is_exact:
            return self
        with (
            torch.inference_mode(False),
            torch.no_grad(),  # after it: leaving inference mode enables gradients
            settings.propagate_grads(False),
            gpytorch.settings.detach_test_caches(True),
        ):
            posterior = self.nystrom_posterior()
            Z = Z.clone().to(posterior.inducing_points)
            self._cached_posterior = KnownRowsPosterior.of(posterior, Z)
        return self

    def _prediction_posterior(self) -> NystromPosterior:
        """The posterior, conditioning in the form it came in."""
        if self._fantasy_posterior is not None:
            return self._fantasy_posterior
        if settings.propagate_grads.on() or gpytorch.settings.detach_test_caches.off():
            return self._build_posterior()
        if self._cached_posterior is None:
            with torch.inference_mode(False), torch.no_grad():
                self._cached_posterior = self._build_posterior(torch.float64)
        return self._cached_posterior

    @property
    def is_exact(self) -> bool:
        """Whether it runs the exact GP: all points are inducing points, few repeat."""
        known = self._conditioned
        if known is not None and self._keeps_conditioning():
            return known.points is None
        chosen = self._inducing_set()
        n, n_unique = len(chosen.rows.inverse), len(chosen.rows.first)
        return chosen.is_complete and n <= max(EXACT_SIZE, 2 * n_unique)

    def _clear_cache(self) -> None:
        super()._clear_cache()
        self._drop_posterior()

    def _drop_posterior(self) -> None:
        """Forget the posterior; the inducing points stay."""
        self._cached_posterior = None
        self._fantasy_posterior = None

    def _build_posterior(self, dtype: torch.dtype | None = None) -> NystromPosterior:
        """Condition on the unique training points. Cost: O(n m^2).

        Args:
            dtype: `torch.float64` whatever the data are in, or None for their dtype,
                which leaves gradients to the hyperparameters.
        """
        X, rows = self._transformed_train_X(), self._inducing_set().rows
        data = self._folded_data(X, rows)
        source = X.dtype if dtype else torch.float64
        # Not `from_data`, which looks at the noise: a likelihood keeps it positive.
        prior = NystromPosterior.prior(
            in_double(self.covar_module, source),
            self._transformed_inducing_points().to(dtype),
            mean_module=in_double(self.mean_module, source),
        )
        X = X[..., rows.first, :]
        return prior.condition(X.to(dtype), data.Y.to(dtype), data.noise.to(dtype))
