"""The loops that GSSBO is compared with: one model each, all else alike.

Exact GP-UCB; low-rank with the first m samples as landmarks (Williams and Seeger,
2000); the sparse variational GP with the landmarks of BoTorch's improvement reduction
[Moss2023]_, at its optimal variational distribution, which has a closed form for
Gaussian noise; and low-rank with landmarks drawn by k-means++ in the kernel's feature
space [Oglic2017]_, the most of what [Wei2025]_ compares with.

References:
    .. [Moss2023]
        H. B. Moss, S. W. Ober and V. Picheny. Inducing point allocation for sparse
        Gaussian processes in high-throughput Bayesian optimisation. AISTATS 2023.
    .. [Oglic2017]
        D. Oglic and T. Gartner. Nystrom method with kernel k-means++ samples as
        landmarks. ICML 2017.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.exceptions import ModelFittingError
from botorch.exceptions.warnings import BotorchWarning
from botorch.models import SingleTaskGP
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.models.utils.inducing_point_allocators import GreedyImprovementReduction
from botorch.optim import optimize_acqf
from botorch.utils.sampling import manual_seed
from botorch.utils.transforms import normalize, unnormalize
from gpytorch.kernels import Kernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.gssbo_problems import Problem
from botorch_sparse.models import RefitSchedule, SparseSingleTaskGP

BETA = 4.0
REFIT_GROWTH = 1.2
OPTIMIZER_OPTIONS: dict[str, Any] = {
    "num_restarts": 1,
    "raw_samples": 256,
    "options": {"maxiter": 5, "sample_around_best": True},
    "retry_on_optimization_warning": False,
}
Landmarks = Callable[["Loop", Kernel], Tensor]


def matern(dim: int) -> Kernel:
    """The kernel of all methods: Matern-5/2 with BoTorch's priors."""
    return get_covar_module_with_dim_scaled_prior(dim, use_rbf_kernel=False)


class Loop:
    """BoTorch's UCB loop, one point at a time, in the unit cube.

    Args:
        problem: The problem.
        landmarks: Chooses inducing points; None for the exact GP.
        num: How many of them.
    """

    def __init__(
        self, problem: Problem, landmarks: Landmarks | None = None, num: int = 100
    ) -> None:
        self.problem, self.landmarks, self.num = problem, landmarks, num
        self.X = normalize(problem.initial(), problem.bounds)
        self.Y = problem.evaluate(problem.initial())
        self.unit_cube = normalize(problem.bounds, problem.bounds)
        self.generator = torch.Generator().manual_seed(problem.seed)
        self.schedule = RefitSchedule(growth=REFIT_GROWTH)
        self.state: dict[str, Tensor] | None = None
        self.model: SingleTaskGP | None = None
        self.num_failed = 0

    def step(self) -> tuple[float, float]:
        """Evaluate one more point; CPU and wall seconds but for the evaluation."""
        start, wall = time.process_time(), time.perf_counter()
        with manual_seed(len(self.X)), warnings.catch_warnings():
            warnings.simplefilter("ignore", category=BotorchWarning)
            self.model = self._fitted()
            x, _ = optimize_acqf(
                UpperConfidenceBound(self.model, BETA),
                bounds=torch.tensor([[0.0], [1.0]])
                .to(self.X)
                .expand(2, self.problem.dim),
                q=1,
                **OPTIMIZER_OPTIONS,
            )
        seconds = time.process_time() - start, time.perf_counter() - wall
        self.X = torch.cat([self.X, x])
        y = self.problem.evaluate(unnormalize(x, self.problem.bounds))
        self.Y = torch.cat([self.Y, y])
        return seconds

    def _fitted(self) -> SingleTaskGP:
        """A model of all data, its hyperparameters fitted anew where that is due."""
        model = self._build()
        if self.schedule.is_due(len(self.X)):
            self._fit(model)
            model = self._build()
        return model.eval()

    def _fit(self, model: SingleTaskGP) -> None:
        """Fit, or keep the hyperparameters where that fails, as the strategies do."""
        try:
            self.schedule.fit(ExactMarginalLogLikelihood(model.likelihood, model))
        except ModelFittingError:
            self.num_failed += 1
            self.schedule.record(len(self.X))
            return
        self.state = {k: p.detach().clone() for k, p in model.named_parameters()}

    @torch.no_grad()
    def _build(self) -> SingleTaskGP:
        """A model of all data under the hyperparameters of the last fit."""
        kernel = matern(self.problem.dim).to(self.X)
        if self.landmarks is None:
            return self._with_state(SingleTaskGP(self.X, self.Y, covar_module=kernel))
        first = SingleTaskGP(self.X[:1], self.Y[:1], covar_module=kernel)
        S = self.landmarks(self, self._with_state(first).covar_module)
        model = SparseSingleTaskGP(
            self.X, self.Y, covar_module=matern(self.problem.dim), inducing_points=S
        )
        return self._with_state(model)

    def _with_state(self, model: Any) -> Any:
        for name, parameter in model.named_parameters():
            if self.state is not None:
                parameter.copy_(self.state[name])
        return model


def first(loop: Loop, kernel: Kernel) -> Tensor:
    """The first m samples."""
    return loop.X[: loop.num]


def improvement_reduction(loop: Loop, kernel: Kernel) -> Tensor:
    """Greedy by quality and diversity, under the model of the step before."""
    if loop.model is None:
        return loop.X[: loop.num]
    allocator = GreedyImprovementReduction(loop.model, maximize=True)
    return allocator.allocate_inducing_points(
        loop.X, kernel, min(loop.num, len(loop.X)), torch.Size()
    )


def kmeans_plus_plus(loop: Loop, kernel: Kernel) -> Tensor:
    r"""Drawn with probability proportional to the squared distance to the nearest one.

    :math:`D^2(x) = \min_c k(x, x) + k(c, c) - 2 k(x, c)`; O(n m).
    """
    X, n = loop.X, len(loop.X)
    chosen = [int(torch.randint(n, (), generator=loop.generator))]
    k_diag = kernel(X, diag=True)
    nearest = torch.full_like(k_diag, torch.inf)
    while len(chosen) < min(loop.num, n):
        c = chosen[-1]
        cross = kernel(X, X[c : c + 1]).to_dense().squeeze(-1)
        distance = (k_diag + k_diag[c] - 2 * cross).clamp_min(0.0)
        nearest = torch.minimum(nearest, distance)
        nearest[c] = 0.0
        if not nearest.any():
            break
        chosen.append(int(torch.multinomial(nearest, 1, generator=loop.generator)))
    return X[chosen]


LANDMARKS: dict[str, Landmarks | None] = {
    "gp-ucb": None,
    "first-m": first,
    "svgp-ipa": improvement_reduction,
    "kmeans++": kmeans_plus_plus,
}
