"""Batches whose size the posterior decides, on finite and on continuous domains."""

from copy import copy
from dataclasses import dataclass
from typing import Any, Literal

from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.frozen import FrozenPosterior
from botorch_sparse.acquisition.pointwise_ratio_bounds import (
    GlobalLocal,
    LocalRatioBound,
)
from botorch_sparse.acquisition.ratio_bound import RatioBound
from botorch_sparse.acquisition.ratios import validate_ratio_threshold
from botorch_sparse.argument_checks import check_tensors, check_whole, short_repr
from botorch_sparse.batching.acquisition_batch import (
    AcquisitionBatch,
    BoxBatch,
    ChoiceBatch,
    frozen_of,
)
from botorch_sparse.batching.pool_of_choices import PoolBatch, suits_pool
from botorch_sparse.batching.rules import (
    MAX_BATCH_SIZE,
    MAX_BOX_BATCH,
    BatchView,
    GrowingBatch,
    Local,
    Rule,
    rule_of,
)

Reason = Literal["ratio_threshold", "max_batch_size", "choices", "variance"]

NEED_SIZES = "need 1 <= min_batch_size <= max_batch_size, whole numbers."


@dataclass(frozen=True, eq=False)
class AdaptiveBatch:
    """A batch, and why it ended.

    Attributes:
        X: `q x d` points, in the order they were chosen.
        values: `q` values of the acquisition function when each was chosen.
        reason: `"ratio_threshold"` if the last point crossed it, `"choices"` if
            `unique` left none, `"variance"` if the last point of a box had so little
            that it adds nothing to any bound, else `"max_batch_size"`.
        bound: The bound on the ratio of variances that the rule looked at last. Where
            it is above the threshold, a local one may be that at the batch's own points
            alone, a lower bound of the largest.
        indices: `q` rows of the choices, or None on a box.
    """

    X: Tensor
    values: Tensor
    reason: Reason
    bound: float
    indices: Tensor | None = None


def optimize_adaptive_batch(
    acqf: AcquisitionFunction,
    termination: Rule | RatioBound,
    ratio_threshold: float | None = None,
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

    With `BatchUpperConfidenceBound`, choices are embedded once, and a point costs at
    most O(A m) for `A` of them; other acquisition functions are evaluated at all of
    them each time. A choice may be taken more than once, unless `unique` says
    otherwise.

    Args:
        acqf: An acquisition function that knows `X_pending`.
        termination: A rule, such as `Local(2.0)`, or its form for each `x`, such as
            `GlobalLocal(model)`.
        ratio_threshold: Largest ratio of variances allowed, at least one; 2 by default.
            A rule has its own.
        bounds: A `2 x d` tensor of lower and upper bounds, or
        choices: `A x d` choices.
        max_batch_size: Largest size; by default 10,000 choices, or 256 points of a box,
            each of which is an optimization.
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
            threshold is out of range, or `unique` is asked for on a box; if choices
            have not as many features as the model.
        BotorchTensorDimensionError: If bounds have not.
        UnsupportedError: If the acquisition function takes no pending points.

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> from botorch_sparse.acquisition import BatchUpperConfidenceBound
        >>> from botorch_sparse.batching import Local
        >>> X = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
        >>> model = SingleTaskGP(X, (6 * X).sin())
        >>> batch = optimize_adaptive_batch(
        ...     BatchUpperConfidenceBound(model, beta=4.0),
        ...     Local(2.0),
        ...     choices=torch.linspace(0, 1, 101, dtype=torch.float64).unsqueeze(-1),
        ... )
        >>> batch.reason
        'ratio_threshold'
    """
    if max_batch_size is None:
        max_batch_size = MAX_BOX_BATCH if choices is None else MAX_BATCH_SIZE
    _validate(acqf, max_batch_size, min_batch_size)
    rule, frozen = _rule_and_view(acqf, termination, ratio_threshold)
    if unique and choices is None:
        raise InputDataError(
            "Got unique=True with bounds; points of a box never repeat."
        )
    later = _RuleFromSize(rule, len(frozen.X_batch) + min_batch_size)
    pending = acqf.X_pending
    place: AcquisitionBatch | PoolBatch
    if choices is not None and bounds is None:
        place = _batch_among_choices(choices, acqf, later, frozen, unique=unique)
    elif bounds is not None and choices is None:
        place = BoxBatch(acqf, later, bounds, optimizer_options, frozen=frozen)
    else:
        raise InputDataError("Give either choices or bounds.")
    try:
        return _choose(place, rule, max_batch_size)
    finally:
        acqf.set_X_pending(pending)


@dataclass(frozen=True)
class _RuleFromSize:
    """A rule that is asked from a size on."""

    rule: Rule
    size: int

    @property
    def ratio_threshold(self) -> float:
        """The rule's."""
        return self.rule.ratio_threshold

    def bound(self, batch: BatchView) -> float | Tensor:
        """The rule's, or one."""
        return 1.0 if batch.size < self.size else self.rule.bound(batch)


@dataclass(frozen=True, eq=False)
class _PointwiseRule:
    """The largest value of a `RatioBound` over an `AcquisitionBatch`'s domain."""

    of_points: RatioBound
    ratio_threshold: float

    def bound(self, batch: BatchView) -> float:
        """The maximum, or the global bound while that is at most the threshold."""
        assert isinstance(batch, AcquisitionBatch)  # no pool takes this rule
        bound = copy(self.of_points)
        bound.frozen = batch.frozen
        return bound.bound(self.ratio_threshold, **batch.domain)


def _rule_of_bound(bound: RatioBound, ratio_threshold: float) -> Rule:
    """The rule that a bound is the pointwise form of, or a `_PointwiseRule`."""
    is_local = type(bound) in (LocalRatioBound, GlobalLocal)
    # As a rule `"paper"` waits for one more point; as a bound it does not.
    if is_local and isinstance(bound, LocalRatioBound) and bound.covariance != "paper":
        return Local(ratio_threshold, bound.covariance)
    return _PointwiseRule(bound, ratio_threshold)


def _batch_among_choices(
    choices: Tensor,
    acqf: AcquisitionFunction,
    rule: _RuleFromSize,
    frozen: FrozenPosterior,
    *,
    unique: bool,
) -> AcquisitionBatch | PoolBatch:
    """A batch among choices: in a pool where one has the same bound."""
    _validate_choices(choices, frozen.X_batch.shape[-1])
    if suits_pool(acqf, frozen) and not isinstance(rule.rule, _PointwiseRule):
        return PoolBatch(acqf, rule, choices, unique=unique)
    return ChoiceBatch(acqf, rule, frozen, choices, unique=unique)


def _choose(
    place: AcquisitionBatch | PoolBatch, rule: Rule, limit: int
) -> AdaptiveBatch:
    """The batch, and what its last bound says."""
    batch: GrowingBatch = place.batch if isinstance(place, PoolBatch) else place
    if isinstance(place, PoolBatch) and place.most is not None:
        limit = min(limit, place.most)
    before, chosen = batch.size, batch.choose(limit)
    if batch.size < before + len(chosen):
        batch.append(chosen[-1])
    bound = float(rule.bound(batch))
    reason: Reason = "ratio_threshold"
    if bound <= rule.ratio_threshold:
        exhausted: Reason = "variance" if isinstance(place, BoxBatch) else "choices"
        reason = exhausted if place.is_exhausted else "max_batch_size"
    X, values, indices = place.found()
    return AdaptiveBatch(X, values, reason, bound, indices)


def _rule_and_view(
    acqf: AcquisitionFunction,
    termination: Rule | RatioBound,
    ratio_threshold: float | None,
) -> tuple[Rule, FrozenPosterior]:
    """The rule, and the posterior that it looks at; shared with `acqf` if it can be."""
    if not isinstance(termination, RatioBound):
        if ratio_threshold is not None:
            raise InputDataError(
                f"Got ratio_threshold={ratio_threshold} and {termination!r}, which has "
                "its own; leave the first out."
            )
        return rule_of(termination), frozen_of(acqf)
    threshold = 2.0 if ratio_threshold is None else ratio_threshold
    validate_ratio_threshold(threshold)
    rule = _rule_of_bound(termination, threshold)
    if len(termination.X_batch):
        return rule, termination.frozen
    if isinstance(acqf, BatchUpperConfidenceBound) and acqf.model is termination.model:
        return rule, acqf.frozen
    return rule, termination.frozen.with_batch(acqf.X_pending)


def _validate(
    acqf: AcquisitionFunction, max_batch_size: int, min_batch_size: int
) -> None:
    """Check what `optimize_adaptive_batch` was given."""
    check_whole("min_batch_size", min_batch_size, 1, NEED_SIZES)
    check_whole("max_batch_size", max_batch_size, 1, NEED_SIZES)
    if min_batch_size > max_batch_size:
        raise InputDataError(
            f"Got min_batch_size={min_batch_size} and max_batch_size={max_batch_size}; "
            f"{NEED_SIZES}"
        )
    if not hasattr(acqf, "X_pending") or isinstance(acqf, type):
        raise UnsupportedError(
            f"Got acqf={short_repr(acqf)}; {type(acqf).__name__} takes no pending "
            "points. Try BatchUpperConfidenceBound, or an acquisition function with "
            "X_pending."
        )


def _validate_choices(X: Tensor, d: int) -> None:
    """Refuse choices that are not a finite `A x d` tensor."""
    check_tensors(choices=X)
    if X.dim() != 2 or not len(X) or X.shape[-1] != d:
        raise InputDataError(
            f"Got choices of shape {tuple(X.shape)}; need `A x {d}`, with A > 0 and "
            "the features of the model's training points."
        )
    if not X.isfinite().all():
        raise InputDataError(
            f"Got choices with {int((~X.isfinite()).any(-1).sum())} rows that are not "
            "finite; leave them out."
        )
