"""Threads by the size of the work, the same bits, and what was set is set again."""

import os
import time
from collections.abc import Callable, Sequence
from threading import Barrier, Event, Thread, get_ident
from typing import Any, ClassVar

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.settings import validate_input_scaling
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from threadpoolctl import ThreadpoolController
from torch import Tensor
from torch_threads import threads_set

from botorch_sparse import threads
from botorch_sparse.inducing.certificate import ScaledResidual
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.posteriors import (
    NystromFeatures,
    NystromPosterior,
    factorization,
    factorize_inducing_covariance,
)
from botorch_sparse.posteriors.objective import low_rank_objective
from botorch_sparse.strategies import BBKB
from botorch_sparse.threads import for_each, one_thread, row_chunks, sum_over

LARGE = 10 * threads.WORTH_A_THREAD


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
        assert begun.wait()
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
        thread.join()
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
    assert begun.wait()
    child = os.fork()
    if child == 0:
        os._exit(not threads._LOCK.acquire(blocking=False))
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def in_thread(function: Callable[[], Any]) -> Any:
    """What a function returns in a new thread."""
    result = []
    thread = Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


def test_checks_of_data_are_on_after_two_that_overlap() -> None:
    """The setting is of the process, and each would restore what it had found."""
    is_off, may_end, found = Event(), Event(), list[bool]()

    def one() -> None:
        with threads.data_unchecked():
            found.append(threads.checks_data())
            is_off.set()
            may_end.wait(60)

    def two() -> None:
        with threads.data_unchecked():
            first.join(60)
        found.append(threads.checks_data())

    first, second = Thread(target=one), Thread(target=two)
    first.start()
    assert is_off.wait(60)
    second.start()
    second.join(0.2)  # it would be inside now
    may_end.set()
    second.join(60)
    assert found == [False, True] and validate_input_scaling.on()


def test_one_thread_inside_and_the_users_number_after() -> None:
    with threads_set(3):
        with pytest.raises(KeyboardInterrupt), one_thread(), one_thread():
            assert torch.get_num_threads() == 1
            raise KeyboardInterrupt
        assert torch.get_num_threads() == 3
        assert in_thread(torch.get_num_threads) == 3
        with one_thread():
            with one_thread():
                pass
            assert torch.get_num_threads() == 1


def test_threads_of_others_have_the_users_number() -> None:
    """Those that are there, and those that begin while this one is limited."""
    meet, seen = Barrier(2), []

    def other() -> None:
        torch.set_num_threads(3)
        assert torch.get_num_threads() == 3
        meet.wait(60)
        meet.wait(60)  # the other one is limited now
        seen.append(torch.get_num_threads())
        seen.append(in_thread(torch.get_num_threads))
        meet.wait(60)

    with threads_set(2):
        thread = Thread(target=other)
        thread.start()
        meet.wait(60)
        with one_thread():
            meet.wait(60)
            meet.wait(60)
            for_each(range(4), LARGE, lambda: lambda part: None)
            assert in_thread(torch.get_num_threads) == 2
        thread.join()
    assert seen == [3, 2]


@pytest.mark.parametrize("allowed", [1, 2, 3])
@pytest.mark.parametrize("is_limited", [False, True])
@torch.no_grad()
def test_large_work_is_shared_by_as_many_as_are_allowed(
    allowed: int, is_limited: bool
) -> None:
    meet, taken = Barrier(allowed), list[tuple[int, int, int]]()

    def start() -> Callable[[int], None]:
        own = get_ident()
        meet.wait(60)  # all threads begin

        def take(part: int) -> None:
            taken.append((part, own, torch.get_num_threads()))
            assert get_ident() == own and not torch.is_grad_enabled()

        return take

    with threads_set(allowed):
        if is_limited:
            with one_thread():
                for_each(range(50), LARGE, start)
        else:
            for_each(range(50), LARGE, start)
    parts, owners, numbers = zip(*taken, strict=True)
    assert sorted(parts) == [*range(50)] and set(numbers) == {1}
    assert len({*owners, get_ident()}) <= allowed
    for owner in set(owners):
        own = [part for part, by, _ in taken if by == owner]
        assert own == sorted(own)


@torch.no_grad()
def test_one_inside_of_another_has_no_more_threads() -> None:
    """Nor has a user who sets fewer or more inside of a limit another number after."""
    running, most = [], [0]

    def inner(part: int) -> None:
        running.append(part)
        most[0] = max(most[0], len(running))
        time.sleep(0.002)
        running.pop()

    def outer(part: int) -> None:
        for_each(range(5), LARGE, lambda: inner)

    with threads_set(2):
        for_each(range(4), LARGE, lambda: outer)
        assert most[0] <= 2
    with threads_set(2):
        with one_thread():
            with one_thread():
                torch.set_num_threads(3)
                with one_thread():
                    assert torch.get_num_threads() == 1
                assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 3
        torch.set_num_threads(2)


@torch.no_grad()
def test_fewer_threads_where_the_system_gives_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[int] = []
    with threads_set(2):
        monkeypatch.setattr(Thread, "start", refuse)
        for_each(range(9), LARGE, lambda: done.append)
    assert done == [*range(9)]


@pytest.mark.parametrize("work", [0.0, threads.WORTH_A_THREAD])
def test_small_work_is_not_shared(work: float) -> None:
    with threads_set(2), torch.no_grad():
        for_each(range(5), work, lambda: lambda part: owners.add(get_ident()))
    with threads_set(2):  # nor is a gradient's
        for_each(range(5), LARGE, lambda: lambda part: owners.add(get_ident()))
    assert owners == {get_ident()}


owners: set[int] = set()


@pytest.mark.parametrize("is_main", [True, False])
@torch.no_grad()
def test_an_error_in_a_part_ends_all(is_main: bool) -> None:
    main, meet, taken = get_ident(), Barrier(2), []

    def start() -> Callable[[int], None]:
        meet.wait(60)

        def take(part: int) -> None:
            taken.append(part)
            if (get_ident() == main) == is_main:
                raise ArithmeticError("of a part")
            time.sleep(0.05)

        return take

    with threads_set(2), pytest.raises(ArithmeticError, match="of a part"):
        for_each(range(100), LARGE, start)
    assert len(taken) < 100


@torch.no_grad()
def test_sums_have_the_same_bits_for_all_numbers_of_threads() -> None:
    values = torch.rand(1000, 7, generator=torch.Generator().manual_seed(0)).double()

    def add_up(parts: Sequence[slice]) -> tuple[Tensor, None]:
        return sum(values[rows].sum(0) for rows in parts), None

    found = []
    for number in (1, 2, 3):
        with threads_set(number):
            found.append(sum_over(row_chunks(1000, 9), LARGE, add_up))
    for total, nothing in found:
        assert torch.equal(total, found[0][0]) and nothing is None
    torch.testing.assert_close(found[0][0], values.sum(0))


def problem(kernel: Kernel, num: int = 4000, m: int = 120) -> tuple[Tensor, ...]:
    """Points, observations, noise variances and inducing points."""
    g = torch.Generator().manual_seed(3)
    X = torch.rand(num, 3, generator=g).double()
    return X, X.sum(-1).sin(), 0.1 + X[:, 0], X[:m]


KERNELS = {
    "shared": ScaleKernel(MaternKernel(nu=2.5)).double().requires_grad_(False),
    "a product": (RBFKernel() * MaternKernel()).double().requires_grad_(False),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@torch.no_grad()
def test_posteriors_and_residuals_have_the_same_bits(kernel: Kernel) -> None:
    """Also those of kernels that threads can't share, which one thread evaluates."""
    X, Y, noise, S = problem(kernel)
    found, lower = [], set()
    for number in (1, 2):
        with threads_set(number), one_thread():
            features = NystromFeatures.of(kernel, S, chunk_size=500)
            prior = NystromPosterior.without_data(features)
            posterior = prior.condition(X, Y, noise)
            residual = ScaledResidual(features, X, noise)
            summary = residual.summary()
            both = posterior.chol_inner, posterior.weights, *posterior.moments(X)
            found.append([*both, summary.leverage, residual @ Y])
            lower.add(summary.lower)
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)
    Phi = NystromFeatures.of(kernel, S).features(X)
    B = torch.eye(len(S)).double() + Phi.mT @ (Phi / noise.unsqueeze(-1))
    torch.testing.assert_close(found[0][0] @ found[0][0].mT, B)
    assert lower.pop() == pytest.approx(len(S) - float(B.inverse().trace()))
    assert not lower
    K = kernel(X).to_dense() - Phi @ Phi.mT
    E = K / noise.sqrt() / noise.sqrt().unsqueeze(-1)
    torch.testing.assert_close(
        found[0][4], E.diagonal().clamp_min(0.0), atol=1e-9, rtol=1e-7
    )
    torch.testing.assert_close(found[0][5], E @ Y, atol=1e-7, rtol=1e-7)


class Remembering(ConstantMean):
    """A mean that only one thread may call at a time."""

    inside = 0

    def forward(self, X: Tensor) -> Tensor:
        self.inside += 1
        time.sleep(0.01)
        assert self.inside == 1
        self.inside -= 1
        return super().forward(X)


@torch.no_grad()
def test_means_of_ones_own_are_called_by_one_thread() -> None:
    X, Y, noise, S = problem(KERNELS["shared"])
    mean = Remembering().double()
    features = NystromFeatures.of(KERNELS["shared"], S, chunk_size=500)
    with threads_set(2):
        prior = NystromPosterior.without_data(features, mean)
        prior.condition(X, Y, noise).moments(X)


@pytest.mark.parametrize("collapsed", [True, False])
def test_the_objective_in_groups_of_blocks(collapsed: bool) -> None:
    """Value and gradients: the same bits, and the dense ones."""
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=3)).double()
    X, Y, noise, S = (t.requires_grad_() for t in problem(kernel, 1200, 200))
    found = []
    for number in (1, 2):
        with threads_set(number), one_thread():
            features = NystromFeatures.of(kernel, S)
            value = low_rank_objective(features, X, Y, noise, with_residual=collapsed)
            leaves = [X, Y, noise, S, *kernel.parameters()]
            found.append((value, *torch.autograd.grad(value, leaves)))
    assert all(map(torch.equal, *found))
    K_XS, K_SS = kernel(X, S).to_dense(), kernel(S).to_dense()
    Q = K_XS @ torch.linalg.solve(K_SS, K_XS.mT)
    dense = torch.distributions.MultivariateNormal(0 * Y, Q + noise.diag_embed())
    value = dense.log_prob(Y)
    if collapsed:
        value = value - ((kernel(X, diag=True) - Q.diagonal()) / noise).sum() / 2
    expected = (value, *torch.autograd.grad(value, leaves))
    torch.testing.assert_close(found[0], expected, rtol=1e-5, atol=1e-5)


class Watched(ScaleKernel):
    """A kernel that says how many threads torch has when it is evaluated."""

    seen: ClassVar[list[int]] = []  # of all copies

    def __init__(self) -> None:
        super().__init__(MaternKernel(nu=2.5))
        self.double()

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        self.seen.append(torch.get_num_threads())
        return super().forward(*args, **kwargs)


@pytest.mark.parametrize("num", [40, pytest.param(900, marks=pytest.mark.slow)])
def test_a_model_its_fit_and_gradients_have_one_thread(num: int) -> None:
    """And BoTorch's optimizer, which asks for gradients, has the user's between."""
    g, kernel = torch.Generator().manual_seed(0), Watched()
    X = torch.rand(num, 2, generator=g).double()
    model = SparseSingleTaskGP(X, X.sum(-1, keepdim=True).sin(), covar_module=kernel)
    kernel.seen.clear()
    with threads_set(2):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        x = torch.rand(5, 1, 2, generator=g).double().requires_grad_()
        value = LogExpectedImprovement(model, 0.5)(x).sum()
        assert torch.get_num_threads() == 2
        in_backward = x.register_hook(
            lambda _: kernel.seen.append(-torch.get_num_threads())
        )
        (gradient,) = torch.autograd.grad(value, x)
    assert len(kernel.seen) > 3 and set(kernel.seen) == {1, -1}
    in_backward.remove()

    def fail(grad: Tensor) -> None:
        assert torch.get_num_threads() == 1
        raise ArithmeticError("in a backward pass")

    with threads_set(2):
        value = LogExpectedImprovement(model, 0.5)(x).sum()
        in_backward = x.register_hook(fail)
        with pytest.raises(ArithmeticError, match="in a backward pass"):
            value.backward()
    in_backward.remove()
    with threads_set(1):
        value = LogExpectedImprovement(model, 0.5)(x).sum()
        torch.testing.assert_close(gradient, *torch.autograd.grad(value, x))


def test_a_step_has_one_thread_and_the_objective_the_users() -> None:
    X = torch.rand(60, 2, generator=torch.Generator().manual_seed(0)).double()
    kernel, outside = Watched(), list[int]()

    def objective(x: Tensor) -> Tensor:
        outside.append(torch.get_num_threads())
        return x.sum(-1)

    strategy = BBKB(X, covar_module=kernel, lam=0.1, batch_size=3, seed=0)
    kernel.seen.clear()
    with threads_set(2):
        strategy.run(objective, 12, progress=False)
    assert set(kernel.seen) == {1} and set(outside) == {2}
