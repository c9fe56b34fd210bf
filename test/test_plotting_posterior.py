"""Pictures of posteriors show the moments and points of the posterior itself."""

from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from refusals import refused
from strategy_table import make_kernel
from torch import Tensor

from botorch_sparse.inducing.certificate import variance_inflation
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.strategies import BBKB, GPUCB, GSSBO, SBPE, RandomSearch

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from botorch_sparse.plotting import (
    certified_step,
    plot_certificates,
    plot_confidence_band,
    plot_elimination,
    plot_slice,
)


def wave(X: Tensor) -> Tensor:
    return (6 * X).sin().sum(-1)


def line(num: int, double: dict[str, Any]) -> Tensor:
    return torch.linspace(0, 1, num, **double).unsqueeze(-1)


def drawn(figure: Figure) -> dict[str, Any]:
    """Horizontal and vertical data of each labelled line."""
    ax = figure.axes[0]
    return {
        str(found.get_label()): torch.stack(
            [torch.as_tensor(found.get_xdata()), torch.as_tensor(found.get_ydata())]
        ).double()
        for found in ax.get_lines()
    }


def band(figure: Figure) -> tuple[Tensor, Tensor]:
    """Lower and upper edge at each horizontal place."""
    vertices = torch.as_tensor(figure.axes[0].collections[0].get_paths()[0].vertices)
    places = vertices[:, 0].unique()
    sides = [vertices[vertices[:, 0] == x, 1] for x in places]
    return torch.stack([s.min() for s in sides]), torch.stack([s.max() for s in sides])


@pytest.fixture
def strategy(double):
    made = BBKB(line(101, double), make_kernel(0.2, **double), lam=1e-2, seed=0)
    made.run(wave, 60, progress=False)
    return made


def test_the_band_of_a_strategy_on_a_table_is_its_own(strategy):
    figure = plot_confidence_band(strategy, truth=wave)
    found, X = drawn(figure), strategy.candidates
    mean, variance = strategy.posterior.moments(X)
    width = (variance * strategy.radius.botorch_beta(strategy.statistics)).sqrt()
    assert torch.allclose(found["mean"][1], mean.cpu(), atol=1e-6)
    lower, upper = band(figure)
    assert torch.allclose(lower, (mean - width).cpu(), atol=1e-5)
    assert torch.allclose(upper, (mean + width).cpu(), atol=1e-5)
    assert torch.allclose(found["truth"][1], wave(X).cpu())
    S = strategy.posterior.inducing_points[:, 0].cpu()
    assert torch.equal(found["inducing points"][0], S)
    observed = torch.stack([strategy.history.X[:, 0], strategy.history.Y]).cpu()
    assert torch.equal(found["observations"], observed)


def test_an_exact_strategy_has_a_band_and_no_inducing_points(double):
    made = GPUCB(line(31, double), make_kernel(0.2, **double), lam=1e-2, seed=0)
    made.run(wave, 10, progress=False)
    assert set(drawn(plot_confidence_band(made))) == {"mean", "observations"}


def test_the_band_of_a_model_is_in_the_units_of_the_data(double):
    X = 5 * line(15, double)
    model = SingleTaskGP(
        X, 100 + 10 * wave(X).unsqueeze(-1), input_transform=Normalize(1)
    ).eval()
    figure = plot_confidence_band(model, beta=9.0)
    found = drawn(figure)
    assert torch.allclose(found["observations"][0], X[:, 0].cpu())
    assert torch.allclose(found["observations"][1], 100 + 10 * wave(X).cpu())
    grid = 5 * line(400, double)
    posterior = model.posterior(grid)
    assert torch.allclose(found["mean"][1], posterior.mean[:, 0].detach().cpu())
    lower, upper = band(figure)
    sd = posterior.variance[:, 0].detach().sqrt().cpu()
    assert torch.allclose((upper - lower) / 2, 3 * sd, atol=1e-6)
    assert found["mean"][0][0] == 0 and found["mean"][0][-1] == 5


def test_a_sparse_model_shows_its_inducing_points(double):
    X = line(15, double)
    S = torch.tensor([[0.1], [0.8]], **double)
    model = SparseSingleTaskGP(X, wave(X).unsqueeze(-1), inducing_points=S)
    found = drawn(plot_confidence_band(model))
    assert torch.equal(found["inducing points"][0], S[:, 0].cpu())


def test_a_model_of_a_subset_shows_all_data_and_what_is_in_it(double):
    bounds = torch.tensor([[0.0], [2.0]], **double)
    made = GSSBO(
        bounds=bounds,
        subset_size=5,
        num_initial=4,
        optimizer_options={"num_restarts": 1, "raw_samples": 8},
    )
    made.run(wave, 6, progress=False)
    found = drawn(plot_confidence_band(made))
    history = made.history
    observed = torch.stack([history.X[:, 0], history.Y]).cpu()
    assert torch.equal(found["observations"], observed)
    kept = history.X[made.model.subset_indices, 0].cpu()
    assert torch.equal(found["inducing points"][0], kept) and len(kept) == 5


def test_a_function_of_moments_is_drawn_with_what_is_given(double):
    X = line(5, double).flip(0)
    figure = plot_confidence_band(
        lambda X: (X[:, 0], 0 * X[:, 0] + 0.25),
        X,
        observations=(X[:2], X[:2, 0]),
        inducing_points=X[:1],
    )
    found = drawn(figure)
    assert found["mean"].tolist() == [[0, 0.25, 0.5, 0.75, 1]] * 2  # in order
    lower, upper = band(figure)
    assert torch.allclose(upper - lower, torch.full_like(lower, 2.0))  # 2 sqrt(4) 0.5
    assert len(found) == 3


@pytest.mark.parametrize("quantity", ["mean", "sd", "ucb"])
def test_a_slice_of_a_box_goes_through_the_best_point(quantity, double):
    bounds = torch.tensor([[0.0, 0, 0], [1, 2, 3]], **double)
    made = BBKB(
        bounds=bounds,
        covar_module=make_kernel(1.0, **double),
        lam=1e-2,
        num_initial=8,
        optimizer_options={"num_restarts": 1, "raw_samples": 8},
    )
    made.run(wave, 8, progress=False)
    figure = plot_slice(made, quantity, dims=(2, 0), resolution=5)
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x3", "x1")
    best = made.history.X[made.history.Y.argmax()]
    X = best.repeat(25, 1)
    X[:, [2, 0]] = torch.cartesian_prod(
        torch.linspace(0, 3, 5, **double), torch.linspace(0, 1, 5, **double)
    )
    posterior = made.model.posterior(X)
    sd = posterior.variance.detach().sqrt()
    beta = made.radius.botorch_beta(made.statistics)
    mean = posterior.mean.detach()
    expected = {"mean": mean, "sd": sd, "ucb": mean + beta**0.5 * sd}[quantity]
    values = ax.collections[0]
    assert values.zmin == pytest.approx(float(expected.min()), abs=1e-5)
    assert values.zmax == pytest.approx(float(expected.max()), abs=1e-5)
    assert len(drawn(figure)["observations"][0]) == 8


def test_a_slice_of_a_table_colours_its_candidates(double):
    X = torch.rand(40, 2, **double)
    made = BBKB(X, make_kernel(0.5, **double), lam=1e-2, seed=0)
    made.run(wave, 20, progress=False)
    dots = plot_slice(made).axes[0].collections[0]
    assert torch.equal(torch.as_tensor(dots.get_offsets().data), X.cpu())
    mean = made.posterior.mean(X).cpu()
    assert torch.allclose(torch.as_tensor(dots.get_array().data), mean, atol=1e-6)


def test_certificates_of_a_run(strategy):
    n, certificate = certified_step(strategy)
    assert n == 60 and certificate.num_inducing == strategy.posterior.num_inducing
    counts = strategy.history.point.unique(return_counts=True)[1]
    assert certificate.num_points == len(counts)
    # one point with all of its repeats can be no worse than the whole
    residual = strategy.surrogate.view.residual_trace(strategy.record)
    assert certificate.lambda_max <= residual + 1e-9
    assert certificate.trace == pytest.approx(residual, rel=1e-6)
    found = drawn(plot_certificates({"BBKB": [(30, certificate), (60, certificate)]}))
    assert found["BBKB"].tolist() == [[30, 60], [pytest.approx(certificate.alpha)] * 2]


def test_a_table_without_a_kernel_is_drawn_in_its_own_units(double):
    X = 5 * line(30, double)
    made = BBKB(X, batch_size=4, num_initial=6)
    made.run(lambda X: 100 + 9 * wave(X), 14, progress=False)
    found, (mean, sd) = drawn(plot_confidence_band(made)), made.predict(X)
    assert torch.equal(found["mean"], torch.stack([X[:, 0], mean]).cpu())
    lower, upper = band(plot_confidence_band(made, beta=1.0))
    assert torch.allclose((upper - lower) / 2, sd.cpu(), atol=1e-6)
    S = X[list(made.surrogate.inducing), 0].cpu()
    assert torch.equal(found["inducing points"][0], S) and len(S) > 1
    num_points = len(made.history.indices.unique())
    assert certified_step(made)[1].num_points == num_points


@pytest.fixture
def elimination(double):
    made = SBPE(
        line(41, double),
        make_kernel(0.2, **double),
        num_evaluations=60,
        lam=1e-2,
        seed=0,
    )
    made.run(wave, 60, progress=False)
    return made


def test_certificates_of_sbpe_come_with_its_history(elimination):
    rounds = elimination.history.rounds
    found = drawn(plot_certificates({"S-BPE": elimination.history}))["S-BPE"]
    lengths = torch.tensor([r.num_evaluations for r in rounds]).cumsum(0)
    assert found[0].tolist() == lengths.tolist()
    assert found[1].tolist() == pytest.approx(
        [variance_inflation(r.lambda_max) for r in rounds]
    )


def test_a_box_is_certified_by_its_model(double):
    bounds = torch.tensor([[0.0], [1]], **double)
    made = BBKB(bounds=bounds, covar_module=make_kernel(0.5, **double), lam=1e-1)
    made.tell(line(40, double), wave(line(40, double)))
    made.ask(1)
    n, certificate = certified_step(made)
    assert n == 40 and not made.model.is_exact
    assert certificate == made.model.certificate()


def test_elimination_draws_each_interval_once(elimination):
    figure = plot_elimination(elimination)
    ax, alive = figure.axes[0], elimination.survivors.cpu()
    assert 0 < alive.sum() < len(alive)
    found = {str(c.get_label()): c for c in ax.collections}
    for label, chosen in (("survives", alive), ("ruled out", ~alive)):
        segments = torch.as_tensor(np.stack(found[label].get_segments()))
        assert torch.equal(segments[:, 0, 0], elimination.candidates[chosen, 0].cpu())
        assert torch.equal(
            segments[:, 0, 1], elimination.progress.left.lower[chosen].cpu()
        )
        assert torch.equal(
            segments[:, 1, 1], elimination.progress.left.upper[chosen].cpu()
        )
    level = float(ax.get_lines()[0].get_ydata()[0])
    assert level == float(elimination.progress.left.lower[elimination.survivors].max())


def test_what_cannot_be_drawn_is_refused(double):
    X = line(9, double)
    fresh = SBPE(X, make_kernel(0.2, **double), num_evaluations=9)
    for source in (RandomSearch(X), fresh, BBKB(X, make_kernel(0.2, **double))):
        with pytest.raises(UnsupportedError, match="no posterior to draw"):
            plot_confidence_band(source)
    refused("before", plot_elimination, fresh)
    with pytest.raises(UnsupportedError, match="no inducing points to certify"):
        certified_step(fresh)
    refused("need a strategy, a BoTorch model", plot_confidence_band, 3)


def test_wrong_arguments_of_a_picture_are_refused(double):
    def moments(X: Tensor) -> tuple[Tensor, Tensor]:
        return X[:, 0], X[:, 0]

    X = torch.rand(4, 2, **double)
    refused("Got no X", plot_confidence_band, moments)
    refused(r"shape \(4, 2\)", plot_confidence_band, moments, X)
    refused("Got no bounds", plot_slice, moments)
