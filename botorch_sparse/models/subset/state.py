"""What a model of a subset needs to go on to the same bits."""

from typing import Any

from botorch_sparse.linear_operators import (
    TrackedCholesky,
    UpdatableCholeskyLinearOperator,
)
from botorch_sparse.models.subset.model import SubsetSingleTaskGP
from botorch_sparse.models.subset.prediction import SubsetFactor


def subset_state(model: SubsetSingleTaskGP) -> dict[str, Any]:
    """Hyperparameters, transforms, the samples in order and the factor, as tensors.

    A factor that was updated many times rounds otherwise than one that is built from
    the same samples, so it is a part of the state: O(M^2) numbers.
    """
    factor = model._factor
    return {
        "parameters": {k: v.detach().clone() for k, v in model.state_dict().items()},
        "indices": model.subset_indices.clone(),
        "num_selections": model.num_selections,
        "factor": None if factor is None else _factor_state(factor),
    }


def load_subset_state(model: SubsetSingleTaskGP, state: dict[str, Any]) -> None:
    """Give a model, built from the same data, the state of another one."""
    model.load_state_dict(state["parameters"])
    model.set_subset(state["indices"])
    model.num_selections = state["num_selections"]
    model._factor = None if state["factor"] is None else _factor(state["factor"])
    model.prediction_strategy = None


def _factor_state(factor: SubsetFactor) -> dict[str, Any]:
    tracked = factor.cholesky
    return {
        "index": factor.rows.clone(),
        "hyperparameters": factor.hyperparameters.clone(),
        "noise": factor.noise.clone(),
        "matrix": tracked.matrix.clone(),
        "chol": tracked.chol.clone(),
        "tolerance": tracked.tolerance,
        "num_updates": tracked.num_updates,
    }


def _factor(state: dict[str, Any]) -> SubsetFactor:
    tracked = TrackedCholesky(
        state["matrix"],
        UpdatableCholeskyLinearOperator(state["chol"]),
        state["tolerance"],
        state["num_updates"],
    )
    return SubsetFactor(
        state["index"].cpu(), tracked, state["hyperparameters"], state["noise"]
    )
