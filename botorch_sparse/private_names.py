"""Private names of other libraries, in one place: a new release may move them.

Functions and classes without a public name are imported here alone, and have one here.
Each is imported when it is asked for: `botorch.fit` alone takes a tenth of a second.
`INHERITED` names attributes and methods of other libraries' classes that ours use or
override. `test/test_private_names.py` compares both with the libraries installed. Of
Ax nothing private is imported, and attributes alone are named.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from botorch_sparse.lazy_exports import lazy_exports

# The versions that the tests ran with.
CHECKED = {
    "ax": "1.3.1",
    "botorch": "0.18.1",
    "gpytorch": "1.15.2",
    "linear_operator": "0.6.1",
    "torch": "2.13.0",
}


@contextmanager
def _said_in_words() -> Iterator[None]:
    """Say of an import that fails which library moved a name, and what to install."""
    try:
        yield
    except ImportError as error:
        library = (error.name or "").partition(".")[0]
        installed = sys.modules.get(library)
        if library not in CHECKED or installed is None:
            raise
        version = getattr(installed, "__version__", "of an unknown version")
        raise ImportError(
            f"{library} {version} has moved a private name that botorch_sparse needs "
            f"({error}). Checked was {library} {CHECKED[library]}: install that "
            "version, or a botorch_sparse that knows this one.",
            name=error.name,
            path=error.path,
        ) from error


if TYPE_CHECKING:
    # The logarithm of expected improvement, in standard deviations.
    from botorch.acquisition.analytic import _log_ei_helper as log_ei_helper

    # The parts of `loo_cv` that say nothing of an exact GP: from means and variances of
    # all observations to BoTorch's results.
    from botorch.cross_validation import _build_loo_posterior as build_loo_posterior
    from botorch.cross_validation import (
        _reshape_to_loo_cv_format as reshape_to_loo_cv_format,
    )
    from botorch.cross_validation import (
        _untransform_loo_results as untransform_loo_results,
    )

    # The fit with new attempts, which a `custom_fit` cannot ask `fit_gpytorch_mll` for:
    # that would call it again.
    from botorch.fit import _fit_fallback as fit_fallback

    # The type of `DEFAULT`, for signatures like BoTorch's.
    from botorch.utils.types import _DefaultType as DefaultType

    # Any Gaussian likelihood: what models accept and their paths are registered for.
    from gpytorch.likelihoods import _GaussianLikelihoodBase as GaussianLikelihoodBase

__all__ = [
    "CHECKED",
    "INHERITED",
    "DefaultType",
    "GaussianLikelihoodBase",
    "build_loo_posterior",
    "fit_fallback",
    "log_ei_helper",
    "reshape_to_loo_cv_format",
    "untransform_loo_results",
]

_export, __dir__ = lazy_exports(__name__, __file__)


def __getattr__(name: str) -> Any:
    """A name of another library, or an error that says which library moved it."""
    with _said_in_words():
        return _export(name)


# By the class that owns them.
INHERITED = {
    # Inputs before and after their transform.
    "botorch.models.model.Model": "_has_transformed_inputs _original_train_inputs "
    "_revert_to_original_inputs _set_transformed_inputs",
    # The number of outputs, and the batch that they are part of.
    "botorch.models.gpytorch.BatchedMultiOutputGPyTorchModel": "_aug_batch_shape "
    "_input_batch_shape _num_outputs",
    # The check of the shapes of new observations.
    "botorch.models.gpytorch.GPyTorchModel": "_validate_tensor_args",
    # What adds noise to predictions.
    "botorch.models.gpytorch.MultiTaskGPyTorchModel": "_apply_noise",
    # The tasks, their column and numbers, and the rank of their covariance.
    "botorch.models.MultiTaskGP": "_expected_task_values _map_tasks _output_tasks "
    "_rank _task_feature _task_mapper _validate_task_values",
    # Correlations of tasks, which a prior is of.
    "botorch.models.kernels.positive_index.PositiveIndexKernel": (
        "_lower_triangle_corr _set_lower_triangle_corr"
    ),
    # Noise at inputs with a column of tasks.
    "gpytorch.likelihoods.hadamard_gaussian_likelihood.HadamardGaussianLikelihood": (
        "_shaped_noise_covar"
    ),
    # The columns that the check of the inputs' scale leaves out, and how parameters are
    # divided by outputs.
    "botorch.models.SingleTaskGP": "_ignore_X_dims_scaling_check _subset_batch_dict",
    # Whether undoing an outcome transform leaves the mean without the variance.
    "botorch.models.transforms.outcome.OutcomeTransform": "_is_linear",
    # What BoTorch's own allocators maximize: abstract, and ours refuses it.
    "botorch.models.utils.inducing_point_allocators.InducingPointAllocator": (
        "_get_quality_function"
    ),
    # Moments with BoTorch's lower limit; samples, and the mean and maximum of them.
    "botorch.acquisition.analytic.AnalyticAcquisitionFunction": "_mean_and_sigma",
    "botorch.acquisition.monte_carlo.SampleReducingMCAcquisitionFunction": (
        "_get_samples_and_objectives _non_reduced_forward _q_reduction "
        "_sample_reduction"
    ),
    # What is called at the end of a backward pass.
    "torch.autograd.Variable": "_execution_engine",
    # Moves and state dicts, after which what was computed from them is void.
    "torch.nn.Module": "_apply _load_from_state_dict",
    "gpytorch.Module": "_clear_cache",
    # The prior that an exact model is conditioned on; GPyTorch says to override it.
    "gpytorch.models.ExactGP": "_get_train_prior_distribution",
    # The batch shape, kernels inside left out.
    "gpytorch.kernels.Kernel": "_batch_shape",
    # What operators are to define, and the arguments that one was built from.
    "linear_operator.LinearOperator": "_args _diagonal _expand_batch _get_indices "
    "_getitem _kwargs _matmul _mul_constant _size _solve _transpose_nonbatch",
    # Its two terms, the prior and the noise.
    "linear_operator.operators.AddedDiagLinearOperator": "_diag_tensor _linear_op",
    # Spaces and data without a copy, what is optimized, and the steps of `gen` and
    # `cross_validate`.
    "ax.adapter.torch.TorchAdapter": "_cross_validate _experiment _gen "
    "_optimization_config _search_space _training_data _transform_inputs_for_cv",
    # What `recommended_batch_size` looks at, without a change.
    # The metrics of each of several objectives, with their weights.
    "ax.core.objective.Objective": "_parsed",
    "ax.api.client.Client": "_experiment _generation_strategy _random_seed",
    # What is optimized, how BoTorch's function for it is built, and from what.
    "ax.generators.torch.botorch_modular.acquisition.Acquisition": (
        "_construct_botorch_acquisition _model _objective_thresholds "
        "_objective_weights _outcome_constraints _subset_idcs "
        "_update_objective_thresholds"
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
