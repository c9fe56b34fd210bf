"""Models that remember some points predict what they would predict anyway."""

import copy
import pickle
from typing import Any

import pytest
import simulated_device
import torch
from botorch import settings
from botorch.models.transforms import Normalize
from gpytorch.kernels import RBFKernel
from sparse_model_cases import embedded_rows

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.posteriors import KnownFeatures, NystromPosterior

needs_simulation = pytest.mark.skipif(
    not simulated_device.IS_AVAILABLE, reason="needs torch >= 2.9"
)


def points(n: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.rand(n, 2, generator=generator, dtype=torch.double)


def sparse_model(m: int) -> SparseSingleTaskGP:
    X = points(40, seed=0)
    Y = torch.stack([(X[:, 0] + j * X[:, 1]).sin() for j in range(m)], dim=-1)
    Y = (Y - Y.mean(0)) / Y.std(0)
    return SparseSingleTaskGP(
        X,
        Y,
        input_transform=Normalize(2),
        outcome_transform=None,
        inducing_points=X[:12],
    ).eval()


def moments(model: Any, X: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Mean and joint covariance, and their gradient with respect to X."""
    X = X.clone().requires_grad_(True)
    posterior = model.posterior(X)
    covariance = posterior.distribution.covariance_matrix
    total = posterior.mean.sin().sum() + covariance.cos().sum()
    return posterior.mean, covariance, *torch.autograd.grad(total, X)


@pytest.mark.parametrize("m", [1, 2])
def test_posteriors_are_the_same_and_known_points_cost_nothing(m):
    model, known = sparse_model(m), points(5, seed=1)
    free = points(21, seed=2).reshape(7, 3, 2)
    X = torch.cat([known.expand(7, -1, -1), free], dim=-2)
    cases = {"known": X, "others": X.flip(-2), "alone": free, "single": X[0]}
    expected = {name: moments(model, x) for name, x in cases.items()}
    model.remember(known)
    with embedded_rows() as rows:
        found = {name: moments(model, x) for name, x in cases.items()}
    assert rows == [3, 8, 3, 3]
    for name in cases:
        for one, other in zip(expected[name], found[name], strict=True):
            if name == "known" and one.shape == X.shape:  # known points stay
                one, other = one[:, 5:], other[:, 5:]
            elif name == "single" and one.shape == X[0].shape:
                one, other = one[5:], other[5:]
            assert torch.allclose(one, other, rtol=1e-8, atol=1e-10)


def test_what_is_known_ends_with_the_posterior_it_is_of():
    """Conditioned posteriors compute all anew."""
    model, known = sparse_model(1), points(5, seed=1)
    X = torch.cat([known, points(2, seed=2)])
    new_X, new_Y = points(3, seed=3), torch.ones(3, 1, dtype=torch.double)
    expected = model.condition_on_observations(new_X, new_Y).posterior(X)
    fantasies = torch.stack([new_X, new_X + 0.1])
    many = model.condition_on_observations(fantasies, new_Y.expand(2, 3, 1))
    expected_many = many.posterior(X)
    model.remember(known)
    found = model.condition_on_observations(new_X, new_Y).posterior(X)
    many = model.condition_on_observations(fantasies, new_Y.expand(2, 3, 1))
    for one, other in ((expected, found), (expected_many, many.posterior(X))):
        assert torch.allclose(one.mean, other.mean, rtol=1e-8)
        assert torch.allclose(one.variance, other.variance, rtol=1e-6)
    # Known again, of a posterior that knows others.
    model.remember(X[:2])
    with embedded_rows() as rows:
        model.posterior(X)
    assert rows == [5]


def test_models_that_remember_can_be_copied():
    """No graph is kept, that of the hyperparameters least of all."""
    model, X = sparse_model(1), points(5, seed=1)
    model.remember(X[:4])
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    with embedded_rows() as rows:
        torch.testing.assert_close(again.posterior(X).mean, model.posterior(X).mean)
    assert rows == [1, 1]
    known = KnownFeatures.of(model.nystrom_posterior(), X)
    assert not any(tensor.requires_grad for tensor in known.points)


def test_the_exact_gp_has_nothing_to_remember():
    X = points(10, seed=0) / 3
    exact = SparseSingleTaskGP(X, X.sum(-1, keepdim=True)).eval()
    before = exact.posterior(X[:3]).mean
    assert exact.remember(X[:2]) is exact
    assert torch.equal(exact.posterior(X[:3]).mean, before)


def test_not_where_it_would_be_wrong():
    """Caches keep their form and no graph."""
    known = points(5, seed=1)
    single = sparse_model(1).to(torch.float32)
    with settings.propagate_grads(True), torch.inference_mode():
        single.remember(known.float())
    assert not single.nystrom_posterior().weights.requires_grad
    X = torch.cat([known, points(1, seed=2)]).float().requires_grad_()
    with embedded_rows() as rows:
        single.posterior(X).variance.sum().backward()
    assert rows == [1]
    assert X.grad.isfinite().all()


def test_new_data_are_not_what_was_known():
    model, known = sparse_model(1), points(5, seed=1)
    model.remember(known)
    model.set_train_data(*(t + 0.1 for t in (points(40, seed=4), model.train_targets)))
    with embedded_rows() as rows:
        model.posterior(torch.cat([known, known[:1]]))
    assert rows[-1] == 6


def test_who_knows_the_split_passes_it(double):
    """In any batch the values are those of the posterior."""
    X = points(12, seed=0).to(**double)
    kernel = RBFKernel(batch_shape=torch.Size([2, 1])).to(**double)
    noise = torch.full((12,), 0.1, **double)
    data = (t.expand(2, 1, *t.shape) for t in (X, X[:, 0].sin(), noise, X[:5]))
    posterior = NystromPosterior.from_data(kernel, *data)
    known = KnownFeatures.of(posterior, X[:4])
    Z = torch.cat([X[:4].expand(3, 4, 2), X[4:10].reshape(3, 2, 2)], dim=-2)
    embedded = known.embed(posterior, Z)
    assert embedded is not None and torch.equal(embedded.X, Z)
    _, phi, w = embedded
    assert phi.shape == w.shape == (2, 3, 6, 5)
    torch.testing.assert_close(phi, posterior.features(Z))
    torch.testing.assert_close(w, posterior.whiten(posterior.features(Z)))


@needs_simulation
def test_a_device_is_waited_for_once():
    """To recognise what is remembered, beside what any prediction costs."""
    with simulated_device.accelerator() as traffic:
        model, known = sparse_model(1).to(simulated_device.DEVICE), points(5, seed=1)
        known = known.to(simulated_device.DEVICE)
        X, waits = torch.cat([known, known[:1] + 0.1]), []
        for _ in range(2):
            model.posterior(X)
            traffic.clear()
            model.posterior(X)
            waits.append(traffic.our_waits)
            model.remember(known)
    assert waits[1] == waits[0] + 1
