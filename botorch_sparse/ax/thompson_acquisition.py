"""Thompson sampling on a table of arms, with the hyperparameters of Ax's models."""

import math
from copy import deepcopy
from typing import Any

import torch
from ax.core.search_space import SearchSpaceDigest
from ax.generators.torch_base import TorchOptConfig
from botorch.acquisition import AcquisitionFunction, PosteriorMean
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models import ModelListGP
from botorch.models.model import Model
from torch import Tensor

from botorch_sparse.ax.sparse_acquisition import Candidates, SparseAcquisition
from botorch_sparse.ax.trial_data import joined
from botorch_sparse.strategies import Constraint, Objective, ThompsonSampling


class ThompsonAcquisition(SparseAcquisition):
    """Chooses rows of a table by `ThompsonSampling`, for one or several outcomes.

    Kernels and noise variances are those of the surrogate's models; of standard errors
    that are known, their mean square counts. Objectives and outcome constraints become
    `Objective` and `Constraint`. Objective thresholds are the reference point; where
    one is not given it is inferred from the first trials, and not from the front as Ax
    does it. Trials note the one in use.

    Its options (`acquisition_options`) are as in `SparseAcquisition`.
    """

    def _update_objective_thresholds(self, torch_opt_config: TorchOptConfig) -> None:
        """None is inferred by the model; see `optimize`."""

    def _construct_botorch_acquisition(
        self,
        botorch_acqf_class: type[AcquisitionFunction],
        botorch_acqf_options: dict[str, Any],
        model: Model,
    ) -> AcquisitionFunction:
        """The weighted mean of the objectives, which decides nothing."""
        self.baseline = self._best_observed(model)
        weights = self._objective_weights.sum(0)
        return PosteriorMean(model, ScalarizedPosteriorTransform(weights))

    def optimize(
        self, n: int, search_space_digest: SearchSpaceDigest, **kwargs: Any
    ) -> Candidates:
        """At most `n` rows (`k x d`), their weighted means, and weights.

        See `SparseAcquisition.optimize`.

        Cost, for each outcome with its `n` observations and `m` inducing points:
        O(n m^2), and O(A m) for each point that is chosen among `A` rows.

        Raises:
            InputDataError: If there is no table.
            UnsupportedError: For objectives and constraints that combine outcomes, for
                kernels without random features, and for outcome transforms.
            SearchSpaceExhausted: See `SparseAcquisition.optimize`.
        """
        if self.choices is None:
            raise InputDataError(
                "ThompsonAcquisition got no table of arms; need candidates, such as "
                "thompson_generation_strategy(candidates=table)."
            )
        rows = self._eligible(self.choices, kwargs)
        is_unique = not self.allows_repeats()
        rows = rows.unique(dim=0) if is_unique and n > 1 else rows
        wanted = wanted_outcomes(
            self._objective_weights,
            self.objective_thresholds,
            self._outcome_constraints,
        )
        models = _each_output(self._model)
        models = [models[output] for output in wanted]
        used, outputs = self._subset_idcs, list(wanted)
        numbers = outputs if used is None else used[outputs].tolist()
        X, Y, _ = joined(self.surrogate.training_data, numbers)
        strategy = ThompsonSampling(
            models[0].transform_inputs(rows),
            [deepcopy(model.covar_module) for model in models],
            [model.likelihood.noise.mean().item() for model in models],
            batch_size=n,
            outcomes=wanted.values(),
            unique=is_unique,
            seed=int(torch.randint(2**31, ())),
        )
        strategy.tell(models[0].transform_inputs(X), Y)
        chosen = rows[torch.as_tensor(strategy.ask().indices, device=rows.device)]
        if len(self._objective_weights) > 1:
            reference = strategy.history.reference_point().to(rows)
            signs = self._objective_weights.sum(-1).sign()
            self._objective_thresholds = signs * reference
        means = self.evaluate(chosen.unsqueeze(-2)).detach()
        return chosen, means, torch.ones(len(chosen), dtype=self.dtype)


def wanted_outcomes(
    objective_weights: Tensor,
    objective_thresholds: Tensor | None,
    outcome_constraints: tuple[Tensor, Tensor] | None,
) -> dict[int, Objective | Constraint]:
    """What is wanted of the outputs of a model, by their numbers.

    Raises:
        UnsupportedError: For objectives and constraints that combine outcomes.
    """
    wanted: dict[int, Objective | Constraint] = {}
    for place, row in enumerate(objective_weights):
        output, weight = _only_entry("an objective", row)
        goals = objective_thresholds
        goal = math.nan if goals is None else float(goals[place])
        threshold = None if math.isnan(goal) else math.copysign(1.0, weight) * goal
        wanted[output] = Objective(output, weight < 0, threshold)
    limits: dict[int, dict[str, float]] = {}
    for row, bound in zip(*(outcome_constraints or ((), ())), strict=True):
        output, weight = _only_entry("an outcome constraint", row)
        name = "upper" if weight > 0 else "lower"
        limits.setdefault(output, {})[name] = float(bound) / weight
    for output, each in limits.items():
        wanted[output] = Constraint(output, **each)
    return wanted


def _each_output(model: Model) -> list[Model]:
    """A model for each output."""
    lists = isinstance(model, ModelListGP)
    models = list(model.models) if lists else [model]
    each = [
        part if part.num_outputs == 1 else part.subset_output([k])
        for part in models
        for k in range(part.num_outputs)
    ]
    if any(hasattr(part, "outcome_transform") for part in each):
        raise UnsupportedError(
            "ThompsonAcquisition got a model with an outcome transform; need models of "
            "the outcomes as Ax gives them, without outcome_transform_classes."
        )
    return each


def _only_entry(name: str, row: Tensor) -> tuple[int, float]:
    """The place and the value of the only weight that is not zero."""
    places = row.nonzero().squeeze(-1).tolist()
    if len(places) != 1:
        raise UnsupportedError(
            f"Sample paths got {name} that combines {len(places)} outcomes; need "
            "one of each outcome. Add a metric that is the combination, or use "
            "sparse_generation_strategy."
        )
    return places[0], float(row[places[0]])
