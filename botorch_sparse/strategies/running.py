"""The run loop: ask, evaluate, tell, and what can go wrong on the way."""

import math
import os
import signal
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from botorch.exceptions import BotorchWarning, InputDataError
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

from botorch_sparse.strategies.checkpoint import read_state
from botorch_sparse.strategies.feedback import as_tensor
from botorch_sparse.strategies.history import Batch, History
from botorch_sparse.strategies.trials import Trial

if TYPE_CHECKING:
    from botorch_sparse.strategies.base import Strategy

# Called with strategy, batch and history after each batch; True stops the run.
Callback: TypeAlias = Callable[[Any, Batch, History], Any]

# So many failures in a row, with no result between them, are not those of points.
MAX_FAILURES = 100


@dataclass(frozen=True)
class RunOptions:
    """How a run evaluates and when it stops; see `Strategy.run`."""

    by_index: bool = False
    executor: Executor | None = None
    callbacks: tuple[Callback, ...] = ()
    checkpoint: str | os.PathLike[str] | None = None
    catch: tuple[type[Exception], ...] = ()
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise InputDataError(f"Got batch_size={self.batch_size}; need at least 1.")
        if self.executor is not None and not hasattr(self.executor, "submit"):
            raise InputDataError(
                f"Got executor={self.executor!r}; need a concurrent.futures.Executor, "
                "such as ThreadPoolExecutor(4) or a Dask client's get_executor()."
            )
        for callback in self.callbacks:
            if not callable(callback):
                raise InputDataError(
                    f"Got {callback!r} among callbacks; need functions of strategy, "
                    "batch and history, or rules such as StopAfter(60.0)."
                )
        if self.checkpoint is not None:
            folder = Path(self.checkpoint).absolute().parent
            if not folder.is_dir() or not os.access(folder, os.W_OK):
                raise InputDataError(
                    f"Got checkpoint={os.fspath(self.checkpoint)!r}, but the folder "
                    f"{os.fspath(folder)!r} is not there or can't be written to; make "
                    "it first."
                )


def run_to(
    strategy: "Strategy",
    objective: Callable[[Tensor], Any],
    num_evaluations: int,
    options: RunOptions,
    *,
    progress: bool,
) -> History:
    """See `Strategy.run`."""
    history = strategy.history
    if options.by_index and strategy.box is not None:
        raise InputDataError(
            "Got by_index=True, but a continuous domain has no indices; use an "
            "objective of `b x d` points."
        )
    _refuse_to_overwrite(strategy, options.checkpoint)
    if _is_over(strategy, options):
        return history
    evaluation = Evaluation(strategy, objective, options)
    with Progress(history, type(strategy).__name__, num_evaluations, progress) as bar:
        try:
            while len(history) < num_evaluations:
                batch = _next_batch(strategy, num_evaluations, options.batch_size)
                if batch is None:
                    break
                evaluation.evaluate(batch)
                bar.update()
                if _call(strategy, batch, options):
                    break
                _save(strategy, options)
        finally:
            _save(strategy, options)
    return history


def _call(strategy: "Strategy", batch: Batch, options: RunOptions) -> bool:
    """Whether a callback stops the run; all are called."""
    return any([c(strategy, batch, strategy.history) for c in options.callbacks])


def _is_over(strategy: "Strategy", options: RunOptions) -> bool:
    """Whether a callback has nothing to wait for, in a run that goes on."""
    last = strategy.history.last_batch()
    return last is not None and _call(strategy, last, options)


def _refuse_to_overwrite(
    strategy: "Strategy", checkpoint: str | os.PathLike[str] | None
) -> None:
    """A strategy that does not know all that is in a file does not replace it."""
    if checkpoint is None or not os.path.exists(checkpoint):
        return
    is_new = len(strategy.history) == 0 and len(strategy.pending_ids) == 0
    if is_new or not _knows(strategy.state_dict(), read_state(checkpoint)):
        raise InputDataError(
            f"There is a run at checkpoint={os.fspath(checkpoint)!r} already, and this "
            "strategy does not know all of it. Go on with "
            "strategy.resume(path).run(...), or remove the file."
        )


def _knows(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether a state is a later one of the same run: its history begins so."""
    known, before = ours["history"], theirs.get("history")
    if ours["config"] != theirs.get("config") or not isinstance(before, dict):
        return False
    begins = [
        known[name][: len(before.get(name, ""))] == before.get(name)
        for name in ("point", "Y", "batch", "trial")
    ]
    proposed = theirs.get("num_proposed", math.inf)
    return all(begins) and bool(proposed <= ours["num_proposed"])


def _next_batch(
    strategy: "Strategy", num_evaluations: int, batch_size: int | None
) -> Batch | None:
    """What is pending, or else what is asked for; None where that is nothing."""
    left = num_evaluations - len(strategy.history)
    limit = left if batch_size is None else min(left, batch_size)
    pending = strategy.pending_batch(limit)
    if len(pending) > 0:
        return pending
    if strategy.is_finished and len(strategy.pending_ids) == 0:
        return None
    with undivided():
        batch = strategy.ask(limit)
    return batch if len(batch) else None


def _save(strategy: "Strategy", options: RunOptions) -> None:
    if options.checkpoint is not None:
        with undivided():
            strategy.save(options.checkpoint)


@dataclass
class Evaluation:
    """Evaluates batches, and tells what comes of it.

    Attributes:
        strategy: What is told.
        objective: What is evaluated.
        options: How.
        num_failures: Evaluations that failed since the last one that did not.
    """

    strategy: "Strategy"
    objective: Callable[[Tensor], Any]
    options: RunOptions
    num_failures: int = field(default=0, init=False)

    def evaluate(self, batch: Batch) -> None:
        """Evaluate a batch, at once or point by point, and tell it."""
        if self.options.executor is not None:
            self._with_executor(batch, self.options.executor)
        elif self.options.catch:
            for id, call in self._calls(batch):
                self._finish(id, call)
        else:
            self._tell(batch, self._at_once(batch))

    def _at_once(self, batch: Batch) -> Any:
        """What the objective returns for a batch."""
        try:
            return self.objective(self._inputs(batch))
        except Exception as error:
            points = self._trials_of(batch)
            which = ", ".join(self._name(trial) for trial in points[:5])
            more = f" and {len(points) - 5} more" if len(points) > 5 else ""
            error.add_note(f"The objective was called with {which}{more}.")
            raise

    def _tell(self, batch: Batch, Y: Any) -> None:
        """Tell what is finite; the trials of the rest stay pending.

        Raises:
            InputDataError: If some is not finite.
        """
        Y = as_tensor(Y)
        b, ids = len(batch), batch.ids
        is_finite = Y.reshape(-1).isfinite().cpu()
        if ids is None or Y.shape not in {(b,), (b, 1)} or bool(is_finite.all()):
            with undivided():
                self.strategy.tell(batch, Y)
            return
        bad = [
            t for t, f in zip(self._trials_of(batch), is_finite, strict=True) if not f
        ]
        if bool(is_finite.any()):
            with undivided():
                told = ids.cpu()[is_finite].tolist()
                self.strategy.tell(told, Y.reshape(-1).cpu()[is_finite])
        which = "; ".join(self._name(trial) for trial in bad[:5])
        raise InputDataError(
            f"The objective returned {len(bad)} values that are NaN or infinite: "
            f"{which}{' and more' if len(bad) > 5 else ''}. They stay pending, and "
            f"the other {b - len(bad)} of the batch are told. Run again to try once "
            "more, fail(ids) to leave them out, or run(..., catch=InputDataError)."
        )

    def _trials_of(self, batch: Batch) -> list[Trial]:
        ids = [] if batch.ids is None else batch.ids.tolist()
        return [self.strategy.trial(id) for id in ids]

    def _inputs(self, batch: Batch) -> Tensor:
        """What the objective is called with."""
        if self.options.by_index and batch.indices is not None:
            return batch.indices
        return batch.X

    def _calls(self, batch: Batch) -> Iterator[tuple[int, Callable[[], list[float]]]]:
        """The ids of the trials, and the evaluation of each."""
        inputs = self._inputs(batch)
        ids = [] if batch.ids is None else batch.ids.tolist()
        for id, x in zip(ids, inputs.detach().cpu().numpy(), strict=True):
            one = np.array(x)[None]  # a copy: a view would be pickled whole
            name = uuid.uuid4().hex
            yield (
                id,
                partial(evaluate_one, self.objective, one, str(inputs.device), name),
            )

    def _with_executor(self, batch: Batch, executor: Executor) -> None:
        """Evaluate all points at once, and tell each as it comes."""
        out: dict[Future[list[float]], int] = {}
        arrived: SimpleQueue[Future[list[float]]] = SimpleQueue()
        errors: list[Exception] = []
        try:
            for id, call in self._calls(batch):
                future = executor.submit(call)
                out[future] = id
                future.add_done_callback(arrived.put)
            while out:
                future = arrived.get()
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

    def _tell_arrived(self, out: dict[Future[list[float]], int]) -> None:
        """Tell the results that are there, and no others."""
        pending = set(self.strategy.pending_ids.tolist())
        for future, id in out.items():
            is_there = future.done() and not future.cancelled()
            if id in pending and is_there and future.exception() is None:
                if _is_one_finite(values := future.result()):
                    with undivided():
                        self.strategy.tell([id], values)

    def _finish(self, id: int, outcome: Callable[[], list[float]]) -> None:
        """Tell one outcome, or that it failed."""
        try:
            values = _one_finite(outcome())
        except BrokenExecutor as error:  # not of this point, whatever is caught
            error.add_note(
                "The executor broke down; the points that it had stay pending. Run "
                "again with a new one."
            )
            raise
        except self.options.catch as error:
            self._fail(id, error)
            return
        except Exception as error:
            error.add_note(f"Raised by {self._name(self.strategy.trial(id))}.")
            raise
        with undivided():
            self.strategy.tell([id], values)
        self.num_failures = 0

    def _name(self, trial: Trial) -> str:
        """How the user knows a trial."""
        point = trial.point
        X = self.strategy.history.points(torch.tensor([point]))[0].tolist()
        name = f"trial {trial.id} at the point {X}"
        if (table := self.strategy.table) is None:
            return name
        key = "" if table.keys is None else f", key {table.keys[point]!r}"
        return f"{name} (row {point}{key})"

    def _fail(self, id: int, error: Exception) -> None:
        """Keep a trial for retry once, then leave it out."""
        trial = self.strategy.trial(id)
        again = trial.failures == 0
        with undivided():
            self.strategy.fail([id], retry=again)
        self.num_failures += 1
        warnings.warn(
            f"T{self._name(trial)[1:]} raised {error!r}; it is "
            f"{'tried once more' if again else 'left out'}.",
            BotorchWarning,
            stacklevel=6 + (self.options.executor is not None),
        )
        if self.num_failures >= MAX_FAILURES:
            raise error


def _cancel(out: dict[Future[list[float]], int]) -> None:
    for future in out:
        future.cancel()


def evaluate_one(
    objective: Callable[[Tensor], Any], x: NDArray[Any], device: str, name: str
) -> list[float]:
    """One evaluation, as plain numbers: these travel between processes.

    Args:
        objective: From `1 x d` points, or one index, to one observation.
        x: `1 x d` point, or one index.
        device: Where the objective wants it.
        name: Of this call. Dask takes calls that are equal for one, which noise is not.
    """
    Y = torch.as_tensor(objective(torch.from_numpy(x).to(device)))
    values: list[float] = Y.detach().double().reshape(-1).tolist()
    return values


def _is_one_finite(values: list[float]) -> bool:
    return len(values) == 1 and math.isfinite(values[0])


def _one_finite(values: list[float]) -> list[float]:
    if not _is_one_finite(values):
        raise InputDataError(
            f"The objective returned {values[:5]} for one point; need one finite "
            "number."
        )
    return values


@contextmanager
def undivided() -> Iterator[None]:
    """Let Ctrl-C wait until the block has ended; a second one does not wait."""
    usual = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(usual):
        yield
        return
    received: list[tuple[int, FrameType | None]] = []

    def wait(number: int, frame: FrameType | None) -> None:
        received.append((number, frame))
        if len(received) > 1:
            usual(number, frame)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if received:
        usual(*received[0])


class Progress:
    """A progress bar of evaluations, with the best value so far.

    Args:
        history: What it shows.
        name: Of the strategy.
        total: Evaluations at the end.
        is_shown: Whether to show it.
    """

    def __init__(self, history: History, name: str, total: int, is_shown: bool) -> None:
        self.history = history
        self._seen = 0
        self._best = float("-inf")
        self._bar = tqdm(
            total=total,
            initial=min(len(history), total),
            desc=name,
            unit="eval",
            disable=not is_shown,
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.close()

    def update(self) -> None:
        """Show what has come since."""
        if self._bar.disable:
            return
        self._best = max([self._best, *self.history.values[self._seen :]])
        self._seen = len(self.history)
        best = -self._best if self.history.minimize else self._best
        batches = self.history.batches
        self._bar.set_postfix(
            batch=len(batches),
            m=batches[-1].num_inducing if batches else 0,
            best=f"{best:.4g}",
            refresh=False,
        )
        self._bar.update(len(self.history) - self._bar.n)
