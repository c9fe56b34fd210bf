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
from sparse_model_cases import make_mll
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP, nystrom_prior
from botorch_sparse.models.fit import learned_points
from botorch_sparse.models.fit.candidate_fits import (
    loss_of,
    shuffled_rows,
    with_optimizer,
)
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
    given = {"inducing_points": X[..., :m, :], "learn_inducing_points": True}
    return SparseSingleTaskGP(X, Y, **(given | options))


def fit(model: SparseSingleTaskGP, **options: Any) -> SparseSingleTaskGP:
    fit_gpytorch_mll(make_mll(model), **options)
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
    value = nystrom_prior.low_rank_objective

    def counted(features_of: Any, X: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        seen.append(X.shape[-2])
        return value(features_of, X, *args, **kwargs)

    monkeypatch.setattr(nystrom_prior, "low_rank_objective", counted)
    return seen


class TestLearning:
    def test_ends_where_the_bound_is_flat(self, double):
        X, Y = make_data(**double)
        begun = fit(make_model(X, Y), optimizer_kwargs={"options": {"maxiter": 1}})
        gradients, model = [], learned(**double)
        for each in (begun, model):
            S = each.inducing_points.clone().requires_grad_()
            gradients.append(torch.autograd.grad(dense_bound(each, S), S)[0].norm())
        assert gradients[1] < 0.02 * gradients[0]
        assert not torch.isin(model.inducing_points, X).any()

    def test_raises_the_bound_in_either_precision(self, tkwargs):
        start = make_model(*make_data(**tkwargs))
        model = fit(copy.deepcopy(start))
        assert model.inducing_points.dtype == tkwargs["dtype"]
        models = [start.double(), model.double(), learned(device=tkwargs["device"])]
        before, after, best = (dense_bound(m, m.inducing_points) for m in models)
        assert after - before >= 0.99 * (best - before) > 1.0

    def test_drawn_points_are_the_start(self, double):
        X, Y = make_data(700, **double)
        model = make_model(X, Y, inducing_points=None, max_inducing_points=9)
        fit(model, optimizer_kwargs=SHORT)
        assert model.inducing_points.shape == (9, 2)
        drawn = SparseSingleTaskGP(X, Y, max_inducing_points=9)
        fit(drawn, rounds=1)
        bounds = [dense_bound(m, m.inducing_points).item() for m in (drawn, model)]
        assert bounds[1] > bounds[0] + 10

    def test_batch_learns_for_each_element(self, double):
        """Also where a column lies together in memory."""
        X, Y = make_data(50, **double)
        X, Y = torch.stack([X, X.flip(-1) ** 2]), torch.stack([Y, Y])
        model = make_model(X.mT.contiguous().mT, Y)
        fit(model, optimizer_kwargs=SHORTEST)
        assert model.inducing_points.shape == (2, 6, 2)
        moved = model.inducing_points - X[..., :6, :]
        assert (moved.flatten(1).abs().amax(-1) > 1e-3).all()


class TestPart:
    """The first steps, on a part of the data."""

    @pytest.mark.slow
    def test_steps_on_a_part_lead_to_the_optimum_of_all(self, double, monkeypatch):
        X, Y = make_data(900, **double)
        rows = rows_of_evaluations(monkeypatch)
        model = fit(make_model(X, Y, m=2))
        assert list(dict.fromkeys(rows)) == [200, 900]
        num_after = rows.count(900)
        rows.clear()
        alone = fit(make_model(X, Y, m=2), optimizer_kwargs={"timeout_sec": 1e3})
        assert set(rows) == {900}
        assert num_after < rows.count(900)
        bounds = [dense_bound(m, m.inducing_points) for m in (model, alone)]
        close(bounds[0], bounds[1], rtol=0.0, atol=1.0)

    @pytest.mark.one_in(4)
    @pytest.mark.parametrize("case", ["outputs", "batch", "noise", "transform"])
    def test_all_kinds_of_models(self, case, double, monkeypatch):
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
        mll, before = make_mll(model), copy.deepcopy(model.state_dict())
        rows, start = rows_of_evaluations(monkeypatch), model.inducing_points.clone()
        short = {"optimizer_kwargs": {"options": {"maxiter": 20}}}
        short = with_optimizer(short, fit_points_and_hyperparameters)
        with points_as_parameters(model):
            fitted = fit_part(mll, short)
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
        assert model.posterior(X).mean.shape == Y.shape

    def test_not_where_it_makes_no_sense(self, double, monkeypatch):
        """After points were learned, on little data, and with a limit of time."""
        X, Y = make_data(850, **double)
        repeated = torch.cat([X[:790], X[:60]])
        model = fit(make_model(X, Y, m=2), optimizer_kwargs=SHORTEST)
        rows = rows_of_evaluations(monkeypatch)
        for each in (model, make_model(X, Y, m=3), make_model(repeated, Y, m=2)):
            fit(each, optimizer_kwargs=SHORTEST)
        fit(make_model(X, Y, m=2), optimizer_kwargs={**SHORTEST, "timeout_sec": 1e3})
        assert set(rows) == {790, 850}

    @pytest.mark.parametrize("best", [0, 1, 2])
    def test_the_best_of_several_starts(self, best, double, monkeypatch):
        """With losses that are made up: of three starts, before and after."""
        losses = [2.0, 2.0, 2.0, 5.0, 4.0]
        losses[best] = 1.0
        values, fits, begun = iter(losses), [], []

        def fit_nothing(mll: Any, options: dict[str, Any]) -> None:
            maxiter = options["optimizer_kwargs"]["options"]["maxiter"]
            fits.append((len(mll.model.train_targets), maxiter))
            begun.append(mll.model.learned_points.clone())

        loss = "loss_of"
        monkeypatch.setattr(learned_points, loss, lambda _: torch.tensor(next(values)))
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
    def test_what_is_of_no_use_on_all_is_dropped(self, how, double, monkeypatch):
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
    def test_a_second_fit_starts_from_them(self, double):
        """And parameters are those of the class, before and after."""
        model, never = learned(**double), make_model(*make_data(**double))
        points, bound = model.inducing_points, dense_bound(model, model.inducing_points)
        fit(model)
        assert dense_bound(model, model.inducing_points) >= bound - 1e-6
        close(model.inducing_points, points, atol=0.02, rtol=0.0)
        names = [[name for name, _ in m.named_parameters()] for m in (model, never)]
        assert names[0] == names[1]

    @pytest.mark.slow
    def test_the_best_of_several_attempts(self, double):
        model, losses = make_model(*make_data(**double)), []

        def recorded(mll: Any, **kwargs: Any) -> OptimizationResult:
            result = fit_points_and_hyperparameters(mll, **kwargs)
            losses.append(result.fval)
            return result

        several: Any = {"max_attempts": 3, "pick_best_of_all_attempts": True}
        fit(model, optimizer=recorded, optimizer_kwargs=SHORT, **several)
        assert len(losses) == 3
        with points_as_parameters(model):
            found = float(loss_of(make_mll(model)))
        assert found == pytest.approx(min(losses), abs=1e-9)

    def test_exact_models_have_nothing_to_learn(self, double):
        X, Y = make_data(30, **double)
        model = fit(make_model(X, Y, inducing_points=None), optimizer_kwargs=SHORT)
        assert model.is_exact
        assert torch.equal(model.inducing_points, X)

    def test_a_closure_moves_no_points(self, double):
        model = make_model(*make_data(**double))
        mll, points = make_mll(model), model.inducing_points.clone()
        closure = get_loss_closure_with_grads(mll, dict(mll.named_parameters()))
        fit_gpytorch_mll(mll, closure=closure, optimizer_kwargs=SHORT)
        assert torch.equal(model.inducing_points, points)

    @pytest.mark.parametrize("has_learned", [False, True])
    def test_a_failed_fit_moves_nothing(self, has_learned, double):
        model = learned(**double) if has_learned else make_model(*make_data(**double))
        points, state = model.inducing_points.clone(), copy.deepcopy(model.state_dict())

        @torch.no_grad()
        def fails(mll: Any, closure: Any = None, **kwargs: Any) -> None:
            assert "model.learned_points" in dict(mll.named_parameters())
            for parameter in mll.parameters():
                parameter.add_(0.1)
            raise RuntimeError("nothing to do with numbers")

        with pytest.raises(RuntimeError, match="nothing to do"):
            fit(model, optimizer=fails)
        assert torch.equal(model.inducing_points, points)
        torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)


class TestState:
    def test_goes_to_models_that_learn(self, double):
        X, Y = make_data(**double)
        source, never = learned(**double), make_model(X, Y)
        state, older = source.state_dict(), copy.deepcopy(never.state_dict())
        for other in (make_model(X, Y, m=4), make_model(X[:40], Y[:40], m=3)):
            other.posterior(X[:2])
            other.load_state_dict(state)
            assert torch.equal(other.inducing_points, source.inducing_points)
            if len(other.train_targets) == len(X):
                expected = source.posterior(X).variance
                close(other.posterior(X).variance, expected)
        fixed = make_model(X, Y, m=4, learn_inducing_points=False)
        fixed.load_state_dict(state)
        assert torch.equal(fixed.inducing_points, X[:4])
        source.load_state_dict(older)  # of before points were learned
        assert torch.equal(source.inducing_points, X[:6])
        close(source.eval().posterior(X).mean, never.posterior(X).mean)

    def test_copies_and_moves(self, double):
        X, Y = make_data(**double)
        model = learned(**double)
        expected, points = model.posterior(X).mean, model.inducing_points
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            close(twin.posterior(X).mean, expected)
            assert torch.equal(twin.inducing_points, points)
        fantasy = model.condition_on_observations(X[:2] + 0.01, Y[:2])
        assert torch.equal(fantasy.inducing_points, points)
        single = copy.deepcopy(model).to(torch.float32)
        assert single.inducing_points.dtype == torch.float32
        X, Y = make_data(150, **double)
        targets = model.outcome_transform(Y)[0].squeeze(-1)
        model.set_train_data(X, targets, strict=False)
        assert torch.equal(model.inducing_points, points)

    @pytest.mark.parametrize("num_given", [0, 6])
    def test_resparsify_forgets_them(self, num_given, double):
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
