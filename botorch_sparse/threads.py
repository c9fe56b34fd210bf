"""How many threads an operation has, by its size alone.

Threads of torch's own operations meet at the end of each, and wait there without
sleeping. An operation of some microseconds gains nothing from them where the machine is
free. Where it is not, each meeting can last a time slice of the scheduler: two runs at
once on two cores took twenty times as long as one after the other. So what is small has
one thread. Large work on many candidates is cut into parts that threads of Python take
one after the other; they meet once, at the end, and sleep there. Each part has one
thread of torch, so that its bits depend on nobody's number of threads.

`torch.set_num_threads` is for the calling thread, and for those that begin later.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any, TypeVar

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor
from torch.autograd import Variable

# Floating point operations that are worth one thread more: a millisecond or two.
WORTH_A_THREAD = 4e7
# So many take as long as an entry of a covariance matrix, or as a random feature.
KERNEL_ENTRY, FEATURE = 300, 30

# Groups of a sum at most: each has a result of its own.
MOST_GROUPS = 8

Part = TypeVar("Part")


class CopyableLock(type(threading.RLock())):  # type: ignore[misc]
    """A lock that its thread may take again; a copy is another one, and free.

    No signal comes between its `__exit__`, which is in C, and the block before it.
    """

    def __reduce__(self) -> tuple[type["CopyableLock"], tuple[()]]:
        return type(self), ()


class _Limit(threading.local):
    """What this thread of Python may have inside of a limit; None outside."""

    allowed: int | None = None


_limit = _Limit()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for each operation of torch that is called from this thread.

    Only `for_each` has more inside. What was set before is set again afterwards, unless
    the block has set more.
    """
    before, outer = torch.get_num_threads(), _limit.allowed
    if before == 1:
        yield
        return
    try:
        _limit.allowed = before
        torch.set_num_threads(1)
        _set_for_new_threads(before)
        yield
    finally:
        if torch.get_num_threads() == 1:
            torch.set_num_threads(before)
        _limit.allowed = outer


@contextmanager
def threads_for(work: float) -> Iterator[None]:
    """As many threads as some work is worth, inside of `one_thread` too.

    For an operation that cannot be cut into parts, such as a large factorization. Its
    bits depend on the number of threads.
    """
    before, number = torch.get_num_threads(), _number_for(work)
    if number == before:
        yield
        return
    try:
        torch.set_num_threads(number)
        yield
    finally:
        torch.set_num_threads(before)


def one_thread_backward(*tensors: Tensor) -> None:
    """One thread for what is left of a gradient once it has come to these tensors.

    What asks for it is often BoTorch's optimizer, not this library.
    """
    for tensor in tensors:
        if tensor.grad_fn is not None and tensor.is_cpu:
            tensor.grad_fn.register_prehook(_limit_backward)


def _limit_backward(_: Any) -> None:
    if torch.get_num_threads() > 1:
        limit = ExitStack()
        limit.enter_context(one_thread())
        # After an error it is not called but dropped, and with it the limit.
        Variable._execution_engine.queue_callback(limit.close)


def row_chunks(num: int, size: int) -> list[slice]:
    """The rows `0, ..., num - 1` in chunks of `size`, the last one shorter."""
    return [slice(i, min(i + size, num)) for i in range(0, num, size)]


def for_each(
    parts: Sequence[Part],
    work: float,
    make_worker: Callable[[], Callable[[Part], object]],
) -> None:
    """Call a function with each part, in several threads where the work is worth it.

    Parts are taken in their order, and end in any. What one of them raises is raised,
    and no part is begun after it. Where gradients are on there is one thread.

    Args:
        parts: Independent of each other.
        work: Floating point operations of all of them.
        make_worker: Called once in each thread: the function, with its own buffers.
    """
    number = 1 if torch.is_grad_enabled() else min(_number_for(work), len(parts))
    left = deque(parts)

    def run() -> None:
        try:
            worker = make_worker()
            while left:
                try:
                    part = left.popleft()
                except IndexError:  # another thread took the last one
                    return
                worker(part)
        finally:
            left.clear()

    with one_thread():
        if number < 2:
            run()
            return
        allowed, _limit.allowed = _limit.allowed or 1, 1  # of all, of each
        try:
            with _helpers(run, number - 1, allowed):
                run()
        finally:
            left.clear()
            _limit.allowed = allowed


@contextmanager
def _helpers(run: Callable[[], None], number: int, allowed: int) -> Iterator[None]:
    """Threads that run a function with one thread of torch; waited for, errors raised.

    Fewer, if the system gives no more. Threads that others begin have those allowed.
    """
    is_inference, errors = torch.is_inference_mode_enabled(), list[BaseException]()

    def help_along() -> None:
        torch.get_num_threads()  # after which a thread's own number lasts
        torch.set_num_threads(1)
        _set_for_new_threads(allowed)
        try:
            with torch.inference_mode(is_inference), torch.no_grad():
                run()
        except BaseException as error:
            errors.append(error)

    helpers = list[threading.Thread]()
    try:
        with suppress(RuntimeError):  # no thread can be started
            for _ in range(number):
                helper = threading.Thread(target=help_along)
                helper.start()
                helpers.append(helper)
        yield
    finally:
        for helper in helpers:
            helper.join()
    if errors:
        raise errors[0]


def num_groups(work: float) -> int:
    """Groups of parts for some work, of which `sum_over` has no more."""
    return max(1, min(MOST_GROUPS, int(work // WORTH_A_THREAD)))


def sum_over(
    parts: Sequence[Part],
    work: float,
    add_up: Callable[[Sequence[Part]], tuple[Any, ...]],
) -> tuple[Any, ...]:
    """Sums over parts, which threads share where the work is worth it.

    How many groups are added up alone, and so the bits of the sums, depends on the work
    and not on threads.

    Args:
        parts: Independent of each other.
        work: Floating point operations of all of them.
        add_up: The sums over some consecutive parts: tensors, or None for all of them.
    """
    number = min(len(parts), num_groups(work)) or 1
    ends = [len(parts) * i // number for i in range(number + 1)]
    sums = dict[int, tuple[Any, ...]]()

    def add(group: int) -> None:
        sums[group] = add_up(parts[ends[group] : ends[group + 1]])

    for_each(range(number), work, lambda: add)
    whole = sums[0]
    for group in range(1, number):
        pairs = zip(whole, sums[group], strict=True)
        whole = tuple(None if a is None or b is None else a + b for a, b in pairs)
    return whole


def _number_for(work: float) -> int:
    """Threads for some work, at most those that the user allows."""
    allowed = _limit.allowed or torch.get_num_threads()
    return max(1, min(allowed, int(work // WORTH_A_THREAD)))


# A thread that sets torch's number for threads to come, and keeps its own. There is
# none until it is needed, and none in a child process.
_setter = ThreadPoolExecutor(1)


def _set_for_new_threads(number: int) -> None:
    """Give threads of Python that begin later so many. Cost: 0.1 ms.

    Where there is no other thread, only a callback can begin one inside of a limit.
    """
    if threading.active_count() > 1:
        with suppress(RuntimeError):  # Python is about to end
            _setter.submit(torch.set_num_threads, number).result()


def _renew_setter() -> None:
    global _setter
    _setter = ThreadPoolExecutor(1)


# BoTorch's settings are of the process: of two threads that switch one off for a while,
# the last to end would leave it off.
_SETTING = threading.RLock()


@contextmanager
def data_unchecked() -> Iterator[None]:
    """BoTorch's checks of data are off, for one thread at a time."""
    from botorch.settings import validate_input_scaling

    with _SETTING, validate_input_scaling(False):
        yield


def check_data_again() -> None:
    """Leave BoTorch's checks of data on, once no thread has them off."""
    from botorch.settings import validate_input_scaling

    with _SETTING:
        validate_input_scaling(True).__enter__()  # for good


def checks_data() -> bool:
    """Whether BoTorch's checks of data are on in this thread."""
    from botorch.settings import validate_input_scaling

    with _SETTING:
        return bool(validate_input_scaling.on())


# OpenBLAS has one number of threads for the whole process: of two calls that overlap,
# the last to end would restore what the first had set. SciPy holds Python's own lock in
# them, so that nothing is lost.
_LOCK = threading.Lock()
# A process forked in the middle of one would inherit the limit, and the lock held by a
# thread that it does not have; so a fork waits for the end. Registered at import, with
# the lock itself: it costs nothing there, and what is registered stays, so that once is
# right. Windows has no forks.
if hasattr(os, "register_at_fork"):
    for _lock in (_LOCK, _SETTING):
        os.register_at_fork(
            before=_lock.acquire,
            after_in_parent=_lock.release,
            after_in_child=_lock.release,
        )
    os.register_at_fork(after_in_child=_renew_setter)


@contextmanager
def one_openblas_thread() -> Iterator[None]:
    """One thread for calls of SciPy's OpenBLAS, in all threads of the process.

    After each call its threads spin for a while, on the cores that PyTorch needs next:
    that doubled the time of a fit objective with m = 300.
    """
    with _LOCK, _openblas().limit(limits=1):
        yield


@cache
def _openblas() -> ThreadpoolController:
    return ThreadpoolController().select(internal_api="openblas")
