"""GSSBO and RSSBO: samples in the model, acquisition functions, failures, arguments."""

from typing import Any

import box_table
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound
from botorch.exceptions import InputDataError
from box_table import BOUNDS, OPTIONS, TABLE, objective
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_sparse.acquisition import (
    BatchUpperConfidenceBound,
    BBKBRadius,
    FixedBeta,
    GSSBORadius,
    SrinivasCompactRadius,
)
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import GSSBO, RSSBO
from botorch_sparse.strategies.gssbo.gssbo import subset_statistics

GRID = torch.cartesian_prod(
    torch.linspace(-1, 2, 60).double(), torch.linspace(0, 1, 40).double()
)


def points(num: int, **tkwargs: Any) -> Tensor:
    """`num x 2` points in the box, the same each time."""
    g = torch.Generator().manual_seed(1)
    unit = torch.rand(num, 2, generator=g, dtype=torch.float64).to(**tkwargs)
    low, high = BOUNDS.to(unit)
    return low + (high - low) * unit


def make(cls: type[GSSBO] = GSSBO, **overrides: Any) -> GSSBO:
    """A small strategy whose hyperparameters are given."""
    arguments = {
        "covar_module": box_table.make_kernel(),
        "lam": 0.05,
        "bounds": BOUNDS,
        "num_initial": 4,
        "optimizer_options": OPTIONS,
    }
    return cls(**arguments | {"subset_size": 8} | overrides)


def test_initial_design() -> None:
    strategy = TABLE["gssbo"]()
    first = strategy.ask(3)
    second = strategy.ask()
    assert (len(first), len(second)) == (3, 1) and strategy.model is None
    assert strategy.history.num_inducing.tolist() == [0, 0]
    for batch in (second, first):
        strategy.tell(batch, objective(batch.X))
    third = strategy.ask(5)
    assert len(third) == 1 and strategy.history.num_inducing.tolist() == [0, 0, 4]
    assert len(GSSBO(bounds=BOUNDS).ask()) == len(RSSBO(bounds=BOUNDS).ask()) == 20
    strategy.withdraw(third)
    assert len(strategy.pending) == 0
    late = TABLE["gssbo"]()
    late.withdraw(late.ask())
    assert len(late.ask()) == 4  # nothing is known: the design again
    assert len(late.ask()) == 1  # all of it pending, and no model yet


@pytest.mark.parametrize("name", ["gssbo", "gssbo-known", "rssbo"])
def test_samples_in_the_model(name: str) -> None:
    """M samples, the initial ones and the newest one among them, as a record says."""
    # Fitted as seldom as that, the samples are chosen anew all the same.
    change = {} if name == "gssbo-known" else {"refit": RefitSchedule(every=4)}
    strategy = TABLE[name](**change)
    size = strategy.buffer.size
    chosen = set()
    while len(strategy.history) < 12:
        batch = strategy.ask()
        strategy.tell(batch, objective(batch.X))
        index, n = strategy.model.subset_indices.tolist(), len(strategy.history)
        assert len(set(index)) == len(index) == min(n, size)
        assert {0, 1, 2, 3, n - 1} <= set(index)
        X = strategy.model.all_train_X
        assert torch.equal(X, strategy.history.X)
        chosen.add(tuple(sorted(index)))
    expected = [0] + [min(n, size) for n in range(4, 12)]
    assert strategy.history.num_inducing.tolist() == expected
    assert strategy.history.batches[-1].num_inducing == size
    assert 0 < strategy.history.selection_seconds < strategy.history.seconds
    assert len(chosen) > 6  # chosen anew each time


def test_a_warm_start_is_no_newest_sample() -> None:
    """Of many samples told at once, not all are forced in when a fit chooses anew."""
    strategy = TABLE["gssbo"]()
    strategy.tell(points(20), objective(points(20)))
    index = strategy.model.subset_indices.sort().values.tolist()
    assert len(index) == 7 and {0, 1, 2, 3, 19} <= set(index)
    assert index != [0, 1, 2, 3, 17, 18, 19]
    two = points(22)[20:]
    strategy.tell(two, objective(two))
    assert {20, 21} <= set(strategy.model.subset_indices.tolist())


def test_rssbo_is_the_random_selection() -> None:
    random = make(selection="random", seed=4)
    rssbo = make(RSSBO, seed=4)
    X = [s.run(objective, 11, progress=False).X for s in (random, rssbo)]
    assert torch.equal(*X)
    by_gradient = make(seed=4).run(objective, 11, progress=False).X
    assert torch.equal(X[0][:9], by_gradient[:9])  # up to the first choice of samples
    assert not torch.equal(X[0], by_gradient)


seen: list[Any] = []  # by `improvement`


def improvement(model: Any, X_pending: Tensor | None) -> Any:
    """Log-EI; a saved state knows it by its name."""
    seen.append((model, X_pending))
    return LogExpectedImprovement(model, best_f=model.all_train_Y.max())


def test_any_acquisition_function() -> None:
    """It gets the model and what is pending, and its maximizer is proposed."""
    seen.clear()
    strategy = make(acquisition=improvement)
    strategy.tell(points(6), objective(points(6)))
    first = strategy.ask()
    assert seen[0][0] is strategy.model and seen[0][1] is None
    strategy.ask()
    assert torch.equal(seen[1][1], first.X)
    acqf = improvement(strategy.model, None)
    best = acqf(GRID.unsqueeze(1)).max()
    assert acqf(first.X.unsqueeze(1)) > best - 0.05
    assert torch.tensor(strategy.history.batches[0].beta).isnan()
    state = strategy.state_dict()
    with pytest.raises(InputDataError, match="'acquisition'"):
        make().load_state_dict(state)


def test_upper_confidence_bound_by_default() -> None:
    """Its maximizers, of which the second counts the first as pending."""
    options = OPTIONS | {"num_restarts": 8, "raw_samples": 64}
    strategy = make(radius=FixedBeta(2.5), optimizer_options=options)
    strategy.tell(points(6), objective(points(6)))
    first, second = strategy.ask(), strategy.ask()
    model, grid = strategy.model, GRID.unsqueeze(1)
    for X, acqf in (
        (first.X, UpperConfidenceBound(model, 2.5)),
        (second.X, BatchUpperConfidenceBound(model, 2.5, first.X)),
    ):
        assert acqf(X.unsqueeze(1)) > acqf(grid).max() - 0.01
    assert strategy.history.batches[-1].beta == 2.5
    assert make().radius == FixedBeta(4.0)


def test_radius_of_theorem_5_2() -> None:
    """Practical constants need the number of evaluations; theory the measured error."""
    practical = GSSBORadius(2, 0.1, constants="practical")
    strategy = make(radius=practical)
    strategy.tell(points(20), objective(points(20)))
    strategy.ask()
    srinivas = SrinivasCompactRadius(2, 0.1, constants="practical")
    statistics = subset_statistics(srinivas, strategy.model, 20)
    assert statistics.num_evaluations == 20 and statistics.lambda_max == 0
    expected = srinivas.botorch_beta(statistics)
    assert strategy.history.batches[-1].beta == pytest.approx(expected)
    theory = GSSBORadius(2, 0.1, constants="theory")
    measured = subset_statistics(theory, strategy.model, 20)
    X, kernel = strategy.history.X, box_table.make_kernel()
    S = X[strategy.model.subset_indices]
    with torch.no_grad():
        K, cross = kernel(X).to_dense(), kernel(X, S).to_dense()
        error = K - cross @ torch.linalg.solve(kernel(S).to_dense(), cross.mT)
    assert measured.lam == pytest.approx(0.05, rel=1e-12)
    assert measured.lambda_max == pytest.approx(float(error.trace()) / 0.05, rel=1e-4)
    assert measured.lambda_max >= float(torch.linalg.eigvalsh(error)[-1]) / 0.05
    Y_norm = float(strategy.history.Y.norm())
    assert measured.feedback_norm == pytest.approx(Y_norm)
    grid = points(2000)
    sigma = strategy.model.posterior(grid).variance.min().sqrt()
    assert 0 < measured.min_std <= float(sigma)
    assert float(kernel(grid, X).to_dense().norm(dim=-1).max()) <= (
        measured.cross_covariance_norm
    )
    assert measured.cross_covariance_norm == pytest.approx(20**0.5)
    assert theory.multiplier(measured) > practical.multiplier(measured)


def test_hyperparameters_are_fitted_on_the_schedule() -> None:
    def fitted(strategy: GSSBO) -> list[int]:
        """Numbers of samples at which the hyperparameters changed."""
        found, before = [], None
        while len(strategy.history) < 9:
            batch = strategy.ask()
            strategy.tell(batch, objective(batch.X))
            now = strategy.model.covar_module.lengthscale.tolist()
            found += [len(strategy.history)] * (now != before)
            before = now
        return found

    strategy = TABLE["gssbo"](refit=RefitSchedule(every=4))
    assert fitted(strategy) == [4, 8]
    kernel = strategy.model.covar_module
    assert isinstance(kernel, MaternKernel) and kernel.nu == 2.5
    assert kernel.ard_num_dims == 2
    assert fitted(make()) == [4]  # a kernel that is given stays as it is


BAD: list[tuple[dict[str, Any], str]] = [
    ({"candidates": BOUNDS}, "Got candidates; GSSBO works on continuous domains"),
    ({"bounds": None}, "Got neither of candidates and bounds"),
    ({"subset_size": 4}, "subset_size=4 with num_initial=4; need a larger subset"),
    ({"Z": 1.0}, "Z=1.0; need a number above 1"),
    ({"radius": BBKBRadius(1.0, 1.0, 0.1)}, "need one of FixedBeta, GSSBORadius"),
    ({"covar_module": None}, "lam=0.05 without covar_module"),
]


@pytest.mark.parametrize("change, match", BAD)
def test_bad_arguments(change: dict[str, Any], match: str) -> None:
    with pytest.raises(InputDataError, match=match):
        make(**change)
    with pytest.raises(InputDataError, match=r"'noise_scale', 'reading'.* for a"):
        RSSBO(bounds=BOUNDS, reading="column", noise_scale=0.1)
