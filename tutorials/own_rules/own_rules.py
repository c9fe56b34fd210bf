# %% [markdown]
# # A rule, a radius and a sampler of your own
#
# Three decisions in this library are plain objects that you can replace. They are the
# end of a batch, the width of confidence bounds, and which observations become inducing
# points. Here is one of each, and BBKB with all three.

# %%
# %matplotlib inline
import math
import os
from dataclasses import dataclass

import torch
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from gpytorch.kernels import RBFKernel
from matplotlib.figure import Figure

from botorch_sparse.acquisition import BatchUpperConfidenceBound, ConfidenceRadius
from botorch_sparse.batching import Local, optimize_adaptive_batch
from botorch_sparse.inducing import CertifiedSampler, SamplerInducingPointAllocator
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.strategies import BBKB
from botorch_sparse.testing import InducingPointSamplerTestCase

torch.manual_seed(0)
SMOKE_TEST = "SMOKE_TEST" in os.environ

# %% [markdown]
# ## A rule that knows how many samples fit on a plate
#
# A batch goes on as long as a *bound* is at most `ratio_threshold`. For the rules of
# the papers it bounds the ratio of variances before and after the batch. While that is
# small, choices made without feedback are nearly as good as choices made with it. A
# rule is any object with `bound` and `ratio_threshold`. It sees the batch so far: its
# `size`, the `noise`, and the `variances` of its points at its start and just before
# each was chosen. The bounds of the papers are `sum_ratio`, `product_ratio` and
# `local_ratio`.
#
# Say that samples are measured on plates with so many wells, and that a second plate
# costs as much as the first. We keep the statistical rule, `Local`, and end the batch
# where the plate is full, whichever comes first.


# %%
@dataclass(frozen=True)
class OnePlate:
    wells: int
    ratio_threshold: float = 3.0

    def bound(self, batch):
        is_full = batch.size >= self.wells
        return math.inf if is_full else Local(self.ratio_threshold).bound(batch)


# %% [markdown]
# `optimize_adaptive_batch` takes any acquisition function that knows pending points and
# any rule, and BoTorch's exact GP as well as ours, on choices and on boxes. The bound
# that ended the batch is part of the answer.


# %%
def f(X):
    return (6 * X[:, :1]).sin() * (1 - X[:, 1:]) + X[:, :1]


X = torch.rand(100, 2).double()
model = SingleTaskGP(X, f(X) + 0.3 * torch.randn(100, 1).double())
model.likelihood.noise = 0.5  # of standardized outcomes
choices = torch.cartesian_prod(*[torch.linspace(0, 1, 25).double()] * 2)
acqf = BatchUpperConfidenceBound(model, beta=4.0)

print(f"{'wells':<8}{'batch':>6}{'bound':>8}")
for wells in (3, 6, 1000):
    batch = optimize_adaptive_batch(acqf, OnePlate(wells), choices=choices)
    print(f"{wells:<8}{len(batch.X):>6}{batch.bound:>8.2f}")

# %% [markdown]
# The point that crosses the threshold belongs to the batch, as in the papers. In the
# last line there is room for everything, and the posterior alone ends the batch.
#
# A bound on the ratio for each `x`, as an acquisition function, is a `RatioBound`, such
# as `GlobalLocal(model)`. `optimize_adaptive_batch` takes one in place of a rule.
#
# ## A radius
#
# A radius says what multiplies the standard deviation in the upper confidence bound. It
# sees statistics of the run, such as the number of evaluations and the information
# gained. Ours grows with the logarithm of time.


# %%
@dataclass(frozen=True)
class SlowlyWider(ConfidenceRadius):
    width: float = 1.0

    def multiplier(self, statistics):
        return self.width * math.sqrt(1 + math.log(1 + statistics.num_evaluations))


# %% [markdown]
# ## A sampler that is not random
#
# A sampler of inducing points is any callable with the signature below. It sees the
# kernel, the *different* training points in the model's transformed space, and the
# noise variance of each. An observation that was repeated ten times has a tenth of the
# noise. A sampler returns indices.
#
# Ours is greedy: always the point that those before it explain worst, relative to its
# noise. That is a pivoted Cholesky decomposition of the kernel matrix, one row at a
# time: $O(n m^2)$, and never a matrix of $n \times n$.


# %%
@dataclass(frozen=True)
class GreedySampler:
    num_inducing: int

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


@dataclass(frozen=True)
class UniformSampler:
    num_inducing: int

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
# dimensions. They lack a rule for their number, and a guarantee. The default draws at
# random in proportion to the same quantity, in rounds, and stops as soon as it can
# certify a factor of 2.62.
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

# %% [markdown]
# ## Do they keep their promises?
#
# `botorch_sparse.testing` has the tests that each family of parts must pass. Inherit
# from its class in a test file of yours and say how your member is made; pytest runs
# the rest. Without pytest a test is a method like any other.


# %%
class TestGreedySampler(InducingPointSamplerTestCase):
    def create_sampler(self):
        return GreedySampler(20)


case = TestGreedySampler()
for name in dir(case):
    if name.startswith("test_"):
        getattr(case, name)()
        print("passed:", name)

# %% [markdown]
# ## All three in BBKB
#
# Strategies take the same objects. A state that `save` writes knows them by their class
# and their fields, and `resume` refuses a run with other ones. That is why they are
# dataclasses. The last column is the function where the posterior mean is largest.

# %%
runs = {
    "as in the paper": {},
    "rule": {"rule": OnePlate(8)},
    "rule and radius": {"rule": OnePlate(8), "radius": SlowlyWider()},
    "all three": {
        "rule": OnePlate(8),
        "radius": SlowlyWider(),
        "sampler": GreedySampler(40),
    },
}
kernel = RBFKernel().double().requires_grad_(False)
kernel.lengthscale = 0.3
print(f"{'own':<18}{'batches':>8}{'largest':>9}{'f(best)':>9}")
for name, own in runs.items():
    noise = torch.Generator().manual_seed(0)
    strategy = BBKB(choices, kernel, 0.5, seed=0, ratio_threshold=3.0, **own)
    strategy.run(
        lambda X, g=noise: f(X) + 0.1 * torch.randn(len(X), 1, generator=g).double(),
        40 if SMOKE_TEST else 200,
        progress=False,
    )
    sizes = [batch.size for batch in strategy.history.batches]
    mean, _ = strategy.predict(choices)
    best = float(f(choices[mean.argmax()].unsqueeze(0)))
    print(f"{name:<18}{len(sizes):>8}{max(sizes):>9}{best:>9.3f}")
