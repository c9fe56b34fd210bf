"""The tables of `benchmarks.pools`: their candidates, their values and noisy feedback.

References:
    .. [BornWolf1999]
        M. Born and E. Wolf. Principles of Optics, 7th edition, section 1.6 (the
        characteristic matrices of F. Abeles, 1950). Cambridge University Press, 1999.
    .. [Nugteren2015]
        C. Nugteren and V. Codreanu. CLTune: a generic auto-tuner for OpenCL kernels.
        MCSoC 2015 (the source of sgemm_gpu).
"""

import gzip
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from benchmarks.paper_problems import NUM_CHOICES, NUM_LAYERS, architectures
from botorch_sparse.demo.comparison_run import noisy_rows
from botorch_sparse.demo.datasets import DATA_VARIABLE, Table, load_table
from botorch_sparse.strategies import Batch, Strategy

NAMES = (
    "abalone",
    "california_housing",
    "nas_bench_macro",
    "sgemm_gpu",
    "edge_filter",
)
NUM_POWERS = 10  # columns of sgemm_gpu that are powers of two; four flags follow

FILTER_ROWS = 200_000
FILTER_LAYERS = 10
THICKNESS = (30.0, 120.0)  # nm
HIGH_INDEX, LOW_INDEX, GLASS = 2.35, 1.46, 1.52  # TiO2, SiO2, the substrate
WAVELENGTHS = torch.linspace(420.0, 680.0, 27, dtype=torch.float64)  # nm
EDGE = 549.0  # nm: 13 wavelengths are shorter


@dataclass(frozen=True, eq=False)
class Candidates:
    """What a method sees of a table.

    Attributes:
        X: `A x d` features, as a user would write them down.
        parameters: `A x c` what was varied to make the rows; X where that is the same.
        is_categorical: Whether the parameters are names, not sizes.
    """

    X: Tensor
    parameters: Tensor
    is_categorical: bool = False


# From the rows evaluated (`n`), their feedback (`n`), a mask of rows that are free
# (`A`) and a number q, to q rows.
Proposer = Callable[[Tensor, Tensor, Tensor, int], Tensor]


@dataclass(frozen=True, eq=False)
class PoolProblem:
    """A table whose best row is looked for.

    Attributes:
        candidates: What a method sees.
        table: The values without noise, scaled to [0, 1]; larger is better.
        feedback: From a seed to the noisy objective of rows.
    """

    candidates: Candidates
    table: Table
    feedback: Callable[[int], Callable[[Tensor], Tensor]]


@cache
def load_pool(name: str) -> PoolProblem:
    """A problem by its name, or from a CSV file whose last column is the target.

    Raises:
        InputDataError: If there is no such table.
    """
    if name == "nas_bench_macro":
        return _architectures()
    if name == "sgemm_gpu":
        return _kernels()
    return with_normal_noise(
        edge_filter() if name == "edge_filter" else load_table(name)
    )


def with_normal_noise(table: Table) -> PoolProblem:
    """Feedback with noise N(0, 0.01^2), as in the demo."""
    return PoolProblem(
        Candidates(table.X, table.X), table, lambda seed: noisy_rows(table, seed)
    )


def _architectures() -> PoolProblem:
    """NAS-Bench-Macro: one-hot layers; feedback is one of three trainings."""
    problem = architectures()
    X = (problem.table.X > 0).double()
    layers = X.view(-1, NUM_LAYERS, NUM_CHOICES).argmax(-1).double()
    return PoolProblem(
        Candidates(X, layers, is_categorical=True), problem.table, problem.feedback
    )


def _kernels() -> PoolProblem:
    """Matrix products on a GPU [Nugteren2015]_: feedback is one of four runs."""
    path = Path(os.environ.get(DATA_VARIABLE, "")) / "sgemm_gpu.csv.gz"
    if not path.is_file():
        raise InputDataError(
            f"There is no sgemm_gpu.csv.gz: set {DATA_VARIABLE} to a folder with it."
        )
    cells = torch.from_numpy(np.loadtxt(path, delimiter=",", skiprows=1))
    X, milliseconds = cells[:, :-4], cells[:, -4:]
    X = torch.cat([X[:, :NUM_POWERS].log2(), X[:, NUM_POWERS:]], -1)
    target = -milliseconds.mean(-1).log()
    low, high = target.min(), target.max()
    runs = (-milliseconds.log() - low) / (high - low)
    with gzip.open(path, "rt") as file:
        names = tuple(file.readline().split(",")[:-4])
    table = Table("sgemm_gpu", X, (target - low) / (high - low), names, "-log time")

    def feedback(seed: int) -> Callable[[Tensor], Tensor]:
        generator = torch.Generator().manual_seed(seed)

        def objective(rows: Tensor) -> Tensor:
            return runs[rows, torch.randint(4, rows.shape, generator=generator)]

        return objective

    return PoolProblem(Candidates(X, X), table, feedback)


def edge_filter(num_rows: int = FILTER_ROWS) -> Table:
    """Stacks of ten thin layers that are to reflect blue light and pass red light.

    The rows are Sobol points of the thicknesses, 30 to 120 nm each; the value is the
    mean reflectance from 420 to 540 nm less that from 550 to 680 nm, at normal
    incidence. All layers interfere with each other: the best of 1,000 random rows is
    the 200th or so, at 0.94 of the range.

    Args:
        num_rows: Number of stacks.

    Returns:
        The table; X in nanometres. O(A) transfer matrices at 27 wavelengths.
    """
    sobol = torch.quasirandom.SobolEngine(FILTER_LAYERS, scramble=True, seed=0)
    low, high = THICKNESS
    X = low + (high - low) * sobol.draw(num_rows, dtype=torch.float64)
    short = WAVELENGTHS < EDGE
    R = torch.stack([reflectance(X, float(wave)) for wave in WAVELENGTHS], -1)
    Y = R[:, short].mean(-1) - R[:, ~short].mean(-1)
    Y = (Y - Y.min()) / (Y.max() - Y.min())
    names = tuple(f"layer{i + 1}_nm" for i in range(FILTER_LAYERS))
    return Table("edge_filter", X, Y, names, "contrast")


def reflectance(thickness: Tensor, wavelength: float) -> Tensor:
    r"""The reflectance of stacks of layers in air, by [BornWolf1999]_, section 1.6.

    .. math::
        \binom{B}{C} = \prod_j \begin{pmatrix} \cos\delta_j & i \sin\delta_j / n_j \\
        i n_j \sin\delta_j & \cos\delta_j \end{pmatrix} \binom{1}{n_s}, \quad
        \delta_j = 2 \pi n_j h_j / \lambda, \quad
        R = \left| \frac{B - C}{B + C} \right|^2

    Args:
        thickness: `A x L` of layers, the first next to the air; those of high and of
            low index alternate.
        wavelength: In the same unit.

    Returns:
        `A` values in [0, 1]. O(A L).
    """
    B = torch.ones(len(thickness), dtype=torch.complex128)
    C = GLASS * B
    for layer in reversed(range(thickness.shape[-1])):
        n = HIGH_INDEX if layer % 2 == 0 else LOW_INDEX
        phase = 2 * math.pi * n * thickness[:, layer] / wavelength
        cos, sin = phase.cos(), 1j * phase.sin()
        B, C = cos * B + sin / n * C, n * sin * B + cos * C
    return ((B - C) / (B + C)).abs().square()


def unit(X: Tensor) -> Tensor:
    """Columns scaled to [0, 1]; a constant one is 0."""
    low, high = X.min(0).values, X.max(0).values
    return (X - low) / torch.where(high > low, high - low, 1.0)


def random_rows(free: Tensor, q: int, generator: torch.Generator) -> Tensor:
    """`q` different rows that are free, uniformly."""
    rows = free.nonzero().squeeze(-1)
    return rows[torch.randperm(len(rows), generator=generator)[:q]]


def largest(scores: Tensor, free: Tensor, q: int) -> Tensor:
    """The `q` free rows of the largest scores."""
    return scores.masked_fill(~free, -torch.inf).topk(q).indices


def asked(strategy: Strategy) -> Proposer:
    """A strategy as a peer: told what it asked for before it is asked again."""
    batch: Batch | None = None

    def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
        nonlocal batch
        if batch is not None:
            strategy.tell(batch, Y[-len(batch) :])
        batch = strategy.ask(q)
        assert batch.indices is not None
        return batch.indices

    return propose
