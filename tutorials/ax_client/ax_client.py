# %% [markdown]
# # Ax from end to end: run, save, load, resume
#
# Ax manages experiments: parameters, trials, failures, storage, analyses. Which point
# comes next is the business of a *generation strategy*, and `botorch_sparse.ax` has
# several that can be handed to a `Client`. The rest of your Ax code stays as it is.
#
# `pip install -e ".[ax]"`. Importing `botorch_sparse.ax` registers its
# classes with Ax's storage, so import it also where you only load an experiment.

# %%
# %matplotlib inline
import logging
import os
import tempfile
import warnings

logging.disable(logging.WARNING)  # Ax reports each trial
warnings.filterwarnings("ignore")

import pandas as pd
import torch
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from botorch.test_functions import Branin
from matplotlib.figure import Figure

from botorch_sparse.ax import (
    bbkb_generation_strategy,
    recommended_batch_size,
    sparse_generation_strategy,
    thompson_generation_strategy,
    trust_region_generation_strategy,
)

SMOKE_TEST = "SMOKE_TEST" in os.environ
branin = Branin(negate=True)

# %% [markdown]
# ## Configure
#
# Two numbers and a switch. The objective is noisy, and we tell Ax its standard error:
# `raw_data` takes `(mean, sem)`. Trials with a standard error, without one (`None`),
# and both in one experiment work.


# %%
def configured(strategy):
    client = Client(random_seed=0)
    client.configure_experiment(
        name="branin",
        parameters=[
            RangeParameterConfig(name="x1", parameter_type="float", bounds=(-5, 10)),
            RangeParameterConfig(name="x2", parameter_type="float", bounds=(0, 15)),
            ChoiceParameterConfig(
                name="mode",
                parameter_type="str",
                values=["plain", "damped"],
                is_ordered=False,
            ),
        ],
    )
    client.configure_optimization(objective="value")
    client.set_generation_strategy(strategy)
    return client


def evaluate(parameters):
    x = torch.tensor([parameters["x1"], parameters["x2"]])
    value = branin(x).item() - (20.0 if parameters["mode"] == "damped" else 0.0)
    return {"value": (value + 2.0 * torch.randn(()).item(), 2.0)}


optimizer_options = {"num_restarts": 2, "raw_samples": 64}
torch.manual_seed(0)
client = configured(
    sparse_generation_strategy(
        num_initial=6, seed=0, optimizer_options=optimizer_options
    )
)

# %% [markdown]
# ## Run
#
# One trial at a time. Up to 200 different arms the model is the exact GP. From there on
# the cost of a trial grows slowly. Hyperparameters are fitted for each trial up to
# fifty observations, and then when the data have grown by a fifth (`refit_growth`).


# %%
def run(client, num_trials):
    for _ in range(num_trials):
        for index, parameters in client.get_next_trials(max_trials=1).items():
            client.complete_trial(index, raw_data=evaluate(parameters))


run(client, 8 if SMOKE_TEST else 20)
best, prediction, index, arm = client.get_best_parameterization()
print(f"mode: {best['mode']}")
print(
    f"predicted {prediction['value'][0]:.1f}, the maximum is {branin.optimal_value:.1f}"
)

# %% [markdown]
# ## Save, load, resume
#
# The whole experiment, strategy included, is one JSON file. With a `seed` the next
# candidate depends on the data alone, so that the client that was loaded proposes what
# the original one does.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "experiment.json")
    client.save_to_json_file(path)
    resumed = Client.load_from_json_file(path)

proposals = [c.get_next_trials(max_trials=1) for c in (client, resumed)]
(index, ours), (_, theirs) = (next(iter(p.items())) for p in proposals)
distance = max(abs(ours[name] - theirs[name]) for name in ("x1", "x2"))
print(f"the same trial number: {set(proposals[0]) == set(proposals[1])}")
print(f"the same proposal: {distance < 1e-6 and ours['mode'] == theirs['mode']}")

# %% [markdown]
# A trial may fail, or never come back. A failed trial is left out of the model's data.
# A trial that is still running is pending: it lowers the variance around it and nothing
# else.

# %%
resumed.mark_trial_failed(index)
run(resumed, 2)
summary = resumed.summarize()
print(summary["trial_status"].value_counts().sort_index().to_string())

# %% [markdown]
# ## As many at a time as is reasonable
#
# `bbkb_generation_strategy` chooses batches by an upper confidence bound, and
# `recommended_batch_size` asks the posterior how many trials may as well run together.
# Early on it recommends few, and later many, when one more result changes little. A new
# fit of the hyperparameters may find that there is more to learn after all.

# %%
batched = configured(
    bbkb_generation_strategy(num_initial=6, seed=0, optimizer_options=optimizer_options)
)
sizes = []
while sum(sizes) < (10 if SMOKE_TEST else 60):
    trials = batched.get_next_trials(recommended_batch_size(batched, max_trials=16))
    for index, parameters in trials.items():
        batched.complete_trial(index, raw_data=evaluate(parameters))
    sizes.append(len(trials))

figure = Figure(figsize=(5, 3), layout="constrained")
ax = figure.subplots()
ax.bar(range(1, len(sizes) + 1), sizes)
ax.set(xlabel="batch", ylabel="trials")
figure

# %% [markdown]
# ## Many parameters: trust regions
#
# With ten or more parameters and hundreds of trials, where the best value counts,
# search near the best points. `trust_region_generation_strategy` takes the same search
# spaces, with integers, choices, log scales and constraints. Where its regions stand is
# noted in the metadata of the arms, so that a client that was saved in the middle and
# loaded goes on with them. Here are six numbers, and four switches that cost two each.


# %%
def tuned(parameters):
    numbers = [parameters[f"x{i}"] for i in range(6)]
    switches = [parameters[f"s{i}"] for i in range(4)]
    loss = sum((x - 0.1 * i) ** 2 for i, x in enumerate(numbers, 2))
    return {"value": -10 * loss - 2 * sum(switches)}


names = {f"x{i}": "float" for i in range(6)} | {f"s{i}": "int" for i in range(4)}
client = Client(random_seed=0)
client.configure_experiment(
    name="switches",
    parameters=[
        RangeParameterConfig(name=name, parameter_type=kind, bounds=(0, 1))
        for name, kind in names.items()
    ],
)
client.configure_optimization(objective="value")
client.set_generation_strategy(
    trust_region_generation_strategy(num_initial=10, batch_size=4, seed=0)
)
for _half in range(2):
    for _ in range(4 if SMOKE_TEST else 12):
        for index, parameters in client.get_next_trials(max_trials=4).items():
            client.complete_trial(index, raw_data=tuned(parameters))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "experiment.json")
        client.save_to_json_file(path)
        client = Client.load_from_json_file(path)
    values = client._experiment.lookup_data().df["mean"]
    print(f"after {len(values)} trials: {values.max():.3f}; the maximum is 0")

# %% [markdown]
# ## A list of arms: Thompson sampling
#
# Often only some arms exist, such as the samples on a shelf. `candidates=` takes them,
# as a data frame, parameterizations or a CSV file. `thompson_generation_strategy`
# chooses a whole batch of them in one pass. Here are 2,000 arms, and five at a time. A
# client that was saved and loaded goes on with the same arms.

# %%
g = torch.Generator().manual_seed(0)
rows = torch.rand(2000, 2, generator=g, dtype=torch.float64)
table = pd.DataFrame({"x1": 15 * rows[:, 0] - 5, "x2": 15 * rows[:, 1]})
values = branin(torch.from_numpy(table.to_numpy()))
client = Client(random_seed=0)
client.configure_experiment(
    name="shelf",
    parameters=[
        RangeParameterConfig(name="x1", parameter_type="float", bounds=(-5, 10)),
        RangeParameterConfig(name="x2", parameter_type="float", bounds=(0, 15)),
    ],
)
client.configure_optimization(objective="value")
client.set_generation_strategy(
    thompson_generation_strategy(num_initial=5, candidates=table, seed=0)
)
best = []
for _ in range(2 if SMOKE_TEST else 8):
    for index, arm in client.get_next_trials(max_trials=5).items():
        value = branin(torch.tensor([arm["x1"], arm["x2"]])).item()
        client.complete_trial(index, raw_data={"value": value})
        best.append(value)
print(f"best of {len(best)} arms: {max(best):.2f}; of all: {values.max().item():.2f}")

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "experiment.json")
    client.save_to_json_file(path)
    resumed = Client.load_from_json_file(path)
proposals = [each.get_next_trials(max_trials=5) for each in (client, resumed)]
print(f"the same next arms: {proposals[0] == proposals[1]}")

# %% [markdown]
# Sparse models, trust regions and Thompson sampling take several objectives and
# outcome constraints as Ax states them.
