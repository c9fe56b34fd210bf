"""Batch budgeted kernelized bandits."""

from typing import Any, Literal, Unpack, get_args

from gpytorch.kernels import Kernel

from botorch_sparse.acquisition.confidence import BBKBRadius, Constants
from botorch_sparse.acquisition.ratios import LocalBound, validate_local_bound
from botorch_sparse.argument_checks import check_choice, check_keywords
from botorch_sparse.batching.rules import Rule, rule_of
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

    **What is proved** comes with `constants="theory"`, which takes `norm_bound`,
    `noise_variance`, `delta` and the horizon `num_evaluations` = T by their word: with
    probability :math:`1 - \delta`, for all T evaluations and all points, the function
    is inside of its bounds, and Theorem 2 holds with :math:`\tilde C` for the threshold
    (:math:`9 \tilde C` in place of :math:`3 \tilde C` for the exact variances under
    the local rule). It sets

    .. math::
        \bar q = 72 \log(16 T / \delta), \qquad
        \tilde\alpha = \sqrt{\tilde C} \Bigl( 2 \xi \sqrt{\textstyle\sum_s
            \log(1 + 3 v_s) + \log(2/\delta)} + (1 + \sqrt 2) \sqrt\lambda F \Bigr),

    prior mean zero (unless a `mean_module` is given), and the sampler of data that a
    run starts from
    (`RecursiveRLSSampler` with its theorem's constants). The theorem has
    :math:`\lambda \ge 1`; with a smaller one bounds on the function hold, and that on
    the regret grows with :math:`\kappa^2 / \lambda`; on a box it needs exact
    maximizers. The price: `q-bar` is some 1,500 at T = 10^5 where the authors take 2,
    so that as long as :math:`\mathrm{var}(x_s) > \lambda / \bar q` every point is an
    inducing point, `m` is of the order of `q-bar` times the effective dimension, and
    the radius is several times wider.

    **Several outcomes** (`outcomes=[Objective("yield"), Constraint("cost", upper=3)]`)
    are chosen by as `UCBStrategy` says. With `constants="theory"` each of the k has
    `delta / k`, so that with probability :math:`1 - \delta` all of them are inside of
    their bounds, :math:`|f_j - \mu_j| \le \beta_j \sigma_j`. Points that are feasible
    are optimistically feasible then, and for each point `x` that is chosen while some
    are ([Xu2023]_):

    - one objective is at most :math:`2 \beta \sigma(x)` below the best feasible point,
    - several have :math:`\max_x s_\lambda(f) - s_\lambda(f(x)) \le
      \max_i 2 \beta_i \sigma_i(x) / \lambda_i` for the scalarization of that point,
      the step from bounds to hypervolume regret ([Paria2019]_, [ZhangGolovin2020]_),
    - outcome j violates its limits by at most :math:`2 \beta_j \sigma_j(x)`.

    Where all outcomes of all points are measured, each sum of :math:`2 \beta_j
    \sigma_j` over T points is bounded as the regret in Theorem 2: so is the cumulative
    regret of one objective, and the cumulative violation of each constraint. A table
    without an optimistically feasible row has, with the same probability, no feasible
    one. Of what `UCBStrategy` can do, a reference point that is inferred is refused:
    several objectives need thresholds.

    Args:
        candidates: `A x d` points to choose from; or give `bounds`.
        covar_module: The kernel; see `UCBStrategy`.
        lam: The regularizer lambda, as the posterior's noise variance, positive.
        noise_variance: Variance of the feedback's noise, for the radius; 1e-4 by
            default. With a kernel alone, as the next two; without one give `radius`.
            Of several outcomes the largest, as the next one.
        norm_bound: Bound on the RKHS norm of the objective less the prior mean, for the
            radius; 1 by default.
        delta: Failure probability of the radius, in (0, 1); 1e-3 by default. Several
            outcomes share it alike.
        oversampling: The papers' q-bar, see `PosteriorVarianceSampler`: 2 by default;
            with theory constants what they ask for, or more.
        ratio_threshold: The papers' C-tilde, at least one; one gives batches of one.
        termination: `"global"` for the sum rule (Lemma 1), `"global-local"` for the sum
            until it crosses and the local rule (Lemma 3) from there: larger batches.
        rule: A rule of one's own in place of the last two: an object with `bound` and
            `ratio_threshold`, such as one of `botorch_sparse.batching.rules`, or a
            short name.
        sampler: A sampler of inducing points of one's own in place of
            `PosteriorVarianceSampler(oversampling)`.
        local_bound: See `Local`.
        constants: `"practical"`, from the papers' experiments, or `"theory"`: what
            is proved, see above.
        num_evaluations: The horizon T, with theory constants alone.
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
        covar_module: OneOrEach[Kernel] = None,
        lam: OneOrEach[float] = None,
        noise_variance: float | None = None,
        norm_bound: float | None = None,
        delta: float | None = None,
        oversampling: float | None = None,
        ratio_threshold: float = 2.0,
        termination: Termination = "global-local",
        *,
        rule: Rule | str | None = None,
        sampler: InducingPointSampler | None = None,
        local_bound: LocalBound = "both",
        initial_sampler: InducingPointSampler | None = None,
        max_memory: int = MAX_MEMORY,
        repeat: Repeat | None = None,
        constants: Constants = "practical",
        num_evaluations: int | None = None,
        **options: Unpack[UCBOptions],
    ) -> None:
        check_keywords(options, UCBOptions.__annotations__, type(self))
        check_choice("termination", termination, get_args(Termination))
        validate_local_bound(local_bound)
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
            BBKBRadius,
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
            rule=rule_of(rule or termination, ratio_threshold, local_bound),
            default_radius=radius,
            sampler=sampler,
            initial_sampler=initial_sampler,
            max_memory=max_memory,
            repeat=repeat,
            num_evaluations=num_evaluations,
            **options,
        )
