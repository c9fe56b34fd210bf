"""A sparse posterior of what was evaluated near some points."""

import torch
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import condition_with_constant_mean
from botorch_sparse.strategies.data.evaluations import FoldedValues
from botorch_sparse.strategies.data.history import History, evaluations_at
from botorch_sparse.strategies.surrogates.prior import Prior, PriorSource

# Points of a posterior, the nearest ones.
MOST_POINTS, LEAST_POINTS = 2000, 200
# How far from a middle points are near, in sides of its region.
REACH = 2.0
# Points of a fit, half of them the nearest ones, half of the others.
FIT_POINTS = 300


def at(values: FoldedValues, places: Tensor) -> FoldedValues:
    """Some points, in another order."""
    return FoldedValues(values.point[places], values.Y[places], values.counts[places])


def few_of(values: FoldedValues, generator: torch.Generator) -> FoldedValues:
    """Points for a fit: half of them the first ones, and some of the others."""
    num, half = len(values), FIT_POINTS // 2
    if num <= FIT_POINTS:
        return values
    others = half + torch.randperm(num - half, generator=generator)[:half]
    return at(values, torch.cat([torch.arange(half), others]))


def nearest(X: Tensor, centers: Tensor, sides: Tensor) -> Tensor:
    """Places of the points that a posterior of some regions is of, the nearest first.

    Those within twice its sides of a middle, and others until there are 200: values
    from far away have a range in which those of a small region would all be the same.
    Each region has its nearest point first, then each its second, and so on.

    Args:
        X: `n x d` points.
        centers: `r x d` middles; without any all points stay, in their order.
        sides: `r x d` sides of the regions.

    Returns:
        Places in the rows of `X`. Cost: O(r n d) time and memory, O(r n log n).
    """
    if not len(centers):
        return torch.arange(len(X), device=X.device)
    away = (X - centers.unsqueeze(-2)) / sides.unsqueeze(-2)
    turn = away.norm(dim=-1).argsort(dim=-1, stable=True).argsort(dim=-1).amin(0)
    is_far = (away.abs().amax(-1) > REACH).all(0)
    order = (turn + len(X) * is_far).argsort(stable=True)
    return order[: max(LEAST_POINTS, len(X) - int(is_far.sum()))]


@torch.no_grad()
def local_posterior(
    source: PriorSource,
    prior: Prior,
    history: History,
    values: FoldedValues,
    most: int,
) -> NystromPosterior:
    r"""The posterior of values whose first points are inducing points.

    What inducing points leave open of another point counts as noise of it, so that
    points beside them tell what they can and no more (the FITC approximation of
    [Snelson2006]_): :math:`d_i = \lambda / n_i + k(x_i, x_i) - \phi(x_i)^\top
    \phi(x_i)`.

    Args:
        source: Makes the inputs.
        prior: Kernel, noise and unit.
        history: Where the points are.
        values: Those of `n` points, the most important ones first.
        most: Inducing points at most, `m`.

    Returns:
        The posterior in units of the prior's scale. Cost: O(n m^2).
    """
    data = evaluations_at(history, values)
    X, Y = source.inputs(data.X), data.Y / prior.scale
    mean = prior.mean_module
    blank = NystromPosterior.prior(prior.covar_module, X[:most], mean_module=mean)
    noise = prior.lam / data.counts
    noise[most:] += blank.residual(X[most:], blank.features(X[most:]))
    if mean is None:
        return condition_with_constant_mean(blank, X, Y, noise)
    return blank.condition(X, Y, noise)
