"""The library's own members pass the tests of their families; broken ones do not."""

import ast
import importlib.util
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from batch_oracles import OnePlate
from gpytorch.means import ZeroMean
from strategy_table import make_kernel
from torch import Tensor

from botorch_sparse import acquisition as a
from botorch_sparse import batching as b
from botorch_sparse import inducing as i
from botorch_sparse import strategies as s
from botorch_sparse import testing as t
from botorch_sparse.pools import ExactPool, NystromPool
from botorch_sparse.posteriors import NystromPosterior


class Parametrized:
    """A family's class run for each member of a list: `make` is the member's."""

    members: ClassVar[list[Any]]
    make: Callable[..., Any]

    @pytest.fixture(autouse=True)
    def _member(self, request: pytest.FixtureRequest) -> None:
        self.make = request.param


def family(members: list[Any]) -> pytest.MarkDecorator:
    names = [getattr(m, "__name__", None) or repr(m()) for m in members]
    return pytest.mark.parametrize("_member", members, ids=names, indirect=True)


TUTORIAL = Path(__file__).parents[1] / "tutorials" / "own_rules" / "own_rules.py"


def tutorial_members() -> dict[str, Any]:
    """The classes that the tutorial defines, without running its figures."""
    tree = ast.parse(TUTORIAL.read_text())
    kinds = (ast.ClassDef, ast.Import, ast.ImportFrom)
    tree.body = [node for node in tree.body if isinstance(node, kinds)]
    module = sys.modules["own_rules"] = ModuleType("own_rules")  # to pickle by name
    exec(compile(tree, str(TUTORIAL), "exec"), vars(module))
    return vars(module)


OWN = tutorial_members() if importlib.util.find_spec("matplotlib") else {}


def own_members(*names: str, size: int) -> list[Any]:
    """Members that the tutorial defines, which take a size; none without matplotlib."""
    return [partial(OWN[name], size) for name in names if OWN]


@family(
    [
        i.RecursiveRLSSampler,
        i.BLESSSampler,
        i.CertifiedSampler,
        lambda: i.CertifiedSampler(max_inducing_points=9),
        i.PosteriorVarianceSampler,
        *own_members("GreedySampler", "UniformSampler", size=20),
    ]
)
@pytest.mark.filterwarnings("ignore:The inducing points reached their cap")
class TestSamplers(Parametrized, t.InducingPointSamplerTestCase):
    def create_sampler(self) -> Any:
        return self.make()


@family(
    [
        b.Global,
        b.Product,
        b.Local,
        lambda: b.Local(1.2),
        lambda: OnePlate(4),
        *own_members("OnePlate", size=4),
    ]
)
class TestRules(Parametrized, t.RuleTestCase):
    def create_rule(self) -> Any:
        return self.make()


@family([b.Single, b.UntilHalved, lambda: b.FixedSize(5)])
class TestRulesOfSizes(Parametrized, t.RuleTestCase):
    bounds_the_ratio = False

    def create_rule(self) -> Any:
        return self.make()


BOUND = {"norm_bound": 1.5, "noise_variance": 0.01, "delta": 0.05}


@family(
    [
        lambda: a.FixedBeta(4.0),
        *own_members("SlowlyWider", size=1),
        *(
            lambda c=c: a.BBKBRadius(**BOUND, constants=c)
            for c in ("practical", "theory")
        ),
        *(
            lambda c=c: a.BKBRadius(**BOUND, constants=c)
            for c in ("practical", "theory")
        ),
        lambda: a.ChowdhuryGopalanRadius(**BOUND),
        lambda: a.SrinivasFiniteRadius(num_candidates=50, delta=0.05),
        lambda: a.GuessAndDouble(a.BBKBRadius(**BOUND)),
        lambda: a.RandomizedRadius(a.BBKBRadius(**BOUND), seed=0),
        lambda: a.ShiftedExponentialRadius(num_candidates=50, seed=0),
        lambda: a.SrinivasAgnosticRadius(**BOUND),
        lambda: a.SrinivasCompactRadius(dim=2, delta=0.05),
    ]
)
class TestRadii(Parametrized, t.ConfidenceRadiusTestCase):
    def create_radius(self) -> Any:
        return self.make()


def nystrom(X: Tensor, train_X: Tensor, train_Y: Tensor, **options: Any) -> NystromPool:
    noise = torch.full((len(train_X),), t.NOISE).double()
    posterior = NystromPosterior.from_data(
        t.example_kernel(), train_X, train_Y, noise, train_X
    )
    pool = NystromPool(X, t.NOISE, **options)
    pool.update(posterior, torch.ones(len(X)).double())
    return pool


def streamed(X: Tensor, train_X: Tensor, train_Y: Tensor) -> NystromPool:
    return nystrom(X, train_X, train_Y, max_memory=0)


def exact(X: Tensor, train_X: Tensor, train_Y: Tensor) -> ExactPool:
    pool = ExactPool(X, t.example_kernel(), t.NOISE, mean_module=ZeroMean())
    pool.rebuild(train_X, train_Y, torch.full((len(train_X),), t.NOISE).double())
    return pool


@family([nystrom, streamed, exact])
class TestPools(Parametrized, t.PoolTestCase):
    def create_pool(self, X: Tensor, train_X: Tensor, train_Y: Tensor) -> Any:
        return self.make(X, train_X, train_Y)


OPTIONS = {"lam": 1e-2, "noise_variance": 1e-3}


def bandit(name: str, **own: Any) -> Callable[..., Any]:
    def make(candidates: Any, **options: Any) -> Any:
        arguments = own | options
        return getattr(s, name)(candidates, make_kernel(), **OPTIONS, **arguments)

    make.__name__ = name
    return make


def inferred(name: str, **own: Any) -> Callable[..., Any]:
    def make(candidates: Any, **options: Any) -> Any:
        return getattr(s, name)(candidates, **own, **options)

    make.__name__ = f"{name} without a kernel"
    return make


@family(
    [
        bandit("BBKB"),
        bandit("BKB"),
        bandit("GPUCB"),
        bandit("GPBUCB"),
        inferred("BBKB"),
        inferred("ThompsonSampling", batch_size=5),
        inferred("RandomSearch"),
    ]
)
class TestStrategies(Parametrized, t.StrategyTestCase):
    def create_strategy(self, candidates: Any, **options: Any) -> Any:
        return self.make(candidates, **options)


class Sampler:
    """A sampler of the first points, and what is wrong with it."""

    def __init__(self, **wrong: Any) -> None:
        self.max_inducing_points = wrong.get("cap", 5)
        self.wrong = wrong

    def __repr__(self) -> str:
        return object.__repr__(self) if "repr" in self.wrong else "Sampler()"

    def __call__(self, kernel: Any, X: Tensor, noise: Tensor, **options: Any) -> Tensor:
        if "writes" in self.wrong:
            noise.mul_(2.0)
        size = 0 if "empty" in self.wrong and noise[0] > 1 else 5
        index = torch.arange(len(X))[: len(X) if "greedy" in self.wrong else size]
        if "random" in self.wrong:
            index = torch.randperm(len(X))[:5].sort().values
        return index.flip(0) if "unsorted" in self.wrong else index


@dataclass(frozen=True)
class BrokenRule:
    """A rule with something wrong."""

    wrong: str
    ratio_threshold: float = 2.0

    def bound(self, batch: Any) -> float:
        if self.wrong == "writes":
            batch.sum_ratio += 1.0
        if self.wrong == "nan" and batch.size > 3:
            return math.nan
        return batch.variances[-1] if self.wrong == "loose" else batch.sum_ratio


class Nameless(BrokenRule):
    """Equal to nothing but itself."""

    __eq__ = object.__eq__  # type: ignore[assignment]
    __hash__ = object.__hash__


@dataclass(frozen=True)
class BrokenRadius(a.ConfidenceRadius):
    """A radius with something wrong."""

    wrong: str
    norm_bound: float = 1.0

    def multiplier(self, statistics: a.RadiusStatistics) -> float:
        if self.wrong == "narrow":
            return 1.0 / self.norm_bound
        if self.wrong == "random":
            return float(torch.rand(()))
        return -1.0 if self.wrong == "negative" else 1.0

    def botorch_beta(self, statistics: a.RadiusStatistics) -> float:
        return 2.0 if self.wrong == "beta" else super().botorch_beta(statistics)


class BrokenStrategy(s.RandomSearch):
    """Random search with something wrong."""

    wrong: ClassVar[str]

    def tell(self, X: Any, Y: Any) -> None:
        if self.wrong == "takes NaN":
            Y = torch.as_tensor(Y).nan_to_num(0.0)
        super().tell(X, Y)

    def ask(self, *args: Any, **kwargs: Any) -> Any:
        if self.wrong == "global random numbers":
            self.generator.manual_seed(int(torch.randint(10**6, ())))
        return super().ask(*args, **kwargs)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if self.wrong == "forgets":
            self.generator.manual_seed(0)

    def __deepcopy__(self, memo: Any) -> Any:
        return self if self.wrong == "no copy" else super().__deepcopy__(memo)


def broken_strategy(fault: str) -> Any:
    def make(candidates: Any, **options: Any) -> Any:
        BrokenStrategy.wrong = fault
        return BrokenStrategy(candidates, **options)

    return make


class WrongPool:
    """A pool without its prior's variance, or one that chooses the last of equals."""

    def __init__(self, pool: Any, wrong: str) -> None:
        self.pool, self.wrong, self.noise = pool, wrong, pool.noise

    def __len__(self) -> int:
        return len(self.pool)

    def moments(self, rows: Tensor) -> Any:
        mean, variance = self.pool.moments(rows)
        return (mean, 0.9 * variance) if self.wrong == "moments" else (mean, variance)

    def all_moments(self) -> Any:
        return self.moments(torch.arange(len(self)))

    def batch(self, multiplier: float) -> Any:
        batch = self.pool.batch(0.0 if self.wrong == "multiplier" else multiplier)
        if self.wrong == "ties":
            first = batch.argmax()
            batch.argmax = lambda: first + 20
        return batch


BROKEN = [
    (t.InducingPointSamplerTestCase, lambda: Sampler(unsorted=1), "indices_are"),
    (t.InducingPointSamplerTestCase, lambda: Sampler(empty=1), "drowns_all"),
    (t.InducingPointSamplerTestCase, lambda: Sampler(random=1), "generator_decides"),
    (t.InducingPointSamplerTestCase, lambda: Sampler(writes=1), "arguments_stay"),
    (t.InducingPointSamplerTestCase, lambda: Sampler(greedy=1), "cap_holds"),
    (t.InducingPointSamplerTestCase, lambda: Sampler(repr=1), "states_know"),
    (t.RuleTestCase, lambda: BrokenRule("", 0.5), "threshold_is"),
    (t.RuleTestCase, lambda: BrokenRule("nan"), "bound_is_a_number"),
    (t.RuleTestCase, lambda: BrokenRule("writes"), "bound_is_a_number"),
    (t.RuleTestCase, lambda: BrokenRule("loose"), "shrinks_too_far"),
    (t.RuleTestCase, lambda: Nameless(""), "states_know"),
    (t.ConfidenceRadiusTestCase, lambda: BrokenRadius("negative"), "are_finite"),
    (t.ConfidenceRadiusTestCase, lambda: BrokenRadius("beta"), "beta_is"),
    (t.ConfidenceRadiusTestCase, lambda: BrokenRadius("random"), "changes_nothing"),
    (t.ConfidenceRadiusTestCase, lambda: BrokenRadius("narrow"), "assumptions_widen"),
    (t.PoolTestCase, lambda *x: WrongPool(exact(*x), "moments"), "exact_ones"),
    (t.PoolTestCase, lambda *x: WrongPool(exact(*x), "multiplier"), "maximize"),
    (t.PoolTestCase, lambda *x: WrongPool(exact(*x), "ties"), "the_first"),
    (t.StrategyTestCase, broken_strategy("takes NaN"), "tell_that_fails"),
    (t.StrategyTestCase, broken_strategy("global random numbers"), "seed_decides"),
    (t.StrategyTestCase, broken_strategy("forgets"), "resumed"),
    (t.StrategyTestCase, broken_strategy("no copy"), "copies_are_apart"),
]


@pytest.mark.parametrize(("case", "make", "promise"), BROKEN)
def test_a_broken_member_is_found(case: Any, make: Any, promise: str) -> None:
    """By the test of the promise that it breaks; a sound one passes that test."""
    (create,) = case.__abstractmethods__
    method = {create: lambda self, *args, **kwargs: make(*args, **kwargs)}
    one = type("One", (case,), method)()
    (name,) = [n for n in dir(one) if n.startswith("test_") and promise in n]
    with pytest.raises(AssertionError):
        getattr(one, name)()
