# %% [markdown]
# # Choosing among the rows of a table
#
# Often the candidates are not a box but a list: compounds that can be ordered,
# configurations that compile, patients that can be recruited. And often feedback comes
# in batches, because a plate holds many wells. How large may a batch be before the
# choices in it are made on stale knowledge?
#
# BBKB [(Calandriello et al., 2020)](https://arxiv.org/abs/2002.09954) answers with the
# posterior itself. Batches start small, and grow as one more result teaches less. This
# notebook runs it on the 4177 rows of the abalone table that comes with the package.

# %%
# %matplotlib inline
import os

import torch
from gpytorch.kernels import RBFKernel

from botorch_sparse.demo.datasets import load_table
from botorch_sparse.plotting import (
    plot_batch_sizes,
    plot_num_inducing,
    plot_regret,
    plot_seconds,
)
from botorch_sparse.strategies import BBKB, GPUCB, RandomSearch

SMOKE_TEST = "SMOKE_TEST" in os.environ
table = load_table("abalone")
print(f"{len(table.X)} candidates, {len(table.feature_names)} features")

# %% [markdown]
# The features are standardized, the target (the number of rings) is scaled to [0, 1],
# and we add noise to each evaluation. `load_table` also reads any CSV file of numbers,
# and `"california_housing"`, with 20,640 rows, through scikit-learn (the paper's
# lengthscale for it is 12.5).

# %%
NOISE_SD = 0.01
generator = torch.Generator().manual_seed(0)


def evaluate(rows):
    noise = torch.randn(len(rows), generator=generator, dtype=torch.float64)
    return table.Y[rows] + NOISE_SD * noise


# %% [markdown]
# ## Ask and tell
#
# A strategy takes the candidates, a kernel whose hyperparameters it keeps, and `lam`,
# the variance of the noise in the model. `ask` proposes a batch; `tell` brings its
# results, in any order and in any pieces. The same row may be asked for several times:
# with noise, that is how a bandit makes sure.

# %%
kernel = RBFKernel().double()
kernel.lengthscale = 17.5  # the one of the paper's experiments
settings = {"covar_module": kernel, "lam": NOISE_SD**2, "noise_variance": NOISE_SD**2}
strategy = BBKB(table.X, **settings, seed=0)

for _ in range(5):
    batch = strategy.ask()
    strategy.tell(batch, evaluate(batch.indices))
    print(f"batch of {len(batch):>3}, {len(set(batch.indices.tolist())):>3} different")

# %% [markdown]
# The first batches are single points: everything is unknown, and each result changes
# the picture. In a batch, points are chosen one after the other. The mean stands still.
# Each pending point lowers the variance around it, so that the next one goes elsewhere.
# The batch ends when the variance of some candidate may have fallen by more than
# `ratio_threshold` since the last feedback.
#
# `run` is that loop.

# %%
num_evaluations = 100 if SMOKE_TEST else 2000
history = strategy.run(
    evaluate, num_evaluations=num_evaluations, by_index=True, progress=False
)
sizes = [record.size for record in history.batches]
print(f"{len(history)} evaluations, {history.num_unique} different rows")
print(f"{len(sizes)} batches, the largest of {max(sizes)}")
print(f"{history.num_inducing[-1]} inducing points")

# %% [markdown]
# Thousands of evaluations, and the posterior has a few dozen inducing points. Repeated
# evaluations of one row are folded into one observation with less noise, which is
# exact. The inducing points are drawn anew after each batch, in proportion to the
# posterior variance.
#
# ## Against GP-UCB and chance
#
# GP-UCB is the same algorithm with an exact posterior and batches of one point.

# %%
others = {
    "GP-UCB": GPUCB(table.X, **settings, seed=0),
    "random search": RandomSearch(table.X, seed=0),
}
histories = {"BBKB": history}
for name, other in others.items():
    histories[name] = other.run(
        evaluate, num_evaluations=num_evaluations, by_index=True, progress=False
    )

print(f"{'':<14}{'batches':>9}{'seconds':>9}{'best':>7}{'regret':>8}")
for name, h in histories.items():
    best, regret = table.Y[h.indices].max(), table.regret_ratio(h.indices)[-1]
    print(f"{name:<14}{len(h.batches):>9}{h.seconds:>9.2f}{best:>7.3f}{regret:>8.3f}")

# %% [markdown]
# *Regret* is the loss against choosing the best row each time, relative to uniform
# choice. A bandit minimizes it: it settles on a good row early and loses little from
# then on. Random search looks at more rows and may well see a better one, but its
# regret never stops growing.

# %%
plot_regret(histories, table)

# %%
plot_batch_sizes(histories)

# %%
plot_seconds(histories)

# %% [markdown]
# ## Interrupted
#
# A strategy's state is plain tensors and numbers. A new process that loads it goes on
# to the same bits, pending points and random numbers included. So a run may be stopped
# between `ask` and `tell`, for a week if the laboratory takes that long.

# %%
pending = strategy.ask(max_batch_size=20)
state = strategy.state_dict()  # torch.save(state, path)

resumed = BBKB(table.X, **settings, seed=0)
resumed.load_state_dict(state)
Y = evaluate(pending.indices)
for either in (strategy, resumed):
    either.tell(pending, Y)
same = torch.equal(strategy.ask().X, resumed.ask().X)
print(f"the two go on alike: {same}")

# %% [markdown]
# For a table that is larger than memory nothing has to be changed: candidates whose
# features exceed `max_memory` are streamed. For a box pass `bounds=` in place of the
# table. Leave the kernel out to have its hyperparameters inferred. On a table each row
# is then proposed once, as in the notebook `find_the_best`.

# %%
plot_num_inducing(histories)
