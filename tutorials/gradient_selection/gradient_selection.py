# %% [markdown]
# # Keeping the samples that pull in different directions
#
# Inducing points summarize all data. A blunter way to keep a Gaussian process cheap is
# to fit the *exact* GP to a part of the data, and to choose the part well. GSSBO [(Wei
# et al., 2025)](https://arxiv.org/abs/2504.07742) chooses samples whose gradients of
# the log likelihood point in diverse directions. Whoever has sampled the same peak
# fifty times has fifty gradients that say the same thing.
#
# BoTorch can do with the subset all that it can do with a `SingleTaskGP`, at the price
# of `M` observations. The other samples are forgotten: there is no certificate. Where
# you want one, take `SparseSingleTaskGP`.

# %%
# %matplotlib inline
import os

import torch
from botorch.test_functions import Hartmann
from gpytorch.kernels import RBFKernel
from matplotlib.figure import Figure
from torch import nn

from botorch_sparse.demo.datasets import load_table
from botorch_sparse.inducing import exact_gradients, select_by_gradient_diversity
from botorch_sparse.models import SubsetSingleTaskGP
from botorch_sparse.plotting import plot_cumulative_regret
from botorch_sparse.strategies import GSSBO, RSSBO

SMOKE_TEST = "SMOKE_TEST" in os.environ

# %% [markdown]
# ## Who is kept
#
# Data as an optimizer leaves them: most around the peak, a few elsewhere.
# `SubsetSingleTaskGP` holds all of them and is the exact GP of `subset_size`. By
# default it keeps the rows that the others say least of, which is more accurate. Here
# are the paper's choice and chance.

# %%
torch.manual_seed(0)
heap = 0.7 + 0.03 * torch.randn(110, 2)
X = torch.cat([torch.rand(40, 2), heap]).double().clamp(0, 1)
Y = (-8 * (X - 0.7).square().sum(-1, keepdim=True)).exp()
Y = Y + 0.02 * torch.randn(150, 1).double()

figure = Figure(figsize=(8, 3.6), layout="constrained")
panels = figure.subplots(1, 2, sharex=True, sharey=True)
for panel, selection in zip(panels, ("gradient", "random"), strict=True):
    model = SubsetSingleTaskGP(X, Y, subset_size=30, selection=selection)
    kept = X[model.subset_indices]
    in_heap = int(((kept - 0.7).norm(dim=-1) < 0.1).sum())
    print(f"{selection:<9}{len(kept)} kept, of which {in_heap} in the heap")
    panel.plot(*X.T, ".", color="0.8")
    panel.plot(*kept.T, ".", color="#D55E00")
    panel.set(title=selection)
figure

# %% [markdown]
# The gradient of a sample here is its contribution $-K_y^{-1} e_i (y_i - c_i)$ to the
# gradient of the log likelihood with respect to the observations. `reading="column"`
# leaves out the factor $y_i - c_i$, so that the sign of a sample does not matter.
# `"scalar"` is the paper's printed $-e_i^\top K_y^{-1} (y - c)$, whose direction is a
# mere sign.
#
# ## A run on Hartmann6
#
# `GSSBO` is the whole algorithm, `RSSBO` the same with samples drawn at random, and
# `subset_size=None` the exact GP of everything. With `subset_size="dynamic"`, the
# default, all samples are in the model until an iteration takes four times as long as
# one of the first. Here we fix the size, to see its effect.

# %%
problem = Hartmann(dim=6, negate=True, dtype=torch.float64)
num_evaluations, num_initial, M = (12, 8, 10) if SMOKE_TEST else (120, 20, 40)
common = {
    "bounds": problem.bounds,
    "num_initial": num_initial,
    "optimizer_options": {"num_restarts": 2, "raw_samples": 64},
    "seed": 0,
}
runs = {
    "all samples": GSSBO(subset_size=None, **common),
    "contribution": GSSBO(subset_size=M, reading="contribution", **common),
    "column": GSSBO(subset_size=M, reading="column", **common),
    "random": RSSBO(subset_size=M, **common),
}
histories = {}
for name, strategy in runs.items():
    torch.manual_seed(0)  # the noise of the observations
    histories[name] = strategy.run(
        lambda X: problem(X) + 0.02 * torch.randn(len(X)),
        num_evaluations,
        progress=False,
    )

print(f"{'':<14}{'samples in model':>17}{'cumulative regret':>19}{'best':>7}")
for name, h in histories.items():
    values = problem(h.X, noise=False)
    regret = (problem.optimal_value - values).sum()
    print(f"{name:<14}{h.num_inducing[-1]:>17}{regret:>19.1f}{values.max():>7.2f}")

# %%
plot_cumulative_regret(
    histories, lambda X: problem(X, noise=False), optimum=problem.optimal_value
)

# %% [markdown]
# One run is an anecdote, but it shows a pattern. To an optimizer the samples around the
# peak are not only redundant: the mean has to be right there. A choice for diversity
# alone keeps one of them and goes back to explore. A random choice keeps them in
# proportion. Which of the two wins depends on the function, on `M` and on the reading.
# `python -m benchmarks.gssbo` compares them over seeds and functions. It also measures
# the time that is saved at hundreds of samples (at the hundred here there is none).
#
# ## A search for hyperparameters
#
# The same strategy with something that is really trained: a small network that predicts
# the age of abalones from 1000 of them. There are four hyperparameters, and the
# negative error on 500 others is maximized. Each evaluation is a training from a new
# initialization, so that feedback is noisy.

# %%
table = load_table("abalone", dtype=torch.float32)
rows = torch.randperm(len(table.X), generator=torch.Generator().manual_seed(0))
train, test = rows[:1000], rows[1000:1500]
target = (table.Y - table.Y.mean()) / table.Y.std()


def train_network(log_rate, log_decay, hidden, log_batch_size):
    network = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 1))
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=10**log_rate, weight_decay=10**log_decay
    )
    for _ in range(2 if SMOKE_TEST else 8):
        for batch in train[torch.randperm(len(train))].split(
            2 ** round(log_batch_size)
        ):
            optimizer.zero_grad()
            error = network(table.X[batch]).squeeze(-1) - target[batch]
            error.square().mean().backward()
            optimizer.step()
    with torch.no_grad():
        error = network(table.X[test]).squeeze(-1) - target[test]
    return -error.square().mean().sqrt()


def evaluate(X):
    return torch.stack(
        [train_network(x[0], x[1], round(x[2]), x[3]) for x in X.tolist()]
    )


bounds = torch.tensor([[-4.0, -5.0, 2.0, 3.0], [-0.5, 0.0, 64.0, 8.0]]).double()
torch.manual_seed(0)
search = GSSBO(
    bounds=bounds,
    subset_size=8 if SMOKE_TEST else 30,
    num_initial=6 if SMOKE_TEST else 12,
    optimizer_options={"num_restarts": 2, "raw_samples": 64},
    seed=0,
)
history = search.run(evaluate, 10 if SMOKE_TEST else 60, progress=False)
best = history.X[history.Y.argmax()]
names = ("log10 rate", "log10 decay", "hidden units", "log2 batch size")
for name, value in zip(names, best.tolist(), strict=True):
    print(f"{name:<16}{value:>8.2f}")
early, late = -history.Y[:6], -history.Y[-6:]
print(f"mean error of the first six: {early.mean():.3f}")
print(f"mean error of the last six:  {late.mean():.3f}")
print(f"smallest error of all: {-history.Y.max():.3f}")

# %% [markdown]
# ## Any model with gradients
#
# `select_by_gradient_diversity` sees a matrix, one gradient a row, and nothing of the
# model. So here are two models that are not GPs with a fixed kernel: a GP whose kernel
# is a network (deep kernel learning), and a Bayesian neural network.


# %%
class DeepKernel(RBFKernel):
    """RBF on what a network makes of the inputs."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x1, x2, **options):
        return super().forward(self.network(x1), self.network(x2), **options)


class BayesianNetwork(nn.Module):
    """Two layers with a Gaussian for each weight, trained by a variational bound."""

    def __init__(self, hidden=30):
        super().__init__()
        size = 3 * hidden + 1  # of a network from one input to one output
        self.mean = nn.Parameter(0.5 * torch.randn(size).double())
        self.log_sd = nn.Parameter(torch.full((size,), -3.0).double())
        self.hidden = hidden

    def predict(self, weights, x):
        w1, b1, w2, b2 = weights.split([*[self.hidden] * 3, 1])
        return torch.tanh(4 * x * w1 + b1) @ w2 + b2.squeeze(-1)

    def fit(self, X, Y, noise_variance, steps):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.02)
        for _ in range(steps):
            optimizer.zero_grad()
            sd = self.log_sd.exp()
            weights = self.mean + sd * torch.randn_like(sd)
            misfit = (self.predict(weights, X) - Y).square().sum() / noise_variance
            divergence = (
                sd.square() + self.mean.square()
            ).sum() / 2 - self.log_sd.sum()
            (misfit / 2 + divergence).backward()
            optimizer.step()
        return self

    def gradients(self, X):
        per_sample = torch.func.vmap(torch.func.grad(self.predict), in_dims=(None, 0))
        return per_sample(self.mean.detach(), X)


# %% [markdown]
# The data lie on a line, with 270 of 300 samples on its left tenth. We compute
# gradients once, keep thirty samples, and train the network again on these alone. An
# acquisition function would see its predictions *everywhere*.
#
# For the network we take the gradients of its predictions. The gradients of its losses
# have the sign of the residual, which is noise where samples are dense. Two samples of
# one place, one noisy upward and one downward, would count as opposites.


# %%
def function(x):
    return (6 * x[:, 0]).sin() + x[:, 0]


torch.manual_seed(0)
X = torch.cat([0.1 * torch.rand(270, 1), torch.rand(30, 1)]).double()
Y = function(X) + 0.05 * torch.randn(300).double()
grid = torch.linspace(0, 1, 200).double().unsqueeze(-1)
steps = 20 if SMOKE_TEST else 600

network = BayesianNetwork().fit(X, Y, 0.05**2, steps)
layers = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 2)).double()
noise = torch.full_like(Y, 0.05**2)
gradients = {
    "deep kernel GP": exact_gradients(DeepKernel(layers).double(), X, Y, noise),
    "Bayesian network": network.gradients(X),
}
print(f"{'gradients of':<18}{'shape':<14}{'kept outside the heap':>22}")
kept = {}
for name, rows in gradients.items():
    kept[name] = select_by_gradient_diversity(rows, num=30)
    outside = int((X[kept[name], 0] > 0.1).sum())
    print(f"{name:<18}{tuple(rows.shape)!s:<14}{outside:>22}")

# %%
choices = {
    "all samples": [torch.arange(300)],
    "30 by gradients": [kept["Bayesian network"]],
    "30 at random": [torch.randperm(300)[:30] for _ in range(5)],
}
print(f"{'network trained on':<20}{'median error on the line':>25}")
for name, draws in choices.items():
    errors = []
    for rows in draws:
        torch.manual_seed(0)
        refitted = BayesianNetwork().fit(X[rows], Y[rows], 0.05**2, steps)
        predicted = refitted.predict(refitted.mean.detach(), grid)
        errors.append((predicted - function(grid)).square().mean().sqrt())
    print(f"{name:<20}{torch.stack(errors).median():>25.3f}")
