"""Batch budgeted kernelized bandits."""

from typing import Any, Literal, get_args

from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    BBKBRadius,
    ConfidenceRadius,
    RadiusStatistics,
)
from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.optim.candidate_pool import MAX_MEMORY
from botorch_sparse.optim.termination import (
    GlobalLocalRule,
    GlobalRule,
    LocalBound,
    TerminationRule,
    validate_local_bound,
)
from botorch_sparse.strategies.surrogates import NystromSurrogate
from botorch_sparse.strategies.ucb import UCBStrategy, validate_lam

Termination = Literal["global", "global-local"]


class BBKB(UCBStrategy):
    r"""Batch GP-UCB in near-linear time with a regret guarantee [Calandriello2020]_.

    Algorithm 1: inside a batch feedback and inducing set stand still and variances
    shrink by rank-one updates; a batch ends when a bound on the ratio
    :math:`\mathrm{var}_{fb}(x) / \mathrm{var}_t(x)` crosses `ratio_threshold`; then the
    inducing set is drawn anew from the evaluated points, with probabilities in
    proportion to their variance before the feedback.

    Use it for thousands of evaluations over thousands to millions of candidates. `BKB`
    is its limit of one point at a time, `GPBUCB` its limit of all points inducing.

    Cost, with `A` candidates and `m` inducing points: O(A m^2) for each batch, and for
    each point of it O(m) for every candidate within reach of the maximum (`"global"`);
    `"global-local"` adds a few passes of O(A m) over all candidates for each batch.

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel; its hyperparameters stay as they are.
        lam: The regularizer lambda, as the posterior's noise variance, positive.
        noise_variance: Variance of the feedback's noise, for the radius.
        norm_bound: Bound on the RKHS norm of the objective, for the radius.
        delta: Failure probability of the radius, in (0, 1).
        oversampling: The papers' q-bar; see `PosteriorVarianceSampler`.
        ratio_threshold: The papers' C-tilde, at least one; one gives batches of one.
        termination: `"global"` for the sum rule (Lemma 1), `"global-local"` for the sum
            until it crosses and the local rule (Lemma 3) from there: larger batches.
        local_bound: See `GlobalLocalRule`.
        radius: A confidence radius in place of the practical one of Theorem 2.
        max_memory: Bytes that the candidates' features may take before they are
            streamed.
        seed: Seed of the strategy's generator.

    Example:
        >>> import torch, gpytorch
        >>> X = torch.linspace(0, 1, 100, dtype=torch.float64).unsqueeze(-1)
        >>> strategy = BBKB(
        ...     X, covar_module=gpytorch.kernels.RBFKernel().double(), lam=1e-2
        ... )
        >>> history = strategy.run(
        ...     lambda X: -(X - 0.3).square(), 20, progress=False
        ... )
        >>> len(history)
        20
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
        ratio_threshold: float = 2.0,
        termination: Termination = "global-local",
        *,
        local_bound: LocalBound = "both",
        radius: ConfidenceRadius | None = None,
        max_memory: int = MAX_MEMORY,
        seed: int = 0,
    ) -> None:
        validate_lam(lam)
        validate_local_bound(local_bound)
        if termination not in get_args(Termination):
            raise InputDataError(
                f"Got termination={termination!r}; need one of {get_args(Termination)}."
            )
        super().__init__(
            candidates,
            surrogate=NystromSurrogate(
                candidates,
                covar_module,
                lam,
                PosteriorVarianceSampler(oversampling),
                max_memory=max_memory,
            ),
            radius=radius or BBKBRadius(norm_bound, noise_variance, delta),
            statistics=RadiusStatistics(lam=lam, ratio_threshold=ratio_threshold),
            seed=seed,
        )
        self.oversampling = oversampling
        self.max_memory = max_memory
        self.termination = termination
        self.local_bound = local_bound

    def _rule(self) -> TerminationRule | None:
        pool, lam = self.surrogate.pool, self.statistics.lam
        threshold = self.statistics.ratio_threshold
        if self.termination == "global":
            return GlobalRule(pool, lam, threshold)
        return GlobalLocalRule(pool, lam, threshold, self.local_bound)

    def _config(self) -> dict[str, Any]:
        return super()._config() | {
            "oversampling": self.oversampling,
            "max_memory": self.max_memory,
            "termination": self.termination,
            "local_bound": self.local_bound,
        }
