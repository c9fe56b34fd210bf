"""A model of fantasies: a posterior, and data that are put together when asked for.

A fantasy model has all data of its parent and a few new rows, times the number of
fantasies. Its posterior needs none of that.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn, Self

import gpytorch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models import MultiTaskGP
from botorch.models.gpytorch import (
    BatchedMultiOutputGPyTorchModel,
    GPyTorchModel,
    MultiTaskGPyTorchModel,
)
from botorch.models.model import FantasizeMixin
from botorch.models.utils import mod_batch_shape
from botorch.sampling.base import MCSampler
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from gpytorch.module import Module
from torch import Tensor
from torch.nn import ModuleDict
from typing_extensions import override

from botorch_sparse.argument_checks import check_tensors
from botorch_sparse.models.conditioning import (
    ConcatenatedNoise,
    ConcatenatedRows,
    NewData,
    checked_noise,
    fantasize_nothing,
    select_outputs,
)
from botorch_sparse.models.model_warnings import ModelWarnings
from botorch_sparse.models.tasks import validate_tasks
from botorch_sparse.models.training_data import outputs_in_batch, validate_dimension
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.low_rank_update import LowRankUpdate
from botorch_sparse.threads import one_thread


class SparseFantasyModel(BatchedMultiOutputGPyTorchModel, FantasizeMixin):
    """A sparse model after conditioning on fantasies, or on a batch of observations.

    It predicts, and can be conditioned further. It cannot be fitted or moved, and has
    no prior and no certificate: ask the model that it comes from. Its transforms are
    copies of that model's; kernel and mean are the same, for gradients to flow to them.
    Cost, for each element of the batch: O(q m^2) time and O(q m) memory, whatever `n`
    is.

    Args:
        posterior: Its posterior.
        parent: The model that was conditioned.
        inputs: All transformed inputs.
        targets: All transformed observations.
        likelihood: The likelihood of all observations.
    """

    _has_transformed_inputs = True
    likelihood: Likelihood

    def __init__(
        self,
        posterior: NystromPosterior,
        parent: GPyTorchModel,
        inputs: ConcatenatedRows,
        targets: ConcatenatedRows,
        likelihood: Likelihood,
    ) -> None:
        super().__init__()
        self.training = False
        self._posterior = posterior
        self._inputs, self._targets = inputs, targets
        self._num_outputs = outputs_in_batch(parent)
        self._aug_batch_shape = targets.batch_shape
        outputs = 0 if self._num_outputs == 1 else 1
        self._input_batch_shape = targets.batch_shape[
            : len(targets.batch_shape) - outputs
        ]
        # Parameters of BoTorch's default modules, and their dimension of the outputs.
        self._subset_batch_dict = getattr(parent, "_subset_batch_dict", None)
        self._warnings = ModelWarnings()
        # Not registered: what moves or changes mode must not touch the parent, and
        # transforms in train mode would learn from what is predicted.
        self.__dict__["likelihood"] = likelihood
        for name in ("input_transform", "outcome_transform"):
            if hasattr(parent, name):
                self.__dict__[name] = copy.deepcopy(getattr(parent, name)).eval()

    @classmethod
    def of(
        cls,
        parent: "ExactGP | SparseFantasyModel",
        posterior: NystromPosterior,
        new: NewData,
    ) -> "SparseFantasyModel":
        """The model of a parent's data and new ones.

        Args:
            parent: The model that is conditioned.
            posterior: Its posterior before that.
            new: The new observations.
        """
        if isinstance(parent, SparseFantasyModel):
            inputs, targets = parent._inputs, parent._targets
        else:
            X, Y = parent.train_inputs[0], parent.train_targets
            inputs = ConcatenatedRows((X,), X.shape[:-2], event_dims=2)
            targets = ConcatenatedRows((Y,), Y.shape[:-1], event_dims=1)
        dtype = posterior.inducing_points.dtype
        has_tasks = isinstance(parent, MultiTaskGPyTorchModel)
        kind = SparseMultiTaskFantasyModel if has_tasks else SparseFantasyModel
        return kind(
            posterior.condition(*(t.to(dtype) for t in (new.X, new.Y, new.noise))),
            parent,
            inputs.append(new.X, new.batch_shape),
            targets.append(new.Y, new.batch_shape),
            new.likelihood(parent.likelihood),
        )

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """All transformed inputs, put together. Cost: O(n) for each element."""
        return (self._inputs.join(),)

    @property
    def train_targets(self) -> Tensor:
        """All transformed observations, put together."""
        return self._targets.join()

    @property
    def num_inducing(self) -> int:
        """The number `m` of inducing points."""
        return self._posterior.num_inducing

    def nystrom_posterior(self) -> NystromPosterior:
        """The posterior with one factor for each element. Cost: O(m^3) for each."""
        return self._posterior.absorbed()

    def transform_inputs(
        self, X: Tensor, input_transform: Module | None = None
    ) -> Tensor:
        """As in `SingleTaskGP`; `posterior` and all that takes inputs comes here.

        Raises:
            InputDataError: If they are no tensor.
        """
        check_tensors(X=X)
        return super().transform_inputs(X, input_transform)

    def __call__(self, X: Tensor) -> MultivariateNormal:
        """The posterior at `X`, `... x q x d` transformed inputs, in either mode."""
        if gpytorch.settings.prior_mode.on():
            return self.forward(X)
        validate_dimension(X, self._inputs.num_columns)
        X = X.unsqueeze(-1) if X.dim() == 1 else X
        with one_thread():
            return self._posterior.predict(X, on_dense=self._warnings.large_joint)

    def forward(self, X: Tensor) -> NoReturn:
        """The prior, which it does not have.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "A SparseFantasyModel is a posterior without a prior at its data; ask the "
            "model that was conditioned. For predictions call posterior(X)."
        )

    def train(self, mode: bool = True) -> Self:
        """Set the mode, which makes no difference."""
        self.training = mode
        return self

    def _revert_to_original_inputs(self) -> None:
        """Nothing to revert: a `ModelListGP` in train mode calls this of its models."""

    @override
    def condition_on_observations(
        self, X: Tensor, Y: Tensor, **kwargs: Any
    ) -> "SparseFantasyModel":
        check_tensors(X=X, Y=Y)
        noise = checked_noise(kwargs.get("noise"))
        new = NewData.observed(self, X, Y, noise, self._inputs.num_columns)
        return SparseFantasyModel.of(self, self._posterior, new)

    @override
    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None
    ) -> "SparseFantasyModel":
        d = self._inputs.num_columns
        new = NewData.transformed(self, inputs, targets, noise, raw_X=inputs, d=d)
        return SparseFantasyModel.of(self, self._posterior, new)

    @override
    def fantasize(
        self,
        X: Tensor,
        sampler: MCSampler,
        observation_noise: Tensor | None = None,
        **kwargs: object,
    ) -> "SparseFantasyModel":
        check_tensors(X=X)
        if X.shape[-2] == 0:
            return fantasize_nothing(self, X, sampler)
        covar = getattr(self.likelihood, "noise_covar", None)
        if observation_noise is None and isinstance(covar, ConcatenatedNoise):
            mean = covar.mean() + getattr(self.likelihood, "second_noise", 0.0)
            outputs = outputs_in_batch(self)
            observation_noise = mean.unsqueeze(-1) if outputs == 1 else mean.mT
        return super().fantasize(X, sampler, observation_noise, **kwargs)

    @override
    def subset_output(self, idcs: list[int]) -> "SparseFantasyModel":
        """The fantasy model of some outputs, whose kernel and mean are copies.

        Args:
            idcs: Different outputs, from 0 on.

        Raises:
            InputDataError: For outputs that there are not, or one of them twice.
            UnsupportedError: With another kernel than the default one, where BoTorch
                does not know which dimension of its parameters is that of the outputs.
        """
        outputs = list(range(self.num_outputs))
        if list(idcs) == outputs:
            return copy.deepcopy(self)
        if not idcs or not set(idcs) <= {*outputs} or len({*idcs}) < len(idcs):
            raise InputDataError(
                f"Got outputs {list(idcs)} of a model of {self.num_outputs}; need "
                f"different ones from 0 to {self.num_outputs - 1}."
            )
        modules = self._modules_of(idcs)
        model = SparseFantasyModel(
            _mapped(
                self._posterior,
                lambda matrix: select_outputs(matrix, idcs, -3),
                lambda vector: select_outputs(vector, idcs, -2),
                covar_module=modules["covar_module"],
                mean_module=modules["mean_module"],
            ),
            self,
            self._inputs.of_outputs(idcs),
            self._targets.of_outputs(idcs),
            modules["likelihood"],
        )
        model._num_outputs = len(idcs)
        model._input_batch_shape = self._input_batch_shape
        if hasattr(self, "outcome_transform"):
            octf = self.outcome_transform.subset_output(idcs)
            model.__dict__["outcome_transform"] = octf
        return model

    def _modules_of(self, idcs: list[int]) -> ModuleDict:
        """Copies of kernel, mean and likelihood, divided as BoTorch divides them."""
        if (dims := self._subset_batch_dict) is None:
            raise UnsupportedError(
                f"Got outputs {list(idcs)} of {self.num_outputs} with another kernel "
                "than the default one, which cannot be divided by outputs. Build one "
                "model for each output (ModelListGP)."
            )
        given = {
            "covar_module": self._posterior.covar_module,
            "mean_module": self._posterior.mean_module,
            "likelihood": self.likelihood,
        }
        modules = ModuleDict(copy.deepcopy(given))
        for name, parameter in modules.named_parameters():
            if name in dims:
                parameter.data = select_outputs(parameter.data, idcs, dims[name])
                owner = name.split(".")[:-1]
                mod_batch_shape(modules, owner, len(idcs) if len(idcs) > 1 else 0)
        noise = getattr(self.likelihood, "noise_covar", None)
        if isinstance(noise, ConcatenatedNoise):
            rows = noise.rows.of_outputs(idcs)
            modules["likelihood"].noise_covar = ConcatenatedNoise(rows)
        return modules

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Refuse to move; let pass what moves nothing, as acquisition functions do."""
        probe = self._targets.parts[0].new_empty(0)
        if fn(probe) is not probe:
            raise UnsupportedError(
                "A SparseFantasyModel stays in its dtype and on its device; move the "
                "model that it comes from, and condition that."
            )
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Everything but graphs, which cannot be copied."""
        return {
            **self.__dict__,
            "_posterior": _detached(self._posterior),
            "_inputs": self._inputs.detached(),
            "_targets": self._targets.detached(),
        }


# What BoTorch's `MultiTaskGP` knows of its tasks and their column.
OF_TASKS = (
    "num_tasks",
    "num_non_task_features",
    "_num_outputs",
    "_output_tasks",
    "_task_feature",
    "_task_mapper",
    "_expected_task_values",
    "_validate_task_values",
)


class SparseMultiTaskFantasyModel(MultiTaskGPyTorchModel, SparseFantasyModel):
    """A fantasy model of tasks, with or without their column in the inputs.

    BoTorch's `MultiTaskGPyTorchModel` gives inputs without it an output for each task,
    and `SparseFantasyModel` has the posterior. New observations have the column.

    Args:
        posterior: As in `SparseFantasyModel`, as the next ones.
        parent: See there; it knows the tasks.
        inputs: See there.
        targets: See there.
        likelihood: See there.
    """

    def __init__(
        self,
        posterior: NystromPosterior,
        parent: MultiTaskGPyTorchModel,
        inputs: ConcatenatedRows,
        targets: ConcatenatedRows,
        likelihood: Likelihood,
    ) -> None:
        super().__init__(posterior, parent, inputs, targets, likelihood)
        for name in OF_TASKS:
            setattr(self, name, getattr(parent, name))

    def _map_tasks(self, task_values: Tensor) -> Tensor:
        return MultiTaskGP._map_tasks(self, task_values)

    @override
    def _apply_noise(
        self,
        X: Tensor,
        mvn: MultivariateNormal,
        observation_noise: bool | Tensor,
    ) -> MultivariateNormal:
        """As in BoTorch, which takes no tensor; fantasies at known noise have one."""
        if not isinstance(observation_noise, Tensor):
            return super()._apply_noise(X, mvn, observation_noise)
        k, q = observation_noise.shape[-1], X.shape[-2]
        noise = observation_noise.expand(*mvn.batch_shape, q // k, k)
        return self.likelihood(mvn, X, noise=noise.mT.flatten(-2))

    @override
    def condition_on_observations(
        self, X: Tensor, Y: Tensor, **kwargs: Any
    ) -> SparseFantasyModel:
        check_tensors(X=X, Y=Y)
        validate_tasks(self, X)
        return super().condition_on_observations(X, Y, **kwargs)

    @override
    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None
    ) -> SparseFantasyModel:
        validate_tasks(self, inputs)
        return super().get_fantasy_model(inputs, targets, noise)


def _detached(posterior: NystromPosterior) -> NystromPosterior:
    """The same posterior without gradients, but with kernel and mean as they are."""
    return _mapped(
        posterior,
        Tensor.detach,
        Tensor.detach,
        covar_module=posterior.covar_module,
        mean_module=posterior.mean_module,
    )


def _mapped(
    posterior: NystromPosterior,
    of_matrix: Callable[[Tensor], Tensor],
    of_vector: Callable[[Tensor], Tensor],
    *,
    covar_module: Kernel,
    mean_module: Mean,
) -> NystromPosterior:
    """The posterior with other modules, and what becomes of its matrices and vectors.

    Each has its batch first.
    """
    features = posterior.feature_map
    kept = features.kept
    return NystromPosterior(
        feature_map=replace(
            features,
            covar_module=covar_module,
            inducing_points=of_matrix(features.inducing_points),
            inducing_index=of_vector(features.inducing_index),
            chol_inducing=of_matrix(features.chol_inducing),
            kept=None if kept is None else of_vector(kept),
        ),
        mean_module=mean_module,
        chol_inner=of_matrix(posterior.chol_inner),
        weights=of_vector(posterior.weights),
        updates=tuple(
            LowRankUpdate(*map(of_matrix, update)) for update in posterior.updates
        ),
    )
