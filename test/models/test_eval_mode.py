"""Gradients and caches of predictions; training data that are set in eval mode."""

import copy
from typing import Any

import gpytorch
import pytest
import torch
from botorch import settings
from botorch.exceptions import UnsupportedError
from botorch.models.transforms import Normalize, Round
from botorch.models.transforms.input import (
    ChainedInputTransform,
    InputPerturbation,
    InputStandardize,
)
from sparse_model_cases import (
    as_seen,
    dtc,
    make_data,
    make_mll,
    make_transform,
    observed,
)
from torch import Tensor

from botorch_sparse.inducing import RecursiveRLSSampler
from botorch_sparse.models import SparseSingleTaskGP

close = torch.testing.assert_close


def make(transform: Any = None, m: int = 15, **tkwargs: Any) -> SparseSingleTaskGP:
    """A model of 40 points with `m` given inducing points, in eval mode."""
    X, Y, _ = make_data(**tkwargs)
    model = SparseSingleTaskGP(X, Y, input_transform=transform, inducing_points=X[:m])
    return model.eval()


def make_sampled(transform: Any = None, **tkwargs: Any) -> SparseSingleTaskGP:
    """A model of 80 points that draws its inducing points."""
    X, Y, _ = make_data(n=80, **tkwargs)
    sampler = RecursiveRLSSampler(0.1)
    return SparseSingleTaskGP(X, Y, inducing_sampler=sampler, input_transform=transform)


class TestPosterior:
    """Gradients, caches and modes."""

    def test_gradcheck(self, double):
        model = make(Normalize(2), **double)
        model.covar_module.lengthscale = 0.3
        X = torch.rand(2, 3, 2, requires_grad=True, **double)

        def moments(X: Tensor) -> tuple[Tensor, Tensor]:
            posterior = model.posterior(X)
            return posterior.mean, posterior.distribution.covariance_matrix

        assert torch.autograd.gradcheck(moments, (X,))

    def test_propagate_grads(self, double):
        model, X = make(**double), torch.rand(3, 2, **double)
        parameters = [p for p in model.parameters() if p.requires_grad]
        with settings.propagate_grads(True):
            ours = model.posterior(X).mean.sum()
            direct = model(X).mean.sum()  # without the settings of `posterior`
        constant = model.mean_module.raw_constant
        by_constant = torch.autograd.grad(direct, constant, retain_graph=True)[0]
        assert by_constant.abs() < 2.9  # detached caches would give one per point
        mean, _ = dtc(model, observed(model), X)
        scale, shift = model.outcome_transform.stdvs, model.outcome_transform.means
        expected = (shift + scale * mean).sum()
        close(
            torch.autograd.grad(ours, parameters),
            torch.autograd.grad(expected, parameters),
            rtol=1e-6,
            atol=1e-8,
        )
        model.posterior(X)
        assert not model.nystrom_posterior().weights.requires_grad

    def test_prior_mode_and_no_data(self, double):
        model, X = make(**double), torch.rand(3, 2, **double)
        prior_variance = torch.ones(3, **double)
        with gpytorch.settings.prior_mode(True):
            close(model(X).variance, prior_variance)
        model.posterior(X)
        model.train_inputs = model.train_targets = None
        close(model(X).variance, prior_variance)

    @pytest.mark.parametrize("transform", [None, "normalize"])
    def test_caches_are_dropped(self, transform, double):
        model = make(make_transform(transform, double), **double)
        state = copy.deepcopy(model.state_dict())
        X = torch.rand(3, 2, **double)
        before = model.posterior(X).mean
        model.covar_module.lengthscale = 0.2
        model.train()
        changed = model.posterior(X).mean
        assert not torch.allclose(before, changed)
        targets = model.train_targets + 1.0
        model.set_train_data(targets=targets, strict=False)
        assert not torch.allclose(changed, model.posterior(X).mean)
        model.set_train_data(targets=targets - 1.0, strict=False)
        model.load_state_dict(state)
        close(model.posterior(X).mean, before)

    def test_first_call_in_inference_mode(self, double):
        model, X = make_sampled(**double), torch.rand(3, 2, **double)
        with torch.inference_mode():
            model.posterior(X)
        X.requires_grad_()
        model.posterior(X).mean.sum().backward()
        assert X.grad is not None
        model.train()
        make_mll(model)(model(*model.train_inputs), model.train_targets).backward()


class TestNewInputs:
    """In eval mode training inputs are set, and kept, as transformed ones."""

    def test_draw_new_inducing_points(self, double):
        model = make_sampled(**double)
        first = model.inducing_points
        model.train().eval()
        assert torch.equal(first, model.inducing_points)
        X, Y, _ = make_data(n=50, **double)
        model.set_train_data(X + 1.0, Y[:, 0], strict=False)
        assert model.inducing_points.min() >= 1.0

    @pytest.mark.parametrize("transform", ["normalize", "warp"])
    @pytest.mark.parametrize("n", [30, 40, 60])
    def test_are_transformed_ones(self, transform, n, double):
        model = make(make_transform(transform, double), m=9, **double)
        low, high = make_data(**double)[0].aminmax(dim=0)
        X, Y, _ = make_data(n=n, repeats=0, **double)
        X = low + (high - low) * (0.01 + 0.49 * X.flip(0))  # in the warp's range
        model.posterior(X[:2])
        model.set_train_data(model.transform_inputs(X), Y.squeeze(-1), strict=False)
        close(model.train_targets, Y.squeeze(-1))
        mean, covariance = dtc(model, observed(model), as_seen(model, X[:5]))
        latent = model(as_seen(model, X[:5]))
        close(latent.mean, mean, rtol=1e-7, atol=1e-7)
        close(latent.covariance_matrix, covariance, rtol=1e-7, atol=1e-7)
        close(model.train().train_inputs[0], X)

    def test_of_transforms_that_cannot_be_undone(self, double):
        X, Y, _ = make_data(repeats=0, **double)
        model = make(Round(integer_indices=[0, 1]), **double)
        model.set_train_data((9 * X).round(), Y.squeeze(-1), strict=False)
        assert model.posterior(X[:2]).mean.isfinite().all()
        before = model.train_inputs[0]
        model.set_train_data(before, Y.squeeze(-1) + 1.0)
        assert model.train_inputs[0] is before
        with pytest.raises(UnsupportedError, match=r"Call model\.train\(\)"):
            model.set_train_data(X + 0.3, Y.squeeze(-1), strict=False)
        assert model.train_inputs[0] is before

    @pytest.mark.parametrize(
        "low, high", [(0.0, 1.0), (100.0, 101.0), (2000.0, 2020.0)]
    )
    @pytest.mark.parametrize("transform", [InputStandardize, Normalize])
    def test_of_any_scale(self, transform, low, high, tkwargs):
        X, Y, _ = make_data(repeats=0, **tkwargs)
        X = low + (high - low) / 2 * X
        model = SparseSingleTaskGP(
            X, Y, input_transform=transform(2), inducing_points=X[:9]
        ).eval()
        other = X.flip(0) * (1 - 1e-4)
        model.set_train_data(model.transform_inputs(other), model.train_targets)
        eps = torch.finfo(X.dtype).eps
        found = model.train().train_inputs[0]
        close(found, other, rtol=4 * eps, atol=4 * eps * high)

    def test_targets_alone_may_come_with_the_inputs_there_are(self, double):
        """Nothing is drawn again, and a conditioned exact model stays exact."""
        many = torch.rand(520, 2, **double)
        exact = SparseSingleTaskGP(many[:9], many[:9, :1], input_transform=Normalize(2))
        exact = exact.eval().condition_on_observations(many[9:], many[9:, :1])
        exact.set_train_data(exact.train_inputs, exact.train_targets + 1.0)
        assert exact.is_exact
        model = make_sampled(Normalize(2), **double).eval()
        default = model.inducing_points
        points = model.resparsify(torch.Generator().manual_seed(7)).inducing_points
        assert not torch.equal(points, default)
        model.set_train_data(model.train_inputs, model.train_targets + 1.0)
        assert torch.equal(model.inducing_points, points)

    @pytest.mark.parametrize("on_train", [False, True])
    def test_of_chains_with_parts_that_leave_training_inputs_alone(
        self, on_train, double
    ):
        chain = ChainedInputTransform(
            normalize=Normalize(2, transform_on_train=on_train),
            perturb=InputPerturbation(torch.zeros(1, 2, **double)),
        )
        model = make(chain, **double)
        Z = model.train_inputs[0].flip(0) * 0.9
        raw = chain["normalize"].untransform(Z) if on_train else Z
        model.set_train_data(Z, model.train_targets, strict=False)
        assert model.posterior(raw[:2]).mean.isfinite().all()
        close(model.train().train_inputs[0], raw)

    def test_of_one_dimension(self, double):
        X = torch.linspace(1, 3, 20, **double).unsqueeze(-1)
        model = SparseSingleTaskGP(
            X, X.sin(), input_transform=Normalize(1), inducing_points=X[::4]
        ).eval()
        model.set_train_data(0.9 * model.train_inputs[0].flatten(), strict=False)
        close(model.train().train_inputs[0], 1 + 0.9 * (X - 1))
