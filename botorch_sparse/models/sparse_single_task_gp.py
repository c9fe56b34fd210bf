r"""A drop-in for `SingleTaskGP` whose cost does not grow with n^2 or n^3."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gpytorch
import torch
from botorch import settings
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.fit import _fit_fallback
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.module import Module
from torch import Tensor

from botorch_sparse.inducing import InducingPointSampler
from botorch_sparse.models.adaptive_inducing import EXACT_SIZE, AdaptiveInducingMixin
from botorch_sparse.models.inducing_set import (
    same_tensor,
)
from botorch_sparse.models.nystrom_prior import nystrom_prior
from botorch_sparse.models.prediction import predict
from botorch_sparse.models.validation import (
    validate_inducing_points,
    validate_options,
)
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.precision import in_double


class SparseSingleTaskGP(AdaptiveInducingMixin, SingleTaskGP):
    r"""`SingleTaskGP` on the Nystrom (DTC) posterior [Calandriello2019]_.

    .. math::
        \mu(x) = c(x) + w(x)^\top a, \qquad
        \mathrm{cov}(x, x') = r(x, x') + w(x)^\top w(x')

    with the features of `m` inducing points (see `NystromPosterior`). Use it where
    `SingleTaskGP` is too slow, from about a thousand observations on; everything else
    stays as it is, `fit_gpytorch_mll(ExactMarginalLogLikelihood(...))` included.

    Cost, with `n` different training points: O(n m^2) for an evaluation of the fit
    objective and for the first posterior, then O(m^2) for each point predicted,
    whatever `n` is. Memory O(n m) to fit.

    The inducing points are drawn when they are first needed, under the hyperparameters
    of that moment, and stay until `resparsify` or a fit draws them again. Where all
    training points are inducing points the model is the exact GP, by the code of
    `SingleTaskGP`; so it is by default up to 500 different points. The caches follow
    `SingleTaskGP`: they are dropped by `train`, `eval` after `train`, `set_train_data`
    and `load_state_dict`, not by assigning a hyperparameter in eval mode.

    Inducing points are not part of the state dict: a model that loads one draws its own
    under the loaded hyperparameters. `copy.deepcopy` and `pickle` keep them.

    Note:
        `botorch.cross_validation.loo_cv` and pathwise (Matheron) sampling rebuild the
        exact GP from the training data, at O(n^3), and not this posterior.

    Args:
        train_X: `n x d` training inputs.
        train_Y: `n x 1` observations. Repeated rows of `train_X` are folded exactly.
        train_Yvar: `n x 1` noise variances, or None to infer one.
        likelihood: As in `SingleTaskGP`.
        covar_module: As in `SingleTaskGP`.
        mean_module: As in `SingleTaskGP`.
        outcome_transform: As in `SingleTaskGP`.
        input_transform: As in `SingleTaskGP`.
        inducing_points: `m x d` inputs as the user sees them, before the input
            transform. They are used at any `n`, and never replaced.
        inducing_sampler: Draws inducing points among the training points,
            `RecursiveRLSSampler()` with a fixed seed by default. It is
            given the variances under the previous inducing points, at first under
            those that the default sampler draws.
        max_inducing_points: Cap on sampled inducing points. By default that of the
            sampler, 1000 for `RecursiveRLSSampler`. Reaching it warns once.
        objective: "elbo" for the collapsed bound [Titsias2009]_, which is robust, or
            "dtc" for the likelihood of the approximate model, which can overfit.

    Raises:
        UnsupportedError: For several outputs or batches of training data.
        BotorchTensorDimensionError: For inducing points that are not `m x d`.
        InputDataError: For inducing points that are empty, not finite or of another
            dtype or device, an unknown objective, or a cap below one.

    Example:
        >>> X = torch.linspace(0, 1, 40, dtype=torch.double).unsqueeze(-1)
        >>> model = SparseSingleTaskGP(X, (6 * X).sin(), inducing_points=X[::4])
        >>> model.posterior(X[:3]).mean.shape
        torch.Size([3, 1])
    """

    rounds: ClassVar[int] = 2

    _cached_posterior: NystromPosterior | None = None
    _always_exact: bool = False

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
    ) -> None:
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
        validate_options(train_X, train_Y, max_inducing_points, objective)
        if inducing_points is not None:
            validate_inducing_points(inducing_points, train_X)
        self._set_inducing_options(
            inducing_points, inducing_sampler, max_inducing_points
        )
        self.objective = objective

    def __call__(self, *args: Tensor, **kwargs: Any) -> MultivariateNormal:
        """Prior at the training inputs in train mode, posterior at `X` in eval mode.

        Args:
            *args: In eval mode one `batch_shape x q x d` tensor of transformed inputs.
            **kwargs: For the exact GP.

        Returns:
            A Gaussian over `batch_shape x q`.
        """
        no_data = self.train_inputs is None or self.train_targets is None
        if self.training or no_data or gpytorch.settings.prior_mode.on():
            return super().__call__(*args, **kwargs)
        if self._cached_posterior is None and self._is_exact():
            return super().__call__(*args, **kwargs)
        X = args[0].unsqueeze(-1) if args[0].dim() == 1 else args[0]
        return predict(self._nystrom_posterior(), X)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at `x` (`n x d`); in train mode the low-rank one."""
        if not self.training or self._is_exact():
            return super().forward(x)
        X = self.transform_inputs(x)
        features_of = NystromPosterior.prior(
            self.covar_module,
            self._transformed_inducing_points(),
            mean_module=self.mean_module,
        )
        is_data = same_tensor(x, self.train_inputs[0])
        return nystrom_prior(
            features_of,
            X,
            self._inducing_set().rows if is_data else None,
            with_residual=self.objective == "elbo",
        )

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable[[], tuple[Tensor, Sequence[Tensor | None]]] | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        rounds: int | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """Fit with the inducing points fixed, draw them again, and refit.

        `fit_gpytorch_mll` calls this. Within a round the objective does not change, and
        the fit is BoTorch's own, retries and checkpoints included. It stops early when
        the same inducing points are drawn.

        Args:
            mll: The marginal log likelihood of this model.
            closure: As in `fit_gpytorch_mll`.
            closure_kwargs: As in `fit_gpytorch_mll`.
            optimizer_kwargs: As in `fit_gpytorch_mll`.
            rounds: Number of fits, at least one; `self.rounds` by default.
            **kwargs: As in `fit_gpytorch_mll`.

        Returns:
            `mll`, in eval mode.

        Raises:
            InputDataError: If `rounds` is below one.
            ModelFittingError: If all attempts of a round failed.
        """
        rounds = self.rounds if rounds is None else rounds
        if rounds < 1:
            raise InputDataError(f"Got rounds={rounds}; need at least 1.")
        for remaining in reversed(range(rounds)):
            mll = _fit_fallback(
                mll,
                closure=closure,
                closure_kwargs=closure_kwargs,
                optimizer_kwargs=optimizer_kwargs,
                **kwargs,
            )
            points = self.inducing_points
            if remaining == 0 or same_tensor(points, self.resparsify().inducing_points):
                break
        return mll

    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, **kwargs: Any
    ) -> SingleTaskGP:
        """Condition on new observations; for now where the model is exact.

        Raises:
            UnsupportedError: If not all training points are inducing points.
        """
        if not self._is_exact():
            raise UnsupportedError(
                f"SparseSingleTaskGP with {self.num_inducing} inducing points for "
                f"{len(self.train_targets)} observations cannot be conditioned or "
                "fantasized yet. Build a new model on all observations, or use an "
                "acquisition function without fantasies, such as "
                "qLogExpectedImprovement with X_pending."
            )
        fantasy_model = super().get_fantasy_model(inputs, targets, **kwargs)
        fantasy_model._always_exact = True  # its caches are those of the exact GP
        return fantasy_model

    @classmethod
    def construct_inputs(
        cls,
        training_data: SupervisedDataset,
        inducing_points: Tensor | None = None,
        inducing_sampler: InducingPointSampler | None = None,
        max_inducing_points: int | None = None,
        objective: str = "elbo",
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Constructor arguments from a data set and the model options of Ax.

        Args:
            training_data: The data.
            inducing_points: As in the constructor.
            inducing_sampler: As in the constructor.
            max_inducing_points: As in the constructor.
            objective: As in the constructor.
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
        }

    def set_train_data(
        self,
        inputs: Any = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """As in `ExactGP`; inducing points are drawn again where inputs changed."""
        super().set_train_data(inputs=inputs, targets=targets, strict=strict)
        self._cached_posterior = None

    def _clear_cache(self) -> None:
        super()._clear_cache()
        self._cached_posterior = None

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> "SparseSingleTaskGP":
        self._cached_posterior = None
        return super()._apply(fn)

    def _is_exact(self) -> bool:
        """Whether to run the exact GP: all points are inducing points, few repeat."""
        if self._always_exact:
            return True
        chosen = self._inducing_set()
        n, n_unique = len(chosen.rows.inverse), len(chosen.rows.first)
        return chosen.is_complete and n <= max(EXACT_SIZE, 2 * n_unique)

    def _nystrom_posterior(self) -> NystromPosterior:
        """The posterior; kept, and without gradient, unless gradients propagate."""
        if settings.propagate_grads.on() or gpytorch.settings.detach_test_caches.off():
            return self._build_posterior()
        if self._cached_posterior is None:
            with torch.inference_mode(False), torch.no_grad():
                self._cached_posterior = self._build_posterior(torch.float64)
        return self._cached_posterior

    def _build_posterior(self, dtype: torch.dtype | None = None) -> NystromPosterior:
        """Condition on the unique training points. Cost: O(n m^2).

        Args:
            dtype: `torch.float64` whatever the data are in, or None for their dtype,
                which leaves gradients to the hyperparameters.
        """
        X, rows = self._transformed_train_X(), self._inducing_set().rows
        data = self._folded_data(X, rows)
        source = X.dtype if dtype else torch.float64
        return NystromPosterior.from_data(
            in_double(self.covar_module, source),
            X[rows.first].to(dtype),
            data.Y.to(dtype),
            data.noise.to(dtype),
            self._transformed_inducing_points().to(dtype),
            mean_module=in_double(self.mean_module, source),
        )
