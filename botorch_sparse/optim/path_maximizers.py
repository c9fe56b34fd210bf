r"""The candidates where sample paths of a Nystrom posterior are largest.

A draw `g` of the prior by random Fourier features becomes one of the posterior by an
update at the inducing points ([Wilson2020]_, [VakiliMPD2021]_ Section 4.1):

.. math:: f(x) = c(x) + g(x) + k_S(x)^\top L^{-\top} \big( z - L^{-1} g(S) \big),
    \qquad z = L_B^{-\top} (a + \varepsilon), \quad \varepsilon \sim N(0, I).

Its mean is the posterior's, and its covariance too, but for the kernel of the residual,
which is that of the features.
"""

import copy
from collections.abc import Callable

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.sampling.pathwise.features import gen_kernel_features
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.optim.candidate_pool import CandidatePool
from botorch_sparse.optim.choosable import ALL, Choosable
from botorch_sparse.posteriors import NystromPosterior

NUM_FEATURES = 1024
# Candidates at a time, whose features are few enough for the cache.
ROWS = 2048


@torch.no_grad()
def path_maximizers(
    pool: CandidatePool,
    num_paths: int,
    choosable: Choosable = ALL,
    *,
    num_features: int = NUM_FEATURES,
) -> list[int]:
    """One candidate for each of some sample paths, in one pass over the pool.

    Randomness is torch's own: call it within `manual_seed`.

    Args:
        pool: An embedded pool of `A` candidates; its kernel is a `RBFKernel` or
            `MaternKernel`, scaled or not.
        num_paths: How many paths.
        choosable: Which candidates may be chosen; where each only once, a path whose
            maximizer is taken gives the best of what is left.
        num_features: Random features of the prior, even.

    Returns:
        At most `num_paths` candidates, fewer where no more may be chosen. Cost:
        O(A (m + num_features)) for each path, O(A d num_features) for all.

    Raises:
        UnsupportedError: For a kernel without random features.
    """
    posterior = pool.posterior
    if posterior is None:
        raise InputDataError("The pool has no posterior yet; update it first.")
    prior, beta = _paths(posterior, num_paths, num_features)
    depth = num_paths if choosable.once else 1
    mean = choosable.mean(posterior.mean_module(pool.X))
    tops = []
    for start in range(0, len(pool), ROWS):
        rows = slice(start, min(start + ROWS, len(pool)))
        f = prior(pool.X[rows]) + beta @ pool.cross_covariance(rows) + mean[rows]
        values, place = f.topk(min(depth, f.shape[-1]))
        tops.append((values, place + start))
    values = torch.cat([top for top, _ in tops], dim=-1)
    index = torch.cat([place for _, place in tops], dim=-1)
    best, order = values.topk(min(depth, values.shape[-1]))
    ranked = index.gather(-1, order)
    return _choose(best.tolist(), ranked.tolist())


def _choose(values: list[list[float]], ranked: list[list[int]]) -> list[int]:
    """The best of each path, of those not taken where there are more than one."""
    chosen: list[int] = []
    for path, candidates in zip(values, ranked, strict=True):
        for value, index in zip(path, candidates, strict=True):
            if value > -torch.inf and (len(path) == 1 or index not in chosen):
                chosen.append(index)
                break
    return chosen


def _paths(
    posterior: NystromPosterior, num_paths: int, num_features: int
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Draws of the prior, as a function of `q x d` points, and weights of `k_S(x)`.

    The first is float32 inside: what it rounds is below what a draw leaves open, for
    points near the inducing points. All is drawn on the host, alike for all devices.
    """
    S, L = posterior.inducing_points, posterior.chol_inducing
    features = _feature_map(posterior.covar_module, S.shape[-1], num_features)
    omega = torch.randn(num_paths, num_features, dtype=torch.float32).to(S.device)
    noise = torch.randn(num_paths, len(S), dtype=S.dtype).to(S.device)
    center = S.mean(0)

    def prior(X: Tensor) -> Tensor:
        return (omega @ features((X - center).float()).mT).to(X.dtype)

    z = torch.linalg.solve_triangular(
        posterior.chol_inner, posterior.weights + noise, upper=False, left=False
    )
    g_S = torch.linalg.solve_triangular(L, prior(S).mT, upper=False).mT
    beta = torch.linalg.solve_triangular(L, z - g_S, upper=False, left=False)
    return prior, beta


def _feature_map(
    covar_module: Kernel, dim: int, num_features: int
) -> Callable[[Tensor], Tensor]:
    """Random features of a stationary kernel, float32."""
    kernel = copy.deepcopy(covar_module).float().cpu().requires_grad_(False)
    device = next(covar_module.parameters()).device
    try:
        features = gen_kernel_features(kernel, num_inputs=dim, num_outputs=num_features)
        return features.to(device)
    except NotImplementedError as error:
        raise UnsupportedError(
            f"Got {type(covar_module).__name__}, for which there are no random "
            "features; need RBFKernel or MaternKernel, in a ScaleKernel or not. "
            "Strategies with an upper confidence bound take any kernel."
        ) from error
