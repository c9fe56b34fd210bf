# %% [markdown]
# # A termination rule and a sampler of your own
#
# Two decisions in this library are plain objects that you can replace: what ends a
# batch, and which observations become inducing points. Here is one of each.

# %%
# %matplotlib inline
import os

import torch
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from matplotlib.figure import Figure

from botorch_sparse.acquisition import BatchUpperConfidenceBound, GlobalLocal
from botorch_sparse.inducing import CertifiedSampler, SamplerInducingPointAllocator
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.optim import optimize_adaptive_batch

torch.manual_seed(0)
SMOKE_TEST = "SMOKE_TEST" in os.environ

# %% [markdown]
# ## A rule that knows what an experiment costs
#
# A batch goes on as long as a *bound* is at most `ratio_threshold`. For the rules of
# the papers it bounds the ratio of variances before and after the batch: while that is
# small, choices made without feedback are nearly as good as choices made with it. A
# rule is a BoTorch `AcquisitionFunction` with a method `bound`, and it always knows its
# batch, `X_batch`.
#
# Say that the first coordinate is an oven's temperature, that a hot run costs more
# power than a cold one, and that there is power for so much a day. We keep the
# statistical rule, `GlobalLocal`, and add a bound of our own which crosses the
# threshold when the day's power is used up. The batch ends with whichever comes first.


# %%
class WithinBudget(GlobalLocal):
    def __init__(self, model, budget, **options):
        super().__init__(model, **options)
        self.budget = budget

    def cost(self):
        return float((0.2 + self.X_batch[:, 0]).sum())

    def bound(self, ratio_threshold, **domain):
        spent = ratio_threshold * self.cost() / self.budget
        return max(spent, super().bound(ratio_threshold, **domain))


# %% [markdown]
# `optimize_adaptive_batch` takes any acquisition function that knows pending points and
# any rule, and BoTorch's exact GP as well as ours. The bound that ended the batch is
# part of the answer.


# %%
def f(X):
    return (6 * X[:, :1]).sin() * (1 - X[:, 1:]) + X[:, :1]


X = torch.rand(100, 2).double()
model = SingleTaskGP(X, f(X) + 0.3 * torch.randn(100, 1).double())
model.likelihood.noise = 0.5  # of standardized outcomes
choices = torch.cartesian_prod(*[torch.linspace(0, 1, 25).double()] * 2)

print(f"{'power for the day':<20}{'batch':>6}{'used':>7}")
for budget in (2.0, 4.0, 1000.0):
    rule = WithinBudget(model, budget, ratio_threshold=3.0)
    acqf = BatchUpperConfidenceBound(model, beta=4.0)
    batch = optimize_adaptive_batch(acqf, rule, 3.0, choices=choices)
    rule.set_X_pending(batch.X)
    print(f"{budget:<20}{len(batch.X):>6}{rule.cost():>7.2f}")

# %% [markdown]
# The point that crosses the threshold belongs to the batch, as in the papers. In the
# last line there is power for everything, and the posterior alone ends the batch.
#
# A rule that is a bound on the ratio for each `x`, rather than a number, overrides
# `_ratio` in place of `bound`; `LocalRatioBound` is twenty lines to start from.
#
# ## A sampler that is not random
#
# A sampler of inducing points is any callable with the signature below. It sees the
# kernel, the *different* training points in the model's transformed space, and the
# noise variance of each (an observation that was repeated ten times has a tenth of the
# noise). It returns indices.
#
# Ours is greedy: always the point that those before it explain worst, relative to its
# noise. That is a pivoted Cholesky decomposition of the kernel matrix, one row at a
# time: $O(n m^2)$, and never a matrix of $n \times n$.


# %%
class GreedySampler:
    def __init__(self, num_inducing):
        self.num_inducing = num_inducing

    @torch.no_grad()
    def __call__(self, covar_module, X, noise, *, generator, variance=None):
        left = covar_module(X, diag=True).clone()
        rows, chosen = X.new_zeros(0, len(X)), []
        for _ in range(min(self.num_inducing, len(X))):
            i = int((left / noise).argmax())
            k = covar_module(X[i : i + 1], X).to_dense().squeeze(0)
            row = (k - rows[:, i] @ rows) / left[i].sqrt()
            rows = torch.cat([rows, row.unsqueeze(0)])
            left = (left - row.square()).clamp_min(0.0)
            chosen.append(i)
        return torch.tensor(chosen, device=X.device).sort().values


class UniformSampler:
    def __init__(self, num_inducing):
        self.num_inducing = num_inducing

    def __call__(self, covar_module, X, noise, *, generator, variance=None):
        order = torch.randperm(len(X), generator=generator)
        return order[: self.num_inducing].sort().values.to(X.device)


# %% [markdown]
# Is it any good? The certificate tells, for this sampler as for every other: at every
# `x` the variance is within the factor `alpha` of the exact GP's.

# %%
n = 800 if SMOKE_TEST else 2000
X = torch.rand(n, 2).double().square()  # dense in one corner
Y = f(X) + 0.1 * torch.randn(n, 1).double()

samplers = {
    "uniform": UniformSampler(60),
    "greedy": GreedySampler(60),
    "certified (default)": CertifiedSampler(),
}
models = {}
print(f"{'sampler':<20}{'m':>5}{'alpha':>9}")
for name, sampler in samplers.items():
    models[name] = SparseSingleTaskGP(X, Y, inducing_sampler=sampler)
    models[name].likelihood.noise = 0.01
    certificate = models[name].certificate()
    print(f"{name:<20}{certificate.num_inducing:>5}{certificate.alpha:>9.3g}")

# %%
figure = Figure(figsize=(10, 3.3), layout="constrained")
panels = figure.subplots(1, 3, sharex=True, sharey=True)
for panel, (name, model) in zip(panels, models.items(), strict=True):
    panel.plot(*X.T, ".", color="0.8", markersize=2)
    panel.plot(*model.inducing_points.T, "x", color="#D55E00")
    panel.set(title=f"{name}, m = {model.num_inducing}")
figure

# %% [markdown]
# Greedy points are spread evenly over what the data cover and are hard to beat in two
# dimensions; what they lack is a rule for how many there should be, and a guarantee.
# The default draws at random in proportion to the same quantity, in rounds, and stops
# as soon as it can certify a factor of 2.62.
#
# The same sampler also serves BoTorch's variational GP, through
# `SamplerInducingPointAllocator`.

# %%
svgp = SingleTaskVariationalGP(
    X,
    (Y - Y.mean()) / Y.std(),
    inducing_points=30,
    inducing_point_allocator=SamplerInducingPointAllocator(GreedySampler(30)),
    learn_inducing_points=False,
)
print(svgp.model.variational_strategy.inducing_points.shape)
