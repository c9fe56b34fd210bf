# %% [markdown]
# # Ten thousand evaluations in a BoTorch loop
#
# Fifty experiments at a time, for two hundred rounds. With an exact Gaussian process
# the loop would be over long before, when a step takes longer than the experiments.
# Here a step of the last rounds takes about half as long again as one of the first
# (2.8 and 4.1 seconds below).

# %%
# %matplotlib inline
import os
import time
import warnings

import torch
from botorch.exceptions import OptimizationWarning
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.test_functions import Hartmann
from botorch.utils.sampling import optimize_posterior_samples
from gpytorch.mlls import ExactMarginalLogLikelihood
from matplotlib.figure import Figure

from botorch_sparse.models import RefitSchedule, SparseSingleTaskGP

SMOKE_TEST = "SMOKE_TEST" in os.environ
warnings.simplefilter("ignore", OptimizationWarning)  # searches that rounding ends
initial, batch, total = (5, 5, 60) if SMOKE_TEST else (500, 50, 10_000)
raw_samples, restarts = (16, 2) if SMOKE_TEST else (1024, 20)  # BoTorch's defaults

problem = Hartmann(negate=True, noise_std=0.1, dtype=torch.float64)
steps = []  # observations, CPU seconds, regret of the best point


def note(model, X, start):
    best = X[model.posterior(X).mean.argmax()].unsqueeze(0)
    regret = problem.optimal_value - problem(best, noise=False).item()
    steps.append((len(X), time.process_time() - start, regret))


# %% [markdown]
# ## Ten lines
#
# Three things keep a step short:
#
# - *Inducing points.* Above 500 different points the model draws them under its present
#   hyperparameters. The model costs O(n m^2), and each point that the search looks at
#   O(m^2), whatever n is. `max_inducing_points` bounds m.
# - *Warm hyperparameters.* `load_state_dict` hands over the last step's, with their
#   standardization of the outcomes. The standardization of the first five hundred would
#   not do for the last. So a fit begins with its own.
# - *Fits that are due.* A fit costs fifty evaluations of the likelihood, a model one.
#   `RefitSchedule(growth=1.5)` fits when data have grown by half: eight times in all.
#
# A batch is the maxima of fifty sample paths of the posterior (Thompson sampling), each
# found by itself. Fifty points at once by an acquisition function are 300 variables,
# and most of them hardly change its value.

# %%
torch.manual_seed(0)
X = torch.rand(initial, 6, dtype=torch.float64)
Y, state = problem(X).unsqueeze(-1), {}
schedule = RefitSchedule(growth=1.5)
while len(X) < total:
    start = time.process_time()
    model = SparseSingleTaskGP(X, Y, max_inducing_points=500)
    if schedule.is_due(len(X)):  # to standardize anew
        state = {k: v for k, v in state.items() if "transform" not in k}
    model.load_state_dict({**model.state_dict(), **state})
    schedule.fit(ExactMarginalLogLikelihood(model.likelihood, model))
    state, paths = model.state_dict(), draw_matheron_paths(model, torch.Size([batch]))
    new, _ = optimize_posterior_samples(paths, problem.bounds, raw_samples, restarts)
    note(model, X, start)
    X, Y = torch.cat([X, new]), torch.cat([Y, problem(new).unsqueeze(-1)])

# %% [markdown]
# The best point has the largest posterior mean. The largest observation is one of the
# luckiest, not one of the best.
#
# ## What it took

# %%
print("evaluations   CPU seconds a step   regret of the best point")
for share in (0.1, 0.3, 1.0):
    near = [step for step in steps if 0.6 <= step[0] / (share * total) <= 1.0]
    seconds = sum(step[1] for step in near) / len(near)
    print(f"{near[-1][0]:>11} {seconds:>20.1f} {near[-1][2]:>26.3f}")

# %%
figure = Figure(figsize=(7, 3), layout="constrained")
left, right = figure.subplots(1, 2)
n, seconds, regret = zip(*steps, strict=True)
left.plot(n, seconds, ".", markersize=3)
left.set(xlabel="observations", ylabel="CPU seconds of a step", ylim=(0, None))
right.plot(n, regret)
right.set(xlabel="observations", ylabel="regret of the best point", yscale="log")
figure

# %% [markdown]
# The dots far above the others are the steps with a fit. The rest of the growth is the
# draw of inducing points, O(n m^2). The bump of the regret at 4,000 comes with a fit
# too, and goes with the data that its model asks for.
#
# `python -m benchmarks.long_loop` measures the same loop part by part, with its memory.
# Where the best value on a box is all that counts, `TrustRegionBBKB` takes a hundredth
# of a second for an evaluation: see `docs/reference/comparison.md`.
