"""GP-UCB with the exact posterior."""

from typing import Any, Unpack

from gpytorch.kernels import Kernel

from botorch_sparse.acquisition.confidence import Constants
from botorch_sparse.argument_checks import check_keywords
from botorch_sparse.batching.rules import Single
from botorch_sparse.strategies.guarantees import (
    exact_radius,
    num_outcomes_of,
    radius_of,
)
from botorch_sparse.strategies.model_strategy import OneOrEach
from botorch_sparse.strategies.ucb import Repeat, UCBOptions, UCBStrategy


class GPUCB(UCBStrategy):
    r"""Exact GP-UCB [Srinivas2010]_.

    The limit of `BKB` with all evaluated points inducing. The information gain in the
    radius is the running log-determinant (the self-normalized bound that
    [Calandriello2020]_ Theorem 2 refines), not a worst case over all sets.

    Cost on a table: O(A n) time for each evaluation and O(A n) memory, with `n` unique
    points. On a continuous domain: O(n^3) time for each evaluation.

    With `constants="theory"` the radius comes from [Chowdhury2017]_ Theorem 2 with the
    gain of the evaluated points themselves: with probability :math:`1 - \delta` it
    holds for all evaluations and all points, if `norm_bound` and `noise_variance` are
    true. It needs no horizon, and sets prior mean zero.

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
        repeat: See `UCBStrategy`.
        constants: `"practical"`, from the papers' experiments, or `"theory"`.
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
        *,
        repeat: Repeat | None = None,
        constants: Constants = "practical",
        **options: Unpack[UCBOptions],
    ) -> None:
        check_keywords(options, UCBOptions.__annotations__, type(self))
        radius = radius_of(
            exact_radius(constants),
            covar_module,
            constants,
            norm_bound,
            noise_variance,
            delta,
            num_outcomes=num_outcomes_of(options),
        )
        super().__init__(
            candidates,
            covar_module,
            lam,
            rule=Single(),
            sampler=None,
            default_radius=radius,
            repeat=repeat,
            **options,
        )
