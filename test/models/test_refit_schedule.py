"""When hyperparameters are refitted in a loop."""

import pytest
import torch
from botorch.exceptions import InputDataError
from botorch.models import ModelListGP
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood

from botorch_sparse.models import RefitSchedule, SparseSingleTaskGP


def fits(schedule: RefitSchedule, sizes: list[int]) -> list[int]:
    done = []
    for n in sizes:
        if schedule.is_due(n):
            done.append(n)
            schedule.record(n)
    return done


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (RefitSchedule(), [5, 6, 7, 8, 9, 10, 11, 12]),
        (RefitSchedule(every=3), [5, 8, 11]),
        (RefitSchedule(growth=2.0), [5, 10]),
        (RefitSchedule(growth=1.5), [5, 8, 12]),
    ],
)
def test_when(schedule, expected):
    assert fits(schedule, list(range(5, 13))) == expected
    assert not schedule.is_due(expected[-1])  # the same data are not fitted twice
    assert schedule.is_due(3)  # other data


def test_resumes():
    schedule, twin = RefitSchedule(growth=2.0), RefitSchedule(growth=2.0)
    fits(schedule, [10, 15])
    twin.load_state_dict(schedule.state_dict())
    assert twin.last_fit == 10
    assert fits(twin, [15, 19, 20, 30]) == fits(schedule, [15, 19, 20, 30]) == [20]


def test_fits_models_when_due():
    X = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
    model, short = (
        SparseSingleTaskGP(X[:n], (6 * X[:n]).sin(), inducing_points=X[:4])
        for n in (12, 9)
    )
    alone = ExactMarginalLogLikelihood(model.likelihood, model)
    models = ModelListGP(short, model)
    for mll in (alone, SumMarginalLogLikelihood(models.likelihood, models)):
        schedule, before = RefitSchedule(every=4), model.covar_module.lengthscale.item()
        options = {"options": {"maxiter": 3}}
        assert schedule.fit(mll, optimizer_kwargs=options)
        fitted = model.covar_module.lengthscale.item()
        assert schedule.last_fit == 12 and fitted != before
        mll.train()
        assert not schedule.fit(mll, optimizer_kwargs=options)
        assert model.covar_module.lengthscale.item() == fitted
        assert not mll.training

    def fail(*args: object, **kwargs: object) -> None:
        raise ValueError("mine")

    schedule = RefitSchedule()
    with pytest.raises(ValueError, match="mine"):
        schedule.fit(alone, optimizer=fail)
    assert schedule.last_fit is None


def test_refuses():
    with pytest.raises(InputDataError, match="one of them"):
        RefitSchedule(every=2, growth=2.0)
