"""The tables of the BBKB paper's experiments, and their stand-in for NAS-bench-101."""

import csv
import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.demo.comparison_run import noisy_rows
from botorch_sparse.demo.datasets import DATA_VARIABLE, Table, load_table

NUM_LAYERS, NUM_CHOICES = 8, 3


@dataclass(frozen=True)
class PaperProblem:
    """A table, its noise and what its evaluations cost.

    Attributes:
        table: Candidates and mean values.
        feedback: From a seed to the noisy objective of rows.
        cost: `A` costs of an evaluation, of mean 1; ones where none is known.
    """

    table: Table
    feedback: Callable[[int], Callable[[Tensor], Tensor]]
    cost: Tensor


def load_problem(name: str) -> PaperProblem:
    """Load a problem by its name."""
    if name == "nas_bench_macro":
        return architectures()
    table = load_table(name)
    return PaperProblem(
        table, lambda seed: noisy_rows(table, seed), torch.ones(len(table.Y))
    )


def architectures() -> PaperProblem:
    """NAS-Bench-Macro: 3^8 architectures, three trainings of each as noise.

    One-hot layers of unit norm; accuracies scaled to [0, 1] by the range of the means;
    the cost is the number of floating point operations.
    """
    text = text_columns("nas_bench_macro")
    columns = {
        name: torch.tensor([float(cell) for cell in cells], dtype=torch.double)
        for name, cells in text.items()
    }
    layers = torch.stack([columns[f"layer{i + 1}"] for i in range(NUM_LAYERS)], -1)
    X = torch.nn.functional.one_hot(layers.long(), NUM_CHOICES).flatten(-2).double()
    runs = torch.stack([columns[f"test_acc{i + 1}"] for i in range(3)], -1)
    mean = runs.mean(-1)
    low, high = mean.min(), mean.max()
    runs, Y = (runs - low) / (high - low), (mean - low) / (high - low)
    features = tuple(f"layer{i // 3 + 1}={i % 3}" for i in range(24))
    table = Table("nas_bench_macro", X / NUM_LAYERS**0.5, Y, features, "accuracy")

    def feedback(seed: int) -> Callable[[Tensor], Tensor]:
        generator = torch.Generator().manual_seed(seed)

        def objective(indices: Tensor) -> Tensor:
            which = torch.randint(3, indices.shape, generator=generator)
            return runs[indices, which]

        return objective

    return PaperProblem(table, feedback, columns["flops"] / columns["flops"].mean())


def mutation(table: Table) -> Callable[[int, torch.Generator], int]:
    """Change one layer of an architecture, chosen uniformly, to another choice."""
    layers = table.X.view(-1, NUM_LAYERS, NUM_CHOICES).argmax(-1).tolist()
    row_of = {tuple(row): number for number, row in enumerate(layers)}

    def mutate(row: int, generator: torch.Generator) -> int:
        child = list(layers[row])
        layer = int(torch.randint(NUM_LAYERS, (), generator=generator))
        step = 1 + int(torch.randint(NUM_CHOICES - 1, (), generator=generator))
        child[layer] = (child[layer] + step) % NUM_CHOICES
        return row_of[tuple(child)]

    return mutate


def text_columns(name: str) -> dict[str, tuple[str, ...]]:
    """The columns of a table that has text, or more than features and one target."""
    path = Path(os.environ.get(DATA_VARIABLE, "")) / f"{name}.csv.gz"
    if not path.is_file():
        raise InputDataError(
            f"There is no {name}.csv.gz: set {DATA_VARIABLE} to the folder that holds "
            "it."
        )
    with gzip.open(path, "rt") as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, zip(*rows, strict=True), strict=True))
