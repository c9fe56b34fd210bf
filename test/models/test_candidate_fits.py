"""The loop that fits candidates and keeps the best, and its scorer."""

import math
from typing import Any

import pytest
import torch
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.test_functions import Hartmann
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.distributions import Normal

from botorch_sparse.models import SparseSingleTaskGP, loo_cv
from botorch_sparse.models.fit.candidate_fits import Fitted, keep_best, left_out_density
from botorch_sparse.models.inducing_points import InducingSet
from botorch_sparse.posteriors import RepeatedRows

NAN, FAILS = math.nan, None


def objective(**tkwargs: Any) -> MarginalLogLikelihood:
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(90, 2, generator=generator, dtype=torch.float64).to(**tkwargs)
    model = SparseSingleTaskGP(X, (9 * X).sin().sum(-1, True), inducing_points=X[:20])
    return ExactMarginalLogLikelihood(model.likelihood, model)


def candidate(number: int, is_failing: bool = False) -> Any:
    """One that adds its number to the constant mean and takes so many points."""

    def fit(mll: MarginalLogLikelihood, options: dict[str, Any]) -> Fitted:
        model = mll.model
        with torch.no_grad():
            model.mean_module.raw_constant.add_(number)
        if is_failing:
            raise ModelFittingError(f"candidate {number}")
        X = model.train_inputs[0]
        model._take(InducingSet.of_points(X, X[:number]))
        return Fitted.of(mll)

    return fit


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ((1.0, 0.0, 0.5), 0),
        ((0.0, 1.0, 2.0), 2),
        ((1.0, 1.0, 1.0), 0),
        ((NAN, 0.0, NAN), 1),
        ((FAILS, NAN, -9.0), 2),
        ((0.0, FAILS, NAN), 0),
    ],
)
def test_the_best_is_kept(scores, best, double):
    """With its points, each fitted from where the objective was; the first of equals.

    The scores are made up.
    """
    mll, left = objective(**double), iter(scores)
    before = mll.model.mean_module.constant.item()

    def score(mll: MarginalLogLikelihood, _: object) -> Tensor:
        value = next(left)
        if value is FAILS:
            raise NotPSDError("no")
        mll.eval()
        return torch.tensor(value)

    keep_best(mll, [candidate(i + 1) for i in range(3)], {}, score)
    assert mll.model.mean_module.constant.item() == before + best + 1
    assert mll.model.num_inducing == best + 1
    assert mll.eval().model.posterior(torch.zeros(1, 2, **double)).mean.isfinite()


def test_failing_candidates(double):
    """What is left is kept without a score; if nothing is, the first error counts."""
    mll = objective(**double)
    before = mll.model.mean_module.constant.item()

    def never(mll: MarginalLogLikelihood, _: object) -> Tensor:
        raise AssertionError

    keep_best(mll, [candidate(1, True), candidate(2), candidate(3, True)], {}, never)
    assert mll.model.mean_module.constant.item() == before + 2
    with pytest.raises(ModelFittingError, match="candidate 4"):
        keep_best(mll, [candidate(4, True), candidate(5, True)], {}, never)


def test_left_out_density_against_loo_cv(double):
    mll = objective(**double)
    results = loo_cv(mll.model, untransform=False)
    left_out = Normal(results.posterior.mean, results.posterior.variance.sqrt())
    density = left_out.log_prob(results.observed_Y).mean()
    torch.testing.assert_close(left_out_density(mll), density)


@pytest.mark.parametrize("num_chosen", [40, 41])
def test_inducing_points_are_not_asked_where_others_are(num_chosen, double):
    """Those of any fit; of fewer than 50 others, all 90 observations are asked."""
    mll = objective(**double)
    model, X = mll.model, mll.model.train_inputs[0]
    rows = RepeatedRows.find(X)
    sets = [torch.arange(20), torch.arange(15, num_chosen)]
    fits = [
        Fitted({}, InducingSet.of_rows(X, rows, index.to(X.device))) for index in sets
    ]
    fits.append(Fitted({}, InducingSet.of_all(X)))
    results = loo_cv(model, untransform=False)
    left_out = Normal(results.posterior.mean, results.posterior.variance.sqrt())
    first = 40 if num_chosen == 40 else 0
    asked = left_out.log_prob(results.observed_Y).flatten()[first:]
    torch.testing.assert_close(left_out_density(mll, fits), asked.mean())


@pytest.mark.slow_sim
def test_fits_with_small_noise_are_judged_by_what_they_predict(double):
    """At inducing points the better fit seems the worse: it ended as all noise here."""
    generator = torch.Generator().manual_seed(0)
    f = Hartmann().double()
    X = torch.rand(1250, 6, generator=generator, dtype=torch.float64)
    Y = -f(X).unsqueeze(-1)
    X, Y = X.to(**double), (Y / Y[:1000].std()).to(**double)
    model = SparseSingleTaskGP(X[:1000], Y[:1000], max_inducing_points=700)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    error = (model.posterior(X[1000:]).mean - Y[1000:]).square().mean().sqrt()
    assert error < 0.33
    assert model.likelihood.noise.sqrt() * model.outcome_transform.stdvs < 0.15
