"""Boxes with features that take some values only."""

from itertools import product

import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_sparse.strategies import (
    BBKB,
    GSSBO,
    SBPE,
    Constraint,
    Objective,
    RandomSearch,
    Strategy,
    ThompsonSampling,
    TrustRegionBBKB,
)
from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.data.discrete import DiscreteFeatures
from botorch_sparse.strategies.trust_region.trust_region import (
    candidates_around,
    smallest_length,
)

F64 = torch.float64
# A number, a count with gaps, a category of three, and a number.
BOUNDS = torch.tensor([[0.0, 1.0, -1.0, 0.0], [1.0, 8.0, 7.0, 10.0]], dtype=F64)
COUNTS, CODES = (1, 2, 5, 8), (-1, 3, 7)
MIXED = {"discrete_dims": {1: COUNTS}, "cat_dims": {2: CODES}}
BINARY = {
    "bounds": torch.tensor([[0.0] * 12, [1.0] * 12], dtype=F64),
    "discrete_dims": {j: (0, 1) for j in range(12)},
}


def takes_its_values(X: Tensor) -> bool:
    """By going over all values."""
    return all(float(x[1]) in COUNTS and float(x[2]) in CODES for x in X)


def test_values_are_sorted_and_of_each_feature():
    features = DiscreteFeatures.of(BOUNDS, {1: [8, 2, 2, 5]}, {2: [7, -1]})
    assert [v.tolist() for v in features.values.values()] == [[2, 5, 8], [-1, 7]]
    assert list(features.values) == [1, 2]
    assert len(DiscreteFeatures.of(BOUNDS, None, None)) == 0


def test_nearest_values():
    X = torch.tensor([[0.4, 3.4, 1.1, 2.2], [0.4, 3.6, 0.9, 2.2]], dtype=F64)
    expected = [[0.4, 2.0, 3.0, 2.2], [0.4, 5.0, -1.0, 2.2]]
    assert Box(BOUNDS, **MIXED).discrete.nearest(X).tolist() == expected


def test_samples_are_uniform_over_the_values():
    """Sobol's first 256 points have each value as often as the others, up to a few."""
    X = Box(BOUNDS, **MIXED).sample(256, seed=0)
    assert takes_its_values(X)
    for column, values in ((1, COUNTS), (2, CODES)):
        share = torch.stack([(X[:, column] == v).double().mean() for v in values])
        assert torch.allclose(share, torch.full_like(share, 1 / len(values)), atol=0.02)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "constraint",
    [
        (torch.tensor([1, 3]), torch.tensor([1.0, 1.0]), 12.0),  # half of the box
        (torch.tensor([1, 3]), torch.tensor([1.0, 1.0]), 17.95),  # by the walk
    ],
)
def test_samples_meet_constraints(constraint):
    box = Box(BOUNDS, inequality_constraints=[constraint], **MIXED)
    X = box.sample(20, seed=0)
    assert len(X) == 20 and takes_its_values(X)
    assert bool((X[:, 1] + X[:, 3] >= constraint[2] - 1e-5).all())
    equal = (torch.tensor([0, 3]), torch.tensor([1.0, 0.1]), 1.0)
    X = Box(BOUNDS, equality_constraints=[equal], **MIXED).sample(20, seed=0)
    assert takes_its_values(X)
    assert torch.allclose(X[:, 0] + 0.1 * X[:, 3], torch.ones(20, dtype=F64), atol=1e-5)


@pytest.mark.slow
def test_constraints_without_a_value_are_said():
    between = [
        (torch.tensor([1]), torch.tensor([1.0]), 3.0),
        (torch.tensor([1]), torch.tensor([-1.0]), -4.0),
    ]
    box = Box(BOUNDS, inequality_constraints=between, **MIXED)
    with pytest.raises(InputDataError, match="values of discrete_dims"):
        box.sample(3, seed=0)


@pytest.mark.parametrize("reach", [0.0, 3.0, 7.0])
@pytest.mark.parametrize("count", COUNTS)
def test_other_values(count, reach):
    """All within reach, the next ones always, and never the own; categories all."""
    features = Box(BOUNDS, **MIXED).discrete
    x = torch.tensor([0.5, count, 3.0, 5.0], dtype=F64)
    U = torch.rand(500, 4, generator=torch.Generator().manual_seed(0), dtype=F64)
    X = features.others(x, U, torch.full((4,), reach, dtype=F64))
    here = COUNTS.index(count)
    wanted = {v for v in COUNTS if abs(v - count) <= reach}
    wanted |= {COUNTS[k] for k in (here - 1, here + 1) if 0 <= k < len(COUNTS)}
    assert set(X[:, 1].tolist()) == wanted - {count}
    assert set(X[:, 2].tolist()) == {-1.0, 7.0}
    assert torch.equal(X[:, [0, 3]], x[[0, 3]].expand(500, 2))


def test_categories_are_one_hot_after_the_others():
    features = Box(BOUNDS, **MIXED).discrete
    X = torch.tensor([[0.4, 5.0, 3.0, 2.2], [0.1, 8.0, 7.0, 9.0]], dtype=F64)
    expected = [[0.4, 5.0, 2.2, 0, 1, 0], [0.1, 8.0, 9.0, 0, 0, 1]]
    assert features.encoded(X).tolist() == expected
    ranges = features.encoded_ranges(BOUNDS).tolist()
    assert ranges == [[0, 1, 0, 0, 0, 0], [1, 8, 10, 1, 1, 1]]
    alone = DiscreteFeatures.of(BOUNDS, {1: COUNTS}, None)
    assert alone.encoded(X) is X and alone.encoded_ranges(BOUNDS) is BOUNDS


@pytest.mark.parametrize("length", [1.0, 0.3, 2.0**-10])
def test_candidates_of_a_region(length):
    """Values there are, all different, and fewer changes in a smaller region."""
    bounds = torch.cat([BOUNDS, BOUNDS], dim=1)
    box = Box(
        bounds,
        discrete_dims={1: COUNTS, 5: COUNTS},
        cat_dims={2: CODES, 6: CODES},
    )
    center = torch.tensor([0.5, 2.0, 3.0, 5.0] * 2, dtype=F64)
    sides = torch.full((8,), length, dtype=F64)
    X = candidates_around(box, center, sides, 400, seed=0)
    assert torch.equal(X, box.discrete.nearest(X))
    assert len(X.unique(dim=0)) == len(X) > 100
    assert not bool((X == center).all(-1).any())
    changed = (X != center)[:, [1, 2, 5, 6]].sum(-1)
    most = {1.0: 4, 0.3: 2, 2.0**-10: 1}[length]
    assert int(changed.max()) == most
    assert bool((X - center)[:, [0, 4]].abs().max() <= length / 2 + 1e-12)
    assert bool((X - center)[:, [3, 7]].abs().max() <= 5 * length + 1e-12)
    if length < 0.1:
        assert set(X[:, 1].tolist()) == {1.0, 2.0, 5.0}  # the next ones


def test_candidates_keep_to_constraints_and_fixed_features():
    limit = (torch.tensor([1, 3]), torch.tensor([-1.0, -1.0]), -7.5)
    box = Box(BOUNDS, [limit], fixed_features={2: 3.0}, **MIXED)
    center = torch.tensor([0.5, 2.0, 3.0, 5.0], dtype=F64)
    X = candidates_around(box, center, torch.ones(4, dtype=F64), 400, seed=0)
    assert len(X) > 50 and takes_its_values(X)
    assert bool((X[:, 1] + X[:, 3] <= 7.5 + 1e-5).all())
    assert set(X[:, 2].tolist()) == {3.0}
    assert {1.0, 2.0, 5.0} == set(X[:, 1].tolist())


@pytest.mark.parametrize("length", [0.8, 0.1])
@pytest.mark.parametrize("kind", ["inequality", "equality"])
def test_constraints_on_other_features_hold_no_discrete_one(kind, length):
    """Bits, counts and categories change as often as without a constraint."""
    sides, center = torch.full((4,), length, dtype=F64), BOUNDS.mean(0)
    center[1:3] = torch.tensor([2.0, 3.0])
    place, ones = torch.tensor([0, 3]), torch.tensor([1.0, 0.1])
    inside = -2.5 if kind == "inequality" else 1.0
    limit = (place, -ones if kind == "inequality" else ones, inside)
    box = Box(BOUNDS, **{f"{kind}_constraints": [limit]}, **MIXED)
    shares = []
    for each in (Box(BOUNDS, **MIXED), box):
        X = candidates_around(each, center, sides, 500, seed=0)
        shares.append((X != center)[:, [1, 2]].double().mean(0))
        assert takes_its_values(X) and {-1.0, 7.0} <= set(X[:, 2].tolist())
    assert torch.allclose(*shares, atol=0.15)
    if kind == "equality":
        assert torch.allclose(X[:, 0] + 0.1 * X[:, 3], torch.ones(len(X)).double())


def test_few_of_many_bits():
    """At most three of 20: a thousandth of all points."""
    bounds = torch.tensor([[0.0] * 20, [1.0] * 20], dtype=F64)
    few = (torch.arange(20), -torch.ones(20), -3.0)
    bits = {j: (0, 1) for j in range(20)}
    box = Box(bounds, inequality_constraints=[few], discrete_dims=bits)
    X = box.sample(30, seed=0)
    assert len(X.unique(dim=0)) > 20 and set(X.sum(-1).tolist()) >= {2.0, 3.0}
    center = X[X.sum(-1) == 3][0]
    near = candidates_around(box, center, 0.1 * torch.ones(20).double(), 200, seed=0)
    assert len(near) > 3 and bool((near.sum(-1) <= 3).all())


def test_ends_of_bounds_in_single_precision():
    bounds = torch.tensor([[0.1], [0.7]])
    X = Box(bounds, discrete_dims={0: (0.1, 0.3, 0.7)}).sample(9, seed=0)
    assert X.dtype == torch.float32 and len(X.unique()) == 3


def test_told_values_are_rounded_by_the_gap_to_the_next():
    """And not by the side of the box, which may be much larger."""
    bounds = torch.tensor([[1.0], [1e7]], dtype=F64)
    strategy = RandomSearch(bounds=bounds, discrete_dims={0: range(1, 100)})
    with pytest.raises(InputDataError, match="discrete_dims"):
        strategy.tell([[3.5]], [1.0])


def test_where_regions_end():
    assert smallest_length(Box(BOUNDS, **MIXED)) == 0.5**12
    assert smallest_length(Box(**BINARY)) == 0.5 / 12
    fixed = Box(BOUNDS, fixed_features={0: 0.5, 3: 1.0}, **MIXED)
    assert smallest_length(fixed) == 1 / 4
    counts = {"discrete_dims": {0: range(1001)}}
    one = torch.tensor([[0.0], [1000.0]], dtype=F64)
    assert smallest_length(Box(one, **counts)) == 1 / 1001


def hidden(X: Tensor) -> Tensor:
    """Best, at zero, for 0.3, 5, category 7 and 2."""
    wrong = (X[:, 2] != 7).double()
    return -(
        (X[:, 0] - 0.3) ** 2 + (X[:, 1] - 5).abs() + wrong + (X[:, 3] - 2) ** 2 / 10
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("acquisition", ["thompson", "ucb"])
def test_a_mixed_space_is_searched(acquisition):
    strategy = TrustRegionBBKB(
        bounds=BOUNDS, batch_size=5, acquisition=acquisition, seed=0, **MIXED
    )
    history = strategy.run(hidden, 80, progress=False)
    assert takes_its_values(history.X)
    assert len(history.X.unique(dim=0)) == 80
    assert history.best().value > -0.02
    assert history.best().X[1:3].tolist() == [5.0, 7.0]
    mean, _ = strategy.predict(history.X)
    assert torch.corrcoef(torch.stack([mean, history.Y.flatten()]))[0, 1] > 0.9


@pytest.mark.slow
def test_a_binary_space_is_searched():
    """The best of 4,096 points by a quadratic form, by going over all of them."""
    g = torch.Generator().manual_seed(0)
    Q = torch.randn(12, 12, generator=g, dtype=F64)

    def form(X: Tensor) -> Tensor:
        return ((X @ Q) * X).sum(-1)

    best = float(
        form(torch.tensor(list(product((0.0, 1.0), repeat=12)), dtype=F64)).max()
    )
    strategy = TrustRegionBBKB(**BINARY, batch_size=5, seed=0)
    history = strategy.run(form, 150, progress=False)
    assert history.best().value == pytest.approx(best)
    assert len(history.X.unique(dim=0)) == 150


def test_a_kernel_that_is_given_sees_the_codes():
    kernel = RBFKernel(ard_num_dims=4)
    kernel.lengthscale = torch.tensor([0.5, 3.0, 4.0, 5.0])
    strategy = TrustRegionBBKB(
        None, kernel, 1e-3, bounds=BOUNDS, batch_size=5, num_initial=5, **MIXED
    )
    history = strategy.run(hidden, 40, progress=False)
    assert takes_its_values(history.X)
    assert strategy.surrogate.source.inputs(history.X).shape == (40, 4)
    assert torch.equal(strategy.surrogate.side_weights()[2], torch.ones((), dtype=F64))


def test_a_run_goes_on_to_the_same_bits(tmp_path):
    def made(**given: object) -> TrustRegionBBKB:
        space = {"bounds": BOUNDS, **MIXED, **given}
        return TrustRegionBBKB(**space, batch_size=5, seed=3)

    one = made()
    one.run(hidden, 25, progress=False)
    one.save(tmp_path / "state.pt")
    other = made().resume(tmp_path / "state.pt")
    for _ in range(2):
        batch, same = one.ask(), other.ask()
        assert torch.equal(batch.X, same.X)
        one.tell(batch, hidden(batch.X))
        other.tell(same, hidden(same.X))
    with pytest.raises(InputDataError, match="discrete_dims"):
        made(discrete_dims={1: (1, 2, 5)}).resume(tmp_path / "state.pt")
    with pytest.raises(InputDataError, match="cat_dims"):
        made(cat_dims=None).resume(tmp_path / "state.pt")


def test_all_points_of_a_small_space_and_then_again():
    space = {"bounds": BINARY["bounds"][:, :2], "discrete_dims": {0: (0, 1), 1: (0, 1)}}
    strategy = TrustRegionBBKB(**space, batch_size=1, num_initial=2)
    history = strategy.run(lambda X: X.sum(-1), 12, progress=False)
    assert len(history) == 12
    assert len(history.X.unique(dim=0)) == 4


@pytest.mark.slow
def test_several_outcomes():
    outcomes = [Objective("a"), Objective("b", minimize=True), Constraint("c", upper=6)]
    strategy = TrustRegionBBKB(bounds=BOUNDS, outcomes=outcomes, batch_size=5, **MIXED)

    def f(X: Tensor) -> Tensor:
        return torch.stack([hidden(X), X[:, 0] + (X[:, 2] == 7), X[:, 3]], dim=-1)

    history = strategy.run(f, 40, progress=False)
    assert takes_its_values(history.X)
    assert len(history.pareto()) > 1


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_told_points_are_taken_within_rounding(dtype):
    strategy = RandomSearch(bounds=BOUNDS.to(dtype), **MIXED)
    strategy.tell([[0.5, 5.0000001, 3.0, 1.0], [0.5, 5.0, 3.0, 2.0]], [1.0, 2.0])
    assert strategy.history.X[:, 1].tolist() == [5.0, 5.0]
    for x, name in (([0.5, 4.0, 3.0, 1.0], "discrete_dims"), ([0.5, 5, 4, 1], "cat_")):
        with pytest.raises(InputDataError, match=rf"breaks '{name}.*\[[12]\]"):
            strategy.tell([x], [1.0])
    assert len(strategy.history) == 2


@pytest.mark.parametrize("cls", [BBKB, ThompsonSampling, GSSBO, SBPE])
def test_strategies_that_move_along_gradients_refuse(cls: type[Strategy]):
    with pytest.raises(UnsupportedError, match="Take TrustRegionBBKB"):
        cls(bounds=BOUNDS, **MIXED)


def test_a_table_has_no_discrete_features():
    with pytest.raises(InputDataError, match="belong to bounds"):
        RandomSearch(torch.rand(5, 2), discrete_dims={0: (0, 1)})


@pytest.mark.parametrize(
    "given, words",
    [
        ({"discrete_dims": {4: (1, 2)}}, "index from 0 to 3"),
        ({"discrete_dims": {-1: (1, 2)}}, "from 0 on"),
        ({"discrete_dims": {1: (1, 9)}}, "within the bounds"),
        ({"discrete_dims": {1: (2, 2)}}, "at least two different"),
        ({"cat_dims": {1: ()}}, "at least two different"),
        ({"cat_dims": {1: ("a", "b")}}, "list of numbers"),
        ({"cat_dims": {1: 3}}, "at least two different"),
        ({"cat_dims": [1]}, "by the index"),
        ({"discrete_dims": {1: (1, 2)}, "cat_dims": {1: (1, 2)}}, "in one of them"),
        ({"discrete_dims": {1: (1, 2)}, "fixed_features": {1: 1.5}}, "its values"),
    ],
)
def test_what_is_refused(given, words):
    with pytest.raises(InputDataError, match=words):
        Box(BOUNDS, **given)


@pytest.mark.parametrize("index, kind", [(1, "equality"), (2, "inequality")])
def test_constraints_that_are_refused(index, kind):
    constraint = (torch.tensor([0, index]), torch.ones(2), 3.0)
    with pytest.raises(InputDataError, match=rf"on the features \[{index}\]"):
        Box(BOUNDS, **{f"{kind}_constraints": [constraint]}, **MIXED)
