"""With all training points as inducing points it is SingleTaskGP."""

import pytest
import torch
from sparse_model_cases import make_data

from botorch_sparse.models import NystromPrior, SparseSingleTaskGP

close = torch.testing.assert_close


def test_many_repeats_are_folded(double):
    """600 observations of 12 points: nothing is of the size of the data."""
    X = torch.rand(12, 2, **double).repeat(50, 1)
    model = SparseSingleTaskGP(X, X.sum(-1, keepdim=True).sin())
    assert model.num_inducing == 12
    assert isinstance(model(*model.train_inputs), NystromPrior)


@pytest.mark.parametrize("lengthscale", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("repeats", [1, 20])
@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
def test_float32(lengthscale, repeats, device):
    """Mean and variance within 1e-3, relative, of float64 on the same numbers.

    Also near the data, where variances are small, with few inducing points.
    """
    X, Y, _ = make_data(n=80, dtype=torch.float32, device=device)
    X, Y = X.repeat(repeats, 1), Y.repeat(repeats, 1)
    Yvar = torch.full_like(Y, 1e-2 * Y.var().item())
    posteriors = []
    for dtype in (torch.float64, torch.float32):
        data = [tensor.to(dtype) for tensor in (X, Y, Yvar)]
        model = SparseSingleTaskGP(*data, inducing_points=data[0][:30])
        model.covar_module.lengthscale = lengthscale
        posteriors.append(model.posterior(data[0][:80:3].unsqueeze(1) + 0.01))
        assert posteriors[-1].mean.dtype == posteriors[-1].variance.dtype == dtype
    exact, ours = posteriors
    close(ours.mean.double(), exact.mean, rtol=1e-3, atol=1e-3)
    close(ours.variance.double(), exact.variance, rtol=1e-3, atol=0)
