"""Bad inputs at public names: what a row is, and values that are bad for many."""

import inspect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import torch
from botorch.exceptions import BotorchError, InputDataError
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from torch import Tensor

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.models import RefitSchedule

NAN, INF = math.nan, math.inf
# What a message says of what would do.
NEED = r"[Nn]eed|must|use one of|[Tt]ry |[Gg]ive|Check|Use |there are |pass "
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
# Arguments whose names mean the same wherever they are.
USUAL: dict[str, list[Any]] = {
    **{name: FLAG for name in ("unique", "minimize", "robust", "repeats")},
    **{name: CHOICE for name in ("selection", "reading", "gradients", "constants")},
    **{name: CHOICE for name in ("bias", "exploration", "repeat", "refresh")},
    "inflation": CHOICE,
    **{name: WHOLE for name in ("batch_size", "num_initial", "dim", "num_candidates")},
    **{name: WHOLE for name in ("max_inducing_points", "raw_samples", "num_restarts")},
    **{name: WHOLE for name in ("num_regions", "window", "patience")},
    **{name: POSITIVE for name in ("lam", "oversampling", "kernel_bound", "side")},
    **{name: POSITIVE for name in ("gradient_scale", "gradient_amplitude")},
    **{name: POSITIVE for name in ("discretization", "tolerance")},
    **{name: NON_NEGATIVE for name in ("norm_bound", "noise_variance", "noise_std")},
    **{name: NON_NEGATIVE for name in ("noise_scale", "feedback_norm", "min_std")},
    **{name: NON_NEGATIVE for name in ("log_det_sum", "leverage_sum", "lambda_max")},
    **{name: NON_NEGATIVE for name in ("log_det_sum_inflated", "norm_lower_bound")},
    "cross_covariance_norm": NON_NEGATIVE,
    "delta": PROBABILITY,
    "seed": [*SEED, None],
    "ratio_threshold": THRESHOLD,
    "max_memory": [-1, NAN, "1"],
    "min_batch_width": [0, -1, NAN, "2"],
    "mgf_radius": [0, -1, NAN, "2"],
    "max_information_gain": [3.0, "x"],
    "covar_module": KERNELS,
    "mean_module": [ZeroMean, 0.0],
    "radius": [FixedBeta, 4.0, "fixed"],
    "refit": ["often", 3, RefitSchedule],
    **{
        name: ["bless", PosteriorVarianceSampler, 3]
        for name in ("sampler", "initial_sampler")
    },
}


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


def anything(
    make: Callable[..., Any], name: str = "", *, says: str, **values: list[Any]
) -> list[Row]:
    """Rows whose errors are any of BoTorch's."""
    return arguments(make, name, says=says, raises=BotorchError, **values)


def usual(
    make: Callable[..., Any], name: str = "", **values: list[Any] | None
) -> list[Row]:
    """A row for each bad value of the usual arguments that something takes.

    Args:
        make: What is called.
        name: The public name; that of `make` by default.
        **values: Bad values of its other arguments, or of a usual one; None for one
            that here is not as usual.
    """
    taken = {n: USUAL[n] for n in options_of(make) if n in USUAL}
    given = {n: bad for n, bad in (taken | values).items() if bad is not None}
    return arguments(make, name, **given)


def options_of(make: Callable[..., Any]) -> Iterator[str]:
    """The arguments that are left to give, those of an `Unpack` and of bases too."""
    kind = make.func if isinstance(make, partial) else make
    for name, parameter in inspect.signature(make).parameters.items():
        yield name
        if parameter.kind is parameter.VAR_KEYWORD:
            for options in get_args(parameter.annotation):
                yield from options.__annotations__
            if parameter.annotation is Any and isinstance(kind, type):
                yield from options_of(kind.__bases__[0])


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
