"""What people use to find the best row of a table; for benchmarks only.

A method is built from the candidates and a seed, and is then asked for rows, given all
that was evaluated so far; each row is evaluated at most once. The Gaussian processes
are in `benchmarks.pool_gps`.

References:
    .. [Hutter2011]
        F. Hutter, H. H. Hoos and K. Leyton-Brown. Sequential model-based optimization
        for general algorithm configuration. LION 2011.
    .. [Watanabe2023]
        S. Watanabe. Tree-structured Parzen estimator: understanding its algorithm
        components and their roles for better empirical performance. 2023.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import torch
from optuna.distributions import CategoricalDistribution, IntDistribution
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from benchmarks.pool_gps import (
    exact_thompson,
    qlogei,
    quick_thompson,
    svgp_thompson,
)
from benchmarks.pool_tables import Candidates, Proposer, largest, random_rows

NUM_TREES = 100
SPREAD = 1.96  # standard deviations over the trees, as scikit-optimize's default


def random_search(candidates: Candidates, seed: int) -> Proposer:
    """Uniform choice without replacement."""
    generator = torch.Generator().manual_seed(1_000 + seed)
    return lambda rows, Y, free, q: random_rows(free, q, generator)


def forest_greedy(candidates: Candidates, seed: int) -> Proposer:
    """The largest means of a random forest."""
    return _forest(candidates, seed, spread=0.0)


def forest_ucb(candidates: Candidates, seed: int) -> Proposer:
    """The largest means plus spreads over the trees, as in [Hutter2011]_."""
    return _forest(candidates, seed, spread=SPREAD)


def _forest(candidates: Candidates, seed: int, spread: float) -> Proposer:
    X = candidates.X.numpy().astype(np.float32)  # what the trees compare

    def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
        forest = RandomForestRegressor(NUM_TREES, random_state=seed + len(rows))
        forest.fit(X[rows.numpy()], Y.numpy())
        mean, square = np.zeros(len(X)), np.zeros(len(X))
        for tree in forest.estimators_:
            values = tree.tree_.predict(X).squeeze(-1)
            mean += values / NUM_TREES
            square += values**2 / NUM_TREES
        sd = np.sqrt(np.maximum(square - mean**2, 0.0))
        return largest(torch.from_numpy(mean + spread * sd), free, q)

    return propose


def tpe(candidates: Candidates, seed: int) -> Proposer:
    """Optuna's tree-structured Parzen estimator [Watanabe2023]_ over the parameters.

    A trial draws each parameter from the values that the table has of it, sizes by
    their place in the order; the free row nearest in those places is evaluated, and it
    is the row's own parameters that the study is told. All parameters are sampled
    jointly (`multivariate`), and pending trials count as bad ones (`constant_liar`).
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space, num_told = _SearchSpace(candidates), 0
    sampler = optuna.samplers.TPESampler(
        seed=seed, multivariate=True, constant_liar=True
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
        nonlocal num_told
        for row, y in zip(rows[num_told:], Y[num_told:], strict=True):
            study.add_trial(space.trial(int(row), float(y)))
        num_told = len(rows)
        trials = [study.ask(space.distributions) for _ in range(q)]
        chosen, free = [], free.clone()
        for trial in trials:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            distance = space.distance(trial.params)
            chosen.append(int(distance.masked_fill(~free, torch.inf).argmin()))
            free[chosen[-1]] = False
        return torch.tensor(chosen)

    return propose


class _SearchSpace:
    """The parameters of a table as Optuna's.

    Attributes:
        places: `A x c` places of the values among those of their column.
        distributions: Optuna's, by the name of the parameter.
    """

    def __init__(self, candidates: Candidates) -> None:
        columns = [p.unique(return_inverse=True)[1] for p in candidates.parameters.mT]
        self.places = torch.stack(columns, -1)
        self.is_categorical = candidates.is_categorical
        tops = self.places.max(0).values
        self.distributions: dict[str, Any] = {
            f"p{i}": CategoricalDistribution(list(range(top + 1)))
            if self.is_categorical
            else IntDistribution(0, top)
            for i, top in enumerate(tops.tolist())
        }
        self._width = tops.clamp_min(1)
        self._scaled = self.places / self._width.double()

    def trial(self, row: int, y: float) -> optuna.trial.FrozenTrial:
        """An evaluated row."""
        params = dict(zip(self.distributions, self.places[row].tolist(), strict=True))
        return optuna.trial.create_trial(
            params=params, distributions=self.distributions, value=y
        )

    def distance(self, params: dict[str, Any]) -> Tensor:
        """`A` distances of the rows: names that differ, or squares of places."""
        point = torch.tensor([params[name] for name in self.distributions])
        if self.is_categorical:
            return (self.places != point).sum(-1).double()
        return (self._scaled - point / self._width.double()).square().sum(-1)


PEERS: dict[str, Callable[[Candidates, int], Proposer]] = {
    "random": random_search,
    "forest-greedy": forest_greedy,
    "forest-ucb": forest_ucb,
    "tpe": tpe,
    "exact-ts": exact_thompson,
    "exact-ts-quick": quick_thompson,
    "svgp-ts": svgp_thompson,
    "qlogei": qlogei,
}
