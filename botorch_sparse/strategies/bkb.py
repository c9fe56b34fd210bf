"""Budgeted kernelized bandits."""

from typing import Any, Unpack

from gpytorch.kernels import Kernel

from botorch_sparse.acquisition.confidence import BBKBRadius, BKBRadius, Constants
from botorch_sparse.argument_checks import check_keywords
from botorch_sparse.batching.rules import Single
from botorch_sparse.inducing import InducingPointSampler
from botorch_sparse.pools.nystrom_pool import MAX_MEMORY
from botorch_sparse.strategies.guarantees import (
    NOISE,
    num_outcomes_of,
    radius_of,
    samplers_of,
)
from botorch_sparse.strategies.model_strategy import OneOrEach
from botorch_sparse.strategies.ucb import Repeat, UCBOptions, UCBStrategy


class BKB(UCBStrategy):
    r"""GP-UCB on a Nystrom posterior, one point at a time [Calandriello2019]_.

    Algorithm 1: after every evaluation the inducing set is drawn anew, with
    probabilities in proportion to the posterior variance. Use `BBKB` unless feedback
    must come after every single point: it draws the set once a batch.

    Cost: O((A + n) m^2) for each evaluation.

    With `constants="theory"` it has what is proved, as `BBKB` has, at a threshold of
    one: the radius of [Calandriello2020]_ Theorem 2, which improves on
    [Calandriello2019]_ by a logarithm and takes no bound of the kernel, and the
    oversampling of the latter's Theorem 1, with which `m` becomes large.

    The theorems are about feedback that is taken as it is: none covers `robust=True`.

    Args:
        candidates: `A x d` points to choose from; or give `bounds`.
        covar_module: The kernel; see `UCBStrategy`.
        lam: The regularizer lambda, as the posterior's noise variance, positive.
        noise_variance: Variance of the feedback's noise, for the radius; 1e-4 by
            default. With a kernel alone, as the next two; without one give `radius`.
        norm_bound: Bound on the RKHS norm of the objective, for the radius; 1 by
            default.
        delta: Failure probability of the radius, in (0, 1); 1e-3 by default.
        oversampling: The papers' q-bar, see `PosteriorVarianceSampler`: 2 by default;
            with theory constants what they ask for, or more.
        sampler: A sampler of inducing points of one's own in place of
            `PosteriorVarianceSampler(oversampling)`.
        initial_sampler: See `Surrogate`.
        max_memory: Bytes that the candidates' features may take before they are
            streamed.
        repeat: See `UCBStrategy`.
        constants: `"practical"`, from the paper's experiments, or `"theory"`.
        num_evaluations: The horizon T, with theory constants alone.
        **options: Keyword arguments of `UCBStrategy`, such as `seed` and `radius`.
    """

    def __init__(
        self,
        candidates: Any = None,
        covar_module: OneOrEach[Kernel] = None,
        lam: OneOrEach[float] = None,
        noise_variance: float | None = None,
        norm_bound: float | None = None,
        delta: float | None = None,
        oversampling: float | None = None,
        *,
        sampler: InducingPointSampler | None = None,
        initial_sampler: InducingPointSampler | None = None,
        max_memory: int = MAX_MEMORY,
        repeat: Repeat | None = None,
        constants: Constants = "practical",
        num_evaluations: int | None = None,
        **options: Unpack[UCBOptions],
    ) -> None:
        check_keywords(options, UCBOptions.__annotations__, type(self))
        num_outcomes = num_outcomes_of(options)
        sampler, initial_sampler = samplers_of(
            constants,
            num_evaluations,
            delta,
            oversampling,
            sampler,
            initial_sampler,
            num_outcomes,
        )
        radius = radius_of(
            BBKBRadius if constants == "theory" else BKBRadius,
            covar_module,
            constants,
            norm_bound,
            noise_variance,
            delta,
            noise_share=NOISE,
            num_outcomes=num_outcomes,
        )
        super().__init__(
            candidates,
            covar_module,
            lam,
            rule=Single(),
            default_radius=radius,
            sampler=sampler,
            initial_sampler=initial_sampler,
            max_memory=max_memory,
            repeat=repeat,
            num_evaluations=num_evaluations,
            **options,
        )
