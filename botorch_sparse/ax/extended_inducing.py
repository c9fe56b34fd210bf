"""Inducing points for data that grew since they were drawn."""

import torch
from botorch.models.gpytorch import GPyTorchModel
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.posteriors import NystromPosterior

# What may be left unexplained of the new points; see `CertifiedSampler`.
TOLERANCE = 1.0
# Points may be added up to this multiple of the cap, until all are drawn anew.
HEADROOM = 1.2


@torch.no_grad()
def extended_inducing_points(model: GPyTorchModel, X: Tensor) -> Tensor | None:
    r"""The inducing points of a model, and of points that it has not seen.

    New points are added by partial pivoted Cholesky, the one least explained first,
    until the trace of :math:`(K - Q)/\lambda` over them is at most one. That bounds the
    largest eigenvalue over all data by the sum of this and the model's own.

    `X` are `k x d` inputs that the model has not seen, before the input transform. An
    exact model has no inducing points: then None. Cost: O(k m (m + p)) with `p` points
    added.
    """
    if not isinstance(model, SparseSingleTaskGP):
        return None
    model.eval().sparsify()
    if model.is_exact:
        return None
    points = model.inducing_points
    limit = int(HEADROOM * model.inducing_cap) - len(points)
    if limit <= 0:
        return points
    added = _least_explained(
        model.nystrom_posterior(), model.transform_inputs(X), _noise(model), limit
    )
    return torch.cat([points, X[added]])


def _least_explained(
    posterior: NystromPosterior, X: Tensor, noise: Tensor, limit: int
) -> Tensor:
    """At most `limit` rows of `X` by their pivots, summed over the `aug` outputs."""
    X = X.to(posterior.inducing_points)
    phi = posterior.features(X)  # aug x k x m
    weight = 1 / noise
    left = (posterior.residual(X, phi) * weight.unsqueeze(-1)).reshape(-1, len(X))
    chosen: list[int] = []
    columns = phi.new_empty(*phi.shape[:-1], 0)  # aug x k x p
    while left.sum() > TOLERANCE and len(chosen) < limit:
        pivot = int(left.sum(0).argmax())
        if not left[:, pivot].sum() > 0:
            break
        x = X[pivot : pivot + 1]
        column = posterior.covar_module(X, x).to_dense()
        column = column - phi @ phi[..., pivot, :].unsqueeze(-1)
        column = column - columns @ columns[..., pivot, :].unsqueeze(-1)
        variance = column[..., pivot, :].clamp_min(1e-12).unsqueeze(-2)
        columns = torch.cat([columns, column / variance.sqrt()], dim=-1)
        newest = columns[..., -1].square() * weight.unsqueeze(-1)
        left = (left - newest.reshape(-1, len(X))).clamp_min(0.0)
        left[:, pivot] = 0.0
        chosen.append(pivot)
    return torch.tensor(chosen, dtype=torch.long, device=X.device)


def _noise(model: SparseSingleTaskGP) -> Tensor:
    """One noise variance for each output, of the shape of its batch."""
    noise = model.likelihood.noise.detach().double().mean(-1)
    return noise.reshape(model._aug_batch_shape)
