# %% [markdown]
# # Several outcomes: compromises and limits
#
# Yield up, cost down, impurity below five per cent: one number is often not enough.
# This page has 1,408 molecules that might carry charge in a battery. Each is a scaffold
# with four substituents. Three properties were computed for each, and all three are
# to be small: the distance from a wanted absorption wavelength (nm), the reduction
# potential (V) and the free energy of solvation (eV). We pretend that each costs a day.
#
# The table is redoxmers of
# [Olympus](https://github.com/aspuru-guzik-group/olympus), MIT licence.

# %%
# %matplotlib inline
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from botorch_sparse.plotting import plot_hypervolume, plot_pareto
from botorch_sparse.strategies import (
    Constraint,
    Objective,
    RandomSearch,
    ThompsonSampling,
)

SMOKE_TEST = "SMOKE_TEST" in os.environ
folder = Path("tutorials/several_outcomes")
folder = folder if folder.exists() else Path()
table = pd.read_csv(folder / "redoxmers.csv.gz")
table.index = pd.Index([f"M{i}" for i in range(len(table))], name="molecule")
names = ["abs_lam_diff", "ered", "gsol"]
pool, truth = table.drop(columns=names), table[names]
table.head(3)

# %% [markdown]
# ## Three objectives
#
# An `Objective` is maximized, or with `minimize=True` minimized. `tell` takes a column
# for each, such as a DataFrame with their names. Features of text are categories, and
# each row is proposed once, as always.

# %%
outcomes = [Objective(name, minimize=True) for name in names]
strategy = ThompsonSampling(pool, outcomes=outcomes, batch_size=10, seed=0)
batch = strategy.ask()
strategy.tell(batch, truth.loc[batch.keys])
print(f"{len(strategy.history)} told, {len(strategy.history.pareto())} not dominated")

# %% [markdown]
# Each outcome has a sparse model of its own. A point of a batch is the best row of one
# path of each model, by a random *scalarization*: the worst of the three gains over a
# reference point, in random units. The average over all units is the hypervolume, so
# that the points of a batch spread over the whole front.
#
# `run` is the loop.


# %%
def measure(rows):
    """The three outcomes of rows of the table, in the order of `outcomes`."""
    return truth.iloc[rows.tolist()].to_numpy()


budget = 40 if SMOKE_TEST else 100
history = strategy.run(measure, budget, by_index=True, progress=False)
print(f"{len(history)} evaluations in {len(history.batches)} batches")

# %% [markdown]
# ## The front
#
# `pareto` has the rows that no other row dominates: none is at least as good in
# everything, and better in something. Beside each outcome stands its model's mean.

# %%
front = history.pareto()
front.to_frame().sort_values("abs_lam_diff").round(2).head(4)

# %% [markdown]
# ## How good is it?
#
# The *hypervolume* is the volume that the front dominates, up to the reference point.
# What is worse than this point in any outcome counts for nothing. We gave none, so it
# was inferred from the first values, and it stands still from then on.
# `Objective("ered", minimize=True, threshold=2.6)` would give it. Do so if you can: the
# search goes where the front is beyond the thresholds.
#
# All 1,408 rows are known here, as they never are. So we can compare with the volume of
# the whole table, and with chance.

# %%
reference = history.reference_point()
whole = RandomSearch(pool, outcomes=outcomes, unique=True)
whole.tell(pool, truth)
chance = RandomSearch(pool, outcomes=outcomes, batch_size=10, unique=True, seed=0)
chance.run(measure, budget, by_index=True, progress=False)

print(
    "reference point",
    dict(zip(names, reference.round(decimals=2).tolist(), strict=True)),
)
runs = {"whole table": whole, "Thompson sampling": strategy, "random search": chance}
for name, each in runs.items():
    share = each.history.hypervolume(reference) / whole.history.hypervolume(reference)
    print(f"{name:<18}{len(each.history):>5} evaluations  {share:6.1%} of the volume")

# %%
plot_hypervolume({name: runs[name].history for name in [*runs][1:]}, reference)

# %% [markdown]
# Rings are the front, and the star is the reference point. Early rows are dark.

# %%
plot_pareto(history)

# %% [markdown]
# ## Limits
#
# Often one outcome is to be good, and others are to be good enough. A `Constraint` has
# a lower limit, an upper one or both. Rows whose paths keep to all limits come first,
# by their objective. Where no row does, the nearest ones come first, in standard
# deviations. `best` is the best feasible row.

# %%
limited = [
    Objective("abs_lam_diff", minimize=True),
    Constraint("ered", upper=2.0),
    Constraint("gsol", upper=-0.75),
]
strategy = ThompsonSampling(pool, outcomes=limited, batch_size=10, seed=0)
best = strategy.run(measure, budget, by_index=True, progress=False).best()
feasible = truth[(truth["ered"] <= 2.0) & (truth["gsol"] <= -0.75)]
rank = 1 + int((feasible["abs_lam_diff"] < best.value).sum())
print(f"{len(feasible)} of {len(truth)} rows are feasible")
print(f"row {best.key}: {best.value:.2f}, feasible: {best.is_feasible}, rank {rank}")

# %% [markdown]
# ## An outcome that comes later
#
# NaN stands for what was not measured. Each model learns from what there is. What was
# missing is told later, by the ids of the trials. Fronts have complete rows only.

# %%
strategy = ThompsonSampling(pool, outcomes=outcomes, batch_size=10, seed=0)
batch = strategy.ask()
told = truth.loc[batch.keys]
strategy.tell(batch, told.assign(gsol=float("nan")))
print(f"{len(strategy.history.pareto())} complete rows on the front")
later = told.assign(abs_lam_diff=float("nan"), ered=float("nan"))
strategy.tell(batch.ids, later.to_numpy())
print(f"{len(strategy.history.pareto())} complete rows on the front")

# %% [markdown]
# ## Without Python
#
# The command line takes the same: a target for each objective, limits in quotes, and
# cells that are still empty.

# %%
work = Path(tempfile.mkdtemp())
pool.to_csv(work / "pool.csv")
truth.iloc[::40].to_csv(work / "measured.csv")
command = """python -m botorch_sparse suggest --candidates pool.csv --key molecule
    --results measured.csv --target abs_lam_diff --target ered --minimize abs_lam_diff
    --minimize ered --constraint gsol<=-0.75 --batch 10"""
words = [sys.executable, *command.split()[1:]]
done = subprocess.run(words, cwd=work, capture_output=True, text=True, check=True)
print("\n".join(done.stderr.splitlines()[-2:]))
shown = ["molecule", *(f"predicted_mean_{name}" for name in names)]
pd.read_csv(io.StringIO(done.stdout))[shown].round(2).head(4)
