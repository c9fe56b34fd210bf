"""Offset, sign and scale of the feedback: what changes no choice, what is announced."""

import warnings
from functools import cache
from typing import Any

import pytest
import torch
from botorch.exceptions.warnings import InputDataWarning
from box_table import INFERRED as BOX_INFERRED
from box_table import KNOWN, THOROUGH
from box_table import TABLE as BOX_TABLE
from gpytorch.kernels import ScaleKernel
from gpytorch.means import ConstantMean, ZeroMean
from strategy_table import INFERRED, TABLE, make_candidates, make_kernel, objective
from torch import Tensor

from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import BBKB, GPUCB, ThompsonSampling

TOTAL = 60
GIVEN = ["bbkb-global-local", "bkb", "gpucb", "gpbucb-sum", "thompson"]
CASES = [(True, name) for name in GIVEN] + [(False, name) for name in INFERRED]
cases = pytest.mark.parametrize("is_given, name", CASES)
# Multiples of 2^-20: an offset of a power of two rounds none of them.
VALUES = (objective(make_candidates()) * 2**20).round() / 2**20


def build(is_given: bool, name: str, **kwargs: Any) -> Any:
    if is_given:
        return TABLE[name](**kwargs)
    return INFERRED[name](refit=RefitSchedule(growth=2.0), **kwargs)


def rows(values: Tensor, is_given: bool, name: str, **kwargs: Any) -> list[int]:
    """What is chosen for some values of the table."""
    strategy = build(is_given, name, **kwargs)
    history = strategy.run(lambda i: values[i], TOTAL, progress=False, by_index=True)
    return history.indices.tolist()


@cache
def plain(is_given: bool, name: str) -> list[int]:
    return rows(VALUES, is_given, name)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "offset", [2.0**10, pytest.param(-(2.0**20), marks=pytest.mark.slow)]
)
@cases
def test_an_offset_changes_no_choice(is_given: bool, name: str, offset: float) -> None:
    """Candidates differ in their bounds by far more than the offset's rounding."""
    assert rows(VALUES + offset, is_given, name) == plain(is_given, name)


def test_a_mean_that_is_given_is_taken_as_it_is() -> None:
    """With mean zero an offset of the feedback changes what is chosen, as it did."""
    zero = rows(VALUES, True, "gpucb", mean_module=ZeroMean())
    moved = rows(VALUES + 8.0, True, "gpucb", mean_module=ZeroMean())
    assert zero != moved
    mean = ConstantMean().double()
    mean.initialize(constant=8.0)
    assert rows(VALUES + 8.0, True, "gpucb", mean_module=mean) == zero
    assert len({*moved}) < len({*zero}) / 2  # it stays where it was lucky


def known_or_inferred(name: str) -> Any:
    return (KNOWN | BOX_INFERRED)[name]


@pytest.mark.parametrize("name", ["bbkb-global-local", "bbkb-inferred"])
def test_an_offset_on_a_box(name: str) -> None:
    """Points as close as two local searches end; on tables the rows are the same."""
    histories = []
    for offset in (0.0, 2.0**10):
        is_fitted = name in BOX_INFERRED
        once = {"refit": RefitSchedule(every=100)} if is_fitted else {}
        strategy = known_or_inferred(name)(optimizer_options=THOROUGH, **once)
        X = strategy.box.sample(8, 0)
        values = (objective(X) * 2**20).round() / 2**20
        strategy.tell(X, values + offset)
        for _ in range(2):
            batch = strategy.ask(1)
            strategy.tell(batch, (objective(batch.X) * 2**20).round() / 2**20 + offset)
        histories.append(strategy.history.X)
    # L-BFGS ends at a relative tolerance of 2e-9 in the value, whose square root
    # bounds what is left in a point, or in a hyperparameter: 5e-5, and 20 times that
    # after two searches.
    torch.testing.assert_close(*histories, rtol=0, atol=1e-3)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "scale", [2.0**-50, pytest.param(2.0**40, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", INFERRED)
def test_the_scale_changes_no_choice(name: str, scale: float) -> None:
    """Such as concentrations in mol/l; a power of two rounds no value."""
    assert rows(scale * VALUES, False, name) == plain(False, name)


@pytest.mark.parametrize(
    "scale", [2.0**-40, pytest.param(2.0**40, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "name", ["bbkb-inferred", "thompson-inferred", "gssbo", "regions"]
)
def test_the_scale_on_a_box(name: str, scale: float) -> None:
    """The optimizers' tolerances are absolute, and see values in units of their own."""
    chosen, options = [], {"optimizer_options": {"num_restarts": 2, "raw_samples": 32}}
    for factor in (1.0, scale):
        strategy = BOX_TABLE[name](**({} if name == "regions" else options))
        X = strategy.box.sample(10, 0)
        strategy.tell(X, factor * (objective(X) * 2**20).round() / 2**20)
        said = strategy.predict(X)
        said = [part / factor for part in said] if said else []
        chosen.append([strategy.ask(2).X, *said])
    torch.testing.assert_close(*chosen, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["bbkb", "gpucb", "box"])
def test_an_offset_of_the_radius_widens_both_bounds(name: str) -> None:
    """In the model's units, on either side."""
    strategy = BOX_TABLE["bbkb-inferred"]() if name == "box" else INFERRED[name]()
    X = make_candidates()[:12]
    strategy.tell(X, 8.0 * objective(X))
    view, scale = strategy.surrogate.view, float(strategy.history.Y.std())
    gaps = [view.confidence_gap(2.0, offset) for offset in (0.0, 0.25)]
    assert gaps[1] - gaps[0] == pytest.approx(2 * 0.25 * scale, rel=1e-6)


def said_of(strategy: Any, X: Tensor, Y: Tensor, size: int) -> list[str]:
    """What is said while so many rows are told at a time."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", InputDataWarning)
        for told in zip(X.split(size), Y.split(size), strict=True):
            strategy.tell(*told)
    return [str(w.message) for w in said if w.category is InputDataWarning]


def announced(strategy: Any, factor: float, num: int) -> list[str]:
    """What is said of large or small values."""
    X = make_candidates()[:num]
    return said_of(strategy, X, factor * objective(X), 1)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("factor", [1e3, 1e-3])
@pytest.mark.parametrize("name", GIVEN)
def test_feedback_that_does_not_fit_is_announced_once(name: str, factor: float) -> None:
    """With what to pass, which is then right."""
    judged = 2 if factor > 1 else 10  # chance makes small spreads, but no large ones
    assert announced(TABLE[name](), factor, judged - 1) == []
    (text,) = announced(TABLE[name](), factor, 30)  # and not with each batch again
    Y = factor * objective(make_candidates()[:judged])
    spread = float(Y.std())
    assert f"varies by {spread:.3g}" in text
    for part in ("Divide the feedback by ", "an outputscale of ", "lam of "):
        assert part in text
    number = float(text.split("Divide the feedback by ")[1].split(";")[0])
    assert number == pytest.approx(spread / (1 + 1e-2) ** 0.5, rel=1e-2)
    assert announced(TABLE[name](), factor / number, 30) == []
    kernel = ScaleKernel(make_kernel()).double().requires_grad_(False)
    kernel.outputscale = float(text.split("an outputscale of ")[1].split(" ")[0])
    lam = float(text.split("lam of ")[1].split(";")[0])
    assert lam == pytest.approx(1e-2 * number**2, rel=2e-2)
    assert announced(TABLE[name](covar_module=kernel, lam=lam), factor, 30) == []
    assert "or leave covar_module out" in text


@pytest.mark.parametrize("factor", [5.0, 0.2])
def test_feedback_that_fits_well_enough(factor: float) -> None:
    assert announced(TABLE["bbkb-global"](), factor, 30) == []


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["bbkb", "gpucb", "thompson"])
def test_an_inferred_scale_is_not_announced(name: str) -> None:
    strategy = INFERRED[name](refit=RefitSchedule(every=25))
    assert announced(strategy, 1e6, 30) == []
    fitted = INFERRED[name](
        covar_module=ScaleKernel(make_kernel()).double(),
        lam=1e-2,
        refit=RefitSchedule(every=25),
    )
    assert announced(fitted, 20.0, 30) == []


@pytest.mark.parametrize("cls", [BBKB, GPUCB])
def test_constant_feedback_is_not_announced(cls: Any) -> None:
    """It has no scale: that of the next feedback is looked at."""
    strategy = cls(make_candidates(), covar_module=make_kernel(), lam=1e-2)
    assert announced(strategy, 0.0, 12) == []
    X = make_candidates()[20:40]
    with pytest.warns(InputDataWarning, match="The feedback varies by"):
        strategy.tell(X, 1e3 * objective(X))


@pytest.mark.parametrize("name", GIVEN)
def test_what_was_announced_is_not_after_loading(name: str) -> None:
    strategy, loaded = TABLE[name](), TABLE[name]()
    assert len(announced(strategy, 1e3, 5)) == 1
    loaded.load_state_dict(strategy.state_dict())
    assert announced(loaded, 1e3, 20) == []


def repeats(sd: float, num: int) -> tuple[Tensor, Tensor]:
    """Ten rows in turns, and feedback with noise of some deviation."""
    X = make_candidates()[:10].repeat(7, 1)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(70, generator=generator, dtype=torch.float64)
    return X[:num], (1e6 + objective(X) + sd * noise)[:num]


def noise_announced(strategy: Any, sd: float, num: int) -> list[str]:
    """What is said of it while it is told turn by turn."""
    return said_of(strategy, *repeats(sd, num), 10)


@pytest.mark.parametrize("name", GIVEN)
def test_noise_that_does_not_fit_lam_is_announced_once(name: str) -> None:
    """From thirty repeats on, with what to pass; not where there is less noise."""
    assert noise_announced(TABLE[name](), 0.5, 30) == []
    strategy, loaded = TABLE[name](), TABLE[name]()
    (text,) = noise_announced(strategy, 0.5, 70)
    loaded.load_state_dict(strategy.state_dict())
    assert noise_announced(loaded, 0.5, 20) == []
    # Four evaluations of each of ten rows: their variance about means of their own.
    Y = repeats(0.5, 40)[1].reshape(4, 10)
    lam = float(text.split("Pass lam=")[1].split(" ")[0])
    assert lam == pytest.approx(float(Y.var(dim=0).mean()), rel=6e-3)
    assert f"noise_variance={lam}" in text and "leave covar_module out" in text
    assert noise_announced(TABLE[name](lam=lam), 0.5, 70) == []
    assert noise_announced(TABLE[name](), 0.1, 70) == []  # that of lam
    assert noise_announced(TABLE[name](), 0.0, 70) == []


def test_noise_that_is_fitted_is_not_announced() -> None:
    later = RefitSchedule(every=50)
    for strategy in (
        INFERRED["bbkb"](refit=later),
        TABLE["bbkb-global"](refit=later, num_initial=1),
    ):
        assert noise_announced(strategy, 0.5, 45) == []


@pytest.mark.filterwarnings("ignore:The feedback varies by .*underflows")
@pytest.mark.parametrize("change", [(1e6, 1e-6), (0.0, 1e-140), (0.0, 1e100)])
def test_deviations_are_in_units_of_the_values(change: tuple[float, float]) -> None:
    """Where values differ by more than rounding, and else they are not known."""
    offset, scale = change
    X = torch.linspace(0, 1, 40, dtype=torch.double).unsqueeze(-1)
    found = []
    for c, s in ((0.0, 1.0), (offset, scale), (1e6, 1e-9), (0.0, 1e-151)):
        strategy = ThompsonSampling(X, seed=0)
        strategy.tell(X[::5], c + s * (6 * X[::5, 0]).sin())
        mean, sd = strategy.predict(X[:3])
        assert torch.allclose(mean, torch.full_like(mean, c), atol=3 * s)
        found.append(sd / s)
    assert torch.allclose(found[1], found[0], rtol=0.1)
    assert found[2].isnan().all() and found[3].isnan().all()
