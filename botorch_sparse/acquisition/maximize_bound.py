"""The maximum of a bound on a box, searched from the points of the batch."""

import warnings
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import CandidateGenerationError
from botorch.exceptions.warnings import OptimizationWarning
from botorch.optim import optimize_acqf
from botorch.utils.sampling import manual_seed
from torch import Tensor

# Points of the batch from which the search starts, by default.
NUM_STARTS = 8
# Arguments of `optimize_acqf` that are those of the search for points.
OF_POINTS = {"batch_initial_conditions", "return_best_only", "sequential"}


def maximize_bound(
    bound: AcquisitionFunction,
    X_batch: Tensor,
    ceiling: float,
    bounds: Tensor | None,
    optimizer_options: dict[str, Any],
    enough: float,
) -> float:
    """The largest value found; the ceiling where no search succeeds.

    Args:
        bound: The bound.
        X_batch: `s x d` points of the batch, at least one, where it peaks.
        ceiling: No value is above it.
        bounds: A `2 x d` tensor.
        optimizer_options: For `optimize_acqf`.
        enough: Values above it end the search.

    Returns:
        A value between the largest at the batch's points and the ceiling.
    """
    X = X_batch.unique(dim=0)
    with torch.no_grad():
        at_batch = bound(X.unsqueeze(-2))
    floor = float(at_batch.max())
    if floor > enough or not floor < ceiling:
        return floor
    options = {k: v for k, v in optimizer_options.items() if k not in OF_POINTS}
    num_starts = min(options.pop("num_restarts", NUM_STARTS), len(X))
    starts = X[at_batch.topk(num_starts).indices].unsqueeze(-2)
    try:
        found = _search(bound, bounds, starts, options)
    except (CandidateGenerationError, RuntimeError, ValueError):
        return ceiling
    return min(max(found, floor), ceiling) if found == found else ceiling


def _search(
    bound: AcquisitionFunction,
    bounds: Tensor | None,
    starts: Tensor,
    options: dict[str, Any],
) -> float:
    """The best value from the starts and, with `raw_samples`, a few random ones."""
    options = {"retry_on_optimization_warning": False} | options
    raw_samples = options.pop("raw_samples", None)
    num_random = min(2, raw_samples or 0)
    seed = (options.get("options") or {}).get("seed")
    with warnings.catch_warnings(), manual_seed(seed):
        warnings.simplefilter("ignore", category=OptimizationWarning)
        _, value = optimize_acqf(
            bound,
            bounds=bounds,
            q=1,
            num_restarts=len(starts) + num_random,
            raw_samples=raw_samples,
            batch_initial_conditions=starts,
            **options,
        )
    return float(value)
