"""Fits of several outputs, each by itself.

Outputs that share no parameter have objectives of their own. Together each evaluation
costs what all of them cost, and the last one to end decides how many there are.
"""

import torch
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from gpytorch.models import ExactGP

from botorch_sparse.models.inducing_points import EXACT_SIZE, InducingSet
from botorch_sparse.models.training_data import outputs_in_batch, raw_inputs


def outputs_apart(mll: MarginalLogLikelihood) -> list[MarginalLogLikelihood]:
    """The objectives of the outputs; none where they are to be fitted together.

    Outputs are independent where each parameter that is fitted is one of those that
    BoTorch's `subset_output` divides: with the default modules. Few observations are
    fitted as BoTorch does it, and learned inducing points are the same for all outputs.
    """
    model = mll.model
    is_small = model.train_targets.shape[-1] <= EXACT_SIZE
    if outputs_in_batch(model) < 2 or is_small or model.learn_inducing_points:
        return []
    known = getattr(model, "_subset_batch_dict", {})
    fitted = {name for name, p in model.named_parameters() if p.requires_grad}
    is_ours = type(mll) is ExactMarginalLogLikelihood
    if not is_ours or mll.likelihood is not model.likelihood or not fitted <= {*known}:
        return []
    parts = [model.subset_output([j]) for j in range(outputs_in_batch(model))]
    return [ExactMarginalLogLikelihood(part.likelihood, part) for part in parts]


def give_back(mll: MarginalLogLikelihood, parts: list[MarginalLogLikelihood]) -> None:
    """Take the parameters of all outputs from the parts, and points for them."""
    model = mll.train().model
    with torch.no_grad():
        for j, part in enumerate(parts):
            for name, dim in model._subset_batch_dict.items():
                row = model.get_parameter(name).select(dim, j)
                row.copy_(part.model.get_parameter(name).reshape(row.shape))
    if model.robust:
        model._outlier_noise = torch.stack([p.model.outlier_noise for p in parts], -2)
    model._take(_drawn_by(parts, model) or model._draw(model._points()))
    gaps = [part.model._likelihood_gap for part in parts]
    model._likelihood_gap = None if None in gaps else max(gaps)


def _drawn_by(parts: list[MarginalLogLikelihood], model: ExactGP) -> InducingSet | None:
    """What the model would draw for all outputs, of what the parts drew for theirs.

    None where that is not known: without a cap on the points of a fit, a part may have
    drawn its own before the last step.
    """
    if model.max_fit_inducing_points is None:
        return None
    chosen = [part.model._inducing_set() for part in parts]
    rows = chosen[0].rows
    index = model._points().together(chosen, rows)
    if index is None:
        return None
    return InducingSet.of_rows(raw_inputs(model), rows, index)
