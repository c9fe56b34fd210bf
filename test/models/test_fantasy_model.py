"""What a fantasy model shares with its parent, and what it refuses."""

from itertools import count
from typing import Any

import gpytorch
import pytest
import torch
from botorch import settings
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Warp
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import MaternKernel
from sparse_model_cases import make_model, random_data
from torch import Tensor

from botorch_sparse.models import SparseFantasyModel, SparseSingleTaskGP, loo_cv
from botorch_sparse.models.inducing_points import EXACT_SIZE

close = torch.testing.assert_close


def fantasies(
    transform: Any = None, **double: Any
) -> tuple[SparseSingleTaskGP, SparseFantasyModel, Tensor]:
    """A model, three fantasies of it, and points to predict."""
    X, Y, _ = random_data((), 1, n=30, **double)
    model = SparseSingleTaskGP(
        X, Y, input_transform=transform, inducing_points=X[:6]
    ).eval()
    new, test_X = (random_data((), 1, n=n, seed=n, **double)[0] for n in (2, 4))
    sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
    return model, model.fantasize(new, sampler), test_X


def test_predicting_teaches_no_transform(double):
    """Whatever mode the parent is in, and whatever data it gets later."""
    model, fantasy, X = fantasies(Normalize(2), **double)
    expected = fantasy.posterior(X).mean, model.posterior(X).mean
    model.train()
    assert fantasy.posterior(0.3 * X).mean.shape == (3, 4, 1)
    close(fantasy.posterior(X).mean, expected[0])
    close(model.eval().posterior(X).mean, expected[1])
    raw = model.train().train_inputs[0]
    model.set_train_data(3 * raw, strict=False)
    model.posterior(X)
    close(fantasy.posterior(X).mean, expected[0])


def test_has_no_prior_and_no_left_out_data(double):
    _, fantasy, X = fantasies(**double)
    with pytest.raises(UnsupportedError, match="without a prior"):
        fantasy.forward(X)
    with (
        gpytorch.settings.prior_mode(True),
        pytest.raises(UnsupportedError, match="without a prior"),
    ):
        fantasy(X)
    with pytest.raises(UnsupportedError, match="cross-validate the model"):
        loo_cv(fantasy)


def test_stays_where_it_is(double):
    _, fantasy, X = fantasies(**double)
    assert fantasy.to(X) is fantasy
    with pytest.raises(UnsupportedError, match="stays in its dtype"):
        fantasy.float()
    assert fantasy.posterior(X).mean.dtype == torch.float64


def test_transformed_observations(double):
    """`get_fantasy_model` conditions on what the transforms made."""
    model, fantasy, X = fantasies(**double)
    Y = torch.ones(3, 4, **double)
    octf = model.outcome_transform
    raw = octf.untransform(Y.unsqueeze(-1))[0]
    expected = fantasy.condition_on_observations(X.expand(3, 4, 2), raw)
    actual = fantasy.get_fantasy_model(X.expand(3, 4, 2), Y)
    close(actual.posterior(X).mean, expected.posterior(X).mean)


class TestSomeOutputs:
    """`subset_output`, as BoTorch's models of several outputs have it."""

    @pytest.mark.parametrize("batch", [(), (2,)])
    @pytest.mark.parametrize("fixed_noise", [False, True])
    def test_they_predict_and_learn_as_they_did(self, batch, fixed_noise, double):
        """As the fantasies of all outputs, and as the fantasies of the model's part."""
        model = make_model(batch, 3, fixed_noise, transform="normalize", **double)
        news = [random_data((3, *batch), 3, n=2, seed=s, **double) for s in (3, 4)]
        X = random_data(batch, 1, n=4, seed=5, **double)[0]

        def learned(model: Any, new: tuple[Tensor, ...], idcs: list[int]) -> Any:
            Z, Y, noise = new[0], new[1][..., idcs], new[2][..., idcs]
            given = {"noise": noise} if fixed_noise else {}
            return model.condition_on_observations(Z, Y, **given)

        whole = learned(model, news[0], [0, 1, 2])
        for idcs in ([1], [2, 0]):
            part = whole.subset_output(idcs)
            own = learned(model.subset_output(idcs), news[0], idcs)
            assert type(part) is SparseFantasyModel and part.num_outputs == len(idcs)
            assert part.batch_shape == own.batch_shape
            assert torch.equal(part.train_inputs[0], own.train_inputs[0])
            assert torch.equal(part.train_targets, own.train_targets)
            both = (part, learned(part, news[1], idcs))
            others = (whole, learned(whole, news[1], [0, 1, 2]))
            alone = (own, learned(own, news[1], idcs))
            for trio in zip(both, others, alone, strict=True):
                for noisy in (False, True):
                    found, full, same = (
                        each.posterior(X, observation_noise=noisy) for each in trio
                    )
                    close(found.mean, full.mean[..., idcs])
                    close(found.variance, full.variance[..., idcs])
                    close(found.mean, same.mean)
                    close(found.variance, same.variance)
        everything = whole.subset_output([0, 1, 2])
        assert everything is not whole
        close(everything.posterior(X).mean, whole.posterior(X).mean)

    @pytest.mark.parametrize("idcs", [[0], [1], [1, 0]])
    @torch.no_grad()
    def test_they_are_those_of_the_exact_gp(self, idcs, double):
        """With all points as inducing points."""
        X, Y, _ = random_data((), 2, n=EXACT_SIZE + 2, **double)
        sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
        parts = []
        for kind, more in (
            (SingleTaskGP, {}),
            (SparseSingleTaskGP, {"inducing_points": X}),
        ):
            model = kind(X, Y, **more)
            model.covar_module.lengthscale = torch.tensor([[[0.2]], [[0.3]]], **double)
            model.likelihood.noise = torch.tensor([[0.1], [0.4]], **double)
            model.eval().posterior(X[:1])
            parts.append(model.fantasize(X[:2], sampler).subset_output(idcs))
        Z = random_data((), 1, n=4, seed=5, **double)[0]
        expected, found = (part.posterior(Z, observation_noise=True) for part in parts)
        assert isinstance(parts[1], SparseFantasyModel)
        close(found.mean, expected.mean)
        close(found.variance, expected.variance)

    @pytest.mark.parametrize("num_outputs", [1, 2])
    @pytest.mark.parametrize("idcs", [[], [2], [-1], [0, 0]])
    def test_outputs_that_there_are_not(self, num_outputs, idcs, double):
        model = make_model((), num_outputs, **double)
        X, Y, _ = random_data((3,), num_outputs, n=2, **double)
        fantasy = model.condition_on_observations(X, Y)
        match = f"different ones from 0 to {num_outputs - 1}"
        with pytest.raises(InputDataError, match=match):
            fantasy.subset_output(idcs)

    def test_a_kernel_that_was_given_cannot_be_divided(self, double):
        X, Y, _ = random_data((), 2, n=30, **double)
        kernel = MaternKernel(batch_shape=torch.Size([2])).to(**double)
        model = SparseSingleTaskGP(X, Y, covar_module=kernel, inducing_points=X[:6])
        new = X[:2].expand(3, 2, 2)
        fantasy = model.eval().condition_on_observations(new, Y[:2].expand(3, 2, 2))
        with pytest.raises(UnsupportedError, match="another kernel than the default"):
            fantasy.subset_output([1])
        assert fantasy.subset_output([0, 1]).num_outputs == 2


class TestPlainConditioning:
    """More data make a model of the same kind."""

    def test_learned_transforms(self, double):
        """Gradients of a warp's own parameters are none of the observations."""
        model, _, X = fantasies(Warp(d=2, indices=[0, 1]), **double)
        Y = torch.ones(4, 1, **double)
        assert type(model.condition_on_observations(X, Y)) is SparseSingleTaskGP

    def test_gradients_that_are_asked_for(self, double):
        """Of given noise, and of hyperparameters by either setting."""
        model = make_model(fixed_noise=True, **double)
        X, Y, Yvar = random_data((), 1, n=2, seed=3, **double)
        noise = Yvar.requires_grad_()
        mean = model.condition_on_observations(X, Y, noise=noise).posterior(X).mean
        assert torch.autograd.grad(mean.sum(), noise)[0].abs().min() > 0
        model = make_model(**double)
        slopes = []
        lengthscale = model.covar_module.raw_lengthscale
        for context in (
            settings.propagate_grads(True),
            gpytorch.settings.detach_test_caches(False),
        ):
            with context:
                mean = model.condition_on_observations(X, Y).posterior(X).mean
            slopes.append(torch.autograd.grad(mean.sum(), lengthscale)[0])
        close(*slopes)

    def test_given_noise_can_be_replaced(self, double):
        """As BoTorch does when a state is loaded or an output is chosen."""
        model = make_model((), 2, fixed_noise=True, **double)
        X, Y, Yvar = random_data((), 2, n=2, seed=3, **double)
        new = model.condition_on_observations(X, Y, noise=Yvar)
        expected = new.posterior(X)
        new.load_state_dict(new.state_dict())
        close(new.posterior(X).mean, expected.mean)
        part = new.subset_output([1])
        close(part.posterior(X).mean, expected.mean[..., 1:])

    @pytest.mark.parametrize("is_exact", [False, True])
    def test_points_outlast_other_hyperparameters(self, is_exact, double):
        """Until they are drawn again, for all data."""
        sizes = count(7)
        sampler = lambda k, X, noise, **_: torch.arange(next(sizes))  # noqa: E731
        X, Y, _ = random_data((), 1, n=EXACT_SIZE if is_exact else 60, **double)
        options = {} if is_exact else {"inducing_sampler": sampler}
        model = SparseSingleTaskGP(X, Y, **options).eval()
        new = model.condition_on_observations(X[:2] / 2, Y[:2])
        before = new.inducing_points
        new.load_state_dict(new.state_dict())
        assert new.is_exact == is_exact
        assert torch.equal(new.inducing_points, before)
        if not is_exact:
            assert new.resparsify().num_inducing > len(before)

    def test_replaced_targets_count(self, double):
        """Also where they are assigned, without `set_train_data`."""
        model, _, X = fantasies(**double)
        before = model.posterior(X).mean
        model.train_targets = model.train_targets + 1.0
        assert (model.posterior(X).mean - before).abs().max() > 0.1

    def test_in_inference_mode(self, double):
        """What comes of it can be trained."""
        model = make_model(**double)
        X, Y, _ = random_data((), 1, n=2, seed=3, **double)
        with torch.inference_mode():
            new = model.condition_on_observations(X, Y)
        assert not any(p.is_inference() for p in new.likelihood.parameters())
