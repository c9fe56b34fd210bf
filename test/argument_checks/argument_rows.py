"""Bad inputs at public names: what a row is, and values that are bad for many."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import RBFKernel
from torch import Tensor

NAN, INF = math.nan, math.inf
# What a message says of what would do.
NEED = r"need|must|use one of|[Tt]ry |[Gg]ive|Check|Use |there are |pass "
NEED += r"|Expected|required"  # as BoTorch has it

POSITIVE: list[Any] = [10**400, 0, -1.0, NAN, INF, "2", 1j]
NON_NEGATIVE: list[Any] = [-1.0, NAN, INF, "2"]
PROBABILITY: list[Any] = [0, 1.0, -0.1, NAN, "0.1"]
THRESHOLD: list[Any] = [0.5, NAN, INF, "2", None]
WHOLE: list[Any] = [0, -1, 2.5, NAN, INF, "2", True]
SEED: list[Any] = [0.5, "1", NAN, -1, 2**64]
CHOICE: list[Any] = ["bless", 3]
FLAG: list[Any] = ["yes", 2]

X = torch.rand(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y, NOISE = X[:, 0], torch.full((12,), 0.1, dtype=torch.float64)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
KERNEL = RBFKernel().double().requires_grad_(False)
KERNELS: list[Any] = [RBFKernel, "rbf", 3.0]
BAD_BOUNDS: list[Any] = [
    *(BOUNDS[0], X[:3], BOUNDS.half(), BOUNDS * NAN, BOUNDS.flip(0), BOUNDS[:, :0]),
    *("box", 1.0, [["a"], ["b"]], BOUNDS.to(torch.complex64), torch.empty(2, 0)),
    [[-1e308], [1e308]],  # at an infinite distance
]


@dataclass(frozen=True)
class Row:
    """A call that must be refused.

    Attributes:
        name: The public name.
        given: What is wrong, in a few words.
        call: The call.
        words: What the message has to say: what came, and what is needed.
        error: Its class.
    """

    name: str
    given: str
    call: Callable[[], Any]
    words: tuple[str, ...]
    error: type[Exception] = InputDataError

    def __str__(self) -> str:
        return f"{self.name}({self.given})"


def arguments(
    make: Callable[..., Any],
    name: str = "",
    *,
    says: str = "",
    raises: type[Exception] = InputDataError,
    **values: list[Any],
) -> list[Row]:
    """A row for each bad value of keyword arguments.

    Args:
        make: What is called.
        name: The public name; that of `make` by default.
        says: What errors say; by default the argument's name and its value.
        raises: Their class.
        **values: Bad values of each argument.
    """
    name = name or (make.func if isinstance(make, partial) else make).__name__
    return [
        Row(
            name,
            f"{argument}={_short(value)}",
            partial(make, **{argument: value}),
            (says, NEED) if says else (argument, *_came(value), NEED),
            raises,
        )
        for argument, several in values.items()
        for value in several
    ]


def _short(value: Any) -> str:
    """A value as part of a test's name."""
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    return re.sub(r"0x[0-9a-f]+", "", " ".join(repr(value).split()))[:40]


def _came(value: Any) -> tuple[str, ...]:
    """What a message must say of a value: itself, or its type."""
    if isinstance(value, type):
        return (value.__name__,)
    if not isinstance(value, str | int | float | complex):
        return ()
    return (f"{re.escape(str(value)[:20])}|{type(value).__name__}",)
