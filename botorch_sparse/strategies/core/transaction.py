"""A step of a strategy happens whole or not at all, whatever comes in between.

What a step does is done to a draft, a copy that shares what it does not replace, and
the strategy becomes the draft by one assignment. Whoever looks meanwhile, or after an
error, sees what was before. A draft takes O(1): attributes are values that are
replaced, and collections that grow are forked.
"""

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import wraps
from types import FrameType
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from botorch.exceptions import InputDataError

from botorch_sparse.threads import (
    CopyableLock,
    check_data_again,
    checks_data,
    one_thread,
)

S = TypeVar("S")  # a strategy, whose module imports this one
P = ParamSpec("P")
T = TypeVar("T")


def step(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method of a strategy that is done to a draft of it, which it then becomes.

    What fails or is interrupted, anywhere, has changed nothing. Threads wait for each
    other here. Gradients are on inside, and afterwards what they were.

    Args:
        method: Replaces attributes and does not change them, but for `record`, the
            trials and the generator, which are the draft's own. May call other steps.

    Raises:
        InputDataError: If a step of the same strategy was taken inside of this one.
    """

    @wraps(method)
    def whole(strategy: Any, *args: P.args, **options: P.kwargs) -> T:
        with strategy._lock:
            if strategy._lock.step.locked():  # by this thread: others wait above
                raise InputDataError(
                    "Got ask, tell or the like inside of another call of the same "
                    "strategy, such as from `progress`: nothing of the inner call has "
                    "happened. Call them one after the other."
                )
            with (
                strategy._lock.step,
                torch.inference_mode(False),
                checks_kept(),
                one_thread(),
            ):
                draft = draft_of(strategy)
                result = _done(method, strategy, draft, args, options)
                _become(strategy, draft)
        return result

    return whole


def _done(
    method: Callable[..., T], strategy: Any, draft: Any, args: Any, options: Any
) -> T:
    """What a method of the draft returns."""
    try:
        return method(draft, *args, **options)
    except BaseException:
        strategy._forget()
        raise


def _alias_of(strategy: S) -> S:
    """One with the same attributes, not to be kept beside the other. O(1)."""
    other = object.__new__(type(strategy))
    vars(other).update(vars(strategy))
    return other


def draft_of(strategy: Any) -> Any:
    """A copy to change; the strategy stays as it is. O(1)."""
    draft = _alias_of(strategy)
    draft._lock = StepLock()  # a step of the draft is a part of its step
    draft.record, draft._trials = strategy.record.fork(), strategy._trials.fork()
    draft.generator = torch.Generator()
    draft.generator.set_state(strategy.generator.get_state())
    return draft


def _become(strategy: Any, draft: Any) -> None:
    """Take over all that a draft has but its lock, for which threads may wait."""
    before = vars(strategy).copy()
    vars(strategy).update(vars(draft) | {"_lock": strategy._lock})
    del before  # until here: no finalizer runs while attributes are replaced


def undo_point(strategy: Any) -> Callable[[], bool]:
    """A function that takes back all proposals and failures from here on. O(1).

    Returns:
        It says whether it did: feedback, and another table, are not taken back.
    """
    with strategy._lock:
        before, num_told = draft_of(strategy), len(strategy.record)

    def undo() -> bool:
        with strategy._lock:
            is_same_table = strategy.domain is before.domain
            if len(strategy.record) != num_told or not is_same_table:
                return False
            strategy._forget()
            before._finder = before._finder.without_pending()
            _become(strategy, before)
            return True

    return undo


def deep_copy(strategy: Any, memo: dict[int, Any]) -> Any:
    """A strategy of its own, also inside of `torch.inference_mode`."""
    with strategy._lock, torch.inference_mode(False):
        other = memo[id(strategy)] = _alias_of(strategy)
        vars(other).update(deepcopy(vars(strategy), memo))
    return other


class StepLock(CopyableLock):
    """A lock of steps.

    Attributes:
        step: A lock that is held as long as a step is taken: two drafts at a time would
            append to the same room.
    """

    def __init__(self) -> None:
        self.step = threading.Lock()


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
        if received:  # also after an error, which is then its context
            usual(*received[0])


@contextmanager
def checks_kept() -> Iterator[None]:
    """Leave checks of data and filters of warnings where a block is interrupted.

    Models that are built here switch BoTorch's checks, and warnings of them, off and
    on, but for an interrupt at that very moment. Errors leave all that in order, and
    other threads may have filters of their own for a moment.
    """
    are_on, filters = checks_data(), list(warnings.filters)
    try:
        yield
    except BaseException as error:
        if are_on:
            check_data_again()
        if not isinstance(error, Exception) and list(warnings.filters) != filters:
            warnings.resetwarnings()  # also in what Python keeps of them
            warnings.filters = filters
        raise
