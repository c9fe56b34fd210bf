# %% [markdown]
# # Finding the best row of a table
#
# You have a table of things that could be measured, and a budget for a few hundred of
# them, a dozen at a time. Which ones? Nothing else is needed: no kernel, no
# lengthscale, no scaling. Text columns are categories.
#
# The table of this page is made up, so that we know its best row in the end. It has
# 2,000 reactions with a solvent, a ligand, a temperature and a concentration. A
# laboratory would have them in `pool.csv`.

# %%
# %matplotlib inline
import io
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from botorch_sparse.strategies import StopOnNoImprovement, ThompsonSampling

SMOKE_TEST = "SMOKE_TEST" in os.environ
folder = Path(tempfile.mkdtemp())

reactions = pd.MultiIndex.from_product(
    [
        [f"S{i}" for i in range(5)],
        [f"L{i}" for i in range(8)],
        range(20, 120, 10),
        [0.05, 0.1, 0.2, 0.4, 0.8],
    ],
    names=["solvent", "ligand", "heat", "conc"],
).to_frame(index=False)
reactions.insert(0, "id", [f"R{i:04}" for i in range(len(reactions))])
reactions.to_csv(folder / "pool.csv", index=False)

numbers = np.random.default_rng(0)
solvent = numbers.normal(0, 9, 5)[pd.factorize(reactions["solvent"])[0]]
ligand = numbers.normal(0, 9, 8)[pd.factorize(reactions["ligand"])[0]]
warmth = numbers.uniform(40, 100, 8)[pd.factorize(reactions["ligand"])[0]]
truth = 50 + solvent + ligand - ((reactions["heat"] - warmth) / 15) ** 2
truth = torch.tensor((truth - 6 * np.log2(reactions["conc"] / 0.25) ** 2).to_numpy())


def measure(rows):
    """The yield of rows of the table, in percent, give or take 0.3."""
    return truth[rows] + 0.3 * torch.randn(len(rows), dtype=torch.float64)


# %% [markdown]
# ## The first batch
#
# A DataFrame is enough. Its index names the rows, so that results find theirs whatever
# their order. `ThompsonSampling` is the strategy for the best value in batches of a
# size of your own. It proposes each row once. `minimize=True` looks for small values.

# %%
pool = pd.read_csv(folder / "pool.csv", index_col="id")
strategy = ThompsonSampling(pool, batch_size=12, seed=0)
batch = strategy.ask()
batch.to_frame().head(4)

# %% [markdown]
# The first rows are drawn at random. Each proposal is a *trial* with an id. The table
# of results comes back, here as a file, in its own order. It lacks the trial that went
# wrong. That one is reported by id, and its row is not proposed again (with
# `retry=True` it comes once more).

# %%
torch.manual_seed(0)
results = batch.to_frame().assign(result=measure(batch.indices).numpy().round(1))
results.iloc[1:].sort_index().to_csv(folder / "results.csv")
measured = pd.read_csv(folder / "results.csv", index_col="id")
strategy.tell(measured, measured["result"])
strategy.fail(results.iloc[:1]["trial"])
print(f"{len(strategy.history)} told, {len(strategy.pending)} pending")

# %% [markdown]
# ## The next one, with what the model expects
#
# Now there is something to learn from. Kernel, noise and scales are inferred, again as
# data grow. Once the first random rows are complete, `ask` draws functions from the
# posterior and takes the best row of each.

# %%
while len(strategy.history) < 40:
    batch = strategy.ask()
    strategy.tell(batch, measure(batch.indices))

batch = strategy.ask()
mean, sd = strategy.predict(batch.X)
batch.to_frame().assign(expected=mean.round(decimals=1), sd=sd.round(decimals=1)).head(
    4
)

# %% [markdown]
# A state that is saved here goes on next week, in another process, to the same bits,
# the pending batch included.

# %%
strategy.save(folder / "run.pt")
resumed = ThompsonSampling(pool, batch_size=12, seed=0).resume(folder / "run.pt")
Y = measure(batch.indices)
for either in (strategy, resumed):
    either.tell(batch.ids, Y)
print(f"the two go on alike: {torch.equal(strategy.ask().X, resumed.ask().X)}")

# %% [markdown]
# ## When a program measures
#
# `run` is that loop. An `executor` evaluates the points of a batch at once, with
# threads, processes or a Dask cluster. `checkpoint` writes the state after each batch.
# `catch=(TimeoutError,)` would keep rows whose evaluation raises for another try, and
# then leave them out. Callbacks end a run early.

# %%
budget = 80 if SMOKE_TEST else 300
with ThreadPoolExecutor(4) as executor:
    history = strategy.run(
        measure,
        num_evaluations=budget,
        by_index=True,
        executor=executor,
        checkpoint=folder / "run.pt",
        callbacks=[StopOnNoImprovement(num_evaluations=150)],
        progress=False,
    )
print(f"{len(history)} evaluations in {len(history.batches)} batches")

# %% [markdown]
# ## The best row
#
# `best` is the row of the best observation, with what the model says of it, which knows
# of the noise. The truth is known here, as it never is: 1 is the rank of the best row.
# Rows that differ by less than the noise cannot be told apart by one measurement each.
# Measure the best few again and `tell` the results, which are averaged row by row.

# %%
best = history.best()
rank = 1 + int((truth > truth[best.row]).sum())
print(f"{best.key}: measured {best.value:.1f}, model {best.mean:.1f}")
print(f"without noise {truth[best.row]:.1f}, rank {rank} of {len(pool)}")

# %%
history.to_frame().sort_values("value", ascending=False).head(4)

# %%
evaluated = truth[history.indices]
chance = truth[torch.randperm(len(truth))][: len(evaluated)]
figure = Figure(figsize=(6, 3.6), layout="constrained")
ax = figure.subplots()
ax.plot(history.Y, ".", color="0.75", label="measured")
ax.plot(evaluated.cummax(0).values, color="#0072B2", label="best row so far")
ax.plot(chance.cummax(0).values, color="#D55E00", label="by chance")
ax.axhline(truth.max(), color="0.4", linewidth=0.8, linestyle=":", label="best of all")
ax.set(xlabel="evaluations", ylabel="yield")
ax.legend(frameon=False)
figure

# %% [markdown]
# ## Without Python
#
# The command line does the same. It reads the pool and the results, and writes the next
# rows with predicted mean, standard deviation and the reason for each. `--state` keeps
# the proposed rows. Called again with more results, it goes on.

# %%
told = history.to_frame()[["value"]].round(1)
told.to_csv(folder / "measured.csv", index_label="id")
command = """python -m botorch_sparse suggest --candidates pool.csv --key id
    --results measured.csv --target value --batch 12 --state run.state"""
words = [sys.executable, *command.split()[1:]]
done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
pd.read_csv(io.StringIO(done.stdout)).drop(columns="reason").head(4)
