"""The observed points that an acquisition function compares candidates with."""

import torch
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP

# Rows whose means are computed at a time.
CHUNK_SIZE = 4096


@torch.no_grad()
def best_points(
    model: Model,
    X: Tensor,
    objective_weights: Tensor,
    outcome_constraints: tuple[Tensor, Tensor] | None,
    size: int,
    objective_thresholds: Tensor | None = None,
) -> Tensor:
    """At most `size` rows of `X` with the best posterior mean, in their order.

    Feasible ones come first; with several objectives, the first Pareto fronts, of the
    last one points that are far from each other. The objectives' `k x m` weights are
    for maximizing; constraints are `A` (`c x m`) and `b` (`c x 1`) of `A y <= b`. What
    is below one of the `k` thresholds counts as infeasible; NaN is no threshold. Cost:
    O(n m) in the number of inducing points.
    """
    if len(X) <= size:
        return X
    mean = torch.cat([mean_at(model, x) for x in X.split(CHUNK_SIZE)])
    objectives = mean @ objective_weights.to(mean).T
    excess = mean.new_zeros(len(X))
    if outcome_constraints is not None:
        A, b = (t.to(mean) for t in outcome_constraints)
        excess = (mean @ A.T - b.T).clamp_min(0.0).sum(-1)
    if objective_thresholds is not None:
        below = objective_thresholds.to(mean) - objectives
        excess = excess + below.nan_to_num(0.0).clamp_min(0.0).sum(-1)
    rank = _rank(objectives, excess, size)
    return X[rank.argsort(stable=True)[:size].sort().values]


def remember(model: Model, X: Tensor) -> None:
    """Let sparse models keep what they need of `r x d` points, before transforms."""
    for each in model.models if isinstance(model, ModelListGP) else [model]:
        if isinstance(each, SparseSingleTaskGP):
            each.remember(X)


def mean_at(model: Model, X: Tensor) -> Tensor:
    """Posterior means, `k x m`; of a sparse model in O(k m), without features."""
    if isinstance(model, SparseSingleTaskGP):
        model.eval().sparsify()
    if not isinstance(model, SparseSingleTaskGP) or model.is_exact:
        return model.posterior(X.unsqueeze(-2)).mean.squeeze(-2)
    posterior, Z = model.nystrom_posterior(), model.transform_inputs(X)
    weights = posterior.representer_weights().unsqueeze(-2)
    covariance = posterior.covariance_with_inducing(Z)
    mean = posterior.mean_module(Z) + (weights @ covariance).squeeze(-2)
    mean = mean.reshape(-1, len(X)).T.to(X)
    if not hasattr(model, "outcome_transform"):
        return mean
    return model.outcome_transform.untransform(mean)[0]


def _rank(objectives: Tensor, excess: Tensor, size: int) -> Tensor:
    """`n` ranks, the lowest first; at least `size` of them are told apart."""
    if objectives.shape[-1] == 1:
        # All that are infeasible come after the worst that is not.
        worst = objectives.max() - objectives.min() + 1.0
        return -objectives.squeeze(-1) + torch.where(excess > 0, worst + excess, 0.0)
    rank = len(excess) + excess
    left = (excess <= 0).nonzero().squeeze(-1)
    num = 0
    while len(left) and num < size:
        is_best = is_non_dominated(objectives[left], deduplicate=False)
        front = left[is_best]
        order = _spread_out(objectives[front], size - num)
        rank[front[order]] = num + torch.arange(len(order)).to(rank)
        left, num = left[~is_best], num + len(order)
    return rank


def _spread_out(Y: Tensor, num: int) -> Tensor:
    """Places of at most `num` of the values `f x k`, each far from those before it.

    Among the first of any number no value is farther from its nearest one than twice
    what is possible. What a front's oldest points leave out of it an acquisition
    function takes for an improvement. Cost: O(f k) for each.
    """
    Z = Y / (Y.amax(0) - Y.amin(0)).clamp_min(torch.finfo(Y.dtype).tiny)
    place, distance = Z[:, 0].argmax(), Y.new_full((len(Y),), torch.inf)
    places = []
    for _ in range(min(num, len(Y))):
        places.append(place)
        distance = distance.minimum((Z - Z[place]).abs().amax(-1))
        distance[place] = -1.0
        place = distance.argmax()
    return torch.stack(places)
