"""Batch budgeted kernelized bandits."""

from typing import Any, Literal, Unpack, get_args

from gpytorch.kernels import Kernel

from botorch_sparse.acquisition.confidence import BBKBRadius
from botorch_sparse.acquisition.ratios import LocalBound, validate_local_bound
from botorch_sparse.doors import check_choice
from botorch_sparse.inducing import InducingPointSampler, PosteriorVarianceSampler
from botorch_sparse.optim.pool import MAX_MEMORY
from botorch_sparse.optim.rules import Rule, rule_of
from botorch_sparse.strategies.ucb import Repeat, UCBOptions, UCBStrategy, parts_of

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

    On a continuous domain (`bounds`) each point of a batch comes from `optimize_acqf`,
    at O(m^2) for each point that it looks at; without a kernel all hyperparameters are
    inferred.

    Args:
        candidates: `A x d` points to choose from; or give `bounds`.
        covar_module: The kernel; see `UCBStrategy`.
        lam: The regularizer lambda, as the posterior's noise variance, positive.
        noise_variance: Variance of the feedback's noise, for the radius.
        norm_bound: Bound on the RKHS norm of the objective, for the radius.
        delta: Failure probability of the radius, in (0, 1).
        oversampling: The papers' q-bar; see `PosteriorVarianceSampler`.
        ratio_threshold: The papers' C-tilde, at least one; one gives batches of one.
        termination: `"global"` for the sum rule (Lemma 1), `"global-local"` for the sum
            until it crosses and the local rule (Lemma 3) from there: larger batches.
        rule: A rule of one's own in place of the last two: an object with `bound` and
            `ratio_threshold`, such as those of `botorch_sparse.optim.rules`, or a short
            name.
        sampler: A sampler of inducing points of one's own in place of
            `PosteriorVarianceSampler(oversampling)`.
        local_bound: See `Local`.
        initial_sampler: See `Surrogate`.
        max_memory: Bytes that the candidates' features may take before they are
            streamed.
        repeat: See `UCBStrategy`.
        **options: Keyword arguments of `UCBStrategy`, such as `seed`, `radius`,
            `bounds` and `min_batch_width`.

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
        candidates: Any = None,
        covar_module: Kernel | None = None,
        lam: float | None = None,
        noise_variance: float = 1e-4,
        norm_bound: float = 1.0,
        delta: float = 1e-3,
        oversampling: float = 2.0,
        ratio_threshold: float = 2.0,
        termination: Termination = "global-local",
        *,
        rule: Rule | str | None = None,
        sampler: InducingPointSampler | None = None,
        local_bound: LocalBound = "both",
        initial_sampler: InducingPointSampler | None = None,
        max_memory: int = MAX_MEMORY,
        repeat: Repeat | None = None,
        **options: Unpack[UCBOptions],
    ) -> None:
        check_choice("termination", termination, get_args(Termination))
        validate_local_bound(local_bound)
        parts = parts_of(
            candidates,
            covar_module,
            lam,
            rule_of(rule or termination, ratio_threshold, local_bound),
            BBKBRadius(norm_bound, noise_variance, delta),
            repeat,
            options,
        )
        super().__init__(
            **parts,
            sampler=sampler or PosteriorVarianceSampler(oversampling),
            initial_sampler=initial_sampler,
            max_memory=max_memory,
        )
