"""Gaussian processes as BoTorch's users build them; peers of `benchmarks.pools`.

They have BoTorch's defaults (inputs scaled to their ranges, standardized outcomes, an
RBF kernel with a lengthscale for each input, priors) and are fitted again after each
batch from where the last fit ended. Random numbers that a library draws come from
torch's global generator, which the caller seeds.

References:
    .. [Ament2023]
        S. Ament, S. Daulton, D. Eriksson, M. Balandat and E. Bakshy. Unexpected
        improvements to expected improvement for Bayesian optimization. NeurIPS 2023.
    .. [Wilson2020]
        J. T. Wilson, V. Borovitskiy, A. Terenin, P. Mostowsky and M. P. Deisenroth.
        Efficiently sampling functions from Gaussian process posteriors. ICML 2020.
"""

from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.generation import MaxPosteriorSampling
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.gpytorch import GPyTorchModel
from botorch.optim import optimize_acqf_discrete
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import MatheronPath, draw_matheron_paths
from botorch.utils.transforms import standardize
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from torch import Tensor

from benchmarks.pool_tables import Candidates, Proposer, largest, random_rows, unit

FIT_STEPS = 200  # of L-BFGS at most
QUICK_STEPS = 20  # likewise, from where the last fit ended
JOINT_ROWS = 5_000  # larger tables are sampled along paths
CHUNK = 1_000  # rows at which paths and means are evaluated at a time
SCREENED_ROWS = 10_000  # of a larger table, this many random rows are screened for EI
CHOICES = 200  # rows among which a batch of qLogEI is chosen
MC_SAMPLES = 64
NUM_INDUCING = 100
ADAM_STEPS, ADAM_RATE = 100, 0.02


class WarmGP:
    """`SingleTaskGP`, whose fit starts where that of the last batch ended.

    Args:
        warm_steps: Steps of L-BFGS at most, from the second batch on.
        build: From inputs, `n x d`, and values, `n x 1`, to a model.
    """

    def __init__(
        self,
        warm_steps: int,
        build: Callable[[Tensor, Tensor], SingleTaskGP] = SingleTaskGP,
    ) -> None:
        self.warm_steps = warm_steps
        self.build = build
        self._state: dict[str, Tensor] | None = None

    def fit(self, X: Tensor, Y: Tensor) -> SingleTaskGP:
        """The model of `n x d` inputs, in the unit cube by default, and `n` values."""
        steps = FIT_STEPS if self._state is None else self.warm_steps
        model = self.build(X, Y.unsqueeze(-1))
        if self._state is not None:
            state = model.state_dict()  # the scaling of the outcomes is this batch's
            kept = {k: v for k, v in self._state.items() if "transform" not in k}
            model.load_state_dict(state | kept)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": steps}})
        self._state = model.state_dict()
        return model


def exact_thompson(
    candidates: Candidates, seed: int, joint_rows: int = JOINT_ROWS
) -> Proposer:
    """Maximizers of posterior samples of the exact GP, fitted as BoTorch does.

    Joint samples on all free rows up to `joint_rows`, O(A^3); beyond, sample paths at
    all rows [Wilson2020]_, O(A n) a batch.
    """
    return _exact_thompson(candidates, WarmGP(FIT_STEPS), joint_rows)


def quick_thompson(candidates: Candidates, seed: int) -> Proposer:
    """The same as cheap as it gets: short fits, and sample paths on any table."""
    return _exact_thompson(candidates, WarmGP(QUICK_STEPS), joint_rows=0)


def _exact_thompson(candidates: Candidates, gp: WarmGP, joint_rows: int) -> Proposer:
    X = unit(candidates.X)

    def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
        model = gp.fit(X[rows], Y)
        if len(X) > joint_rows:
            return _path_maximizers(model, X, free, q)
        left = free.nonzero().squeeze(-1)
        sampler = MaxPosteriorSampling(model, replacement=False)
        with torch.no_grad():
            points = sampler(X[left], num_samples=q)
        return rows_of(points, X, left)

    return propose


def _path_maximizers(model: GPyTorchModel, X: Tensor, free: Tensor, q: int) -> Tensor:
    """The best free row of each of `q` sample paths, different ones."""
    with torch.no_grad():
        paths = draw_matheron_paths(model, torch.Size([q]))
        values = torch.cat([_values(paths, part) for part in X.split(CHUNK)], -1)
    chosen: list[int] = []
    free = free.clone()
    for sample in values:
        chosen.append(int(sample.masked_fill(~free, -torch.inf).argmax()))
        free[chosen[-1]] = False
    return torch.tensor(chosen)


def _values(paths: MatheronPath, X: Tensor) -> Tensor:
    """`q x b` values of sample paths, in the model's own unit and up to the mean.

    One product of features and weights for all paths; BoTorch's own call takes one for
    each path, which is several times slower.
    """
    prior, update = paths["prior_paths"], paths["update_paths"]
    values: Tensor = prior.weight @ prior.feature_map(X).mT
    return values + update.weight @ update.feature_map(X).to_dense().mT


def rows_of(points: Tensor, X: Tensor, rows: Tensor) -> Tensor:
    """For each point the first of the rows that equals it and is not taken yet."""
    taken: list[int] = []
    for point in points:
        equal = rows[(X[rows] == point).all(-1)].tolist()
        taken.append(next(row for row in equal if row not in taken))
    return torch.tensor(taken)


def qlogei(
    candidates: Candidates,
    seed: int,
    choices: int = CHOICES,
    screened_rows: int = SCREENED_ROWS,
) -> Proposer:
    """Batches of the largest qLogEI [Ament2023]_, one point after the other.

    The choices are the `choices` rows of the largest LogEI, of all rows or of
    `screened_rows` random ones and the largest means: at all rows a batch would take
    minutes. Fits are short, as in `quick_thompson`. The best value so far is the
    largest posterior mean at the rows evaluated, since feedback is noisy.
    """
    X, gp = unit(candidates.X), WarmGP(QUICK_STEPS)
    generator = torch.Generator().manual_seed(seed)

    def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
        model = gp.fit(X[rows], Y)
        with torch.no_grad():
            best = model.posterior(X[rows]).mean.max()
            screened = free.nonzero().squeeze(-1)
            if len(screened) > screened_rows:
                means = _means(model, X)
                parts = [
                    largest(means, free, choices),
                    random_rows(free, screened_rows, generator),
                ]
                screened = torch.cat(parts).unique()
            scores = _in_parts(LogExpectedImprovement(model, best), X[screened])
        left = screened[scores.topk(min(max(choices, q), len(screened))).indices]
        sampler = SobolQMCNormalSampler(torch.Size([MC_SAMPLES]), seed=seed)
        acquisition = qLogExpectedImprovement(model, best, sampler=sampler)
        points, _ = optimize_acqf_discrete(acquisition, q, X[left])
        return rows_of(points, X, left)

    return propose


def _means(model: SingleTaskGP, X: Tensor) -> Tensor:
    """The posterior's means, in the model's own unit."""
    with gpytorch.settings.skip_posterior_variances():
        return torch.cat([model(part).mean for part in X.split(CHUNK)])


def _in_parts(acquisition: Any, X: Tensor) -> Tensor:
    """Values of an acquisition function at single points."""
    return torch.cat([acquisition(part.unsqueeze(-2)) for part in X.split(CHUNK)])


def svgp_thompson(
    candidates: Candidates,
    seed: int,
    num_inducing: int = NUM_INDUCING,
    steps: int = ADAM_STEPS,
) -> Proposer:
    """Maximizers of sample paths of a sparse variational GP, trained by Adam.

    Its inducing points start at random rows and are learned; parameters are kept from
    one batch to the next.
    """
    X = unit(candidates.X)
    generator = torch.Generator().manual_seed(seed)
    start = random_rows(torch.ones(len(X), dtype=torch.bool), num_inducing, generator)
    state: dict[str, dict[str, Tensor]] = {}

    def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
        model = SingleTaskVariationalGP(
            X[rows],
            standardize(Y.unsqueeze(-1)),
            inducing_points=X[start].clone(),
        )
        parts = {"model": model.model, "likelihood": model.likelihood}
        for name, kept in state.items():
            parts[name].load_state_dict(kept)
        _train(model, steps)
        state.update({name: part.state_dict() for name, part in parts.items()})
        return _path_maximizers(model, X, free, q)

    return propose


def _train(model: SingleTaskVariationalGP, steps: int) -> None:
    """Maximize the evidence lower bound of the whole data by Adam."""
    X, Y = model.model.train_inputs[0], model.model.train_targets
    mll = VariationalELBO(model.likelihood, model.model, num_data=len(Y))
    optimizer = torch.optim.Adam(mll.parameters(), lr=ADAM_RATE)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -mll(model.model(X), Y)
        loss.backward()
        optimizer.step()
    model.eval()
