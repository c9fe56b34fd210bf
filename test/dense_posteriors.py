"""Posteriors under an RBF kernel from unfolded data, by dense algebra in NumPy."""

import numpy as np
import torch
from torch import Tensor


def rbf(A: Tensor, B: Tensor, lengthscale: float | Tensor) -> np.ndarray:
    """All covariances of `A` and `B`, of one lengthscale or one for each column."""
    difference = (A.unsqueeze(-2) - B.unsqueeze(-3)) / lengthscale
    return torch.exp(-0.5 * difference.square().sum(-1)).numpy()


def dense_moments(
    X: Tensor,
    Y: Tensor,
    S: Tensor | None,
    Z: Tensor,
    lengthscale: float | Tensor,
    noise: float,
    *,
    has_constant: bool = True,
    rtol: float = 1e-12,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance at `Z`: exact, or DTC with inducing points `S`.

    With a constant, the prior mean is that of generalized least squares. Eigenvalues
    of `K_SS` below `rtol` are cut.
    """
    if len(X) == 0:
        return np.zeros(len(Z)), np.ones(len(Z))

    def k(A: Tensor, B: Tensor) -> np.ndarray:
        return rbf(A, B, lengthscale)

    q = k
    if S is not None:
        eigenvalues, V = np.linalg.eigh(k(S, S))
        keep = eigenvalues > rtol * eigenvalues.max()
        basis = V[:, keep] / np.sqrt(eigenvalues[keep])

        def q(A: Tensor, B: Tensor) -> np.ndarray:
            return (k(A, S) @ basis) @ (k(B, S) @ basis).T

    covariance = q(X, X) + noise * np.eye(len(X))
    gain = np.linalg.solve(covariance, q(X, Z)).T
    weights = np.linalg.solve(covariance, np.ones(len(X)))
    c = weights @ Y.numpy() / weights.sum() if has_constant else 0.0
    variance = 1.0 - (gain * q(Z, X)).sum(-1)
    return c + gain @ (Y.numpy() - c), variance
