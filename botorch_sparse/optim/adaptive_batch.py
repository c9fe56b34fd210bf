"""Batches whose size the posterior decides, on finite and on continuous domains."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.frozen import FrozenPosterior
from botorch_sparse.acquisition.ratio_bound import RatioBound
from botorch_sparse.acquisition.ratios import validate_ratio_threshold
from botorch_sparse.optim.next_point import Box, Choices

# Where a batch ends at the latest: points without variance add nothing to any bound.
MAX_BATCH_SIZE = 10_000

Reason = Literal["ratio_threshold", "max_batch_size", "choices"]


@dataclass(frozen=True, eq=False)
class AdaptiveBatch:
    """A batch, and why it ended.

    Attributes:
        X: `q x d` points, in the order they were chosen.
        values: `q` values of the acquisition function when each was chosen.
        reason: `"ratio_threshold"` if the last point crossed it, `"choices"` if
            `unique` left none, else `"max_batch_size"`.
        bound: The bound on the ratio of variances that the rule looked at last.
        indices: `q` rows of the choices, or None on a box.
    """

    X: Tensor
    values: Tensor
    reason: Reason
    bound: float
    indices: Tensor | None = None


def optimize_adaptive_batch(
    acqf: AcquisitionFunction,
    termination: RatioBound,
    ratio_threshold: float = 2.0,
    *,
    bounds: Tensor | None = None,
    choices: Tensor | None = None,
    max_batch_size: int | None = None,
    min_batch_size: int = 1,
    unique: bool = False,
    optimizer_options: dict[str, Any] | None = None,
) -> AdaptiveBatch:
    r"""Choose points one by one until the variances have shrunk too far.

    Each point maximizes the acquisition function with those before it pending. The
    batch goes on while the maximum over `x` of the bound on
    :math:`\mathrm{var}_{fb}(x) / \mathrm{var}_t(x)` is at most `ratio_threshold`, and
    the point that crosses it belongs to the batch ([Calandriello2020]_ Algorithm 1).
    Points of `termination`, or else pending points of `acqf`, count from the start;
    both are left as they were.

    With `BatchUpperConfidenceBound`, choices are embedded once, and a point costs
    O(A m) for `A` of them; other acquisition functions are evaluated at all of them
    each time. A choice may be taken more than once, unless `unique` says otherwise.

    Args:
        acqf: An acquisition function that knows `X_pending`.
        termination: A rule, such as `GlobalLocal(model)`.
        ratio_threshold: Largest ratio of variances allowed, at least one.
        bounds: A `2 x d` tensor of lower and upper bounds, or
        choices: `A x d` choices.
        max_batch_size: Largest size, 10,000 by default.
        min_batch_size: The rule is not asked before: the ratio may be larger then.
        unique: Whether a choice is taken once at most, equal rows counting as one, as
            in `optimize_acqf_discrete`. The batch ends where none is left.
        optimizer_options: On a box, for `optimize_acqf`: `num_restarts` (10),
            `raw_samples` (256), constraints, `fixed_features`, `options`, ... With
            `options={"seed": s}` the batch is the same each time.

    Returns:
        The batch.

    Raises:
        InputDataError: If not one of bounds and choices is given, a size or the
            threshold is out of range, or `unique` is asked for on a box.
        UnsupportedError: If the acquisition function takes no pending points.

    Example:
        >>> from botorch.models import SingleTaskGP
        >>> from botorch_sparse.acquisition import BatchUpperConfidenceBound
        >>> from botorch_sparse.acquisition import GlobalLocal
        >>> X = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
        >>> model = SingleTaskGP(X, (6 * X).sin())
        >>> batch = optimize_adaptive_batch(
        ...     BatchUpperConfidenceBound(model, beta=4.0),
        ...     GlobalLocal(model),
        ...     choices=torch.linspace(0, 1, 101, dtype=torch.float64).unsqueeze(-1),
        ... )
        >>> batch.reason
        'ratio_threshold'
    """
    _validate(acqf, bounds, choices, max_batch_size, min_batch_size)
    validate_ratio_threshold(ratio_threshold)
    if unique and choices is None:
        raise InputDataError(
            "Got unique=True with bounds; points of a box never repeat."
        )
    if choices is not None:
        _validate_choices(choices, termination.X_batch.shape[-1])
    pending, frozen = acqf.X_pending, termination.frozen
    if not len(termination.X_batch):
        termination.frozen = _view(acqf, termination)
    source: Box | Choices = (
        Choices(acqf, termination, choices, unique=unique)
        if choices is not None
        else Box(acqf, termination, bounds, optimizer_options)
    )
    try:
        return _choose(source, ratio_threshold, max_batch_size, min_batch_size)
    finally:
        termination.frozen = frozen
        acqf.set_X_pending(pending)


def _choose(
    source: Box | Choices,
    ratio_threshold: float,
    max_batch_size: int | None,
    min_batch_size: int,
) -> AdaptiveBatch:
    """The loop over the points of a batch."""
    limit = MAX_BATCH_SIZE if max_batch_size is None else max_batch_size
    reason: Reason = "max_batch_size"
    chosen = []
    for size in range(1, limit + 1):
        chosen.append(source.choose())
        if size >= min_batch_size or source.is_exhausted:
            bound = source.bound(ratio_threshold)
            if bound > ratio_threshold:
                reason = "ratio_threshold"
                break
        if source.is_exhausted:
            reason = "choices"
            break
    X, values, rows = (torch.cat(v) for v in zip(*chosen, strict=True))
    return AdaptiveBatch(X, values, reason, bound, source.indices(rows))


def _view(acqf: AcquisitionFunction, termination: RatioBound) -> FrozenPosterior:
    """The rule's posterior with the pending points; shared with `acqf` if it can be."""
    is_batch_ucb = isinstance(acqf, BatchUpperConfidenceBound)
    if is_batch_ucb and acqf.model is termination.model:
        return acqf.frozen
    return termination.frozen.with_batch(acqf.X_pending)


def _validate(
    acqf: AcquisitionFunction,
    bounds: Tensor | None,
    choices: Tensor | None,
    max_batch_size: int | None,
    min_batch_size: int,
) -> None:
    """Check what `optimize_adaptive_batch` was given."""
    if (choices is None) == (bounds is None):
        raise InputDataError("Give either choices or bounds.")
    limit = MAX_BATCH_SIZE if max_batch_size is None else max_batch_size
    if not 1 <= min_batch_size <= limit:
        raise InputDataError(
            f"Got min_batch_size={min_batch_size} and max_batch_size={max_batch_size}; "
            "need 1 <= min_batch_size <= max_batch_size."
        )
    if not hasattr(acqf, "X_pending"):
        raise UnsupportedError(
            f"{type(acqf).__name__} takes no pending points. Try "
            "BatchUpperConfidenceBound, or an acquisition function with X_pending."
        )


def _validate_choices(X: Tensor, d: int) -> None:
    """Refuse choices that are not a finite `A x d` tensor."""
    if X.dim() != 2 or not len(X) or X.shape[-1] != d:
        raise InputDataError(
            f"Got choices of shape {tuple(X.shape)}; need `A x {d}`, with A > 0."
        )
    if not X.isfinite().all():
        raise InputDataError(
            f"Got choices with {int((~X.isfinite()).any(-1).sum())} rows that are not "
            "finite; leave them out."
        )
