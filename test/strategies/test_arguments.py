"""What strategies make of their arguments."""

from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import RBFKernel
from strategy_table import (
    GP,
    INFERRED,
    TABLE,
    make_candidates,
    make_kernel,
    objective,
)

from botorch_sparse.acquisition import BBKBRadius, BKBRadius, FixedBeta
from botorch_sparse.models.refit_schedule import RefitSchedule
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


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", [*GP, "inferred-bbkb", "inferred-thompson"])
def test_float32_candidates_are_learned_in_float64(name: str) -> None:
    """Ranges, scaled inputs, fits and choices are those of the same float64 numbers."""
    X, runs = make_candidates().float(), []
    kernel = RBFKernel().requires_grad_(False)
    kernel.lengthscale = 0.3
    for dtype in (torch.float32, torch.float64):
        if name.startswith("inferred-"):
            build = INFERRED[name.removeprefix("inferred-")]
            options: dict[str, Any] = {"refit": RefitSchedule(growth=2.0)}
        else:
            build, options = TABLE[name], {"covar_module": kernel, "lam": 1e-3}
        built = build(candidates=X.to(dtype), **options)
        history = built.run(lambda X: objective(X.double()), 25, progress=False)
        assert history.X.dtype == dtype
        runs.append((history.indices, *built.predict(X)))
    # A kernel that is given is that of float32 inputs in predictions.
    error = 0.0 if name.startswith("inferred-") else 1e-5
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=error)
