"""An update of a model happens or does not, whatever line it is interrupted at.

But for its mode, train or eval, which it is put into module by module, and for contexts
whose ends may be interrupted: torch's, Python's (`no_grad`, `catch_warnings`), and
`one_thread`, of which one thread may be left.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.mlls import ExactMarginalLogLikelihood
from interrupted import Trace, surroundings
from strategy_table import equal
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP, SubsetSingleTaskGP
from botorch_sparse.threads import one_thread

OPTIONS = {"options": {"maxiter": 3}}


def data(num: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(num, 2, generator=g, dtype=torch.float64)
    return X, torch.sin(5 * X.sum(-1, keepdim=True))


def sparse() -> Any:
    return SparseSingleTaskGP(*data(40), max_inducing_points=8)


def exact() -> Any:
    return SparseSingleTaskGP(*data(20))


def subset() -> Any:
    return SubsetSingleTaskGP(*data(30), subset_size=8, num_initial=3)


def fit(model: Any) -> None:
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, optimizer_kwargs=OPTIONS)


def condition(model: Any) -> None:
    model.condition_on_observations(*data(2, seed=1))


def resparsify(model: Any) -> None:
    model.resparsify()


def add(model: Any) -> None:
    model.add_observations(*data(2, seed=1))


def seen(model: Any) -> list[Any]:
    """All that a model says and holds, without changing it."""
    parameters = {k: v.clone() for k, v in model.state_dict().items()}
    flags = [p.requires_grad for p in model.parameters()]
    inputs = [X.clone() for X in model.train_inputs]
    return [parameters, flags, inputs, model.train_targets.clone(), state(model)]


def state(model: Any) -> Any:
    """Which points are in the model."""
    if isinstance(model, SubsetSingleTaskGP):
        return model.subset_indices.clone()
    return model.inducing_points.clone()


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "fit-sparse": (sparse, fit),
    "fit-exact": (exact, fit),
    "fit-subset": (subset, fit),
    "condition-sparse": (lambda: sparse().eval(), condition),
    "condition-exact": (lambda: exact().eval(), condition),
    "condition-subset": (lambda: subset().eval(), condition),
    "resparsify": (sparse, resparsify),
    "add-subset": (subset, add),
}


def check(name: str, every: int) -> None:
    make, update = CASES[name]
    undisturbed, trace = make(), Trace(None)
    before = seen(undisturbed)
    with trace.on():
        update(undisturbed)
    after, model, outside = seen(undisturbed), make(), surroundings()[1:3]
    for number, (line, visits) in enumerate(trace.lines.items()):
        if number % every != sum(map(ord, name)) % every:
            continue
        if line[0].co_name == one_thread.__name__:
            continue
        for visit in sorted({1, visits}):
            error = (KeyboardInterrupt, RuntimeError)[(number + visit) % 2]
            place = f"{Path(line[0].co_filename).name}:{line[1]}, visit {visit}"
            try:
                with Trace(line, visit, error).on():
                    update(model)
            except (Exception, KeyboardInterrupt):
                torch.set_grad_enabled(True)
                assert surroundings()[1:3] == outside, place
                if equal(seen(model), before):
                    continue
                assert equal(seen(model), after), place
            model = make()  # it is done, or somebody tried again
    update(model)
    assert equal(seen(model), after)


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:Optimization failed")
@pytest.mark.filterwarnings("ignore:The inducing points reached their cap")
@pytest.mark.parametrize("name", CASES)
def test_an_update_that_is_interrupted_has_changed_nothing(name):
    check(name, 29)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Optimization failed")
@pytest.mark.filterwarnings("ignore:The inducing points reached their cap")
@pytest.mark.parametrize("name", CASES)
def test_at_every_line(name):
    check(name, 1)
