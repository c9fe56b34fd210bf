"""Inducing points moved by a fit, against a dense collapsed bound."""

import copy
import math
import pickle
from functools import cache
from typing import Any

import pytest
import torch
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize
from botorch.optim.closures import get_loss_closure_with_grads
from botorch.optim.core import OptimizationResult
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP, nystrom_prior
from botorch_sparse.models.fit import learned_points
from botorch_sparse.models.fit.choose import loss_of, shuffled_rows, with_optimizer
from botorch_sparse.models.fit.learned_points import (
    fit_part,
    fit_points_and_hyperparameters,
    points_as_parameters,
)

close = torch.testing.assert_close
SHORT = {"options": {"maxiter": 60}}
SHORTEST = {"options": {"maxiter": 5}}
# Small caps are by-products of small tests.
pytestmark = pytest.mark.filterwarnings("ignore:The inducing points reached their cap")

LENGTHSCALE = "covar_module.raw_lengthscale"


def make_data(
    n: int = 120, num_outputs: int = 1, **tkwargs: Any
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    Y = torch.cat([(7 * X + k).sin().sum(-1, True) for k in range(num_outputs)], -1)
    Y = Y + 0.1 * torch.randn(n, num_outputs, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


def make_model(X: Tensor, Y: Tensor, m: int = 6, **options: Any) -> SparseSingleTaskGP:
    options = {
        "inducing_points": X[..., :m, :],
        "learn_inducing_points": True,
    } | options
    return SparseSingleTaskGP(X, Y, **options)


def fit(model: SparseSingleTaskGP, **options: Any) -> SparseSingleTaskGP:
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, **options)
    return model


@cache
def _fitted() -> SparseSingleTaskGP:
    return fit(make_model(*make_data()))


def learned(**tkwargs: Any) -> SparseSingleTaskGP:
    """A model of `make_data` whose points were learned to the end."""
    return copy.deepcopy(_fitted()).to(**tkwargs)


def dense_bound(model: SparseSingleTaskGP, S: Tensor) -> Tensor:
    """The collapsed bound of a model with one output, from n x n matrices."""
    X, Y, noise = model.train_inputs[0], model.train_targets, model.likelihood.noise
    K = model.covar_module(X).to_dense()
    K_SS = model.covar_module(S).to_dense()
    K_SX = model.covar_module(S, X).to_dense()
    Q = K_SX.mT @ torch.linalg.solve(K_SS, K_SX)
    C = Q + noise * torch.eye(len(X), dtype=X.dtype, device=X.device)
    e = Y - model.mean_module(X)
    fit_term = e @ torch.linalg.solve(C, e) + torch.logdet(C)
    penalty = (K - Q).diagonal().sum() / noise
    return -0.5 * (fit_term + penalty + len(X) * math.log(2 * math.pi)).squeeze()


def rows_of_evaluations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by the number of rows with each evaluation of the objective."""
    seen: list[int] = []
    objective = nystrom_prior.low_rank_objective

    def counted(features_of: Any, X: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        seen.append(X.shape[-2])
        return objective(features_of, X, *args, **kwargs)

    monkeypatch.setattr(nystrom_prior, "low_rank_objective", counted)
    return seen


def repeated(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    """790 of 850 points; the others are seen again."""
    return torch.cat([X[:790], X[:60]]), Y


class TestLearning:
    def test_ends_where_the_bound_is_flat(self, double: dict[str, Any]) -> None:
        X, Y = make_data(**double)
        begun = fit(make_model(X, Y), optimizer_kwargs={"options": {"maxiter": 1}})
        gradients, model = [], learned(**double)
        for each in (begun, model):
            S = each.inducing_points.clone().requires_grad_()
            gradients.append(torch.autograd.grad(dense_bound(each, S), S)[0].norm())
        assert gradients[1] < 0.02 * gradients[0]
        assert not torch.isin(model.inducing_points, X).any()

    def test_raises_the_bound(self, double: dict[str, Any]) -> None:
        X, Y = make_data(**double)
        fixed, moved = make_model(X, Y, learn_inducing_points=False), learned(**double)
        fit(fixed)
        bounds = [dense_bound(m, m.inducing_points).item() for m in (fixed, moved)]
        assert bounds[1] > bounds[0] + 10

    def test_raises_the_bound_in_either_precision(
        self, tkwargs: dict[str, Any]
    ) -> None:
        start = make_model(*make_data(**tkwargs))
        model = fit(copy.deepcopy(start))
        assert model.inducing_points.dtype == tkwargs["dtype"]
        models = [start.double(), model.double(), learned(device=tkwargs["device"])]
        before, after, best = (dense_bound(m, m.inducing_points) for m in models)
        assert after - before >= 0.99 * (best - before) > 1.0

    def test_drawn_points_are_the_start(self, double: dict[str, Any]) -> None:
        X, Y = make_data(700, **double)
        model = SparseSingleTaskGP(
            X, Y, max_inducing_points=9, learn_inducing_points=True
        )
        fit(model, optimizer_kwargs=SHORT)
        assert model.inducing_points.shape == (9, 2)
        drawn = SparseSingleTaskGP(X, Y, max_inducing_points=9)
        fit(drawn, rounds=1)
        bounds = [dense_bound(m, m.inducing_points).item() for m in (drawn, model)]
        assert bounds[1] > bounds[0] + 10

    def test_points_in_columns_of_memory(self, double: dict[str, Any]) -> None:
        X, Y = make_data(60, **double)
        X = X.mT.contiguous().mT
        model = fit(make_model(X, Y), optimizer_kwargs=SHORTEST)
        assert not torch.isin(model.inducing_points, X).any()

    @pytest.mark.parametrize("num_outputs", [1, 2])
    def test_transforms_and_outputs(
        self, num_outputs: int, double: dict[str, Any]
    ) -> None:
        """Raw inputs are learned: the same points on another scale of the inputs."""
        X, Y = make_data(60, num_outputs, **double)
        plain = fit(make_model(X, Y), optimizer_kwargs={"options": {"maxiter": 3}})
        assert plain.inducing_points.shape == (6, 2)
        bounds = torch.tensor([[0.0, 0.0], [4.0, 4.0]], **double)
        scaled = make_model(
            4 * X, Y, input_transform=Normalize(2, bounds=bounds, learn_bounds=False)
        )
        start = scaled.inducing_points.clone()
        fit(scaled, optimizer_kwargs=SHORT)
        moved = (scaled.inducing_points - start).abs().amax()
        assert moved > 0.1
        assert scaled.posterior(4 * X).mean.shape == (60, num_outputs)

    def test_batch_learns_for_each_element(self, double: dict[str, Any]) -> None:
        X, Y = make_data(50, **double)
        X, Y = torch.stack([X, X.flip(-1) ** 2]), torch.stack([Y, Y])
        model = make_model(X, Y)
        fit(model, optimizer_kwargs=SHORTEST)
        assert model.inducing_points.shape == (2, 6, 2)
        moved = model.inducing_points - X[..., :6, :]
        assert (moved.flatten(1).abs().amax(-1) > 1e-3).all()


class TestPart:
    """The first steps, on a part of the data."""

    def test_steps_on_a_part_lead_to_the_optimum_of_all(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X, Y = make_data(900, **double)
        rows = rows_of_evaluations(monkeypatch)
        model = fit(make_model(X, Y, m=2))
        assert list(dict.fromkeys(rows)) == [200, 900]
        num_after = rows.count(900)
        monkeypatch.setattr(learned_points, "ROWS_PER_POINT", 300)
        rows.clear()
        alone = fit(make_model(X, Y, m=2))
        assert set(rows) == {900}
        assert num_after < rows.count(900)
        bounds = [dense_bound(m, m.inducing_points) for m in (model, alone)]
        close(bounds[0], bounds[1], rtol=0.0, atol=1.0)

    @pytest.mark.parametrize("case", ["outputs", "batch", "noise", "transform"])
    def test_all_kinds_of_models(
        self, case: str, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Points and hyperparameters are those of the part, the data those of all."""
        X, Y = make_data(850, 2 if case == "outputs" else 1, **double)
        options: dict[str, Any] = {}
        if case == "batch":
            X, Y = torch.stack([X, X.flip(-1) ** 2]), torch.stack([Y, -Y])
        if case == "noise":
            options["train_Yvar"] = torch.full_like(Y, 0.01)
        if case == "transform":
            X, options["input_transform"] = 9 * X, Normalize(2)
        model = make_model(X, Y, m=2, **options)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        before = copy.deepcopy(model.state_dict())
        rows, start = rows_of_evaluations(monkeypatch), model.inducing_points.clone()
        short = {"optimizer_kwargs": {"options": {"maxiter": 20}}}
        with points_as_parameters(model):
            fitted = fit_part(
                mll, with_optimizer(short, fit_points_and_hyperparameters)
            )
            assert torch.equal(model.learned_points, start)
            fitted.give(mll)
        assert set(rows) == {200}
        assert model.train_inputs[0].shape[-2] == 850
        moved = (model.inducing_points - start).abs().flatten(-2).amax(-1)
        assert (moved > 1e-3).all()
        after = model.state_dict()
        assert not torch.equal(*(s[LENGTHSCALE] for s in (before, after)))
        buffers = dict(model.named_buffers())
        assert all(torch.equal(before[k], after[k]) for k in buffers if k in before)

    def test_not_where_it_makes_no_sense(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After points were learned, on little data, and with a limit of time."""
        X, Y = make_data(850, **double)
        model = fit(make_model(X, Y, m=2), optimizer_kwargs=SHORTEST)
        rows = rows_of_evaluations(monkeypatch)
        fit(model, optimizer_kwargs=SHORTEST)
        fit(make_model(X, Y, m=3), optimizer_kwargs=SHORTEST)
        fit(make_model(X, Y, m=2), optimizer_kwargs={**SHORTEST, "timeout_sec": 1e3})
        fit(make_model(*repeated(X, Y), m=2), optimizer_kwargs=SHORTEST)
        assert set(rows) == {790, 850}

    @pytest.mark.parametrize("best", [0, 1, 2])
    def test_the_best_of_several_starts(
        self, best: int, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With losses that are made up: of three starts, before and after."""
        losses = [2.0, 2.0, 2.0, 5.0, 4.0]
        losses[best] = 1.0
        values, fits, begun = iter(losses), [], []

        def fit_nothing(mll: Any, options: dict[str, Any]) -> None:
            maxiter = options["optimizer_kwargs"]["options"]["maxiter"]
            fits.append((len(mll.model.train_targets), maxiter))
            begun.append(mll.model.learned_points.clone())

        name = "loss_of"
        monkeypatch.setattr(learned_points, name, lambda _: torch.tensor(next(values)))
        monkeypatch.setattr(learned_points, "fit_once", fit_nothing)
        X, Y = make_data(850, **double)
        model = make_model(X, Y, inducing_points=None, max_inducing_points=2)
        rows = shuffled_rows(model)
        fit(model, optimizer_kwargs={"options": {"maxiter": 500}})
        assert torch.equal(torch.stack(begun[1:3]), X[rows[:4]].reshape(2, 2, 2))
        assert torch.isin(begun[0], X).all()
        assert torch.equal(model.inducing_points, begun[best])
        assert fits == [(200, 200)] * 3 + [(200, 500), (850, 500)]

    @pytest.mark.parametrize("how", ["serves the part alone", "fails on the part"])
    def test_what_is_of_no_use_on_all_is_dropped(
        self, how: str, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        starts: list[Tensor] = []

        def far_out(mll: Any, options: dict[str, Any]) -> None:
            if len(mll.model.train_targets) == 850:
                starts.append(mll.model.learned_points.clone())
            elif how == "fails on the part":
                raise ModelFittingError("no")
            else:
                with torch.no_grad():
                    mll.model.learned_points.fill_(9.0)

        monkeypatch.setattr(learned_points, "fit_once", far_out)
        X, Y = make_data(850, **double)
        fit(make_model(X, Y, m=2))
        assert len(starts) == 1 and torch.equal(starts[0], X[:2])


class TestAround:
    def test_parameters_are_those_of_the_class(self, double: dict[str, Any]) -> None:
        model = make_model(*make_data(**double))
        names = [name for name, _ in model.named_parameters()]
        assert [name for name, _ in learned(**double).named_parameters()] == names

    def test_a_second_fit_starts_from_them(self, double: dict[str, Any]) -> None:
        model = learned(**double)
        points, bound = model.inducing_points, dense_bound(model, model.inducing_points)
        fit(model)
        assert dense_bound(model, model.inducing_points) >= bound - 1e-6
        close(model.inducing_points, points, atol=0.02, rtol=0.0)

    def test_the_best_of_several_attempts(self, double: dict[str, Any]) -> None:
        model = make_model(*make_data(**double))
        alone = fit(copy.deepcopy(model), optimizer_kwargs=SHORT)
        bound = dense_bound(alone, alone.inducing_points)
        losses = []

        def recorded(mll: Any, **kwargs: Any) -> OptimizationResult:
            result = fit_points_and_hyperparameters(mll, **kwargs)
            losses.append(result.fval)
            return result

        fit(
            model,
            optimizer=recorded,
            max_attempts=3,
            pick_best_of_all_attempts=True,
            optimizer_kwargs=SHORT,
        )
        assert len(losses) == 3
        assert dense_bound(model, model.inducing_points) >= bound - 1e-6
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        with points_as_parameters(model):
            assert float(loss_of(mll)) == pytest.approx(min(losses), abs=1e-9)

    def test_exact_models_have_nothing_to_learn(self, double: dict[str, Any]) -> None:
        X, Y = make_data(30, **double)
        model = SparseSingleTaskGP(X, Y, learn_inducing_points=True)
        fit(model, optimizer_kwargs=SHORT)
        assert model.is_exact
        assert torch.equal(model.inducing_points, X)

    def test_a_closure_moves_no_points(self, double: dict[str, Any]) -> None:
        model = make_model(*make_data(**double))
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        parameters = dict(mll.named_parameters())
        points = model.inducing_points.clone()
        closure = get_loss_closure_with_grads(mll, parameters)
        fit_gpytorch_mll(mll, closure=closure, optimizer_kwargs=SHORT)
        assert torch.equal(model.inducing_points, points)

    def test_a_failed_fit_moves_nothing(self, double: dict[str, Any]) -> None:
        model = make_model(*make_data(**double))
        points, state = model.inducing_points.clone(), copy.deepcopy(model.state_dict())
        calls = []

        def fails(mll: Any, closure: Any = None, **kwargs: Any) -> None:
            calls.append(dict(mll.named_parameters()))
            assert "model.learned_points" in calls[-1]
            with torch.no_grad():
                for parameter in mll.parameters():
                    parameter.add_(0.1)
            raise RuntimeError("nothing to do with numbers")

        with pytest.raises((RuntimeError, ModelFittingError)):
            fit(model, optimizer=fails)
        assert calls
        assert torch.equal(model.inducing_points, points)
        assert model.state_dict().keys() == state.keys()
        for name, value in model.state_dict().items():
            assert torch.equal(value, state[name])


class TestState:
    def test_goes_to_models_that_learn(self, double: dict[str, Any]) -> None:
        X, Y = make_data(**double)
        source = learned(**double)
        state = source.state_dict()
        other = make_model(X, Y, m=4)
        other.posterior(X[:2])
        other.load_state_dict(state)
        close(other.posterior(X).variance, source.posterior(X).variance)
        fewer = make_model(X[:40], Y[:40], m=3)
        fewer.load_state_dict(state)
        assert torch.equal(fewer.inducing_points, source.inducing_points)
        fixed = make_model(X, Y, m=4, learn_inducing_points=False)
        fixed.load_state_dict(state)
        assert torch.equal(fixed.inducing_points, X[:4])

    def test_copies_and_moves(self, double: dict[str, Any]) -> None:
        X, Y = make_data(**double)
        model = learned(**double)
        expected = model.posterior(X).mean
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            close(twin.posterior(X).mean, expected)
            assert torch.equal(twin.inducing_points, model.inducing_points)
        single = copy.deepcopy(model).to(torch.float32)
        assert single.inducing_points.dtype == torch.float32
        fantasy = model.condition_on_observations(X[:2] + 0.01, Y[:2])
        assert torch.equal(fantasy.inducing_points, model.inducing_points)

    def test_new_data_keep_the_points(self, double: dict[str, Any]) -> None:
        X, Y = make_data(150, **double)
        model = learned(**double)
        points = model.inducing_points
        Y = model.outcome_transform(Y)[0].squeeze(-1)
        model.set_train_data(X, Y, strict=False)
        assert torch.equal(model.inducing_points, points)

    @pytest.mark.parametrize("num_given", [0, 6])
    def test_resparsify_forgets_them(
        self, num_given: int, double: dict[str, Any]
    ) -> None:
        X, Y = make_data(700, **double)
        given = X[:num_given] if num_given else None
        model = make_model(X, Y, inducing_points=given, max_inducing_points=9)
        for _ in range(2):
            fit(model, optimizer_kwargs=SHORTEST)
        assert not torch.isin(model.inducing_points, X).any()
        model = model.to(torch.float32).resparsify()
        assert torch.isin(model.inducing_points, X.float()).all()
        assert "learned_points" not in model.state_dict()
        if given is not None:
            assert torch.equal(model.inducing_points, given.float())

    def test_an_older_state_dict_forgets_them(self, double: dict[str, Any]) -> None:
        X, Y = make_data(**double)
        never = make_model(X, Y)
        older, expected = copy.deepcopy(never.state_dict()), never.posterior(X).mean
        model = learned(**double)
        model.load_state_dict(older)
        assert torch.equal(model.inducing_points, X[:6])
        close(model.eval().posterior(X).mean, expected)
