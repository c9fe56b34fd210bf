"""SparseSingleTaskGP against dense closed forms, and what it refuses."""

from typing import Any

import pytest
import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
)
from gpytorch.kernels import MaternKernel, ScaleKernel
from sparse_model_cases import (
    dense_objective,
    dense_posterior,
    make_data,
    make_mll,
    make_transform,
)

from botorch_sparse.models import NystromPrior, SparseSingleTaskGP


@pytest.mark.parametrize("transform", [None, "normalize", "warp"])
@pytest.mark.parametrize("fixed_noise", [False, True])
@pytest.mark.parametrize("standardize", [True, False])
class TestDense:
    """Posterior and objective against the closed forms."""

    def make(
        self,
        transform: str | None,
        fixed_noise: bool,
        standardize: bool,
        double: dict[str, Any],
        **kwargs: Any,
    ) -> SparseSingleTaskGP:
        X, Y, Yvar = make_data(**double)
        if not standardize:
            kwargs["outcome_transform"] = None
        model = SparseSingleTaskGP(
            X,
            Y,
            Yvar if fixed_noise else None,
            covar_module=ScaleKernel(MaternKernel(ard_num_dims=2)),
            input_transform=make_transform(transform, double),
            inducing_points=X[2:24:2],
            **kwargs,
        )
        model.mean_module.initialize(constant=0.2)
        model.covar_module.base_kernel.lengthscale = 0.6
        return model

    def test_posterior(
        self,
        transform: str | None,
        fixed_noise: bool,
        standardize: bool,
        double: dict[str, Any],
    ) -> None:
        model = self.make(transform, fixed_noise, standardize, double)
        X_test = 2 * torch.rand(6, 2, **double)
        posterior = model.posterior(X_test)
        noisy = model.posterior(X_test, observation_noise=True)
        mean, covariance = dense_posterior(model, X_test)
        noise = model.likelihood.noise.mean() * torch.eye(6, **double)
        scale, shift = 1.0, 0.0
        if standardize:
            scale = model.outcome_transform.stdvs.item()
            shift = model.outcome_transform.means.item()
        close = {"rtol": 1e-8, "atol": 1e-8}
        mean, covariance = shift + scale * mean, scale**2 * covariance
        torch.testing.assert_close(posterior.mean.squeeze(-1), mean, **close)
        torch.testing.assert_close(
            posterior.distribution.covariance_matrix, covariance, **close
        )
        torch.testing.assert_close(
            noisy.distribution.covariance_matrix, covariance + scale**2 * noise, **close
        )

    @pytest.mark.parametrize("objective", ["elbo", "dtc"])
    def test_objective_and_gradients(
        self,
        objective: str,
        transform: str | None,
        fixed_noise: bool,
        standardize: bool,
        double: dict[str, Any],
    ) -> None:
        model = self.make(
            transform, fixed_noise, standardize, double, objective=objective
        )
        prior = model(*model.train_inputs)
        assert isinstance(prior, NystromPrior)
        value = make_mll(model)(prior, model.train_targets)
        expected = dense_objective(model)
        parameters = list(model.parameters())
        torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(
            torch.autograd.grad(value, parameters),
            torch.autograd.grad(expected, parameters),
            rtol=1e-8,
            atol=1e-8,
        )


class TestErrors:
    """What is refused at the door."""

    @pytest.mark.parametrize(
        ("options", "error", "match"),
        [
            ({"inducing_points": torch.rand(4)}, BotorchTensorDimensionError, "m x 2"),
            ({"inducing_points": torch.rand(4, 3)}, BotorchTensorDimensionError, "m x"),
            (
                {"inducing_points": torch.rand(2, 4, 2)},
                BotorchTensorDimensionError,
                "each element of the batch",
            ),
            ({"inducing_points": torch.rand(0, 2)}, InputDataError, "at least one row"),
            ({"inducing_points": torch.rand(4, 2).float()}, InputDataError, "float32"),
            (
                {"inducing_points": torch.full((4, 2), float("nan")).double()},
                InputDataError,
                "must be finite",
            ),
            ({"objective": "vfe"}, InputDataError, "objective='vfe'"),
            ({"max_inducing_points": 0}, InputDataError, "max_inducing_points=0"),
        ],
    )
    def test_options(
        self,
        options: dict[str, Any],
        error: type[Exception],
        match: str,
        double: dict[str, Any],
    ) -> None:
        X, Y, _ = make_data(**double)
        with pytest.raises(error, match=match):
            SparseSingleTaskGP(X, Y, **options)
