"""Data and dense checks shared by the tests of the samplers of inducing points."""

import gzip
import importlib.resources
import io
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_sparse.inducing import InducingPointSampler


def clustered(n: int, **tkwargs: Any) -> Tensor:
    """Twelve clusters in three dimensions, each half as likely as the one before."""
    g = torch.Generator().manual_seed(0)
    centres = torch.rand(12, 3, generator=g, dtype=torch.float64)
    weights = 2.0 ** -torch.arange(12.0)
    cluster = torch.multinomial(weights, n, replacement=True, generator=g)
    noise = 0.03 * torch.randn(n, 3, generator=g, dtype=torch.float64)
    return (centres[cluster] + noise).to(**tkwargs)


def abalone(rows: int | None = None) -> Tensor:
    file = importlib.resources.files("botorch_sparse") / "data" / "abalone.csv.gz"
    text = gzip.decompress(file.read_bytes()).decode()
    table = np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1)[:rows, :-1]
    return torch.tensor((table - table.mean(0)) / table.std(0))


def rbf(lengthscale: float, **tkwargs: Any) -> RBFKernel:
    kernel = RBFKernel().to(**tkwargs)
    kernel.lengthscale = lengthscale
    return kernel.requires_grad_(False)


def draw(
    sampler: InducingPointSampler, X: Tensor, noise: Tensor, seed: int, ls: float = 0.3
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    kernel = rbf(ls, dtype=X.dtype, device=X.device)
    return sampler(kernel, X, noise, generator=generator)


def _scaled(K: Tensor, index: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """`D^-1/2 K D^-1/2` and `n x m` features of its Nystrom approximation."""
    K, noise, index = K.cpu().double(), noise.cpu().double(), index.cpu()
    eigenvalues, U = torch.linalg.eigh(K[index][:, index])
    keep = eigenvalues > 1e-14 * eigenvalues[-1:].sum()
    root = noise.sqrt().unsqueeze(-1)
    features = K[:, index] @ (U[:, keep] / eigenvalues[keep].sqrt()) / root
    return K / root / root.mT, features


def residual(K: Tensor, index: Tensor, noise: Tensor) -> Tensor:
    """`D^-1/2 (K - Q) D^-1/2`, with the pseudo-inverse of `K_SS`, densely."""
    scaled, features = _scaled(K, index, noise)
    return scaled - features @ features.mT


def largest_gap(K: Tensor, index: Tensor, noise: Tensor) -> float:
    """`lambda_max(D^-1/2 (K - Q) D^-1/2)`."""
    return torch.linalg.eigvalsh(residual(K, index, noise))[-1].item()


def is_accurate(K: Tensor, index: Tensor, noise: Tensor) -> bool:
    """Whether that eigenvalue is below one.

    So it is if the trace is, and otherwise if `I - E` has a Cholesky factor.
    """
    scaled, features = _scaled(K, index, noise)
    if scaled.trace() - features.square().sum() < 1.0:
        return True
    E = scaled - features @ features.mT
    return torch.linalg.cholesky_ex(torch.eye(len(E)).to(E) - E).info.item() == 0


def effective_dimension(K: Tensor, noise: Tensor) -> float:
    """`tr K (K + D)^-1`."""
    return torch.linalg.solve(K + noise.diag(), K).trace().item()


def brute_force(gradients: Tensor, num: int, forced: list[int]) -> list[int]:
    """Eq. 1's greedy, one candidate at a time."""
    directions = [g / g.norm() for g in gradients.double().cpu()]
    chosen = list(forced)
    while len(chosen) < num:
        scores = {
            i: sum(float(directions[i] @ directions[j]) for j in chosen)
            for i in range(len(directions))
            if i not in chosen
        }
        chosen.append(min(scores, key=lambda i: (round(scores[i], 12), i)))
    return chosen
