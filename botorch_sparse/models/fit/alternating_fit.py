"""Fits of a sparse model: hyperparameters and inducing points in turn."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from botorch.exceptions import InputDataError
from botorch.models.robust_relevance_pursuit_model import RobustRelevancePursuitMixin
from botorch.utils.context_managers import module_rollback_ctx
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import ExactGP

from botorch_sparse.argument_checks import check_whole
from botorch_sparse.inducing import RecursiveRLSSampler
from botorch_sparse.kernels.tanimoto import similarities_kept
from botorch_sparse.models.fit.candidate_fits import (
    NUMERICAL_ERRORS,
    Candidate,
    Fitted,
    Options,
    fit_once,
    in_few_steps,
    keep_best,
    left_out_density,
    loss_of,
    with_optimizer,
)
from botorch_sparse.models.fit.exact_fit import (
    fit_exact,
    is_divisible,
    likelihood_gap,
    num_exact_rows,
)
from botorch_sparse.models.fit.learned_points import fit_learned_points
from botorch_sparse.models.fit.log_parameters import fit_gpytorch_mll_in_logarithms
from botorch_sparse.models.fit.outputs_apart import give_back, outputs_apart
from botorch_sparse.models.fit.plain_likelihood import fit_in_closed_form
from botorch_sparse.models.fit.robust_fit import fit_robustly
from botorch_sparse.models.inducing_points import InducingPoints
from botorch_sparse.models.summary import LikelihoodGap
from botorch_sparse.models.training_data import raw_inputs, same_tensor
from botorch_sparse.posteriors import RepeatedRows
from botorch_sparse.threads import one_thread

# Change of the objective (per observation) under newly drawn inducing points that makes
# another round worth its cost, by default. On california_housing (n = 16512, 256
# points, then 1000) one, two and three rounds gave NLPD 0.681, 0.682 and 0.680 in 26,
# 53 and 62 seconds.
ROUND_GAIN = 1e-2


def fit(
    model: ExactGP,
    mll: MarginalLogLikelihood,
    *,
    rounds: int | None = None,
    max_fit_inducing_points: int | None = None,
    **options: Any,
) -> MarginalLogLikelihood:
    """`SparseSingleTaskGP.custom_fit`, which says what it takes, does and raises."""
    asked = {"rounds": rounds, "max_fit_inducing_points": max_fit_inducing_points}
    if isinstance(model, RobustRelevancePursuitMixin):
        # Its pursuit comes here for each support, with the standard model.
        if model.robust:
            raise InputDataError(
                "Got robust=True for a model with RobustRelevancePursuitMixin, which "
                "looks for outliers itself; need one of them. Leave out robust."
            )
        given = {name: value for name, value in asked.items() if value is not None}
        return RobustRelevancePursuitMixin.custom_fit(model, mll, **given, **options)
    own = {"model.max_fit_inducing_points": model.max_fit_inducing_points}
    for name, value in {**asked, **own}.items():
        if value is not None:
            check_whole(name, value, 1, "need an integer of at least 1.")
    parts = outputs_apart(mll) if is_divisible(mll, options) else []
    with (
        _distinct_warnings(),
        _restored_on_failure(model, mll),
        one_thread(),
        similarities_kept(),
    ):
        if not parts:
            once = partial(_fit_together, mll, options, **asked)
            gap = fit_robustly(mll, once, options) if model.robust else once()
            model._likelihood_gap = gap
            model._warn_if_far()
        else:
            for part in parts:
                fit(part.model, part, **asked, **options)
            give_back(mll, parts)
        model._warn_if_capped()
    return mll.eval()


def _fit_together(
    mll: MarginalLogLikelihood,
    options: Options,
    *,
    rounds: int | None,
    max_fit_inducing_points: int | None,
) -> LikelihoodGap | None:
    """Fit all outputs in the way that data and options call for."""
    model, has_closure = mll.model, options.get("closure") is not None
    is_default = rounds is None and not has_closure
    is_compared = is_default and max_fit_inducing_points is None
    cap = max_fit_inducing_points or model.max_fit_inducing_points
    points, is_free = _begin(model, cap)
    bound = partial(
        fit_bound, points=points, rounds=rounds or model.rounds, needs_gain=is_default
    )
    if model.learn_inducing_points and not has_closure and not model.is_exact:
        fit_learned_points(mll, options)
    elif is_compared and is_free and is_divisible(mll, options):
        return _fit_freely(mll, options, bound)
    else:
        bound(mll, options)
        if is_compared and model.is_exact and not _ends_early(options):
            return LikelihoodGap(0.0, model.train_targets.shape[-1])
    return None


def _ends_early(options: Options) -> bool:
    """Whether a fit was told when to end; how far it is nobody knows then."""
    return bool(options.get("optimizer_kwargs") or options.get("optimizer"))


def _fit_freely(
    mll: MarginalLogLikelihood, options: Options, bound: Candidate
) -> LikelihoodGap | None:
    """The exact likelihood of all rows where they are few; else the better of two.

    Each of two has one attempt, where BoTorch makes five: the other stands in.
    """
    start, num_rows = Fitted.of(mll), num_exact_rows(mll.model)
    exact = partial(fit_exact, num_rows=num_rows)
    if num_rows < mll.model.train_targets.shape[-1]:
        either = partial(keep_best, candidates=[bound, exact], score=left_out_density)
        try:
            kept, *others = either(mll, options={"max_attempts": 1, **options})
        except NUMERICAL_ERRORS:
            if "max_attempts" in options:
                raise
            start.give(mll)
            kept, *others = either(mll, options=options)
        is_known = others and not _ends_early(options)
        return likelihood_gap(mll, kept, others, num_rows) if is_known else None
    try:
        exact(mll, options).give(mll)
        return None if _ends_early(options) else LikelihoodGap(0.0, num_rows)
    except NUMERICAL_ERRORS:
        start.give(mll)
        bound(mll, options)
        return None


def _begin(model: ExactGP, cap: int | None) -> tuple[InducingPoints, bool]:
    """How a fit draws points, and whether freely; there are some afterwards.

    Points that the model draws itself are at most `cap`, and have no certificate then.
    """
    points, num_outputs = model._points(), model._aug_batch_shape.numel()
    chosen, X = model._state.chosen, raw_inputs(model)
    chosen = chosen if chosen is not None and chosen.belongs_to(X) else None
    rows = RepeatedRows.find(X) if chosen is None else chosen.rows
    takes_all = points.takes_all(len(rows.first), num_outputs)
    is_free = points.are_drawn_freely and not takes_all
    if is_free and cap is not None:
        most = min(cap, points.max_inducing_points or cap)
        few = RecursiveRLSSampler(max_inducing_points=cap)
        points = replace(points, sampler=few, max_inducing_points=most)
    is_kept = chosen is not None and (
        (chosen.is_complete and not is_free)
        or points.given is not None
        or chosen.points.shape[-2] <= points.cap(num_outputs)
    )
    if not is_kept:
        model._take(model._draw(points))
    return points, is_free


def fit_bound(
    mll: MarginalLogLikelihood,
    options: Options,
    *,
    points: InducingPoints,
    rounds: int,
    needs_gain: bool,
) -> Fitted:
    """Fit the objective of all data, and draw inducing points in between.

    The first of at most `rounds` fits takes the present values and points; the final
    points the model draws itself. If it `needs_gain`, points that change the objective
    little end it.
    """
    model = mll.model
    for remaining in reversed(range(rounds)):
        fit_once(mll, _with_own_optimizer(options, model, needs_gain=needs_gain))
        if remaining == 0 or not _is_refit_needed(mll, points, needs_gain):
            break
    is_final = points.sampler is model.inducing_sampler
    if not is_final and not model._inducing_set().is_complete:
        model._take(model._draw(model._points()))
    return Fitted.of(mll)


def _with_own_optimizer(
    options: Options, model: ExactGP, *, needs_gain: bool
) -> Options:
    """In logarithms; BoTorch's steps for the exact GP, and each part of a batch."""
    if model._aug_batch_shape.numel() > 1 or model.is_exact:
        return with_optimizer(options, fit_in_closed_form)
    if needs_gain:
        return in_few_steps(options)
    return with_optimizer(options, fit_gpytorch_mll_in_logarithms)


def _is_refit_needed(
    mll: MarginalLogLikelihood, points: InducingPoints, needs_gain: bool
) -> bool:
    """Draw inducing points again, and say whether they call for another fit."""
    if points.given is not None:
        return False
    model, before = mll.model, mll.model.inducing_points
    loss = loss_of(mll) if needs_gain else None
    model._take(model._draw(points))
    if same_tensor(before, model.inducing_points):
        return False
    return loss is None or bool((loss_of(mll) - loss).abs().max() > ROUND_GAIN)


@contextmanager
def _restored_on_failure(model: ExactGP, mll: MarginalLogLikelihood) -> Iterator[None]:
    """Leave hyperparameters, inducing points and mode as they were on an error."""
    state, was_training, was_fitted_in = model._state, mll.training, model.training
    gap, extra = model._likelihood_gap, model._outlier_noise
    model._is_fitting = True
    try:
        with module_rollback_ctx(mll) as checkpoint:
            yield
            checkpoint.clear()
    except BaseException:
        mll.train(was_training)
        model.train(was_fitted_in)
        model._state, model._likelihood_gap = state, gap
        model._outlier_noise = extra
        raise
    finally:
        model._is_fitting = False


@contextmanager
def _distinct_warnings() -> Iterator[None]:
    """Report on leaving, once for each line of code that warned, what it said first.

    An optimizer evaluates the objective a hundred times, and may add jitter each time.
    """
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            yield
    finally:
        first = {(w.category, w.filename, w.lineno): w for w in reversed(caught)}
        for w in reversed(first.values()):
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
