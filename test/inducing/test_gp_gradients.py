"""Gradients of GPs against autograd and dense inverses, and selection by them."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from oracles import DENSE, make_kernel, nystrom_kernel
from sampler_cases import brute_force
from torch import Tensor
from torch.distributions import MultivariateNormal

from botorch_sparse.inducing import (
    GradientFactors,
    exact_gradients,
    pilot_gradients,
    select_by_gradient_diversity,
)
from botorch_sparse.inducing.gp_gradients import READINGS
from botorch_sparse.posteriors import NystromPosterior

close = torch.testing.assert_close
all_readings = pytest.mark.parametrize("reading", READINGS)


class Problem:
    """Data, a kernel and a subset."""

    def __init__(self, n: int = 30, **tkwargs: Any) -> None:
        torch.manual_seed(1)
        self.kernel = make_kernel("matern52", **tkwargs)
        self.X = torch.rand(n, 2, **tkwargs)
        self.error = torch.randn(n, **tkwargs)
        self.noise = 0.05 + 0.1 * torch.rand(n, **tkwargs)
        self.subset = torch.randperm(n)[:8].to(tkwargs["device"])

    def arguments(self) -> tuple[Any, ...]:
        return self.kernel, self.X, self.error, self.noise

    def covariance(self, is_pilot: bool) -> Tensor:
        """K_y, or its Nystrom approximation, in float64."""
        X, kernel = self.X.double(), DENSE["matern52"]
        if is_pilot:
            kernel = nystrom_kernel(kernel, X[self.subset])
        K = kernel(X, X)
        return K + self.noise.double().diag()


def dense_gradients(A: Tensor, error: Tensor, reading: str) -> Tensor:
    """The three readings, one row for each sample."""
    inverse, y = torch.linalg.inv(A), error.double()
    rows = {
        "contribution": -inverse * y[:, None],
        "column": -inverse,
        "scalar": -(inverse @ y)[:, None],
    }
    return rows[reading]


def test_contributions_sum_to_the_gradient(double):
    problem = Problem(**double)
    A = problem.covariance(is_pilot=False)
    y = problem.error.clone().requires_grad_()
    (expected,) = torch.autograd.grad(
        MultivariateNormal(torch.zeros_like(y), A).log_prob(y), y
    )
    contributions = exact_gradients(*problem.arguments(), reading="contribution")
    close(contributions.sum(0), expected)
    scalars = exact_gradients(*problem.arguments(), reading="scalar")
    close(scalars.squeeze(-1), expected)


@all_readings
@pytest.mark.parametrize("is_pilot", [False, True])
def test_gradients_and_choice_are_those_of_the_dense_inverse(reading, is_pilot, double):
    problem = Problem(**double)
    A = problem.covariance(is_pilot)
    expected = dense_gradients(A, problem.error, reading)
    if is_pilot:
        gradients = pilot_gradients(
            *problem.arguments(), problem.subset, reading=reading
        )
    else:
        gradients = exact_gradients(*problem.arguments(), reading=reading)
    is_factored = isinstance(gradients, GradientFactors)
    assert is_factored == (is_pilot and reading != "scalar")
    dense = gradients.to_dense() if is_factored else gradients
    close(dense, expected, rtol=1e-7, atol=1e-7)
    chosen = select_by_gradient_diversity(gradients, 15, [0, 1, 29])
    assert chosen.tolist() == brute_force(expected, 15, [0, 1, 29])


@all_readings
def test_a_batch_is_further_coordinates(reading, double):
    problem = Problem(**double)
    kernel = ScaleKernel(
        MaternKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2])
    ).to(problem.X)
    kernel.base_kernel.lengthscale = torch.tensor([[[0.3]], [[0.8]]]).to(problem.X)
    X = problem.X.expand(2, -1, -1)
    error = torch.stack([problem.error, problem.error.cos()])
    noise = torch.stack([problem.noise, problem.noise + 0.1])

    def gradients(is_pilot: bool, *data: Any) -> Tensor:
        if not is_pilot:
            return exact_gradients(*data, reading=reading)
        pilot = pilot_gradients(*data, problem.subset, reading=reading)
        return pilot.to_dense() if isinstance(pilot, GradientFactors) else pilot

    for is_pilot in (False, True):
        both = gradients(is_pilot, kernel, X, error, noise)
        one_by_one = [
            gradients(is_pilot, kernel[i], problem.X, error[i], noise[i])
            for i in range(2)
        ]
        close(both, torch.cat(one_by_one, -1))


def test_float32_data_give_float64_gradients(tkwargs):
    problem = Problem(**tkwargs)
    pilot = pilot_gradients(*problem.arguments(), problem.subset)
    assert isinstance(pilot, GradientFactors)
    assert pilot.rows.dtype == torch.float64
    expected = dense_gradients(problem.covariance(True), problem.error, "contribution")
    # float32 data, exact arithmetic: only the inputs are rounded.
    tolerance = 1e-7 if tkwargs["dtype"] == torch.float64 else 1e-4
    close(pilot.to_dense(), expected, rtol=tolerance, atol=tolerance)


def test_redundant_rows_of_the_subset_do_no_harm(double):
    problem = Problem(**double)
    problem.X[5:10] = problem.X[:5]
    once = pilot_gradients(*problem.arguments(), torch.arange(5).to(problem.subset))
    twice = pilot_gradients(*problem.arguments(), torch.arange(10).to(problem.subset))
    assert isinstance(once, GradientFactors)
    assert isinstance(twice, GradientFactors)
    close(once.to_dense(), twice.to_dense(), rtol=1e-6, atol=1e-6)


def test_exact_observations_among_noisy_ones(double):
    """Rounding leaves I + V'V, of 1e20 and 1, without a factor; it is found without.

    D^1/2 K_y^-1 D^1/2 = I - V (I + V'V)^-1 V', here by the singular values of V. Both
    ways perturb V by some roundings of its norm, 1e10.
    """
    problem = Problem(**double)
    problem.noise[problem.subset[:3]] = 1e-20
    root, X = problem.noise.sqrt().unsqueeze(-1), problem.X
    gradients = pilot_gradients(*problem.arguments(), problem.subset, reading="column")
    assert isinstance(gradients, GradientFactors)
    W = root * gradients.rows
    V = NystromPosterior.prior(problem.kernel, X[problem.subset]).features(X) / root
    P, s, _ = torch.linalg.svd(V.detach(), full_matrices=False)
    expected = P @ (s.square() / (1 + s.square())).diag() @ P.mT
    close(W @ W.mT, expected, atol=1e3 * torch.finfo(s.dtype).eps * 1e10, rtol=0)
