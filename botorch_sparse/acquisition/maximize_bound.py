"""The maximum of a bound on a box, searched from the points of the batch."""

import warnings
from typing import TYPE_CHECKING, Any

import torch
from botorch.exceptions import CandidateGenerationError
from botorch.exceptions.warnings import OptimizationWarning
from botorch.optim import optimize_acqf
from botorch.utils.sampling import manual_seed
from torch import Tensor

if TYPE_CHECKING:
    from botorch_sparse.acquisition.ratio_bound import RatioBound

# Points of the batch from which the search starts, by default.
NUM_STARTS = 8


def maximize_bound(
    bound: "RatioBound",
    bounds: Tensor | None,
    optimizer_options: dict[str, Any],
    enough: float,
) -> float:
    """The largest value found; the global bound where no search succeeds.

    Args:
        bound: The bound, with a batch of at least one point.
        bounds: A `2 x d` tensor.
        optimizer_options: For `optimize_acqf`.
        enough: Values above it end the search.

    Returns:
        A value between the largest at the batch's points and the global bound.
    """
    ceiling = bound.global_bound()
    X = bound.X_batch.unique(dim=0)
    with torch.no_grad():
        at_batch = bound(X.unsqueeze(-2))
    floor = float(at_batch.max())
    if floor > enough or not floor < ceiling:
        return floor
    options = dict(optimizer_options)
    num_starts = min(options.pop("num_restarts", NUM_STARTS), len(X))
    starts = X[at_batch.topk(num_starts).indices].unsqueeze(-2)
    try:
        found = _search(bound, bounds, starts, options)
    except (CandidateGenerationError, RuntimeError, ValueError):
        return ceiling
    return min(max(found, floor), ceiling) if found == found else ceiling


def _search(
    bound: "RatioBound",
    bounds: Tensor | None,
    starts: Tensor,
    options: dict[str, Any],
) -> float:
    """The best value from the starts and, with `raw_samples`, a few random ones."""
    for of_acqf in ("batch_initial_conditions", "return_best_only", "sequential"):
        options.pop(of_acqf, None)
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
