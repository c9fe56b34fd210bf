"""Private names of Ax, as those of other libraries in `botorch_sparse.private_names`.

None of them is a function or a class: all that is imported from Ax is public.
"""

# The version that the tests ran with.
CHECKED = {"ax": "1.3.1"}

# By the class that owns them.
INHERITED = {
    # Spaces and data without a copy, and the steps of `gen` and `cross_validate`.
    "ax.adapter.torch.TorchAdapter": "_cross_validate _experiment _gen _search_space "
    "_training_data _transform_inputs_for_cv",
    # What `recommended_batch_size` looks at, without a change.
    "ax.api.client.Client": "_experiment _generation_strategy _random_seed",
    # What is optimized, how BoTorch's function for it is built, and from what.
    "ax.generators.torch.botorch_modular.acquisition.Acquisition": (
        "_construct_botorch_acquisition _model _objective_weights _outcome_constraints"
    ),
    # Parts that are None until they are used, and how the last one is made.
    "ax.generators.torch.botorch_modular.generator.BoTorchGenerator": (
        "_acquisition _instantiate_acquisition _surrogate"
    ),
    # How one model is built and fitted, and what is stored.
    "ax.generators.torch.botorch_modular.surrogate.Surrogate": (
        "_construct_model _serialize_attributes_as_kwargs"
    ),
}
