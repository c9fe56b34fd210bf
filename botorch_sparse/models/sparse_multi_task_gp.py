r"""A drop-in for `MultiTaskGP` whose cost does not grow with n^2 or n^3."""

from typing import Any, Never

import torch
from botorch.models import MultiTaskGP
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.datasets import MultiTaskDataset, SupervisedDataset
from botorch.utils.types import DEFAULT
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood
from gpytorch.likelihoods.hadamard_gaussian_likelihood import HadamardGaussianLikelihood
from gpytorch.means import Mean, MultitaskMean
from gpytorch.module import Module
from gpytorch.priors.prior import Prior
from torch import Tensor
from typing_extensions import override

from botorch_sparse.argument_checks import check_keywords, check_tensors
from botorch_sparse.inducing import InducingPointSampler
from botorch_sparse.models.sparse_gp import SparseGP
from botorch_sparse.models.tasks import (
    TaskKernel,
    TaskMean,
    TaskNoise,
    TaskNumbers,
    validate_task_column,
    validate_tasks,
)
from botorch_sparse.models.training_data import validate_kernel
from botorch_sparse.private_names import DefaultType


class SparseMultiTaskGP(SparseGP, MultiTaskGP):
    r"""`MultiTaskGP` on the Nystrom (DTC) posterior [Calandriello2019]_.

    .. math::
        k((x, s), (x', t)) = k(x, x') \, B_{st}

    with a column for the task (intrinsic coregionalization, [Bonilla2007]_). Inducing
    points are rows of the training data, so that tasks that are measured more, or vary
    more, have more of them. All else is as in `SparseSingleTaskGP`: costs, how inducing
    points are drawn and kept, exactness up to 500 points, fits.

    Use it as `MultiTaskGP`. Inputs with the tasks' column have one output, inputs
    without it one for each of the output tasks. Conditioning and fantasies take inputs
    with the column.

    Args:
        train_X: `n x (d + 1)` inputs, one of whose columns is the task.
        train_Y: `n x 1` observations.
        task_feature: The column of the task, from -d - 1 to d.
        train_Yvar: `n x 1` noise variances, or None to infer one for each task.
        mean_module: As in `MultiTaskGP`, as the next nine: by default a constant for
            each task.
        covar_module: The kernel of the inputs beside the task.
        likelihood: See there.
        task_covar_prior: See there.
        output_tasks: See there; all tasks by default.
        rank: Of the tasks' covariance; the number of tasks by default.
        all_tasks: See there.
        outcome_transform: See there. BoTorch's `StratifiedStandardize` scales each task
            by itself, for inputs with the tasks' column.
        input_transform: See there. It must leave the tasks' column as it is: give
            `Normalize` the `indices` of the others.
        validate_task_values: See there.
        inducing_points: `m x (d + 1)` inputs. This and what follows is as in
            `SparseSingleTaskGP`.
        inducing_sampler: See there, as the next four.
        max_inducing_points: See there.
        objective: See there.
        max_memory: See there.
        learn_inducing_points: See there.
        **unknown: None is taken. There is no `robust` and no `cat_dims` here.

    Raises:
        InputDataError: As `SparseSingleTaskGP`, and for values in the tasks' column
            that are not whole numbers, after the input transform.
        RuntimeError: For output tasks that were not measured.
        ValueError: For a batch of data, or a column that is not there; from posteriors
            and conditioning for tasks that are not known.

    Example:
        >>> import torch
        >>> X, task = torch.rand(60, 2).double(), torch.arange(60).double() % 2
        >>> Y = (5 * X[:, :1]).sin() + task.unsqueeze(-1)
        >>> model = SparseMultiTaskGP(torch.cat([X, task[:, None]], 1), Y, 2)
        >>> model.posterior(X[:3]).mean.shape
        torch.Size([3, 2])
    """

    _aug_batch_shape = torch.Size()  # it takes no batches

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        task_feature: int,
        train_Yvar: Tensor | None = None,
        mean_module: Mean | None = None,
        covar_module: Module | None = None,
        likelihood: Likelihood | None = None,
        task_covar_prior: Prior | DefaultType | None = DEFAULT,
        output_tasks: list[int] | None = None,
        rank: int | None = None,
        all_tasks: list[int] | None = None,
        outcome_transform: OutcomeTransform | DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        validate_task_values: bool = True,
        inducing_points: Tensor | None = None,
        inducing_sampler: InducingPointSampler | None = None,
        max_inducing_points: int | None = None,
        objective: str = "elbo",
        max_memory: int | None = None,
        learn_inducing_points: bool = False,
        **unknown: Never,
    ) -> None:
        check_keywords(unknown, (), type(self))
        check_tensors(train_X=train_X)
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            task_feature=task_feature,
            mean_module=mean_module,
            covar_module=covar_module,
            likelihood=likelihood,
            task_covar_prior=task_covar_prior,
            output_tasks=output_tasks,
            rank=rank,
            all_tasks=all_tasks,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
            validate_task_values=validate_task_values,
            inducing_points=inducing_points,
            inducing_sampler=inducing_sampler,
            max_inducing_points=max_inducing_points,
            objective=objective,
            max_memory=max_memory,
            learn_inducing_points=learn_inducing_points,
        )
        validate_task_column(self, train_X)
        self._take_tasks_by_value()
        if covar_module is not None:
            validate_kernel(self)

    def _take_tasks_by_value(self) -> None:
        """Replace modules that know tasks by their numbers; see `tasks.py`."""
        values, feature = sorted(self._expected_task_values), self._task_feature
        numbers = TaskNumbers(values, default=self._output_tasks[0])
        kernel, of_tasks = self.covar_module.kernels
        by_value = TaskKernel(
            numbers,
            rank=self._rank,
            prior=getattr(of_tasks, "IndexKernelPrior", None),
            active_dims=[feature],
        )
        by_value.load_state_dict(of_tasks.state_dict())
        self.add_module("covar_module", kernel * by_value)
        if type(self.mean_module) is MultitaskMean:
            means = list(self.mean_module.base_means)
            self.add_module("mean_module", TaskMean(means, numbers, feature))
        if type(self.likelihood) is HadamardGaussianLikelihood:
            noise = self.likelihood.noise_covar
            likelihood = TaskNoise(numbers, feature)
            likelihood.noise_covar = noise
            self.add_module("likelihood", likelihood)
        self.to(self.train_inputs[0])

    @override
    def _exact_prior(self, x: Tensor) -> MultivariateNormal:
        X = self.transform_inputs(x) if self.training else x
        validate_tasks(self, X)
        return MultivariateNormal(self.mean_module(X), self.covar_module(X))

    @override
    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> Model:
        check_tensors(X=X, Y=Y)
        validate_tasks(self, X)
        return super().condition_on_observations(X, Y, **kwargs)

    @override
    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, **kwargs: Any
    ) -> Model:
        validate_tasks(self, inputs)
        return super().get_fantasy_model(inputs, targets, **kwargs)

    @classmethod
    def construct_inputs(
        cls,
        training_data: SupervisedDataset | MultiTaskDataset,
        task_feature: int,
        inducing_points: Tensor | None = None,
        inducing_sampler: InducingPointSampler | None = None,
        max_inducing_points: int | None = None,
        objective: str = "elbo",
        max_memory: int | None = None,
        learn_inducing_points: bool = False,
        **kwargs: Any,
    ) -> dict[str, object]:
        """Keyword arguments of the constructor, from a data set and options of Ax."""
        return {
            **super().construct_inputs(training_data, task_feature, **kwargs),
            "inducing_points": inducing_points,
            "inducing_sampler": inducing_sampler,
            "max_inducing_points": max_inducing_points,
            "objective": objective,
            "max_memory": max_memory,
            "learn_inducing_points": learn_inducing_points,
        }
