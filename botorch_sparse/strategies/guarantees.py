r"""What the theorems ask of BKB, BBKB and their exact limits, computed for the user.

Three things may fail, and share `delta`:

=================================  ===================  ============================
the noise                          `delta / 2`          [Calandriello2019]_ Prop. 11
inducing points at ends of         `delta / 4`          Theorem 1 there, Lemma 2 of
batches                                                 [Calandriello2020]_
those of data that a run starts    `delta / 4`          [Musco2017]_, as S-BPE uses it
from
=================================  ===================  ============================

The papers' Theorems 2 give the first two `delta` each, and hold with
:math:`1 - 2 \delta`. The last one leaves
:math:`\lambda_{\max}(K - Q) \le \lambda`, hence variances within
:math:`\alpha(1) < 3` of the exact ones: what Lemma 2 takes a batch to begin with.
"""

import math
from collections.abc import Iterable
from typing import Any, TypeVar, get_args

from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel

from botorch_sparse.acquisition.confidence import (
    BBKBRadius,
    ChowdhuryGopalanRadius,
    Constants,
)
from botorch_sparse.acquisition.confidence.radius import NormBoundRadius
from botorch_sparse.argument_checks import (
    check_choice,
    check_number,
    check_whole,
    short_repr,
)
from botorch_sparse.batching.rules import Global, Local, Product, Rule, Single
from botorch_sparse.inducing import (
    InducingPointSampler,
    PosteriorVarianceSampler,
    RecursiveRLSSampler,
)
from botorch_sparse.strategies.data.outcomes import Objective, Outcomes
from botorch_sparse.strategies.model_strategy import ModelOptions, OneOrEach

R = TypeVar("R", bound=NormBoundRadius)

# The authors' q-bar.
PRACTICAL_OVERSAMPLING = 2.0
# Of the draws at the start: the theorem's factor, and failures for each of its deltas.
START_OVERSAMPLING, START_EVENTS = 16.0, 3
NOISE, DRAWS, START = 0.5, 0.25, 0.25
DELTA = 1e-3  # by default

# Why arguments are refused.
CONTRADICTS = (
    "with constants='theory', which sets or excludes it; need one of the two: leave it "
    "out, or the constants."
)
NO_KERNEL = (
    "without covar_module: it belongs to the radius of a kernel that is given, and the "
    "default for an inferred one, FixedBeta(4.0), has no use for it. Give covar_module "
    "too, or a radius that takes it, in units of standardized outcomes, such as "
    "radius=UnknownHyperparameters(norm_bound, noise_variance, delta); or leave it out."
)


def radius_of(
    kind: type[R],
    covar_module: OneOrEach[Kernel],
    constants: Constants,
    norm_bound: float | None,
    noise_variance: float | None,
    delta: float | None,
    *,
    noise_share: float = 1.0,
    num_outcomes: int = 1,
) -> R:
    """The radius of what a user claims of the objective, with defaults.

    Args:
        kind: Its class.
        covar_module: The kernel; None where it is inferred.
        constants: `"practical"` or `"theory"`.
        norm_bound: Bound on the objective's RKHS norm, positive.
        noise_variance: Variance of the feedback's noise.
        delta: Probability with which something may fail, in (0, 1).
        noise_share: The part of it that is left for the noise, in theory.
        num_outcomes: How many functions share it alike.

    Raises:
        InputDataError: If one is given without the kernel that it is about.
    """
    given = {"norm_bound": norm_bound, "noise_variance": noise_variance}
    if covar_module is None and constants != "theory":
        _refuse(NO_KERNEL, **given, delta=delta)
    delta = DELTA if delta is None else delta
    check_number("delta", delta, "(0, 1)")
    share = noise_share if constants == "theory" else 1.0
    return kind(
        1.0 if norm_bound is None else norm_bound,
        1e-4 if noise_variance is None else noise_variance,
        share * delta / num_outcomes,
        constants=constants,
    )


def samplers_of(
    constants: Constants,
    num_evaluations: int | None,
    delta: float | None,
    oversampling: float | None,
    sampler: InducingPointSampler | None,
    initial_sampler: InducingPointSampler | None,
    num_outcomes: int = 1,
) -> tuple[InducingPointSampler, InducingPointSampler | None]:
    """The practical samplers of inducing points, or the theorems'.

    Returns:
        The sampler, and the sampler of data that a run starts from, None for the
        default.

    Raises:
        InputDataError: For theory constants without a horizon, with samplers, or
            with less oversampling than is proved to do; for a horizon without them.
    """
    check_choice("constants", constants, get_args(Constants))
    if constants == "theory":
        _refuse(CONTRADICTS, sampler=sampler, initial_sampler=initial_sampler)
        delta = DELTA if delta is None else delta
        q = _proved_or_more(num_evaluations, delta, oversampling, num_outcomes)
        start = START_OVERSAMPLING, None, START * delta / START_EVENTS / num_outcomes
        return PosteriorVarianceSampler(q), RecursiveRLSSampler(*start)
    if num_evaluations is not None:
        raise InputDataError(
            f"Got num_evaluations={num_evaluations} with constants='practical'; "
            "the horizon is needed for constants='theory'. Leave it out, and give "
            "it to run."
        )
    q = PRACTICAL_OVERSAMPLING if oversampling is None else oversampling
    return sampler or PosteriorVarianceSampler(q), initial_sampler


def _proved_or_more(
    num_evaluations: int | None,
    delta: float,
    oversampling: float | None,
    num_outcomes: int,
) -> float:
    """The oversampling that is proved to do, or a larger one that was given."""
    need = "need the horizon with constants='theory', a whole number from 1 on."
    check_whole("num_evaluations", num_evaluations, 1, need)
    check_number("delta", delta, "(0, 1)")
    least = proved_oversampling(int(num_evaluations or 1), DRAWS * delta / num_outcomes)
    q = least if oversampling is None else oversampling
    check_number("oversampling", q, "(0, inf)")
    if q < least:
        raise InputDataError(
            f"Got oversampling={q} with constants='theory', which asks for "
            f"{least:.6g} at least; give that, or leave it out."
        )
    return q


def proved_oversampling(num_evaluations: int, delta: float) -> float:
    r"""What keeps variances within a factor 3, :math:`\bar q = 72 \log(4T/\delta)`.

    [Calandriello2019]_ Theorem 1, :math:`6 \alpha \log(4T/\delta) / \varepsilon^2` at
    :math:`\varepsilon = 1/2` and :math:`\alpha = 3`. For batches the proof of Lemma 2
    of [Calandriello2020]_ gives the same; its Theorem 1 prints 8, and Theorem 2 a
    factor of the threshold that no proof needs.
    """
    accuracy = 0.5
    alpha = (1 + accuracy) / (1 - accuracy)
    return 6 * alpha * math.log(4 * num_evaluations / delta) / accuracy**2


def exact_radius(constants: Constants) -> type[NormBoundRadius]:
    """The radius of an exact posterior: BBKB's practical one, or a theorem's."""
    check_choice("constants", constants, get_args(Constants))
    return BBKBRadius if constants == "practical" else ChowdhuryGopalanRadius


def require_proved(
    covar_module: OneOrEach[Kernel], rule: Rule, **given: object
) -> None:
    """Refuse what no theorem covers, or what would take the place of its constants."""
    if covar_module is None:
        raise InputDataError(
            "Got constants='theory' without covar_module; need the kernel: no theorem "
            "covers one that is fitted to the feedback. Try "
            "radius=UnknownHyperparameters(...) for a kernel whose scales are guesses."
        )
    _refuse(CONTRADICTS, **given)
    is_proved = type(rule) in (Single, Global, Product)
    if not is_proved and not (type(rule) is Local and rule.covariance == "both"):
        raise InputDataError(
            f"Got rule={rule!r} with constants='theory'; need one of those that bound "
            "the ratio of variances: Single, Global, Product, or Local with "
            "covariance='both'."
        )


def num_outcomes_of(options: ModelOptions | dict[str, Any]) -> int:
    """How many outcomes keyword arguments name.

    They are a tuple there afterwards, since an iterator can be read once alone. What
    can't be read is refused by the strategy.
    """
    outcomes = options.get("outcomes")
    if not isinstance(outcomes, Iterable):
        return 1
    options["outcomes"] = parts = tuple(outcomes)
    return max(1, len(parts))


def require_thresholds(outcomes: Outcomes) -> None:
    """Refuse several objectives without a reference point that stands still."""
    objectives = [part for part in outcomes.parts if isinstance(part, Objective)]
    missing = [part.name for part in objectives if part.threshold is None]
    if len(objectives) > 1 and missing:
        raise InputDataError(
            f"Got the objectives {short_repr(missing)} without a threshold with "
            "constants='theory'; need one for each: what is proved is about the "
            "hypervolume above a reference point that stands still. Give "
            "Objective(name, threshold=...)."
        )


def _refuse(why: str, **given: object) -> None:
    """Refuse arguments that were given, and say why."""
    for name, value in given.items():
        if value is not None:
            raise InputDataError(f"Got {name}={short_repr(value)} {why}")
