"""Kernel, mean and noise of several tasks, which know them by a column of the inputs.

BoTorch's `MultiTaskGP` numbers the tasks before it calls its modules, from 0 on, but
for its likelihood, which takes other values of the column for no task: without noise.
These modules take the column as it is, so that whatever calls them may.
"""

from typing import Any

import torch
from botorch.exceptions import InputDataError
from botorch.models.gpytorch import MultiTaskGPyTorchModel
from botorch.models.kernels.positive_index import PositiveIndexKernel
from gpytorch.likelihoods.hadamard_gaussian_likelihood import HadamardGaussianLikelihood
from gpytorch.means import MultitaskMean
from gpytorch.module import Module
from gpytorch.priors.prior import Prior
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse.argument_checks import short_list
from botorch_sparse.models.training_data import validate_dimension


def validate_task_column(model: MultiTaskGPyTorchModel, X: Tensor) -> None:
    """Check that input transforms leave the tasks' column of `n` inputs as it is.

    Raises:
        InputDataError: If one changes it, or tasks are no whole numbers.
    """
    tasks, transform = (
        X[..., model._task_feature],
        getattr(model, "input_transform", None),
    )
    _check_whole_tasks(tasks)
    if transform is None:
        return
    was_training = transform.training
    for is_training in (True, False):
        there = transform.train(is_training)(X)[..., model._task_feature]
        is_same = there.reshape(len(tasks), -1) == tasks.unsqueeze(-1)
        if not is_same.all():
            transform.train(was_training)
            found = there.reshape(len(tasks), -1)[~is_same].unique().tolist()
            raise InputDataError(
                f"Got {short_list(found, 5, show=str)} in the tasks' column after the "
                "input transform; need the tasks as they are. Give Normalize the "
                "indices of the other columns."
            )
    transform.train(was_training)


def _check_whole_tasks(tasks: Tensor) -> None:
    is_whole = tasks == tasks.round()
    if not is_whole.all():
        found = short_list(tasks[~is_whole].unique().tolist(), 5, show=str)
        raise InputDataError(f"Got {found} in the tasks' column; need whole numbers.")


def validate_tasks(model: MultiTaskGPyTorchModel, X: Tensor) -> None:
    """Check that inputs have a column of tasks that a model knows."""
    validate_dimension(X, model.num_non_task_features + 1)
    _check_whole_tasks(X[..., model._task_feature])
    model._map_tasks(X[..., model._task_feature])


class TaskNumbers(Module):
    """From the values of a column to the numbers of tasks, which are ascending.

    Args:
        values: `T` values of the tasks, whole numbers.
        default: The value that all others are taken for.
    """

    def __init__(self, values: list[int], default: int) -> None:
        super().__init__()
        self.register_buffer("values", torch.tensor(sorted(values)), persistent=False)
        self.default = sorted(values).index(default)

    def forward(self, column: Tensor) -> Tensor:
        """Numbers from 0 to T - 1, of the shape of the column."""
        found = torch.searchsorted(self.values, column.long().contiguous())
        found = found.clamp_max(len(self.values) - 1)
        return found.where(self.values[found] == column.long(), self.default)


def _correlations(kernel: PositiveIndexKernel) -> Tensor:
    return kernel._lower_triangle_corr


def _set_correlations(kernel: PositiveIndexKernel, value: Tensor) -> None:
    kernel._set_lower_triangle_corr(value)


class TaskKernel(PositiveIndexKernel):
    """BoTorch's kernel of tasks, at values of the tasks' column; it can be pickled.

    Args:
        numbers: Of the `T` tasks.
        prior: Of the correlations below the diagonal, or None.
        **kwargs: As in `PositiveIndexKernel`.
    """

    def __init__(
        self, numbers: TaskNumbers, prior: Prior | None = None, **kwargs: object
    ) -> None:
        super().__init__(num_tasks=len(numbers.values), **kwargs)
        self.numbers = numbers
        if prior is not None:
            # BoTorch's name; its functions are lambdas, which no pickle takes.
            name = "IndexKernelPrior"
            self.register_prior(name, prior, _correlations, _set_correlations)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object
    ) -> Tensor:
        """Covariances of the tasks of `... x n x 1` and `... x k x 1`, as matrices.

        By products with matrices of zeros and ones: their gradients are products too.
        """
        first, second = (self._one_hot(x) for x in (x1, x2))
        rows = first @ self.covar_matrix
        return (rows * second).sum(-1) if diag else rows @ second.mT

    def _one_hot(self, x: Tensor) -> Tensor:
        numbers = self.numbers(x.squeeze(-1))
        return torch.nn.functional.one_hot(numbers, self.num_tasks).to(self.raw_var)


class TaskMean(MultitaskMean):
    """A mean for each task, at inputs with the tasks' column.

    Args:
        base_means: `T` means, or one that is copied.
        numbers: Of the `T` tasks.
        task_feature: The tasks' column, from 0 to d.
    """

    def __init__(
        self,
        base_means: list[Module] | Module,
        numbers: TaskNumbers,
        task_feature: int,
    ) -> None:
        super().__init__(base_means, num_tasks=len(numbers.values))
        self.task_feature = task_feature
        self.numbers = numbers

    def forward(self, x: Tensor) -> Tensor:
        """Means of `... x n x (d + 1)` inputs, `... x n`."""
        j = self.task_feature
        means = super().forward(torch.cat([x[..., :j], x[..., j + 1 :]], dim=-1))
        numbers = self.numbers(x[..., j : j + 1]).expand(*means.shape[:-1], 1)
        return means.gather(-1, numbers).squeeze(-1)


class TaskNoise(HadamardGaussianLikelihood):
    """A noise variance for each task, at inputs with the tasks' column.

    Args:
        numbers: Of the `T` tasks.
        task_feature: The tasks' column.
        **kwargs: As in `HadamardGaussianLikelihood`.
    """

    def __init__(
        self, numbers: TaskNumbers, task_feature: int, **kwargs: object
    ) -> None:
        super().__init__(
            num_tasks=len(numbers.values), task_feature_index=task_feature, **kwargs
        )
        self.numbers = numbers

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, **kwargs: Any
    ) -> DiagLinearOperator:
        if "noise" in kwargs:
            return DiagLinearOperator(kwargs["noise"])
        if not params or (not isinstance(params[0], Tensor) and not params[0]):
            raise ValueError(
                "Task indices must be provided. Pass the inputs as well: mll(output, "
                "model.train_targets, *model.train_inputs), likelihood(posterior, X)."
            )
        x = params[0] if isinstance(params[0], Tensor) else params[0][0]
        numbers = self.numbers(x[..., self.task_feature_index])
        noise = self.noise.expand(*numbers.shape[:-1], self.num_tasks)
        return DiagLinearOperator(noise.gather(-1, numbers).expand(base_shape))
