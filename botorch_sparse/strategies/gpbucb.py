"""Batch GP-UCB with the exact posterior and adaptive batches."""

from typing import Any, Literal

from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    BBKBRadius,
    ConfidenceRadius,
    RadiusStatistics,
)
from botorch_sparse.optim.termination import GlobalRule, ProductRule, TerminationRule
from botorch_sparse.strategies.surrogates import ExactSurrogate
from botorch_sparse.strategies.ucb import UCBStrategy, validate_lam

RULES: dict[str, type[ProductRule] | type[GlobalRule]] = {
    "product": ProductRule,
    "sum": GlobalRule,
}


class GPBUCB(UCBStrategy):
    r"""Exact GP-UCB in adaptive batches (GP-AUCB of [Desautels2014]_).

    The mean stands still within a batch and variances are hallucinated. The batch ends
    by the product rule of [Desautels2014]_, or by the sum rule that
    [Calandriello2020]_ (Lemma 4) puts in its place, whose batches are never shorter.

    Cost: O(A n) time for each evaluation and O(A n) memory, with `n` unique points.

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel; its hyperparameters stay as they are.
        lam: The regularizer lambda, as the posterior's noise variance, positive.
        noise_variance: Variance of the feedback's noise, for the radius.
        norm_bound: Bound on the RKHS norm of the objective, for the radius.
        delta: Failure probability of the radius, in (0, 1).
        ratio_threshold: Largest ratio of variances within a batch, at least one.
        rule: `"product"` or `"sum"`.
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
        ratio_threshold: float = 2.0,
        rule: Literal["product", "sum"] = "product",
        *,
        radius: ConfidenceRadius | None = None,
        seed: int = 0,
    ) -> None:
        validate_lam(lam)
        if rule not in RULES:
            raise InputDataError(f"Got rule={rule!r}; need one of {tuple(RULES)}.")
        super().__init__(
            candidates,
            surrogate=ExactSurrogate(candidates, covar_module, lam),
            radius=radius or BBKBRadius(norm_bound, noise_variance, delta),
            statistics=RadiusStatistics(lam=lam, ratio_threshold=ratio_threshold),
            seed=seed,
        )
        self.rule = rule

    def _rule(self) -> TerminationRule | None:
        lam, threshold = self.statistics.lam, self.statistics.ratio_threshold
        return RULES[self.rule](self.surrogate.pool, lam, threshold)

    def _config(self) -> dict[str, Any]:
        return super()._config() | {"rule": self.rule}
