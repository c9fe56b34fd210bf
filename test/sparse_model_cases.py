"""Data, models and dense closed forms shared by the tests of the sparse model.

Everything dense here solves with `K_SS` and `n x n` matrices as the formulas read, over
any leading batch dimensions, and takes nothing from the package but the model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize, Warp
from botorch.models.transforms.input import ChainedInputTransform
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.posteriors import NystromPosterior

FAST = {"options": {"maxiter": 15}}
BATCHES = [(), (2,), (2, 3)]
# 500 times `rounding` of the worst of `make_model` and of its transformed data.
CLOSE = {"rtol": 1e-7, "atol": 1e-7}


def make_data(
    n: int = 40, d: int = 2, repeats: int = 12, **tkwargs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs in [0, 2]^d with repeated rows, observations, and noise variances."""
    generator = torch.Generator().manual_seed(n + d)
    X = 2 * torch.rand(n, d, generator=generator, dtype=torch.float64)
    X[n - repeats :] = X[:repeats]
    Y = (2 * X).sin().sum(-1, keepdim=True)
    Y = Y + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    Yvar = 0.02 + 0.1 * torch.rand(n, 1, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs), Yvar.to(**tkwargs)


def sine_data(
    n: int = 20, d: int = 2, batch: tuple[int, ...] = ()
) -> tuple[Tensor, Tensor]:
    """Inputs in the unit cube and a sine of their sum."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(*batch, n, d, dtype=torch.double, generator=generator)
    return X, (3 * X.sum(-1, keepdim=True)).sin()


def make_transform(
    name: str | None, double: dict[str, Any], bounds: Tensor | None = None
) -> Any:
    """An input transform by name; the bounds are learned where none are given."""
    if name is None:
        return None
    normalize = Normalize(2, bounds=bounds)
    if name == "normalize":
        return normalize
    priors = {f"concentration{i}_prior": LogNormalPrior(0.0, 0.5) for i in (0, 1)}
    warp = Warp(d=2, indices=[0, 1], **priors)
    warp._set_concentration(0, torch.tensor([1.4, 0.8]))
    return ChainedInputTransform(normalize=normalize, warp=warp).to(**double)


def make_mll(model: SingleTaskGP) -> ExactMarginalLogLikelihood:
    return ExactMarginalLogLikelihood(model.likelihood, model)


def random_data(
    batch: tuple[int, ...], num_outputs: int, n: int = 14, seed: int = 0, **tkwargs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs in [0, 1]^2, and observations and noise variances of several outputs."""
    generator = torch.Generator().manual_seed(seed + 7 * n + num_outputs)
    shape = {"generator": generator, "dtype": torch.float64}
    X = torch.rand(*batch, n, 2, **shape)
    Y = (3 * X).sin().sum(-1, keepdim=True) + torch.arange(float(num_outputs))
    Y = Y + 0.1 * torch.randn(*batch, n, num_outputs, **shape)
    Yvar = 0.01 + 0.05 * torch.rand(*batch, n, num_outputs, **shape)
    return X.to(**tkwargs), Y.to(**tkwargs), Yvar.to(**tkwargs)


def make_model(
    batch: tuple[int, ...] = (),
    num_outputs: int = 1,
    fixed_noise: bool = False,
    standardize: bool = True,
    transform: str | None = None,
    n: int = 14,
    m: int = 6,
    repeats: int = 0,
    options: dict[str, Any] | None = None,
    **tkwargs: Any,
) -> SparseSingleTaskGP:
    """A sparse model with `m` given inducing points and different lengthscales."""
    X, Y, Yvar = random_data(batch, num_outputs, n, **tkwargs)
    X[..., n - repeats :, :] = X[..., :repeats, :]
    S = random_data(batch, num_outputs, m, seed=5, **tkwargs)[0]
    bounds = torch.tensor([[0.0, 0.0], [2.0, 2.0]], **tkwargs)
    octf = Standardize(num_outputs, batch_shape=torch.Size(batch))
    model = SparseSingleTaskGP(
        X,
        Y,
        Yvar if fixed_noise else None,
        outcome_transform=octf if standardize else None,
        input_transform=make_transform(transform, tkwargs, bounds),
        **{"inducing_points": S} | (options or {}),
    )
    kernel = getattr(model.covar_module, "base_kernel", model.covar_module)
    lengthscale = kernel.lengthscale
    steps = torch.linspace(0.2, 0.5, lengthscale.numel(), **tkwargs)
    kernel.lengthscale = steps.view_as(lengthscale)
    return model.eval()


def rounding(model: SparseSingleTaskGP) -> float:
    """What a solve with `K_SS` makes of one rounding: its condition number times it."""
    S = as_seen(model, model.inducing_points)
    K_SS = model.covar_module(S).to_dense().detach()
    return torch.linalg.cond(K_SS).max().item() * torch.finfo(K_SS.dtype).eps


class Observed(NamedTuple):
    """Data in the transformed spaces, outputs as the last batch dimension."""

    X: Tensor
    y: Tensor
    d: Tensor

    def __add__(self, other: "Observed") -> "Observed":  # type: ignore[override]
        batch = torch.broadcast_shapes(self.y.shape[:-1], other.y.shape[:-1])
        pairs = zip(self, other, (2, 1, 1), strict=True)
        joined = [
            torch.cat([t.expand(*batch, *t.shape[-k:]) for t in (a, b)], dim=-k)
            for a, b, k in pairs
        ]
        return Observed(*joined)


def observed(model: SparseSingleTaskGP) -> Observed:
    """The training data of a model in eval mode."""
    y = model.train_targets
    return Observed(model.train_inputs[0], y, model.likelihood.noise.expand_as(y))


def transformed(
    model: SparseSingleTaskGP, X: Tensor, Y: Tensor, noise: Tensor | None = None
) -> Observed:
    """New data as the model sees them; `noise` is that of the transformed outcomes."""
    if hasattr(model, "outcome_transform"):
        Y = model.outcome_transform(Y, X=X)[0]
    X = as_seen(model, X)
    y = Y.mT if model.num_outputs > 1 else Y.squeeze(-1)
    if noise is None:
        d = model.likelihood.noise.expand(*model._aug_batch_shape, y.shape[-1])
    else:
        d = noise.mT if model.num_outputs > 1 else noise.squeeze(-1)
    return Observed(X, y, d)


def as_seen(model: SparseSingleTaskGP, X: Tensor) -> Tensor:
    """Points as the kernel sees them: transformed, with a dimension for outputs."""
    X = model.transform_inputs(X)
    return X.unsqueeze(-3) if model.num_outputs > 1 else X


def dtc(model: SparseSingleTaskGP, data: Observed, T: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and joint covariance at `T`, by solves with `K_SS` and the precision."""

    def k(A: Tensor, B: Tensor) -> Tensor:
        return model.covar_module(A, B).to_dense()

    X, y, d = data
    S = as_seen(model, model.inducing_points)
    weighted = k(S, X) / d.unsqueeze(-2)
    A = k(S, S) + weighted @ k(X, S)
    error = (y - model.mean_module(X)).unsqueeze(-1)
    mean = k(T, S) @ torch.linalg.solve(A, weighted @ error)
    residual = k(T, T) - k(T, S) @ torch.linalg.solve(k(S, S), k(S, T))
    covariance = residual + k(T, S) @ torch.linalg.solve(A, k(S, T))
    return model.mean_module(T) + mean.squeeze(-1), covariance


def dense_prior(model: SparseSingleTaskGP) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and covariance `Q` of a model in train mode, and the diagonal of `K - Q`."""

    def k(A: Tensor, B: Tensor) -> Tensor:
        return model.covar_module(A, B).to_dense()

    X = model.transform_inputs(model.train_inputs[0])
    transform = getattr(model, "input_transform", torch.nn.Identity())
    transform.eval()  # what it has learned is of the data, not of inducing points
    S = as_seen(model, model.inducing_points)
    transform.train(model.training)
    Q = k(X, S) @ torch.linalg.solve(k(S, S), k(S, X))
    return model.mean_module(X), Q, (k(X, X) - Q).diagonal(dim1=-1, dim2=-2)


def dense_objective(model: SparseSingleTaskGP) -> Tensor:
    """What the likelihood of a model in train mode should say of its targets."""
    mean, Q, residual = dense_prior(model)
    d = model.likelihood.noise.expand_as(model.train_targets)
    gaussian = torch.distributions.MultivariateNormal(mean, Q + d.diag_embed())
    value = gaussian.log_prob(model.train_targets)
    return value - (model.objective == "elbo") * 0.5 * (residual / d).sum(-1)


def check(
    model: SparseSingleTaskGP, parent: SparseSingleTaskGP, data: Observed
) -> None:
    """The posterior of `model` is the closed form of `data` under its parent."""
    X = random_data(tuple(parent.batch_shape), 1, n=4, seed=9)[0].to(data.X)
    mean, covariance = dtc(parent, data, as_seen(parent, X))
    ours = model(as_seen(model, X))
    close = torch.testing.assert_close
    close(ours.mean, mean, **CLOSE)
    close(ours.covariance_matrix, covariance.expand_as(ours.covariance_matrix), **CLOSE)
    shape = (*model.batch_shape, 4, parent.num_outputs)
    assert model.posterior(X).mean.shape == shape


@contextmanager
def embedded_rows() -> Iterator[list[int]]:
    """How many rows each call embeds."""
    sizes: list[int] = []
    plain = NystromPosterior.features

    def counted(self: NystromPosterior, X: Tensor) -> Tensor:
        sizes.append(X.shape[-2])
        return plain(self, X)

    with mock.patch.object(NystromPosterior, "features", counted):
        yield sizes
