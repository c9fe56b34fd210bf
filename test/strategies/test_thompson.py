"""Thompson sampling by sample paths: posteriors, domains, batches, resume."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from box_table import BOUNDS, LAM, OPTIONS, THOROUGH
from box_table import make_kernel as box_kernel
from box_table import objective as box_objective
from gpytorch.kernels import LinearKernel, RBFKernel
from strategy_table import (
    TABLE,
    are_alike,
    make_candidates,
    make_kernel,
    objective,
)
from torch import Tensor

from botorch_sparse.strategies import Constraint, Objective, ThompsonSampling
from botorch_sparse.strategies.surrogates.box_posterior import BoxPosterior

OUTSIDE = torch.tensor([[1.5, -0.5], [0.1, 2.0]], dtype=torch.float64)


def on_table(**kwargs: Any) -> Any:
    return TABLE["thompson"](**kwargs)


def on_box(**kwargs: Any) -> Any:
    """With a kernel, unless told otherwise."""
    plain: dict[str, Any] = {"bounds": BOUNDS, "optimizer_options": OPTIONS}
    if "covar_module" not in kwargs:
        plain |= {"covar_module": box_kernel(), "lam": LAM}
    return ThompsonSampling(**plain | {"batch_size": 3} | kwargs)


def test_batch_size() -> None:
    strategy = on_table(batch_size=6)
    assert len(strategy.ask()) == 6  # drawn uniformly
    strategy.run(objective, 6, progress=False)
    assert len(strategy.ask()) == 6 and len(strategy.ask(4)) == 4
    assert len(strategy.ask(9)) == 6


def test_points_of_a_batch_differ_by_what_is_not_known() -> None:
    """Where all is known each path has the same maximizer; far from that they vary."""
    strategy = on_table(batch_size=30, lam=1e-6)
    X = strategy.candidates
    strategy.tell(X[:10], objective(X[:10]))
    assert len(set(strategy.ask().indices.tolist())) > 5
    known = on_table(batch_size=30, lam=1e-6)
    known.tell(X, 10 * X[:, 0])
    assert set(known.ask().indices.tolist()) == {int(X[:, 0].argmax())}


@pytest.mark.parametrize("kernel", [LinearKernel(), make_kernel() * make_kernel()])
def test_boxes_need_random_features(kernel: Any) -> None:
    kernel = kernel.double().requires_grad_(False)
    with pytest.raises(UnsupportedError, match="need RBFKernel or MaternKernel"):
        on_box(covar_module=kernel, lam=0.1)


@pytest.mark.slow
def test_finds_the_best() -> None:
    """Better than as many random rows, on each of four seeds."""
    X = make_candidates(400)
    values = objective(X)
    for seed in range(4):
        strategy = ThompsonSampling(X, batch_size=8, seed=seed)
        history = strategy.run(objective, 60, progress=False)
        assert len(set(history.indices.tolist())) == 60
        # of random ones each is among the three best with a probability of 3 in 400
        assert float(history.Y.max()) >= float(values.sort().values[-3])


def test_devices(double: dict[str, Any]) -> None:
    """A run that is resumed on the device is the one that was not, with data there."""
    kwargs = {
        "candidates": make_candidates(40, **double),
        "covar_module": make_kernel(**double),
    }
    first, other = on_table(**kwargs), on_table(seed=9, **kwargs)
    outside = OUTSIDE.to(first.candidates)
    first.tell(outside, objective(outside))
    first.run(objective, 10, progress=False)
    batch = first.ask(3)
    first.tell(batch.X[:1], objective(batch.X[:1]).cpu())
    other.load_state_dict(first.state_dict())
    for strategy in (first, other):
        history = strategy.run(objective, 22, progress=False)
        assert history.X.device == strategy.candidates.device
    assert are_alike(first, other)
    mean, sd = other.predict(other.candidates)
    assert mean.device == sd.device == other.candidates.device


@pytest.mark.slow
def test_paths_on_a_box_have_the_moments_of_its_posterior() -> None:
    """By 4,000 paths within five standard errors; less far from the mean by a factor.

    On top of that is the error of the random features.
    """
    strategy, num = on_box(), 4000
    X = strategy.box.sample(6, 0)
    strategy.tell(X, box_objective(X))
    strategy.learn()
    Z, view = strategy.box.sample(30, 1), strategy.surrogate.view
    mean, sd = strategy.predict(Z)
    for factor in (None, 0.5, 0.0):
        spread = None if factor is None else torch.full((num,), factor).double()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            paths = view.paths(num, spread)
        number = torch.arange(num).repeat_interleave(len(Z))
        values = view.in_units(paths(Z.repeat(num, 1), number)).view(num, -1).detach()
        expected = sd * (1.0 if factor is None else factor)
        error = (values.mean(0) - mean).abs()
        assert bool((error <= 5 * expected / num**0.5 + 1e-6).all())
        error = (values.std(0) - expected).abs()
        assert bool((error <= expected * (5 / (2 * num) ** 0.5 + 0.05) + 1e-6).all())


@pytest.mark.parametrize("double", [True, False])
def test_a_point_on_a_box_maximizes_its_path(
    double: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each the path with its own number, which has two known peaks here."""
    bounds = BOUNDS.double() if double else BOUNDS.float()
    options = {"num_restarts": 8, "raw_samples": 64}
    strategy = on_box(bounds=bounds, optimizer_options=options, batch_size=5)
    X = strategy.box.sample(6, 0)
    strategy.tell(X, box_objective(X))
    peaks = strategy.box.sample(10, 2).view(5, 2, 2)

    def paths(view: BoxPosterior, num: int) -> Callable[[Tensor, Tensor], Tensor]:
        def values(X: Tensor, number: Tensor) -> Tensor:
            away = (X.unsqueeze(-2) - peaks[number]).square().sum(-1)
            return (X.new_tensor([1.0, 0.9]) - 9 * away).amax(-1)

        return values

    monkeypatch.setattr(BoxPosterior, "paths", paths)
    found = strategy.ask().X
    assert found.dtype == bounds.dtype
    assert torch.allclose(found, peaks[:, 0], atol=1e-2)


@pytest.mark.parametrize("num_outcomes", [1, 2])
def test_points_of_few_steps_keep_to_a_nonlinear_constraint(num_outcomes: int) -> None:
    """Searches that end outside go back to where they began."""
    seen = list[float]()

    def starts(*, num_restarts: int, inner: float, **_: Any) -> Tensor:
        seen.append(inner)
        return inner * torch.rand(num_restarts, 1, 2).double()

    outcomes = [Objective("gain"), Constraint("heat", upper=0.1)][:num_outcomes]
    strategy = on_box(
        outcomes=outcomes,
        batch_size=8,
        optimizer_options={
            "nonlinear_inequality_constraints": [(lambda x: 0.5 - x @ x, True)],
            "ic_generator": starts,
            "inner": 0.4,
            "num_restarts": 2,
            "options": {"maxiter": 2},
        },
    )
    X = strategy.box.sample(8, 0)
    Y = torch.stack([box_objective(X), X[:, 0]], dim=-1)[:, :num_outcomes]
    strategy.tell(X, Y)
    found = strategy.ask().X
    assert seen == [0.4] * 8
    assert bool((found.square().sum(-1) <= 0.5 + 1e-8).all())


def test_options_that_a_search_sets_itself_are_refused() -> None:
    with pytest.raises(InputDataError, match=r"\['return_best_only'\], which each"):
        on_box(optimizer_options={"return_best_only": True})


def test_paths_without_noise_bring_no_warnings() -> None:
    """A path is rounded more than a line search would have it."""
    kernel = RBFKernel(ard_num_dims=3).double().requires_grad_(False)
    kernel.lengthscale = 0.7
    bounds = torch.tensor([[0.0] * 3, [1.0] * 3]).double()
    strategy = ThompsonSampling(
        bounds=bounds, covar_module=kernel, lam=1e-6, batch_size=10, seed=0
    )
    X = strategy.box.sample(200, 0)
    strategy.tell(X, torch.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(strategy.ask()) == 10


def test_points_on_a_box_scatter_by_what_is_not_known() -> None:
    """Where all is known they are maximizers of the mean."""
    strategy = on_box(optimizer_options=THOROUGH, lam=1e-4, batch_size=4)
    X = strategy.box.sample(64, 0)
    strategy.tell(X, 3 * torch.sin(2 * X[:, 0]) * torch.cos(3 * X[:, 1]))
    Z = strategy.box.sample(2048, 1)
    mean, _ = strategy.predict(Z)
    found, _ = strategy.predict(strategy.ask().X)
    assert float(found.min()) > float(mean.max()) - 0.05
    unknown = on_box(batch_size=6, seed=3)
    unknown.tell(X[:3], box_objective(X[:3]))
    assert float(torch.pdist(unknown.ask().X).max()) > 0.5
