"""Batches of maximizers of an acquisition function, among choices or on a box.

The posterior is frozen: the points of a batch become pending one by one.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import InputDataError
from botorch.optim import gen_batch_initial_conditions as draw_starts
from botorch.optim import optimize_acqf
from botorch.utils.sampling import manual_seed
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.frozen import Features, FrozenPosterior, freeze
from botorch_sparse.acquisition.frozen.model_space import validate_width
from botorch_sparse.acquisition.pointwise_ratio_bounds import LocalRatioBound
from botorch_sparse.acquisition.ratios import LocalBound, product_ratio, sum_ratio
from botorch_sparse.argument_checks import (
    as_bounds,
    check_kind,
    near_hint,
    short_repr,
)
from botorch_sparse.batching.rules import (
    ContinueFunction,
    GrowingBatch,
    Rule,
    always_continue,
    rule_of,
)

# Choices that an acquisition function is evaluated at together.
CHUNK_SIZE = 2048
# Bytes that the features of choices may take before they are computed at each step.
MAX_MEMORY = 2 * 1024**3
# Variance over noise of a point that adds nothing: a million of them end no batch.
LEAST_LEVERAGE = 1e-6
DEFAULT_OPTIONS = {"num_restarts": 10, "raw_samples": 256}
# All arguments of `optimize_acqf`, those that it hands on for the starts too.
SEARCH_OPTIONS = sorted(
    {*signature(optimize_acqf).parameters, *signature(draw_starts).parameters}
)
# Arguments of `optimize_acqf` that are not the user's: one best point is asked for.
OWN_OPTIONS = {"acq_function", "bounds", "q", "return_best_only"}


class AcquisitionBatch(GrowingBatch):
    """Grows by the maximizers of an acquisition function; see `GrowingBatch`.

    The posterior `frozen`, which the rule looks at, has its points in the batch. With
    several outputs a batch is as far as the one whose variances have shrunk most, and
    variances are in units of the noise. The domain is `choices`, or `bounds` and
    `optimizer_options`, as in `RatioBound.maximum`.
    """

    def __init__(
        self,
        acqf: AcquisitionFunction,
        rule: Rule | None,
        frozen: FrozenPosterior,
        **domain: Any,
    ) -> None:
        super().__init__(1.0 if frozen.aug_shape else float(frozen.lam), rule)
        self.acqf = acqf
        self.domain = domain
        self._values: list[float] = []  # of `rows`, when each was chosen
        self._best = -1, torch.nan  # the last maximizer, and its value
        self._look(frozen)

    def _look(self, frozen: FrozenPosterior) -> None:
        """Take in the posterior with the points of the batch."""
        noise, variance, before = frozen.noise, frozen.variance, frozen.variance_before
        self.frozen = frozen
        self.variances = self._largest(variance / noise)
        self.variances_before = self._largest(before / noise)
        self.sum_ratio = float(sum_ratio(variance, noise).max())
        without = sum_ratio(variance[..., :-1], noise[..., :-1])
        self.sum_ratio_before = float(without.max())
        self.product_ratio = float(product_ratio(before, noise).max())

    def _largest(self, ratio: Tensor) -> list[float]:
        """The largest of the outputs' variances, in units of `noise`."""
        largest = ratio.amax(0) if self.frozen.aug_shape else ratio
        values: list[float] = (self.noise * largest).tolist()
        return values

    def _largest_local(self, covariance: LocalBound, threshold: float) -> float:
        bound = LocalRatioBound(self.frozen, covariance=covariance)
        return bound.maximum(**self.domain, enough=threshold)

    @abstractmethod
    def _maximize(self) -> tuple[int, float]:
        """The maximizer of the acquisition function, and its value."""

    @abstractmethod
    def point(self, row: int) -> Tensor:
        """A point by its number, `1 x d`."""

    @override
    def argmax(self) -> int:
        self._best = self._maximize()
        return self._best[0]

    @override
    def append(self, row: int) -> None:
        best, value = self._best
        self.rows.append(row)
        self._values.append(value if row == best else torch.nan)
        acqf, X, pending = self.acqf, self.point(row), self.acqf.X_pending
        both = X if pending is None else torch.cat([pending.to(X), X], -2)
        is_ucb = isinstance(acqf, BatchUpperConfidenceBound)
        is_shared = is_ucb and acqf.frozen is self.frozen
        acqf.set_X_pending(both)
        self._look(acqf.frozen if is_shared else self.frozen.add(X))

    def found(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The `q x d` points that were appended, `q` values, and `q` rows of choices.

        Values are of the acquisition function when each was chosen; a box has no rows.
        """
        none = self.frozen.X_batch[:0]
        X = torch.cat([self.point(row) for row in self.rows]) if self.rows else none
        values = none.new_tensor(self._values)
        if "choices" not in self.domain:
            return X, values, None
        return X, values, torch.tensor(self.rows, device=none.device)


class ChoiceBatch(AcquisitionBatch):
    """Maximizers among `A x d` choices; the lowest index among equals.

    For `BatchUpperConfidenceBound` the features of all choices are kept where memory
    allows, and a point costs O(A m); what suits `NystromPool` goes there and is lazy.
    If `unique`, a choice is taken once, and with it all that are equal to it.
    """

    def __init__(
        self,
        acqf: AcquisitionFunction,
        rule: Rule | None,
        frozen: FrozenPosterior,
        X: Tensor,
        *,
        unique: bool = False,
    ) -> None:
        super().__init__(acqf, rule, frozen, choices=X)
        self._X = X
        self._unique = unique
        self._is_taken = torch.zeros(len(X), dtype=torch.bool, device=X.device)
        self._kept = _ChoiceFeatures.of(acqf, X)

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to choose."""
        return self._unique and bool(self._is_taken.all())

    @override
    def point(self, row: int) -> Tensor:
        return self._X[row : row + 1]

    @override
    def append(self, row: int) -> None:
        super().append(row)
        self._is_taken |= (self._X == self._X[row]).all(-1)
        if self._kept is not None:
            self._kept.append()

    @torch.no_grad()
    def _maximize(self) -> tuple[int, float]:
        values = self._all_values()
        if self._unique:
            values = values.masked_fill(self._is_taken, -torch.inf)
        row = int(values.argmax())
        return row, float(values[row])

    def _all_values(self) -> Tensor:
        if self._kept is not None:
            return self._kept.values()
        chunks = self._X.unsqueeze(-2).split(CHUNK_SIZE)
        return torch.cat([self.acqf(chunk) for chunk in chunks])

    @torch.no_grad()
    def _largest_local(self, covariance: LocalBound, threshold: float) -> float:
        if self._kept is None or self.acqf.model is not self.frozen.model:
            return super()._largest_local(covariance, threshold)
        bound = LocalRatioBound(self.frozen, covariance=covariance)
        return float(bound.at(self._kept.features).max())


class _ChoiceFeatures:
    """The features of all choices, and the rows by which pending points lower them."""

    @torch.no_grad()
    def __init__(self, acqf: BatchUpperConfidenceBound, X: Tensor) -> None:
        self.features: Features = acqf.frozen.features(X)
        self._acqf = acqf
        self._X = X
        self._parts = acqf.frozen.parts(self.features)
        self._rows = acqf.frozen.reduction(self.features)  # aug x A x j

    @classmethod
    def of(cls, acqf: AcquisitionFunction, X: Tensor) -> "_ChoiceFeatures | None":
        """Those of a batch UCB, where memory allows."""
        if type(acqf) is not BatchUpperConfidenceBound:
            return None
        f = acqf.frozen.batch
        width = acqf.frozen.aug_shape.numel() * (f.phi.shape[-1] + f.w.shape[-1])
        is_small = 2 * len(X) * width * f.phi.element_size() <= MAX_MEMORY
        return cls(acqf, X) if is_small else None

    @torch.no_grad()
    def append(self) -> None:
        """Take in the last pending point of the bound. Cost: O(A (m + j))."""
        row = self._acqf.frozen.last_reduction(self.features, self._rows)
        self._rows = torch.cat([self._rows, row], -1)

    def values(self) -> Tensor:
        """The bounds of all choices, `A`."""
        residual, embedded = self._parts
        left = (embedded - self._rows.square().sum(-1)).clamp_min(0.0)
        moments = self._acqf.moments(self._X, self.features, residual + left)
        return self._acqf.bound_from_moments(*moments)


class BoxBatch(AcquisitionBatch):
    """Maximizers over a box, until the rule ends the batch or a point adds nothing.

    Args:
        acqf: As in `AcquisitionBatch`; its pending points are in the batch.
        rule: What ends the batch; None for no rule.
        bounds: A `2 x d` tensor of lower and upper bounds.
        optimizer_options: For `optimize_acqf`, beyond `DEFAULT_OPTIONS`. With a seed
            among its `options` the batch is the same each time.
        frozen: The posterior that the rule looks at; by default the one in `acqf`.
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
        validate_width("bounds", bounds, frozen.X_batch.shape[-1])
        super().__init__(acqf, rule, frozen, bounds=bounds, optimizer_options=options)
        self._clamp = clamp
        self._number = number
        self._most = most
        self._points: dict[int, Tensor] = {}
        self._step = 0

    @override
    def point(self, row: int) -> Tensor:
        """A point that was a maximizer, `1 x d`."""
        return self._points[row]

    def most_of(self, limit: int) -> int:
        """How many of so many points are chosen at a time."""
        return limit if self._most is None else min(limit, self._most)

    @override
    def choose(
        self, limit: int, continues: ContinueFunction = always_continue
    ) -> list[int]:
        return super().choose(self.most_of(limit), continues)

    def _maximize(self) -> tuple[int, float]:
        X, value = self.maximizers(self.acqf)
        return self.add(X), float(value)

    def maximizers(
        self, acqf: AcquisitionFunction, **more: Any
    ) -> tuple[Tensor, Tensor]:
        """Where a function is largest, clamped, by `optimize_acqf`; and its values.

        Args:
            acqf: The function, of the same points as the batch's own.
            **more: Further arguments; of their `options` those that are not given.
        """
        options = dict(self.domain["optimizer_options"])
        inner = more.pop("options", {}) | dict(options.pop("options", None) or {})
        if (seed := inner.get("seed")) is not None:
            seed = inner["seed"] = seed + self._step  # other starts for each point
        if inner:
            options["options"] = inner
        with manual_seed(seed):
            bounds = self.domain["bounds"]
            X, value = optimize_acqf(acqf, bounds=bounds, q=1, **options, **more)
        self._step += 1
        return (X if self._clamp is None else self._clamp(X)), value

    def add(self, X: Tensor, row: int | None = None) -> int:
        """Know a point (`1 x d`), which may be appended then; its number."""
        if row is None:
            row = len(self._points) if self._number is None else self._number(X[0])
        self._points[row] = X
        return row

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


def check_search_options(given: Mapping[str, Any]) -> None:
    """Refuse what is not the user's to set, or what `optimize_acqf` doesn't know.

    Otherwise the first point that is searched for would fail.
    """
    if own := sorted(OWN_OPTIONS & given.keys()):
        raise InputDataError(
            f"Got optimizer_options with {own}, which each search sets itself; leave "
            "them out. max_batch_size limits the number of points."
        )
    for name in () if "ic_generator" in given else given:
        if name not in SEARCH_OPTIONS:
            raise InputDataError(
                f"Got optimizer_options with {short_repr(name)}, which "
                "`botorch.optim.optimize_acqf` does not take."
                + near_hint(str(name), SEARCH_OPTIONS)
            )


def _with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Options of `optimize_acqf` for one point."""
    check_search_options(given)
    # Given starts stay alone, since random ones need not satisfy the constraints.
    starts = given.get("batch_initial_conditions")
    default = DEFAULT_OPTIONS if starts is None else {"num_restarts": len(starts)}
    return default | given
