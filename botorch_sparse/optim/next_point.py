"""Where the next point of a batch comes from: a box, or a finite set of choices."""

import math
from typing import Any, NamedTuple

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import InputDataError
from botorch.optim import optimize_acqf
from botorch.utils.sampling import manual_seed
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.frozen import FrozenPosterior, FrozenTable
from botorch_sparse.acquisition.ratio_bound import RatioBound
from botorch_sparse.acquisition.table_bound import TableBound

# Choices that an acquisition function is evaluated at together.
CHUNK_SIZE = 2048
# Bytes that the features of choices may take before they are computed at each step.
MAX_MEMORY = 2 * 1024**3
DEFAULT_OPTIONS = {"num_restarts": 10, "raw_samples": 256}
# Arguments of `optimize_acqf` that are not the user's: one best point is asked for.
OWN_OPTIONS = {"acq_function", "bounds", "q", "return_best_only"}


class Point(NamedTuple):
    """A point chosen, its value, and its row among the choices (-1 on a box)."""

    X: Tensor  # 1 x d
    value: Tensor  # 1
    row: Tensor  # 1


class Box:
    """The next point on a box, by `optimize_acqf`.

    Args:
        acqf: The acquisition function.
        termination: The rule.
        bounds: A `2 x d` tensor.
        optimizer_options: For `optimize_acqf`, beyond `DEFAULT_OPTIONS`.
    """

    def __init__(
        self,
        acqf: AcquisitionFunction,
        termination: RatioBound,
        bounds: Tensor | None,
        optimizer_options: dict[str, Any] | None,
    ) -> None:
        self.acqf = acqf
        self.termination = termination
        self._bounds = bounds
        given = optimizer_options or {}
        if own := sorted(OWN_OPTIONS & given.keys()):
            raise InputDataError(
                f"Got optimizer_options with {own}; points are chosen one by one. "
                "Leave them out; max_batch_size limits their number."
            )
        # Given starts stay alone, since random ones need not satisfy the constraints.
        starts = given.get("batch_initial_conditions")
        default = DEFAULT_OPTIONS if starts is None else {"num_restarts": len(starts)}
        self._options = default | given
        self._step = 0

    def choose(self) -> Point:
        """The maximizer, which becomes pending."""
        options = dict(self._options)
        inner = dict(options.get("options") or {})
        seed = inner.get("seed")
        if seed is not None:
            seed = inner["seed"] = seed + self._step  # other starts for each point
            options["options"] = inner
        with manual_seed(seed):
            X, value = optimize_acqf(self.acqf, bounds=self._bounds, q=1, **options)
        self._step += 1
        self.acqf.set_X_pending(with_pending(self.acqf, X))
        self.termination.add(X)
        return Point(X, value.view(1), torch.full((1,), -1, device=X.device))

    def bound(self, ratio_threshold: float) -> float:
        """See `RatioBound.bound`."""
        return self.termination.bound(
            ratio_threshold, bounds=self._bounds, optimizer_options=self._options
        )

    @property
    def is_exhausted(self) -> bool:
        """Never: a box has a next point."""
        return False

    def indices(self, rows: Tensor) -> None:
        """None: no choices."""


class Choices:
    """The next point among choices, which are embedded once where memory allows.

    Args:
        acqf: The acquisition function.
        termination: The rule.
        X: `A x d` choices.
        unique: Whether a choice is taken once, and with it all that are equal to it.
    """

    def __init__(
        self,
        acqf: AcquisitionFunction,
        termination: RatioBound,
        X: Tensor,
        *,
        unique: bool = False,
    ) -> None:
        self.acqf = acqf
        self.termination = termination
        self._X = X
        self._rows: Tensor | None = None
        self._num_left: float = math.inf
        if unique:
            different, self._rows = torch.unique(X, dim=0, return_inverse=True)
            self._num_left = len(different)
            self._is_taken = torch.zeros_like(self._rows, dtype=torch.bool)
        self._table = table_of(termination.frozen, X)
        self._ucb: FrozenTable | None = None
        self._bound: TableBound | None = None
        if isinstance(acqf, BatchUpperConfidenceBound):
            is_shared = acqf.frozen is termination.frozen
            self._ucb = self._table if is_shared else table_of(acqf.frozen, X)
            if self._ucb is not None:
                self._bound = TableBound(acqf, self._ucb)

    def choose(self) -> Point:
        """The maximizer, which becomes pending; the lowest index among equals."""
        values = self._values()
        if self._rows is not None:
            values = values.masked_fill(self._is_taken, -torch.inf)
        index = values.argmax().unsqueeze(0)
        if self._rows is not None:
            self._is_taken |= self._rows == self._rows[index]
            self._num_left -= 1
        X = self._X[index]
        if self._table is None:
            self.termination.add(X)
        else:
            self._table.choose(index)
            self.termination.frozen = self._table.frozen
        if self._ucb is None:
            self.acqf.set_X_pending(with_pending(self.acqf, X))
        elif self._ucb is not self._table:
            self._ucb.choose(index)
        return Point(X, values[index], index)

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to choose."""
        return self._num_left == 0

    def bound(self, ratio_threshold: float) -> float:
        """See `RatioBound.bound`."""
        choices = self._X if self._table is None else self._table
        return self.termination.bound(ratio_threshold, choices=choices)

    def indices(self, rows: Tensor) -> Tensor:
        """The rows of the points chosen."""
        return rows

    @torch.no_grad()
    def _values(self) -> Tensor:
        if self._bound is not None:
            return self._bound.values()
        chunks = self._X.unsqueeze(-2).split(CHUNK_SIZE)
        return torch.cat([self.acqf(chunk) for chunk in chunks])


def with_pending(acqf: AcquisitionFunction, X: Tensor) -> Tensor:
    """The pending points and one more."""
    return X if acqf.X_pending is None else torch.cat([acqf.X_pending, X], -2)


def table_of(frozen: FrozenPosterior, X: Tensor) -> FrozenTable | None:
    """A table of the choices, or None where their features take too much memory."""
    width = sum(t.shape[-1] for t in (frozen.batch.phi, frozen.batch.w))
    size = frozen.aug_shape.numel() * len(X) * width * frozen.lam.element_size()
    return FrozenTable(frozen, X) if 2 * size <= MAX_MEMORY else None
