"""One table of strategies on a continuous domain for the tests."""

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    GSSBO,
    RSSBO,
    RandomSearch,
    Strategy,
    ThompsonSampling,
    TrustRegionBBKB,
)

BOUNDS = torch.tensor([[-1.0, 0.0], [2.0, 1.0]], dtype=torch.float64)
LAM = 0.05
# A local search that is quick: few tests ask for the best point.
OPTIONS = {"num_restarts": 1, "raw_samples": 16, "options": {"maxiter": 10}}
THOROUGH = {"num_restarts": 2, "raw_samples": 64, "options": {"maxiter": 50}}


def make_kernel() -> Kernel:
    """An RBF kernel with two lengthscales, without gradients."""
    kernel = RBFKernel(ard_num_dims=2).double().requires_grad_(False)
    kernel.lengthscale = torch.tensor([[0.8, 0.4]], dtype=torch.float64)
    return kernel


def objective(X: Tensor) -> Tensor:
    """A smooth function; a little bumpy noise is a function of X too."""
    X = X.double()
    smooth = torch.sin(2 * X[:, 0]) * torch.cos(3 * X[:, 1])
    bumps = torch.frac(1e4 * torch.sin(X @ X.new_tensor([12.9898, 78.233])))
    return smooth + 0.05 * bumps


def _make(cls: type[Strategy], known: bool, **kwargs: Any) -> Callable[..., Any]:
    def build(**overrides: Any) -> Strategy:
        arguments: dict[str, Any] = {
            "bounds": BOUNDS,
            "optimizer_options": OPTIONS,
            "seed": 0,
        }
        if known:
            arguments |= {"covar_module": make_kernel(), "lam": LAM}
            if cls is not ThompsonSampling:
                arguments["radius"] = FixedBeta(4.0)
        return cls(**arguments | kwargs | overrides)

    return build


def _random(**overrides: Any) -> Strategy:
    return RandomSearch(**{"bounds": BOUNDS, "batch_size": 4} | overrides)


KNOWN: dict[str, Callable[..., Any]] = {
    "bbkb-global": _make(BBKB, True, termination="global"),
    "bbkb-global-local": _make(BBKB, True),
    "bkb": _make(BKB, True),
    "gpucb": _make(GPUCB, True),
    "gpbucb-product": _make(GPBUCB, True),
    "gpbucb-sum": _make(GPBUCB, True, rule="sum"),
}
INFERRED: dict[str, Callable[..., Any]] = {
    "bbkb-inferred": _make(BBKB, False),
    "bkb-inferred": _make(BKB, False),
    "gpucb-inferred": _make(GPUCB, False),
    "gpbucb-inferred": _make(GPBUCB, False),
}


class Steps:
    """A clock on which every look takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def _make_subset(cls: type[Strategy], known: bool, **kwargs: Any) -> Callable[..., Any]:
    def build(**overrides: Any) -> Strategy:
        make = _make(cls, known, num_initial=4, clock=Steps(), **kwargs)
        return make(**overrides)

    return build


SUBSET: dict[str, Callable[..., Any]] = {
    "gssbo": _make_subset(GSSBO, False, subset_size=7),
    "gssbo-known": _make_subset(GSSBO, True, subset_size=6, reading="column"),
    "gssbo-dynamic": _make_subset(GSSBO, False),
    "rssbo": _make_subset(RSSBO, False, subset_size=7),
}
THOMPSON: dict[str, Callable[..., Any]] = {
    "thompson": _make(ThompsonSampling, True, batch_size=3),
    "thompson-inferred": _make(
        ThompsonSampling, False, batch_size=3, refit=RefitSchedule(every=3)
    ),
}


def _regions(**kwargs: Any) -> Callable[..., Any]:
    def build(**overrides: Any) -> Strategy:
        small = {"bounds": BOUNDS, "batch_size": 3, "num_candidates": 50}
        return TrustRegionBBKB(**small | {"num_initial": 4} | kwargs | overrides)

    return build


REGIONS: dict[str, Callable[..., Any]] = {
    "regions": _regions(max_inducing_points=6),
    "regions-two": _regions(num_regions=2),
    "regions-ucb": _regions(
        acquisition="ucb", rule="global-local", covar_module=make_kernel(), lam=LAM
    ),
}
TABLE = {
    **KNOWN,
    **INFERRED,
    **SUBSET,
    **THOMPSON,
    **REGIONS,
    "random": _random,
}
