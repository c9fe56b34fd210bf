"""Thompson sampling by sample paths: posteriors, domains, batches, resume."""

from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from box_table import BOUNDS, LAM, OPTIONS, THOROUGH
from box_table import make_kernel as box_kernel
from box_table import objective as box_objective
from gpytorch.kernels import LinearKernel, MaternKernel, ScaleKernel
from gpytorch.means import ZeroMean
from scipy.stats import chi2
from strategy_table import (
    TABLE,
    equal,
    make_candidates,
    make_kernel,
    objective,
    without_times,
)
from torch import Tensor

from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import ThompsonSampling

OUTSIDE = torch.tensor([[1.5, -0.5], [0.1, 2.0]], dtype=torch.float64)
NOISY = {"lam": 0.5}


def on_table(**kwargs: Any) -> Any:
    return TABLE["thompson"](**kwargs)


def on_box(**kwargs: Any) -> Any:
    """With a kernel, unless told otherwise."""
    plain: dict[str, Any] = {"bounds": BOUNDS, "optimizer_options": OPTIONS}
    if "covar_module" not in kwargs:
        plain |= {"covar_module": box_kernel(), "lam": LAM}
    return ThompsonSampling(**plain | {"batch_size": 3} | kwargs)


def dense_paths(strategy: Any, num: int) -> np.ndarray:
    """Maximizers of draws from the dense posterior, with all covariances.

    DTC for the evaluations, the prior's covariance less its embedded part beside, and
    the constant of generalized least squares.
    """
    history, X = strategy.history, strategy.candidates

    def k(A: Tensor, B: Tensor) -> np.ndarray:
        square = (A.unsqueeze(-2) - B.unsqueeze(-3)).square().sum(-1)
        return torch.exp(-0.5 * square / 0.3**2).numpy()

    S = history.points(torch.tensor(strategy.state_dict()["surrogate"]["inducing"]))
    eigenvalues, V = np.linalg.eigh(k(S, S))
    basis = V / np.sqrt(eigenvalues)
    phi, data = k(X, S) @ basis, k(history.X, S) @ basis
    y, noise = history.Y.numpy(), strategy.surrogate.lam
    covariance = data @ data.T + noise * np.eye(len(y))
    gain = np.linalg.solve(covariance, data @ phi.T).T
    weights = np.linalg.solve(covariance, np.ones(len(y)))
    c = weights @ y / weights.sum()
    mean = c + gain @ (y - c)
    left = k(X, X) - gain @ data @ phi.T
    g = np.random.default_rng(0)
    return g.multivariate_normal(mean, left, num, method="eigh").argmax(-1)


def test_choices_are_draws_of_the_posterior() -> None:
    """Frequencies of two thousand points against 100,000 dense draws.

    A correct sampler fails with a probability of 1e-6.
    """
    X = make_candidates(30)
    strategy = on_table(candidates=X, batch_size=50, lam=0.5)
    strategy.tell(X[:8], objective(X[:8]))
    rows = []
    for _ in range(40):
        batch = strategy.ask()
        assert len(batch) == 50
        rows += batch.indices.tolist()
        strategy.withdraw(batch)
    ours = np.bincount(rows, minlength=30)
    theirs = np.bincount(dense_paths(strategy, 100_000), minlength=30)
    rare = ours + theirs < 100
    a, b = (np.append(n[~rare], n[rare].sum()).astype(float) for n in (ours, theirs))
    ratio = np.sqrt(b.sum() / a.sum())
    value = (((ratio * a - b / ratio) ** 2) / np.maximum(a + b, 1)).sum()
    assert ours.max() < 0.5 * ours.sum() and len(a) > 5
    assert value < chi2.isf(1e-6, len(a) - 1)


def test_batch_size() -> None:
    strategy = on_table(batch_size=6)
    assert len(strategy.ask()) == 6  # drawn uniformly
    strategy.run(objective, 6, progress=False)
    assert len(strategy.ask()) == 6 and len(strategy.ask(4)) == 4
    assert len(strategy.ask(9)) == 6
    with pytest.raises(InputDataError, match="batch_size=0"):
        on_table(batch_size=0)


def test_points_of_a_batch_differ_by_what_is_not_known() -> None:
    """Where all is known each path has the same maximizer; far from that they vary."""
    strategy = on_table(batch_size=30, lam=1e-6)
    X = strategy.candidates
    strategy.tell(X[:10], objective(X[:10]))
    assert len(set(strategy.ask().indices.tolist())) > 5
    known = on_table(batch_size=30, lam=1e-6)
    known.tell(X, 10 * X[:, 0])
    assert set(known.ask().indices.tolist()) == {int(X[:, 0].argmax())}


def test_an_excluded_row_is_not_chosen() -> None:
    """The one that failed was the best of nearly all paths."""
    strategy = on_table(batch_size=20, lam=1e-4)
    X = strategy.candidates
    strategy.tell(X[:100], 5 * X[:100, 0])
    batch = strategy.ask()
    rows = batch.indices.tolist()
    favourite = max(set(rows), key=rows.count)
    strategy.fail([int(batch.ids[rows.index(favourite)])])
    assert favourite not in strategy.ask().indices.tolist()


@pytest.mark.parametrize("kernel", [LinearKernel(), make_kernel() * make_kernel()])
@pytest.mark.parametrize("is_box", [False, True], ids=["table", "box"])
def test_kernels_without_random_features(kernel: Any, is_box: bool) -> None:
    kernel = kernel.double().requires_grad_(False)
    with pytest.raises(UnsupportedError, match="need RBFKernel or MaternKernel"):
        (on_box if is_box else on_table)(covar_module=kernel, lam=0.1)


@pytest.mark.parametrize("kernel", [MaternKernel(1.5), ScaleKernel(MaternKernel(2.5))])
def test_other_kernels(kernel: Any) -> None:
    kernel = kernel.double().requires_grad_(False)
    strategy = on_table(covar_module=kernel, mean_module=ZeroMean())
    history = strategy.run(objective, 40, progress=False)
    best = float(objective(strategy.candidates).max())
    assert float(history.Y.max()) > best - 0.1


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


def test_global_randomness_has_no_part() -> None:
    runs = []
    for seed in (4, 4, 5):
        torch.rand(3)
        state = torch.get_rng_state()
        strategy = on_table(seed=seed)
        runs.append(strategy.run(objective, 25, progress=False).indices.tolist())
        assert torch.equal(torch.get_rng_state(), state)
    assert runs[0] == runs[1] != runs[2]


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
    states = [without_times(s.state_dict()) for s in (first, other)]
    assert equal(*states)
    mean, sd = other.predict(other.candidates)
    assert mean.device == sd.device == other.candidates.device


def test_a_box() -> None:
    """Points inside of the bounds that are new, by seed, of a size of their own."""
    runs = []
    for seed in (1, 1, 2):
        strategy = on_box(seed=seed)
        X = strategy.box.sample(6, 0)
        strategy.tell(X, box_objective(X))
        batch = strategy.ask()
        assert len(batch) == 3 and len(batch.X.unique(dim=0)) == 3
        assert len(strategy.ask(2)) == 2
        points = strategy.X_pending
        assert bool(((points >= BOUNDS[0]) & (points <= BOUNDS[1])).all())
        runs.append(points)
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_a_point_on_a_box_maximizes_its_path() -> None:
    """Where all is known that is the maximizer of the mean; else points scatter."""
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


# BoTorch hands all options to SciPy, those of its sampler too.
@pytest.mark.filterwarnings("ignore:Unknown solver options")
def test_constraints() -> None:
    ones = torch.ones(2, dtype=torch.float64)
    bounds = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)
    quick = {"n_burnin": 100, "n_thinning": 4, "maxiter": 20}
    kernel = make_kernel(0.4)
    strategy = on_box(
        bounds=bounds,
        covar_module=kernel,
        lam=0.05,
        inequality_constraints=[(torch.tensor([0, 1]), -ones, -0.7)],
        fixed_features={2: 0.25},
        optimizer_options=OPTIONS | {"options": quick},
    )
    X = strategy.run(lambda X: X.sum(-1), 10, progress=False).X
    assert bool(strategy.box.is_feasible(X).all()) and len(X) == 10
    assert bool((X[:, 2] == 0.25).all())
    assert float((X[:, 0] + X[:, 1]).max()) > 0.69  # the optimum is at the bound


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "inferred"])
def test_resume_on_a_box(is_known: bool) -> None:
    """Bit-identical, in the middle of a batch."""
    given = {} if is_known else {"covar_module": None}
    schedule = RefitSchedule(every=8) if not is_known else None
    first, other = (on_box(seed=s, refit=schedule, **given) for s in (3, 9))
    X = first.box.sample(6, 0)
    first.tell(X, box_objective(X))
    batch = first.ask()
    first.tell(batch.X[:1], box_objective(batch.X[:1]))
    other.load_state_dict(first.state_dict())
    for strategy in (first, other):
        strategy.run(box_objective, 14, progress=False)
        strategy.ask(1)
    states = [without_times(s.state_dict()) for s in (first, other)]
    assert equal(*states)
    with pytest.raises(InputDataError, match="'batch_size'"):
        on_box(batch_size=4, refit=schedule, **given).load_state_dict(states[0])
