"""Cases of BoTorch's `test_model_list_gp_regression.py`, written anew for our models.

In lists the models may have different data, and each is a sparse or an exact one.
"""

from typing import Any

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.models.transforms.outcome import ChainedOutcomeTransform
from botorch.posteriors import GPyTorchPosterior, PosteriorList
from botorch.sampling import IIDNormalSampler, ListSampler
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.mlls import SumMarginalLogLikelihood
from torch import Size, Tensor

from botorch_sparse.models import SparseFantasyModel, SparseSingleTaskGP

close = torch.testing.assert_close
pytestmark = pytest.mark.filterwarnings("ignore")  # BoTorch's, of so few data

# As many inducing points as training points, or few.
SIZES = pytest.mark.parametrize("size", [None, 5], ids=["exact", "sparse"])
OUTCOMES = {
    "none": lambda: None,
    "standardize": lambda: Standardize(m=1),
    "log": Log,
    "chained": lambda: ChainedOutcomeTransform(log=Log(), scale=Standardize(m=1)),
}
LINEAR = ("none", "standardize")


def data(n: int, dtype: torch.dtype = torch.double) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, 1, dtype=torch.double, generator=generator)
    return X.to(dtype), (6 * X).sin().exp().to(dtype)


def model(
    n: int,
    size: int | None,
    noise: float | None = None,
    outcome: str = "standardize",
    dtype: torch.dtype = torch.double,
    **options: Any,
) -> SparseSingleTaskGP:
    X, Y = data(n, dtype)
    return SparseSingleTaskGP(
        X,
        Y,
        None if noise is None else torch.full_like(Y, noise),
        outcome_transform=OUTCOMES[outcome](),
        max_inducing_points=size,
        **options,
    )


def pair(size: int | None, noise: float | None = None, **options: Any) -> ModelListGP:
    """Two models of 10 and 11 observations."""
    twice = None if noise is None else 2 * noise
    return ModelListGP(
        model(10, size, noise, **options), model(11, size, twice, **options)
    )


def samplers() -> ListSampler:
    return ListSampler(*(IIDNormalSampler(Size([4]), seed=seed) for seed in (0, 1)))


@pytest.mark.one_in(5)
@SIZES
@pytest.mark.parametrize("sequential", [True, False])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_fit_and_the_posterior(outcome, sequential, size):
    """`test_ModelListGP`: that of each model."""
    models = pair(size, outcome=outcome)
    before = [m.covar_module.raw_lengthscale.detach().clone() for m in models.models]
    mll = SumMarginalLogLikelihood(models.likelihood, models)
    options = {"options": {"maxiter": 2}}
    fit_gpytorch_mll(mll, sequential=sequential, optimizer_kwargs=options)
    assert not any(m.training for m in models.models)
    for m, value in zip(models.models, before, strict=True):
        assert not m.covar_module.raw_lengthscale.equal(value)
    X = data(3)[0]
    posterior, parts = models.posterior(X), [m.posterior(X) for m in models.models]
    close(posterior.mean, torch.cat([p.mean for p in parts], -1))
    close(posterior.variance, torch.cat([p.variance for p in parts], -1))
    is_joint = outcome in LINEAR
    assert isinstance(posterior, GPyTorchPosterior if is_joint else PosteriorList)
    if is_joint:
        assert isinstance(posterior.distribution, MultitaskMultivariateNormal)
        weights = torch.tensor([1.0, 2.0], dtype=X.dtype)
        scalar = ScalarizedPosteriorTransform(weights)
        total = models.posterior(X, posterior_transform=scalar)
        close(total.mean, posterior.mean @ weights.unsqueeze(-1))
    close(models.posterior(X, output_indices=[1]).mean, parts[1].mean)
    noisy = models.posterior(X, output_indices=[1], observation_noise=True)
    assert (noisy.variance > parts[1].variance).all()


@SIZES
@pytest.mark.parametrize("noise", [None, 0.1])
def test_outputs_and_observation_noise(noise, size):
    """`test_ModelListGP`: some of the models, with noise of any kind."""
    models = pair(size, noise, outcome="none").eval()
    X = data(3)[0]
    given = torch.tensor([0.1, 0.2], dtype=X.dtype).expand(3, 2)
    latent = models.posterior(X).variance
    close(models.posterior(X, observation_noise=given).variance, latent + given)
    own = torch.stack([m.likelihood.noise.mean() for m in models.models])
    close(models.posterior(X, observation_noise=True).variance, latent + own)
    alone, member = models.subset_output([1]), models.models[1]
    assert isinstance(alone, SparseSingleTaskGP)
    state = member.state_dict()
    assert alone.state_dict().keys() == state.keys()
    assert all(value.equal(state[name]) for name, value in alone.state_dict().items())
    close(alone.posterior(X).variance, latent[:, [1]])


@SIZES
@pytest.mark.parametrize("noise", [None, 0.1])
@pytest.mark.parametrize("dtype", [torch.float, torch.double])
@pytest.mark.parametrize(
    ("batch_X", "batch_Y"), [((), ()), ((3,), (3,)), ((), (3,))], ids=str
)
def test_conditioning(batch_X, batch_Y, dtype, noise, size):
    """`test_ModelListGP`: the list conditions each of its models."""
    models = pair(size, noise, dtype=dtype).eval()
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(*batch_X, 2, 1, dtype=dtype, generator=generator)
    Y = torch.rand(*batch_Y, 2, 2, dtype=dtype, generator=generator)
    given = {} if noise is None else {"noise": torch.full((2, 2), 0.3, dtype=dtype)}
    Z = data(3, dtype)[0]
    models.posterior(Z)
    posterior = models.condition_on_observations([X, X], Y, **given).posterior(Z)
    for t, m in enumerate(models.models):
        # A list is told noise before the outcome transform, a model after it.
        scale = m.outcome_transform.stdvs.square()
        own = {name: value[..., [t]] / scale for name, value in given.items()}
        alone = m.condition_on_observations(X, Y[..., [t]], **own).posterior(Z)
        shape = (*(batch_Y or (1,)), 3, 1)  # the transform gives one model a batch
        for moment in ("mean", "variance"):
            found = getattr(posterior, moment)[..., [t]]
            close(found.expand(shape), getattr(alone, moment).expand(shape))


@SIZES
@pytest.mark.parametrize("noise", [None, 0.1])
@pytest.mark.parametrize("is_decoupled", [False, True])
def test_fantasies(is_decoupled, noise, size):
    """`test_fantasize`: those of each model, where only some are observed too.

    BoTorch asks for a `SingleTaskGP`, which a `SparseFantasyModel` is not.
    """
    models = pair(size, noise, input_transform=Normalize(d=1)).eval()
    X, Z = data(3)[0], data(4)[0]
    observed = torch.tensor([[1, 0], [0, 1], [1, 0]], dtype=torch.bool)
    mask = observed if is_decoupled else torch.ones_like(observed)
    given = torch.tensor([0.3, 0.4], dtype=X.dtype).expand(3, 2)
    for d in (None, given) if noise is not None else (None,):
        options = {} if d is None else {"observation_noise": d}
        fantasies = models.fantasize(
            X, samplers(), evaluation_mask=mask if is_decoupled else None, **options
        )
        posterior = fantasies.posterior(Z)
        for t, m in enumerate(models.models):
            rows = mask[:, t]
            own = {} if d is None else {"observation_noise": d[rows, t : t + 1]}
            sampler = samplers().samplers[t]
            alone = m.fantasize(X[rows], sampler, **own)
            close(posterior.mean[..., [t]], alone.posterior(Z).mean)
            close(posterior.variance[..., [t]], alone.posterior(Z).variance)
            member = fantasies.models[t]
            kind = SparseSingleTaskGP if size is None else SparseFantasyModel
            assert isinstance(member, kind)
            total = 10 + t + int(rows.sum())
            assert member.train_inputs[0].shape == (4, total, 1)
            assert member.train_targets.shape == (4, total)
            is_fixed = isinstance(member.likelihood, FixedNoiseGaussianLikelihood)
            assert is_fixed is (noise is not None)
            if d is not None:
                new = member.likelihood.noise[..., -int(rows.sum()) :]
                close(new, d[rows, t].expand_as(new))


@SIZES
def test_fantasies_and_outcome_transforms(size):
    """`test_fantasize_with_outcome_transform`: as of outcomes transformed by hand."""
    X = torch.linspace(0, 1, 20, dtype=torch.double).unsqueeze(-1)
    options: dict[str, Any] = {"max_inducing_points": size}
    native, by_hand, scales = [], [], []
    for slope in (10, 20):
        transform = Standardize(m=1)
        Y, _ = transform(slope * X)
        scales.append(transform.eval())
        native.append(SparseSingleTaskGP(X, slope * X, **options))
        by_hand.append(SparseSingleTaskGP(X, Y, outcome_transform=None, **options))
    target = torch.tensor([[0.5]], dtype=torch.double)
    for mask in (None, torch.tensor([[False, True]])):
        means = [
            ModelListGP(*models)
            .fantasize(target, samplers(), evaluation_mask=mask)
            .posterior(target)
            .mean
            for models in (native, by_hand)
        ]
        for t, scale in enumerate(scales):
            close(means[0][..., [t]], scale.untransform(means[1][..., [t]])[0])
        # The data are a line through (0.5, 5) and (0.5, 10): a fantasy moves the mean
        # by no more than the posterior's deviation there.
        close(means[0].mean(0), means[0].new_tensor([[5.0, 10.0]]), rtol=0.1, atol=0)


@SIZES
def test_models_of_different_kinds_and_shapes(size):
    """`test_with_different_batch_shapes`: beside a `SingleTaskGP`, and a batch."""
    X, Y = data(12)
    batch = SparseSingleTaskGP(
        torch.stack([X, 0.9 * X, X / 2]),
        torch.stack([Y, Y, Y]),
        max_inducing_points=size,
    )
    mixed = ModelListGP(batch, SingleTaskGP(X, Y), model(10, size)).eval()
    with pytest.warns(UserWarning, match="Component models of"):
        assert mixed.batch_shape == Size([3])
    for shape in ((2, 1), (5, 1, 2, 1)):
        Z = torch.rand(shape, dtype=X.dtype)
        posterior = mixed.posterior(Z)
        expected = torch.broadcast_shapes(shape[:-2], (3,))
        assert posterior.batch_shape == expected
        assert posterior.rsample(Size([2])).shape == (2, *expected, 2, 3)
        close(posterior.mean[..., [0]], batch.posterior(Z).mean)
    both = SparseSingleTaskGP(X, torch.cat([Y, Y.cos()], -1), max_inducing_points=size)
    wide = ModelListGP(both, model(10, size)).eval()
    Z = data(3)[0]
    parts = [m.posterior(Z) for m in wide.models]
    close(wide.posterior(Z).mean, torch.cat([p.mean for p in parts], -1))
    close(wide.subset_output([1, 2]).posterior(Z).mean, wide.posterior(Z).mean[:, 1:])
