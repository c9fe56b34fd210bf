"""Budgeted kernelized bandits."""

from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    BKBRadius,
    ConfidenceRadius,
    RadiusStatistics,
)
from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.optim.candidate_pool import MAX_MEMORY
from botorch_sparse.optim.termination import TerminationRule
from botorch_sparse.strategies.surrogates import NystromSurrogate
from botorch_sparse.strategies.ucb import UCBStrategy, validate_lam


class BKB(UCBStrategy):
    r"""GP-UCB on a Nystrom posterior, one point at a time [Calandriello2019]_.

    Algorithm 1: after every evaluation the inducing set is drawn anew, with
    probabilities in proportion to the posterior variance. Use `BBKB` unless feedback
    must come after every single point: it draws the set once a batch.

    Cost: O((A + n) m^2) for each evaluation.

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel; its hyperparameters stay as they are.
        lam: The regularizer lambda, as the posterior's noise variance, positive.
        noise_variance: Variance of the feedback's noise, for the radius.
        norm_bound: Bound on the RKHS norm of the objective, for the radius.
        delta: Failure probability of the radius, in (0, 1).
        oversampling: The papers' q-bar; see `PosteriorVarianceSampler`.
        radius: A confidence radius in place of the practical one of Theorem 2.
        max_memory: Bytes that the candidates' features may take before they are
            streamed.
        seed: Seed of the strategy's generator.
    """

    def __init__(
        self,
        candidates: Tensor,
        covar_module: Kernel,
        lam: float = 1e-4,
        noise_variance: float = 1e-4,
        norm_bound: float = 1.0,
        delta: float = 1e-3,
        oversampling: float = 2.0,
        *,
        radius: ConfidenceRadius | None = None,
        max_memory: int = MAX_MEMORY,
        seed: int = 0,
    ) -> None:
        validate_lam(lam)
        super().__init__(
            candidates,
            surrogate=NystromSurrogate(
                candidates,
                covar_module,
                lam,
                PosteriorVarianceSampler(oversampling),
                max_memory=max_memory,
            ),
            radius=radius or BKBRadius(norm_bound, noise_variance, delta),
            statistics=RadiusStatistics(lam=lam),
            seed=seed,
        )
        self.oversampling = oversampling
        self.max_memory = max_memory

    def _rule(self) -> TerminationRule | None:
        return None

    def _config(self) -> dict[str, Any]:
        return super()._config() | {
            "oversampling": self.oversampling,
            "max_memory": self.max_memory,
        }
