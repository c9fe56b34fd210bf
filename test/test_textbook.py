"""The strategies choose what docs/explanation/textbook.py chooses, on small tables.

That file is dense NumPy without the package. It calls `observe` where it has chosen:
the strategy is asked at that moment and has to propose the same rows. Its draws are the
strategy's: the same numbers of the same generator.

Rounding decides nothing. All choices of the textbook pass through `argmax` and `keep`
there, and through `bernoulli` and `bound` here. Each of them asserts that the
runner-up, or the threshold, is farther away than `MARGIN`, relative to the numbers
compared. The two sides' posteriors differ by less than 1e-9 in `test_posterior`.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import log, sqrt
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel
from gpytorch.means import ZeroMean

from botorch_sparse.acquisition import (
    BBKBRadius,
    BKBRadius,
    FixedBeta,
    LocalRatioBound,
    RadiusStatistics,
    SBPERadius,
)
from botorch_sparse.inducing import (
    RecursiveRLSSampler,
    exact_gradients,
    select_by_gradient_diversity,
)
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    GSSBO,
    SBPE,
    Strategy,
)

PATH = Path(__file__).parents[1] / "docs" / "explanation" / "textbook.py"
MARGIN = 1e-7
LENGTHSCALE, SLOPE = 0.8, 0.3
A, LAM, XI, F, DELTA, T = 50, 0.2, 0.1, 5.0, 0.1, 60
Q_BAR = 1.5
C_K = 0.3  # S-BPE, whose radius is wide, would rule out nothing with F
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def _load(path: Path) -> ModuleType:
    """The textbook, which is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


textbook = _load(PATH)


def make_kernel(lengthscale: float = LENGTHSCALE) -> Kernel:
    """Matern-5/2 and linear: variances differ, so that no two rows tie."""
    kernel = (LinearKernel() + MaternKernel()).double().requires_grad_(False)
    linear, matern = kernel.kernels
    linear.variance = torch.tensor(SLOPE, dtype=torch.float64)
    matern.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel


def kernel_matrix(X: np.ndarray, lengthscale: float = LENGTHSCALE) -> np.ndarray:
    """The same without GPyTorch."""
    r = sqrt(5) * np.sqrt(((X[:, None] - X) ** 2).sum(-1)) / lengthscale
    return (1 + r + r * r / 3) * np.exp(-r) + SLOPE * X @ X.T


@dataclass
class Table:
    """Candidates, their kernel matrix, and feedback that differs each time."""

    seed: int
    num: int = A
    lengthscale: float = LENGTHSCALE
    lam: float = LAM

    def __post_init__(self) -> None:
        self.noise = np.random.default_rng(self.seed)
        X = self.noise.random((self.num, 2))
        self.X, self.K = torch.from_numpy(X), kernel_matrix(X, self.lengthscale)
        self.f = np.sin(5 * X[:, 0]) * np.cos(3 * X[:, 1])

    def feedback(self, rows: list[int]) -> list[float]:
        noise = XI * self.noise.standard_normal(len(rows))
        return (self.f[rows] + noise).tolist()

    def common(self) -> dict[str, Any]:
        """Arguments of all strategies on tables."""
        kernel = make_kernel(self.lengthscale)
        both = {"covar_module": kernel, "lam": self.lam}
        return {"candidates": self.X, "seed": self.seed} | both

    def ucb(self, **others: Any) -> dict[str, Any]:
        """Those of the ones with a confidence bound."""
        claims = {"norm_bound": F, "noise_variance": XI**2, "delta": DELTA}
        zero = {"mean_module": ZeroMean()}
        return self.common() | claims | zero | others

    def in_step(self, strategy: Any, total: int = T) -> Any:
        """An `observe` that asks a strategy for the same rows, and tells it."""

        def observe(rows: list[int]) -> list[float]:
            batch = strategy.ask(total - len(strategy.history))
            assert batch.indices.tolist() == rows
            values = self.feedback(rows)
            strategy.tell(batch, torch.tensor(values, dtype=torch.float64))
            return values

        return observe


def assert_apart(a: Any, b: Any, scale: float = 1.0) -> None:
    """That rounding does not decide which of two numbers is the larger one."""
    assert np.all(np.abs(np.asarray(a) - b) > MARGIN * scale)


@pytest.fixture(autouse=True)
def margins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every choice of the textbook asserts that it is no close one."""
    argmax, keep = textbook.argmax, textbook.keep

    def clear_argmax(values: np.ndarray) -> int:
        finite = np.sort(values[np.isfinite(values)])
        if len(finite) > 1:
            assert_apart(finite[-1], finite[-2], np.abs(finite).max())
        return argmax(values)

    def clear_keep(upper: np.ndarray, lower: np.ndarray, left: list[int]) -> Any:
        assert_apart(upper[left], lower[left].max(), np.abs(upper).max())
        return keep(upper, lower, left)

    monkeypatch.setattr(textbook, "argmax", clear_argmax)
    monkeypatch.setattr(textbook, "keep", clear_keep)
    yield


def draws(seed: int, q_bar: float = Q_BAR, skipped: int = 0) -> tuple[int, Any]:
    """The first row, and inducing points, as a strategy of that seed draws them."""
    generator = torch.Generator().manual_seed(seed)
    x_1 = int(torch.randint(A, (1,), generator=generator))
    torch.rand(skipped, generator=generator, dtype=torch.float64)

    def bernoulli(p: np.ndarray) -> np.ndarray:
        u = torch.rand(len(p), generator=generator, dtype=torch.float64).numpy()
        assert_apart(u, p)
        return u < p

    return x_1, partial(textbook.resample, q_bar=q_bar, bernoulli=bernoulli)


close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)


def evaluated(X: list[int]) -> list[int]:
    """All evaluated rows as inducing points."""
    return list(dict.fromkeys(X))


def all_candidates(X: list[int], variance: np.ndarray) -> list[int]:
    """The whole table as inducing points."""
    return list(range(A))


def clear_bound(name: str, C: float) -> Any:
    """A bound of the textbook that is never close to the threshold."""

    def bound(*arguments: Any) -> float:
        value: float = getattr(textbook, name)(*arguments)
        assert_apart(value, C)
        return value

    return bound


# --- The posterior --------------------------------------------------------------------


def sparse_model(table: Table, X: list[int], y: np.ndarray, S: list[int]) -> Any:
    """The library's model of some evaluations, with given inducing points."""
    return SparseSingleTaskGP(
        table.X[X],
        torch.from_numpy(y).unsqueeze(-1),
        torch.full((len(X), 1), LAM, dtype=torch.float64),
        covar_module=make_kernel(),
        mean_module=ZeroMean(),
        outcome_transform=None,
        inducing_points=table.X[S],
    ).eval()


def test_posterior() -> None:
    """Eqs. 1 and 2 are the model's, and with all points inducing those of the exact GP.

    Differences are far below `MARGIN`.
    """
    table, X, S = Table(0), [3, 8, 3, 20, 41, 8, 33, 12], [3, 20, 12]
    y = np.array(table.feedback(X))
    with torch.no_grad():
        posterior = sparse_model(table, X, y, S)(table.X)
    mean = textbook.nystrom_mean(table.K, S, X, y, LAM)
    covariance, _ = textbook.nystrom_covariance(table.K, S, X, LAM)
    close(posterior.mean.numpy(), mean)
    close(posterior.covariance_matrix.numpy(), LAM * covariance)

    mean, covariance = textbook.exact(table.K, X, y, LAM)
    close(textbook.nystrom_mean(table.K, evaluated(X), X, y, LAM), mean)
    all_inducing, embedded = textbook.nystrom_covariance(table.K, evaluated(X), X, LAM)
    close(LAM * all_inducing, covariance)
    close(embedded[np.ix_(X, X)], all_inducing[np.ix_(X, X)])  # no residual there


# --- BKB and its exact limit ----------------------------------------------------------


def practical_bkb(u: np.ndarray) -> float:
    """The smaller radius of the authors' experiments, the default of `BKB`."""
    return XI * sqrt(log(len(u)) * u.sum() + log(1 / DELTA)) + sqrt(LAM) * F


def theorem_bkb(table: Table) -> tuple[Any, BKBRadius]:
    """Theorem 2, in the textbook and in the library."""
    k_max = float(table.K.diagonal().max())
    beta = partial(textbook.beta_bkb, lam=LAM, F=F, xi=XI, delta=DELTA, k_max=k_max)
    claims = F, XI**2, DELTA
    return beta, BKBRadius(*claims, constants="theory", kernel_bound=k_max)


def assert_sparse(strategy: Strategy, num: int = T) -> None:
    """Many rows were evaluated, and not all of them were inducing points."""
    rows = len(set(strategy.history.indices.tolist()))
    assert len(strategy.history) == num
    assert 0 < strategy.history.num_inducing[-1] < rows
    assert rows > 12


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("constants", ["practical", "theory"])
def test_bkb(constants: str, seed: int) -> None:
    table, given = Table(seed), dict[str, Any]()
    beta: Any = practical_bkb
    if constants == "theory":
        beta, given["radius"] = theorem_bkb(table)
    strategy = BKB(**table.ucb(oversampling=Q_BAR, **given))
    x_1, draw = draws(seed, skipped=1)  # the strategy draws S_1 too, of one row
    rows = textbook.bkb(table.K, table.in_step(strategy), T, LAM, beta, x_1, draw)
    assert strategy.history.indices.tolist() == rows
    assert_sparse(strategy)


@pytest.mark.parametrize("seed", range(2))
def test_gpucb(seed: int) -> None:
    """All candidates inducing: the exact posterior."""
    table = Table(seed)
    beta, radius = theorem_bkb(table)
    strategy = GPUCB(**table.ucb(radius=radius))
    x_1, _ = draws(seed)
    observe = table.in_step(strategy)
    rows = textbook.bkb(table.K, observe, T, LAM, beta, x_1, all_candidates)
    assert strategy.history.indices.tolist() == rows


# --- BBKB and its exact limit ---------------------------------------------------------

RULES = {"global": "global_bound", "global-local": "local_bound"}


def practical_bbkb(v: np.ndarray, C: float) -> float:
    """The smaller radius of the authors' experiments, the default of `BBKB`."""
    noise = XI * sqrt(C * np.log1p(v).sum() + log(1 / DELTA))
    return noise + sqrt(LAM) * F


def theorem_bbkb(C: float) -> tuple[Any, BBKBRadius]:
    """Theorem 2 as it is printed, in the textbook and in the library."""
    radius = BBKBRadius(F, XI**2, DELTA, constants="theory", inflation="paper")
    return lambda v: C * textbook.beta_bbkb(v, LAM, F, XI, DELTA), radius


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("constants", ["practical", "printed"])
@pytest.mark.parametrize("termination", RULES)
def test_bbkb(termination: str, constants: str, seed: int) -> None:
    table, C, given = Table(seed), 2.0, dict[str, Any]()
    alpha: Any = partial(practical_bbkb, C=C)
    if constants == "printed":
        alpha, given["radius"] = theorem_bbkb(C)
    given |= {"ratio_threshold": C, "termination": termination}
    strategy = BBKB(**table.ucb(oversampling=Q_BAR, **given))
    batches = textbook.bbkb(
        table.K,
        table.in_step(strategy),
        T,
        LAM,
        alpha,
        *draws(seed),
        clear_bound(RULES[termination], C),
        C,
    )
    assert strategy.history.batches.column("size").tolist() == [*map(len, batches)]
    assert max(map(len, batches)) > 3
    assert_sparse(strategy)


@pytest.mark.parametrize("seed", range(2))
def test_bbkb_with_all_that_is_proved(seed: int) -> None:
    """`constants="theory"`: shares of delta, the root of C, and q-bar of Lemma 2."""
    table, C = Table(seed), 2.0
    theory = {"constants": "theory", "num_evaluations": T}
    strategy = BBKB(**table.ucb(ratio_threshold=C, **theory))
    batches = textbook.bbkb(
        table.K,
        table.in_step(strategy),
        T,
        LAM,
        lambda v: sqrt(C) * textbook.beta_bbkb(v, LAM, F, XI, DELTA / 2),
        *draws(seed, q_bar=72 * log(16 * T / DELTA)),
        clear_bound("local_bound", C),
        C,
    )
    assert strategy.history.batches.column("size").tolist() == [*map(len, batches)]


@pytest.mark.parametrize("seed", range(2))
def test_gpbucb(seed: int) -> None:
    """All candidates inducing, and the sum rule.

    Evaluated rows alone would not do: inside a batch GP-BUCB conditions on new ones.
    """
    table, C = Table(seed), 2.0
    alpha, radius = theorem_bbkb(C)
    strategy = GPBUCB(**table.ucb(ratio_threshold=C, rule="sum", radius=radius))
    x_1, _ = draws(seed)
    bound, observe = clear_bound("global_bound", C), table.in_step(strategy)
    batches = textbook.bbkb(
        table.K, observe, T, LAM, alpha, x_1, all_candidates, bound, C
    )
    assert max(map(len, batches)) > 3


@pytest.mark.parametrize("t", [1, 2, 40])
def test_radii(t: int) -> None:
    """The numbers of the theorems; few evaluations take BKB's other logarithm."""
    table, C, r = Table(0), 2.0, 0.4
    v = np.linspace(0.2, 3.0, t)
    statistics = RadiusStatistics(lam=LAM, ratio_threshold=C, lambda_max=r)
    statistics = replace(
        statistics.add_batch(torch.from_numpy(v)), leverage_sum=v.sum()
    )
    radius: Any
    for beta, radius in (theorem_bkb(table), theorem_bbkb(C)):
        assert radius.paper_value(statistics) == pytest.approx(beta(v), rel=1e-12)
    radius = SBPERadius(C_K, XI**2, DELTA)
    expected = textbook.beta_sbpe(r * LAM, DELTA, LAM, C_K, XI)
    assert radius.paper_value(statistics) == pytest.approx(expected, rel=1e-12)


def test_bounds() -> None:
    """The local bound is the library's, between the ratio and the global bound."""
    table, X, S, batch = Table(0), [3, 8, 20, 41], [3, 20], [5, 30, 5, 11, 2]
    before, embedded = textbook.nystrom_covariance(table.K, S, X, LAM)
    after, _ = textbook.nystrom_covariance(table.K, S, X + batch, LAM)
    ratio = (before.diagonal() / after.diagonal()).max()
    local = textbook.local_bound(before, embedded, batch)
    assert 1 < ratio < local < textbook.global_bound(before, embedded, batch)
    model = sparse_model(table, X, np.zeros(len(X)), S)
    with torch.no_grad():
        bound = LocalRatioBound(model, table.X[batch])(table.X.unsqueeze(1))
    close(bound.max().item(), local)


# --- S-BPE ----------------------------------------------------------------------------


SPREAD: dict[str, Any] = {"num": 120, "lengthscale": 0.3, "lam": 1.0}


@dataclass
class Search:
    """S-BPE in step with the textbook, and the radius of Theorem 3.5."""

    table: Table
    N: int
    refresh: str
    delta: float = DELTA

    def __post_init__(self) -> None:
        claims = {"norm_bound": C_K, "noise_std": XI, "delta": self.delta}
        arguments = self.table.common() | claims | {"refresh": self.refresh}
        self.strategy = SBPE(num_evaluations=self.N, **arguments)
        self.survivors: list[list[int]] = []
        self.generator_state = self.strategy.generator.get_state()

    def observe(self, rows: list[int]) -> list[float]:
        values: list[float] = self.table.in_step(self.strategy, self.N)(rows)
        self.survivors.append(self.strategy.survivors.nonzero().flatten().tolist())
        self.generator_state = self.strategy.generator.get_state()
        return values

    def beta(self, lam_max: float, delta: float) -> float:
        """With the strategy's upper bound: the eigenvalue itself costs O(n^3)."""
        r = self.strategy.history.rounds[-1].lambda_max
        assert lam_max / self.table.lam - 1e-9 <= r <= 1
        lam = self.table.lam
        return float(textbook.beta_sbpe(r * lam, delta, lam, C_K, XI))

    def run(self, inducing: Any) -> list[list[int]]:
        """The textbook's batches; the survivors of each are the strategy's."""
        K, lam = self.table.K, self.table.lam
        numbers = self.N, lam, self.delta
        rounds = textbook.sbpe(K, self.observe, *numbers, self.beta, inducing)
        assert [left for _, left in rounds] == self.survivors
        assert len(self.survivors[-1]) < self.table.num / 2
        assert self.strategy.is_finished
        return [X for X, _ in rounds]

    def unexplained(self, X: list[int], Z: list[int]) -> np.ndarray:
        """(K - Q) / tau^2 of the different rows of X, repeats counted."""
        rows = sorted(set(X))
        features = textbook.embedding(self.table.K, Z)
        residual = (self.table.K - features @ features.T)[np.ix_(rows, rows)]
        root = np.sqrt([X.count(x) / self.table.lam for x in rows])
        return root[:, None] * residual * root


@pytest.mark.parametrize("seed", range(3))
def test_bpe(seed: int) -> None:
    """All points of a batch inducing, as in BPE."""
    batches = Search(Table(seed), 120, "exact").run(evaluated)
    assert [len(X) for X in batches] == [11, 37, 67, 5]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(2))
def test_sbpe_with_new_draws(seed: int) -> None:
    """New inducing points after each point of a batch, as the paper has it.

    They are recursive ridge leverage scores, as in Lemma 3.8, with the delta_j of
    Theorem 5.2. The strategy adds the worst points where a draw leaves a trace above
    tau^2, which bounds lambda_max.
    """
    search, B = Search(Table(seed, **SPREAD), 200, "every", delta=0.5), 4
    table, generator, left_out = search.table, torch.Generator(), list[int]()

    def inducing(X: list[int]) -> list[int]:
        if len(X) == 1:  # of a new batch; the certificate of the last one draws too
            generator.set_state(search.generator_state)
        rows = sorted(set(X))
        delta_j = 3 * search.delta / (np.pi**2 * B * len(X) ** 2)
        counts = torch.tensor([X.count(x) for x in rows])
        kernel, noise = make_kernel(table.lengthscale), table.lam / counts
        draw = RecursiveRLSSampler(delta=min(delta_j, 0.05))
        places = draw(kernel, table.X[rows], noise, generator=generator)
        Z = [rows[i] for i in places.tolist()]
        while (E := search.unexplained(X, Z)).trace() > 1:
            Z.append(rows[textbook.argmax(E.diagonal())])
        assert_apart(E.trace(), 1)
        left_out.append(len(rows) - len(Z))
        return Z

    search.run(inducing)
    assert max(left_out) > 0


@pytest.mark.parametrize("seed", range(3))
def test_sbpe(seed: int) -> None:
    """The default: inducing points stay while a bound says lambda_max <= tau^2.

    The bound is the largest eigenvalue when it was last computed, and the residuals of
    the points since. Where it is above one, worst points become inducing until the
    eigenvalue is at most 0.55.
    """
    search = Search(Table(seed), 160, "certificate")
    Z, since, sizes = list[int](), list[int](), list[int]()
    known = 0.0

    def trace_since() -> float:
        return float(search.unexplained(since, Z).trace()) if since else 0.0

    def append_worst(X: list[int], E: np.ndarray) -> None:
        Z.append(sorted(set(X))[textbook.argmax(E.diagonal())])

    def inducing(X: list[int]) -> list[int]:
        nonlocal known
        if len(X) == 1:  # a new batch
            Z.clear()
            since.clear()
            known = 0.0
        since.append(X[-1])
        if known + trace_since() > 1:
            while (E := search.unexplained(X, Z)).diagonal().max() > 0.55:
                append_worst(X, E)
            if known + trace_since() > 1:
                while (r := np.linalg.eigvalsh(search.unexplained(X, Z))[-1]) > 0.55:
                    append_worst(X, search.unexplained(X, Z))
                known = float(r)
                since.clear()
        assert_apart(known + trace_since(), 1)
        sizes.append(len(set(X)) - len(Z))
        return list(Z)

    search.run(inducing)
    assert max(sizes) > 0


# --- GSSBO ----------------------------------------------------------------------------

READINGS = ["column", "contribution"]


def normal(G: np.ndarray, generator: torch.Generator) -> np.ndarray:
    """The perturbation of the paper's experiments, of variance 0.01."""
    noise = torch.randn(G.shape, generator=generator, dtype=torch.float64)
    return G + 0.1 * noise.numpy()


@pytest.mark.parametrize("reading", [*READINGS, "scalar"])
def test_gradients(reading: str) -> None:
    table = Table(0)
    D = list(range(A))
    y = np.array(table.feedback(D))
    expected = textbook.gradients(table.K, D, y, LAM, reading)
    data = table.X, torch.from_numpy(y), torch.full((A,), LAM, dtype=torch.float64)
    found = exact_gradients(make_kernel(), *data, reading=reading)
    close(found.numpy(), expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("reading", READINGS)
def test_selection(reading: str, seed: int) -> None:
    """The same samples in the same order, without the perturbation and with it."""
    table, forced = Table(seed), [0, 1, 2, A - 1]
    D = list(range(A))
    y = np.array(table.feedback(D))
    G = textbook.gradients(table.K, D, y, LAM, reading)
    chosen = select_by_gradient_diversity(torch.from_numpy(G), 20, forced)
    assert chosen.tolist() == textbook.select(G, 20, forced)

    perturbed = normal(G, torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(seed)
    arguments = torch.from_numpy(G), 20, forced, 0.1, generator
    chosen = select_by_gradient_diversity(*arguments)
    assert chosen.tolist() == textbook.select(perturbed, 20, forced)


def test_selection_by_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 3 as it is printed: ties of whole numbers, which go to the lowest place."""
    monkeypatch.undo()  # the margins
    G = np.random.default_rng(0).standard_normal((A, 1))
    chosen = select_by_gradient_diversity(torch.from_numpy(G), 20, [4, A - 1])
    assert chosen.tolist() == textbook.select(G, 20, [4, A - 1])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("reading", READINGS)
def test_gssbo(reading: str, seed: int) -> None:
    """Told the textbook's evaluations, the strategy has its subsets and its choices.

    The strategy's domain is a box. On the textbook's table its upper confidence bound
    has the textbook's maximizer, and the point that it proposes is no worse.
    """
    table, initial, M, beta = Table(seed), [4, 9, 30, 17], 12, 4.0
    strategy: Any = GSSBO(
        bounds=BOX,
        covar_module=make_kernel(),
        lam=LAM,
        subset_size=M,
        num_initial=len(initial),
        radius=FixedBeta(beta),
        reading=reading,
        gradients="exact",
        optimizer_options={"num_restarts": 4, "raw_samples": 128},
        seed=seed,
    )
    before, feedback, subsets = torch.Generator(), list[float](), []

    def observe(rows: list[int]) -> list[float]:
        if strategy.model is not None:
            acqf = UpperConfidenceBound(strategy.model, beta)
            with torch.no_grad():
                assert acqf(table.X.unsqueeze(1)).argmax() == rows[0]
        before.set_state(strategy.generator.get_state())
        values = table.feedback(rows)
        strategy.tell(table.X[rows], torch.tensor(values, dtype=torch.float64))
        subsets.append(sorted(strategy.model.subset_indices.tolist()))
        feedback.extend(values)
        return values

    def perturbed(D: list[int], y: np.ndarray) -> np.ndarray:
        return normal(textbook.gradients(table.K, D, y, LAM, reading), before)

    D, expected = textbook.gssbo(table.K, observe, initial, 30, M, LAM, beta, perturbed)
    assert subsets == [sorted(U) for U in expected]
    assert len({tuple(U) for U in subsets}) == len(subsets) == 27

    proposed = np.vstack([table.X.numpy(), strategy.ask().X.numpy()])
    U = expected[-1]
    mean, covariance = textbook.exact(
        kernel_matrix(proposed), [D[i] for i in U], np.array(feedback)[U], LAM
    )
    u = mean + sqrt(beta) * np.sqrt(covariance.diagonal())
    assert u[-1] > u[:-1].max()
