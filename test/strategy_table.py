"""One table of strategies on candidates for the tests, and how states compare."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    ExpectedImprovement,
    RandomSearch,
    Strategy,
    ThompsonSampling,
)

DOUBLE = {"dtype": torch.float64, "device": torch.device("cpu")}


def make_candidates(num: int = 150, **tkwargs: Any) -> Tensor:
    """`num x 2` points in the unit square, the same each time."""
    g = torch.Generator().manual_seed(7)
    return torch.rand(num, 2, generator=g, dtype=torch.float64).to(**tkwargs or DOUBLE)


def make_kernel(lengthscale: float = 0.3, **tkwargs: Any) -> Kernel:
    """An RBF kernel without gradients."""
    kernel = RBFKernel().to(**tkwargs or DOUBLE).requires_grad_(False)
    kernel.lengthscale = lengthscale
    return kernel


class Faulty(RBFKernel):
    """An RBF kernel that raises, or returns NaN, at the call told."""

    countdown: int | None = None
    returns_nan = False

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **kw: Any) -> Tensor:
        value = super().forward(x1, x2, diag=diag, **kw)
        if self.countdown is not None:
            self.countdown -= 1
            if self.countdown < 0:
                self.countdown = None
                if not self.returns_nan:
                    raise RuntimeError("kernel out of order")
                return value * float("nan")
        return value


def faulty_kernel(lengthscale: float = 0.3) -> Faulty:
    """One without gradients that works until it is told."""
    kernel = Faulty().double().requires_grad_(False)
    kernel.lengthscale = lengthscale
    return kernel


def objective(X: Tensor) -> Tensor:
    """A smooth function; a little bumpy noise is a function of X too, so that a value
    does not depend on when, and with what, it is asked for."""
    smooth = torch.sin(5 * X[:, 0]) * torch.cos(3 * X[:, 1])
    bumps = torch.frac(1e4 * torch.sin(X @ X.new_tensor([12.9898, 78.233])))
    return smooth + 0.05 * bumps


def _gp(cls: type[Strategy], **kwargs: Any) -> Callable[..., Strategy]:
    def build(**overrides: Any) -> Strategy:
        arguments: dict[str, Any] = {
            "candidates": None,
            "covar_module": None,
            "lam": 1e-2,
            "noise_variance": 1e-3,
            "norm_bound": 1.0,
            "delta": 1e-2,
        }
        arguments |= kwargs | overrides
        if arguments["candidates"] is None:
            arguments["candidates"] = make_candidates()
        if arguments["covar_module"] is None:
            arguments["covar_module"] = make_kernel()
        return cls(**arguments)

    return build


def _sized(cls: type[Strategy], **overrides: Any) -> Strategy:
    arguments = {"candidates": make_candidates(), "covar_module": make_kernel()}
    plain = {"lam": 1e-2, "batch_size": 6}
    return cls(**arguments | plain | overrides)


def _inferred(cls: type[Strategy], **kwargs: Any) -> Callable[..., Strategy]:
    def build(**overrides: Any) -> Strategy:
        return cls(**{"candidates": make_candidates()} | kwargs | overrides)

    return build


def _random(**overrides: Any) -> Strategy:
    overrides.pop("covar_module", None)
    candidates = overrides.pop("candidates", None)
    candidates = make_candidates() if candidates is None else candidates
    return RandomSearch(candidates, **{"batch_size": 7} | overrides)


TABLE: dict[str, Callable[..., Strategy]] = {
    "bbkb-global": _gp(BBKB, termination="global"),
    "bbkb-global-local": _gp(BBKB, termination="global-local"),
    "bbkb-streamed": _gp(BBKB, max_memory=0),
    "bkb": _gp(BKB),
    "gpucb": _gp(GPUCB),
    "gpbucb-product": _gp(GPBUCB, rule="product"),
    "gpbucb-sum": _gp(GPBUCB, rule="sum"),
    "thompson": partial(_sized, ThompsonSampling),
    "improvement": partial(_sized, ExpectedImprovement),
    "random": _random,
}
# Kernel, noise and mean are fitted to the feedback.
INFERRED: dict[str, Callable[..., Strategy]] = {
    "bbkb": _inferred(BBKB),
    "bkb": _inferred(BKB),
    "gpucb": _inferred(GPUCB),
    "gpbucb": _inferred(GPBUCB),
    "thompson": _inferred(ThompsonSampling, batch_size=4),
    "improvement": _inferred(ExpectedImprovement, batch_size=4),
}
BATCHED = ["bbkb-global", "bbkb-global-local", "gpbucb-product", "gpbucb-sum"]
NO_BOUND = ("thompson", "improvement", "random")
# Those that choose by an upper confidence bound.
GP = [name for name in TABLE if name not in NO_BOUND]


def unending(name: str, **overrides: Any) -> Strategy:
    """A strategy whose batches have a size that no test uses up."""
    return TABLE[name](**{"batch_size": 50} | overrides)


def equal(a: Any, b: Any) -> bool:
    """Whether two state dictionaries agree to the bit."""
    if isinstance(a, Tensor):
        if not isinstance(b, Tensor) or (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        return bool(((a == b) | (a.isnan() & b.isnan())).all())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return type(a) is type(b) and a == b


def are_alike(*strategies: Strategy) -> bool:
    """Whether their states agree to the bit, less what two equal runs differ in."""
    first, *others = (without_times(s.state_dict()) for s in strategies)
    return all(equal(first, other) for other in others)


def without_times(state: dict[str, Any]) -> dict[str, Any]:
    """A state less what differs between two equal runs."""
    history = dict(state["history"])
    columns = history["batches"].items()
    history["batches"] = {k: v for k, v in columns if not k.endswith("seconds")}
    return state | {"history": history}
