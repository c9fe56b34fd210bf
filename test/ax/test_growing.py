"""An experiment that grows, with the model in Ax's own generator and no patches."""

import warnings

import ax.adapter.cross_validation as ax_cross_validation
import torch
from ax.adapter.cross_validation import compute_diagnostics, cross_validate
from ax.adapter.registry import Generators
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from ax_problems import CAPPED
from botorch.cross_validation import loo_cv
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_sparse.models import SparseSingleTaskGP


@CAPPED
def test_a_sparse_model_as_a_model_config(make_client, attach, evaluate, fast):
    """Users of Ax had to patch the construction and the fit of a variational GP.

    Its objective needs the number of data, its construction inducing points. Here a
    name and options are enough, the fit is Ax's own, and cross-validation works; with
    folds it is the sparse model's, and leave-one-out BoTorch's of the exact GP.
    """
    assert ax_cross_validation.loo_cv is loo_cv
    config = ModelConfig(
        botorch_model_class=SparseSingleTaskGP,
        model_options={"max_inducing_points": 10},
        mll_class=ExactMarginalLogLikelihood,
        name="sparse",
    )
    node = GenerationNode(
        name="model",
        generator_specs=[
            GeneratorSpec(
                Generators.BOTORCH_MODULAR,
                generator_kwargs={"surrogate_spec": SurrogateSpec([config])},
                generator_gen_kwargs={"model_gen_options": {"optimizer_kwargs": fast}},
            )
        ],
    )
    client = make_client(GenerationStrategy(name="own", nodes=[node]))
    attach(client, 24)
    sizes, fitted = [], []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            evaluate(client, 1)
            adapter = client._generation_strategy.adapter
            model = adapter.generator.surrogate.model
            assert type(model) is SparseSingleTaskGP and not model.is_exact
            sizes.append(model.train_targets.shape[-1])
            fitted.append(model.covar_module.lengthscale.detach().clone())
            assert model.num_inducing == 10
        results = [cross_validate(adapter, folds=folds) for folds in (-1, 4)]
    assert sizes == [24, 25, 26]
    assert not torch.equal(fitted[0], fitted[1])
    for result in results:
        assert len(result) == 26
        assert compute_diagnostics(result)["Rank correlation"]["f"] > 0.3
    said = [str(warning.message) for warning in caught]
    assert not any("model fit" in text or "fail" in text.lower() for text in said)
