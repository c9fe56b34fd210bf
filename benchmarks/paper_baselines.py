"""The simple methods that the BBKB paper compares with; for benchmarks only.

References:
    .. [Kandasamy2018]
        K. Kandasamy, A. Krishnamurthy, J. Schneider and B. Poczos. Parallelised
        Bayesian optimisation via Thompson sampling. AISTATS 2018.
    .. [Real2019]
        E. Real, A. Aggarwal, Y. Huang and Q. V. Le. Regularized evolution for image
        classifier architecture search. AAAI 2019.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    BBKBRadius,
    FixedBeta,
    RadiusStatistics,
)
from botorch_sparse.strategies import BKB
from botorch_sparse.strategies.core.strategy import Strategy


class EpsilonGreedy(Strategy):
    r"""A uniform candidate with probability :math:`t^{-1/3}`, else the largest mean.

    The mean is BKB's. The paper does not say which schedule it used.

    Args:
        candidates: `A x d` points.
        seed: Seed.
        **arguments: Those of `BKB`.
    """

    def __init__(self, candidates: Tensor, *, seed: int = 0, **arguments: Any) -> None:
        super().__init__(candidates, seed=seed)
        self.greedy = BKB(candidates, radius=FixedBeta(0.0), seed=seed, **arguments)

    def _learn(self) -> None:
        new = slice(self._num_learned, None)
        self.greedy.tell(self.history.X[new], self.history.Y[new])
        super()._learn()

    def _select(self, max_batch_size: int | None) -> list[int]:
        t = len(self.history) + 1
        if float(torch.rand((), generator=self.generator)) < t ** (-1 / 3):
            number = len(self.candidates)
            return torch.randint(number, (1,), generator=self.generator).tolist()
        indices: list[int] = self.greedy.ask(1).indices.tolist()
        return indices


class ThompsonSampling(Strategy):
    r"""Batches of maximizers of posterior samples [Kandasamy2018]_, RBF kernels only.

    A sample is :math:`\mu + \beta (g - \mu) / 10` with `g` from the exact posterior:
    a draw of the prior through random Fourier features, corrected by the data
    (Matheron's rule). The factor is the practical radius of the exact posterior, a
    tenth of it as in the paper.

    Args:
        candidates: `A x d` points.
        covar_module: The kernel.
        lam: Noise variance.
        radius: What is divided by ten.
        batch_size: Points in each batch.
        num_features: Random Fourier features of a draw.
        seed: Seed.
    """

    def __init__(
        self,
        candidates: Tensor,
        *,
        covar_module: RBFKernel,
        lam: float,
        radius: BBKBRadius,
        batch_size: int = 30,
        num_features: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__(candidates, seed=seed)
        self.covar_module = covar_module
        self.lam, self.radius = lam, radius
        self.batch_size = batch_size
        half = num_features // 2
        g, d = self.generator, candidates.shape[-1]
        frequency = torch.randn(d, half, generator=g, dtype=candidates.dtype)
        angles = candidates @ (frequency.to(candidates) / covar_module.lengthscale.mT)
        # cos and sin of the same frequencies: k(x, x) = 1 without error
        self._prior = torch.cat([angles.cos(), angles.sin()], -1) / math.sqrt(half)

    @torch.no_grad()
    def _select(self, max_batch_size: int | None) -> list[int]:
        size = min(self.batch_size, max_batch_size or self.batch_size)
        g, prior = self.generator, self._prior
        if len(self.history) == 0:
            return torch.randint(len(prior), (size,), generator=g).tolist()
        weights = torch.randn(prior.shape[-1], size, generator=g, dtype=prior.dtype)
        draws = prior @ weights.to(prior)
        rows, Y, noise = self._folded()
        K = self.covar_module(self.candidates[rows]).to_dense()
        L = torch.linalg.cholesky(K + torch.diag(noise))
        error = torch.randn(len(rows), size, generator=g, dtype=prior.dtype)
        observed = draws[rows] + noise.sqrt().unsqueeze(-1) * error.to(prior)
        # One solve for the mean and for the correction of every draw.
        targets = torch.cat([Y.unsqueeze(-1), observed], -1)
        cross = self.covar_module(self.candidates, self.candidates[rows]).to_dense()
        smooth = cross @ torch.cholesky_solve(targets, L)
        mean, deviation = smooth[:, :1], draws - smooth[:, 1:]
        samples = mean + self._factor(L, noise) / 10 * deviation
        return samples.argmax(0).tolist()

    def _folded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Unique rows, their mean feedback and its noise variance."""
        rows, inverse, counts = self.history.indices.unique(
            return_inverse=True, return_counts=True
        )
        total = torch.zeros(len(rows), dtype=torch.float64)
        total.index_add_(0, inverse, self.history.Y.double().cpu())
        Y, noise = total / counts, self.lam / counts
        device = self.candidates.device
        return rows.to(device), Y.to(self.candidates), noise.to(self.candidates)

    def _factor(self, L: Tensor, noise: Tensor) -> float:
        """The radius of the exact posterior, from `log det(I + K D^-1)`."""
        log_det = float(2 * L.diagonal().log().sum() - noise.log().sum())
        return self.radius.multiplier(
            RadiusStatistics(lam=self.lam, log_det_sum=max(0.0, log_det))
        )


class RegularizedEvolution(Strategy):
    """The best of a sample of the youngest, mutated [Real2019]_.

    The population is the latest `population` evaluations, so that the oldest dies when
    a child is born.

    Args:
        candidates: `A x d` points.
        mutate: From a row and a generator to a neighbouring row.
        population: Its size; so many random candidates come first.
        sample: Of how many the parent is the best.
        seed: Seed.
    """

    def __init__(
        self,
        candidates: Tensor,
        mutate: Callable[[int, torch.Generator], int],
        *,
        population: int = 100,
        sample: int = 10,
        seed: int = 0,
    ) -> None:
        super().__init__(candidates, seed=seed)
        self.mutate = mutate
        self.population, self.sample = population, sample

    def _select(self, max_batch_size: int | None) -> list[int]:
        g, n = self.generator, len(self.history)
        if n < self.population:
            return torch.randint(len(self.candidates), (1,), generator=g).tolist()
        young = torch.randperm(self.population, generator=g)[: self.sample]
        alive = (n - self.population + young).tolist()
        parent = max(alive, key=lambda i: float(self.history.values[i]))
        return [self.mutate(int(self.history.point[parent]), g)]
