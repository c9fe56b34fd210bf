"""Ask and tell: what all strategies share."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Unpack

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor
from tqdm.auto import tqdm

from botorch_sparse.acquisition.gap_stopping import ConfidenceGapStopping
from botorch_sparse.optim.candidate_pool import validate_candidates
from botorch_sparse.strategies.domain import DomainOptions, one_domain, table_config
from botorch_sparse.strategies.feedback import validate_feedback
from botorch_sparse.strategies.history import Batch, BatchRecord, History

STATE_VERSION = 2


class Strategy(ABC):
    """Proposes batches of points and learns from their feedback.

    Maximizes over the rows of a table, or over a continuous domain. `ask` proposes a
    batch and keeps it pending; `tell` takes feedback, whole or in parts, in any order,
    also for points that were never proposed. The strategy learns once all pending
    points are told, or at the next `ask` from what there is; points still pending then
    shrink the variance alone.

    `state_dict` holds all there is to know: a strategy built with the same arguments
    that loads it goes on to the same bits (on the same machine, versions and number of
    threads), also in the middle of a batch.

    Points are known by number: rows of the table, then all others in the order in which
    they were first seen. A continuous domain is a table without rows.

    Args:
        candidates: `A x d` points to choose from.
        seed: Seed of the strategy's generator.
        **domain: Instead of candidates, `bounds` (`2 x d`) of a continuous domain, with
            `inequality_constraints`, `equality_constraints` and `fixed_features` as in
            `optimize_acqf`.
    """

    def __init__(
        self,
        candidates: Tensor | None = None,
        *,
        seed: int = 0,
        **domain: Unpack[DomainOptions],
    ) -> None:
        self.box = one_domain(candidates, domain)
        if candidates is not None:
            validate_candidates(candidates)
            self.candidates = candidates
        elif self.box is not None:
            self.candidates = self.box.bounds[:0]
        self.history = History(self.candidates)
        self.generator = torch.Generator().manual_seed(seed)
        self._pending: list[tuple[int, int]] = []  # (point number, batch number)
        self._num_learned = 0
        self._best = float("-inf")  # for the progress bar
        self._rows: dict[torch.dtype, dict[bytes, int]] = {}

    @property
    def pending(self) -> Tensor:
        """Numbers of the points asked for and not told yet, repeats included."""
        return torch.tensor([index for index, _ in self._pending], dtype=torch.long)

    @property
    def X_pending(self) -> Tensor:
        """The points asked for and not told yet, `p x d`, repeats included."""
        return self.history.points(self.pending)

    def confidence_gap(self) -> float:
        """Largest upper less largest lower confidence bound; see strategies with one.

        Raises:
            UnsupportedError: If the strategy has no confidence bounds.
        """
        raise UnsupportedError(
            f"{type(self).__name__} has no confidence bounds to stop by; use "
            "max_seconds or a number of evaluations."
        )

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
        extra, generator = self.history.num_extra, self.generator.get_state()
        try:
            record = self._describe()
            chosen = self._select(max_batch_size)
        except BaseException:
            self.history.truncate(len(self.history), extra)
            self.generator.set_state(generator)
            raise
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
        is_known = isinstance(X, Batch) and X.indices is not None
        dim = self.candidates.shape[-1]
        values = validate_feedback(points_of, Y, dim, is_known=is_known)
        evaluations, extra = len(self.history), self.history.num_extra
        pending, generator = list(self._pending), self.generator.get_state()
        try:
            points = self._numbers(X)
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
        for point in self._numbers(batch):
            self._settle(point, batch.number)

    def run(
        self,
        objective: Callable[[Tensor], Tensor],
        num_evaluations: int,
        *,
        progress: bool = True,
        by_index: bool = False,
        max_seconds: float | None = None,
        stopping: ConfidenceGapStopping | None = None,
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
            stopping: Stop once `confidence_gap()` is at most its tolerance.

        Returns:
            The history.

        Raises:
            InputDataError: If `by_index` is set on a continuous domain.
        """
        if by_index and self.box is not None:
            raise InputDataError(
                "Got by_index=True, but a continuous domain has no indices; use an "
                "objective of `b x d` points."
            )
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
                if stopping and self.confidence_gap() <= stopping.tolerance:
                    break
                left = num_evaluations - len(self.history)
                pending = [index for index, _ in self._pending[:left]]
                batch = self._batch(pending) if pending else self.ask(left)
                rows = batch.indices if by_index else None
                self.tell(batch, objective(batch.X if rows is None else rows))
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
        """Choose a batch: numbers of points, those of new ones by `add_point`."""

    def _learn(self) -> None:
        """Take the whole history into account."""
        self._num_learned = len(self.history)

    def _describe(self) -> BatchRecord:
        """The record of a batch that is about to be chosen."""
        return BatchRecord(size=0)

    def _config(self) -> dict[str, Any]:
        """What a state must agree on with the strategy that loads it."""
        domain = (
            table_config(self.candidates) if self.box is None else self.box.config()
        )
        return {"strategy": type(self).__name__} | domain

    def _batch(self, chosen: list[int], number: int = -1) -> Batch:
        """Points as a batch."""
        points = torch.tensor(chosen, dtype=torch.long)
        indices = points if self.box is None else None
        return Batch(self.history.points(points), indices, number)

    def _numbers(self, X: Batch | Tensor) -> list[int]:
        """Point numbers of a batch or of `b x d` points."""
        if isinstance(X, Batch):
            return self._find(X.X) if X.indices is None else X.indices.tolist()
        return self._find(X)

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
        """Point numbers of `b x d` points; those never seen are added.

        Candidates and pending points are recognized in the dtype of `X`, which may be
        less precise.
        """
        rows = self._rows_in(X.dtype)
        if self._pending and X.dtype != self.candidates.dtype:
            pending = zip(_keys(self.X_pending.to(X.dtype)), self.pending, strict=True)
            rows = {key: int(number) for key, number in pending} | rows
        beside = X.detach().to(self.candidates)
        return [
            rows[key] if key in rows else self.history.add_point(x)
            for key, x in zip(_keys(X), beside, strict=True)
        ]

    def _rows_in(self, dtype: torch.dtype) -> dict[bytes, int]:
        """Rows of the table by their bytes in a dtype."""
        if dtype not in self._rows:
            rows = self._rows[dtype] = {}
            for index, key in enumerate(_keys(self.candidates.to(dtype))):
                rows.setdefault(key, index)
        return self._rows[dtype]

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
