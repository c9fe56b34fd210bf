"""Ask and tell: what all strategies share."""

import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from torch import Tensor
from tqdm.auto import tqdm

from botorch_sparse.optim.candidate_pool import validate_candidates
from botorch_sparse.strategies.history import Batch, BatchRecord, History

STATE_VERSION = 1


class Strategy(ABC):
    """Proposes batches of candidates and learns from their feedback.

    Maximizes over the rows of a table. `ask` proposes a batch and keeps it pending;
    `tell` takes feedback, whole or in parts, in any order, also for points that were
    never proposed. The strategy learns once all pending points are told, or at the next
    `ask` from what there is; points still pending then shrink the variance alone.

    `state_dict` holds all there is to know: a strategy built with the same arguments
    that loads it goes on to the same bits (on the same machine, versions and number of
    threads), also in the middle of a batch.

    Args:
        candidates: `A x d` points to choose from.
        seed: Seed of the strategy's generator.
    """

    def __init__(self, candidates: Tensor, *, seed: int = 0) -> None:
        validate_candidates(candidates)
        self.candidates = candidates
        self.history = History(candidates)
        self.generator = torch.Generator().manual_seed(seed)
        self._pending: list[tuple[int, int]] = []  # (candidate, batch number)
        self._num_learned = 0
        self._best = float("-inf")  # for the progress bar
        self._rows: dict[torch.dtype, dict[bytes, int]] = {}

    @property
    def pending(self) -> Tensor:
        """Candidates asked for and not told yet, repeats included."""
        return torch.tensor([index for index, _ in self._pending], dtype=torch.long)

    def ask(self, max_batch_size: int | None = None) -> Batch:
        """Propose a batch, which stays pending until it is told or withdrawn.

        Args:
            max_batch_size: Cut the batch here; None leaves its size to the strategy.

        Returns:
            At least one point.

        Raises:
            InputDataError: If `max_batch_size` is below one.
        """
        if max_batch_size is not None and max_batch_size < 1:
            raise InputDataError(
                f"Got max_batch_size={max_batch_size}; need at least 1."
            )
        start = time.perf_counter()
        if self._num_learned < len(self.history):
            self._learn()
        record = self._describe()
        chosen = self._select(max_batch_size)
        number = len(self.history.batches)
        self._pending += [(index, number) for index in chosen]
        record.size = len(chosen)
        record.ask_seconds = time.perf_counter() - start
        self.history.batches.append(record)
        return self._batch(chosen, number)

    def tell(self, X: Batch | Tensor, Y: Tensor) -> None:
        """Report feedback; a call that fails leaves the strategy as it was.

        Args:
            X: A batch that `ask` returned, or any `b x d` points.
            Y: `b` or `b x 1` observations.

        Raises:
            BotorchTensorDimensionError: If the shapes do not fit.
            InputDataError: If there are NaN or infinite values.
        """
        start = time.perf_counter()
        points_of = X.X if isinstance(X, Batch) else X
        values = self._validate_feedback(points_of, Y)
        evaluations, extra = len(self.history), self.history.num_extra
        pending, generator = list(self._pending), self.generator.get_state()
        try:
            points = (
                X.indices.tolist() if isinstance(X, Batch) else self._find(points_of)
            )
            number = X.number if isinstance(X, Batch) else -1
            settled = [self._settle(point, number) for point in points]
            points = [point for point, _ in settled]
            numbers = [number for _, number in settled]
            self.history.append(points, values, numbers)
            if not self._pending and self._num_learned < len(self.history):
                self._learn()
        except BaseException:
            self.history.truncate(evaluations, extra)
            self._pending = pending
            self.generator.set_state(generator)
            raise
        if numbers and numbers[-1] >= 0:
            seconds = time.perf_counter() - start
            self.history.batches[numbers[-1]].tell_seconds += seconds

    def withdraw(self, batch: Batch) -> None:
        """Give up pending points whose evaluation failed for good."""
        for point in batch.indices.tolist():
            self._settle(point, batch.number)

    def run(
        self,
        objective: Callable[[Tensor], Tensor],
        num_evaluations: int,
        *,
        progress: bool = True,
        by_index: bool = False,
        max_seconds: float | None = None,
    ) -> History:
        """Ask, evaluate and tell until the history holds `num_evaluations`.

        A run that was interrupted goes on when called again: what was pending is
        evaluated first.

        Args:
            objective: From `b x d` points to `b` or `b x 1` observations.
            num_evaluations: Evaluations in the history at the end.
            progress: Whether to show a progress bar.
            by_index: Call the objective with the `b` candidate indices instead.
            max_seconds: Stop after the batch in which the time is up.

        Returns:
            The history.
        """
        limit = float("inf") if max_seconds is None else max_seconds
        deadline = time.perf_counter() + limit
        with tqdm(
            total=num_evaluations,
            initial=min(len(self.history), num_evaluations),
            desc=type(self).__name__,
            unit="eval",
            disable=not progress,
        ) as bar:
            while len(self.history) < num_evaluations:
                left = num_evaluations - len(self.history)
                pending = [index for index, _ in self._pending[:left]]
                batch = self._batch(pending) if pending else self.ask(left)
                Y = objective(batch.indices if by_index else batch.X)
                self.tell(batch, Y)
                self._show(bar, len(batch))
                if time.perf_counter() > deadline:
                    break
        return self.history

    def state_dict(self) -> dict[str, Any]:
        """All state, as tensors and plain Python values (`torch.save` takes it)."""
        return {
            "version": STATE_VERSION,
            "config": self._config(),
            "history": self.history.state_dict(),
            "pending": [list(entry) for entry in self._pending],
            "num_learned": self._num_learned,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state; the strategy goes on from there to the same bits.

        Raises:
            InputDataError: If the state came from a strategy built otherwise.
        """
        ours = self._config()
        theirs = state.get("config", {})
        if state.get("version") != STATE_VERSION or theirs != ours:
            different = sorted(k for k in ours if theirs.get(k) != ours[k])
            raise InputDataError(
                f"The state does not fit this strategy: {different or ['version']} "
                "differ. Build the strategy with the arguments that it was saved with."
            )
        self.history.load_state_dict(state["history"])
        self._pending = [(index, number) for index, number in state["pending"]]
        self._num_learned = state["num_learned"]
        self.generator.set_state(state["generator"])

    @abstractmethod
    def _select(self, max_batch_size: int | None) -> list[int]:
        """Choose a batch of candidates."""

    def _learn(self) -> None:
        """Take the whole history into account."""
        self._num_learned = len(self.history)

    def _describe(self) -> BatchRecord:
        """The record of a batch that is about to be chosen."""
        return BatchRecord(size=0)

    def _config(self) -> dict[str, Any]:
        """What a state must agree on with the strategy that loads it."""
        X = self.candidates.detach()
        checksum = zlib.crc32(X.cpu().contiguous().numpy().data)
        return {
            "strategy": type(self).__name__,
            "candidates": [*X.shape, str(X.dtype), checksum],
        }

    def _batch(self, chosen: list[int], number: int = -1) -> Batch:
        """Candidates as a batch."""
        indices = torch.tensor(chosen, dtype=torch.long)
        X = self.candidates[indices.to(self.candidates.device)]
        return Batch(X, indices, number)

    def _validate_feedback(self, X: Tensor, Y: Tensor) -> list[float]:
        """Check feedback at the door; its values on the host."""
        d = self.candidates.shape[-1]
        Y = torch.as_tensor(Y).detach()
        if (
            X.dim() != 2
            or X.shape[-1] != d
            or Y.shape
            not in {
                X.shape[:1],
                (*X.shape[:1], 1),
            }
        ):
            raise BotorchTensorDimensionError(
                f"Got X of shape {tuple(X.shape)} and Y of shape {tuple(Y.shape)}; "
                f"need `b x {d}` and `b` or `b x 1`."
            )
        if not Y.isfinite().all() or not X.isfinite().all():
            raise InputDataError(
                f"Got {int((~Y.isfinite()).sum())} values of Y and "
                f"{int((~X.isfinite()).sum())} of X that are NaN or infinite. Tell the "
                "others alone, and withdraw(batch) points that can't be evaluated."
            )
        return Y.reshape(-1).double().tolist()

    def _settle(self, point: int, batch: int) -> tuple[int, int]:
        """Remove a point from the pending ones, those of its own batch first.

        Returns:
            The point, or the copy of it in the table that was pending, and the number
            of its batch, -1 for a point that was not pending.
        """
        for entry in ((point, batch), *self._pending):
            if entry[0] == point and entry in self._pending:
                self._pending.remove(entry)
                return entry
        if point < len(self.candidates) and self._pending:
            X = self.candidates
            copies = (X[self.pending.to(X.device)] == X[point]).all(-1).nonzero()
            if len(copies) > 0:
                return self._pending.pop(int(copies[0]))
        return point, -1

    def _find(self, X: Tensor) -> list[int]:
        """Point numbers of `b x d` points; those that are no candidates are added.

        Candidates are recognized in the dtype of `X`, which may be less precise.
        """
        if X.dtype not in self._rows:
            rows = self._rows[X.dtype] = {}
            for index, key in enumerate(_keys(self.candidates.to(X.dtype))):
                rows.setdefault(key, index)
        rows = self._rows[X.dtype]
        beside = X.detach().to(self.candidates)
        return [
            rows[key] if key in rows else self.history.add_point(x)
            for key, x in zip(_keys(X), beside, strict=True)
        ]

    def _show(self, bar: "tqdm[Any]", num_new: int) -> None:
        """Update the progress bar."""
        if bar.disable:
            return
        self._best = max([self._best, *self.history.values[-num_new:]])
        record = self.history.batches[-1]
        bar.set_postfix(
            batch=len(self.history.batches),
            m=record.num_inducing,
            best=f"{self._best:.4g}",
            refresh=False,
        )
        bar.update(num_new)


def _keys(X: Tensor) -> list[bytes]:
    """The bytes of each row; zero has one sign."""
    return [row.tobytes() for row in (X.detach() + 0.0).cpu().numpy()]
