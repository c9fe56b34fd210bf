# %% [markdown]
# # Why not variance starvation
#
# A sparse Gaussian process replaces `n` observations by `m` inducing points. For
# prediction that is an old and harmless trade. For Bayesian optimization it is not. The
# *variance* decides where to look next, and a sparse model can be sure of itself where
# it has no data. This is called variance starvation (Wang et al., 2018).
#
# We compare four posteriors with the same data, kernel and noise: the exact GP, the
# subset of regressors, a variational GP (SVGP), and BKB's [(Calandriello et al.,
# 2019)](https://arxiv.org/abs/1903.05594). This library is built on the last one.
# Hyperparameters are given, so what differs is the approximation alone.

# %%
# %matplotlib inline
import os

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import VariationalELBO
from matplotlib.figure import Figure

from botorch_sparse.inducing import PosteriorVarianceSampler, RecursiveRLSSampler
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.plotting import plot_confidence_band
from botorch_sparse.posteriors import NystromPosterior

SMOKE_TEST = "SMOKE_TEST" in os.environ
NOISE_VARIANCE = 0.01


def f(X):
    return (9 * X[:, 0]).sin() * (2 - X[:, 0]) / 2


# %% [markdown]
# An optimizer does not sample evenly. Ours has spent nearly all of its evaluations on
# the left, a few on the right, and none between 0.62 and 0.85.

# %%
torch.manual_seed(0)
n = 200 if SMOKE_TEST else 1000
left, right = 0.62 * torch.rand(n - 5, 1).double(), 0.85 + 0.15 * torch.rand(5, 1)
X = torch.cat([left, right.double()])
Y = f(X) + NOISE_VARIANCE**0.5 * torch.randn(n).double()
grid = torch.linspace(0, 1, 401).double().unsqueeze(-1)

kernel = RBFKernel().double().requires_grad_(False)
kernel.lengthscale = 0.05
noise = torch.full_like(Y, NOISE_VARIANCE)
few = X[:: n // 12]  # a dozen observations as inducing points

# %% [markdown]
# ## Subset of regressors
#
# With the features $\phi(x) = L^{-1} k_S(x)$ of the inducing points $S$ the subset of
# regressors is Bayesian linear regression on $\phi$: the covariance function becomes
# $\phi(x)^\top \phi(x')$. Far from $S$ the features vanish, and with them the *prior*
# variance. The model does not even know that it does not know.
#
# BKB's variance (in the literature on sparse GPs: DTC) keeps the rest $r(x) = k(x, x) -
# \phi(x)^\top \phi(x)$, so that it returns to the prior away from the inducing points.
# `NystromPosterior` gives us both from one object.

# %%
posterior = NystromPosterior.from_data(kernel, X, Y, noise, few)


def subset_of_regressors(x):
    mean, variance = posterior.moments(x)
    return mean, variance - posterior.residual(x, posterior.features(x))


figure = Figure(figsize=(10, 3.6), layout="constrained")
panels = figure.subplots(1, 2, sharey=True)
titles = ("subset of regressors", "with the residual (DTC)")
for panel, moments, title in zip(
    panels, (subset_of_regressors, posterior.moments), titles, strict=True
):
    plot_confidence_band(
        moments, grid, truth=f, observations=(X, Y), inducing_points=few, ax=panel
    )
    panel.set(title=title, ylim=(-2.5, 2.5))
figure

# %% [markdown]
# On the left side of the first panel all is well. In the gap the band closes around
# zero. An upper confidence bound says that nothing can be found there, and no
# acquisition function will ever look. In the second panel the same thirteen points
# leave the gap open.
#
# ## A dozen is still not enough
#
# Where the data are, thirteen points cannot explain all that a thousand observations
# say. What they leave unexplained counts as uncertainty, and the band of the second
# panel is too *wide*. The number of inducing points has to grow with the *effective
# dimension* of the data, and they have to be in the right places.
#
# BKB draws every observation with a probability in proportion to its posterior
# variance, divided by the noise: its ridge leverage score. Redrawing corrects itself:
# too few points make variances too large, and large variances draw more points.

# %%
generator = torch.Generator().manual_seed(0)
S = X[RecursiveRLSSampler()(kernel, X, noise, generator=generator)]
for _ in range(3):
    bkb = NystromPosterior.from_data(kernel, X, Y, noise, S)
    sampler = PosteriorVarianceSampler(oversampling=4.0)
    drawn = sampler(kernel, X, noise, generator=generator, variance=bkb.variance(X))
    S = X[drawn]
bkb = NystromPosterior.from_data(kernel, X, Y, noise, S)
plot_confidence_band(bkb.moments, grid, truth=f, observations=(X, Y), inducing_points=S)

# %% [markdown]
# ## Against the exact GP, in numbers
#
# A variational GP is the usual way to a sparse model in BoTorch. At the optimum of its
# objective it predicts with the very formula of the second panel [(Titsias,
# 2009)](https://proceedings.mlr.press/v5/titsias09a.html), so it does not starve. But
# it has to be trained to get there, and its `m` is chosen beforehand. With the same
# dozen points it is nearly everywhere far too *unsure*. An optimizer that uses it goes
# on to explore points that it has seen a hundred times.

# %%
likelihood = GaussianLikelihood().double()
likelihood.noise = NOISE_VARIANCE
exact = SingleTaskGP(
    X,
    Y.unsqueeze(-1),
    covar_module=kernel,
    likelihood=likelihood,
    mean_module=ZeroMean(),
    outcome_transform=None,
).eval()
svgp = SingleTaskVariationalGP(
    X,
    Y.unsqueeze(-1),
    likelihood=likelihood,
    covar_module=kernel,
    mean_module=ZeroMean(),
    inducing_points=few,
    learn_inducing_points=False,
    outcome_transform=None,
)
likelihood.requires_grad_(False)
fit_gpytorch_mll(VariationalELBO(svgp.likelihood, svgp.model, num_data=n))


def moments_of(model):
    return lambda x: [
        part.squeeze(-1).detach()
        for part in (model.posterior(x).mean, model.posterior(x).variance)
    ]


rows = {
    "subset of regressors": (len(few), subset_of_regressors),
    "SVGP, same points": (len(few), moments_of(svgp)),
    "BKB": (len(S), bkb.moments),
}
truth = moments_of(exact)(grid)[1].sqrt()
print(f"{'standard deviation / exact one':<32}{'m':>5}{'smallest':>10}{'largest':>10}")
for name, (m, moments) in rows.items():
    ratio = moments(grid)[1].clamp_min(0).sqrt() / truth
    print(f"{name:<32}{m:>5}{ratio.min():>10.3f}{ratio.max():>10.2f}")

# %% [markdown]
# Theorem 1 of the BKB paper makes the last line a promise. With enough oversampling the
# ratio of variances stays within a constant, at every `x`, for every kernel, whatever
# the optimizer does. `SparseSingleTaskGP` checks it rather than hope for it: it adds
# inducing points until a bound certifies a factor of 2.62, and says so.

# %%
model = SparseSingleTaskGP(
    X,
    Y.unsqueeze(-1),
    covar_module=kernel,
    likelihood=likelihood,
    mean_module=ZeroMean(),
    outcome_transform=None,
    max_inducing_points=200,
)
certificate = model.certificate()
print(f"{model.num_inducing} inducing points")
print(f"variance within a factor {certificate.alpha:.2f} of the exact one")

# %% [markdown]
# ## What starvation does to an optimizer
#
# The same story as a loop: 400 candidates on a line, and a maximum that is not where
# the first observations are. The upper confidence bound uses the same mean and the same
# number of inducing points in both loops. The only difference is the residual.


# %%
def simple_regret(with_residual, seed, steps):
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.linspace(0, 1, 400).double().unsqueeze(-1)
    values = f(1 - candidates) + 0.5 * candidates[:, 0]
    chosen = torch.randint(0, 120, (10,), generator=generator).tolist()  # the left
    noisy = NOISE_VARIANCE**0.5 * torch.randn(10 + steps, generator=generator)
    for _ in range(steps):
        X = candidates[chosen]
        Y = values[chosen] + noisy[: len(chosen)]
        S = X[torch.randperm(len(X), generator=generator)[:10]]
        p = NystromPosterior.from_data(
            kernel, X, Y, torch.full_like(Y, NOISE_VARIANCE), S
        )
        mean, variance = p.moments(candidates)
        if not with_residual:
            variance = variance - p.residual(candidates, p.features(candidates))
        ucb = mean + 2 * variance.clamp_min(0).sqrt()
        chosen.append(int(ucb.argmax()))
    return float(values.max() - values[chosen].max())


seeds, steps = (2, 10) if SMOKE_TEST else (7, 60)
print(f"{'variance':<24}{'median simple regret':>22}")
for name, with_residual in (("subset of regressors", False), ("with residual", True)):
    runs = [simple_regret(with_residual, seed, steps) for seed in range(seeds)]
    print(f"{name:<24}{torch.tensor(runs).median():>22.3f}")
