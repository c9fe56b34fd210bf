"""Thompson sampling on several outcomes, by dense posteriors and loops."""

from functools import partial
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import MaternKernel, RBFKernel
from refusals import refused
from strategy_table import equal, make_candidates, make_kernel, without_times
from torch import Tensor

from botorch_sparse.pools.sample_paths import NUM_FEATURES, SamplePaths
from botorch_sparse.strategies import Constraint, Objective, Strategy, ThompsonSampling
from botorch_sparse.strategies.data.domain import draw_seed
from botorch_sparse.strategies.data.preference import Preference

NAN = float("nan")
LAM = 1e-2
GAIN, COST = Objective("gain"), Objective("cost", minimize=True)
HEAT = Constraint("heat", upper=0.4)
OUTCOMES = [GAIN, COST, HEAT]


def measure(X: Tensor) -> Tensor:
    """`b x 3` smooth outcomes of points in the unit square."""
    gain = torch.sin(5 * X[:, 0]) * torch.cos(3 * X[:, 1])
    cost = (X - 0.3).square().sum(-1)
    heat = X[:, 0] * X[:, 1] + 0.1 * torch.sin(9 * X[:, 1])
    return torch.stack([gain, cost, heat], dim=-1)


def build(**options: Any) -> ThompsonSampling:
    plain = {"covar_module": make_kernel(), "lam": LAM, "unique": True}
    plain |= {"batch_size": 4, "outcomes": OUTCOMES}
    return ThompsonSampling(**{"candidates": make_candidates(), **plain, **options})


def search(strategy: Strategy, num: int, columns: list[int]) -> None:
    """Ask and tell until so many are told."""
    while len(strategy.history) < num:
        batch = strategy.ask()
        strategy.tell(batch, measure(batch.X)[:, columns])


def told(num: int = 12, **options: Any) -> ThompsonSampling:
    """With feedback on the first rows, and some outcomes missing."""
    strategy = build(**options)
    X = strategy.candidates[:num]
    Y = measure(X)
    Y[2, 0] = Y[5, 1] = Y[6, 1] = NAN
    strategy.tell(X, Y)
    strategy.learn()
    return strategy


def test_each_outcome_has_the_posterior_of_its_own_data() -> None:
    """All points are inducing, and the prior mean is a constant by least squares."""
    strategy = told(oversampling=1e9)
    X, kernel = strategy.candidates, make_kernel()
    mean, sd = strategy.predict(X)
    Y = strategy.history.Y
    for column in range(3):
        there = ~Y[:, column].isnan()
        Z, y = strategy.history.X[there], Y[there, column]
        K = kernel(Z).to_dense() + LAM * torch.eye(len(Z)).double()
        ones = torch.ones_like(y)
        constant = ones @ K.inverse() @ y / (ones @ K.inverse() @ ones)
        k = kernel(X, Z).to_dense()
        expected = constant + k @ K.inverse() @ (y - constant)
        variance = 1 - (k @ K.inverse() * k).sum(-1)
        assert torch.allclose(mean[:, column], expected, atol=1e-6)
        assert torch.allclose(sd[:, column], variance.sqrt(), atol=1e-5)


def test_a_kernel_and_a_noise_for_each_outcome() -> None:
    """As three strategies of one outcome each have them."""
    X = make_candidates()
    kernels = [make_kernel(0.2), make_kernel(0.4), make_kernel(0.8)]
    noises = [1e-1, 1e-2, 1e-3]
    joint = told(covar_module=kernels, lam=noises, oversampling=1e9)
    mean, sd = joint.predict(X)
    Y = joint.history.Y
    for column, (kernel, lam) in enumerate(zip(kernels, noises, strict=True)):
        alone = build(outcomes=None, covar_module=kernel, lam=lam, oversampling=1e9)
        there = ~Y[:, column].isnan()
        alone.tell(joint.history.X[there], Y[there, column])
        alone.learn()
        expected = alone.predict(X)
        assert torch.allclose(mean[:, column], expected[0], atol=1e-6)
        assert torch.allclose(sd[:, column], expected[1], atol=1e-6)
    refused("2 values of covar_module for 3 outcomes", build, covar_module=kernels[:2])
    refused("4 values of lam for 3 outcomes", build, lam=[0.1] * 4)


def by_a_loop(strategy: ThompsonSampling, generator: torch.Generator) -> list[int]:
    """What `ask` chooses, from the same draws: one path and one row at a time."""
    X, num = strategy.candidates, strategy.batch_size
    with manual_seed(draw_seed(generator)):
        preference = Preference.of(strategy.record)
        weights = preference.draw_weights(num)
        several, one = preference.draw_spread(num), torch.ones(num).double()
        is_path = one if several is None else several
        posteriors = strategy.posterior
        paths = [SamplePaths.draw(p, num, NUM_FEATURES) for p in posteriors]
    values = torch.stack(
        [
            part.view.prior.scale * path(part.source.inputs(X))
            for part, path in zip(strategy.surrogate.parts, paths, strict=True)
        ],
        dim=-1,
    )
    means = strategy.predict(X)[0] * torch.tensor([1.0, -1.0, 1.0])[: len(paths)]
    values = values.where(is_path.reshape(-1, 1, 1) > 0, means)
    taken = set(strategy.history.indices.tolist())
    chosen = list[int]()
    for b in range(num):
        ranked = []
        for row in range(len(X)):
            if row in taken:
                continue
            y = values[b, row]
            over = float((y[2] - 0.4).clamp_min(0.0)) if len(y) > 2 else 0.0
            scaled = (y[:2] - preference.reference) / preference.scale / weights[b]
            value = float(scaled.min())
            ranked.append((over == 0.0, value if over == 0.0 else -over, -row))
        row = -max(ranked)[-1]
        chosen.append(row)
        taken.add(row)
    return chosen


@pytest.mark.one_in(3)
@pytest.mark.parametrize("outcomes", [OUTCOMES, OUTCOMES[:2]], ids=["limit", "free"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_inferred", [False, True], ids=["given", "inferred"])
def test_a_batch_is_chosen_as_by_a_loop(
    outcomes: Any, seed: int, is_inferred: bool
) -> None:
    options = {"covar_module": None, "lam": None} if is_inferred else {}
    strategy = build(outcomes=outcomes, seed=seed, **options)
    X = strategy.candidates[:12]
    strategy.tell(X, measure(X)[:, : len(outcomes)])
    strategy.learn()
    generator = torch.Generator()
    generator.set_state(strategy.generator.get_state())
    expected = by_a_loop(strategy, generator)
    assert strategy.ask().indices.tolist() == expected


def test_where_nothing_is_feasible_the_least_violation_is_chosen() -> None:
    """Of known values: what is left of the row that violates least."""
    limit = Constraint("heat", upper=-5.0)
    strategy = build(outcomes=[GAIN, limit], lam=1e-6, batch_size=3)
    X = strategy.candidates
    strategy.tell(X[1::2], torch.stack([X[1::2, 1], X[1::2, 0]], dim=-1))
    rows = strategy.ask().indices
    left = X[::2, 0].sort().indices * 2
    assert set(rows.tolist()) <= set(left[:6].tolist())


def test_one_outcome_with_a_name_is_one_without() -> None:
    X = make_candidates()
    runs = [
        ThompsonSampling(X, batch_size=4, **options)
        for options in ({"minimize": True}, {"outcomes": [COST]})
    ]
    for strategy in runs:
        search(strategy, 24, [1])
    points = [strategy.history.indices.tolist() for strategy in runs]
    assert points[0] == points[1] and runs[1].history.to_frame()["cost"].min() < 0.1
    assert runs[0].history.best().value == runs[1].history.best().value


def half_way(seed: int = 0, **options: Any) -> ThompsonSampling:
    """Some learned, a batch told in part, with outcomes that are missing."""
    strategy = build(seed=seed, covar_module=None, lam=None, batch_size=6, **options)
    for _ in range(3):
        batch = strategy.ask()
        strategy.tell(batch, measure(batch.X))
    batch = strategy.ask()
    Y = measure(batch.X)
    Y[0, 1] = Y[1, 0] = NAN
    strategy.tell(batch.ids[:4], Y[:4])
    return strategy


def finish(strategy: Strategy) -> None:
    batch = strategy.pending_batch()
    strategy.tell(batch, measure(batch.X))
    strategy.tell([18], [[NAN, 0.5, NAN]])
    for _ in range(2):
        batch = strategy.ask()
        strategy.tell(batch, measure(batch.X))


@pytest.mark.parametrize("is_box", [False, True], ids=["table", "box"])
def test_resume_goes_on_to_the_same_bits(is_box: bool) -> None:
    options: dict[str, Any] = {}
    if is_box:
        bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()
        few = {"num_restarts": 2, "raw_samples": 16}
        options = {"candidates": None, "bounds": bounds, "unique": None}
        options |= {"optimizer_options": few}
    first, other = (
        half_way(**options),
        build(seed=5, covar_module=None, lam=None, batch_size=6, **options),
    )
    other.load_state_dict(first.state_dict())
    for strategy in (first, other):
        finish(strategy)
    assert equal(without_times(first.state_dict()), without_times(other.state_dict()))


def test_the_order_of_a_state_is_its_outcomes() -> None:
    """A state is of the same outcomes, limits and thresholds."""
    state = half_way().state_dict()
    others = [OUTCOMES[::-1], [GAIN, COST, Constraint("heat", upper=0.5)]]
    for outcomes in others:
        with pytest.raises(InputDataError, match="outcomes"):
            build(
                outcomes=outcomes, covar_module=None, lam=None, batch_size=6
            ).load_state_dict(state)


def test_another_table_in_the_middle() -> None:
    strategy = half_way()
    batch = strategy.pending_batch()
    strategy.tell(batch, measure(batch.X))
    before = strategy.predict(strategy.candidates[:5])
    strategy.set_candidates(torch.cat([strategy.candidates[50:], strategy.candidates]))
    after = strategy.predict(make_candidates()[:5])
    assert all(torch.allclose(a, b) for a, b in zip(before, after, strict=True))
    strategy.tell(strategy.ask(), measure(strategy.X_pending))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(2))  # paths and means are among them
def test_joint_maximizers_on_a_box_are_the_best_of_a_grid(seed: int) -> None:
    """By the order of the paths, which are drawn again from the seed."""
    bounds = torch.tensor([[0.0], [1.0]]).double()
    strategy = ThompsonSampling(
        bounds=bounds, outcomes=OUTCOMES, batch_size=6, seed=seed
    )
    X = torch.linspace(0, 1, 5).double().unsqueeze(-1)
    pairs = torch.cat([X, 0 * X + 0.4], dim=-1)
    strategy.tell(X, measure(pairs))
    strategy.learn()
    generator = torch.Generator()
    generator.set_state(strategy.generator.get_state())
    views = [part.view for part in strategy.surrogate.parts]
    with manual_seed(draw_seed(generator)):
        preference = Preference.of(strategy.record)
        weights, spread = preference.draw_weights(6), preference.draw_spread(6)
        assert spread is not None and 0 < float(spread.sum()) < 6
        paths = [view.paths(6, spread) for view in views]
    grid = torch.linspace(0, 1, 5001).double().unsqueeze(-1)
    both = torch.cat([grid, strategy.ask().X.double()])
    number = torch.arange(6).repeat_interleave(len(both))
    values = [
        view.in_units(path(both.repeat(6, 1), number)).view(6, -1).detach()
        for view, path in zip(views, paths, strict=True)
    ]
    deviations = [(f - f[spread == 0][:1]).abs().amax(-1) for f in values]
    for each in deviations:  # means are equal, and no path is
        assert bool((each[spread == 0] < 1e-9).all())
        assert bool((each[spread == 1] > 1e-3).all())
    level = preference.levels(torch.stack(values, dim=-1), weights)[0]
    best = level[:, :-6].amax(-1)
    assert bool((best > -torch.inf).all())
    assert bool((level[:, -6:].diagonal() >= best - 0.01).all())


def test_several_outcomes_have_the_kernel_for_few_data() -> None:
    """On a table as on a box; one outcome has the model's own."""
    bounds = torch.tensor([[0.0] * 3, [1.0] * 3]).double()
    for place in ({"bounds": bounds}, {"candidates": make_candidates()}):
        joint = ThompsonSampling(**place, outcomes=OUTCOMES)
        kernels = [part.view.prior.covar_module for part in joint.surrogate.parts]
        assert all(isinstance(kernel, MaternKernel) for kernel in kernels)
        scales = [kernel.lengthscale_prior.scale.item() for kernel in kernels]
        assert scales == pytest.approx([1.2] * 3)
        (one,) = ThompsonSampling(**place, outcomes=[GAIN]).surrogate.parts
        assert isinstance(one.view.prior.covar_module, RBFKernel)


def test_first_rows_of_several_outcomes() -> None:
    """Five, of which a generator may be the source; what is asked for goes first."""
    X = make_candidates()
    made = partial(ThompsonSampling, X)
    assert made(outcomes=iter(OUTCOMES)).settings.num_initial == 5
    assert made(outcomes=OUTCOMES, num_initial=9).settings.num_initial == 9
    assert made(outcomes=OUTCOMES, covar_module=RBFKernel()).settings.num_initial == 1
    assert made(outcomes=iter([GAIN])).settings.num_initial == max(5, 2 * X.shape[-1])


@pytest.mark.slow
def test_finds_the_best_feasible_row() -> None:
    """On each of three seeds, where a random row is as good with probability 1/400."""
    X = make_candidates(400)
    Y = measure(X)
    feasible = Y[Y[:, 2] <= 0.4, 0].sort(descending=True).values
    for seed in range(3):
        strategy = ThompsonSampling(X, outcomes=[GAIN, HEAT], batch_size=8, seed=seed)
        search(strategy, 56, [0, 2])
        best = strategy.history.best()
        assert best.is_feasible and best.value >= float(feasible[1])
