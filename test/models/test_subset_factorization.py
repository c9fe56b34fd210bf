"""What it costs to choose rows again and to predict after it."""

from typing import Any

import pytest
import torch
from botorch import settings
from gpytorch.kernels import RFFKernel
from gpytorch.settings import fast_pred_var
from subset_model_cases import Recorded, dense_posterior, make_data, make_model, rows

from botorch_sparse.linear_operators import TrackedCholesky
from botorch_sparse.models import SubsetSingleTaskGP
from botorch_sparse.models.subset.prediction import FactoredPredictionStrategy

close = torch.testing.assert_close
M = 30


def swapping_model(**double: Any) -> tuple[SubsetSingleTaskGP, Any]:
    """A model that has predicted, and whose next observation swaps one row."""
    data = make_data(60, **double)
    model = make_model(rows(data, slice(50)), selection="recent", subset_size=M)
    model.posterior(data[0][:2])
    return model, data


def test_a_swap_is_an_append_and_a_deletion(double: dict[str, Any]) -> None:
    model, data = swapping_model(**double)
    for n in range(51, 54):
        with Recorded() as done:
            model.add_observations(*rows(data, slice(n - 1, n)))
            model.posterior(data[0][:2])
        assert max(done.factorizations) == 1  # the corner of the new row
        assert done.solves
        assert max(done.solves) <= 2 * M
        assert max(done.products) < M**3
        assert model.subset_factor().cholesky.num_updates == 2 * (n - 50)
    close(
        model.posterior(data[0][:9]).variance,
        dense_posterior(model, rows(data, slice(53)), data[0][:9]).variance,
    )


def test_the_parent_factorizes(double: dict[str, Any]) -> None:
    """What the test above counts is there to be counted."""
    model, data = swapping_model(**double)
    model.covar_module.lengthscale = 0.7
    with Recorded() as done:
        model.add_observations(*rows(data, slice(50, 51)))
        model.posterior(data[0][:2])
    assert max(done.factorizations) == M
    model, data = swapping_model(**double)
    with Recorded() as done, settings.propagate_grads(True):
        model.add_observations(*rows(data, slice(50, 51)))
        model.posterior(data[0][:2])
    assert max(done.factorizations) == M


@pytest.mark.parametrize("what", ["lengthscale", "noise", "state", "transform"])
def test_changed_hyperparameters_rebuild(what: str, double: dict[str, Any]) -> None:
    data = make_data(60, **double)
    model = make_model(rows(data, slice(50)), transform=True, selection="recent")
    model.posterior(data[0][:2])
    model.add_observations(*rows(data, slice(50, 51)))
    assert model.subset_factor().cholesky.num_updates == 2
    if what == "lengthscale":
        model.covar_module.lengthscale = 0.9
    elif what == "noise":
        model.likelihood.noise = 0.5
    elif what == "transform":
        model.refit_transforms()
    else:
        other = make_model(rows(data, slice(20)), transform=True)
        other.covar_module.lengthscale = 0.4
        model.load_state_dict(other.state_dict())
    model.add_observations(*rows(data, slice(51, 52)))
    posterior = model.posterior(data[0][:9])
    if what == "transform":  # the bounds were those of all data before, too
        assert torch.equal(model.input_transform.mins, data[0][:51].amin(0)[None])
    else:
        assert model.subset_factor().cholesky.num_updates == 0
    expected = dense_posterior(model, rows(data, slice(52)), data[0][:9])
    close(posterior.mean, expected.mean)
    close(posterior.variance, expected.variance)


def test_other_noise_of_rows_that_stay_rebuilds(double: dict[str, Any]) -> None:
    data = make_data(60, fixed_noise=True, **double)
    model = make_model(rows(data, slice(50)), selection="recent")
    model.posterior(data[0][:2])
    model.add_observations(*rows(data, slice(50, 51)))
    assert model.subset_factor().cholesky.num_updates == 2
    X, Y, Yvar = rows(data, slice(51, 52))
    model.add_observations(X, Y + 40.0, Yvar)
    model.refit_transforms()
    model.posterior(data[0][:2])
    assert model.subset_factor().cholesky.num_updates == 0
    Y = torch.cat([data[1][:51], Y + 40.0])
    data = (data[0][:52], Y, data[2][:52])
    close(
        model.posterior(data[0][:9]).variance,
        dense_posterior(model, data, data[0][:9]).variance,
    )


@pytest.mark.parametrize("selection", ["gradient", "random", "recent"])
@pytest.mark.parametrize("noise_scale", [0.0, 0.1])
def test_reselection_makes_nothing_of_size_n_squared(
    selection: str, noise_scale: float, double: dict[str, Any]
) -> None:
    n, size = 400, 10
    data = make_data(n + 1, **double)
    model = make_model(
        rows(data, slice(n)),
        selection=selection,
        subset_size=size,
        noise_scale=noise_scale,
    )
    with Recorded() as done:
        model.add_observations(*rows(data, slice(n, n + 1)))
        model.posterior(data[0][:3])
    assert 0 < done.numel <= 4 * n * size
    assert max(done.factorizations, default=0) <= size


def test_drift_is_repaired_on_the_way(double: dict[str, Any]) -> None:
    model, data = swapping_model(**double)
    factor = model.subset_factor()
    spoiled = factor.cholesky.operator.chol.clone()
    spoiled[20, 3] += 1e-6
    operator = type(factor.cholesky.operator)(spoiled)
    tracked = TrackedCholesky(factor.cholesky.matrix, operator, 1e-14, 7)
    object.__setattr__(model._factor, "cholesky", tracked)
    model.add_observations(*rows(data, slice(50, 51)))
    posterior = model.posterior(data[0][:9])
    assert model.subset_factor().cholesky.num_updates <= 1
    expected = dense_posterior(model, rows(data, slice(51)), data[0][:9])
    close(posterior.variance, expected.variance)


def test_joint_and_mean_only_predictions(double: dict[str, Any]) -> None:
    model, data = swapping_model(**double)
    model.add_observations(*rows(data, slice(50, 51)))
    X = data[0][:9]
    expected = dense_posterior(model, rows(data, slice(51)), X)
    assert isinstance(model.eval().posterior(X).mean, torch.Tensor)
    assert isinstance(model.prediction_strategy, FactoredPredictionStrategy)
    direct = model(X)
    scale = model.outcome_transform.stdvs.squeeze()
    close(
        direct.mean * scale + model.outcome_transform.means.squeeze(),
        expected.mean[:, 0],
    )
    with fast_pred_var(False):
        close(model(X).variance * scale**2, expected.variance[:, 0])


def test_gradients_flow_through_inputs_and_hyperparameters(
    double: dict[str, Any],
) -> None:
    model, data = swapping_model(**double)
    model.add_observations(*rows(data, slice(50, 51)))
    X = data[0][:3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda Z: model.posterior(Z).variance, X)
    model.train().eval()
    with settings.propagate_grads(True):
        model.posterior(data[0][:3]).mean.sum().backward()
    assert model.covar_module.raw_lengthscale.grad.abs().sum() > 0


class LowRankKernel(RFFKernel):
    """Random features, for which GPyTorch predicts in another way."""


def test_kernels_with_predictions_of_their_own_keep_them(
    double: dict[str, Any],
) -> None:
    data = make_data(40, **double)
    torch.manual_seed(0)
    kernel = LowRankKernel(num_samples=5, num_dims=2)
    model = make_model(data, covar_module=kernel, selection="recent")
    found = model.posterior(data[0][:4])
    assert not isinstance(model.prediction_strategy, FactoredPredictionStrategy)
    X = data[0][model.subset_indices]
    K = kernel(X).to_dense() + model.likelihood.noise * torch.eye(len(X)).to(X)
    k = kernel(data[0][:4], X).to_dense()
    mean = (k @ torch.linalg.solve(K, model.train_targets)).unsqueeze(-1)
    octf = model.outcome_transform
    close(found.mean, mean * octf.stdvs + octf.means, rtol=1e-6, atol=1e-6)
