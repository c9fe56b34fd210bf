"""The exact likelihood of some rows, or of all where they are few.

The collapsed bound explains by noise what few inducing points leave over. The exact
likelihood has no such bias, at O(n^3) an evaluation. So up to `MOST_EXACT` rows it is
what is fitted, of `FIRST_ROWS` first where they are more: most steps are there, and
most of what is tried.
Beyond, that of some random rows is a rival of the bound of all. Which of the two serves
a data set is seen on observations that are left out, all outputs together.

Fits begin with as many rows as can be had, not with few, unless all have no likelihood
at first: on functions with little noise the optimum of 500 rows can lie in another
basin, with ten times the noise, than that of 1,500, and a fit of all that begins there
stays there.

From its end a fit leaps. What varies can be explained by short lengthscales, or by
noise and long ones: optima with no way from one to the other in small steps. So fits of
`FEW_ROWS` that begin elsewhere show other optima, and the likelihood of all rows says
whether one is better. Then half of each lengthscale is tried, and a part of all of them
with the constant that is best there; and the way back, longer ones with more noise. On
1,500 points of BoTorch's `DixonPrice(8)` two such leaps lead from a noise of 0.0125 to
0.0024, where BoTorch's fit ends too. On 1,000 of `Griewank(8)` lengthscales and
constant are two fifths too large together, and no way leads back with one of them
alone.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf, isfinite, isqrt
from operator import attrgetter, itemgetter
from typing import NamedTuple

import torch
from botorch.exceptions import ModelFittingError
from botorch.optim.closures import get_loss_closure
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.likelihoods.noise_models import FixedGaussianNoise, HomoskedasticNoise
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from gpytorch.models import ExactGP
from gpytorch.module import Module
from torch import Tensor

from botorch_sparse.models.fit.candidate_fits import (
    NUMERICAL_ERRORS,
    Fitted,
    Options,
    fit_once,
    in_few_steps,
    loss_of,
    shuffled_rows,
)
from botorch_sparse.models.fit.log_parameters import fit_gpytorch_mll_in_logarithms
from botorch_sparse.models.inducing_points import BYTES, MOST_EXACT, InducingSet
from botorch_sparse.models.summary import LikelihoodGap
from botorch_sparse.models.tasks import TaskNoise
from botorch_sparse.models.training_data import raw_inputs
from botorch_sparse.threads import one_thread

# Rows of a first fit, which also say what a fit of more rows tries; of those beyond
# `MOST_EXACT` of a last one too.
FIRST_ROWS = 1500
# Rows of which the optimum is looked for after a fit that had no exact one beside it.
MOST_LOOKED_AT = 1000
# Matrices of all rows that an evaluation with its gradient has at once.
NUM_MATRICES = 8
# A slope below which a fit of all rows begins where it is. On four functions it was at
# most 0.08 after a fit and a quarter more rows, and 0.15 or more at the first fit.
# Where `FEW_ROWS` have a slope beyond `FAR`, as at most first fits, all have one beyond
# `NEAR`.
NEAR, FAR = 0.1, 0.5
# Where fits of few rows begin besides: factors of the first lengthscales, and noise as
# a share of the variance. Of 193 fits to 600 points of `benchmarks.fits` six had ended
# at an optimum worse than BoTorch's.
FEW_ROWS, STARTS = 500, ((0.25, 0.01), (3.0, 0.3))
# `LEAP` is the part of a lengthscale that is tried, and that of the noise, of so many
# of the shortest ones. A fit goes on from there where the objective of an observation
# is not larger by more than `NEARLY`, and stays if it gains so much. Fits that gain
# less have begun at their optimum, as most do that are repeated. `TOGETHER` is the part
# of all lengthscales that is tried at once, and that of the noise.
LEAP, MOST_SHORTENED, TOGETHER = (0.5, 0.5), 16, (0.7, 0.25)
NEARLY, LEAST_GAIN = 0.02, 1e-3
# So many single lengthscales, the best for the first rows, are compared on all rows. On
# 3,000 points of BoTorch's `DixonPrice(8)` the second leads to the better optimum. All
# rows do not try what loses more than it may on the first ones, by `DOUBT`: of what led
# to better optima of 3,000 points, on three functions, that was 0.04 at most.
MOST_COMPARED, DOUBT = 3, 0.12
# The curvature that leads the steps of a fit costs about so many evaluations at most,
# where these cost O(n^3).
CURVATURE_COST = 2.0
# Longer lengthscales, and so much more noise. Where data say what the noise is, the
# objective is far too large there. Where lengthscales explain all, it may be no worse.
LONGER = (1.2, 10.0)
# Where noise is more than `NOISY` of the variance a function may be hidden in it that
# no half of a lengthscale shows, and an eighth does: on 3,000 points of BoTorch's
# `Michalewicz(5)` the noise falls from 0.72 to 0.59. That has to gain at once. And data
# know such noise to a tenth or so: half of it loses, whatever else changes. So a third
# of a lengthscale is tried with most of it. On 3,000 rows of california_housing that of
# a coordinate leads to a log density that is 11 larger, and of 12 fits to BoTorch's
# `StyblinskiTang(6)` with noise of half its deviation five were not at their optimum.
NOISY, FAR_LEAP, NOISY_LEAP = 0.1, (0.125, 0.8), (0.35, 0.9)


def num_exact_rows(model: ExactGP) -> int:
    """How many rows an exact fit takes: all if they are at most `MOST_EXACT`.

    Several outputs share the budget of time, and `max_memory` bounds it too.
    """
    n, num_outputs = model.train_targets.shape[-1], model._aug_batch_shape.numel()
    most = MOST_EXACT**2 // num_outputs
    if model.max_memory is not None:
        most = min(most, model.max_memory // (NUM_MATRICES * BYTES * num_outputs))
    return n if n**2 <= most else min(FIRST_ROWS, isqrt(most), n)


def fit_exact(
    mll: MarginalLogLikelihood, options: Options, num_rows: int = FIRST_ROWS
) -> Fitted:
    """Fit some random rows; all data then have inducing points under it."""
    model, is_one = mll.model, mll.model._aug_batch_shape.numel() == 1
    # Options of an optimizer may say when a fit is to end.
    may_leap = is_one and not options.get("optimizer_kwargs")
    if is_one:
        options = in_few_steps(options)
    is_near = num_rows <= FIRST_ROWS or (
        _slope(mll, FEW_ROWS) < FAR and _slope(mll, num_rows) < NEAR
    )
    has_moved, first = False, None
    for size in [num_rows] if is_near else [FIRST_ROWS, num_rows]:
        part = on_random_rows(mll, size)
        near = _with_curvature(options, mll, size) if may_leap else options
        before = _loss(part) if may_leap and not has_moved else -inf
        fit_once(part, near if size > FIRST_ROWS else options)
        if before > -inf and (loss := _loss(part)) < before - NEARLY:
            has_moved = True
            _begin_elsewhere(part, on_random_rows(mll, FEW_ROWS), loss, options)
        first = part if first is None else first
        while has_moved and _leap(part, first, near):
            pass
        fitted = replace(Fitted.of(part), chosen=model._inducing_set())
        fitted.give(mll)
    return replace(fitted, chosen=model._draw(model._points()))


def _with_curvature(
    options: Options, mll: MarginalLogLikelihood, num_rows: int
) -> Options:
    """Options of a fit of some rows that begins near its optimum: fewer lead it."""
    if options.get("optimizer") is not fit_gpytorch_mll_in_logarithms:
        return options
    num_slopes = 1 + sum(p.numel() for p in mll.parameters() if p.requires_grad)
    share = min(0.5, (CURVATURE_COST / num_slopes) ** (1 / 3))
    few = partial(on_random_rows, mll, int(share * num_rows))
    kwargs = {**(options.get("optimizer_kwargs") or {}), "few": few}
    return {**options, "optimizer_kwargs": kwargs}


def _begin_elsewhere(
    part: MarginalLogLikelihood,
    few: MarginalLogLikelihood,
    before: float,
    options: Options,
) -> None:
    """Go on from the optimum of few rows that serves all rows better, if one does.

    `few` has the hyperparameters that the fit of `part` began with. Cost: a fit of
    `few` for each of `STARTS`, and some evaluations of O(n^3).
    """
    begin, optimum, best = Fitted.of(few), Fitted.of(part), None
    most = before - LEAST_GAIN
    for length, noise in STARTS:
        begin.give(few)
        _scale(few, length, noise)
        try:
            fit_once(few, options)
        except ModelFittingError:
            continue
        _copy(few, part)
        loss, found = _with_noise_of_all(part)
        if loss < most:
            most, best = loss, found
    optimum.give(part)
    if best is not None:
        _go_on(part, best, before, options)


@torch.no_grad()
def _with_noise_of_all(part: MarginalLogLikelihood) -> tuple[float, Fitted]:
    """The least loss with the present noise, ten times of it, and so on while it falls.

    Few rows can be told apart by short lengthscales almost without noise, where all
    rows need some: such lengthscales may be right all the same.
    """
    least, found = inf, Fitted.of(part)
    while (loss := _loss(part)) < least:
        least, found = loss, Fitted.of(part)
        for module in _noises(part):
            _set(module, "noise", 10.0 * module.noise)
    return least, found


@torch.no_grad()
def _scale(few: MarginalLogLikelihood, length: float, noise: float) -> None:
    """Multiply lengthscales, and set noise to a share of the variance."""
    for kernel, lengthscale in _lengthscales(few):
        _set(kernel, "lengthscale", length * lengthscale)
    for module in _noises(few):
        variance = few.model.train_targets.var()
        _set(module, "noise", (noise * variance).expand_as(module.noise))


def _leap(
    part: MarginalLogLikelihood, first: MarginalLogLikelihood, options: Options
) -> bool:
    """Go on from a shorter lengthscale, and stay there if the likelihood is larger.

    Three kinds of starts are tried in turn, until a fit from the best of one gains:
    half of a lengthscale with half of the noise, a part of all, and where there is much
    noise an eighth of one; under much noise a third of one with most of the noise; and
    longer ones with more noise. The `first` rows, which may be `part`, choose, and all
    rows decide among those that may gain.
    Cost: an evaluation of the first rows, O(n^3), for each lengthscale and four for all
    of them, thrice where there is much noise, some of all rows, and these fits.

    Returns:
        Whether the likelihood has grown.
    """
    optimum, doubt = Fitted.of(part), 0.0 if first is part else DOUBT
    if first is not part:
        _copy(part, first)
    loss = _loss(first)
    before = loss if first is part else inf
    for find in _shortened, _shortened_in_noise, _lengthened:
        starts = [each for each in find(first, loss) if each.rise < each.most + doubt]
        if starts and first is not part:
            before = _loss(part) if before == inf else before
            starts = [_tried(part, each, before) for each in starts]
            starts = [each for each in starts if each.rise < each.most]
            optimum.give(part)
        best = min(starts, key=attrgetter("rise"), default=None)
        if best is not None and _go_on(part, best.fitted, before, options):
            return True
    return False


class _Start(NamedTuple):
    """Where a fit can go on: how much larger the loss is there, and may be at most."""

    rise: float
    most: float
    fitted: Fitted


@torch.no_grad()
def _tried(part: MarginalLogLikelihood, start: _Start, before: float) -> _Start:
    """The start on other rows, which have its hyperparameters then."""
    fitted = replace(start.fitted, chosen=part.model._state.chosen)
    fitted.give(part)
    return start._replace(rise=_loss(part) - before, fitted=fitted)


def _copy(source: MarginalLogLikelihood, target: MarginalLogLikelihood) -> None:
    """Give the hyperparameters of some rows to others."""
    replace(Fitted.of(source), chosen=target.model._state.chosen).give(target)


def _go_on(
    part: MarginalLogLikelihood, start: Fitted, before: float, options: Options
) -> bool:
    """Fit from there, and stay if the loss is less than before; say whether."""
    optimum = Fitted.of(part)
    start.give(part)
    try:
        fit_once(part, options)
        has_grown = _loss(part) < before - LEAST_GAIN
    except ModelFittingError:
        has_grown = False
    if not has_grown:
        optimum.give(part)
    return has_grown


@torch.no_grad()
def _shortened(part: MarginalLogLikelihood, loss: float) -> list[_Start]:
    """One shorter lengthscale, or all of them, with less noise.

    The loss is that of now; the objective is as it was then.
    """
    if not _lengthscales(part):
        return []
    most = _most_lost(part, loss, LEAP[1])
    starts = [(each, most) for each in _with_one_shorter(part, *LEAP)]
    starts.append((_with_all_shorter(part), most))
    if _is_noisy(part):
        ones, least = _with_one_shorter(part, *FAR_LEAP), min(most, -LEAST_GAIN)
        starts += [(each, least) for each in ones]
    return [_Start(new - loss, most, fitted) for (new, fitted), most in starts]


@torch.no_grad()
def _shortened_in_noise(part: MarginalLogLikelihood, loss: float) -> list[_Start]:
    """One shorter lengthscale with most of the noise, if there is much.

    The objective is as it was then.
    """
    if not _is_noisy(part):
        return []
    most = _most_lost(part, loss, NOISY_LEAP[1])
    ones = _with_one_shorter(part, *NOISY_LEAP)
    return [_Start(new - loss, most, fitted) for new, fitted in ones]


def _most_lost(part: MarginalLogLikelihood, loss: float, share: float) -> float:
    """What shorter lengthscales with this share of the noise may lose.

    That is little, and less than less noise alone does. If negative they have to gain.
    """
    optimum = Fitted.of(part)
    _lessen(part, share)
    most = min(NEARLY, _loss(part) - loss - LEAST_GAIN)
    optimum.give(part)
    return most


def _is_noisy(part: MarginalLogLikelihood) -> bool:
    """Whether a noise is much of the variance."""
    variance = part.model.train_targets.var()
    return any((module.noise > NOISY * variance).all() for module in _noises(part))


def _with_one_shorter(
    part: MarginalLogLikelihood, length: float, less: float
) -> list[tuple[float, Fitted]]:
    """The least losses with a part of one lengthscale and of the noise, and with what.

    At most `MOST_COMPARED`. The objective is as it was then.
    """
    optimum, found = Fitted.of(part), list[tuple[float, Fitted]]()
    _lessen(part, less)
    here = Fitted.of(part)
    lengths = [
        (value, kernel, i)
        for kernel, lengthscale in _lengthscales(part)
        for i, value in enumerate(lengthscale.view(-1).tolist())
    ]
    for _, kernel, i in sorted(lengths, key=itemgetter(0))[:MOST_SHORTENED]:
        new = kernel.lengthscale.clone()
        nearer = _nearer(new, kernel.raw_lengthscale_constraint, length)
        new.view(-1)[i] = nearer.view(-1)[i]
        if _set(kernel, "lengthscale", new):
            found.append((_loss(part), Fitted.of(part)))
        here.give(part)
    optimum.give(part)
    return sorted(found, key=itemgetter(0))[:MOST_COMPARED]


def _lessen(part: MarginalLogLikelihood, share: float) -> None:
    """Leave a share of each noise above its lower bound."""
    for noise in _noises(part):
        _set(noise, "noise", _nearer(noise.noise, noise.raw_noise_constraint, share))


def _with_all_shorter(part: MarginalLogLikelihood) -> tuple[float, Fitted]:
    """The loss with all lengthscales shorter and less noise, and with what.

    Those that may not be shorter stay. A constant mean goes with them: the objective is
    a parabola in it, of which three values say where it is least. The objective is as
    it was then.
    """
    optimum, (length, less) = Fitted.of(part), TOGETHER
    for kernel, lengthscale in _lengthscales(part):
        constraint = kernel.raw_lengthscale_constraint
        _set(kernel, "lengthscale", _nearer(lengthscale, constraint, length))
    _lessen(part, less)
    for mean in part.modules():
        if isinstance(mean, ConstantMean) and mean.raw_constant.requires_grad:
            constant = mean.constant.clone()
            left, middle, right = (
                _loss(part) if _set(mean, "constant", constant + step) else inf
                for step in (-1.0, 0.0, 1.0)
            )
            bend = left - 2.0 * middle + right
            step = (left - right) / (2.0 * bend) if 0.0 < bend < inf else 0.0
            _set(mean, "constant", constant)
            _set(mean, "constant", constant + step)
    found = _loss(part), Fitted.of(part)
    optimum.give(part)
    return found


@torch.no_grad()
def _lengthened(part: MarginalLogLikelihood, loss: float) -> list[_Start]:
    """All lengthscales longer, with more noise, if both are fitted.

    The objective is as it was then.
    """
    optimum, (length, more) = Fitted.of(part), LONGER
    lengthscales, noises = _lengthscales(part), _noises(part)
    if not (lengthscales and noises):
        return []
    for kernel, lengthscale in lengthscales:
        _set(kernel, "lengthscale", length * lengthscale)
    for noise in noises:
        _set(noise, "noise", more * noise.noise)
    found = _Start(_loss(part) - loss, NEARLY, Fitted.of(part))
    optimum.give(part)
    return [found]


def _lengthscales(part: MarginalLogLikelihood) -> list[tuple[Kernel, Tensor]]:
    """Kernels whose lengthscales are fitted, and these."""
    return [
        (kernel, kernel.lengthscale.detach().clone())
        for kernel in part.modules()
        if isinstance(kernel, Kernel) and kernel.has_lengthscale
        if kernel.raw_lengthscale.requires_grad
    ]


def _noises(part: MarginalLogLikelihood) -> list[HomoskedasticNoise]:
    """Noises that are fitted."""
    return [
        noise
        for noise in part.modules()
        if isinstance(noise, HomoskedasticNoise) and noise.raw_noise.requires_grad
    ]


def _nearer(value: Tensor, constraint: Interval, share: float) -> Tensor:
    """Values of which this share is left above their constraint."""
    least = constraint.lower_bound.clamp_min(0.0)  # of some it is -inf
    nearer: Tensor = least + share * (value - least)
    return nearer


def _set(module: Module, name: str, value: Tensor) -> bool:
    """Set a value if its constraint and its prior allow it; say whether they do."""
    try:
        module.initialize(**{name: value})
    except (RuntimeError, ValueError):
        return False
    return True


def _loss(part: MarginalLogLikelihood) -> float:
    """The objective, negated; infinite where it can't be had, or a prior has none."""
    try:
        return float(loss_of(part).mean())
    except (*NUMERICAL_ERRORS, ValueError):
        return inf


@torch.no_grad()
def likelihood_gap(
    mll: MarginalLogLikelihood, kept: Fitted, others: Sequence[Fitted], num_rows: int
) -> LikelihoodGap | None:
    """How much larger the exact likelihood of random rows is at others' values.

    For each row, at least zero. None where it can't be had for what was kept, whose
    kernel matrix has no factor; others of which that is so say nothing. Cost:
    O(num_rows^3) for each fit.
    """
    part, losses = on_random_rows(mll, num_rows), list[float]()
    for fitted in [kept, *others]:
        for name, parameter in part.named_parameters():
            parameter.copy_(fitted.hyperparameters[name])
        losses.append(_loss(part))
    gap = losses[0] - min(losses)
    return None if losses[0] == inf else LikelihoodGap(gap, num_rows)


def gap_from_here(model: ExactGP) -> LikelihoodGap | None:
    """How much larger the exact likelihood of random rows is after a fit of these.

    From the present values, on a copy; for a fit that had no exact one beside it. None
    for several outputs or a batch, where nothing is fitted or random rows can't be, and
    for a model that holds a graph. Cost: a fit of 1,000 rows.
    """
    is_one = model._aug_batch_shape.numel() == 1
    if not is_one or not any(p.requires_grad for p in model.parameters()):
        return None
    num_rows = min(MOST_LOOKED_AT, model.train_targets.shape[-1])
    with torch.inference_mode(False), torch.enable_grad(), one_thread():
        try:
            twin = copy.deepcopy(model)
            mll = ExactMarginalLogLikelihood(twin.likelihood, twin)
            if not is_divisible(mll, {}):
                return None
            part = on_random_rows(mll, num_rows)
            before = _loss(part)
            fit_once(part, in_few_steps({}))
        except (ModelFittingError, RuntimeError):
            return None
        gap = max(0.0, before - _loss(part))
    return LikelihoodGap(gap, num_rows) if isfinite(gap) else None


def _slope(mll: MarginalLogLikelihood, num_rows: int) -> float:
    """The steepest slope of the exact objective per row, of positive ones in logs.

    Infinite where the objective can't be had.
    """
    part = on_random_rows(mll, num_rows)
    parameters = [p for p in part.parameters() if p.requires_grad]
    try:
        loss = get_loss_closure(part)().sum()
    except NUMERICAL_ERRORS:
        return inf
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    slopes = [
        (grad * (p.detach() if bool((p > 0).all()) else 1.0)).abs().max()
        for p, grad in zip(parameters, grads, strict=True)
        if grad is not None
    ]
    return max((slope.item() for slope in slopes), default=0.0)


def on_random_rows(mll: MarginalLogLikelihood, num_rows: int) -> MarginalLogLikelihood:
    """A copy of the objective for random rows of its data: the exact GP, in train mode.

    What transforms of the inputs have learned from all data stays.
    """
    model, rows = mll.train().model, shuffled_rows(mll.model)[:num_rows]
    of_rows = {id(X): X[..., rows, :] for X in model.train_inputs}
    of_rows[id(model.train_targets)] = model.train_targets[..., rows]
    of_rows[id(model._state)] = type(model._state)()
    if (extra := model._outlier_noise) is not None:
        of_rows[id(extra)] = extra[..., rows]
    if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        noise = model.likelihood.noise_covar
        of_rows[id(noise)] = FixedGaussianNoise(noise.noise[..., rows])
    try:
        part = copy.deepcopy(mll, of_rows)
    except RuntimeError as error:
        raise ModelFittingError(f"The objective cannot be copied: {error}") from error
    for module in part.modules():
        if hasattr(module, "learn_coefficients"):
            module.learn_coefficients = False
    part.model._is_fitting = True
    part.model._take(InducingSet.of_all(raw_inputs(part.model)))
    return part


def is_divisible(mll: MarginalLogLikelihood, options: Options) -> bool:
    """Whether random rows of the objective can be fitted with the same options.

    Data in the likelihood must be known, and no option may belong to this objective
    alone.
    """
    divisible = {GaussianLikelihood, FixedNoiseGaussianLikelihood, TaskNoise}
    kwargs: Options = options.get("optimizer_kwargs") or {}
    named = {"parameters", "bounds", "callback", "timeout_sec"}
    return (
        type(mll.model.likelihood) in divisible
        and options.get("closure") is None
        and options.get("closure_kwargs") is None
        and named.isdisjoint([*kwargs, *options])
    )
