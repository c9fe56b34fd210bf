"""Shapes, gradients, caches and costs of predictions; input transforms."""

import copy
import itertools
from typing import Any

import gpytorch
import pytest
import torch
from botorch import settings
from botorch.exceptions import BotorchWarning, UnsupportedError
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize, Round
from botorch.models.transforms.input import (
    ChainedInputTransform,
    InputPerturbation,
    InputStandardize,
)
from gpytorch.kernels import RBFKernel
from sparse_model_cases import (
    FAST,
    dense_posterior,
    make_data,
    make_mll,
    make_transform,
)
from torch import Tensor

from botorch_sparse.inducing import RecursiveRLSSampler
from botorch_sparse.models import SparseSingleTaskGP


class TestEvalMode:
    """Shapes, gradients, caches and costs of the posterior."""

    def make(self, n: int = 40, **kwargs: Any) -> SparseSingleTaskGP:
        tkwargs = {k: kwargs.pop(k) for k in ("dtype", "device") if k in kwargs}
        X, Y, _ = make_data(n=n, **tkwargs)
        return SparseSingleTaskGP(X, Y, inducing_points=X[:15], **kwargs)

    @pytest.mark.parametrize("batch", [(), (1,), (5,), (3, 2), (2, 1, 4)])
    def test_batches_agree_with_single_points(
        self, batch: tuple[int, ...], double: dict[str, Any]
    ) -> None:
        model = self.make(**double)
        X = torch.rand(*batch, 3, 2, **double)
        posterior = model.posterior(X)
        assert posterior.mean.shape == (*batch, 3, 1)
        assert posterior.distribution.covariance_matrix.shape == (*batch, 3, 3)
        for index in itertools.product(*(range(b) for b in batch)):
            single = model.posterior(X[index]).distribution
            joint = posterior.distribution.covariance_matrix[index]
            torch.testing.assert_close(joint, single.covariance_matrix)

    def test_gradcheck(self, double: dict[str, Any]) -> None:
        model = self.make(input_transform=Normalize(2), **double)
        model.covar_module.lengthscale = 0.3
        X = torch.rand(2, 3, 2, requires_grad=True, **double)

        def moments(X: Tensor) -> tuple[Tensor, Tensor]:
            posterior = model.posterior(X)
            return posterior.mean, posterior.distribution.covariance_matrix

        assert torch.autograd.gradcheck(moments, (X,))

    def test_propagate_grads(self, double: dict[str, Any]) -> None:
        model = self.make(**double)
        X = torch.rand(3, 2, **double)
        parameters = [p for p in model.parameters() if p.requires_grad]
        with settings.propagate_grads(True):
            ours = model.posterior(X).mean.sum()
            direct = model(X).mean.sum()  # without the settings of `posterior`
        constant = model.mean_module.raw_constant
        by_constant = torch.autograd.grad(direct, constant, retain_graph=True)[0]
        assert by_constant.abs() < 2.9  # detached caches would give one per point
        mean, _ = dense_posterior(model, X)
        scale, shift = model.outcome_transform.stdvs, model.outcome_transform.means
        expected = (shift + scale * mean).sum()
        torch.testing.assert_close(
            torch.autograd.grad(ours, parameters),
            torch.autograd.grad(expected, parameters),
            rtol=1e-6,
            atol=1e-8,
        )
        model.posterior(X)
        assert not model.nystrom_posterior().weights.requires_grad

    def test_warm_posterior_touches_nothing_of_the_size_of_the_data(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = self.make(n=200, **double)
        X = torch.rand(4, 1, 2, **double)
        model.posterior(X)
        shapes: list[int] = []
        forward = RBFKernel.forward

        def record(self: Any, x1: Tensor, x2: Tensor, **kwargs: Any) -> Any:
            shapes.extend([x1.shape[-2], x2.shape[-2]])
            return forward(self, x1, x2, **kwargs)

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise AssertionError("A warm posterior factorizes nothing.")

        monkeypatch.setattr(RBFKernel, "forward", record)
        monkeypatch.setattr(torch.linalg, "cholesky", refuse)
        monkeypatch.setattr(torch.linalg, "cholesky_ex", refuse)
        model.posterior(X)
        assert shapes and max(shapes) <= 15

    def test_nothing_square_in_the_data(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """From the draw of the inducing points through a fit to the posterior."""
        n = 700
        X, Y, _ = make_data(n=n, **double)
        sizes: list[int] = []
        pairs: list[int] = []
        forward = RBFKernel.forward

        def record(self: Any, x1: Tensor, x2: Tensor, **kwargs: Any) -> Any:
            if not kwargs.get("diag", False):
                pairs.append(x1.shape[-2] * x2.shape[-2])
            return forward(self, x1, x2, **kwargs)

        def watch(name: str) -> None:
            factorize = getattr(torch.linalg, name)

            def wrapped(A: Tensor, *args: Any, **kwargs: Any) -> Any:
                sizes.append(A.shape[-1])
                return factorize(A, *args, **kwargs)

            monkeypatch.setattr(torch.linalg, name, wrapped)

        monkeypatch.setattr(RBFKernel, "forward", record)
        watch("cholesky")
        watch("cholesky_ex")
        model = SparseSingleTaskGP(X, Y, max_inducing_points=50)
        with pytest.warns(BotorchWarning, match="cap of 50"):
            fit_gpytorch_mll(make_mll(model), optimizer_kwargs=FAST)
        model.posterior(X[:5])
        assert model.num_inducing == 50
        assert max(sizes) <= 500  # the observations of the fit on few
        assert max(pairs) <= 500 * 500

    def test_prior_mode_and_no_data(self, double: dict[str, Any]) -> None:
        model = self.make(**double)
        X = torch.rand(3, 2, **double)
        model.eval()
        prior_variance = torch.ones(3, **double)
        with gpytorch.settings.prior_mode(True):
            torch.testing.assert_close(model(X).variance, prior_variance)
        model.posterior(X)
        model.train_inputs = model.train_targets = None
        torch.testing.assert_close(model(X).variance, prior_variance)

    @pytest.mark.parametrize("transform", [None, "normalize"])
    def test_caches_are_dropped(
        self, transform: str | None, double: dict[str, Any]
    ) -> None:
        input_transform = make_transform(transform, double)
        model = self.make(input_transform=input_transform, **double)
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
        torch.testing.assert_close(model.posterior(X).mean, before)

    def test_new_inputs_draw_new_inducing_points(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(n=80, **double)
        model = SparseSingleTaskGP(X, Y, inducing_sampler=RecursiveRLSSampler(0.1))
        first = model.inducing_points
        model.train().eval()
        assert torch.equal(first, model.inducing_points)
        model.set_train_data(X[:50] + 1.0, Y[:50, 0], strict=False)
        assert model.inducing_points.min() >= 1.0

    @pytest.mark.parametrize("transform", ["normalize", "warp"])
    @pytest.mark.parametrize("n", [30, 40, 60])
    def test_new_inputs_in_eval_mode_are_transformed_ones(
        self, transform: str, n: int, double: dict[str, Any]
    ) -> None:
        X, Y, _ = make_data(n=40, repeats=12, **double)
        X2, Y2, _ = make_data(n=n, repeats=0, **double)
        low, high = X.aminmax(dim=0)
        X2 = low + (high - low) * (0.01 + 0.49 * X2.flip(0))  # in the warp's range
        model = SparseSingleTaskGP(
            X,
            Y,
            input_transform=make_transform(transform, double),
            outcome_transform=None,
            inducing_points=X[:9],
        ).eval()
        model.posterior(X[:2])
        Z = model.transform_inputs(X2)
        model.set_train_data(Z, Y2.squeeze(-1), strict=False)
        fresh = SparseSingleTaskGP(
            X2,
            Y2,
            input_transform=copy.deepcopy(model.input_transform),
            outcome_transform=None,
            inducing_points=X[:9],
        ).eval()
        fresh.input_transform = model.input_transform
        fresh.train_inputs = (Z,)
        fresh.load_state_dict(model.state_dict())
        for kind in ("mean", "variance"):
            actual = getattr(model.posterior(X[:5]), kind)
            torch.testing.assert_close(actual, getattr(fresh.posterior(X[:5]), kind))
        torch.testing.assert_close(model.train().train_inputs[0], X2)

    def test_new_inputs_and_transforms_that_cannot_be_undone(
        self, double: dict[str, Any]
    ) -> None:
        X, Y, _ = make_data(n=40, repeats=0, **double)
        rounded = Round(integer_indices=[0, 1])
        model = self.make(input_transform=rounded, **double).eval()
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
    def test_new_inputs_of_any_scale(
        self, transform: Any, low: float, high: float, tkwargs: dict[str, Any]
    ) -> None:
        X, Y, _ = make_data(n=40, repeats=0, **tkwargs)
        X = low + (high - low) / 2 * X
        model = SparseSingleTaskGP(
            X, Y, input_transform=transform(2), inducing_points=X[:9]
        ).eval()
        other = X.flip(0) * (1 - 1e-4)
        model.set_train_data(model.transform_inputs(other), model.train_targets)
        eps = torch.finfo(X.dtype).eps
        found = model.train().train_inputs[0]
        torch.testing.assert_close(found, other, rtol=4 * eps, atol=4 * eps * high)

    def test_targets_alone_may_come_with_the_inputs_there_are(
        self, double: dict[str, Any]
    ) -> None:
        """Nothing is drawn again, and a conditioned exact model stays exact."""
        many = torch.rand(520, 2, **double)
        exact = SparseSingleTaskGP(many[:9], many[:9, :1], input_transform=Normalize(2))
        exact = exact.eval().condition_on_observations(many[9:], many[9:, :1])
        exact.set_train_data(exact.train_inputs, exact.train_targets + 1.0)
        assert exact.is_exact
        X, Y, _ = make_data(n=80, repeats=0, **double)
        sampler = RecursiveRLSSampler(0.1)
        model = SparseSingleTaskGP(
            X, Y, inducing_sampler=sampler, input_transform=Normalize(2)
        ).eval()
        default = model.inducing_points
        points = model.resparsify(torch.Generator().manual_seed(7)).inducing_points
        assert not torch.equal(points, default)
        model.set_train_data(model.train_inputs, model.train_targets + 1.0)
        assert torch.equal(model.inducing_points, points)

    @pytest.mark.parametrize("on_train", [False, True])
    def test_chains_with_parts_that_leave_training_inputs_alone(
        self, on_train: bool, double: dict[str, Any]
    ) -> None:
        X, Y, _ = make_data(n=40, repeats=0, **double)
        chain = ChainedInputTransform(
            normalize=Normalize(2, transform_on_train=on_train),
            perturb=InputPerturbation(torch.zeros(1, 2, **double)),
        )
        model = self.make(input_transform=chain, **double).eval()
        Z = model.train_inputs[0].flip(0) * 0.9
        raw = chain["normalize"].untransform(Z) if on_train else Z
        model.set_train_data(Z, Y.squeeze(-1), strict=False)
        assert model.posterior(X[:2]).mean.isfinite().all()
        torch.testing.assert_close(model.train().train_inputs[0], raw)

    def test_new_inputs_of_one_dimension(self, double: dict[str, Any]) -> None:
        X = torch.linspace(1, 3, 20, **double).unsqueeze(-1)
        model = SparseSingleTaskGP(
            X, X.sin(), input_transform=Normalize(1), inducing_points=X[::4]
        ).eval()
        model.set_train_data(0.9 * model.train_inputs[0].flatten(), strict=False)
        torch.testing.assert_close(model.train().train_inputs[0], 1 + 0.9 * (X - 1))

    def test_moves_between_dtypes(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(n=80, **double)
        for eval_first in (False, True):
            model = SparseSingleTaskGP(
                X, Y, input_transform=Normalize(2), max_inducing_points=10
            )
            with pytest.warns(BotorchWarning, match="cap of 10"):
                expected = model.posterior(X[:4]).mean
            points = model.inducing_points
            if not eval_first:
                model.train()
            model.float()
            assert model.inducing_points.dtype == torch.float32
            torch.testing.assert_close(model.inducing_points, points.float())
            torch.testing.assert_close(
                model.posterior(X[:4].float()).mean,
                expected.float(),
                atol=1e-3,
                rtol=1e-3,
            )
            model.train()
            assert model(*model.train_inputs).mean.dtype == torch.float32

    def test_first_call_in_inference_mode(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(n=80, **double)
        model = SparseSingleTaskGP(X, Y, inducing_sampler=RecursiveRLSSampler(0.1))
        with torch.inference_mode():
            model.posterior(X[:3])
        X_test = X[:3].clone().requires_grad_()
        model.posterior(X_test).mean.sum().backward()
        assert X_test.grad is not None
        model.train()
        make_mll(model)(model(*model.train_inputs), model.train_targets).backward()


class TestInputTransforms:
    """Inducing points are kept as raw inputs."""

    def test_points_follow_a_learned_transform(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(n=60, **double)
        model = SparseSingleTaskGP(
            X,
            Y,
            input_transform=make_transform("warp", double),
            inducing_sampler=RecursiveRLSSampler(0.1),
        )
        points = model.inducing_points
        model.posterior(X[:2])
        model.train()
        model.input_transform["warp"]._set_concentration(0, torch.tensor([2.0, 0.5]))
        assert torch.equal(points, model.inducing_points)
        model.eval()
        torch.testing.assert_close(
            model(model.transform_inputs(X[:3])).mean,
            dense_posterior(model, X[:3])[0],
            rtol=1e-7,
            atol=1e-7,
        )

    def test_given_points_do_not_teach_normalize(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(**double)
        model = SparseSingleTaskGP(
            X, Y, input_transform=Normalize(2), inducing_points=5 * X[:9]
        )
        bounds = model.input_transform.bounds.clone()
        model(*model.train_inputs)
        assert torch.equal(bounds, model.input_transform.bounds)
