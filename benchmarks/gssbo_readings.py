"""The readings of GSSBO's gradient on many seeds, with a cheap acquisition optimizer.

As `benchmarks.gssbo`, but UCB is maximized over 256 uniform points and 256 around the
best samples, and hyperparameters are fitted when data grew by a half: a run takes
seconds, so that differences stand out from the luck of the initial design. `earliest`
is a control: the first samples and the newest one.
"""

import argparse
import json
import statistics
from functools import partial
from pathlib import Path

import torch
from botorch import fit_gpytorch_mll
from botorch.exceptions import ModelFittingError
from botorch.utils.sampling import manual_seed
from botorch.utils.transforms import normalize, unnormalize
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.gssbo import interval
from benchmarks.gssbo_baselines import BETA, matern
from benchmarks.gssbo_methods import READINGS, SUBSET_SIZE, earliest
from benchmarks.gssbo_problems import NUM_INITIAL, Problem
from botorch_sparse.models import RefitSchedule, SubsetSingleTaskGP

PROBLEMS = ("eggholder2", "hartmann6", "levy20")
NUM_CANDIDATES = 256
NUM_BEST, SCALE = 5, 0.05
SELECTIONS = {
    **{r: partial(SubsetSingleTaskGP, reading=r) for r in READINGS},
    **{
        f"{r}, exact": partial(SubsetSingleTaskGP, reading=r, gradients="exact")
        for r in READINGS
    },
    "random": partial(SubsetSingleTaskGP, selection="random"),
    "earliest": partial(SubsetSingleTaskGP, selection=earliest),
    "all": partial(SubsetSingleTaskGP, subset_size=None),
}
METHODS = (*READINGS, "random", "earliest", "all")


def candidates(model: SubsetSingleTaskGP, generator: torch.Generator) -> Tensor:
    """Uniform points, and points near the best samples that are known."""
    X = model.all_train_X
    shape = (NUM_CANDIDATES, X.shape[-1])
    uniform = torch.rand(shape, generator=generator, dtype=X.dtype)
    best = model.all_train_Y.flatten().topk(NUM_BEST).indices
    which = torch.randint(NUM_BEST, shape[:1], generator=generator)
    step = SCALE * torch.randn(shape, generator=generator, dtype=X.dtype)
    return torch.cat([uniform, (X[best[which]] + step).clamp(0, 1)])


def fit(model: SubsetSingleTaskGP) -> None:
    """Fit on the samples in the model, and choose them again."""
    model.refit_transforms()
    try:
        with manual_seed(0):
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    except ModelFittingError:
        pass
    model.reselect()


def regret(problem: Problem, method: str, total: int) -> float:
    """Cumulative regret of a run."""
    generator = torch.Generator().manual_seed(problem.seed)
    X = problem.initial()
    Y = problem.evaluate(X)
    options = {"subset_size": SUBSET_SIZE} if method != "all" else {}
    model = SELECTIONS[method](
        normalize(X, problem.bounds),
        Y,
        covar_module=matern(problem.dim),
        num_initial=NUM_INITIAL,
        seed=problem.seed,
        **options,
    )
    schedule = RefitSchedule(growth=1.5)
    while model.num_observations < total:
        if schedule.is_due(model.num_observations):
            fit(model)
            schedule.record(model.num_observations)
        Z = candidates(model.eval(), generator)
        with torch.no_grad():
            posterior = model.posterior(Z.unsqueeze(1))
        ucb = (posterior.mean + (BETA * posterior.variance).sqrt()).flatten()
        x = Z[ucb.argmax()].unsqueeze(0)
        model.add_observations(x, problem.evaluate(unnormalize(x, problem.bounds)))
    return sum(problem.regret(model.all_train_Y))


def main(arguments: list[str] | None = None) -> None:
    """Run what is not stored yet, seed by seed, and print means and differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--total", type=int, default=300)
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", action="store_true", help="run nothing")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    runs: dict[str, float] = {}
    if args.store is not None and args.store.exists():
        runs = json.loads(args.store.read_text())
    for seed in range(0 if args.report else args.seeds):
        for name in args.problems:
            for method in args.methods:
                key = f"{name}/{method}/{seed}"
                if key not in runs:
                    runs[key] = regret(Problem(name, seed), method, args.total)
                    if args.store is not None:
                        args.store.write_text(json.dumps(runs))
    for name in args.problems:
        report(runs, name, args.methods, args.seeds)


def report(runs: dict[str, float], name: str, methods: list[str], seeds: int) -> None:
    """Print cumulative regret, and how it differs from that of random samples."""
    print(f"{name}: cumulative regret; less that of random samples, by seed")
    for method in methods:
        values = [runs.get(f"{name}/{method}/{seed}") for seed in range(seeds)]
        random = [runs.get(f"{name}/random/{seed}") for seed in range(seeds)]
        there = [v for v in values if v is not None]
        both = [
            v - r
            for v, r in zip(values, random, strict=True)
            if v is not None and r is not None
        ]
        if both:
            print(
                f"  {method:20s} {interval(there):20s} median "
                f"{statistics.median(there):.4g}; {interval(both)}, smaller for "
                f"{sum(d < 0 for d in both)} of {len(both)} seeds"
            )


if __name__ == "__main__":
    main()
