"""What every sampler without a previous posterior owes: contract, cost, guarantee."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import oracles
import pytest
import torch
from botorch.exceptions import InputDataError
from device_cases import on_the_host
from gpytorch.kernels import LinearKernel, RBFKernel
from sampler_cases import (
    abalone,
    clustered,
    draw,
    effective_dimension,
    is_accurate,
    largest_gap,
    rbf,
)
from torch import Tensor

from botorch_sparse.inducing import (
    BLESSSampler,
    CertifiedSampler,
    InducingPointSampler,
    RecursiveRLSSampler,
    certified,
)
from botorch_sparse.inducing.base import CHUNK_SIZE
from botorch_sparse.inducing.spectral import BLOCK_ROWS

SAMPLERS = [RecursiveRLSSampler, BLESSSampler, CertifiedSampler]
DELTA = 0.05
every_sampler = pytest.mark.parametrize("make", SAMPLERS)
weighted_sampler = pytest.mark.parametrize("make", SAMPLERS[:2])
Make = Callable[..., Any]


@every_sampler
@pytest.mark.parametrize("n", [0, 1, 7, 40, 700])
def test_sorted_unique_indices(make: Make, n: int, tkwargs: dict[str, Any]) -> None:
    X = clustered(max(n, 1), **tkwargs)[:n]
    sampler = make()
    assert isinstance(sampler, InducingPointSampler)
    index = draw(sampler, X, torch.full((n,), 0.1, **tkwargs), seed=0)
    assert index.dtype == torch.int64 and index.device == X.device
    assert torch.equal(index, index.unique())
    assert len(index) >= min(n, 1) and (index < n).all()


@every_sampler
def test_at_least_one_point(make: Make, double: dict[str, Any]) -> None:
    """Enormous noise: no point has any leverage."""
    X = clustered(200, **double)
    noise = torch.full((200,), 1e9, **double)
    for seed in range(5):
        index = draw(make(), X, noise, seed)
        assert len(index) == (64 if make is CertifiedSampler else 1)


@every_sampler
@pytest.mark.filterwarnings("ignore:A not p.d.")  # points of probability zero
def test_zero_kernel(make: Make, double: dict[str, Any]) -> None:
    X = torch.zeros(20, 2, **double)
    kernel = oracles.make_kernel("linear", **double)
    noise = torch.ones(20, **double)
    assert len(make()(kernel, X, noise, generator=torch.Generator())) >= 1


@every_sampler
def test_deterministic_for_each_seed(make: Make, tkwargs: dict[str, Any]) -> None:
    X = clustered(400, **tkwargs)
    noise = torch.full((400,), 0.1, **tkwargs)
    first = draw(make(), X, noise, seed=7)
    torch.rand(3)  # the global generator has no say
    assert torch.equal(first, draw(make(), X, noise, seed=7))
    assert not torch.equal(first, draw(make(), X, noise, seed=8))


@on_the_host
@every_sampler
@pytest.mark.parametrize("cap", [1, 20, 60])
def test_max_inducing_points(make: Make, cap: int, double: dict[str, Any]) -> None:
    X = clustered(600, **double)
    noise = torch.full((600,), 1e-4, **double)
    assert len(draw(make(max_inducing_points=None), X, noise, 0)) > 80
    index = draw(make(max_inducing_points=cap), X, noise, 0)
    assert len(index) == cap
    assert torch.equal(index, index.unique())


@every_sampler
def test_cap_holds_for_a_small_data_set(make: Make, double: dict[str, Any]) -> None:
    X = clustered(25, **double)
    noise = torch.full((25,), 1e-6, **double)
    assert len(draw(make(max_inducing_points=10), X, noise, 0)) == 10


@on_the_host
@every_sampler
def test_heteroscedastic_noise(make: Make, double: dict[str, Any]) -> None:
    """Precise points have more leverage, and the guarantee is relative to the noise."""
    X = clustered(400, **double)
    noise = torch.full((400,), 1.0, **double)
    noise[::2] = 1e-3
    K = rbf(0.3, **double)(X).to_dense()
    for seed in range(5):
        index = draw(make(), X, noise, seed)
        assert (index % 2 == 0).sum() > 2 * (index % 2 == 1).sum()
        assert largest_gap(K, index, noise) <= 1.0


@every_sampler
def test_repeats_and_zero_prior_variance(make: Make, double: dict[str, Any]) -> None:
    X = torch.cat(
        [clustered(30, **double)[:, :2]] * 10 + [torch.zeros(50, 2, **double)]
    )
    noise = torch.full((350,), 1e-2, **double)
    index = make()(
        oracles.make_kernel("linear", **double),
        X,
        noise,
        generator=torch.Generator().manual_seed(0),
    )
    assert (index < 300).all()


@on_the_host
@every_sampler
def test_nothing_of_size_n_by_n(make: Make, double: dict[str, Any]) -> None:
    shapes: list[torch.Size] = []

    class Recording(RBFKernel):
        def forward(self, x1: Tensor, x2: Tensor, **params: Any) -> Tensor:
            out = super().forward(x1, x2, **params)
            shapes.append(out.shape)
            return out

    n = 5000
    X = clustered(n, **double)
    kernel = Recording().to(**double)
    index = make(max_inducing_points=100)(
        kernel, X, torch.full((n,), 0.1, **double), generator=torch.Generator()
    )
    assert len(index) <= 100
    largest = max(100 * CHUNK_SIZE, BLOCK_ROWS * 3000)  # the certificate's blocks
    assert max(shape.numel() for shape in shapes) <= largest
    assert not any(shape[-2:].count(n) == 2 for shape in shapes)


@on_the_host
@weighted_sampler
def test_weights_are_inclusion_probabilities(
    make: Make, double: dict[str, Any]
) -> None:
    """`sum_{i in S} 1 / p_i` has expectation `n` in the last draw of Bernoulli trials.

    Its variance is `sum_i (1 / p_i - 1)`, given the probabilities. Points outside of
    the clusters' bulk have `p_i` of about 0.01 and above here; the mean of 100 draws
    stays within 5 standard errors (measured from the draws) with room to spare.
    """
    X = clustered(300, **double)
    noise = torch.full((300,), 0.3, **double)
    kernel = rbf(0.3, **double)
    generator = torch.Generator().manual_seed(1)
    totals = []
    for _ in range(100):
        index, p = make().sample(kernel, X, noise, generator=generator)
        assert index.shape == p.shape and ((p > 0) & (p <= 1)).all()
        totals.append((1 / p).sum())
    total = torch.stack(totals)
    assert (total.mean() - 300).abs() <= 5 * total.std() / math.sqrt(100)
    assert (1 / p).max() > 2  # not all points are certain


@on_the_host
def test_bless_estimates_leverage_scores(double: dict[str, Any]) -> None:
    """`p / q-bar` is the score to a factor two; without the weights P it is three."""
    X, sampler = abalone(600).to(**double), BLESSSampler()
    kernel, noise = rbf(17.5, **double), torch.full((600,), 1e-2, **double)
    K = kernel(X).to_dense()
    exact = torch.linalg.solve(K + noise.diag(), K).diagonal()
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        index, p = sampler.sample(kernel, X, noise, generator=generator)
        index, p = index[p < 1], p[p < 1]
        ratio = p / sampler.oversampling / exact[index]
        assert 0.6 < ratio.median() < 2.0


def count_good(sampler: Any, X: Tensor, lengthscale: float, lam: float, n: int) -> int:
    """Draws with `lambda_max(K - Q) <= lam` and `m <= 3 d_eff log(d_eff / delta)`."""
    K = rbf(lengthscale, dtype=X.dtype)(X).to_dense()
    noise = torch.full((len(X),), lam, dtype=X.dtype)
    d_eff = effective_dimension(K, noise)
    bound = 3 * d_eff * math.log(d_eff / DELTA)
    draws = (draw(sampler, X, noise, seed, lengthscale) for seed in range(n))
    return sum(len(i) <= bound and is_accurate(K, i, noise) for i in draws)


@every_sampler
def test_guarantee_on_clusters(make: Make) -> None:
    """Seeds are fixed; at a failure rate of 1 in 100, 2 of 10 fail with 4e-3."""
    sampler = make(max_inducing_points=None)
    X = clustered(600, dtype=torch.float64)
    assert count_good(sampler, X, 0.3, 1e-2, 10) >= 9


@every_sampler
def test_guarantee_on_part_of_abalone(make: Make) -> None:
    """At a failure rate of 1 in 100, 2 of 10 fail with probability 4e-3."""
    sampler = make(max_inducing_points=None)
    assert count_good(sampler, abalone(500), 17.5, 1e-4, 10) >= 9


@pytest.mark.slow
@every_sampler
def test_guarantee_on_abalone(make: Make) -> None:
    """At least 95 of 100 draws; n = 4177."""
    sampler = make(max_inducing_points=None)
    assert count_good(sampler, abalone(), 17.5, 1e-4, 100) >= 95


@pytest.mark.parametrize(
    "make, arguments, message",
    [
        (RecursiveRLSSampler, {"oversampling": 0.0}, r"Got oversampling=0.0"),
        (RecursiveRLSSampler, {"delta": 0.0}, r"delta=0.0; need"),
        (RecursiveRLSSampler, {"delta": 1.0}, r"0 < delta < 1"),
        (BLESSSampler, {"oversampling": -1.0}, r"Got oversampling=-1.0"),
        (BLESSSampler, {"step": 1.0}, r"step=1.0; need"),
        (CertifiedSampler, {"tolerance": 0.0}, r"Got tolerance=0.0"),
        (CertifiedSampler, {"growth": 1.0}, r"growth=1.0"),
        (CertifiedSampler, {"growth": 2.5}, r"growth=2.5"),
        (CertifiedSampler, {"num_initial": 0}, r"Got num_initial=0"),
        (CertifiedSampler, {"delta": 1.0}, r"0 < delta < 1"),
        *(
            (make, {"max_inducing_points": 0}, r"max_inducing_points=0; need at least")
            for make in SAMPLERS
        ),
    ],
)
def test_errors(make: Make, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputDataError, match=message):
        make(**arguments)


class TestCertified:
    """What `CertifiedSampler` adds: it grows as far as it must, and says so."""

    def setup_method(self) -> None:
        self.X = clustered(600, dtype=torch.float64)
        self.noise = torch.full((600,), 1e-3, dtype=torch.float64)
        self.kernel = rbf(0.3, dtype=torch.float64)
        self.K = self.kernel(self.X).to_dense()
        self.sampler = CertifiedSampler(max_inducing_points=None, num_initial=10)

    def draw(self, sampler: CertifiedSampler) -> Any:
        generator = torch.Generator().manual_seed(0)
        return sampler.draw(self.kernel, self.X, self.noise, generator=generator)

    @pytest.mark.parametrize("tolerance", [10.0, 1.0, 0.1])
    def test_reaches_its_tolerance(self, tolerance: float) -> None:
        drawn = self.draw(replace(self.sampler, tolerance=tolerance))
        gap = largest_gap(self.K, drawn.index, self.noise)
        assert drawn.is_certified
        assert gap <= drawn.certificate.lambda_max <= tolerance
        assert drawn.certificate.num_inducing == len(drawn.index)
        assert drawn.certificate.failure_probability <= 1e-3

    def test_stays_small(self) -> None:
        """About as many points as a first draw that is large enough."""
        d_eff = effective_dimension(self.K, self.noise)
        m = len(self.draw(self.sampler).index)
        assert 1.2 * d_eff < m < 5 * d_eff

    def test_tighter_tolerance_takes_more_points(self) -> None:
        sizes = [
            len(self.draw(replace(self.sampler, tolerance=t)).index)
            for t in (100.0, 1.0, 0.1)
        ]
        assert sizes == sorted(set(sizes))

    def test_cap_is_reported(self) -> None:
        drawn = self.draw(replace(self.sampler, max_inducing_points=15))
        assert len(drawn.index) == 15
        assert not drawn.is_certified
        assert drawn.certificate.lambda_max > 1
        assert largest_gap(self.K, drawn.index, self.noise) > 1

    def test_all_points(self) -> None:
        """Duplicates aside, all points explain everything."""
        drawn = self.draw(replace(self.sampler, tolerance=1e-12))
        assert drawn.certificate.lambda_max <= 1e-5
        assert len(drawn.index) <= 600

    def test_ends_where_only_rounding_is_left(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Residuals that are rounding exceed any tolerance, and no point is left.

        Of forty points under a linear kernel one is the origin, without any variance;
        the others are inducing points, all of them, from the start.
        """
        X = torch.rand(40, 3, generator=torch.Generator().manual_seed(0)).double()
        X[0] = 0
        calls, extend = [], certified.extend

        def spy(index: torch.Tensor, *args: Any) -> torch.Tensor:
            calls.append(len(index))
            assert len(calls) < 10, "it never ends"
            return extend(index, *args)

        monkeypatch.setattr(certified, "extend", spy)
        drawn = CertifiedSampler().draw(
            LinearKernel().double(),
            X,
            torch.full((40,), 1e-40, dtype=torch.float64),
            generator=torch.Generator().manual_seed(0),
        )
        assert calls == [0, 39]  # the second time nothing was added
        assert not drawn.is_certified and 0 not in drawn.index.tolist()

    def test_float32_counts_in_float64(self) -> None:
        sampler, g = self.sampler, torch.Generator().manual_seed(0)
        drawn = sampler.draw(
            rbf(0.3, dtype=torch.float32),
            self.X.float(),
            self.noise.float(),
            generator=g,
        )
        assert drawn.is_certified
        assert largest_gap(self.K, drawn.index, self.noise) <= 1.0
