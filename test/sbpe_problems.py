"""Functions of known RKHS norm, and a table of small S-BPE runs for the tests."""

from collections.abc import Callable
from typing import Any

import oracles
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.strategies import SBPE, Strategy

LAM, NOISE = 1e-2, 0.05
UNIT_BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
# Kernel, noise, mean and scale are fitted to a first batch.
INFERS: dict[str, Any] = {"covar_module": None, "lam": None, "noise_std": None}
CASES: dict[str, dict[str, Any]] = {
    "table": {},
    "every": {"refresh": "every", "num_evaluations": 40},
    "exact": {"refresh": "exact", "num_evaluations": 60},
    "random": {"exploration": "random", "num_evaluations": 60},
    "doubling": {"schedule": "doubling", "num_evaluations": 60},
    "box": {"bounds": UNIT_BOX, "num_evaluations": 18, "raw_samples": 16},
    "box-random": {"bounds": UNIT_BOX, "exploration": "random", "num_evaluations": 40},
    "inferred": {**INFERS, "num_evaluations": 45},
    "inferred-box": {**INFERS, "bounds": UNIT_BOX, "num_evaluations": 18},
}
CASES["inferred-box"] |= {"raw_samples": 16, "schedule": [9, 4]}
for case in ("box", "box-random", "inferred-box"):
    CASES[case]["radius"] = FixedBeta(6.0)


def make_table(num: int = 200, seed: int = 0, **tkwargs: Any) -> Tensor:
    """`num x 2` points in the unit square."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(num, 2, generator=g, dtype=torch.float64)
    return X.to(**tkwargs) if tkwargs else X


def make_kernel(**tkwargs: Any) -> Kernel:
    """Matern-5/2, lengthscale 0.6."""
    return oracles.make_kernel("matern52", **tkwargs or {"dtype": torch.float64})


def rkhs_function(seed: int, norm: float = 1.0) -> Callable[[Tensor], Tensor]:
    """`sum_j a_j k(z_j, .)` with `a'Ka = norm^2`, from the dense kernel."""
    g = torch.Generator().manual_seed(1000 + seed)
    Z = torch.rand(15, 2, generator=g, dtype=torch.float64)
    a = torch.randn(15, generator=g, dtype=torch.float64)
    k = oracles.DENSE["matern52"]
    a = norm * a / (a @ k(Z, Z) @ a).sqrt()
    return lambda X: (k(X.double().cpu(), Z) @ a).to(X)


def with_noise(
    f: Callable[[Tensor], Tensor], seed: int, std: float = NOISE
) -> Callable[[Tensor], Tensor]:
    """The function with Gaussian noise."""
    g = torch.Generator().manual_seed(seed)

    def evaluate(X: Tensor) -> Tensor:
        noise = torch.randn(len(X), generator=g, dtype=torch.float64)
        return f(X) + std * noise.to(X)

    return evaluate


def play(
    strategy: Strategy, f: Callable[[Tensor], Tensor], num_batches: int = 1
) -> Any:
    """Ask for whole batches, and tell them; the strategy."""
    for _ in range(num_batches):
        batch = strategy.ask()
        strategy.tell(batch, f(batch.X))
    return strategy


def arguments(**overrides: Any) -> dict[str, Any]:
    """A small run on a table."""
    plain: dict[str, Any] = {
        "num_evaluations": 120,
        "lam": LAM,
        "noise_std": NOISE,
        "norm_bound": 1.0,
        "delta": 0.1,
    }
    if "bounds" not in overrides:
        plain["candidates"] = make_table()
    plain["covar_module"] = make_kernel()
    return plain | overrides


def _build(case: str) -> Callable[..., SBPE]:
    return lambda **overrides: SBPE(**arguments(**CASES[case] | overrides))


TABLE = {case: _build(case) for case in CASES}
objective = rkhs_function(0)
