"""Batch GP-UCB with the exact posterior and adaptive batches."""

from typing import Any, Literal, Unpack

from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel

from botorch_sparse.acquisition.confidence import Constants
from botorch_sparse.argument_checks import check_keywords
from botorch_sparse.batching.rules import Global, Product, Rule, rule_of
from botorch_sparse.strategies.guarantees import (
    exact_radius,
    num_outcomes_of,
    radius_of,
)
from botorch_sparse.strategies.model_strategy import OneOrEach
from botorch_sparse.strategies.ucb import Repeat, UCBOptions, UCBStrategy

RULES: dict[str, type[Product] | type[Global]] = {"product": Product, "sum": Global}


class GPBUCB(UCBStrategy):
    r"""Exact GP-UCB in adaptive batches (GP-AUCB of [Desautels2014]_).

    The mean stands still within a batch and variances are hallucinated. The batch ends
    by the product rule of [Desautels2014]_, or by the sum rule that
    [Calandriello2020]_ (Lemma 4) puts in its place, whose batches are never shorter.

    Cost on a table: O(A n) time for each evaluation and O(A n) memory, with `n` unique
    points. On a continuous domain: O(n^3) time for each batch.

    With `constants="theory"` the radius comes from [Chowdhury2017]_ Theorem 2 with the
    gain of the evaluated points themselves: with probability :math:`1 - \delta` it
    holds for all evaluations and all points, if `norm_bound` and `noise_variance` are
    true. It needs no horizon, and sets prior mean zero. The factor of
    batches is the root of the threshold.

    Args:
        candidates: `A x d` points to choose from; or give `bounds`.
        covar_module: The kernel; see `UCBStrategy`.
        lam: The regularizer lambda, as the posterior's noise variance, positive.
        noise_variance: Variance of the feedback's noise, for the radius; 1e-4 by
            default. With a kernel alone, as the next two; without one give `radius`.
        norm_bound: Bound on the RKHS norm of the objective, for the radius; 1 by
            default.
        delta: Failure probability of the radius, in (0, 1); 1e-3 by default.
        ratio_threshold: Largest ratio of variances within a batch, at least one.
        rule: `"product"`, `"sum"`, or an object; see `BBKB`.
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
        ratio_threshold: float = 2.0,
        rule: Literal["product", "sum"] | Rule = "product",
        *,
        repeat: Repeat | None = None,
        constants: Constants = "practical",
        **options: Unpack[UCBOptions],
    ) -> None:
        check_keywords(options, UCBOptions.__annotations__, type(self))
        if isinstance(rule, str):
            if rule not in RULES:
                raise InputDataError(f"Got rule={rule!r}; need one of {tuple(RULES)}.")
            rule = RULES[rule](ratio_threshold)
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
            rule=rule_of(rule, ratio_threshold),
            sampler=None,
            default_radius=radius,
            repeat=repeat,
            **options,
        )
