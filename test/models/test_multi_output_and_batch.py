"""Several outputs and batches of training data, against dense closed forms."""

import itertools
from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.kernels import RBFKernel
from sparse_model_cases import (
    BATCHES,
    CLOSE,
    as_seen,
    dense_objective,
    dtc,
    make_mll,
    make_model,
    observed,
    random_data,
)
from torch import Tensor

from botorch_sparse.inducing import PosteriorVarianceSampler, RecursiveRLSSampler
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.inducing_points import sample_shared_points

close = torch.testing.assert_close


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("fixed_noise", [False, True])
@pytest.mark.parametrize("transform", [None, "normalize", "warp"])
def test_posterior_is_the_closed_form(
    batch, num_outputs, fixed_noise, transform, double
):
    """Means and joint covariances, with and without noise."""
    transforms = transform is not None
    model = make_model(batch, num_outputs, fixed_noise, transforms, transform, **double)
    X = random_data((5, *batch), 1, n=4, seed=2, **double)[0]
    mean, covariance = dtc(model, observed(model), as_seen(model, X))
    latent = model(as_seen(model, X))
    close(latent.mean, mean, **CLOSE)
    close(latent.covariance_matrix, covariance, **CLOSE)

    posterior = model.posterior(X)
    noisy = model.posterior(X, observation_noise=True)
    scale = model.outcome_transform.stdvs if transforms else 1.0
    shift = model.outcome_transform.means if transforms else 0.0
    d = model.likelihood.noise.mean(-1, keepdim=True)
    mean = mean.mT if num_outputs > 1 else mean.unsqueeze(-1)
    variance = covariance.diagonal(dim1=-1, dim2=-2)
    variance, d = (t.mT if num_outputs > 1 else t.unsqueeze(-1) for t in (variance, d))
    close(posterior.mean, shift + scale * mean, **CLOSE)
    close(posterior.variance, scale**2 * variance * torch.ones_like(mean), **CLOSE)
    close(noisy.variance, scale**2 * (variance + d), **CLOSE)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("objective", ["elbo", "dtc"])
@pytest.mark.parametrize(
    ("transform", "fixed_noise", "repeats"),
    [(None, False, 0), ("normalize", True, 4), ("warp", False, 4), ("warp", True, 0)],
)
def test_objective_and_gradients(
    batch, num_outputs, objective, transform, fixed_noise, repeats, double
):
    options = {"repeats": repeats, "options": {"objective": objective}}
    args = batch, num_outputs, fixed_noise, True, transform
    model = make_model(*args, **options, **double).train()
    prior = model(*model.train_inputs)
    ours = model.likelihood(prior).log_prob(model.train_targets)
    expected = dense_objective(model)
    close(ours, expected, **CLOSE)
    parameters = list(model.parameters())
    close(
        torch.autograd.grad(ours.sum(), parameters),
        torch.autograd.grad(expected.sum(), parameters),
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("batch", "num_outputs"), [((), 2), ((2,), 1), ((2,), 2)])
def test_fit_is_one_for_each_output(batch, num_outputs, double):
    """The fit of all outputs together is that of each, as a model of its own."""
    model = make_model(batch, num_outputs, n=20, **double).train()
    start = model.state_dict()
    X, Y, _ = random_data(batch, num_outputs, n=20, **double)
    many = {"options": {"maxiter": 200}}
    fit_gpytorch_mll(make_mll(model), optimizer_kwargs=many)
    mean = model.posterior(X).mean
    for index in itertools.product(*map(range, batch), range(num_outputs)):
        element, t = index[:-1], index[-1]
        S = model.inducing_points[element]
        single = SparseSingleTaskGP(X[element], Y[element][:, [t]], inducing_points=S)
        key = index if num_outputs > 1 else element
        alone = {
            name: start[name][key].reshape(value.shape)
            for name, value in single.named_parameters()
        }
        single.load_state_dict(alone, strict=False)
        fit_gpytorch_mll(make_mll(single), optimizer_kwargs=many)
        own = single.posterior(X[element]).mean[:, 0]
        close(own, mean[element][:, t], rtol=0.0, atol=2e-2)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize(
    "sampler", [RecursiveRLSSampler(0.05), PosteriorVarianceSampler()]
)
def test_outputs_share_sampled_points(batch, num_outputs, sampler, double):
    """As many different training points in every element of a batch."""
    X, Y, _ = random_data(batch, num_outputs, n=80, **double)
    model = SparseSingleTaskGP(X, Y, inducing_sampler=sampler)
    points = model.inducing_points
    m = points.shape[-2]
    assert points.shape == (*batch, m, 2) and 1 < m < 80
    for element in itertools.product(*map(range, batch)):
        distances = torch.cdist(points[element], X[element])
        nearest = distances.min(dim=-1)
        assert nearest.values.max() < 1e-6
        assert len(nearest.indices.unique()) == m
    mean, covariance = dtc(model.eval(), observed(model), as_seen(model, X[..., :3, :]))
    posterior = model(as_seen(model, X[..., :3, :]))
    close(posterior.mean, mean, rtol=1e-5, atol=1e-5)
    close(posterior.covariance_matrix, covariance, rtol=1e-5, atol=1e-5)


def test_shared_points_are_the_union_of_the_outputs(double):
    """p = max over the outputs: a point stays where any output alone would draw it."""
    X, Y, _ = random_data((), 2, n=60, **double)
    model = SparseSingleTaskGP(X, Y, inducing_sampler=RecursiveRLSSampler(0.05))
    model.covar_module.lengthscale = torch.tensor([0.1, 2.0], **double).view(2, 1, 1)
    joint = model.num_inducing
    alone = []
    for t in range(2):
        single = SparseSingleTaskGP(
            X, Y[:, [t]], inducing_sampler=RecursiveRLSSampler(0.05)
        )
        single.covar_module.lengthscale = model.covar_module.lengthscale[t]
        alone.append(single.num_inducing)
    assert alone[1] < alone[0] <= joint + 10
    assert joint > alone[1]


def test_cap_holds_for_every_element(double):
    X, Y, _ = random_data((3,), 2, n=60, **double)
    sampler = RecursiveRLSSampler(0.5)
    model = SparseSingleTaskGP(X, Y, inducing_sampler=sampler, max_inducing_points=7)
    model.resparsify()
    assert model.inducing_points.shape == (3, 7, 2)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("fixed_noise", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_subset_output(batch, fixed_noise, normalize, double):
    model = make_model(
        batch, 3, fixed_noise, transform="normalize" if normalize else None, **double
    )
    X = random_data(batch, 1, n=4, seed=2, **double)[0]
    full = model.posterior(X)
    for outputs in ([1], [2, 0]):
        subset = model.subset_output(outputs)
        assert torch.equal(subset.inducing_points, model.inducing_points)
        close(subset.posterior(X).mean, full.mean[..., outputs])
        close(subset.posterior(X).variance, full.variance[..., outputs])
        subset.train()
        subset.eval()
        close(subset.posterior(X).variance, full.variance[..., outputs])
    everything = model.subset_output([0, 1, 2])
    assert everything is not model
    close(everything.posterior(X).mean, full.mean)


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_batches_that_do_not_fit(num_outputs, double):
    model = make_model((2,), num_outputs, **double)
    for shape in ((4, 2), (1, 4, 2), (2, 4, 2), (5, 2, 4, 2), (5, 1, 4, 2)):
        mean = model.posterior(torch.rand(*shape, **double)).mean
        full = torch.broadcast_shapes(shape[:-2], (2,))
        assert mean.shape == (*full, 4, num_outputs)
    match = "broadcast" if num_outputs == 1 else "trailing batch"
    with pytest.raises(RuntimeError, match=match):
        model.posterior(torch.rand(3, 4, 2, **double))


def test_lazy_blocks_are_those_of_the_dense_matrix(double):
    model = make_model((2,), 2, standardize=False, n=300, **double)
    X = random_data((2,), 2, n=300, **double)[0]
    lazy = model.posterior(X).distribution.lazy_covariance_matrix
    for t in range(2):
        own = model.subset_output([t]).posterior(X).distribution.covariance_matrix
        rows = slice(300 * t, 300 * (t + 1))
        close(lazy.to_dense()[:, rows, rows], own)
        operator = model(as_seen(model, X)).lazy_covariance_matrix
        chosen = operator[:, t]
        close(chosen[..., -5:, :].to_dense(), own[..., -5:, :])
        close(chosen[..., -5:, -3:].to_dense(), own[..., -5:, -3:])
        close(chosen[1, :7, :7].to_dense(), own[1, :7, :7])


def test_elements_with_fewer_points_get_the_most_probable(double):
    """By the largest leverage score over the outputs, given what was drawn."""
    X = random_data((2,), 1, n=20, **double)[0].unsqueeze(1).expand(2, 2, 20, 2)
    kernel = RBFKernel(batch_shape=torch.Size([2, 2])).to(**double)
    kernel.lengthscale = torch.tensor([0.05, 1.0, 0.05, 1.0], **double).view(2, 2, 1, 1)
    noise = torch.full((2, 2, 20), 0.1, **double)
    noise[0, 0, 10:] = 5.0  # the first output hardly sees these
    draws = iter([[0, 1, 2], [0, 1, 2], list(range(7)), list(range(7))])

    def sampler(*args: Any, **kwargs: Any) -> Tensor:
        return torch.tensor(next(draws), device=X.device)

    index = sample_shared_points(
        sampler, kernel, X, noise, num_outputs=2, generator=torch.Generator()
    )
    K, S = kernel(X).to_dense()[0], slice(0, 3)
    scores = []
    for t in range(2):
        precision = K[t, S, S] + K[t, S] / noise[0, t] @ K[t, :, S]
        residual = K[t] - K[t, :, S] @ torch.linalg.solve(K[t, S, S], K[t, S])
        variance = residual + K[t, :, S] @ torch.linalg.solve(precision, K[t, S])
        scores.append(variance.diagonal() / noise[0, t])
    score = torch.stack(scores).amax(0)
    score[S] = -1.0
    expected = torch.cat([torch.arange(3).to(index), score.topk(4).indices])
    assert torch.equal(index[0], expected.sort().values)
    assert index[1].tolist() == list(range(7))
