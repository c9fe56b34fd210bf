"""GP-UCB with the exact posterior."""

from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    BBKBRadius,
    ConfidenceRadius,
    RadiusStatistics,
)
from botorch_sparse.optim.termination import TerminationRule
from botorch_sparse.strategies.surrogates import ExactSurrogate
from botorch_sparse.strategies.ucb import UCBStrategy, validate_lam


class GPUCB(UCBStrategy):
    r"""Exact GP-UCB on a table of candidates [Srinivas2010]_.

    The limit of `BKB` with all evaluated points inducing. The information gain in the
    radius is the running log-determinant (the self-normalized bound that
    [Calandriello2020]_ Theorem 2 refines), not a worst case over all sets.

    Cost: O(A n) time for each evaluation and O(A n) memory, with `n` unique points.

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel; its hyperparameters stay as they are.
        lam: The regularizer lambda, as the posterior's noise variance, positive.
        noise_variance: Variance of the feedback's noise, for the radius.
        norm_bound: Bound on the RKHS norm of the objective, for the radius.
        delta: Failure probability of the radius, in (0, 1).
        radius: A confidence radius in place of the practical one.
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
        *,
        radius: ConfidenceRadius | None = None,
        seed: int = 0,
    ) -> None:
        validate_lam(lam)
        super().__init__(
            candidates,
            surrogate=ExactSurrogate(candidates, covar_module, lam),
            radius=radius or BBKBRadius(norm_bound, noise_variance, delta),
            statistics=RadiusStatistics(lam=lam),
            seed=seed,
        )

    def _rule(self) -> TerminationRule | None:
        return None
