# %% [markdown]
# # Ruling out candidates in four rounds
#
# Suppose that each *round* of feedback is expensive, and not each evaluation. Samples
# are shipped, measured somewhere else, and come back in a week. How few looks at the
# data suffice?
#
# S-BPE, sparse batched pure exploration (Vakili et al., ICML 2022), needs $O(\log \log
# N)$ rounds for $N$ evaluations, and its regret is optimal up to logarithms. It never
# exploits at all. Inside a round it evaluates where the variance is largest, blindly.
# Then it looks at the results once and rules out every candidate that cannot be the
# maximizer. The next round explores the others.

# %%
# %matplotlib inline
import os

import torch
from gpytorch.kernels import MaternKernel
from matplotlib.figure import Figure

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.plotting import plot_certificates, plot_elimination
from botorch_sparse.strategies import SBPE

SMOKE_TEST = "SMOKE_TEST" in os.environ

# %% [markdown]
# The guarantee is about functions with a known bound on their norm in the kernel's
# space. We make one: a sum of a few kernel functions, scaled to norm one.

# %%
kernel = MaternKernel(nu=2.5).double().requires_grad_(False)
kernel.lengthscale = 0.12
X = torch.linspace(0, 1, 300).double().unsqueeze(-1)
centres = torch.tensor([0.08, 0.27, 0.33, 0.62, 0.71, 0.95]).double().unsqueeze(-1)
weights = torch.tensor([0.6, -0.9, -0.5, 1.0, 0.9, 0.7]).double()
weights /= (weights @ kernel(centres).to_dense() @ weights).sqrt()  # norm one
f = kernel(X, centres).to_dense() @ weights

NOISE_SD = 0.1
generator = torch.Generator().manual_seed(0)


def evaluate(rows):
    noise = torch.randn(len(rows), generator=generator, dtype=torch.float64)
    return f[rows] + NOISE_SD * noise


# %% [markdown]
# ## Round after round
#
# `ask` returns the points of a round, `tell` ends it. `plot_elimination` shows the
# confidence interval of each candidate. The line is the largest *lower* bound of all.
# No candidate below it can be the maximizer.

# %%
num_evaluations = 400 if SMOKE_TEST else 4000
strategy = SBPE(
    X,
    kernel,
    num_evaluations=num_evaluations,
    lam=NOISE_SD**2,
    noise_std=NOISE_SD,
    norm_bound=1.0,
    delta=0.05,
    seed=0,
)
figure = Figure(figsize=(10, 5.6), layout="constrained")
panels = figure.subplots(2, 2, sharex=True, sharey=True).flatten()
for panel in panels:
    batch = strategy.ask()
    strategy.tell(batch, evaluate(batch.indices))
    plot_elimination(strategy, ax=panel)
    number = len(strategy.history.rounds)
    panel.plot(X[:, 0], f, "k", linewidth=1)
    panel.set(title=f"round {number}: {len(batch)} evaluations", ylim=(-1.5, 1.5))
figure

# %%
print(f"{'round':<7}{'evaluations':>12}{'inducing':>10}{'width':>7}{'survivors':>11}")
for number, r in enumerate(strategy.history.rounds, start=1):
    counts = f"{r.num_evaluations:>12}{r.num_inducing:>10}"
    print(f"{number:<7}{counts}{r.max_width:>7.2f}{r.survivors:>11}")

# %% [markdown]
# The rounds grow as $N_i = \lceil \sqrt{N N_{i-1}} \rceil$, which is why there are so
# few. Each one builds its posterior from *its own* points alone. That seems wasteful,
# but it makes the intervals narrow. Points that were chosen without looking at the
# noise need no union bound over other choices.
#
# The best of the survivors, with its interval:

# %%
best = strategy.recommend()
x, interval = best.X.item(), f"[{best.lower:.2f}, {best.upper:.2f}]"
print(f"recommended x = {x:.3f}, f(x) within {interval}")
print(f"maximizer   x = {X[f.argmax()].item():.3f}, f(x) = {f.max():.2f}")
print(f"the maximizer survives: {bool(strategy.survivors[f.argmax()])}")

# %% [markdown]
# ## Where it is sparse
#
# The points of a round need a posterior too. S-BPE keeps a certificate: as soon as the
# residual that the inducing points leave could exceed the noise, another point joins
# them. The theorems then pay for the approximation with a slightly larger radius, which
# the intervals above contain. The factor by which variances may be off, round by round:

# %%
plot_certificates({"S-BPE": strategy.history})

# %% [markdown]
# ## Is the guarantee worth its width?
#
# The radius of Theorem 3.5 holds for the worst function of norm one. If you trust your
# kernel more than that, pass a radius of your own. The maximizer may then be ruled out,
# and a candidate that is ruled out does not come back.

# %%
bold = SBPE(
    X,
    kernel,
    num_evaluations=num_evaluations,
    lam=NOISE_SD**2,
    noise_std=NOISE_SD,
    radius=FixedBeta(9.0),
    seed=0,
)
bold.run(evaluate, num_evaluations, by_index=True, progress=False)

print(f"{'':<14}{'survivors':>10}{'regret per evaluation':>24}")
for name, s in (("Theorem 3.5", strategy), ("beta = 9", bold)):
    regret = (f.max() - f[s.history.indices]).mean()
    print(f"{name:<14}{int(s.survivors.sum()):>10}{regret:>24.3f}")

# %% [markdown]
# On a box (`bounds=`) the survivors are not a mask but a region: `strategy.region` can
# be asked whether it contains a point, and sampled.
