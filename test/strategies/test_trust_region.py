"""Trust regions: lengths, candidates, posterior, and whole runs."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models.utils.gpytorch_modules import MIN_INFERRED_NOISE_LEVEL
from botorch.test_functions import Hartmann
from botorch.utils.sampling import manual_seed
from box_table import BOUNDS, REGIONS, make_kernel, objective
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_sparse.strategies import RandomSearch, TrustRegionBBKB
from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.data.run_record import FoldedEvaluations
from botorch_sparse.strategies.trust_region import (
    Region,
    local_surrogate,
    trust_region,
)
from botorch_sparse.strategies.trust_region.local_surrogate import greedy_spread
from botorch_sparse.strategies.trust_region.trust_region import (
    candidates_around,
    fail_tolerance,
    is_better,
    maximize_in_region,
    moved_into,
    part_around,
    side_weights,
    smallest_length,
)

F64 = torch.float64
UNIT = torch.tensor([[0.0] * 30, [1.0] * 30], dtype=F64)


def after(region: Region, *rounds: bool, num: int = 4, tolerance: int = 8) -> Region:
    for is_success in rounds:
        region = region.after(num, is_success=is_success, tolerance=tolerance)
    return region


def test_lengths() -> None:
    """Doubled by three successes in a row, halved by failures, within their limits."""
    start = Region(run=0)
    assert start.length == 0.8
    assert after(start, True, True) == replace(start, successes=2)
    assert after(start, True, True, True) == replace(start, length=1.6)
    assert after(start, *[True] * 6).length == 1.6
    assert after(start, False) == replace(start, failures=4)
    assert after(start, False, False) == replace(start, length=0.4)
    assert after(start, True, True, False) == replace(start, failures=4)
    assert after(start, False, True, False) == replace(start, failures=4)
    assert after(start, *[False] * 12).length == 0.8 / 2**6
    smallest = smallest_length(Box(UNIT))
    assert after(start, *[False] * 22).length > smallest
    assert after(start, *[False] * 24).length < smallest  # 0.8 / 2^12 < 2^-12


@pytest.mark.parametrize(
    "dim, q, expected",
    [(20, 20, 20), (20, 8, 24), (2, 3, 6), (2, 1, 4), (60, 100, 100)],
)
def test_failures_that_are_allowed(dim: int, q: int, expected: int) -> None:
    """q times the `ceil(max(4/q, d/q))` batches of Eriksson et al. (2019)."""
    assert fail_tolerance(dim, q) == expected


def test_what_is_better() -> None:
    before = torch.tensor([0.0, 1.0, 2.0], dtype=F64)  # a lead of 1 on the median
    for scale, offset in ((1.0, 0.0), (1e3, 5.0), (1e-3, -1e3)):
        known = scale * before + offset
        new = scale * torch.tensor([[2.002], [2.0005]], dtype=F64) + offset
        assert is_better(new[0], known, is_turned=False)
        assert not is_better(new[1], known, is_turned=False)
    # A lead of 1e-3 on the median of the best hundred, and of 1 on that of all: 1.1e-5
    # are a success of a turned region.
    known = torch.cat([torch.zeros(150), torch.linspace(0.998, 1.0, 100)]).double()
    for gain, of_features, of_turned in (
        (1.2e-3, True, True),
        (0.9e-3, False, True),
        (1.2e-5, False, True),
        (1.0e-5, False, False),
    ):
        new = torch.tensor([1.0 + gain], dtype=F64)
        assert is_better(new, known, is_turned=False) == of_features
        assert is_better(new, known, is_turned=True) == of_turned
    none = torch.full((2,), -torch.inf, dtype=F64)
    for is_turned in (False, True):
        assert is_better(before, none, is_turned=is_turned)
        assert not is_better(none, before, is_turned=is_turned)


@pytest.mark.parametrize("kernel", [RBFKernel, MaternKernel])
def test_sides_are_in_proportion_to_lengthscales(kernel: Any) -> None:
    inner = kernel(ard_num_dims=3).double()
    inner.lengthscale = torch.tensor([[1.0, 2.0, 4.0]], dtype=F64)
    expected = torch.tensor([0.5, 1.0, 2.0], dtype=F64)
    one = torch.ones(3, dtype=F64)
    assert torch.allclose(side_weights([ScaleKernel(inner)], one), expected)
    span = torch.tensor([1.0, 2.0, 4.0], dtype=F64)  # the same in sides of the box
    assert torch.allclose(side_weights([inner], span), one)
    assert torch.equal(side_weights([LinearKernel()], span), one)


def test_candidates_are_in_the_region() -> None:
    bounds = torch.stack([UNIT[0] - 1, UNIT[1] + 2])
    center = torch.full((30,), -0.95, dtype=F64)  # near a corner
    sides = torch.linspace(0.1, 0.5, 30, dtype=F64)
    X = candidates_around(Box(bounds), center, sides, 500, 0)
    assert X.shape == (500, 30)
    half = 4 * sides / 2  # sides of the box are 4
    assert (X >= (center - half).clamp_min(-1.0) - 1e-12).all()
    assert (X <= center + half + 1e-12).all()
    moved = X != center
    assert moved.any(-1).all()
    # 250 x 30 coins of 2/3: five standard deviations are 0.03.
    assert abs(float(moved[250:].double().mean()) - 20 / 30) < 0.03
    few = moved[:250].sum(-1)
    assert few.unique().tolist() == [1, 2, 3, 4]
    # 250 draws: five standard deviations of the mean, of 1.12 each, are 0.36.
    assert abs(float(few.double().mean()) - 2.5) < 0.36
    assert X[:, 29].max() > center[29] + 0.8 * half[29]
    assert torch.equal(X, candidates_around(Box(bounds), center, sides, 500, 0))
    assert not torch.equal(X, candidates_around(Box(bounds), center, sides, 500, 1))


@pytest.mark.parametrize("dim", [2, 6])
def test_candidates_are_on_all_sides(dim: int) -> None:
    """Whichever coordinates they change."""
    bounds = torch.tensor([[0.0] * dim, [1.0] * dim], dtype=F64)
    center, sides = torch.full((dim,), 0.5, dtype=F64), torch.full((dim,), 0.5)
    X = candidates_around(Box(bounds), center, sides.double(), 400, 0)
    for half in (X[:200], X[200:]):
        assert ((half > 0.5).sum(0) > 20).all() and ((half < 0.5).sum(0) > 20).all()


def test_candidates_of_a_tiny_region_leave_its_middle() -> None:
    """Also where float32 rounds most of their steps to nothing."""
    bounds = torch.tensor([[1000.0] * 20, [1001.0] * 20])
    center, sides = torch.full((20,), 1000.5), torch.full((20,), 2.0**-12).double()
    X = candidates_around(Box(bounds), center, sides, 500, 0)
    assert X.dtype == torch.float32 and len(X) > 200
    assert (X != center).any(-1).all()


def sum_of(num: int, sign: float, value: float) -> Any:
    return torch.arange(num), sign * torch.ones(num, dtype=F64), value


CUTS: dict[str, dict[str, Any]] = {
    "inequality": {"inequality_constraints": [sum_of(30, -1.0, -6.0)]},
    "two": {"inequality_constraints": [sum_of(30, -1.0, -6.0), sum_of(9, 1.0, 1.8)]},
    "equality": {"equality_constraints": [sum_of(30, 1.0, 6.0)]},
    "fixed": {"fixed_features": {0: 0.2, 7: 0.2}},
    "all": {
        "inequality_constraints": [sum_of(9, 1.0, 1.8)],
        "equality_constraints": [sum_of(30, 1.0, 6.0)],
        "fixed_features": {29: 0.2},
    },
}


def cut_box(cut: str, dtype: torch.dtype) -> tuple[Box, Tensor, Tensor]:
    """A box, a middle where all its constraints are tight, and the region's sides."""
    center, sides = torch.full((30,), 0.2, dtype=dtype), torch.full((30,), 0.2)
    return Box(UNIT.to(dtype), **CUTS[cut]), center, sides.double()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("cut", CUTS)
def test_candidates_meet_constraints(cut: str, dtype: torch.dtype) -> None:
    """Around a middle where all constraints are tight."""
    box, center, sides = cut_box(cut, dtype)
    X = candidates_around(box, center, sides, 200, 3)
    assert X.dtype == dtype and len(X) > 100
    assert box.is_feasible(X).all()
    assert ((X - center).abs() <= 0.1 + 1e-6).all()
    assert len(X.unique(dim=0)) > 0.95 * len(X)  # some have no way but the slack
    assert (X - center).abs().amax(-1).median() > 0.02


def test_nothing_is_free() -> None:
    box = Box(UNIT[:, :2], fixed_features={0: 0.5, 1: 0.25})
    X = candidates_around(box, UNIT[0, :2], UNIT[1, :2], 10, 0)
    assert X.tolist() == [[0.5, 0.25]]


def hills(X: Tensor) -> tuple[Tensor, Any]:
    """Peaks, one for each point, and the functions that have them."""
    g = torch.Generator().manual_seed(2)
    peaks = 0.2 + 0.3 * (torch.rand(X.shape, generator=g, dtype=F64) - 0.5)
    weights = 10 ** torch.linspace(0, 2, X.shape[-1], dtype=F64)
    return peaks, lambda Z: -(weights * (Z - peaks).square()).sum(-1)


def test_local_maxima_are_the_peaks() -> None:
    """Of its own function each, or on the side of the region that is nearest."""
    center, sides = torch.full((30,), 0.2, dtype=F64), torch.full((30,), 0.2).double()
    X = candidates_around(Box(UNIT), center, sides, 6, 3)
    peaks, f = hills(X)
    expected = peaks.clamp(0.1, 0.3)
    found = maximize_in_region(f, X, Box(UNIT), center, sides)
    assert (f(found) > f(X)).all()
    assert 0.2 < float((peaks == expected).double().mean()) < 0.9
    # Twenty steps for 180 coordinates: near, and little is left of the first gap.
    assert (found - expected).abs().max() < 0.02
    assert (X - expected).abs().max() > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("cut", CUTS)
def test_local_maxima_meet_constraints(cut: str, dtype: torch.dtype) -> None:
    """Mostly better than the best of many candidates, and none worse than it was."""
    box, center, sides = cut_box(cut, dtype)
    X = candidates_around(box, center, sides, 60, 3)
    _, f = hills(X)
    found = maximize_in_region(f, X, box, center, sides)
    assert found.dtype == dtype and box.is_feasible(found).all()
    assert ((found - center).abs() <= 0.1 + 1e-6).all()
    before, after = f(X.double()), f(found.double())
    assert (after >= before).all()
    assert (after > before).double().mean() > 0.9
    many = candidates_around(box, center, sides, 2000, 4).double()
    best = torch.stack([f(x.expand(X.shape)) for x in many]).amax(0)
    assert (after > best).double().mean() > 0.5


def test_a_middle_beside_a_fixed_value() -> None:
    """It may be off by what a sum of constraints is; what comes of it is not."""
    cut = {"inequality_constraints": [sum_of(4, -1.0, -0.8)]}
    box = Box(UNIT[:, :4], fixed_features={0: 0.2}, **cut)
    center, sides = torch.full((4,), 0.2, dtype=F64), torch.full((4,), 0.2).double()
    X = candidates_around(box, center, sides, 10, 0)
    center[0] -= 9e-7
    _, f = hills(X)
    assert (maximize_in_region(f, X, box, center, sides)[:, 0] == 0.2).all()


def test_local_maxima_leave_discrete_features() -> None:
    box = Box(UNIT[:, :4], discrete_dims={1: (0, 1)})
    center = torch.tensor([0.2, 0.0, 0.2, 0.2], dtype=F64)
    sides = torch.full((4,), 0.2, dtype=F64)
    X = candidates_around(box, center, sides, 8, 0)
    found = maximize_in_region(hills(X)[1], X, box, center, sides)
    assert torch.equal(found[:, 1], X[:, 1])
    assert (found[:, [0, 2, 3]] != X[:, [0, 2, 3]]).any(-1).all()


def test_paths_that_keep_to_the_mean() -> None:
    """Half of each batch; of batches of one point half of them."""
    with manual_seed(0):
        spread, is_greedy = greedy_spread(20)
        assert is_greedy.tolist() == [True] * 10 + [False] * 10
        assert (spread[10:] == 1).all() and (spread.diff() >= 0).all()
        # Each in its tenth of the logarithms from -2 to 0.
        place = 5 * (spread[:10].log10() + 2)
        assert place.floor().tolist() == list(range(10))
        single = torch.cat([greedy_spread(1)[1] for _ in range(400)])
    # 400 coins: five standard deviations are 0.125.
    assert abs(float(single.double().mean()) - 0.5) < 0.125


def hill(X: Tensor) -> Tensor:
    """Tilted, with its peak at 0.4 in each feature."""
    g = torch.Generator().manual_seed(1)
    A = torch.randn(X.shape[-1], X.shape[-1], generator=g, dtype=F64)
    return -((X - 0.4) @ A).square().sum(-1)


def near(
    places: list[float], length: float, dim: int = 6, f: Any = hill
) -> TrustRegionBBKB:
    """With a small region at each place, which knows 60 points around it."""
    g = torch.Generator().manual_seed(1)
    part = torch.rand(60, dim, generator=g, dtype=F64) - 0.4
    X = torch.cat([(place + length * part).clamp(0.0, 1.0) for place in places])
    options = {"batch_size": 10, "num_initial": 6, "num_regions": len(places)}
    made = TrustRegionBBKB(bounds=UNIT[:, :dim], **options)
    made.tell(X, f(X))
    best = f(X).view(len(places), 60).argmax(-1)
    regions = tuple(
        Region(run, length=length, center=int(60 * run + place))
        for run, place in enumerate(best)
    )
    made.surrogate = replace(
        made.surrogate, runs=replace(made.surrogate.runs, regions=regions)
    )
    return made


def test_half_of_a_batch_is_maximized_in_small_regions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each by its own path, near to the mean, and within its own region."""
    drawn, found = list[Any](), list[tuple[Tensor, Tensor]]()
    maximize = local_surrogate.maximize_paths

    def spy(X: Tensor, paths: Any, *args: Any, **named: Any) -> Any:
        drawn.append((paths[0], X))
        return maximize(X, paths, *args, **named)

    def searched(f: Any, X: Tensor, box: Box, center: Tensor, sides: Tensor) -> Tensor:
        ends = maximize_in_region(f, X, box, center, sides)
        assert ((ends - center).abs() <= sides / 2 + 1e-12).all()
        assert ((X - center).abs() <= sides / 2 + 1e-12).all()
        found.append((X, ends))
        return ends

    def two_hills(X: Tensor) -> Tensor:
        return torch.maximum(hill(X + 0.1), hill(X - 0.1))

    monkeypatch.setattr(local_surrogate, "maximize_paths", spy)
    monkeypatch.setattr(local_surrogate, "maximize_in_region", searched)
    made = near([0.3, 0.5], 1 / 32, f=two_hills)
    batch = {*map(tuple, made.ask().X.tolist())}
    ((paths, X),) = drawn
    values = paths(X)
    (posterior,) = made.surrogate.posteriors
    mean = posterior.moments(made.surrogate.source.inputs(X)).mean
    deviation = (values - mean).abs().mean(-1)
    assert deviation[0] < 0.05 * deviation[5:].mean()
    chosen = list[int]()  # each path's best candidate of those that are left
    for value in values:
        left = value.index_fill(0, torch.tensor(chosen, dtype=torch.long), -torch.inf)
        chosen.append(int(left.argmax()))
    assert len(found) == 2 and len(batch) == 10
    assert sum(len(starts) for starts, _ in found) == 5
    for starts, ends in found:
        assert any(tuple(end.tolist()) in batch for end in ends)
        rows = [int((X == start).all(-1).nonzero()) for start in starts]
        own = paths.subset(torch.tensor([chosen.index(row) for row in rows]))
        before, after = own.at_own_points(starts), own.at_own_points(ends)
        assert (after > before).all()
        if len(ends) > 1:
            assert after.sum() > own.at_own_points(ends.roll(1, 0)).sum()
    assert max(len(ends) for _, ends in found) > 1


def test_where_evaluations_fail_is_left_alone(tmp_path: Path) -> None:
    """The best points are where they do: 19 of 200 did, and 115 without the rule."""
    made, num_failed = TrustRegionBBKB(bounds=UNIT[:, :6], batch_size=5, seed=0), 0
    for _ in range(40):
        batch = made.ask()
        fails = batch.X[:, 0] < 0.35
        made.fail(batch.ids[fails].tolist())
        if not fails.all():
            X = batch.X[~fails]
            made.tell(X, -(X - 0.3).square().sum(-1))
        num_failed += int(fails.sum())
    assert num_failed < 66
    made.save(tmp_path / "failed.pt")
    again = TrustRegionBBKB(bounds=UNIT[:, :6], batch_size=5, seed=0)
    again.resume(tmp_path / "failed.pt")
    assert torch.equal(again.ask().X, made.ask().X)


def test_how_far_failed_points_are_that_lie_together() -> None:
    """As distances say that are taken one by one, in units of the region's sides."""
    made = near([0.5], length=0.1, dim=3)
    (region,), record = made.regions, made.record
    g = torch.Generator().manual_seed(2)
    X = 0.4 + 0.2 * torch.rand(200, 3, generator=g, dtype=F64)
    wrong = 0.6 + 0.05 * torch.rand(12, 3, generator=g, dtype=F64)
    failed = torch.tensor(record.add_points(wrong))
    sides = region.length * made.surrogate.side_weights()
    known = record.points(record.point)
    expected = [
        min(((x - w) / sides).norm() for w in wrong)
        / min(((x - k) / sides).norm() for k in known)
        for x in X
    ]
    found = made.surrogate.remoteness(region, X, record, failed)
    assert torch.allclose(found, torch.stack(expected))
    for few in (failed[:0], failed[:1]):
        assert bool(made.surrogate.remoteness(region, X, record, few).isinf().all())


@pytest.mark.parametrize("seed", range(3))
def test_failures_that_have_no_place_say_nothing(seed: int) -> None:
    """A third of the points failed, among the others."""
    made, g = near([0.5], length=0.1, dim=3), torch.Generator().manual_seed(7 + seed)
    more = 0.5 + 0.1 * (torch.rand(30, 3, generator=g, dtype=F64) - 0.4)
    failed = torch.tensor(made.record.add_points(more))
    found = made.surrogate.remoteness(made.regions[0], more[:5], made.record, failed)
    assert bool(found.isinf().all())


def test_batches_are_whole_where_all_candidates_are_near_to_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that are furthest from them are left."""
    made, seen = near([0.5], length=0.5), list[Tensor]()

    def remoteness(self: Any, region: Any, X: Tensor, *rest: Any) -> Tensor:
        seen.append(X[:, 0])
        return X[:, 0]  # below 2 for all

    monkeypatch.setattr(local_surrogate.LocalSurrogate, "remoteness", remoteness)
    X = made.ask().X
    assert len(X) == made.batch_size
    assert X[:, 0].min() >= seen[0].topk(made.batch_size).values.min()


@pytest.mark.parametrize("may_go", [True, False])
def test_maxima_keep_away_from_failed_points(
    may_go: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path whose maximum would be near to one stays at its candidate."""
    made, candidates = near([0.5], length=1 / 64), list[Tensor]()

    def remoteness(self: Any, region: Any, X: Tensor, *rest: Any) -> Tensor:
        if not candidates:
            candidates.append(X)
            return torch.full((len(X),), torch.inf)
        return torch.full((len(X),), torch.inf if may_go else 1.0)

    monkeypatch.setattr(local_surrogate.LocalSurrogate, "remoteness", remoteness)
    X = made.ask().X
    stayed = (X.unsqueeze(1) == candidates[0]).all(-1).any(-1)
    assert bool(stayed.all()) != may_go


def test_regions_that_know_the_same_points_have_middles_of_their_own() -> None:
    made = TrustRegionBBKB(bounds=UNIT[:, :4], num_regions=3, num_initial=6, seed=0)
    X = torch.rand(30, 4, generator=torch.Generator().manual_seed(0), dtype=F64)
    made.tell(X, hill(X))
    made.ask()
    best = hill(X).argsort(descending=True)[:3].tolist()
    assert [region.center for region in made.regions] == best


def test_large_regions_have_whole_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does one that is small beside one that is not."""
    monkeypatch.setattr(local_surrogate, "maximize_in_region", None)
    near([0.3], 1 / 8).ask()
    made = near([0.3, 0.5], 1 / 32)
    first, second = made.regions
    regions = (first, replace(second, length=0.8))
    runs = replace(made.surrogate.runs, regions=regions)
    made.surrogate = replace(made.surrogate, runs=runs)
    assert made.surrogate.reach == 1.0
    made.ask()


def test_points_of_a_batch_are_apart() -> None:
    """Where all maxima are in one corner, which is proposed once."""

    def falling(X: Tensor) -> Tensor:
        return -X.sum(-1)

    made = near([0.005], 1 / 64, dim=2, f=falling)
    batch = made.ask()
    is_corner = (batch.X == 0.0).all(-1)
    assert int(is_corner.sum()) == 1 and len(batch.X.unique(dim=0)) == 10
    made.withdraw(batch)
    assert int((made.ask().X == 0.0).all(-1).sum()) == 1
    made.tell(torch.zeros(1, 2).double(), [0.0])
    assert not (made.ask().X == 0.0).all(-1).any()


def left(made: TrustRegionBBKB) -> float:
    """The best value after three batches, below zero."""
    for _ in range(3):
        batch = made.ask()
        made.tell(batch, hill(batch.X))
    return made.history.best().value


def test_they_come_nearer_to_a_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """By small deviations and by local maximization, more than by either alone."""

    def whole(num: int) -> tuple[None, Tensor]:
        return None, torch.arange(num) < num // 2

    monkeypatch.setattr(local_surrogate, "SKEWED", torch.inf)  # along the features
    both = left(near([0.4], 1 / 256))
    with monkeypatch.context() as patch:
        patch.setattr(local_surrogate, "greedy_spread", whole)
        maximized = left(near([0.4], 1 / 256))
    with monkeypatch.context() as patch:
        patch.setattr(local_surrogate, "maximize_in_region", lambda f, X, *_: X)
        greedy = left(near([0.4], 1 / 256))
    assert both > 0.9 * max(maximized, greedy)


def told(made: TrustRegionBBKB, num: int, seed: int = 0) -> Tensor:
    """Tell a strategy so many points of its box; they."""
    X = made.box.sample(num, seed) if made.box is not None else BOUNDS
    made.tell(X, objective(X))
    return X


@pytest.mark.parametrize("m", [4, 30])
def test_the_posterior_is_fitc(m: int) -> None:
    """Means and variances of dense formulas; with all points that of the exact GP."""
    made = TrustRegionBBKB(bounds=BOUNDS, covar_module=make_kernel(), lam=0.05)
    X, kernel = told(made, 30), make_kernel()
    made.tell(X[:9], objective(X[:9]))
    values = FoldedEvaluations.of(made.history.point, made.history.values)
    posterior = local_surrogate.local_posterior(
        made.surrogate.source, made.surrogate.priors[0], made.record, values, m
    )
    new = made.box.sample(7, 5)
    K, k, k_new = (kernel(a, b).to_dense() for a, b in ((X, X), (X, new), (new, new)))
    S = slice(0, m)
    inverse = torch.linalg.pinv(K[S, S], hermitian=True, rtol=1e-12)
    Q, q, q_new = (
        K[:, S] @ inverse @ K[S],
        K[:, S] @ inverse @ k[S],
        k[S].mT @ inverse @ k[S],
    )
    D = torch.full((30,), 0.05, dtype=F64)
    D[:9] /= 2  # evaluated twice
    D[m:] += (K - Q).diagonal()[m:]
    Sigma = Q + D.diag()
    one, y = torch.ones(30, dtype=F64), objective(X)
    c = one @ Sigma.inverse() @ y / (one @ Sigma.inverse() @ one)
    mean, variance = posterior.moments(new)
    assert torch.allclose(mean, c + q.mT @ Sigma.inverse() @ (y - c), atol=1e-6)
    left = (k_new - q_new + q_new - q.mT @ Sigma.inverse() @ q).diagonal()
    assert torch.allclose(variance, left, atol=1e-6)


def test_nearest_points_take_turns() -> None:
    X = torch.tensor([[0.0], [0.1], [0.2], [1.0], [0.7]], dtype=F64)
    centers = torch.tensor([[0.0], [1.0]], dtype=F64)
    order = local_surrogate.nearest(X, centers, torch.ones(2, 1, dtype=F64))
    assert order.tolist() == [0, 3, 1, 4, 2]
    none = centers[:0]
    assert local_surrogate.nearest(X, none, none).tolist() == [*range(5)]


@pytest.mark.parametrize("least, expected", [(1, [1, 4, 2]), (4, [1, 4, 2, 0])])
def test_points_that_are_far_are_left_out(least: int, expected: list[int]) -> None:
    """Beyond two sides in any feature, unless there are too few."""
    X = [[0.0, 2.1], [0.0, 0.1], [0.9, 1.9], [3.0, 0.0], [0.5, -1.0]]
    center, sides = torch.zeros(1, 2, dtype=F64), torch.tensor([[0.5, 1.0]])
    order = local_surrogate.nearest(torch.tensor(X, dtype=F64), center, sides, least)
    assert order.tolist() == expected


def test_no_batch_is_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass over the candidates for a batch, whatever its size."""
    made, passes = REGIONS["regions"](batch_size=30), list[int]()
    told(made, 12)
    known = local_surrogate.maximize_paths

    def spy(X: Tensor, paths: Any, *args: Any, **named: Any) -> Any:
        assert all(path.points.dtype == F64 for path in paths)  # none is rounded
        passes.append(len(paths[0].beta))
        return known(X, paths, *args, **named)

    monkeypatch.setattr(local_surrogate, "maximize_paths", spy)
    batch = made.ask()
    assert passes == [30] and len(batch.X.unique(dim=0)) == 30


def test_what_a_fit_and_a_posterior_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bounded number of points, and of iterations."""
    made, fits = REGIONS["regions"](), list[tuple[int, int]]()
    monkeypatch.setattr(local_surrogate, "FIT_POINTS", 8)
    monkeypatch.setattr(local_surrogate, "MOST_POINTS", 10)
    known, conditioned = made.surrogate.source.fitted, list[int]()

    def spy(prior: Any, history: Any, generator: Any, few: Any, steps: int) -> Any:
        fits.append((len(few), steps))
        return known(prior, history, generator, few, steps)

    condition = local_surrogate.local_posterior

    def count(*args: Any) -> Any:
        conditioned.append(len(args[3]))
        return condition(*args)

    monkeypatch.setattr(made.surrogate.source, "fitted", spy)
    monkeypatch.setattr(local_surrogate, "local_posterior", count)
    told(made, 20)
    made.run(objective, 32, progress=False)  # in batches of three
    # On the other scale too, at the beginning and once there are twice as many points.
    assert fits == [(8, 100), (8, 10), (8, 30), (8, 30), (8, 10)]
    assert set(conditioned) == {10} and made.history.num_inducing.max() == 6


def test_a_fit_near_an_optimum(tmp_path: Path) -> None:
    """To points of a small region as to those of a box: short scales, little noise."""
    made = TrustRegionBBKB(bounds=BOUNDS, batch_size=3)
    low, high = BOUNDS
    g = torch.Generator().manual_seed(0)
    U = torch.rand(60, BOUNDS.shape[-1], generator=g, dtype=F64) - 0.5
    X = (low + high) / 2 + 1e-3 * (high - low) * U
    Y = 1e6 - (4 * U).sin().sum(-1)
    made.tell(X[:30], Y[:30])
    made.withdraw(made.ask())
    small = replace(made.regions[0], length=1e-3)
    made.surrogate = replace(
        made.surrogate, runs=replace(made.surrogate.runs, regions=(small,))
    )
    for part in (slice(30, 45), slice(45, 60)):
        made.tell(X[part], Y[part])
        made.withdraw(made.ask())
    prior = made.surrogate.priors[0]
    assert float(prior.covar_module.lengthscale.max()) < 0.025
    # By the likelihood alone; with BoTorch's prior of the noise it is 9e-6.
    assert prior.lam < 1e-2 * MIN_INFERRED_NOISE_LEVEL
    again = TrustRegionBBKB(bounds=BOUNDS, batch_size=3)
    path = tmp_path / "near.state"
    made.save(path)
    again.resume(path)
    assert torch.equal(again.ask().X, made.ask().X)


def test_a_region_that_ends_begins_anew() -> None:
    """With points from all of the box, and a posterior of these alone."""
    made = REGIONS["regions"](covar_module=make_kernel(), lam=1e-4)
    told(made, 4)
    made.tell(BOUNDS.mean(0, keepdim=True), [5.0])
    made.ask()
    lengths = [made.regions[0].length]
    while made.regions[0].run == 0:
        batch = made.pending_batch()
        made.tell(batch, [-9.0] * len(batch))
        lengths.append(made.regions[0].length)
        made.ask()
    # Two features: two batches of three points without success halve it.
    assert lengths[::2] == [0.8 / 2**k for k in range(12)] + [0.8]
    assert made.regions[0].center is None and len(made.pending) == 3
    num = len(made.history)
    assert made.regions[0] == Region(1, start=num)
    made.run(lambda X: X[:, 0], num + 4, progress=False)
    made.ask()
    assert made.posterior.num_inducing == 4
    assert made.regions[0].center >= num - 1
    assert made.history.best().value == 5.0


def test_the_part_around_some_points() -> None:
    """Within a deviation of the mean, at least a quarter of what all have."""
    bounds = torch.tensor([[-2.0, 0.0, 5.0], [2.0, 1.0, 6.0]], dtype=F64)
    X = torch.tensor([[-1.0, 0.9, 5.5], [1.0, 1.0, 5.5]], dtype=F64)
    typical = ((0.25**2 + 0.05**2) / 3) ** 0.5
    lower = [0.25, 0.9, 0.5 - typical / 4]
    upper = [0.75, 1.0, 0.5 + typical / 4]
    box = Box(bounds)
    part = part_around(box, X)
    assert part == (pytest.approx(lower), pytest.approx(upper))
    inside = moved_into(box, part, bounds[[0, 1]])
    ends = bounds[0] + (bounds[1] - bounds[0]) * torch.tensor([lower, upper]).double()
    assert torch.allclose(inside, ends)
    region = Region.begun_in(part, 2, 100)
    sides = torch.tensor(upper) - torch.tensor(lower)
    width = float(sides.prod() ** (1 / 3))
    assert region.length == pytest.approx(0.8 * width) and region.start == 100
    assert region.turned().length == pytest.approx(0.8 * width)
    small = replace(region, length=1e-6)
    assert small.turned().length == pytest.approx(0.025 * width)
    assert part_around(box, X[:1].repeat(3, 1)) is None
    single, far = Box(BOUNDS.float()), Box(BOUNDS + 1e9)
    ends = torch.tensor([[0.3, 0.3], [0.3, 0.301]], dtype=F64)
    assert part_around(Box(BOUNDS), ends) is not None
    assert part_around(single, ends) is None  # it would end between two numbers
    assert part_around(far, ends + 1e9) is None
    low, high = part_around(box, bounds)  # cut off at the domain's ends
    assert min(low) >= 0.0 and max(high) <= 1.0


def better_ends(best: list[tuple[float, Tensor]]) -> Tensor:
    """The better half of the ends of runs, at least three."""
    order = sorted(range(len(best)), key=lambda run: -best[run][0])
    return torch.stack([best[run][1] for run in order[: max(3, (len(best) + 1) // 2)]])


def test_every_second_run_begins_where_others_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trust_region, "SMALLEST_LENGTH", 0.3)
    made = REGIONS["regions"](covar_module=make_kernel(), lam=1e-4)
    best, begun = dict[int, tuple[float, Tensor]](), dict[int, Tensor]()
    while (region := made.regions[0]).run < 9:
        batch = made.ask()
        values = objective(batch.X)
        if made.regions[0].run not in begun and len(batch) == 3:
            region = made.regions[0]
            begun[region.run] = batch.X
            assert made.runs_of(batch) == [region.run] * 3
            if region.run % 2 == 1 or region.run == 0:
                assert region.part is None and region.length == 0.8
            else:
                ends = better_ends([best[run] for run in range(region.run)])
                lower, upper = part_around(Box(BOUNDS), ends)
                assert region.part == (pytest.approx(lower), pytest.approx(upper))
                U = (batch.X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
                assert bool((U >= torch.tensor(lower) - 1e-9).all())
                assert bool((U <= torch.tensor(upper) + 1e-9).all())
                assert made.regions[0].length == pytest.approx(0.8 * region.width)
        for run, x, value in zip(made.runs_of(batch), batch.X, values, strict=True):
            if run not in best or value > best[run][0]:
                best[run] = (float(value), x)
        made.tell(batch, values)
    assert {2, 4, 6, 8} <= begun.keys()


def test_runs_that_go_on_have_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two regions one begins around the ends of runs that are over."""
    monkeypatch.setattr(trust_region, "SMALLEST_LENGTH", 0.3)
    made = REGIONS["regions"](covar_module=make_kernel(), lam=1e-4, num_regions=2)
    best, num_parts = dict[int, tuple[float, Tensor]](), 0
    while num_parts < 3:
        batch, before = made.ask(), made.regions
        values = objective(batch.X)
        for run, x, value in zip(made.runs_of(batch), batch.X, values, strict=True):
            if run not in best or value > best[run][0]:
                best[run] = (float(value), x)
        made.tell(batch, values)
        for old, new in zip(before, made.regions, strict=True):
            if new.run == old.run or new.part is None:
                continue
            over = best.keys() - ({each.run for each in before} - {old.run})
            over = [best[run] for run in sorted(over)]
            lower, upper = part_around(Box(BOUNDS), better_ends(over))
            assert new.part == (pytest.approx(lower), pytest.approx(upper))
            num_parts += 1


def test_other_domains_have_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where points between the ends of runs may be none of the domain."""
    monkeypatch.setattr(trust_region, "SMALLEST_LENGTH", 0.3)
    cut = [(torch.tensor([0, 1]), torch.tensor([-1.0, -1.0], dtype=F64), -1.5)]
    for options in ({"inequality_constraints": cut}, {"fixed_features": {0: 0.5}}):
        made = REGIONS["regions"](covar_module=make_kernel(), lam=1e-4, **options)
        while made.regions[0].run < 3:
            batch = made.ask()
            assert made.regions[0].part is None
            made.tell(batch, objective(batch.X))


def test_results_that_come_one_by_one() -> None:
    """Failures are counted in evaluations; points told late count in their run."""
    made = REGIONS["regions"]()
    told(made, 6)
    first, second = made.ask(), made.ask()
    for x in (*second.X, *first.X[:2]):
        made.tell(x.unsqueeze(0), [-9.0])
        made.ask(1)
    assert made.regions[0].failures == 5 and made.regions[0].length == 0.8
    made.tell(first.X[2:], [9.0])
    made.ask(1)
    assert made.regions[0].failures == 0 and made.regions[0].successes == 1
    assert torch.equal(
        made.history.points(torch.tensor([made.regions[0].center])), first.X[2:]
    )


def test_several_regions_share_a_batch() -> None:
    made = REGIONS["regions-two"](batch_size=12)
    first = made.ask()
    assert len(first) == 8  # the first four points of both
    made.tell(first, objective(first.X))
    made.ask()
    centers = {region.center for region in made.regions}
    best = objective(first.X).view(2, 4).argmax(-1) + torch.tensor([0, 4])
    assert centers == set(best.tolist())
    assert {*made.surrogate.runs.of_trial.tolist()} == {0, 1}


@pytest.mark.parametrize("size", [1, 6, 40])
def test_middles_are_evaluated_again(size: int) -> None:
    """Once in 20 evaluations, or in a larger batch; not while they are pending."""
    g, again = torch.Generator().manual_seed(0), list[int]()
    made = TrustRegionBBKB(
        bounds=BOUNDS, batch_size=size, num_initial=8, repeats=True, minimize=True
    )
    while len(made.record) < 150:
        known = {*made.record.point.tolist()}
        batch, asked = made.ask(), made.pending.tolist()
        middle = made.regions[0].center
        assert asked.count(middle) == len(known.intersection(asked)) <= 1
        batches = [batch]
        if middle in asked:
            again.append(len(made.record))
            batches.append(made.ask())
            assert made.pending.tolist().count(middle) == 1
        for each in batches:
            noise = torch.randn(len(each), generator=g).double()
            made.tell(each, (each.X - 0.4).square().sum(-1) + noise)
    gaps = [b - a for a, b in pairwise(again)]
    assert len(again) >= 2 and min(gaps) >= min(20, 2 * size)
    assert min(gaps) <= 20 + 2 * size


def test_a_batch_has_one_middle_again_of_all_regions() -> None:
    """That which waited longest; one that failed is not asked for once more."""
    made = TrustRegionBBKB(
        bounds=BOUNDS, batch_size=20, num_regions=3, num_initial=4, repeats=True
    )
    again = list[int]()
    for _ in range(8):
        known = made.record.point.tolist()  # each once
        batch, asked = made.ask(), made.pending.tolist()
        middles = [region.center for region in made.regions]
        open_ones = [
            point for point in known if point in middles and point not in again
        ]
        repeated = [point for point in asked if point in known]
        assert repeated == open_ones[:1]
        again += repeated
        is_new = torch.tensor([point not in known for point in asked])
        made.fail(made.pending_ids[~is_new].tolist())
        made.tell(made.pending_ids, objective(batch.X[is_new]))
    assert len(again) == len({*again}) >= 3


def test_middles_are_evaluated_again_beside_new_points() -> None:
    """Where a domain has no more of them, its points are drawn."""
    made = TrustRegionBBKB(
        bounds=BOUNDS,
        discrete_dims={0: [0, 1], 1: [0, 1]},
        repeats=True,
    )
    for _ in range(5):
        batch = made.ask()
        made.tell(batch, objective(batch.X))
    assert len(batch) == 20


def test_under_noise_the_middle_goes_by_the_mean() -> None:
    """With a kernel of known noise, as the dense posterior has it."""
    X = Box(BOUNDS).sample(20, 1)
    Y = -(X - 0.5).square().sum(-1)
    Y[Y.argmin()] = Y.max() + 0.05  # a lucky one
    wide = ScaleKernel(make_kernel()).double().requires_grad_(False)
    wide.outputscale = torch.tensor(150.0, dtype=F64)
    for kernel, lam, expects_mean in (
        (make_kernel(), 1.0, True),
        (make_kernel(), 1e-4, False),
        (wide, 1.0, False),  # noise counts in units of the prior's variance
    ):
        made = TrustRegionBBKB(bounds=BOUNDS, covar_module=kernel, lam=lam)
        made.tell(X, Y)
        made.ask()
        K = kernel(X).to_dense()
        inverse = (K + lam * torch.eye(20, dtype=F64)).inverse()
        c = (inverse @ Y).sum() / inverse.sum()
        mean = c + K @ inverse @ (Y - c)
        assert int(mean.argmax()) != int(Y.argmax()) or lam < 1.0
        expected = mean if expects_mean else Y
        assert made.regions[0].center == int(expected.argmax())


def test_under_noise_the_middle_is_a_point_of_the_posterior() -> None:
    """What it says of points far from all that it knows is extrapolated."""
    made = TrustRegionBBKB(
        bounds=BOUNDS, covar_module=make_kernel(), lam=1.0, batch_size=4
    )
    X = Box(BOUNDS).sample(260, 1)
    made.tell(X, 5.0 + objective(X))
    surrogate = made.surrogate
    runs = replace(surrogate.runs, regions=(Region(0, length=0.1, center=7),))
    made.surrogate = replace(surrogate, runs=runs)
    noise = torch.Generator().manual_seed(0)
    for _ in range(6):
        known = {*made.surrogate.values(made.record, len(made.record)).point.tolist()}
        assert len(known) < len(made.history)
        batch = made.ask()
        Y = 5.0 + objective(batch.X) + torch.randn(4, generator=noise, dtype=F64)
        made.tell(batch, Y)
        known |= {*range(len(made.history) - 4, len(made.history))}
        assert made.regions[0].center in known


def test_points_that_break_constraints_are_no_middle() -> None:
    """They may be in a state."""
    made = TrustRegionBBKB(
        bounds=BOUNDS, inequality_constraints=[(torch.tensor([0]), torch.ones(1), 0.0)]
    )
    made.tell([[0.5, 0.25]], [1.0])
    state = made.state_dict()
    state["history"]["extra"] = torch.tensor([[-0.5, 0.5]]).to(BOUNDS)
    made.load_state_dict(state)
    made.tell([[0.5, 0.5]] * 6, [0.0] * 6)
    assert (made.ask().X[:, 0] >= 0).all()
    assert made.history.points(torch.tensor([made.regions[0].center])).tolist() == [
        [0.5, 0.5]
    ]


@pytest.mark.parametrize("name", REGIONS)
def test_constraints_hold_in_a_run(name: str) -> None:
    domain = {
        "inequality_constraints": [(torch.tensor([0, 1]), torch.ones(2), 0.25)],
        "fixed_features": {1: 0.75},
    }
    made = REGIONS[name](**domain)
    X = made.run(objective, 13, progress=False).X
    assert made.box.is_feasible(X).all() and len(X.unique(dim=0)) == 13


@pytest.mark.slow
@pytest.mark.parametrize(
    "acquisition, seed", [("thompson", 0), ("thompson", 1), ("ucb", 2)]
)
def test_finds_what_random_search_does_not(acquisition: Any, seed: int) -> None:
    """On Hartmann's function, whose largest value is 3.32."""
    f = Hartmann(negate=True, dtype=F64)
    given = {"bounds": f.bounds.double(), "batch_size": 10, "seed": seed}
    made = TrustRegionBBKB(**given, acquisition=acquisition, num_candidates=500)
    found = made.run(f, 150, progress=False).best().value
    other = RandomSearch(**given).run(f, 150, progress=False).best().value
    assert found > 2.8 and found > other + 0.3


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"candidates": BOUNDS}, InputDataError, "TrustRegionBBKB works on continuous"),
    ({"rule": "global"}, InputDataError, "take acquisition='ucb'"),
    (
        {"covar_module": LinearKernel()},
        UnsupportedError,
        "LinearKernel, for which there are no random features",
    ),
    ({"lam": 1.0}, InputDataError, "without covar_module"),
]


@pytest.mark.parametrize("change, error, match", BAD)
def test_bad_arguments(change: dict[str, Any], error: Any, match: str) -> None:
    given = {} if "candidates" in change else {"bounds": BOUNDS}
    with pytest.raises(error, match=match):
        TrustRegionBBKB(**given | change)
