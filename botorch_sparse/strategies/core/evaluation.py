"""Evaluating a batch: at once, one by one, or with an executor."""

import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import numpy as np
import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    BotorchWarning,
    InputDataError,
)
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.argument_checks import (
    as_array,
    check_flag,
    check_number,
    check_path,
    check_whole,
    short_list,
    short_repr,
)
from botorch_sparse.strategies.core.evaluation_process import (
    evaluate_within,
    packed,
)
from botorch_sparse.strategies.core.transaction import undivided, undo_point
from botorch_sparse.strategies.core.trials import Trial
from botorch_sparse.strategies.data.feedback import paired
from botorch_sparse.strategies.data.history import Batch, History
from botorch_sparse.strategies.data.outcomes import Outcomes

# Called with strategy, batch and history after each batch; True stops the run.
Callback: TypeAlias = Callable[[Any, Batch, History], Any]
# One evaluation when called: the outcomes, or None where it took too long.
Evaluated: TypeAlias = Callable[[], list[float] | None]


# So many failures in a row, with no result between them, are not the points' fault.
MAX_FAILURES = 100


def _nothing() -> bool:
    """Takes back nothing."""
    return False


@dataclass
class Evaluation:
    """Evaluates batches as `Strategy.run` was asked to, and tells what comes of it.

    Attributes:
        strategy: What is told.
        objective: What is evaluated.
        by_index: See `Strategy.run`, as the next six.
        executor: See there.
        timeout: See there.
        callbacks: See there.
        checkpoint: See there.
        catch: See there.
        batch_size: See there.
        num_failures: Evaluations that failed since the last one that did not.
        undo: Takes them back, and what was asked for since; see `undo_point`.
    """

    strategy: Any  # a `Strategy`, whose module imports this one
    objective: Callable[[Tensor], Any]
    by_index: bool = False
    executor: Executor | None = None
    timeout: float | None = None
    callbacks: tuple[Callback, ...] = ()
    checkpoint: str | os.PathLike[str] | None = None
    catch: tuple[type[Exception], ...] = ()
    batch_size: int | None = None
    num_failures: int = field(default=0, init=False)
    undo: Callable[[], bool] = field(default=_nothing, init=False)

    def __post_init__(self) -> None:
        check_flag("by_index", self.by_index)
        if self.batch_size is not None:
            check_whole("batch_size", self.batch_size)
        if self.executor is not None and not _has_method(self.executor, "submit"):
            raise InputDataError(
                f"Got executor={short_repr(self.executor)}; need a "
                "concurrent.futures.Executor, such as ThreadPoolExecutor(4) or a Dask "
                "client's get_executor()."
            )
        if self.timeout is not None:
            need = "need a number of seconds above zero, or None for no limit."
            check_number("timeout", self.timeout, "(0, inf)", need)
            packed(self.objective, self.objective)
        for callback in self.callbacks:
            if not _has_method(callback, "__call__"):
                raise InputDataError(
                    f"Got {short_repr(callback)} among callbacks; need functions of "
                    "strategy, batch and history, or rules such as StopAfter(60.0)."
                )
        for caught in self.catch:
            if not (isinstance(caught, type) and issubclass(caught, Exception)):
                raise InputDataError(
                    f"Got {short_repr(caught)} in catch; need a class of exceptions, "
                    "such as ValueError, or a tuple of them."
                )
        if self.checkpoint is not None:
            check_path("checkpoint", self.checkpoint)
            folder = Path(self.checkpoint).absolute().parent
            if not folder.is_dir() or not os.access(folder, os.W_OK):
                raise InputDataError(
                    f"Got checkpoint={os.fspath(self.checkpoint)!r}, but the folder "
                    f"{os.fspath(folder)!r} is not there or can't be written to; need "
                    "one that can: make it first."
                )
            _refuse_no_name(self.checkpoint)

    def evaluate(self, batch: Batch) -> None:
        """Evaluate a batch, at once or point by point, and tell it.

        After `MAX_FAILURES` in a row the last of their errors is raised, and the
        strategy is what it was before them.
        """
        try:
            self._evaluate(batch)
        except Exception as error:
            if self.num_failures >= MAX_FAILURES:
                self._give_up(error)
            raise

    def _evaluate(self, batch: Batch) -> None:
        """The same, however often it failed before."""
        if self.executor is not None:
            self._with_executor(batch, self.executor)
        elif self.catch or self.timeout is not None:
            for id, call in self._calls(batch):
                self._finish(id, call)
        else:
            self._tell(batch, self._at_once(batch))

    def _at_once(self, batch: Batch) -> Tensor:
        """What the objective returns for a batch, `b`, `b x 1` or `b x k`.

        It gets a copy, which it may write to: points are told as they were proposed.
        """
        try:
            with torch.inference_mode(False):
                inputs = self._inputs(batch).clone()
            once = self.strategy.domain.ranks.once
            return self._values_of(batch, once(lambda: self.objective(inputs)))
        except Exception as error:
            points = self._trials_of(batch)
            which = short_list(points, show=self._name)
            error.add_note(f"The objective was called with {which}.")
            raise

    def _values_of(self, batch: Batch, returned: Any) -> Tensor:
        """What was returned for a batch, if it has a value for each point."""
        outcomes: Outcomes = self.strategy.record.outcomes
        need = f"{outcomes.shape_text} numbers, with b = {len(batch)}"
        Y = returned_values(paired(batch, outcomes.ordered(returned)), need)
        if not outcomes.is_shape(Y.shape, len(batch)):
            raise BotorchTensorDimensionError(
                f"The objective returned values of shape {tuple(Y.shape)}; need {need}."
            )
        return Y

    def _tell(self, batch: Batch, Y: Tensor) -> None:
        """Tell what can be learned; the trials of the rest stay pending."""
        outcomes: Outcomes = self.strategy.record.outcomes
        b, ids = len(batch), batch.ids
        if ids is None:
            self._tell_at_once(batch, Y)
            return
        values = Y.reshape(b, len(outcomes)).cpu().double()
        is_sound = outcomes.are_usable(values, self.strategy.largest_value)
        if bool(is_sound.all()):
            self._tell_at_once(batch, Y)
            return
        bad = [
            t for t, s in zip(self._trials_of(batch), is_sound, strict=True) if not s
        ]
        if bool(is_sound.any()):
            self._tell_at_once(ids.cpu()[is_sound].tolist(), Y.cpu()[is_sound])
        raise InputDataError(
            f"The objective returned values for {len(bad)} points that are NaN"
            f"{' in all outcomes' * (len(outcomes) > 1)} or infinite, or beyond "
            f"{self.strategy.largest_value:.3g}: "
            f"{short_list(bad, show=self._name)}. They stay pending, and "
            f"the other {b - len(bad)} of the batch are told. Run again to try once "
            "more, fail(ids) to leave them out, or run(..., catch=InputDataError)."
        )

    def _tell_at_once(self, X: Any, Y: Any) -> None:
        """Tell, with Ctrl-C waiting."""
        with undivided():
            self.strategy.tell(X, Y)

    def _trials_of(self, batch: Batch) -> list[Trial]:
        ids = [] if batch.ids is None else batch.ids.tolist()
        return [self.strategy.trial(id) for id in ids]

    def _inputs(self, batch: Batch) -> Tensor:
        """What the objective is called with."""
        if self.by_index and batch.indices is not None:
            return batch.indices
        return batch.X

    def _calls(self, batch: Batch) -> Iterator[tuple[int, Evaluated]]:
        """The ids of the trials, and the evaluation of each."""
        inputs, outcomes = self._inputs(batch), self.strategy.record.outcomes
        ids = [] if batch.ids is None else batch.ids.tolist()
        for id, x in zip(ids, inputs.detach().cpu().numpy(), strict=True):
            one = np.array(x)[None]  # a copy: a view would be pickled whole
            name = uuid.uuid4().hex
            place = str(inputs.device)
            call = partial(evaluate_one, self.objective, one, place, name, outcomes)
            if self.timeout is None:
                yield id, call
            else:
                payload = packed(call, self.objective)
                yield id, partial(evaluate_within, float(self.timeout), payload)

    def _with_executor(self, batch: Batch, executor: Executor) -> None:
        """Evaluate all points at once, and tell each as it comes."""
        out: dict[Future[list[float] | None], int] = {}
        arrived: SimpleQueue[Future[list[float] | None]] = SimpleQueue()
        errors: list[Exception] = []
        try:
            for id, call in self._calls(batch):
                try:
                    future = executor.submit(call)
                except Exception as error:  # shut down or broken: what began is awaited
                    errors.append(error)
                    _cancel(out)
                    break
                out[future] = id
                future.add_done_callback(arrived.put)
            while out:
                future = _next(arrived)
                try:
                    if not future.cancelled():
                        self._finish(out[future], future.result)
                except Exception as error:
                    errors.append(error)
                    _cancel(out)
                del out[future]
        except BaseException:
            _cancel(out)
            self._tell_arrived(out)
            raise
        if errors:
            if len(errors) > 1:
                errors[0].add_note(f"{len(errors) - 1} other trials failed too.")
            raise errors[0]

    def _tell_arrived(self, out: dict[Future[list[float] | None], int]) -> None:
        """Tell the results that are there, and no others."""
        pending = set(self.strategy.pending_ids.tolist())
        for future, id in out.items():
            is_there = future.done() and not future.cancelled()
            if id in pending and is_there and future.exception() is None:
                values = future.result()
                if values is not None and self._is_usable(values):
                    self._tell_at_once([id], [values])

    def _is_usable(self, values: list[float]) -> bool:
        """Whether these are the outcomes of one point."""
        outcomes, largest = self.strategy.record.outcomes, self.strategy.largest_value
        Y = torch.tensor([values], dtype=torch.double)
        is_one = len(values) == len(outcomes)
        return is_one and bool(outcomes.are_usable(Y, largest).all())

    def _finish(self, id: int, evaluated: Evaluated) -> None:
        """Tell one evaluation, or that it failed."""
        try:
            values = evaluated()
            if values is not None and not self._is_usable(values):
                raise InputDataError(
                    f"The objective returned {short_list(values) or 'no values'} for "
                    f"one point; {self._needed()}."
                )
        except BrokenExecutor as error:  # not of this point, whatever is caught
            error.add_note(
                "The executor broke down; the points that it had stay pending. Run "
                "again with a new one."
            )
            raise
        except self.catch as error:
            self._fail(id, error)
            return
        except Exception as error:
            error.add_note(f"Raised by {self._name(self.strategy.trial(id))}.")
            raise
        if values is None:
            reason = f"took longer than timeout={self.timeout} seconds, and was ended"
            self._fail(id, TimeoutError(reason), may_retry=False)
            return
        self._tell_at_once([id], [values])
        self.num_failures, self.undo = 0, _nothing

    def _needed(self) -> str:
        """What the objective has to return for one point."""
        outcomes, largest = self.strategy.record.outcomes, self.strategy.largest_value
        if len(outcomes) == 1:
            return f"need one finite number, up to {largest:.3g}"
        return (
            f"need {needed_of_one(outcomes)}, up to {largest:.3g}, with NaN for those "
            "that were not measured, but not for all"
        )

    def _name(self, trial: Trial) -> str:
        """How the user knows a trial."""
        point = trial.point
        X = self.strategy.history.points(torch.tensor([point]))[0].tolist()
        name = f"trial {trial.id} at the point {X}"
        if (table := self.strategy.table) is None:
            return name
        key = "" if table.keys is None else f", key {table.keys[point]!r}"
        return f"{name} (row {point}{key})"

    def _fail(self, id: int, error: Exception, *, may_retry: bool = True) -> None:
        """Keep a trial for retry once, then leave it out."""
        trial = self.strategy.trial(id)
        if self.num_failures == 0:
            self.undo = undo_point(self.strategy)
        again = may_retry and trial.failures == 0
        with undivided():
            self.strategy.fail([id], retry=again)
        self.num_failures += 1
        warnings.warn(
            f"T{self._name(trial)[1:]} raised {error!r}; it is "
            f"{'tried once more' if again else 'left out'}.",
            BotorchWarning,
            stacklevel=7 + (self.executor is not None),
        )
        if self.num_failures >= MAX_FAILURES:
            raise error

    def _give_up(self, error: Exception) -> None:
        """Forget the failures since the last result, and say so."""
        then = "readmit() lets rows that were left out come again."
        with undivided():
            if self.undo():
                then = "They count for no point: what was pending before is so again."
        self.undo = _nothing
        error.add_note(
            f"{self.num_failures} evaluations failed in a row, without a result. {then}"
        )


def _cancel(out: dict[Future[list[float] | None], int]) -> None:
    for future in out:
        future.cancel()


def _next(arrived: SimpleQueue[Future[list[float] | None]]) -> Future[Any]:
    """The next that is done, looked for each second.

    A wait without end misses a Ctrl-C that comes in the instant before it begins.
    """
    while True:
        try:
            return arrived.get(timeout=1.0)
        except Empty:
            continue


def evaluate_one(
    objective: Callable[[Tensor], Any],
    x: NDArray[Any],
    device: str,
    name: str,
    outcomes: Outcomes,
) -> list[float]:
    """One evaluation, as plain numbers: these travel between processes.

    Args:
        objective: From `1 x d` points, or one index, to one observation, or to `k` of
            `k` outcomes.
        x: `1 x d` point, or one index.
        device: Where the objective wants it.
        name: Of this call. Dask takes calls that are equal for one, which noise is not.
        outcomes: What is measured.
    """
    returned = outcomes.ordered(objective(torch.from_numpy(x).to(device)))
    Y = returned_values(returned, needed_of_one(outcomes))
    values: list[float] = Y.double().reshape(-1).tolist()
    return values


def needed_of_one(outcomes: Outcomes) -> str:
    """How many numbers an objective has to return for one point."""
    if len(outcomes) == 1:
        return "one number"
    return f"{len(outcomes)} numbers, for {short_list(outcomes.names or ())}"


def returned_values(returned: Any, need: str) -> Tensor:
    """What an objective returned as a tensor.

    Raises:
        InputDataError: If it is none, and no array of numbers; the message ends with
            what it needs to be.
    """
    return as_array("objective(X)", returned, f"need {need}.", "biuf").detach()


def _refuse_no_name(path: str | os.PathLike[str]) -> None:
    """Refuse what can't be a file's name, such as one that is too long."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputDataError(
            f"Got checkpoint={os.fspath(path)!r}, which can't be the name of a file "
            f"({error.strerror}); need another one, of at most 255 bytes."
        ) from error


def _has_method(value: object, name: str) -> bool:
    """Whether an object has a method; a class has it for its instances alone."""
    return not isinstance(value, type) and callable(getattr(value, name, None))
