"""A batch on a box, each point by `optimize_acqf`."""

from collections.abc import Callable
from typing import Any

from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import InputDataError
from botorch.optim import optimize_acqf
from botorch.utils.sampling import manual_seed
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.frozen import FrozenPosterior, freeze
from botorch_sparse.argument_checks import as_bounds, check_kind
from botorch_sparse.batching.acquisition_batch import AcquisitionBatch
from botorch_sparse.batching.growing_batch import ContinueFunction, always_continue
from botorch_sparse.batching.rules import Rule, rule_of

# Where a batch on a box ends at the latest by default: each point is an optimization.
MAX_BOX_BATCH = 256
# Variance over noise of a point that adds nothing: a million of them end no batch.
LEAST_LEVERAGE = 1e-6
DEFAULT_OPTIONS = {"num_restarts": 10, "raw_samples": 256}
# Arguments of `optimize_acqf` that are not the user's: one best point is asked for.
OWN_OPTIONS = {"acq_function", "bounds", "q", "return_best_only"}


class BoxBatch(AcquisitionBatch):
    """Maximizers over a box, until the rule ends the batch or a point adds nothing.

    Args:
        acqf: As in `AcquisitionBatch`; its pending points are in the batch.
        rule: What ends the batch; None for no rule.
        bounds: A `2 x d` tensor of lower and upper bounds.
        optimizer_options: For `optimize_acqf`, beyond `DEFAULT_OPTIONS`. With a seed
            among its `options` the batch is the same each time.
        frozen: The posterior that the rule looks at; that of `acqf` by default.
        clamp: What is done to each maximizer, such as rounding it into the box.
        number: Gives a point (`d`) its number; they are counted by default.
        most: The largest number of points that are chosen at a time; None for all.
    """

    def __init__(
        self,
        acqf: AcquisitionFunction,
        rule: Rule | None,
        bounds: Tensor,
        optimizer_options: dict[str, Any] | None = None,
        *,
        frozen: FrozenPosterior | None = None,
        clamp: Callable[[Tensor], Tensor] | None = None,
        number: Callable[[Tensor], int] | None = None,
        most: int | None = None,
    ) -> None:
        need = "an acquisition function, such as BatchUpperConfidenceBound"
        check_kind("acqf", acqf, AcquisitionFunction, need)
        bounds, rule = as_bounds(bounds), None if rule is None else rule_of(rule)
        options = _with_defaults(optimizer_options or {})
        frozen = frozen_of(acqf) if frozen is None else frozen
        super().__init__(acqf, rule, frozen, bounds=bounds, optimizer_options=options)
        self._clamp = clamp
        self._number = number
        self._most = most
        self._points: dict[int, Tensor] = {}
        self._step = 0

    def point(self, row: int) -> Tensor:
        """See `AcquisitionBatch`; one that was a maximizer."""
        return self._points[row]

    def choose(
        self, limit: int, goes_on: ContinueFunction = always_continue
    ) -> list[int]:
        """See `Batch`; at most `most`."""
        most = limit if self._most is None else min(limit, self._most)
        return super().choose(most, goes_on)

    def _maximize(self) -> tuple[int, float]:
        options = dict(self.domain["optimizer_options"])
        inner = dict(options.get("options") or {})
        seed = inner.get("seed")
        if seed is not None:
            seed = inner["seed"] = seed + self._step  # other starts for each point
            options["options"] = inner
        with manual_seed(seed):
            X, value = optimize_acqf(
                self.acqf, bounds=self.domain["bounds"], q=1, **options
            )
        self._step += 1
        X = X if self._clamp is None else self._clamp(X)
        row = len(self._points) if self._number is None else self._number(X[0])
        self._points[row] = X
        return row, float(value)

    @property
    def is_exhausted(self) -> bool:
        """Whether the last point's variance is too small for any rule to see."""
        leverage = self.frozen.variance[..., -1:] / self.frozen.noise[..., -1:]
        return bool((leverage <= LEAST_LEVERAGE).all())


def frozen_of(acqf: AcquisitionFunction) -> FrozenPosterior:
    """The posterior of an acquisition function's model, with its pending points."""
    if isinstance(acqf, BatchUpperConfidenceBound):
        return acqf.frozen
    return freeze(acqf.model).with_batch(acqf.X_pending)


def _with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Options of `optimize_acqf` for one point."""
    if own := sorted(OWN_OPTIONS & given.keys()):
        raise InputDataError(
            f"Got optimizer_options with {own}; points are chosen one by one. "
            "Leave them out; max_batch_size limits their number."
        )
    # Given starts stay alone, since random ones need not satisfy the constraints.
    starts = given.get("batch_initial_conditions")
    default = DEFAULT_OPTIONS if starts is None else {"num_restarts": len(starts)}
    return default | given
