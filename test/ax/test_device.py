"""Ax's candidates and cross-validation, with the model on an accelerator."""

import random

import pytest
import simulated_device
import torch
from ax.adapter.cross_validation import cross_validate
from ax_problems import BOX

from botorch_sparse.acquisition import BatchUpperConfidenceBound
from botorch_sparse.ax import (
    AdaptiveBatchAcquisition,
    ArmTable,
    SparseAcquisition,
    SparseGenerators,
    sparse_generation_strategy,
)

# The host is what the others are compared with.
ACCELERATORS = {"cuda": torch.cuda.is_available(), "sim": simulated_device.IS_AVAILABLE}
BATCHES = {
    "acquisition_class": AdaptiveBatchAcquisition,
    "botorch_acqf_class": BatchUpperConfidenceBound,
    "acquisition_options": {"ratio_threshold": 1e6},
}


def table() -> ArmTable:
    rng = random.Random(0)
    return ArmTable.of(
        [{name: rng.uniform(*BOX[name]) for name in BOX} for _ in range(30)]
    )


@pytest.mark.parametrize(
    "device",
    [name for name, is_there in ACCELERATORS.items() if is_there],
    indirect=True,
)
@pytest.mark.parametrize(
    "options",
    [
        {"acquisition_class": SparseAcquisition},
        BATCHES,
        {**BATCHES, "candidates": table()},
    ],
    ids=["one by one", "batches", "table"],
)
def test_all_devices_lead_to_the_same(options, device, make_client, attach, fast):
    """To what the host leads to: but for rounding, which few steps leave small."""
    client = make_client(sparse_generation_strategy())
    attach(client, 10)
    experiment = client._experiment
    asked, predicted = [], []
    for place in (device, torch.device("cpu")):
        adapter = SparseGenerators.BOTORCH_SPARSE(
            experiment=experiment,
            data=experiment.lookup_data(),
            torch_device=place,
            seed=0,
            **options,
        )
        run = adapter.gen(2, model_gen_options={"optimizer_kwargs": fast})
        assert adapter.generator.surrogate.model.train_targets.device == place
        asked.append([value for arm in run.arms for value in arm.parameters.values()])
        folds = cross_validate(adapter)
        predicted.append([fold.predicted.means[0] for fold in folds])
    assert len(asked[0]) == 4
    assert asked[0] == pytest.approx(asked[1], rel=1e-3, abs=1e-3)
    assert predicted[0] == pytest.approx(predicted[1], rel=1e-3)
