# %% [markdown]
# # A BoTorch loop, before and after
#
# You have a Bayesian optimization loop in BoTorch. It works, and it becomes slower with
# each evaluation, until somewhere around two thousand of them one step takes longer
# than your experiment. This notebook changes one line of it.

# %%
# %matplotlib inline
import os
import time

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import Branin
from gpytorch.mlls import ExactMarginalLogLikelihood
from matplotlib.figure import Figure

from botorch_sparse.models import RefitSchedule, SparseSingleTaskGP

SMOKE_TEST = "SMOKE_TEST" in os.environ
problem = Branin(negate=True, noise_std=5.0, dtype=torch.float64)
bounds = problem.bounds

# %% [markdown]
# ## Before
#
# One step of the loop: build a model of all data, fit its hyperparameters, maximize an
# acquisition function.


# %%
def fitted(model_class, X, Y):
    model = model_class(X, Y, input_transform=Normalize(2, bounds=bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def propose(model, X):
    best_f = model.posterior(X).mean.max().detach()  # the observations are noisy
    acqf = LogExpectedImprovement(model, best_f=best_f)
    candidate, _ = optimize_acqf(acqf, bounds, q=1, num_restarts=2, raw_samples=64)
    return candidate


def evaluations(n):
    X = bounds[0] + (bounds[1] - bounds[0]) * torch.rand(n, 2).to(bounds)
    return X, problem(X).unsqueeze(-1)


torch.manual_seed(0)
X, Y = evaluations(50)
candidate = propose(fitted(SingleTaskGP, X, Y), X)

# %% [markdown]
# ## After
#
# `SparseSingleTaskGP` is a `SingleTaskGP`: the same constructor, the same fit, the same
# `posterior`, the same acquisition functions. Up to 500 different points it even *is*
# the exact GP, so that nothing changes for a short run. Above that it draws inducing
# points, and a fit costs $O(n m^2)$ in place of $O(n^3)$.

# %%
model = fitted(SparseSingleTaskGP, X, Y)
candidate = propose(model, X)
model.summary()

# %% [markdown]
# ## What it costs
#
# Both, on the same growing data. Up to 500 points the two curves are the same model;
# beyond, the exact one bends upward.
#
# How much is gained depends on the function. Here a hundred inducing points say all
# that thousands of noisy observations in two dimensions do. Evenly spread data in six
# dimensions with little noise have no such redundancy, and no sparse model finds one.
# The model then grows its inducing points to the cap, and says so.

# %%
sizes = (30, 40, 50, 510) if SMOKE_TEST else (200, 400, 800, 1600)
seconds = {SingleTaskGP: [], SparseSingleTaskGP: []}
X, Y = evaluations(max(sizes))
for n in sizes:
    for model_class, times in seconds.items():
        start = time.process_time()
        model = fitted(model_class, X[:n], Y[:n])
        candidate = propose(model, X[:n])
        times.append(time.process_time() - start)

print(f"{'CPU seconds per step, n =':<28}" + "".join(f"{n:>8}" for n in sizes))
for model_class, times in seconds.items():
    print(f"{model_class.__name__:<28}" + "".join(f"{t:>8.1f}" for t in times))

# %%
figure = Figure(figsize=(5, 3.5), layout="constrained")
ax = figure.subplots()
for model_class, times in seconds.items():
    ax.plot(sizes, times, ".-", label=model_class.__name__)
ax.set(xscale="log", yscale="log", xlabel="observations", ylabel="CPU seconds per step")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.legend(frameon=False)
figure

# %% [markdown]
# ## What you give up, in writing
#
# The *effective dimension* is how many inducing points the data are worth under this
# kernel. The certificate says that at every `x` the variance is within a factor `alpha`
# of the exact GP's with the same hyperparameters. When the cap on inducing points
# (1000, or what fits into memory) is too small to certify the factor 2.62, the model
# warns once. `model.summary()` has all of it in one table.

# %%
certificate = model.certificate()
print(f"observations             {len(X):>6}")
print(f"inducing points          {certificate.num_inducing:>6}")
print(f"effective dimension at most {certificate.effective_dimension:>5.1f}")
print(f"variances within a factor  {certificate.alpha:>6.2f}")

# %% [markdown]
# ## Not fitting at every step
#
# With thousands of observations one more does not move the hyperparameters.
# `RefitSchedule` says when a fit is due, here each time the data have grown by a
# quarter. In between, `condition_on_observations` adds an observation in $O(m^2)$,
# whatever `n` is.

# %%
n, num_steps = (30, 2) if SMOKE_TEST else (800, 10)
X, Y = X[:n], Y[:n]
schedule = RefitSchedule(growth=1.25)
start = time.process_time()
for _ in range(num_steps):
    if schedule.is_due(len(X)):
        model = fitted(SparseSingleTaskGP, X, Y)
        schedule.record(len(X))
    candidate = propose(model, X)
    observed = problem(candidate).unsqueeze(-1)
    model = model.condition_on_observations(candidate, observed)
    X, Y = torch.cat([X, candidate]), torch.cat([Y, observed])
seconds_per_step = (time.process_time() - start) / num_steps

recommended = X[model.posterior(X).mean.argmax()]
print(f"true value at the best posterior mean: {problem(recommended, noise=False):.2f}")
print(f"CPU seconds per step, the one fit included: {seconds_per_step:.2f}")
