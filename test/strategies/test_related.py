"""Earlier campaigns of a strategy, against dense formulas."""

import copy
import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_sparse.kernels.related_kernel import RelatedKernel
from botorch_sparse.pools.compact_rows import CompactRows
from botorch_sparse.pools.sample_paths import SamplePaths
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPUCB,
    CandidateTable,
    Constraint,
    ExpectedImprovement,
    Objective,
    Strategy,
    ThompsonSampling,
)
from botorch_sparse.strategies.data import initial_design
from botorch_sparse.strategies.surrogates.related import campaign_mean

X = torch.rand(300, 3, generator=torch.Generator().manual_seed(0)).double()
OLD = torch.rand(120, 3, generator=torch.Generator().manual_seed(1)).double()
STRATEGIES = [BBKB, BKB, ExpectedImprovement, GPUCB, ThompsonSampling]


def objective(Z: Tensor) -> Tensor:
    """A function with several hills, which no few points tell."""
    return torch.sin(9 * Z[:, 0]) * torch.cos(7 * Z[:, 1]) + 0.3 * Z[:, 2]


def rank_after(strategy: Strategy, rounds: int) -> int:
    """Of the best row, after some rounds."""
    for _ in range(rounds):
        batch = strategy.ask(4)
        strategy.tell(batch, objective(batch.X))
    return 1 + int((objective(X) > strategy.history.Y.max()).sum())


def test_the_kernel_is_a_sum() -> None:
    kernel = RelatedKernel(2, 5).double()
    Z = torch.randn(7, 5, generator=torch.Generator().manual_seed(2)).double()
    for part, scale in zip(kernel.kernels, (0.3, 0.5, 2.0), strict=True):
        part.outputscale = scale
    scaled = Z[:, :3] / kernel.kernels[0].base_kernel.lengthscale.squeeze(0)
    squares = (scaled.unsqueeze(0) - scaled.unsqueeze(1)).square().sum(-1)
    by_hand = 0.3 * (-0.5 * squares).exp()
    by_hand += 0.5 * Z[:, 3].outer(Z[:, 3]) + 2.0 * Z[:, 4].outer(Z[:, 4])
    assert torch.allclose(kernel(Z).to_dense(), by_hand)
    assert torch.allclose(kernel(Z, diag=True), by_hand.diagonal())


def dense(
    K: np.ndarray, k: np.ndarray, y: np.ndarray, noise: float, constant: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and what the data explain; a constant by generalized least squares."""
    weights = np.linalg.inv(K + noise * np.eye(len(y)))
    if constant is None:
        constant = float((weights @ y).sum() / weights.sum())
    mean = constant + k @ weights @ (y - constant)
    return mean, np.einsum("ij,jk,ik->i", k, weights, k)


def rbf(A: np.ndarray, B: np.ndarray, lengthscale: np.ndarray) -> np.ndarray:
    squares = ((A[:, None] / lengthscale - B[None] / lengthscale) ** 2).sum(-1)
    values: np.ndarray = np.exp(-0.5 * squares)
    return values


def test_the_posterior_is_that_of_the_autoregressive_model() -> None:
    """The earlier campaign's mean, then the new one's, both by dense formulas."""
    values = 10.0 + 3.0 * objective(OLD)
    strategy = ExpectedImprovement(X, related=[(OLD, values)], seed=0)
    told = torch.arange(0, 300, 17)
    Y = 5.0 - 2.0 * objective(X[told])
    strategy.tell(X[told], Y)
    strategy.learn()
    source, prior = strategy.surrogate.source, strategy.surrogate.view.prior
    low, high = X.aminmax(dim=0)
    scaled, old = (((Z - low) / (high - low)).numpy() for Z in (X, OLD))
    (known,) = source.inputs.campaigns
    standard = ((values - values.mean()) / values.std()).numpy()
    ell = known.covar_module.lengthscale.detach().numpy()
    noise, constant = float(known.likelihood.noise), float(known.mean_module.constant)
    K, k = rbf(old, old, ell), rbf(scaled, old, ell)
    mu, _ = dense(K, k, standard, noise, constant)
    assert torch.allclose(
        campaign_mean(known, source.inputs(X)[:, :3]), torch.from_numpy(mu), atol=1e-6
    )
    first, second = prior.covar_module.kernels
    ell = first.base_kernel.lengthscale.detach().numpy()
    every = float(first.outputscale) * rbf(scaled, scaled, ell)
    every += float(second.outputscale) * np.outer(mu, mu)
    y, rows = (Y / prior.scale).numpy(), told.numpy()
    mean, explained = dense(
        every[np.ix_(rows, rows)], every[:, rows], y, prior.lam, None
    )
    found = strategy.predict(X)
    assert found is not None
    assert np.allclose(found[0].numpy(), prior.scale * mean, rtol=1e-5, atol=1e-6)
    sd = prior.scale * np.sqrt(every.diagonal() - explained)
    assert np.allclose(found[1].numpy(), sd, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRATEGIES)
def test_the_best_row_is_found_sooner(kind: Callable[..., Strategy]) -> None:
    """Medians of seven seeds after two rounds of four; values have another level."""
    ranks = {}
    for sign in (1.0, 0.0):
        related = [(OLD, 100.0 + objective(OLD))] if sign else None
        ranks[sign] = sorted(
            rank_after(kind(X, related=related, num_initial=4, seed=seed), 2)
            for seed in range(7)
        )[3]
    assert ranks[1.0] <= 2
    assert ranks[0.0] >= 8


def test_what_is_opposite_tells_as_much() -> None:
    told = torch.arange(0, 300, 25)
    errors = []
    for related in ([(OLD, -objective(OLD))], None):
        strategy = ThompsonSampling(X, related=related, seed=0)
        strategy.tell(X[told], objective(X[told]))
        strategy.learn()
        found = strategy.predict(X)
        assert found is not None
        errors.append(float((found[0] - objective(X)).square().mean().sqrt()))
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("size", [1, 8])
def test_every_other_first_point_is_promising(size: int) -> None:
    """Asked for together, or one by one."""
    values = objective(OLD)
    strategy = ThompsonSampling(X, related=[(OLD, values)], num_initial=8, seed=0)
    mean = strategy.surrogate.source.inputs.related_means(
        strategy.surrogate.view.pool.X
    )
    best = mean.squeeze(-1).topk(len(X) // initial_design.PROMISING).indices.tolist()
    rows = list[int]()
    while len(rows) < 8:
        rows += strategy.ask(size).indices.tolist()  # type: ignore[union-attr]
    num = sum(row in best for row in rows)
    assert 4 <= num < 8
    assert len({*rows}) == 8


def test_promising_rows_of_another_table() -> None:
    strategy = ThompsonSampling(X, related=[(OLD, objective(OLD))], num_initial=8)
    points = strategy.ask(8).X
    good = X[sorted(strategy.promising)]
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    strategy.set_candidates(X[order])
    moved = X[order][sorted(strategy.promising)]
    assert {*map(tuple, moved.tolist())} == {*map(tuple, good.tolist())}
    assert {*map(tuple, moved.tolist())} < {*map(tuple, points.tolist())}


def test_promising_rows_are_of_those_that_are_left() -> None:
    score = torch.arange(100.0)
    generator = torch.Generator().manual_seed(0)
    rows = initial_design.promising_rows(score, 3, generator, {99, 98})
    assert {*rows} <= {97, 96, 95, 94, 93} and len({*rows}) == 3
    assert initial_design.promising_rows(score[:2], 3, generator, {0}) == [1]


def test_each_outcome_has_its_own() -> None:
    """Also where one was not measured; the sign is the user's."""
    outcomes = [Objective("y", minimize=True), Constraint("c", upper=0.5)]
    measured = torch.stack([-objective(OLD), OLD[:, 0]], dim=-1)
    only = torch.stack([torch.full_like(OLD[:, 0], math.nan), OLD[:, 1]], dim=-1)
    strategy = ExpectedImprovement(
        X, outcomes=outcomes, related=[(OLD, measured), (OLD, only)], seed=0
    )
    num = [len(part.source.inputs.campaigns) for part in strategy.surrogate.parts]
    assert num == [1, 2]
    batch = strategy.ask(4)
    objectives = objective(batch.X)
    strategy.tell(batch, torch.stack([-objectives, batch.X[:, 0]], dim=-1))
    strategy.ask(4)
    found = strategy.predict(X)
    assert found is not None
    seen = np.corrcoef(found[0][:, 0].numpy(), -objective(X).numpy())[0, 1]
    assert seen > 0.8


def test_paths_of_each_outcome_have_its_own_campaigns() -> None:
    """Of which the second outcome alone has one; all are within its limits."""
    outcomes = [Objective("y"), Constraint("c", upper=0.0)]
    limited = torch.sin(12 * OLD[:, 1]) * torch.cos(7 * OLD[:, 0])
    unknown = torch.full_like(limited, torch.nan)
    strategy = ThompsonSampling(
        X,
        outcomes=outcomes,
        related=[(OLD, torch.stack([unknown, limited], dim=-1))],
        seed=0,
        batch_size=8,
    )
    for _ in range(3):
        batch = strategy.ask()
        limited = torch.sin(12 * batch.X[:, 1]) * torch.cos(7 * batch.X[:, 0])
        strategy.tell(batch, torch.stack([objective(batch.X), limited], dim=-1))
    assert bool((limited <= 0.05).all())


def unrelated(seed: int) -> Tensor:
    """Values of a random wave, at the points of the earlier campaign."""
    g = torch.Generator().manual_seed(seed)
    W = 6.0 * torch.randn(3, generator=g).double()
    return (OLD @ W + 6.0 * torch.rand((), generator=g)).sin()


def test_what_shares_nothing_counts_for_nothing() -> None:
    """Of three campaigns the one remains that says something, of either sign."""
    told = torch.arange(0, 300, 10)
    related = [(OLD, unrelated(0)), (OLD, -objective(OLD)), (OLD, unrelated(1))]
    strategy = ThompsonSampling(X, related=related, seed=0)
    strategy.tell(X[told], objective(X[told]))
    strategy.learn()
    kernel = strategy.surrogate.view.prior.covar_module
    assert isinstance(kernel, RelatedKernel)
    factors = kernel.slope_deviations()
    assert (factors[[0, 2]] == pytest.approx(1e-3)) and float(factors[1]) > 0.1
    found = strategy.predict(X)
    assert found is not None
    torch.testing.assert_close(found[0], objective(X), rtol=0.0, atol=0.2)


def log_density(kernel: RelatedKernel, lam: float, Z: Tensor, y: Tensor) -> float:
    """Dense, with the constant mean that is best."""
    K = kernel(Z).to_dense().detach() + lam * torch.eye(len(Z)).double()
    one = torch.ones_like(y)
    c = (one @ torch.linalg.solve(K, y)) / (one @ torch.linalg.solve(K, one))
    return float(torch.distributions.MultivariateNormal(c * one, K).log_prob(y))


@pytest.mark.parametrize("is_related", [True, False])
def test_a_campaign_stays_where_the_data_are_likelier(is_related: bool) -> None:
    """One that is left out would make them less likely by any factor."""
    told, values = torch.arange(0, 300, 10), objective(OLD) if is_related else None
    related = [(OLD, unrelated(0) if values is None else values)]
    strategy = BBKB(X, related=related, seed=0)
    strategy.tell(X[told], objective(X[told]))
    strategy.learn()
    prior = strategy.surrogate.view.prior
    kernel = copy.deepcopy(prior.covar_module)
    assert isinstance(kernel, RelatedKernel)
    Z = strategy.surrogate.source.inputs(X[told])
    y = prior.standardize(objective(X[told]))
    here = log_density(kernel, prior.lam, Z, y)
    for variance in [1e-6] if is_related else [0.03, 0.1, 0.3, 1.0]:
        kernel.known[0].outputscale = variance
        assert log_density(kernel, prior.lam, Z, y) < here


def test_a_campaign_comes_back_when_more_is_known() -> None:
    """Its values are those of most rows; the first ones told are of something else."""
    strategy = ExpectedImprovement(X, related=[(OLD, objective(OLD))], seed=0)
    wave = (X @ torch.tensor([7.0, -9.0, 5.0]).double()).cos()

    def deviation() -> float:
        kernel = strategy.surrogate.view.prior.covar_module
        assert isinstance(kernel, RelatedKernel)
        return float(kernel.slope_deviations())

    strategy.tell(X[:12], wave[:12])
    strategy.learn()
    assert deviation() == pytest.approx(1e-3)
    again = ExpectedImprovement(X, related=[(OLD, objective(OLD))], seed=0)
    again.load_state_dict(strategy.state_dict())
    assert strategy.ask(3).indices.tolist() == again.ask(3).indices.tolist()  # type: ignore[union-attr]
    for rows in torch.arange(12, 156).split(24):
        strategy.tell(X[rows], objective(X[rows]))
        strategy.learn()
    assert deviation() > 0.1


def test_a_box_leaves_out_what_shares_nothing() -> None:
    bounds = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)
    strategy = ThompsonSampling(bounds=bounds, related=[(OLD, unrelated(0))], seed=0)
    strategy.tell(X[:30], objective(X[:30]))
    strategy.learn()
    kernel = strategy.surrogate.view.prior.covar_module
    assert isinstance(kernel, RelatedKernel)
    assert float(kernel.slope_deviations()) == pytest.approx(1e-3)


@pytest.mark.slow
def test_what_shares_nothing_does_little_harm() -> None:
    """Errors at other rows are at most a fifth larger, over five campaigns."""
    told = torch.arange(0, 300, 10)
    errors = {True: 0.0, False: 0.0}
    for seed in range(5):
        other = unrelated(seed)
        for is_related in errors:
            related = [(OLD, other)] if is_related else None
            strategy = ThompsonSampling(X, related=related, seed=0)
            strategy.tell(X[told], objective(X[told]))
            strategy.learn()
            found = strategy.predict(X)
            assert found is not None
            errors[is_related] += float((found[0] - objective(X)).square().mean())
    assert errors[True] < 1.2**2 * errors[False]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("factor", [1e-200, 1.0, 7e149])
def test_of_any_size_and_copied(factor: float) -> None:
    strategy = GPUCB(X, related=[(OLD, factor * objective(OLD))], seed=0)
    (model,) = strategy.surrogate.source.inputs.campaigns
    mean = campaign_mean(model, strategy.surrogate.source.inputs(X)[:, :3])
    assert np.corrcoef(mean.numpy(), objective(X).numpy())[0, 1] > 0.99
    for other in (pickle.loads(pickle.dumps(strategy)), copy.deepcopy(strategy)):
        assert torch.equal(other.surrogate.view.pool.X, strategy.surrogate.view.pool.X)


@pytest.mark.parametrize(
    ("num_bad", "wrong"), [(0, 0.0), (1, 1e3), (3, 1e3), (1, 1e150)]
)
def test_wrong_values_of_a_campaign_count_less_where_it_is_robust(
    num_bad: int, wrong: float
) -> None:
    """By its mean's correlation with the function; they are named by their rows."""
    values = objective(OLD)
    values[5 : 5 + num_bad] = wrong
    start = f"Of 120 related values those in rows {', '.join('567'[:num_bad])} (from 0"
    found = []
    for robust in (True, False):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InputDataWarning)
            strategy = ThompsonSampling(X, related=[(OLD, values)], robust=robust)
        told = [str(each.message).startswith(start) for each in caught]
        assert told == [True] * bool(robust and num_bad)
        (model,) = strategy.surrogate.source.inputs.campaigns
        mean = campaign_mean(model, strategy.surrogate.source.inputs(X)[:, :3])
        found.append(np.corrcoef(mean.numpy(), objective(X).numpy())[0, 1])
    assert found[0] > 0.99
    assert found[1] < 0.5 if num_bad else found[1] == found[0]


def test_they_may_have_been_elsewhere() -> None:
    """Beyond the ranges of the new table, and in a column that is constant there."""
    Z = torch.cat([X, torch.ones(len(X), 1)], dim=-1)
    old = torch.cat([3.0 * OLD - 1.0, torch.rand(len(OLD), 1)], dim=-1)
    with pytest.warns(InputDataWarning, match="constant"):
        strategy = ThompsonSampling(Z, related=[(old, objective(old))], seed=0)
    batch = strategy.ask(8)
    strategy.tell(batch, objective(batch.X))
    assert len(strategy.ask(4)) == 4


@pytest.mark.parametrize("design", ["random", "k-means"])
def test_with_each_design(design: str) -> None:
    strategy = BBKB(
        X,
        related=[(OLD, objective(OLD))],
        initial_design=design,
        num_initial=10,
        batch_size=10,
        seed=0,
    )
    indices = strategy.ask().indices
    assert indices is not None and len({*indices.tolist()}) == 10


def test_tables_of_categories_are_read_by_name() -> None:
    colours = ["red", "green", "blue", "black"]
    frame = pd.DataFrame(
        [(c, float(t)) for c in colours for t in range(20)],
        columns=["colour", "temperature"],
    )
    value = frame["temperature"] * frame["colour"].map({"red": 1.0}).fillna(-1.0)
    old = pd.DataFrame({"temperature": frame["temperature"], "colour": frame["colour"]})
    strategy = ThompsonSampling(
        CandidateTable.of(frame), related=[(old, value.to_numpy())], seed=0
    )
    (model,) = strategy.surrogate.source.inputs.campaigns
    inputs = strategy.surrogate.source.inputs(strategy.candidates[:])
    mean = campaign_mean(model, inputs[:, :-1]).numpy()
    assert np.corrcoef(mean, value.to_numpy())[0, 1] > 0.99
    shuffled = value.sample(frac=1.0, random_state=0)  # paired by its index
    again = ThompsonSampling(CandidateTable.of(frame), related=[(old, shuffled)])
    (model,) = again.surrogate.source.inputs.campaigns
    assert np.allclose(campaign_mean(model, inputs[:, :-1]).numpy(), mean)


def test_a_resumed_run_is_the_same() -> None:
    related = [(OLD, objective(OLD))]
    whole, first, second = (
        ThompsonSampling(X, related=related, num_initial=4, seed=0) for _ in range(3)
    )
    for strategy in (whole, first):
        rank_after(strategy, 2)
    second.load_state_dict(first.state_dict())
    assert whole.ask(4).indices.tolist() == second.ask(4).indices.tolist()  # type: ignore[union-attr]
    for other in (None, [(OLD, 2.0 * objective(OLD))], [*related, *related]):
        with pytest.raises(InputDataError, match="related"):
            ThompsonSampling(X, related=other, num_initial=4, seed=0).load_state_dict(
                first.state_dict()
            )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"related": [OLD]}, "need pairs of points and values"),
        (
            {"related": [(OLD, objective(OLD)[:-1])]},
            r"In related\[0\]: .*\(119,\) for 120",
        ),
        ({"related": [(OLD[:, :2], objective(OLD))]}, "need `k x 3`"),
        ({"related": [(OLD, OLD[:, 0] / 0.0)]}, "120 values that are infinite"),
        (
            {"related": [(OLD, OLD[:, 0]), (OLD, 1.7e308 * OLD[:, 0])]},
            r"related\[1\]: .* as large as 1\..*e\+308, whose squares overflow",
        ),
        ({"related": [(OLD / 0.0, OLD[:, 0])]}, r"related\[0\]"),
        ({"related": [(OLD, OLD[:, 0] * 0.0)]}, "Got 1 different values; need 3"),
        ({"related": [(OLD, OLD[:, 0] * math.nan)]}, "Got 0 different values"),
        ({"related": [(OLD[:0], OLD[:0, 0])]}, "Got 0 different values"),
        ({"related": 5}, "need pairs of points and values"),
        ({"related": (OLD, OLD[:, 0])}, r"such as \[\(X, Y\)\]"),
        (
            {"related": [(OLD, OLD[:, 0])], "covar_module": RBFKernel()},
            "related with covar_module",
        ),
    ],
)
def test_what_it_does_not_take(given: dict[str, Any], words: str) -> None:
    with pytest.raises((InputDataError, BotorchTensorDimensionError), match=words):
        ThompsonSampling(X, **given)


BOUNDS = [[0.0] * 3, [1.0] * 3]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", [BBKB, ThompsonSampling])
def test_boxes_begin_where_it_was_good(kind: Callable[..., Strategy]) -> None:
    """The best value 1.3, after four first points and eight more; 1.05 without."""
    related = [(OLD, 100.0 - 3.0 * objective(OLD))]
    strategy = kind(bounds=BOUNDS, related=related, num_initial=4, seed=0)
    for _ in range(3):
        batch = strategy.ask(4)
        strategy.tell(batch, objective(batch.X))
    assert strategy.history.Y.max() > 1.25


def boxed() -> tuple[Any, Tensor, Tensor]:
    """A strategy on a box that has learned twenty values, and these."""
    strategy = ThompsonSampling(
        bounds=BOUNDS, related=[(OLD, objective(OLD)), (OLD, OLD[:, 0])], seed=0
    )
    Y = 5.0 - 2.0 * objective(X[:20])
    strategy.tell(X[:20], Y)
    strategy.learn()
    return strategy, X[:20], Y


def test_the_model_of_a_box_is_the_autoregressive_one() -> None:
    """Its mean, deviation and gradient by dense formulas of the campaigns' means."""
    strategy, told, Y = boxed()
    source, prior = strategy.surrogate.source, strategy.surrogate.view.prior
    first, *others = prior.covar_module.kernels
    ell, s = first.base_kernel.lengthscale.squeeze(0), first.outputscale
    mu = [model.nystrom_posterior().mean for model in source.inputs.campaigns]

    def k(A: Tensor, B: Tensor) -> Tensor:
        squares = ((A / ell).unsqueeze(-2) - (B / ell).unsqueeze(-3)).square().sum(-1)
        shared = (
            v.outputscale * m(A).outer(m(B)) for v, m in zip(others, mu, strict=True)
        )
        return s * (-0.5 * squares).exp() + sum(shared)

    constant = strategy.model.mean_module.constant.detach()
    inverse = (k(told, told) + prior.lam * torch.eye(20).double()).inverse()
    y, Z = (Y - Y.mean()) / Y.std(), X[100:140].clone().requires_grad_(True)
    cross = k(Z, told)
    mean = constant + cross @ inverse @ (y - constant)
    variance = k(Z, Z).diagonal() - (cross @ inverse * cross).sum(-1)
    close, model = torch.testing.assert_close, strategy.model.eval()
    # Few data with little noise tell a campaign's share, whatever its prior is.
    close(model.covar_module(model.transform_inputs(Z)).to_dense(), k(Z, Z))
    posterior = model.posterior(Z)
    for ours, dense in (
        (posterior.mean.squeeze(-1), Y.mean() + Y.std() * mean),
        (posterior.variance.squeeze(-1), Y.var() * variance),
    ):
        close(ours, dense, rtol=1e-4, atol=1e-5)
        grads = (
            torch.autograd.grad(f.sum(), Z, retain_graph=True)[0] for f in (ours, dense)
        )
        close(*grads, rtol=1e-3, atol=1e-3)


def test_paths_on_a_box_have_the_moments_of_its_posterior() -> None:
    """Each of 40 means and variances by 2,000 paths, within five standard errors."""
    strategy, *_ = boxed()
    Z, num = X[100:140], 2000
    with torch.random.fork_rng():
        torch.manual_seed(0)
        paths = strategy.surrogate.view.paths(num)
    number = torch.arange(num).repeat_interleave(len(Z))
    with torch.no_grad():
        values = paths(Z.repeat(num, 1), number).view(num, -1)
        values = strategy.surrogate.view.in_units(values)
        posterior = strategy.model.posterior(Z)
    mean, variance = posterior.mean.squeeze(-1), posterior.variance.squeeze(-1)
    assert ((values.mean(0) - mean).abs() < 5 * (variance / num).sqrt()).all()
    # The random features' own error comes on top of the draws'.
    assert ((values.var(0) / variance - 1).abs() < 5 * (2 / num) ** 0.5 + 0.1).all()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_paths_of_the_prior_have_the_moments_of_its_parts(factor: float) -> None:
    """The covariance of 20,000 paths before any data, far from the origin too.

    One inducing point leaves most of it to the random features.
    """
    kernel = RelatedKernel(2, 5).double().requires_grad_(False)
    for part, scale in zip(kernel.kernels, (0.3, 0.5, 2.0), strict=True):
        part.outputscale = scale
    g = torch.Generator().manual_seed(3)
    Z = torch.rand(30, 5, generator=g).double()
    Z[:, 3:] += 2.0
    prior = NystromPosterior.prior(kernel, Z[:1])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        spread = torch.full((20_000,), factor).double()
        paths = SamplePaths.draw(prior, 20_000, 2**10, spread=spread)
    F = paths(Z)
    covariance = F.mT @ F / len(F) / factor**2
    assert torch.allclose(covariance, kernel(Z).to_dense(), rtol=0.05, atol=0.1)
    assert torch.allclose(
        paths.subset(torch.arange(30)).at_own_points(Z), F[:30].diagonal(), atol=1e-4
    )


def test_tables_of_bits_take_none() -> None:
    bits = CompactRows(torch.randint(0, 2, (50, 16), dtype=torch.uint8), 16)
    with pytest.raises(UnsupportedError, match="ranks share, or with molecules"):
        ThompsonSampling(bits, related=[(OLD[:, :1].expand(-1, 16), OLD[:, 0])])


@pytest.mark.slow
def test_a_run_on_a_box_goes_on_from_its_state() -> None:
    whole, *_ = boxed()
    first = whole.ask(2)
    other = ThompsonSampling(
        bounds=BOUNDS, related=[(OLD, objective(OLD)), (OLD, OLD[:, 0])], seed=0
    )
    other.load_state_dict(whole.state_dict())
    for strategy in (whole, other):
        strategy.tell(first, objective(first.X))
    assert torch.equal(whole.ask(2).X, other.ask(2).X)
    assert torch.equal(copy.deepcopy(whole).ask(2).X, whole.ask(2).X)
