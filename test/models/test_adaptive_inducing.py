"""Inducing points, fits and copies of SparseSingleTaskGP."""

import copy
import pickle
from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.utils.datasets import SupervisedDataset
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.inducing import PosteriorVarianceSampler, RecursiveRLSSampler
from botorch_sparse.models import SparseSingleTaskGP

FAST = {"options": {"maxiter": 15}}


def make_data(
    n: int = 40, d: int = 2, repeats: int = 12, **tkwargs: Any
) -> tuple[Tensor, Tensor]:
    """Inputs in [0, 2]^d with repeated rows and observations."""
    generator = torch.Generator().manual_seed(n + d)
    X = 2 * torch.rand(n, d, generator=generator, dtype=torch.float64)
    X[n - repeats :] = X[:repeats]
    Y = (2 * X).sin().sum(-1, keepdim=True)
    Y = Y + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


def make_mll(model: SingleTaskGP) -> ExactMarginalLogLikelihood:
    return ExactMarginalLogLikelihood(model.likelihood, model)


class TestInducingPoints:
    """How inducing points are drawn, kept and moved."""

    def test_default_is_deterministic(self, double: dict[str, Any]) -> None:
        X, Y = make_data(n=900, **double)
        model, other = SparseSingleTaskGP(X, Y), SparseSingleTaskGP(X, Y)
        assert torch.equal(model.inducing_points, other.inducing_points)
        assert model.num_inducing < len(X)
        again = model.resparsify(torch.Generator().manual_seed(7)).inducing_points
        assert again.shape != other.inducing_points.shape or not torch.equal(
            again, other.inducing_points
        )

    def test_looking_keeps_nothing(
        self, double: dict[str, Any], recwarn: pytest.WarningsRecorder
    ) -> None:
        """Neither points, nor caches, nor a notice; a call of the model does."""
        X, Y = make_data(n=60, **double)
        num_calls = 0

        def sampler(k: Any, X: Tensor, noise: Tensor, **_: Any) -> Tensor:
            nonlocal num_calls
            num_calls += 1
            return torch.arange(3 + num_calls, device=X.device)

        sampler.uses_variance = False  # type: ignore[attr-defined]
        model = SparseSingleTaskGP(X, Y, inducing_sampler=sampler)
        assert [model.num_inducing for _ in range(3)] == [4, 5, 6]
        assert not model.is_exact and num_calls == 4
        model.posterior(X[:2])
        assert num_calls == 5
        assert model.inducing_points.shape == (8, 2) and not model.is_exact
        model.train()
        assert model.num_inducing == 8 and num_calls == 5
        capped = SparseSingleTaskGP(X, Y, max_inducing_points=5)
        assert capped.num_inducing == 5
        learner = SparseSingleTaskGP(X, Y, input_transform=Normalize(2))
        before = learner.input_transform.coefficient.clone()
        assert learner.is_exact
        assert torch.equal(learner.input_transform.coefficient, before)
        assert not [w for w in recwarn if "cap of 5" in str(w.message)]

    def test_posterior_variance_sampler(self, double: dict[str, Any]) -> None:
        X, Y = make_data(n=100, **double)
        model = SparseSingleTaskGP(X, Y, inducing_sampler=PosteriorVarianceSampler(2.0))
        assert 1 <= model.num_inducing < 100
        seen: dict[str, Tensor] = {}

        def sampler(k: Any, X: Tensor, noise: Tensor, **kwargs: Any) -> Tensor:
            seen["variance"], seen["noise"] = kwargs["variance"], noise
            return torch.arange(5, device=X.device)

        model.eval()
        expected = model(X[:88]).variance  # the others repeat the first
        model.inducing_sampler = sampler
        assert model.resparsify() is model
        torch.testing.assert_close(seen["variance"], expected)
        counts = torch.tensor([2.0] * 12 + [1.0] * 76, **double)
        torch.testing.assert_close(
            seen["noise"] * counts, model.likelihood.noise.expand(88)
        )
        assert torch.equal(model.inducing_points, X[:5])
        # not from the caches of the previous inducing points
        assert model.nystrom_posterior().num_inducing <= 5

    def test_indices_are_those_of_training_rows(self, double: dict[str, Any]) -> None:
        X, Y = make_data(n=20, repeats=0, **double)
        model = SparseSingleTaskGP(
            X.repeat_interleave(2, dim=0),
            Y.repeat_interleave(2, dim=0),
            inducing_sampler=lambda k, X, noise, **_: torch.arange(4, 9),
        )
        assert torch.equal(model.inducing_points, X[4:9])

    def test_cap_of_a_custom_sampler(self, double: dict[str, Any]) -> None:
        X, Y = make_data(n=50, **double)
        model = SparseSingleTaskGP(
            X,
            Y,
            inducing_sampler=lambda k, X, noise, **_: torch.arange(len(X)),
            max_inducing_points=7,
        )
        with pytest.warns(BotorchWarning, match="residual trace"):
            model.resparsify()
        assert model.num_inducing == 7

    def test_cap_warns_once(
        self, double: dict[str, Any], recwarn: pytest.WarningsRecorder
    ) -> None:
        X, Y = make_data(n=50, **double)
        model = SparseSingleTaskGP(X, Y, max_inducing_points=5)
        model.posterior(X[:2])
        model.resparsify().posterior(X[:2])
        caps = [w for w in recwarn if "reached their cap" in str(w.message)]
        assert len(caps) == 1

    def test_given_points_win(self, double: dict[str, Any]) -> None:
        X, Y = make_data(n=30, **double)
        S = torch.rand(4, 2, **double)
        model = SparseSingleTaskGP(X, Y, inducing_points=S, max_inducing_points=2)
        assert torch.equal(copy.deepcopy(model).float().inducing_points, S.float())
        fit_gpytorch_mll(make_mll(model), optimizer_kwargs=FAST)
        assert torch.equal(model.resparsify().inducing_points, S)


class TestState:
    """Copies, pickles and state dicts."""

    def test_copies_keep_inducing_points(self, double: dict[str, Any]) -> None:
        X, Y = make_data(n=60, **double)
        model = SparseSingleTaskGP(
            X,
            Y,
            input_transform=Normalize(2),
            inducing_sampler=RecursiveRLSSampler(0.1),
        )
        model.resparsify(torch.Generator().manual_seed(5))
        expected = model.posterior(X[:4])
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(twin.inducing_points, model.inducing_points)
            torch.testing.assert_close(twin.posterior(X[:4]).mean, expected.mean)
            twin.train()
            torch.testing.assert_close(
                twin.posterior(X[:4]).variance, expected.variance
            )

    def test_state_dict_across_sizes(self, double: dict[str, Any]) -> None:
        X, Y = make_data(n=60, **double)
        full = SparseSingleTaskGP(X, Y, input_transform=Normalize(2))
        fit_gpytorch_mll(make_mll(full), optimizer_kwargs=FAST)
        fold = SparseSingleTaskGP(
            X[:40], Y[:40], input_transform=Normalize(2), inducing_points=X[:5]
        )
        fold.load_state_dict(full.state_dict())
        torch.testing.assert_close(
            fold.covar_module.lengthscale, full.covar_module.lengthscale
        )
        assert fold.posterior(X[:3]).mean.shape == (3, 1)
        assert set(full.state_dict()) == set(
            SingleTaskGP(X, Y, input_transform=Normalize(2)).state_dict()
        )

    def test_construct_inputs(self, double: dict[str, Any]) -> None:
        X, Y = make_data(**double)
        data = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])
        inputs = SparseSingleTaskGP.construct_inputs(
            data, max_inducing_points=6, objective="dtc", categorical_features=[]
        )
        model = SparseSingleTaskGP(**inputs)
        assert (model.objective, model.max_inducing_points) == ("dtc", 6)
