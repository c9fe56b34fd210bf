"""SciPy keeps its threads, however the factorizations of two threads overlap."""

import os
import time
from threading import Event, Thread, get_ident
from typing import Any

import pytest
import torch
from threadpoolctl import ThreadpoolController

from botorch_sparse.posteriors import factorization, factorize_inducing_covariance


def factorize() -> None:
    factorize_inducing_covariance(torch.ones(3, 3, dtype=torch.float64))


def test_two_that_overlap_leave_no_limit(monkeypatch):
    """Of two factorizations the first to begin is the first to end, if it can be."""
    openblas = ThreadpoolController().select(internal_api="openblas")
    begun, other_begun, ended = Event(), Event(), Event()
    during, plain, main = [], factorization.dpstrf, get_ident()

    def counts() -> list[int]:
        return [library["num_threads"] for library in openblas.info()]

    def meeting(*args: Any, **kwargs: Any) -> Any:
        if get_ident() == main:
            begun.set()
            other_begun.wait(0.5)  # it waits outside where one has to end first
        else:
            other_begun.set()
            assert ended.wait(60)
        during.append(counts())
        return plain(*args, **kwargs)

    def other() -> None:
        assert begun.wait(60)
        factorize()

    def set_counts(numbers: list[int]) -> None:
        for library, number in zip(openblas.lib_controllers, numbers, strict=True):
            library.set_num_threads(number)

    monkeypatch.setattr(factorization, "dpstrf", meeting)
    original, thread = counts(), Thread(target=other)
    set_counts([2 for _ in original])
    before = counts()
    try:
        thread.start()
        factorize()
        ended.set()
        thread.join(60)
        assert counts() == before
    finally:
        set_counts(original)
    assert len(during) == 2 and all(n == 1 for numbers in during for n in numbers)


def test_restored_after_an_error(monkeypatch):
    openblas = ThreadpoolController().select(internal_api="openblas")

    def failing(*args: Any, **kwargs: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(factorization, "dpstrf", failing)
    with openblas.limit(limits=2):
        before = openblas.info()
        for _ in range(2):  # nor is anything locked
            with pytest.raises(MemoryError):
                factorize()
        assert openblas.info() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_in_the_middle_of_one(monkeypatch):
    """The child, which lacks the thread that factorizes, finds the lock free.

    It does not factorize: with several threads OpenMP itself may hang in a child.
    """
    begun, plain, main = Event(), factorization.dpstrf, get_ident()

    def slow(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != main:
            begun.set()
            time.sleep(0.3)  # the fork comes meanwhile
        return plain(*args, **kwargs)

    monkeypatch.setattr(factorization, "dpstrf", slow)
    factorize()
    thread = Thread(target=factorize)
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(not factorization._LOCK.acquire(timeout=20))
    thread.join(60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
