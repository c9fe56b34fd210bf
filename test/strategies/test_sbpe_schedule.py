"""Lengths of S-BPE's batches."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import RBFKernel

from botorch_sparse.strategies import SBPE
from botorch_sparse.strategies.sbpe.design import batch_lengths, max_num_batches


def printed(N: int) -> list[int]:
    """`N_i = ceil(sqrt(N N_{i-1}))` by search among integers, cut at N."""
    lengths, last = [], 1
    while sum(lengths) < N:
        length = int(math.sqrt(N * last)) - 1
        while length * length < N * last:
            length += 1
        last = length
        lengths.append(min(length, N - sum(lengths)))
    return lengths


def test_lengths_and_their_number() -> None:
    assert batch_lengths(10**4) == [100, 1000, 3163, 5625, 112]
    assert [max_num_batches(N) for N in (1, 2, 3, 4, 5, 16, 17)] == [
        1,
        1,
        2,
        2,
        3,
        3,
        4,
    ]
    for N in [*range(1, 3000), 10**4, 2**16, 2**16 + 1, 10**6, 10**9]:
        for schedule in ("sqrt", "doubling"):
            lengths = batch_lengths(N, schedule)  # type: ignore[arg-type]
            assert sum(lengths) == N and min(lengths) > 0
            assert len(lengths) <= max_num_batches(N, schedule)  # type: ignore[arg-type]
        assert batch_lengths(N) == printed(N)
        if N > 2:
            assert max_num_batches(N) == math.ceil(math.log2(math.log2(N))) + 1
    assert batch_lengths(1000, "doubling") == [32, 64, 128, 256, 512, 8]


@pytest.mark.parametrize(
    ("N", "schedule", "match"),
    [
        (0, "sqrt", "num_evaluations=0; need at least 1, a whole"),
        (2.5, "sqrt", "num_evaluations=2.5"),
        (10, "linear", "schedule='linear'; need 'sqrt', 'doubling' or a list"),
        (10, [3, 0], "batch length=0"),
    ],
)
def test_bad_arguments(N: Any, schedule: Any, match: str) -> None:
    for read in (batch_lengths, max_num_batches):
        with pytest.raises(InputDataError, match=match):
            read(N, schedule)


def test_what_is_no_sequence_of_lengths() -> None:
    for lengths in (5, [], np.array(3), np.array([]), np.ones((2, 2))):
        with pytest.raises(InputDataError, match=r"schedule[^;]*; need"):
            batch_lengths(50, lengths)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [np.array, torch.tensor, tuple, list])
def test_lengths_in_any_sequence(form: Any) -> None:
    lengths = form([10, 30])
    assert batch_lengths(25, lengths) == [10, 15]
    assert max_num_batches(100, lengths) == 4
    X = torch.linspace(0.0, 1.0, 20, dtype=torch.float64)[:, None]
    built = SBPE(X, RBFKernel().double(), num_evaluations=50, schedule=lengths)
    assert built.lengths == [10, 30, 10]
