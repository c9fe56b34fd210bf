r"""A drop-in for `SingleTaskGP` whose cost does not grow with n^2 or n^3."""

from dataclasses import replace
from typing import Never

from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.module import Module
from torch import Tensor

from botorch_sparse.argument_checks import check_tensors
from botorch_sparse.inducing import InducingPointSampler
from botorch_sparse.kernels import mixed_kernel
from botorch_sparse.models.sparse_gp import SparseGP, SparseState
from botorch_sparse.models.training_data import (
    raw_inputs,
    validate_categories,
    validate_kernel,
    validate_keywords,
    validate_scaling,
)
from botorch_sparse.private_names import DefaultType


class SparseSingleTaskGP(SparseGP, SingleTaskGP):
    r"""`SingleTaskGP` on the Nystrom (DTC) posterior [Calandriello2019]_.

    .. math::
        \mu(x) = c(x) + w(x)^\top a, \qquad
        \mathrm{cov}(x, x') = r(x, x') + w(x)^\top w(x')

    with the features of `m` inducing points (see `NystromPosterior`). Use it where
    `SingleTaskGP` is too slow, from about a thousand observations on; everything else
    stays as it is, `fit_gpytorch_mll(ExactMarginalLogLikelihood(...))` included.

    Cost, with `n` different training points: O(n m^2) for an evaluation of the fit
    objective and for the first posterior, then O(m^2) for each point predicted,
    whatever `n` is. Memory O(m^2) besides the data. Up to 3,000 observations a default
    fit maximizes the exact likelihood, at O(n^3) an evaluation and up to 0.6 GB.

    The inducing points are drawn by the first call (`posterior`, a fit, `certificate`)
    under the hyperparameters of that moment, and stay until `resparsify` or a fit draws
    them again. `inducing_points`, `num_inducing` and `is_exact` only look: before that
    call they say what it would draw. Where all training points are inducing points the
    model says what the exact GP does; up to 500 points it is one, by the code of
    `SingleTaskGP`. By default all points are inducing points up to 500 different ones,
    and up to 3,000 where nearly as many would be drawn, or as many as the sampler's
    cap: on rough functions with little noise. The caches follow
    `SingleTaskGP`: they are dropped by `train`, `eval` after `train`, `set_train_data`
    and `load_state_dict`, not by assigning a hyperparameter in eval mode.

    Inducing points are not part of the state dict: a model that loads one draws its own
    under the loaded hyperparameters. Only learned ones go from one model that learns
    to another. `copy.deepcopy` and `pickle` keep the points.

    Note:
        `botorch_sparse.models.loo_cv` leaves out observations of this posterior, in
        O(n m^2). `botorch.cross_validation.loo_cv` rebuilds the exact GP from the
        training data, in O(n^3), and says so with a warning. Sample paths
        (`draw_matheron_paths`) follow this posterior and cost O(m) for each
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
        max_inducing_points: Cap on sampled inducing points. By default the
            sampler's, 1000 for `CertifiedSampler`; reaching that, or what `max_memory`
            allows, warns once. `certificate` says what a cap costs.
        objective: "elbo" for the collapsed bound [Titsias2009]_, which is robust, or
            "dtc" for the likelihood of the approximate model, which can overfit.
        max_memory: Bytes that a fit and a first posterior may take, besides about 250
            MB to draw inducing points and certify them. It bounds their number,
            whatever `n` is. None for no bound but that on their number.
        learn_inducing_points: Whether fits move the inducing points anywhere, starting
            from those drawn or given, by the gradient of the objective [Titsias2009]_.
            Fewer points then say as much, after a fit that takes several hundred
            evaluations and not some thirty. For models that are fitted once; in loops,
            more points that are drawn serve better. Of drawn ones at most
            `model.max_fit_inducing_points` (256) are learned; more of them have to be
            given. `resparsify` undoes it.
        cat_dims: Columns of categories, as in `MixedSingleTaskGP`, whose kernel it then
            has. Acquisition functions need `optimize_acqf_mixed`, since there are no
            gradients with respect to categories.
        robust: Whether to find outliers, observations that the others contradict, by
            relevance pursuit [Ament2024]_. Each has a noise variance of its own beside
            the noise of all, `outlier_noise`, so that it says little. A fit finds them,
            or else the first prediction, and a warning names their rows. A true value
            that nothing near confirms, such as a narrow peak, is taken for one as well.
            Where it finds none, fit and posterior are those of a model that is not
            robust. A fit costs one to six times as much. Values far from all others
            say nothing of the default outcome transform's mean and scale.
        **unknown: None is taken. The error names the model that has such an argument.

    Attributes:
        max_fit_inducing_points: Most inducing points while a fit maximizes the bound;
            256 by default, None for as many as the model draws. More come closer to
            the exact fit beyond 3,000 observations, at O(n m^2). See `custom_fit`.

    Raises:
        BotorchTensorDimensionError: For inducing points that are not `m x d` or
            `batch_shape x m x d`.
        InputDataError: For inducing points that are empty, not finite or of another
            dtype or device, an unknown objective, a cap below one, and other input
            that cannot work.
        TypeError: For other arguments, such as `task_feature`.

    Example:
        >>> import torch
        >>> X = torch.linspace(0, 1, 40, dtype=torch.double).unsqueeze(-1)
        >>> model = SparseSingleTaskGP(X, (6 * X).sin(), inducing_points=X[::4])
        >>> model.posterior(X[:3]).mean.shape
        torch.Size([3, 1])
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
        inducing_points: Tensor | None = None,
        inducing_sampler: InducingPointSampler | None = None,
        max_inducing_points: int | None = None,
        objective: str = "elbo",
        max_memory: int | None = None,
        learn_inducing_points: bool = False,
        cat_dims: list[int] | None = None,
        robust: bool = False,
        **unknown: Never,
    ) -> None:
        validate_keywords(unknown, type(self))
        check_tensors(train_X=train_X, train_Y=train_Y)
        validate_categories(cat_dims, train_X.shape[-1], covar_module)
        is_given = covar_module is not None
        if cat_dims:
            self._ignore_X_dims_scaling_check = [
                j % train_X.shape[-1] for j in cat_dims
            ]
            covar_module = mixed_kernel(train_X, train_Y, cat_dims)
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            likelihood=likelihood,
            covar_module=covar_module,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
            inducing_points=inducing_points,
            inducing_sampler=inducing_sampler,
            max_inducing_points=max_inducing_points,
            objective=objective,
            max_memory=max_memory,
            learn_inducing_points=learn_inducing_points,
            robust=robust,
        )
        validate_scaling(self, train_X, check_nans_only=is_given or robust)
        if covar_module is not None:
            validate_kernel(self)
        self.cat_dims = cat_dims

    def subset_output(self, idcs: list[int]) -> "SparseSingleTaskGP":
        """The model of some outputs, with the same inducing points."""
        model = super().subset_output(idcs)
        if list(idcs) == list(range(self.num_outputs)):
            return model
        if (extra := self._outlier_noise) is not None:
            model._outlier_noise = extra[..., idcs, :].reshape(
                model.train_targets.shape
            )
        original = model._original_train_inputs
        if original is not None:
            index = idcs[0] if len(idcs) == 1 else idcs
            model._original_train_inputs = original[..., index, :, :]
        chosen = self._state.chosen
        if chosen is not None and chosen.belongs_to(raw_inputs(self)):
            chosen = replace(chosen, train_X=raw_inputs(model))
        model._state = SparseState(chosen)
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
        cat_dims: list[int] | None = None,
        robust: bool = False,
        **kwargs: object,
    ) -> dict[str, object]:
        """Keyword arguments of the constructor, from a data set and options of Ax.

        What Ax passes to every model beside them is ignored.
        """
        return {
            **super().construct_inputs(training_data),
            "inducing_points": inducing_points,
            "inducing_sampler": inducing_sampler,
            "max_inducing_points": max_inducing_points,
            "objective": objective,
            "max_memory": max_memory,
            "learn_inducing_points": learn_inducing_points,
            "cat_dims": cat_dims,
            "robust": robust,
        }
