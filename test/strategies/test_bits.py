"""Tables of bits and counts: the choices of the same numbers in float64."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from gpytorch.means import LinearMean
from rank_processes import ended_ranks
from thread_ranks import together
from torch import Tensor

from botorch_sparse.distributed import Ranks, ShardedDomain
from botorch_sparse.kernels import TanimotoKernel
from botorch_sparse.pools.compact_rows import CompactRows
from botorch_sparse.pools.shard import RANK_TILE
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPUCB,
    SBPE,
    Constraint,
    ExpectedImprovement,
    Objective,
    RandomSearch,
    Strategy,
    ThompsonSampling,
)

ROWS, D = 2 * RANK_TILE - 100, 36
KERNELS: dict[str, Callable[[], Kernel]] = {
    "tanimoto": lambda: ScaleKernel(TanimotoKernel()),
    "matern": lambda: MaternKernel(nu=2.5),
}


def fingerprints(kind: str) -> np.ndarray:
    """Bits, or counts, of which two rows are alike."""
    g = np.random.default_rng(0)
    cells = (g.random((ROWS, D)) < 0.2).astype(np.uint8)
    if kind == "counts":
        cells *= g.integers(1, 5, cells.shape, dtype=np.uint8)
    cells[RANK_TILE + 7] = cells[5]
    return cells


def objective(X: Tensor) -> Tensor:
    weights = torch.linspace(-1, 1, D).double().sin()
    return (X.double() @ weights) / 3


def known_kernel(name: str) -> Kernel:
    kernel = KERNELS[name]().double().requires_grad_(False)
    if name == "matern":
        kernel.lengthscale = 4.0
    return kernel


BUILDS: dict[str, Callable[..., Strategy]] = {
    "thompson": lambda X, **options: ThompsonSampling(X, batch_size=8, **options),
    "bbkb": BBKB,
    "bkb": BKB,
    "gpucb": GPUCB,
    "improvement": ExpectedImprovement,
    "sbpe": lambda X, **options: SBPE(X, num_evaluations=24, **options),
    "random": lambda X, covar_module, lam, **options: RandomSearch(X, **options),
}


def chosen(build: str, candidates: Any, kernel: str = "tanimoto") -> list[int]:
    options = {"covar_module": known_kernel(kernel), "lam": 0.05, "seed": 0}
    strategy = BUILDS[build](candidates, **options)
    return strategy.run(objective, 24, progress=False).indices.tolist()


@pytest.mark.one_in(6)
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_any_form_has_the_same_choices(build: str, kernel: str) -> None:
    cells = fingerprints("bits")
    expected = chosen(build, torch.from_numpy(cells).double(), kernel)
    packed = CompactRows.from_packed(np.packbits(cells, axis=1), D)
    for form in (cells, torch.from_numpy(cells), cells.astype(bool), packed):
        assert chosen(build, form, kernel) == expected


@pytest.mark.parametrize("build", ["thompson", "bbkb"])
def test_counts_and_files(build: str, tmp_path: Path) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    cells = fingerprints("counts")
    expected = chosen(build, torch.from_numpy(cells).double())
    np.save(tmp_path / "counts.npy", cells)
    for form in (cells, sparse.csr_matrix(cells), tmp_path / "counts.npy"):
        assert chosen(build, form) == expected
    bits = fingerprints("bits")
    np.save(tmp_path / "bits.npy", np.packbits(bits, axis=1))
    packed = CompactRows.from_packed(tmp_path / "bits.npy", D)
    assert chosen(build, packed) == chosen(build, bits)


RANKS = """
import sys
from botorch_sparse.distributed import ShardedDomain, joined_ranks
from botorch_sparse.pools import CompactRows
from botorch_sparse.strategies import ThompsonSampling
sys.path += sys.argv[2:]
from test_bits import D, known_kernel, objective

with joined_ranks() as ranks:
    packed = CompactRows.from_packed(sys.argv[1], D)
    domain = ShardedDomain.of(packed, ranks)
    strategy = ThompsonSampling(
        domain, known_kernel("tanimoto"), 0.05, batch_size=8, seed=0
    )
    history = strategy.run(objective, 24, progress=False)
    print(history.indices.tolist(), flush=True)
"""


@pytest.mark.slow
def test_two_processes_draw_the_same_paths(tmp_path: Path) -> None:
    """Each has its rows of a file, and both choose what one process chooses."""
    path = tmp_path / "bits.npy"
    np.save(path, np.packbits(fingerprints("bits"), axis=1))
    tests = Path(__file__).parent, Path(__file__).parents[1]
    expected = chosen("thompson", CompactRows.from_packed(path, D))
    for rank in ended_ranks(2, "-c", RANKS, str(path), *map(str, tests)):
        assert rank.status == 0, rank.err
        assert rank.out.splitlines()[-1] == str(expected)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("build", ["bbkb", "bkb"])
def test_ranks_share_packed_bits(build: str) -> None:
    """Two ranks choose what one does."""
    cells = fingerprints("bits")
    packed = CompactRows.from_packed(np.packbits(cells, axis=1), D)
    expected = chosen(build, packed)

    def run(ranks: Ranks) -> list[int]:
        return chosen(build, ShardedDomain.of(packed, ranks))

    assert together(2, run) == [expected] * 2


@pytest.mark.one_in(2)
@pytest.mark.parametrize("build", ["thompson", "bbkb"])
def test_the_kernel_is_inferred(build: str) -> None:
    """Tanimoto, with a variance, a noise and a mean that are fitted."""
    cells = fingerprints("counts")
    strategy = BUILDS[build](cells, seed=0)
    history = strategy.run(lambda X: 40 * objective(X) + 7, 60, progress=False)
    prior = strategy.surrogate.view.prior
    assert type(prior.covar_module.base_kernel) is TanimotoKernel
    assert float(prior.covar_module.outputscale) != 1.0 and 0 < prior.lam < 1
    values = 40 * objective(torch.from_numpy(cells)) + 7
    assert history.best().value > float(values.quantile(0.99))
    mean, sd = strategy.predict(torch.from_numpy(cells).double())
    assert torch.corrcoef(torch.stack([mean, values]))[0, 1] > 0.3
    assert ((mean - values).abs() < 3 * sd).float().mean() > 0.9


def test_points_are_found_by_their_coordinates() -> None:
    """In any type; copies are known, and what is no row is a point of its own."""
    cells = fingerprints("bits")
    packed = CompactRows.from_packed(np.packbits(cells, axis=1), D)
    for form in (cells, packed):
        strategy = BUILDS["thompson"](form, covar_module=known_kernel("matern"), lam=1)
        X = torch.from_numpy(cells[[3, 9]])
        for dtype in (torch.uint8, torch.float32, torch.float64):
            strategy.tell(X.to(dtype), torch.zeros(2))
        assert strategy.history.indices.tolist() == [3, 9] * 3
        beside = torch.full((1, D), 0.5).double()
        strategy.tell(beside, torch.zeros(1))
        assert strategy.history.indices[-1] == -1
        assert torch.equal(strategy.history.X[-1:], beside)
        batch = strategy.ask(4)
        strategy.tell(batch.X.float(), torch.ones(4))
        assert torch.equal(strategy.history.indices[-4:], batch.indices)


@pytest.mark.parametrize("build", ["thompson", "bbkb"])
def test_several_outcomes(build: str) -> None:
    """As in float64, past the first points."""
    cells = fingerprints("bits")
    outcomes = [Objective("a"), Constraint("b", upper=2.0)]

    def both(X: Tensor) -> Tensor:
        return torch.stack([objective(X), X.double().sum(-1) / 4], dim=-1)

    found = []
    for form in (cells, torch.from_numpy(cells).double()):
        options = {"covar_module": known_kernel("tanimoto"), "lam": 0.05}
        strategy = BUILDS[build](form, outcomes=outcomes, seed=0, **options)
        found.append(strategy.run(both, 24, progress=False).indices.tolist())
    assert found[0] == found[1]


def test_a_mean_that_looks_at_the_inputs() -> None:
    cells = fingerprints("bits")
    mean = LinearMean(D).double().requires_grad_(False)
    found = []
    for form in (cells, torch.from_numpy(cells).double()):
        options = {"covar_module": known_kernel("tanimoto"), "lam": 0.05}
        strategy = BUILDS["thompson"](form, mean_module=mean, seed=0, **options)
        found.append(strategy.run(objective, 24, progress=False).indices.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("build", ["thompson", "bbkb", "improvement"])
def test_new_candidates_of_the_other_form(build: str) -> None:
    """They are taken as the first ones were."""
    cells = fingerprints("counts")
    first, numbers = torch.from_numpy(cells).double(), cells[: ROWS // 2]
    found = []
    for form in (numbers, torch.from_numpy(numbers).double()):
        strategy = BUILDS[build](first, seed=0)
        strategy.tell(first[:30], objective(first[:30]))
        strategy.set_candidates(form)
        found.append(strategy.ask(3).indices.tolist())
    assert found[0] == found[1]


def test_states_and_frames() -> None:
    cells = fingerprints("bits")
    packed = CompactRows.from_packed(np.packbits(cells, axis=1), D)
    options = {"covar_module": known_kernel("tanimoto"), "lam": 0.05, "seed": 0}
    first, second = (BUILDS["thompson"](packed, **options) for _ in range(2))
    first.run(objective, 16, progress=False)
    second.load_state_dict(first.state_dict())
    assert first.ask().indices.tolist() == second.ask().indices.tolist()
    frame = pytest.importorskip("pandas") and second.table.frame(torch.tensor([4, 2]))
    np.testing.assert_array_equal(frame.to_numpy(), cells[[4, 2]])
