"""Strategies survive Ax's JSON storage whole."""

import json
from typing import Any

import numpy as np
import pytest
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from ax.storage.json_store.decoder import object_from_json
from ax.storage.json_store.encoder import object_to_json
from botorch.acquisition import UpperConfidenceBound
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood

from botorch_sparse.acquisition import (
    BatchUpperConfidenceBound,
    qBatchUpperConfidenceBound,
)
from botorch_sparse.ax import (
    ArmTable,
    SparseGenerators,
    bbkb_generation_strategy,
    gssbo_generation_strategy,
    sparse_generation_strategy,
    thompson_generation_strategy,
)
from botorch_sparse.ax.storage import register_for_storage
from botorch_sparse.inducing import (
    BLESSSampler,
    CertifiedSampler,
    PosteriorVarianceSampler,
    RecursiveRLSSampler,
)
from botorch_sparse.models import SparseSingleTaskGP, SubsetSingleTaskGP


def round_trip(value: Any) -> Any:
    return object_from_json(json.loads(json.dumps(object_to_json(value))))


ROWS = [{"x1": 0.1, "x2": 1.0 / 3}, {"x1": 2.0, "x2": 3.0}]
STRATEGIES = {
    "sparse": sparse_generation_strategy(7, seed=3),
    "acquisition": sparse_generation_strategy(
        acqf_class=UpperConfidenceBound, acqf_options={"beta": 2.0}, name="mine"
    ),
    "sampler": sparse_generation_strategy(
        model_options={"inducing_sampler": CertifiedSampler(tolerance=0.1)}
    ),
    "candidates": sparse_generation_strategy(candidates=ROWS, allow_repeats=False),
    "bbkb": bbkb_generation_strategy(ratio_threshold=3.0, beta=1.0, refit_growth=2.0),
    "gssbo": gssbo_generation_strategy(5, subset_size=30),
    "thompson": thompson_generation_strategy(5, candidates=ROWS, seed=1),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies(name):
    strategy = STRATEGIES[name]
    loaded = round_trip(strategy)
    assert loaded == strategy
    for node, other in zip(strategy._nodes, loaded._nodes, strict=True):
        assert repr(node.generator_specs) == repr(other.generator_specs)
        assert repr(node.transition_criteria) == repr(other.transition_criteria)


def test_numbers_of_numpy_are_stored():
    """What came from an array, such as a grid of sizes."""
    five = np.int64(5)
    options = {"optimizer_options": {"num_restarts": five}, "seed": five}
    bound = {"max_inducing_points": five, "max_memory": np.int64(10**9)}
    for strategy in (
        sparse_generation_strategy(five, model_options=bound, **options),
        bbkb_generation_strategy(five, beta=np.float32(2.0), **options),
        gssbo_generation_strategy(five, subset_size=np.int64(30), **options),
    ):
        assert round_trip(strategy) == strategy


def test_a_different_strategy_is_not_equal():
    one, other = (bbkb_generation_strategy(ratio_threshold=c) for c in (2.0, 2.5))
    assert round_trip(one) != other


KEPT = [
    BLESSSampler(),
    CertifiedSampler(0.5, max_inducing_points=None),
    PosteriorVarianceSampler(oversampling=3.0),
    RecursiveRLSSampler(),
    *(BatchUpperConfidenceBound, qBatchUpperConfidenceBound, UpperConfidenceBound),
    *(SparseSingleTaskGP, SubsetSingleTaskGP, *SparseGenerators),
]


@pytest.mark.parametrize("kept", KEPT, ids=str)
def test_samplers_classes_and_generators(kept):
    loaded = round_trip(kept)
    assert loaded == kept and type(loaded) is type(kept)


def test_model_configs_with_kernels_and_likelihoods():
    config = ModelConfig(
        botorch_model_class=SparseSingleTaskGP,
        covar_module_class=RBFKernel,
        likelihood_class=GaussianLikelihood,
    )
    loaded = round_trip(SurrogateSpec(model_configs=[config])).model_configs[0]
    assert loaded.covar_module_class is RBFKernel
    assert loaded.likelihood_class is GaussianLikelihood


def test_tables():
    table = ArmTable.of(ROWS)
    assert round_trip(table) == table
    assert round_trip(table).frame.to_dict("records") == ROWS


def test_registering_again_changes_nothing():
    register_for_storage()
    assert round_trip(STRATEGIES["bbkb"]) == STRATEGIES["bbkb"]
