"""A sampler of one's own, and what a sampler says of itself."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from botorch.exceptions import InputDataError
from botorch.utils import standardize
from gpytorch.kernels import Kernel
from sampler_cases import clustered, rbf
from torch import Tensor

from botorch_sparse.inducing import (
    BLESSSampler,
    CertifiedSampler,
    InducingPointSampler,
    PosteriorVarianceSampler,
    RecursiveRLSSampler,
    SamplerInducingPointAllocator,
)
from botorch_sparse.inducing.sampler import with_cap
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.strategies import BBKB


@dataclass(frozen=True)
class UniformSampler:
    """Points drawn uniformly: all that a sampler needs, and all that it may declare."""

    uses_variance: ClassVar[bool] = False
    returns_valid_indices: ClassVar[bool] = True

    max_inducing_points: int | None = 30

    def __call__(
        self,
        covar_module: Kernel,
        X: Tensor,
        noise: Tensor,
        *,
        generator: torch.Generator,
        variance: Tensor | None = None,
    ) -> Tensor:
        order = torch.randperm(len(X), generator=generator)
        return order[: self.max_inducing_points].sort().values.to(X.device)


def data(n: int, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    X = clustered(n, **tkwargs).clamp(0, 1)
    return X, standardize((6 * X).sin().sum(-1, keepdim=True))


def test_in_a_model(double):
    X, Y = data(60, **double)
    model = SparseSingleTaskGP(
        X, Y, inducing_sampler=UniformSampler(), max_inducing_points=8
    )
    drawn = torch.randperm(60, generator=torch.Generator().manual_seed(0))[:8]
    model.resparsify()
    assert torch.equal(model.inducing_points, X[drawn.sort().values.to(X.device)])
    assert model.posterior(X[:3]).mean.isfinite().all()


def test_in_an_allocator(double):
    """Fewer points than it draws by itself, and more."""
    X, kernel = clustered(80, **double), rbf(0.3, **double)
    allocator = SamplerInducingPointAllocator(UniformSampler())
    few, more = (
        allocator.allocate_inducing_points(X, kernel, m, torch.Size()) for m in (6, 50)
    )
    order = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    assert torch.equal(few, X[order[:6].sort().values.to(X.device)])
    is_first = (more.unsqueeze(-2) == X[order[:30].to(X.device)]).all(-1).any(0)
    assert len(more.unique(dim=0)) == 50 and is_first.all()


def test_in_a_strategy():
    X, Y = data(90, dtype=torch.float64)
    strategy = BBKB(X, rbf(0.3, dtype=X.dtype), 1e-2, initial_sampler=UniformSampler())
    strategy.tell(X[:70], Y[:70])
    assert strategy.surrogate.view.num_inducing() == 30
    strategy.run(lambda X: (6 * X).sin().sum(-1, keepdim=True), 75, progress=False)
    assert len(strategy.history) == 75


@pytest.mark.filterwarnings("ignore:The inducing points reached their cap")
@pytest.mark.parametrize(
    "kind, gets_variance",
    [
        (UniformSampler, False),
        (RecursiveRLSSampler, False),
        (BLESSSampler, False),
        (CertifiedSampler, False),
        (PosteriorVarianceSampler, True),
    ],
)
def test_variances_are_for_those_that_use_them(kind, gets_variance):
    """At the first draw, which costs others a draw before it, and at later ones."""
    seen: list[bool] = []

    class Recording(kind):
        def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
            seen.append(kwargs["variance"] is not None)
            index: Tensor = super().__call__(*args, **kwargs)
            return index

    X, Y = data(60, dtype=torch.float64)
    model = SparseSingleTaskGP(X, Y, inducing_sampler=Recording())
    with torch.no_grad():
        assert model.num_inducing >= 1
        model.resparsify()
    assert seen == [gets_variance] * 2


def test_a_function_gets_variances():
    """One that says nothing of itself gets what it may need."""
    seen: list[Tensor | None] = []

    def first_points(*args: Any, variance: Tensor | None, **kwargs: Any) -> Tensor:
        seen.append(variance)
        return torch.arange(5)

    assert isinstance(first_points, InducingPointSampler)
    X, Y = data(40, dtype=torch.float64)
    model = SparseSingleTaskGP(X, Y, inducing_sampler=first_points)
    assert model.num_inducing == 5
    assert len(seen) == 1 and seen[0] is not None


def test_wrong_indices_are_found(double):
    """On the host those of all samplers, on a device those that nobody vouches for."""

    class Hasty(UniformSampler):
        returns_valid_indices = double["device"].type == "cpu"

        def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
            return super().__call__(*args, **kwargs) + 35

    X, Y = data(40, **double)
    model = SparseSingleTaskGP(X, Y, inducing_sampler=Hasty())
    with pytest.raises(InputDataError, match="for 40 unique training points"):
        _ = model.inducing_points


def test_caps():
    """The smaller one holds, and others are left alone."""
    sampler = UniformSampler(20)
    assert with_cap(sampler, None) is sampler and with_cap(sampler, 20) is sampler
    assert with_cap(sampler, 7) == UniformSampler(7)
    assert with_cap(UniformSampler(None), 7) == UniformSampler(7)
    uncapped = PosteriorVarianceSampler()
    assert with_cap(uncapped, 7) is uncapped


@pytest.mark.parametrize("option, size", [(None, 20), (7, 7), (25, 20)])
def test_cap_of_a_class_that_is_no_dataclass(option, size):
    """The model leaves points out of what it draws."""

    class Everything:
        uses_variance = False
        max_inducing_points = 20

        def __call__(self, covar_module: Kernel, X: Tensor, *_: Any, **__: Any) -> Any:
            return torch.arange(len(X))

    X, Y = data(40, dtype=torch.float64)
    model = SparseSingleTaskGP(
        X, Y, inducing_sampler=Everything(), max_inducing_points=option
    )
    with pytest.warns(match="their cap of 20") if size == 20 else nullcontext():
        model.resparsify()
    assert model.num_inducing == size
