"""What a run is asked for, and what it asks of a strategy."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.doors import check_flag, check_path, check_whole, said
from botorch_sparse.strategies.batch import Batch
from botorch_sparse.strategies.box import Box
from botorch_sparse.strategies.candidates import CandidateTable
from botorch_sparse.strategies.domain import Domain
from botorch_sparse.strategies.history import History
from botorch_sparse.strategies.trials import Trial

# Called with strategy, batch and history after each batch; True stops the run.
Callback: TypeAlias = Callable[[Any, Batch, History], Any]


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
        check_flag("by_index", self.by_index)
        if self.batch_size is not None:
            check_whole("batch_size", self.batch_size)
        if self.executor is not None and not _has_method(self.executor, "submit"):
            raise InputDataError(
                f"Got executor={said(self.executor)}; need a "
                "concurrent.futures.Executor, such as ThreadPoolExecutor(4) or a Dask "
                "client's get_executor()."
            )
        for callback in self.callbacks:
            if not _has_method(callback, "__call__"):
                raise InputDataError(
                    f"Got {said(callback)} among callbacks; need functions of "
                    "strategy, batch and history, or rules such as StopAfter(60.0)."
                )
        for caught in self.catch:
            if not (isinstance(caught, type) and issubclass(caught, Exception)):
                raise InputDataError(
                    f"Got {said(caught)} in catch; need a class of exceptions, such "
                    "as ValueError, or a tuple of them."
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


class Runnable(Protocol):
    """What a run asks of a strategy; see `Strategy`."""

    largest_value: ClassVar[float]

    @property
    def history(self) -> History:
        """All evaluations."""
        ...

    @property
    def domain(self) -> Domain:
        """Where it chooses from."""
        ...

    @property
    def box(self) -> Box | None:
        """The continuous domain, or None."""
        ...

    @property
    def table(self) -> CandidateTable | None:
        """The table of candidates, or None."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to propose."""
        ...

    @property
    def pending_ids(self) -> Tensor:
        """Ids of the trials asked for and not told yet."""
        ...

    def pending_batch(self, max_batch_size: int | None = None) -> Batch:
        """What is out for evaluation."""
        ...

    def agree(self, options: RunOptions) -> None:
        """Refuse to run with ranks whose strategy is another one."""
        ...

    def ask(self, max_batch_size: int | None = None) -> Batch:
        """Propose a batch."""
        ...

    def tell(self, X: Any, Y: Any) -> None:
        """Report feedback."""
        ...

    def fail(self, trials: Sequence[int], *, retry: bool = False) -> None:
        """Report trials whose evaluation failed."""
        ...

    def trial(self, id: int) -> Trial:
        """A pending trial."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """All state."""
        ...

    def way_back(self) -> Callable[[], bool]:
        """A function that takes back what happens from here on, but no feedback."""
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file."""
        ...
