"""Paths of kernels without random features, against dense joint draws."""

import warnings

import numpy as np
import pytest
import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.kernels import CategoricalKernel
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)
from scipy.stats import chi2
from torch import Tensor

from botorch_sparse.kernels import TanimotoKernel
from botorch_sparse.pools import path_maximizers as search
from botorch_sparse.pools.path_maximizers import Price, path_maximizers
from botorch_sparse.pools.sample_paths import NUM_DEVIATIONS, SamplePaths
from botorch_sparse.pools.shard import ALL_ROWS, SelectableRows
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies import BBKB, BKB, GPUCB, SBPE, ThompsonSampling

NUM = 40  # candidates
DRAWS = 3_000


def wide_kernel() -> Kernel:
    """Of the exponential kind, as wide as the table."""
    kernel = MaternKernel(nu=0.5)
    kernel.lengthscale = 10.0
    return kernel


KERNELS = {
    "tanimoto": TanimotoKernel,
    "blocks": lambda: ScaleKernel(TanimotoKernel((3, 5))),
    "linear": LinearKernel,
    "polynomial": lambda: PolynomialKernel(2),
    "sum": lambda: RBFKernel() + ScaleKernel(MaternKernel(nu=0.5)),
    "product": lambda: wide_kernel() * TanimotoKernel(),
    "categories": lambda: ScaleKernel(CategoricalKernel()),
}


def posterior_of(
    name: str, num: int = NUM, inducing: int = 6, seed: int = 0
) -> tuple[Tensor, NystromPosterior]:
    """Candidates of counts, and a posterior of noisy values at twelve of them."""
    g = torch.Generator().manual_seed(seed)
    bits = torch.rand(num, 8, generator=g) < 0.5
    X = (bits * torch.randint(1, 4, (num, 8), generator=g)).double()
    Y = X.sum(-1)[:12].sin()
    kernel = KERNELS[name]().double().requires_grad_(False)
    noise = torch.full((12,), 0.5).double()
    return X, NystromPosterior.from_data(kernel, X[:12], Y, noise, X[:inducing])


def dense_moments(X: Tensor, posterior: NystromPosterior) -> tuple[Tensor, Tensor]:
    """Mean and all covariances of the posterior of the Nystrom approximation.

    By inverses, from the kernel matrices alone: the residual's, and what the data make
    of the inducing points.
    """
    kernel, S = posterior.covar_module, posterior.inducing_points
    K, K_xs, K_ss = (kernel(a, b).to_dense() for a, b in ((X, X), (X, S), (S, S)))
    K_ns, Y = K_xs[:12], X[:12].sum(-1).sin()
    inner = torch.linalg.inv(K_ss + K_ns.mT @ K_ns / 0.5)
    residual = K - K_xs @ torch.linalg.pinv(K_ss, hermitian=True) @ K_xs.mT
    return K_xs @ inner @ K_ns.mT @ Y / 0.5, residual + K_xs @ inner @ K_xs.mT


def dense_frequencies(mean: Tensor, covariance: Tensor) -> np.ndarray:
    """How often each row is the largest, in 200,000 joint draws."""
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp_min(0.0).sqrt()
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(200_000, len(mean), generator=g).double()
    rows = (mean + noise @ root.mT).argmax(-1)
    return np.bincount(rows.numpy(), minlength=len(mean))


def choices(
    name: str, num_paths: int, selectable: SelectableRows = ALL_ROWS, seed: int = 0
) -> list[int]:
    X, posterior = posterior_of(name)
    with manual_seed(seed):
        return path_maximizers(X, [posterior], num_paths, selectable)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", KERNELS)
def test_frequencies_of_the_maximizers(name: str) -> None:
    """Those of 200,000 dense draws; a right sampler fails with a chance of 1e-6."""
    X, posterior = posterior_of(name)
    theirs = dense_frequencies(*dense_moments(X, posterior))
    ours = np.bincount(choices(name, DRAWS), minlength=NUM)
    assert theirs.max() < 0.7 * theirs.sum() and ours.sum() == DRAWS
    assert chi_square(ours, theirs) < 1.0


def chi_square(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Of two samples, in units of what one in a million exceeds."""
    rare = ours / ours.sum() + theirs / theirs.sum() < 0.01
    a, b = (np.append(n[~rare], n[rare].sum()) for n in (ours, theirs))
    ratio = np.sqrt(b.sum() / a.sum())
    kept = a + b > 0
    terms = (ratio * a - b / ratio)[kept] ** 2 / (a + b)[kept]
    return float(terms.sum() / chi2.isf(1e-6, kept.sum() - 1))


@pytest.mark.parametrize("name", KERNELS)
def test_means_variances_and_covariances(name: str) -> None:
    """Those of the dense posterior: within six standard errors of an estimate."""
    X, posterior = posterior_of(name)
    mean, covariance = dense_moments(X, posterior)
    size, points = 4_000, X[10:18]
    with manual_seed(0):
        paths = SamplePaths.draw(posterior, size, 512)
    F = paths.joint(points, torch.arange(size))
    mean, covariance = mean[10:18], covariance[10:18, 10:18]
    variance = covariance.diagonal()
    error = (F.mean(0) - mean).abs() / (variance / size).sqrt()
    assert error.max() < 6.0
    # Var(x y) of normal numbers is v_x v_y + c^2.
    spread = (variance.outer(variance) + covariance.square()) / size
    assert ((F.mT.cov() - covariance).abs() < 6.0 * spread.sqrt()).all()
    lower, upper = paths.bounds(points)
    residual = NUM_DEVIATIONS * (F - paths(points)).std(0)
    torch.testing.assert_close((upper - lower)[0] / 2, residual, rtol=0.1, atol=1e-6)


def test_a_residual_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of frequencies is not idle."""
    X, posterior = posterior_of("tanimoto")
    theirs = dense_frequencies(*dense_moments(X, posterior))
    monkeypatch.setattr(SamplePaths, "joint", lambda self, Z, b: self(Z)[b])
    ours = np.bincount(choices("tanimoto", DRAWS), minlength=NUM)
    assert chi_square(ours, theirs) > 2.0


def test_few_contenders_do_where_the_residual_is_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most rows are inducing points: ten contenders of forty have the maximizer."""
    X, posterior = posterior_of("tanimoto", inducing=12)
    known = posterior.features(X).square().sum(-1) > 0.6
    table, (mean, covariance) = X[known], dense_moments(X, posterior)
    theirs = dense_frequencies(mean[known], covariance[known][:, known])
    monkeypatch.setattr(search, "NUM_CONTENDERS", len(table) // 2)
    with manual_seed(0):
        chosen = path_maximizers(table, [posterior], DRAWS)
    assert len(table) > 12
    assert chi_square(np.bincount(chosen, minlength=len(table)), theirs) < 1.0


def test_contenders_have_the_largest_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    X, posterior = posterior_of("tanimoto")
    monkeypatch.setattr(search, "NUM_CONTENDERS", 5)
    monkeypatch.setattr(search, "MOST_JOINT", 0)  # each path by itself
    with manual_seed(0):
        paths = SamplePaths.draw(posterior, 30, 512)
    monkeypatch.setattr(SamplePaths, "draw", lambda *_, **__: paths)
    upper = paths.bounds(X)[1].topk(5).indices.tolist()
    chosen = path_maximizers(X, [posterior], 30)
    assert all(row in best for row, best in zip(chosen, upper, strict=True))
    assert len(set(chosen)) > 5


@pytest.mark.parametrize("most", [5, 2048])
def test_few_contenders_of_all_paths_are_drawn_together(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All paths at all of them, by one factor; of more, each path at its own."""
    X, posterior = posterior_of("tanimoto")
    monkeypatch.setattr(search, "NUM_CONTENDERS", 5)
    monkeypatch.setattr(search, "MOST_JOINT", most)
    with manual_seed(0):
        paths = SamplePaths.draw(posterior, 30, 512)
    monkeypatch.setattr(SamplePaths, "draw", lambda *_, **__: paths)
    upper = paths.bounds(X)[1].topk(5).indices
    calls, joint = list[tuple[int, int]](), SamplePaths.joint

    def counted(self: SamplePaths, Z: Tensor, numbers: Tensor) -> Tensor:
        calls.append((len(Z), len(numbers)))
        return joint(self, Z, numbers)

    monkeypatch.setattr(SamplePaths, "joint", counted)
    chosen = path_maximizers(X, [posterior], 30)
    every = upper.unique()
    assert 5 < len(every) < NUM
    if most == 5:
        assert {num for num, _ in calls} == {5} and sum(b for _, b in calls) == 30
        return
    assert calls == [(len(every), 30)]
    values = joint(paths, X[every], torch.arange(30))
    assert chosen == every[values.argmax(-1)].tolist()


@pytest.mark.parametrize("once", [False, True])
def test_pieces_of_a_table_and_excluded_rows(once: bool) -> None:
    """The same choices as from all candidates at once."""
    X, posterior = posterior_of("blocks", num=60)
    selectable = SelectableRows(torch.tensor([0, 7, 59]), once)
    chosen = []
    for size in (2048, 7, 59):
        with manual_seed(0):
            rows = path_maximizers(X, [posterior], 57, selectable, chunk_size=size)
        chosen.append(rows)
    assert chosen[0] == chosen[1] == chosen[2]
    assert not {0, 7, 59} & {*chosen[0]}
    assert (sorted(chosen[0]) == sorted({*range(1, 59)} - {7})) is once


def test_equal_rows_have_equal_values() -> None:
    """A singular residual: two copies of a table are drawn as one."""
    X, posterior = posterior_of("tanimoto")
    with manual_seed(0):
        paths = SamplePaths.draw(posterior, 3, 512)
    values = paths.joint(torch.cat([X, X]), torch.tensor([1])).squeeze(0)
    # What is added to the diagonal is 1e-10 of the variance, ten times more often.
    torch.testing.assert_close(values[:NUM], values[NUM:], rtol=0, atol=1e-3)
    assert values[:NUM].std() > 0.1


def test_paths_without_spread_are_the_mean() -> None:
    X, posterior = posterior_of("sum")
    mean, _ = dense_moments(X, posterior)
    with manual_seed(0):
        chosen = path_maximizers(X, [posterior], 5, spread=torch.zeros(5))
    assert set(chosen) == {int(mean.argmax())}


def test_levels_of_two_outcomes() -> None:
    """What is feasible by a loose limit is best by the other outcome's mean."""
    X, first = posterior_of("tanimoto")
    _, second = posterior_of("linear")
    mean, limit = dense_moments(X, first)[0], dense_moments(X, second)[0]

    def levels(lower: list[Tensor], upper: list[Tensor]) -> list[Tensor]:
        assert all((a <= b).all() for a, b in zip(lower, upper, strict=True))
        inside = upper[1] > 0
        return [
            upper[0].where(inside, -torch.inf),
            upper[1].where(~inside, -torch.inf),
        ]

    with manual_seed(0):
        still = torch.zeros(4)
        chosen = path_maximizers(X, [first, second], 4, levels=levels, spread=still)
    assert set(chosen) == {int(mean.where(limit > 0, -torch.inf).argmax())}


def test_a_pair_of_kernels_of_both_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of features beside one with a residual, each with its own candidates."""
    X, first = posterior_of("tanimoto")
    kernel = RBFKernel().double().requires_grad_(False)
    data = X[:12], X[:12].sum(-1).sin(), torch.full((12,), 0.5).double()
    second = NystromPosterior.from_data(kernel, *data, X[:6])
    monkeypatch.setattr(search, "NUM_CONTENDERS", 5)
    seen = list[list[Tensor]]()

    def levels(lower: list[Tensor], upper: list[Tensor]) -> list[Tensor]:
        seen.append([(b - a).abs().max() for a, b in zip(lower, upper, strict=True)])
        return [upper[0] + upper[1]]

    with manual_seed(0):
        chosen = path_maximizers(X, [first, second], 30, levels=levels)
    assert len(set(chosen)) > 5
    assert any(widths[0] > 0 for widths in seen)
    assert all(widths[1] == 0 for widths in seen)


@pytest.mark.parametrize("is_priced", [False, True])
def test_each_outcome_may_have_inputs_of_its_own(is_priced: bool) -> None:
    """Features in another order are the same to a Tanimoto kernel."""
    X, first = posterior_of("tanimoto")
    _, second = posterior_of("tanimoto", inducing=9)
    kernel, noise = second.covar_module, torch.full((12,), 0.5).double()
    mirrored = NystromPosterior.from_data(
        kernel, X[:12].flip(-1), X[:12].sum(-1).sin(), noise, X[:9].flip(-1)
    )
    costs = torch.linspace(1, 3, NUM).double()
    known = X[20:24]
    alike = Price(costs, known) if is_priced else None
    apart = Price(costs, [known, known.flip(-1)]) if is_priced else None

    def levels(lower: list[Tensor], upper: list[Tensor]) -> list[Tensor]:
        return [upper[0] + upper[1]]

    with manual_seed(0):
        chosen = path_maximizers(X, [first, second], 30, levels=levels, price=alike)
    with manual_seed(0):
        tables = [X, X.flip(-1)]
        assert chosen == path_maximizers(
            tables, [first, mirrored], 30, levels=levels, price=apart
        )
    assert len(set(chosen)) > 5


def test_prices_compare_with_what_is_attained_on_the_same_path() -> None:
    """The rule of costs on the very draws of each path, residuals included."""
    X, posterior = posterior_of("tanimoto")
    price = torch.ones(NUM).double()
    price[::2] = 3.0
    measured = X[:12]
    with manual_seed(0):
        chosen = path_maximizers(X, [posterior], 100, price=Price(price, measured))
    with manual_seed(0):
        paths = SamplePaths.draw(posterior, 100, 512)
    f = paths.joint(torch.cat([X, measured]), torch.arange(100))
    attained = f[:, NUM:].amax(-1, keepdim=True)
    gain = f[:, :NUM] - attained
    worth = torch.where(gain > 0, gain / price, gain * price)
    assert chosen == worth.argmax(-1).tolist()


def test_of_many_measured_points_those_that_may_attain_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Paths are drawn there, so that a path's gain counts from its own best of them."""
    X, posterior = posterior_of("tanimoto")
    monkeypatch.setattr(search, "NUM_CONTENDERS", 5)
    measured = X[:12]
    with manual_seed(0):
        paths = SamplePaths.draw(posterior, 30, 512)
    monkeypatch.setattr(SamplePaths, "draw", lambda *_, **__: paths)
    seen, joint = list[Tensor](), SamplePaths.joint

    def noted(self: SamplePaths, Z: Tensor, numbers: Tensor) -> Tensor:
        seen.append(Z[-5:])
        return joint(self, Z, numbers)

    monkeypatch.setattr(SamplePaths, "joint", noted)
    path_maximizers(X, [posterior], 30, price=Price(torch.ones(NUM).double(), measured))
    most = paths.bounds(measured)[1].amax(0).argsort(descending=True)[:5]
    assert all(torch.equal(Z, measured[most]) for Z in seen) and seen


def test_a_kernel_without_variance_at_a_point() -> None:
    """A linear kernel is zero at the origin, and so are its paths."""
    X = torch.zeros(3, 2).double()
    noise = torch.full((3,), 0.5).double()
    kernel = LinearKernel().double().requires_grad_(False)
    posterior = NystromPosterior.from_data(kernel, X + 1, noise, noise, X[:1] + 1)
    with manual_seed(0):
        assert path_maximizers(X, [posterior], 4) == [0] * 4


def test_prices_count() -> None:
    """Rows that cost a million times as much are left, whatever they gain."""
    X, posterior = posterior_of("tanimoto")
    price = torch.ones(NUM).double()
    price[20:] = 1e6
    with manual_seed(0):
        free = path_maximizers(X, [posterior], 200)
    with manual_seed(0):
        chosen = path_maximizers(X, [posterior], 200, price=Price(price, X[:3]))
    dear = [sum(row >= 20 for row in rows) for rows in (free, chosen)]
    assert dear[1] < dear[0] / 2


STRATEGIES = {
    "bbkb": lambda X, kernel: BBKB(X, kernel, 0.01, seed=0),
    "bkb": lambda X, kernel: BKB(X, kernel, 0.01, seed=0),
    "gpucb": lambda X, kernel: GPUCB(X, kernel, 0.01, seed=0),
    "sbpe": lambda X, kernel: SBPE(X, kernel, 120, 0.01, seed=0),
    "thompson": lambda X, kernel: ThompsonSampling(
        X, kernel, 0.01, batch_size=5, seed=0
    ),
}


@pytest.mark.one_in(10)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["tanimoto", "blocks", "product", "categories"])
def test_strategies_take_any_kernel(strategy: str, name: str) -> None:
    """They find one of the best five of two hundred rows."""
    X, _ = posterior_of(name, num=200)
    kernel = KERNELS[name]().double().requires_grad_(False)
    learner = STRATEGIES[strategy](X, kernel)
    budget = 60 if strategy != "sbpe" else 120  # it explores first

    def objective(Z: Tensor) -> Tensor:
        return kernel(Z, X[17:18]).to_dense().squeeze(-1)

    with warnings.catch_warnings():  # of what varies less than the kernel expects
        warnings.simplefilter("ignore", InputDataWarning)
        learner.run(objective, budget, progress=False)
    assert learner.history.best().value >= objective(X).topk(5).values[-1]
