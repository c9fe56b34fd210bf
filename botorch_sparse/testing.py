"""Tests that the members of a family must pass, for members of your own as well.

Each class has the promises of one protocol as tests. Inherit from it, write the method
that makes your member, and let pytest collect the subclass:

    class TestUniformSampler(InducingPointSamplerTestCase):
        def create_sampler(self):
            return UniformSampler()

The tests of the library run its own members through the same classes. Everything is
small: a class takes a second or two.
"""

import math
import pickle
import tempfile
from abc import ABC, abstractmethod
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from botorch.exceptions import BotorchError, UnsupportedError
from gpytorch.kernels import Kernel, MaternKernel
from torch import Tensor

from botorch_sparse.acquisition import ConfidenceRadius, RadiusStatistics
from botorch_sparse.acquisition.ratios import LocalBound
from botorch_sparse.batching import Rule
from botorch_sparse.inducing import InducingPointSampler
from botorch_sparse.inducing.sampler import cap_of, uses_variance
from botorch_sparse.pools import Points
from botorch_sparse.strategies import Batch, Strategy

NOISE = 0.05


def example_kernel(**tkwargs: Any) -> Kernel:
    """A Matern-3/2 kernel of lengthscale 0.3, without gradients: well conditioned."""
    kernel = MaternKernel(nu=1.5).to(**tkwargs or {"dtype": torch.float64})
    kernel.lengthscale = torch.tensor(0.3)
    return kernel.requires_grad_(False)


def example_points(num: int, seed: int = 0, **tkwargs: Any) -> Tensor:
    """`num x 2` uniform points of the unit square."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(num, 2, generator=g, dtype=torch.float64)
    return X.to(**tkwargs)


def example_values(X: Tensor) -> Tensor:
    """A smooth function of `n x 2` points, `n` values."""
    return torch.sin(5.0 * X[:, 0]) * torch.cos(3.0 * X[:, 1])


def _ids(batch: Batch) -> list[int]:
    assert batch.ids is not None
    return [int(id) for id in batch.ids]


def _rows(batch: Batch) -> Tensor:
    assert batch.indices is not None, "points of a table have numbers"
    return batch.indices


def _covariance(X: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    r"""Exact posterior covariances at `X` given points `S`, and the weights of values.

    Dense and by textbook: :math:`K_{XX} - K_{XS} (K_{SS} + \lambda I)^{-1} K_{SX}`.
    """
    kernel = example_kernel()
    K = kernel(torch.cat([X, S])).to_dense()
    K_XX, K_XS, K_SS = (
        K[: len(X), : len(X)],
        K[: len(X), len(X) :],
        K[len(X) :][:, len(X) :],
    )
    weights = torch.linalg.solve(K_SS + NOISE * torch.eye(len(S)).to(K), K_XS.mT).mT
    return K_XX - weights @ K_XS.mT, weights


class InducingPointSamplerTestCase(ABC):
    """What every sampler of inducing points owes; see `InducingPointSampler`."""

    @abstractmethod
    def create_sampler(self) -> InducingPointSampler:
        """A new sampler, always with the same options."""

    def draw(self, X: Tensor, noise: Tensor, seed: int = 0) -> Tensor:
        """Indices of inducing points among `n x d` points; checked to be such."""
        sampler, kernel = self.create_sampler(), example_kernel(dtype=X.dtype)
        variance = kernel(X, diag=True) if uses_variance(sampler) else None
        g = torch.Generator().manual_seed(seed)
        index = sampler(kernel, X, noise, generator=g, variance=variance)
        assert index.dtype == torch.long and index.device == X.device
        assert torch.equal(index, index.unique()), "indices are sorted, each comes once"
        assert len(index) == 0 or 0 <= int(index[0]) <= int(index[-1]) < len(X)
        return index

    def test_indices_are_those_of_points(self) -> None:
        """Sorted, different and at least one, in both precisions."""
        for dtype in (torch.float32, torch.float64):
            for n in (1, 2, 7, 60):
                X = example_points(n, dtype=dtype)
                assert len(self.draw(X, torch.full((n,), NOISE, dtype=dtype))) >= 1

    def test_noise_that_drowns_all_leaves_a_point(self) -> None:
        """No point has any leverage, and a posterior needs one."""
        X = example_points(40)
        for seed in range(5):
            assert len(self.draw(X, torch.full((40,), 1e9).double(), seed)) >= 1

    def test_the_generator_decides(self) -> None:
        """The same draw for the same state of the generator, whatever else is drawn."""
        X, noise = example_points(60), torch.full((60,), NOISE).double()
        first = self.draw(X, noise, seed=3)
        torch.rand(5)
        assert torch.equal(first, self.draw(X, noise, seed=3))

    def test_arguments_stay_as_they_are(self) -> None:
        """Points and noise belong to the caller."""
        X, noise = example_points(30), torch.full((30,), NOISE).double()
        before = X.clone(), noise.clone()
        self.draw(X, noise)
        assert torch.equal(X, before[0]) and torch.equal(noise, before[1])

    def test_the_cap_holds(self) -> None:
        """A cap that the sampler declares, or that is set where it is a field."""
        sampler = self.create_sampler()
        if (cap := cap_of(sampler)) is not None:
            X = example_points(cap + 50)
            assert len(self.draw(X, torch.full((len(X),), 1e-4).double())) <= cap

    def test_saved_states_know_it(self) -> None:
        """Two of the same options have one repr, which names no address in memory."""
        first, second = (repr(self.create_sampler()) for _ in range(2))
        assert first == second and " at 0x" not in first


@dataclass
class DenseBatchView:
    """A batch of points under an exact posterior, as rules see it, by dense formulas.

    Args:
        X: `A x d` points of the domain.
        batch: Rows of the batch, in the order in which they joined.
    """

    X: Tensor
    batch: list[int]

    def __post_init__(self) -> None:
        data = example_points(6, seed=9)
        self.covariance = _covariance(self.X, data)[0]
        self.noise = NOISE
        diagonal = self.covariance.diagonal()
        self.variances = [float(diagonal[row]) for row in self.batch]
        self.variances_before = [
            float(self.variance_with(self.batch[:j])[row])
            for j, row in enumerate(self.batch)
        ]
        shares = [variance / NOISE for variance in self.variances]
        self.sum_ratio = 1.0 + sum(shares)
        self.sum_ratio_before = 1.0 + sum(shares[:-1])
        self.product_ratio = math.prod(1 + v / NOISE for v in self.variances_before)

    @property
    def size(self) -> int:
        """Points of the batch."""
        return len(self.batch)

    def variance_with(self, rows: list[int]) -> Tensor:
        """Variances of all points once some rows are pending, `A`."""
        C, index = self.covariance, torch.tensor(rows, dtype=torch.long)
        gram = C[index][:, index] + NOISE * torch.eye(len(rows)).to(C)
        return C.diagonal() - (C[:, index] * torch.linalg.solve(gram, C[index]).mT).sum(
            -1
        )

    def true_ratio(self) -> float:
        """The largest ratio of the variance before the batch to the present one."""
        return float(
            (self.covariance.diagonal() / self.variance_with(self.batch)).max()
        )

    def local_ratio(self, covariance: LocalBound, threshold: float) -> float:
        """The local bound over all points; full and embedded sums are one here."""
        squares = self.covariance[:, self.batch].square().sum(-1)
        return 1.0 + float((squares / self.covariance.diagonal()).max()) / NOISE


class RuleTestCase(ABC):
    """What every rule that ends batches owes; see `Rule`.

    Attributes:
        bounds_the_ratio: Whether the rule claims that no variance has shrunk by more
            than `ratio_threshold` while its bound is below. The papers' rules do;
            a rule for the size of a plate does not.
    """

    bounds_the_ratio: ClassVar[bool] = True

    @abstractmethod
    def create_rule(self) -> Rule:
        """A new rule, always with the same options."""

    @staticmethod
    def batches() -> list[DenseBatchView]:
        """Batches of a table as they grow, from one point to twelve."""
        X = example_points(40, seed=4)
        rows = [(7 * j) % 40 for j in range(12)]
        return [DenseBatchView(X, rows[:size]) for size in range(1, 13)]

    def test_the_threshold_is_a_ratio(self) -> None:
        """At least one: a variance over itself."""
        rule = self.create_rule()
        assert isinstance(rule, Rule) and rule.ratio_threshold >= 1.0

    def test_the_bound_is_a_number(self) -> None:
        """Never NaN; infinity ends the batch. It looks, and changes nothing."""
        rule = self.create_rule()
        for batch in self.batches():
            before = deepcopy(vars(batch))
            first, second = float(rule.bound(batch)), float(rule.bound(batch))
            assert first == second and not math.isnan(first)
            after = vars(batch)
            assert all(
                torch.equal(*map(torch.as_tensor, (after[k], before[k])))
                for k in before
            )

    def test_no_variance_shrinks_too_far(self) -> None:
        """While the bound is below the threshold the true ratio is."""
        rule = self.create_rule()
        for batch in self.batches() if self.bounds_the_ratio else ():
            if float(rule.bound(batch)) <= rule.ratio_threshold:
                assert batch.true_ratio() <= rule.ratio_threshold * (1 + 1e-9)

    def test_saved_states_know_it(self) -> None:
        """Two rules of the same options are equal, and pickle."""
        rule = self.create_rule()
        assert rule == self.create_rule() == pickle.loads(pickle.dumps(rule))


class ConfidenceRadiusTestCase(ABC):
    """What every confidence radius owes; see `ConfidenceRadius`."""

    @abstractmethod
    def create_radius(self) -> ConfidenceRadius:
        """A new radius, always with the same options."""

    def create_statistics(self) -> list[RadiusStatistics]:
        """Statistics of a run as it goes on; override for a radius that needs more."""
        start = RadiusStatistics(lam=NOISE, ratio_threshold=2.0)
        runs = [start]
        for size in (1, 4, 20):
            runs.append(runs[-1].add_batch(torch.full((size,), 0.5)))
        return [*runs, replace(runs[-1], leverage_sum=3.0, lambda_max=0.4)]

    def test_numbers_are_finite(self) -> None:
        """And not negative, from the first evaluation on."""
        radius = self.create_radius()
        assert isinstance(radius, ConfidenceRadius)
        for statistics in self.create_statistics()[1:]:
            numbers = [radius.multiplier(statistics), radius.offset(statistics)]
            with suppress(UnsupportedError):  # made for choosing points alone
                numbers.append(radius.interval_multiplier(statistics))
            assert all(math.isfinite(n) and n >= 0.0 for n in numbers)
            assert 0.0 < radius.lengthscale_factor(statistics) <= 1.0

    def test_beta_is_the_square_of_the_multiplier(self) -> None:
        """BoTorch's bound is `mean + sqrt(beta) sigma`."""
        radius = self.create_radius()
        for statistics in self.create_statistics()[1:]:
            square = radius.multiplier(statistics) ** 2
            assert math.isclose(radius.botorch_beta(statistics), square, rel_tol=1e-12)

    def test_looking_changes_nothing(self) -> None:
        """The same answer twice, and from a copy."""
        radius, copy = (
            self.create_radius(),
            pickle.loads(pickle.dumps(self.create_radius())),
        )
        for statistics in self.create_statistics()[1:]:
            first = radius.multiplier(statistics)
            assert first == radius.multiplier(statistics) == copy.multiplier(statistics)

    def test_weaker_assumptions_widen(self) -> None:
        """A larger norm, or a smaller probability to fail, never narrows it."""
        radius = self.create_radius()
        if not is_dataclass(radius) or isinstance(radius, type):
            return
        for name, factor in (("norm_bound", 2.0), ("delta", 0.5)):
            value = getattr(radius, name, None)
            if name not in radius.__dataclass_fields__ or value is None:
                continue
            weaker: Any = replace(radius, **{name: factor * value})
            for statistics in self.create_statistics()[1:]:
                width = radius.multiplier(statistics), weaker.multiplier(statistics)
                assert width[0] <= width[1] * (1 + 1e-12), name


class PoolTestCase(ABC):
    """What every table of candidates under a posterior owes; see `Points`."""

    tolerance: ClassVar[float] = 1e-6

    @abstractmethod
    def create_pool(self, X: Tensor, train_X: Tensor, train_Y: Tensor) -> Points:
        """A pool of `A x d` candidates, for `example_kernel` and noise `NOISE`.

        Its posterior has `n` observations, and prior mean zero. Where it is a
        Nystrom posterior, all observations are inducing points. Candidates are among
        the observations: so it is exact, and its variances with pending points are.
        """

    def _setting(self) -> tuple[Points, Tensor, Tensor]:
        """A pool, exact means, exact covariances."""
        X = example_points(50, seed=1)
        Y = example_values(X)
        covariance, weights = _covariance(X, X)
        return self.create_pool(X, X, Y), weights @ Y, covariance

    def test_moments_are_the_exact_ones(self) -> None:
        """Of all rows, and of some."""
        pool, mean, covariance = self._setting()
        assert len(pool) == 50 and math.isclose(pool.noise, NOISE)
        close = partial(torch.testing.assert_close, rtol=0.0, atol=self.tolerance)
        rows = torch.tensor([3, 17, 49])
        for given, index in (
            (pool.moments(rows), rows),
            (pool.all_moments(), slice(None)),
        ):
            close(given[0], mean[index])
            close(given[1], covariance.diagonal()[index])

    def test_batches_maximize_the_bound(self) -> None:
        """Each point is the row of largest bound given those before it."""
        pool, mean, covariance = self._setting()
        batch, rows = pool.batch(2.0), list[int]()
        for _ in range(6):
            index = torch.tensor(rows, dtype=torch.long)
            gram = covariance[index][:, index] + NOISE * torch.eye(len(rows)).double()
            cross = covariance[:, index]
            lost = (cross * torch.linalg.solve(gram, cross.mT).mT).sum(-1)
            bound = mean + 2.0 * (covariance.diagonal() - lost).sqrt()
            row = int(batch.argmax())
            assert bound[row] >= bound.max() - self.tolerance
            batch.append(row)
            rows.append(row)

    def test_equal_rows_give_the_first(self) -> None:
        """Ties go to the lowest number."""
        X = example_points(20, seed=1)
        pool = self.create_pool(torch.cat([X, X]), X, example_values(X))
        assert int(pool.batch(2.0).argmax()) < 20


class StrategyTestCase(ABC):
    """What every strategy on a table owes whoever asks and tells; see `Strategy`."""

    num_rows: ClassVar[int] = 40

    @abstractmethod
    def create_strategy(self, candidates: Any, **options: Any) -> Strategy:
        """A new strategy; the options are `seed` and `minimize`."""

    def _new(self, **options: Any) -> Strategy:
        return self.create_strategy(example_points(self.num_rows), **options)

    @staticmethod
    def _go_on(strategy: Strategy, rounds: int, sign: float = 1.0) -> list[list[int]]:
        """The rows of some more batches, each of which is told."""
        asked = []
        for _ in range(rounds):
            batch = strategy.ask(5)
            asked.append(_rows(batch).tolist())
            strategy.tell(batch, sign * example_values(batch.X))
        return asked

    def test_batches_are_rows_of_the_table(self) -> None:
        """With ids that count up, pending until they are told."""
        strategy, seen = self._new(seed=0), 0
        for _ in range(3):
            batch = strategy.ask(5)
            assert 1 <= len(batch) <= 5
            assert torch.equal(batch.X, strategy.candidates[_rows(batch)])
            assert _ids(batch) == list(range(seen, seen + len(batch)))
            assert torch.equal(strategy.pending, _rows(batch))
            seen += len(batch)
            strategy.tell(batch, example_values(batch.X))
            assert len(strategy.pending) == 0 and len(strategy.history) == seen

    def test_the_seed_decides(self) -> None:
        """Two of one seed choose alike, whatever else is drawn meanwhile."""
        first = self._go_on(self._new(seed=3), 3)
        torch.rand(4)
        assert first == self._go_on(self._new(seed=3), 3)

    def test_minimizing_is_maximizing_the_negative(self) -> None:
        """The same rows; what is shown has the user's sign."""
        up, down = self._new(seed=0), self._new(seed=0, minimize=True)
        assert self._go_on(up, 3) == self._go_on(down, 3, sign=-1.0)
        assert up.history.best().value == -down.history.best().value

    def test_a_tell_that_fails_changes_nothing(self) -> None:
        """The run goes on as one to which nothing wrong was told."""
        strategy, twin = self._new(seed=0), self._new(seed=0)
        for one in (strategy, twin):
            self._go_on(one, 1)
        batch = strategy.ask(3)
        for wrong in (torch.full((len(batch),), math.nan), torch.ones(len(batch) + 1)):
            try:
                strategy.tell(batch, wrong)
            except (BotorchError, ValueError):
                continue
            raise AssertionError(f"took {wrong}")
        strategy.tell(batch, example_values(batch.X))
        twin_batch = twin.ask(3)
        twin.tell(twin_batch, example_values(twin_batch.X))
        assert self._go_on(strategy, 2) == self._go_on(twin, 2)

    def test_feedback_comes_in_parts(self) -> None:
        """In any order, by ids; what failed or is withdrawn is pending no more."""
        strategy = self._new(seed=0)
        self._go_on(strategy, 1)
        batch, before = strategy.ask(4), len(strategy.history)
        ids = _ids(batch)
        for id, x in reversed(list(zip(ids, batch.X, strict=True))[2:]):
            strategy.tell([id], example_values(x.unsqueeze(0)))
        if len(ids) > 1:
            strategy.withdraw(ids[1:2])
        strategy.fail(ids[:1])
        assert len(strategy.pending) == 0
        assert len(strategy.history) == before + max(0, len(ids) - 2)

    def test_a_run_is_resumed_to_the_bit(self) -> None:
        """From a file that was written in the middle of a batch."""
        strategy, other = self._new(seed=0), self._new(seed=8)
        self._go_on(strategy, 2)
        strategy.ask(2)
        with tempfile.TemporaryDirectory() as folder:
            strategy.save(path := Path(folder) / "run.pt")
            other.resume(path)
        for one in (strategy, other):
            out = one.pending_batch()
            one.tell(out, example_values(out.X))
        assert self._go_on(strategy, 2) == self._go_on(other, 2)

    def test_copies_are_apart(self) -> None:
        """A copy goes on by itself, and a pickle is a copy."""
        strategy = self._new(seed=0)
        self._go_on(strategy, 2)
        copies = deepcopy(strategy), pickle.loads(pickle.dumps(strategy))
        expected = [self._go_on(copy, 2) for copy in copies]
        assert len(strategy.history) < len(copies[0].history)
        assert expected == [self._go_on(strategy, 2)] * 2
