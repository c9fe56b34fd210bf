"""The candidate pool: moments, streaming, kept kernel columns, local sums."""

from typing import Any

import numpy as np
import oracles
import pytest
import torch
from batch_oracles import Dense, Problem, assert_close, fewer, make_problem
from botorch.exceptions import BotorchTensorDimensionError, InputDataError

from botorch_sparse.optim import BlockUCB, CandidatePool, EagerUCB, LazyUCB
from botorch_sparse.optim import candidate_pool as candidate_pool_module
from botorch_sparse.posteriors import NystromPosterior

TOLERANCE = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-9},
    torch.float32: {"rtol": 1e-3, "atol": 1e-4},
}


def test_moments_and_squared_covariances_are_dense(tkwargs: dict[str, Any]) -> None:
    tolerance = TOLERANCE[tkwargs["dtype"]]
    for seed in fewer(range(20), tkwargs, 2):
        problem = make_problem(seed, lam=0.1)
        pool, dense = problem.pool(**tkwargs), Dense(problem)
        assert pool.in_memory and len(pool) == len(problem.X)
        assert_close(pool.mean, dense.mean, **tolerance)
        assert_close(pool.variance, dense.variance, **tolerance)
        w = pool.whitened_features(slice(None)).double().cpu().numpy()
        assert_close(w @ w.T, dense.embedded, **tolerance)
        rows = np.random.default_rng(seed).integers(0, len(problem.X), 5)
        squares = pool.squared_covariances(torch.from_numpy(rows).to(pool.X.device))
        assert_close(squares[:, 0], dense.full[rows] ** 2, **tolerance)
        assert_close(squares[:, 1], dense.embedded[rows] ** 2, **tolerance)


def kink(problem: Problem) -> float:
    """How far a Matern 1/2 kernel of equal points may be from one.

    Squared distances are exact to some roundings of squared lengths, and there the
    kernel has a slope.
    """
    if "matern12" not in problem.kernel:
        return 0.0
    X = problem.X / oracles.LENGTHSCALE
    eps = torch.finfo(X.dtype).eps
    return (4 * (X.shape[-1] + 2) * eps) ** 0.5 * float(X.norm(dim=-1).max())


def test_moments_are_the_posteriors(double: dict[str, Any]) -> None:
    for kernel in fewer(oracles.KERNELS, double):
        problem = make_problem(1, kernel=kernel, num_candidates=150, num_inducing=40)
        pool, expected = (
            problem.pool(**double),
            problem.posterior(**double).moments(problem.X.to(**double)),
        )
        mean_weights = pool.posterior.weights @ pool.whitening  # of k_S(x)
        slack = kink(problem) * mean_weights.abs().sum().item()
        assert_close(pool.mean, expected.mean, rtol=1e-8, atol=1e-8 + slack)
        # k(x, x) and k_S(x)' G k_S(x), whose derivative at inducing points is at most 2
        slack = 3 * kink(problem)
        assert_close(pool.variance, expected.variance, rtol=1e-6, atol=1e-9 + slack)


@pytest.mark.parametrize("chunk_size", [7, 1, 49, 50, 51, 1000])
@pytest.mark.parametrize("max_memory", [0, 2**30])
def test_chunk_boundaries(
    chunk_size: int, max_memory: int, double: dict[str, Any]
) -> None:
    problem = make_problem(5, num_candidates=50)
    dense = Dense(problem)
    pool = CandidatePool(
        problem.X.to(**double), max_memory=max_memory, chunk_size=chunk_size
    )
    pool.update(problem.posterior(**double))
    assert pool.in_memory == (max_memory > 0)
    assert_close(pool.mean, dense.mean, rtol=1e-9, atol=1e-10)
    assert_close(pool.variance, dense.variance, rtol=1e-9, atol=1e-10)
    index = torch.tensor([49, 0, 17], device=double["device"])
    squares = pool.squared_covariances(index)
    rows = index.tolist()
    assert_close(squares[:, 0], dense.full[rows] ** 2, rtol=1e-8, atol=1e-10)
    assert_close(squares[:, 1], dense.embedded[rows] ** 2, rtol=1e-8, atol=1e-10)


def test_streamed_is_in_memory(double: dict[str, Any]) -> None:
    """The same long sequence of argmaxes, over many candidates and with repeats."""
    for seed in fewer(range(3), double):
        g = torch.Generator().manual_seed(seed)
        X = torch.rand(1500, 2, generator=g, dtype=torch.float64).to(**double)
        data = X[:200]
        posterior = NystromPosterior.from_data(
            oracles.make_kernel("rbf", **double),
            data,
            data.sin().sum(-1),
            torch.full((200,), 0.05, **double),
            data[:100],
        )
        sequences = []
        for max_memory in (2**30, 0):
            pool = CandidatePool(X, max_memory=max_memory)
            pool.update(posterior)
            assert pool.in_memory == (max_memory > 0)
            ucb, sequence = LazyUCB(pool, 10.0, 0.05), []
            for _ in fewer(range(200), double, 60):
                sequence.append(ucb.argmax())
                ucb.append(sequence[-1])
            sequences.append(sequence)
        assert sequences[0] == sequences[1]
        assert 5 < len(set(sequences[0])) < len(sequences[0])


def test_streaming_keeps_no_features(double: dict[str, Any]) -> None:
    """Nothing of size A x m is kept when it does not fit."""
    problem = make_problem(1, num_candidates=500, num_inducing=30)
    pool = problem.pool(max_memory=0, **double)
    kept = [v for v in vars(pool).values() if isinstance(v, torch.Tensor)]
    assert max(v.numel() for v in kept) <= pool.X.numel()
    m = pool.posterior.num_inducing
    size = len(pool) * m * pool.X.element_size()
    assert pool.fits_in_memory(0)
    for max_memory, expected in [
        (size, False),
        (2 * size, True),
        (2 * size - 1, False),
    ]:
        pool.max_memory = max_memory
        assert pool.fits_in_memory(m) is expected


def test_no_inducing_points(double: dict[str, Any]) -> None:
    X = torch.rand(30, 2, **double)
    posterior = NystromPosterior.from_data(
        oracles.make_kernel("scaled", **double),
        X[:0],
        X[:0, 0],
        X[:0, 0],
        X[:0],
    )
    for max_memory in (0, 2**20):
        pool = CandidatePool(X, max_memory=max_memory)
        pool.update(posterior)
        assert_close(pool.mean, np.zeros(30))
        assert_close(pool.variance, np.full(30, oracles.OUTPUTSCALE), rtol=1e-12)
        for cls in (LazyUCB, EagerUCB, BlockUCB):
            ucb = cls(pool, 1.0, 0.1)
            for _ in range(3):  # nothing shrinks: the first of the ties, each time
                assert ucb.argmax() == 0
                variance = ucb.append(0)
                assert float(variance) == pytest.approx(oracles.OUTPUTSCALE)
        (squares,) = pool.squared_covariances(torch.tensor([3], device=X.device))
        K = oracles.DENSE["scaled"](X.cpu(), X.cpu()).numpy()
        assert_close(squares[0], K[:, 3] ** 2, rtol=1e-10)
        assert_close(squares[1], np.zeros(30))


def updates_of(
    pool: CandidatePool, count: int, seed: int, **tkwargs: Any
) -> list[NystromPosterior]:
    """Posteriors whose inducing sets overlap, as those of successive batches."""
    g = torch.Generator().manual_seed(seed)
    kernel, posteriors = oracles.make_kernel("scaled", **tkwargs), []
    for t in range(count):
        row = torch.randperm(40, generator=g)[: 10 + t].to(pool.X.device)
        X = pool.X[row]
        noise = torch.full((len(X),), 0.1, **tkwargs)
        posteriors.append(
            NystromPosterior.from_data(kernel, X, X.sin().sum(-1), noise, X[: 5 + t])
        )
    return posteriors


@pytest.mark.parametrize("capacity", [6, 14, 1000])
def test_history_does_not_change_the_bits(
    capacity: int, tkwargs: dict[str, Any]
) -> None:
    """A pool that has seen much and a fresh one agree to the bit: runs resume."""
    X = torch.rand(300, 2, generator=torch.Generator().manual_seed(0)).to(**tkwargs)
    # Half of the memory is for columns; features of all sizes fit in a quarter.
    max_memory = max(2 * capacity, 4 * 15) * len(X) * X.element_size()
    old = CandidatePool(X, max_memory=max_memory)
    for posterior in updates_of(old, 10, seed=1, **tkwargs):
        old.update(posterior)
        fresh = CandidatePool(X, max_memory=max_memory)
        fresh.update(posterior)
        assert old.in_memory and fresh.in_memory
        assert torch.equal(old.mean, fresh.mean)
        assert torch.equal(old.variance, fresh.variance)
        everything = slice(None)
        assert torch.equal(
            old.whitened_features(everything), fresh.whitened_features(everything)
        )
        expected = posterior.moments(X)
        tolerance = TOLERANCE[tkwargs["dtype"]]
        torch.testing.assert_close(old.mean, expected.mean, **tolerance)
        torch.testing.assert_close(old.variance, expected.variance, **tolerance)


def test_another_kernel_is_noticed(double: dict[str, Any]) -> None:
    """Kept kernel columns are never taken for those of other hyperparameters."""
    problem = make_problem(2, kernel="scaled", num_candidates=80)
    pool = problem.pool(**double)
    kernel = pool.posterior.covar_module
    kernel.base_kernel.lengthscale = 0.2  # in place
    moments = []
    for covar_module in (kernel, oracles.make_kernel("rbf", **double)):
        X, row = pool.X, problem.row.to(pool.X.device)
        posterior = NystromPosterior.from_data(
            covar_module,
            X[row],
            problem.Y.to(**double),
            problem.noise.to(**double),
            X[problem.inducing.to(X.device)],
        )
        pool.update(posterior)
        moments = posterior.moments(X)
        torch.testing.assert_close(pool.mean, moments.mean, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(
            pool.variance, moments.variance, rtol=1e-7, atol=1e-9
        )


def test_a_failed_update_leaves_the_pool(double: dict[str, Any]) -> None:
    problem = make_problem(4, num_candidates=60)
    pool = CandidatePool(problem.X.to(**double), chunk_size=25, max_memory=0)
    pool.update(problem.posterior(**double))
    posterior, mean, variance = pool.posterior, pool.mean, pool.variance
    values = mean.clone(), variance.clone()
    calls = []

    class Broken(NystromPosterior):
        def covariance_with_inducing(self, X: torch.Tensor) -> torch.Tensor:
            calls.append(len(X))
            if len(calls) == 2:
                raise RuntimeError("out of memory")
            return super().covariance_with_inducing(X)

    with pytest.raises(RuntimeError, match="out of memory"):
        pool.update(Broken(**vars(problem.posterior(**double))))
    assert calls == [25, 25]
    assert pool.posterior is posterior
    assert torch.equal(pool.mean, values[0]) and torch.equal(pool.variance, values[1])


@pytest.mark.parametrize(
    "X, error, match",
    [
        (torch.zeros(3), BotorchTensorDimensionError, r"shape \(3,\); need `A x d`"),
        (torch.zeros(0, 2), BotorchTensorDimensionError, r"shape \(0, 2\)"),
        (torch.zeros(3, 0), BotorchTensorDimensionError, r"shape \(3, 0\)"),
        (torch.zeros(2, 3, 1), BotorchTensorDimensionError, r"shape \(2, 3, 1\)"),
        (torch.zeros(3, 2, dtype=torch.long), InputDataError, "dtype torch.int64"),
        (torch.tensor([[0.0], [float("nan")]]), InputDataError, "with 1 entries"),
        (torch.tensor([[float("inf")]]), InputDataError, "not finite"),
    ],
)
def test_bad_candidates(X: torch.Tensor, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        CandidatePool(X)


def test_no_posterior_yet(double: dict[str, Any]) -> None:
    pool = CandidatePool(torch.rand(5, 1, **double))
    with pytest.raises(InputDataError, match=r"call update\(posterior\) first"):
        pool.ucb(1.0, 0.1)
    with pytest.raises(InputDataError, match="no posterior yet"):
        pool.whitened_features(slice(None))


def test_nothing_of_size_A_by_A(
    double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest kernel matrix of an update is a chunk by m, or one column."""
    problem = make_problem(6, num_candidates=400, num_inducing=10)
    kernel = type(problem.make_kernel(**double))
    sizes, forward = [], kernel.forward

    def spy(self: Any, x1: torch.Tensor, x2: torch.Tensor, **kwargs: Any) -> Any:
        if not kwargs.get("diag"):
            sizes.append(x1.shape[-2] * x2.shape[-2])
        return forward(self, x1, x2, **kwargs)

    posterior = problem.posterior(**double)
    pool = CandidatePool(problem.X.to(**double), chunk_size=64)
    monkeypatch.setattr(kernel, "forward", spy)
    pool.update(posterior)
    LazyUCB(pool, 1.0, problem.lam).argmax()
    assert sizes and max(sizes) <= max(400, 64 * 10)


@pytest.mark.parametrize("on_device", [False, True])
def test_ucb_takes_the_cheaper_path(
    on_device: bool, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem(6, num_candidates=40)
    monkeypatch.setattr(CandidatePool, "on_device", on_device)
    for cheaper, on_accelerator in [(True, EagerUCB), (False, BlockUCB)]:
        monkeypatch.setattr(
            candidate_pool_module, "eager_is_cheaper", lambda *_, c=cheaper: c
        )
        expected = on_accelerator if on_device else LazyUCB
        assert type(problem.pool(**double).ucb(1.0, 0.1)) is expected
        streamed = problem.pool(max_memory=0, **double)
        expected = BlockUCB if on_device else LazyUCB
        assert type(streamed.ucb(1.0, 0.1)) is expected
