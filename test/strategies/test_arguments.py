"""What strategies make of their arguments."""

from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import RBFKernel
from strategy_table import (
    INFERRED,
    make_candidates,
    make_kernel,
    objective,
)
from torch import Tensor

from botorch_sparse.acquisition import BBKBRadius, BKBRadius, FixedBeta
from botorch_sparse.batching import Local
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.pools import NystromPool
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    GSSBO,
    RSSBO,
    SBPE,
    RandomSearch,
    ThompsonSampling,
    TrustRegionBBKB,
    UncertaintyReduction,
)


@pytest.mark.parametrize(
    ("strategy", "radius"),
    [(BBKB, BBKBRadius), (BKB, BKBRadius), (GPUCB, BBKBRadius), (GPBUCB, BBKBRadius)],
)
def test_default_radius(strategy: Any, radius: Any) -> None:
    X, kernel = make_candidates(), make_kernel()
    arguments = {"norm_bound": 1.5, "noise_variance": 0.02, "delta": 0.03}
    built = strategy(X, covar_module=kernel, lam=1e-2, **arguments)
    assert built.radius == radius(1.5, 0.02, 0.03)
    fixed = FixedBeta(3.0)
    assert strategy(X, covar_module=kernel, radius=fixed).radius is fixed


@pytest.mark.parametrize(
    ("cls", "wrong", "meant"),
    [
        (BBKB, "noise_varianc", "noise_variance"),
        (BBKB, "covar_modul", "covar_module"),
        (BBKB, "batch_sise", "batch_size"),
        (BKB, "oversampeling", "oversampling"),
        (GPUCB, "norm_bounds", "norm_bound"),
        (GPBUCB, "ratio_treshold", "ratio_threshold"),
        (ThompsonSampling, "sampeler", "sampler"),
        (RandomSearch, "batchsize", "batch_size"),
        (SBPE, "num_evaluation", "num_evaluations"),
        (UncertaintyReduction, "noise_sd", "noise_std"),
        (GSSBO, "subsetsize", "subset_size"),
        (RSSBO, "subsetsize", "subset_size"),
        (RSSBO, "bound", "bounds"),
        (TrustRegionBBKB, "num_region", "num_regions"),
    ],
)
def test_unknown_keywords_get_the_nearest_that_there_is(
    cls: Any, wrong: str, meant: str
) -> None:
    """Among all that the constructor takes, by name or by `**options`."""
    place = {"candidates": make_candidates()}
    needed = {"covar_module": make_kernel()} if cls is UncertaintyReduction else {}
    with pytest.raises(TypeError, match=f"Did you mean '{meant}'"):
        cls(**place, **needed, **{wrong: 3})


@pytest.mark.parametrize("argument", ["norm_bound", "noise_variance", "delta"])
@pytest.mark.parametrize("strategy", [BBKB, BKB, GPUCB, GPBUCB])
def test_claims_without_a_kernel_are_refused(strategy: Any, argument: str) -> None:
    """They would change nothing, on a table or a box, with or without a radius."""
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    for place in ({"candidates": make_candidates()}, {"bounds": bounds}):
        for radius in ({}, {"radius": FixedBeta(3.0)}):
            match = f"{argument}=0.5 without covar_module.*radius="
            with pytest.raises(InputDataError, match=match):
                strategy(**place, **radius, **{argument: 0.5})
        assert strategy(**place).radius == FixedBeta(4.0)


@pytest.mark.parametrize("strategy", [BBKB, BKB, GPUCB, GPBUCB])
def test_float32_candidates_are_learned_in_float64(strategy: Any) -> None:
    """The same choices as from float64 candidates with the same numbers."""
    X = make_candidates().float()
    kernel = RBFKernel().requires_grad_(False)
    kernel.lengthscale = 0.3
    chosen = []
    for dtype in (torch.float32, torch.float64):
        built = strategy(X.to(dtype), covar_module=kernel, lam=1e-3, seed=3)

        def feedback(X: Tensor) -> Tensor:
            return objective(X.double())

        history = built.run(feedback, 30, progress=False)
        assert history.X.dtype == dtype
        chosen.append(history.indices)
    assert torch.equal(*chosen)


@pytest.mark.parametrize("name", ["bbkb", "gpucb", "thompson"])
def test_float32_candidates_without_a_kernel(name: str) -> None:
    """Ranges, scaled inputs and fits are those of the same numbers in float64."""
    X = make_candidates().float()
    runs = []
    for dtype in (torch.float32, torch.float64):
        built = INFERRED[name](candidates=X.to(dtype), refit=RefitSchedule(growth=2.0))
        history = built.run(lambda X: objective(X.double()), 20, progress=False)
        assert history.X.dtype == dtype
        runs.append((history.indices, *built.predict(X)))
    for ours, theirs in zip(*runs, strict=True):
        assert torch.equal(ours, theirs)


def test_squares_of_a_batch_are_summed_up_where_there_is_no_room(
    double: dict[str, Any],
) -> None:
    """A pool with little room, or none, keeps fewer of them: to the same batch."""
    X = torch.rand(300, 2, generator=torch.Generator().manual_seed(0)).to(**double)
    kernel = make_kernel().to(**double)
    noise = torch.full((20,), 1.0, **double)
    posterior = NystromPosterior.from_data(kernel, X[:20], X[:20, 0], noise, X[:20])
    batches = []
    for max_memory in (0, 2 * 300 * 20 * 8, 2**30):
        pool = NystromPool(X, 1.0, max_memory=max_memory)
        pool.update(posterior)
        batches.append(pool.batch(9.0, Local(6.0)).choose(1000))
    assert len(batches[0]) > 2 and batches[0] == batches[1] == batches[2]
