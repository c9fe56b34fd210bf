"""Maximizers of sample paths: their frequencies are those of the dense posterior."""

from typing import Any

import numpy as np
import oracles
import pytest
import torch
from batch_oracles import HOST, Dense, Problem, make_problem
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean
from scipy.stats import chi2

from botorch_sparse.pools import sample_paths
from botorch_sparse.pools.path_maximizers import largest, path_maximizers
from botorch_sparse.pools.shard import ALL_ROWS, SelectableRows
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.factorization import factorize_inducing_covariance

# Features of the prior share their frequencies within a call: many calls of few paths.
CALLS, PATHS = 60, 50


def problem_of(kernel: str, seed: int = 9) -> Problem:
    """Forty candidates, of which several may be the best, and much noise."""
    problem = make_problem(seed, kernel=kernel, num_candidates=40, lam=2.0)
    problem.X = problem.X[:, :2]
    problem.row, problem.count = problem.row[:12], problem.count[:12]
    problem.Y, problem.inducing = problem.Y[:12], problem.row
    return problem


def maximizers(
    problem: Problem,
    num: int,
    selectable: SelectableRows = ALL_ROWS,
    seed: int = 0,
    chunk_size: int = 2048,
    **kwargs: Any,
) -> list[int]:
    """Maximizers of some paths of a problem's posterior."""
    tkwargs = kwargs or HOST
    X, posterior = problem.X.to(**tkwargs), problem.posterior(**tkwargs)
    with manual_seed(seed):
        return path_maximizers(X, [posterior], num, selectable, chunk_size=chunk_size)


def draws(problem: Problem, selectable: SelectableRows) -> list[int]:
    """Maximizers of the paths of many calls."""
    seeds = range(CALLS)
    calls = [maximizers(problem, PATHS, selectable, seed) for seed in seeds]
    return [candidate for chosen in calls for candidate in chosen]


def frequencies(argmax: Any, size: int) -> np.ndarray:
    return np.bincount(np.asarray(argmax), minlength=size)


def statistic(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, int]:
    """Chi-square of two samples, rare candidates together, and its degrees.

    Without the factor of the sizes where these are equal.
    """
    rare = ours + theirs < 20
    a, b = (np.append(n[~rare], n[rare].sum()) for n in (ours, theirs))
    kept = a + b > 0
    a, b = a[kept].astype(float), b[kept].astype(float)
    ratio = np.sqrt(b.sum() / a.sum())
    return float(((ratio * a - b / ratio) ** 2 / (a + b)).sum()), len(a) - 1


@pytest.mark.one_in(6)
@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "scaled"])
@pytest.mark.parametrize(
    "excluded",
    [[], pytest.param([3, 17], marks=pytest.mark.slow)],
    ids=["all", "excluded"],
)
def test_frequencies_of_the_maximizers(kernel: str, excluded: list[int]) -> None:
    """Those of 200,000 draws from the dense posterior of the Nystrom approximation.

    A correct sampler fails with a probability of 1e-6. What is shared by the paths of a
    call, the frequencies of its features, is far below that of 3,000 draws.
    """
    problem = problem_of(kernel)
    dense = Dense(problem)
    # residual part of the prior with all its covariances, not the diagonal alone
    values = np.random.default_rng(0).multivariate_normal(
        dense.mean, covariance(problem), 200_000, method="eigh"
    )
    values[:, excluded] = -np.inf
    theirs = frequencies(values.argmax(-1), 40)
    selectable = SelectableRows(torch.tensor(excluded)) if excluded else ALL_ROWS
    ours = frequencies(draws(problem, selectable), 40)
    assert ours.sum() == CALLS * PATHS and not ours[excluded].any()
    assert theirs.max() < 0.3 * theirs.sum()  # it is not decided already
    value, degrees = statistic(ours, theirs)
    assert value < chi2.isf(1e-6, degrees)


def covariance(problem: Problem) -> np.ndarray:
    """All covariances of the posterior, `K - Q + w w'`."""
    k, X, S = oracles.DENSE[problem.kernel], problem.X, problem.X[problem.inducing]
    Q = oracles.nystrom_kernel(k, S)(X, X)
    embedded = torch.from_numpy(Dense(problem).embedded)
    return (k(X, X) - Q + embedded).numpy()


@pytest.mark.parametrize("kernel", ["rbf", "matern52", "scaled", "product"])
def test_each_path_at_its_own_point(kernel: str) -> None:
    """As at all points, with the gradient that differences have, and some of them."""
    problem = problem_of(kernel)
    with manual_seed(0):
        paths = sample_paths.SamplePaths.draw(problem.posterior(**HOST), 5, 64, 0.0)
    X = problem.X[:5].clone()
    torch.testing.assert_close(paths.at_own_points(X), paths(X).diagonal())
    assert torch.autograd.gradcheck(paths.at_own_points, (X + 0.01).requires_grad_())
    few = torch.tensor([3, 1])
    some = paths.subset(few)
    torch.testing.assert_close(some(X), paths(X)[few])
    torch.testing.assert_close(some.at_own_points(X[few]), some(X[few]).diagonal())


def test_nearly_singular_inducing_points() -> None:
    """Float32 at the inducing points would be magnified to half of a deviation."""
    X = torch.rand(60, 2, generator=torch.Generator().manual_seed(7)).double()
    kernel = RBFKernel().double().requires_grad_(False)
    noise = torch.full((60,), 1e-6, **HOST)
    posterior = NystromPosterior.from_data(kernel, X, X.sin().sum(-1), noise, X)
    assert float(posterior.chol_inducing.diagonal().min()) < 1e-6
    values = []
    for is_exact in (True, False):
        with manual_seed(3), pytest.MonkeyPatch.context() as patch:
            if is_exact:  # all in float64
                patch.setattr(torch.Tensor, "float", torch.Tensor.double)
                patch.setattr(torch.nn.Module, "float", torch.nn.Module.double)
            values.append(sample_paths.SamplePaths.draw(posterior, 50, 1024)(X))
    error = (values[0] - values[1]).abs() / posterior.variance(X).sqrt()
    assert 0 < float(error.max()) < 0.02


def test_the_bound_is_not_idle() -> None:
    """A posterior with half of its deviation is told apart from this one."""
    problem = problem_of("scaled")
    g, dense = np.random.default_rng(0), Dense(problem)
    cov = covariance(problem)
    theirs, ours = (
        frequencies(g.multivariate_normal(dense.mean, scale * cov, size).argmax(-1), 40)
        for scale, size in ((1.0, 200_000), (0.25, 3_000))
    )
    value, degrees = statistic(ours, theirs)
    assert value > 2 * chi2.isf(1e-6, degrees)


def test_once() -> None:
    """No candidate twice, none of the excluded, all of the others in the end."""
    problem = problem_of("matern32")
    selectable = SelectableRows(torch.arange(30), once=True)
    chosen = maximizers(problem, 8, selectable)
    assert len(set(chosen)) == len(chosen) == 8 and min(chosen) >= 30
    assert sorted(maximizers(problem, 25, selectable)) == list(range(30, 40))
    assert maximizers(problem, 8, selectable) == chosen


def test_once_takes_the_best_of_what_is_left() -> None:
    """The first of each path that no earlier path has."""
    problem = problem_of("matern32")
    free = maximizers(problem, 30, seed=1)
    once = maximizers(problem, 30, SelectableRows(once=True), seed=1)
    assert len(set(free)) < 30
    taken: list[int] = []
    for candidate, chosen in zip(free, once, strict=True):
        assert chosen not in taken
        assert (chosen == candidate) is (candidate not in taken)
        taken.append(chosen)


@pytest.mark.parametrize("once", [False, True])
def test_pieces_of_a_table(once: bool) -> None:
    """The same choices as from all candidates at once, first and last of a piece."""
    problem, selectable = problem_of("scaled"), SelectableRows(once=once)
    choices = [
        maximizers(problem, 30, selectable, chunk_size=size)
        for size in (1024, 1, 7, 39, 40)
    ]
    assert all(chosen == choices[0] for chosen in choices)
    assert len(set(choices[0])) > 3


def test_devices_draw_alike(double: dict[str, Any]) -> None:
    """Randomness is the host's, whose generator alone is used."""
    problem = problem_of("scaled")
    # The host factorizes with pivots, an accelerator without: in that order alike.
    S = problem.X[problem.inducing]
    K_SS = oracles.DENSE["scaled"](S, S)
    problem.inducing = problem.inducing[factorize_inducing_covariance(K_SS)[1]]
    chosen = []
    for tkwargs in (HOST, double):
        excluded = torch.arange(5, device=tkwargs["device"])
        selectable = SelectableRows(excluded, once=True)
        chosen.append(maximizers(problem, 30, selectable, seed=4, **tkwargs))
    assert chosen[0] == chosen[1]


def test_dtypes() -> None:
    """Whatever torch's own is, and that of the candidates."""
    problem = problem_of("scaled")
    expected = maximizers(problem, 30)
    torch.set_default_dtype(torch.float64)
    try:
        assert maximizers(problem, 30) == expected
    finally:
        torch.set_default_dtype(torch.float32)
    single = {"dtype": torch.float32, "device": torch.device("cpu")}
    assert len(maximizers(problem, 30, **single)) == 30


def test_points_far_from_zero() -> None:
    """A shift of all points, exact in float64, leaves the choices as they are."""
    problem, chosen = problem_of("matern32"), []
    problem.X = (problem.X * 2**20).round() / 2**20
    for shift in (0.0, 2.0**24):  # where float32 holds whole numbers
        problem.X = problem.X + shift
        chosen.append(maximizers(problem, 30))
    assert chosen[0] == chosen[1]


def test_a_prior_mean_counts() -> None:
    """A constant is added to all paths alike; another mean decides."""
    problem = problem_of("matern32")
    X, Y, noise, S = *problem.data, problem.X[problem.inducing]

    class Peak(ConstantMean):
        def forward(self, X: torch.Tensor) -> torch.Tensor:
            return 1e3 * (X == problem.X[17]).all(-1).to(X)

    kernel, chosen = problem.make_kernel(**HOST), []
    for mean, offset in ((None, 0.0), (ConstantMean().double(), 8.0), (Peak(), 0.0)):
        if offset:
            mean.initialize(constant=offset)
        posterior = NystromPosterior.from_data(
            kernel, X, Y + offset, noise, S, mean_module=mean
        )
        with manual_seed(0):
            chosen.append(path_maximizers(problem.X, [posterior], 20))
    assert chosen[0] == chosen[1]
    assert set(chosen[2]) == {17}


@pytest.mark.parametrize(
    "kernel, seen",
    [
        (ScaleKernel(RBFKernel(ard_num_dims=2, active_dims=[0, 2])), [0, 2]),
        (RBFKernel(ard_num_dims=2, active_dims=[0, 2]), [0, 2]),
        (ScaleKernel(MaternKernel(nu=1.5), active_dims=[1]), [1]),
    ],
)
def test_active_dimensions(kernel: Any, seen: list[int]) -> None:
    """A column that the kernel does not see changes no path."""
    X = torch.rand(50, 3, generator=torch.Generator().manual_seed(0)).double()
    kernel = kernel.double().requires_grad_(False)
    chosen = []
    for factor in (1.0, 4.0):
        Z = X.clone()
        unseen = [i for i in range(3) if i not in seen]
        Z[:, unseen] *= factor
        noise = torch.full((6,), 0.1, **HOST)
        data = Z[:6], X[:6, 0], noise
        posterior = NystromPosterior.from_data(kernel, *data, Z[:6])
        with manual_seed(0):
            chosen.append(path_maximizers(Z, [posterior], 20))
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(
    "kernel",
    [
        RBFKernel(),
        RBFKernel(ard_num_dims=1, active_dims=[1]),
        ScaleKernel(MaternKernel(nu=1.5)),
        ScaleKernel(MaternKernel(nu=2.5, active_dims=[0, 1]), active_dims=[0, 1]),
    ],
)
@pytest.mark.parametrize("offset", [0.0, 40.0])
def test_rounding_of_float32_covariances(kernel: Any, offset: float) -> None:
    """Within its bound, and not for nothing; float64 where that is too large."""
    X = offset + torch.rand(400, 2, generator=torch.Generator().manual_seed(1)).double()
    kernel = kernel.double().requires_grad_(False)
    noise = torch.full((400,), 1e-3, **HOST)
    posterior = NystromPosterior.from_data(kernel, X, X.sin().sum(-1), noise, X[:60])
    values = []
    for tolerance in (0.0, torch.inf):
        with manual_seed(3):
            paths = sample_paths.SamplePaths.draw(posterior, 20, 512, tolerance)
        is_exact = tolerance == 0.0
        assert paths.beta.dtype == (torch.float64 if is_exact else torch.float32)
        values.append(paths(X))
        if is_exact:
            bound = sample_paths.rounding(kernel, paths.points, paths.beta)
    error = float((values[0] - values[1]).abs().max())
    scale = float(kernel(X[:1], diag=True).sqrt())
    # what is rounded in adding up is another rounding of the largest value
    slack = 1e-6 * float(values[0].abs().max())
    assert 1e-4 * bound < error / scale < bound + slack


def test_paths_without_rounding_go_through_the_data() -> None:
    """Of data without noise; float32 features and covariances miss them."""
    X = torch.rand(60, 2, generator=torch.Generator().manual_seed(1)).double()
    kernel = MaternKernel(nu=2.5).double().requires_grad_(False)
    noise = torch.full((60,), 1e-12, **HOST)
    posterior = NystromPosterior.from_data(kernel, X, X.sin().sum(-1), noise, X)
    errors = []
    for tolerance in (0.0, torch.inf):
        with manual_seed(3):
            paths = sample_paths.SamplePaths.draw(posterior, 20, 512, tolerance)
        errors.append(float((paths(X) - X.sin().sum(-1)).abs().max()))
    assert errors[0] < 1e-5  # ten standard deviations of the noise
    assert errors[1] > 5 * errors[0]


def test_the_exponential_kernel_stays_in_float64() -> None:
    """Its slope at zero has no bound."""
    posterior = problem_of("matern12").posterior(**HOST)
    assert sample_paths.SamplePaths.draw(posterior, 3, 64).beta.dtype == torch.float64


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_the_first_of_equal_values_is_taken(depth: int) -> None:
    low = -torch.inf
    values = torch.tensor([[1.0] * 40, [0.0, 2.0, low, 2.0] * 10, [low] * 39 + [1.0]])
    best, order = largest(values, depth)
    assert order[0].tolist() == [*range(depth)]
    assert order[1].tolist() == [1, 3, 5, 7, 9][:depth]
    assert order[2, 0] == 39 and torch.equal(best, values.gather(-1, order))
