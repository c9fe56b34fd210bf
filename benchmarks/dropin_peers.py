"""The drop-in and its peers, built and fitted as a BoTorch user would.

All have BoTorch's default kernel, likelihood and priors, unless a kernel is given.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import gpytorch
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
)
from botorch.models.utils.inducing_point_allocators import GreedyVarianceReduction
from botorch.optim.closures import get_loss_closure, get_loss_closure_with_grads
from gpytorch.kernels import InducingPointKernel, Kernel
from gpytorch.mlls import (
    ExactMarginalLogLikelihood,
    MarginalLogLikelihood,
    VariationalELBO,
)
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP

# `SingleTaskVariationalGP` allocates its inducing points on a dense n x n kernel
# matrix, 3.2 GB here. Of larger training sets it sees this many random rows.
ALLOCATION_ROWS = 20_000
# Rows predicted at a time: InducingPointKernel forms the joint covariance.
PREDICTION_ROWS = 500


class Fitted(NamedTuple):
    """A model, its objective, and what the fit took.

    Attributes:
        evaluations: Evaluations of the objective, those on a part of the data included.
        loss: The objective per observation at the end, negated.
    """

    model: GPyTorchModel
    mll: MarginalLogLikelihood
    construction_seconds: float
    fit_seconds: float
    fit_cpu_seconds: float
    evaluations: int
    loss: float


def exact(X: Tensor, Y: Tensor, covar_module: Kernel | None = None) -> SingleTaskGP:
    """`SingleTaskGP`."""
    return SingleTaskGP(X, Y, covar_module=covar_module)


def sparse(
    X: Tensor, Y: Tensor, inducing_points: Tensor, covar_module: Kernel | None = None
) -> SparseSingleTaskGP:
    """`SparseSingleTaskGP` on the inducing points given."""
    return SparseSingleTaskGP(
        X, Y, covar_module=covar_module, inducing_points=inducing_points
    )


def sgpr(
    X: Tensor, Y: Tensor, inducing_points: Tensor, covar_module: Kernel | None = None
) -> SingleTaskGP:
    """`SingleTaskGP` on GPyTorch's `InducingPointKernel`, which learns the points."""
    if covar_module is None:
        covar_module = get_covar_module_with_dim_scaled_prior(
            ard_num_dims=X.shape[-1]
        ).to(X)
    model = SingleTaskGP(X, Y, covar_module=covar_module)
    model.covar_module = InducingPointKernel(
        covar_module,
        inducing_points=inducing_points.clone(),
        likelihood=model.likelihood,
    )
    return model


def svgp(
    X: Tensor,
    Y: Tensor,
    inducing_points: Tensor | int,
    covar_module: Kernel | None = None,
) -> SingleTaskVariationalGP:
    """`SingleTaskVariationalGP`; a number of points leaves their choice to BoTorch."""
    if isinstance(inducing_points, int) and len(X) > ALLOCATION_ROWS:
        generator = torch.Generator().manual_seed(0)
        rows = torch.randperm(len(X), generator=generator)[:ALLOCATION_ROWS]
        inducing_points = GreedyVarianceReduction().allocate_inducing_points(
            X[rows],
            get_covar_module_with_dim_scaled_prior(ard_num_dims=X.shape[-1]).to(X),
            inducing_points,
            torch.Size(),
        )
    return SingleTaskVariationalGP(
        X, Y, inducing_points=inducing_points, covar_module=covar_module
    )


def objective(model: GPyTorchModel) -> MarginalLogLikelihood:
    """The objective that BoTorch's documentation pairs with the model."""
    if isinstance(model, SingleTaskVariationalGP):
        num_data = len(model.model.train_targets)
        return VariationalELBO(model.likelihood, model.model, num_data=num_data)
    return ExactMarginalLogLikelihood(model.likelihood, model)


def fast_log_prob(model: GPyTorchModel) -> gpytorch.settings.fast_computations:
    """GPyTorch's low-rank `log_prob`, which BoTorch turns off, for `sgpr` alone."""
    is_sgpr = isinstance(getattr(model, "covar_module", None), InducingPointKernel)
    return gpytorch.settings.fast_computations(
        covar_root_decomposition=False, log_prob=is_sgpr, solves=False
    )


def evaluation(model: GPyTorchModel) -> Callable[[], object]:
    """The closure that a fit calls: the value and the gradient of the objective."""
    mll = objective(model).train()
    parameters = {n: p for n, p in mll.named_parameters() if p.requires_grad}
    closure = get_loss_closure_with_grads(mll, parameters)

    def call() -> object:
        mll.train()
        with fast_log_prob(model):
            return closure()

    return call


def fit(build: Callable[[], GPyTorchModel]) -> Fitted:
    """Construct and fit with all of BoTorch's defaults, timed apart."""
    start = time.perf_counter()
    model = build()
    constructed = time.perf_counter()
    mll = objective(model)
    cpu = time.process_time()
    with fast_log_prob(model), _counted_evaluations(mll) as calls:
        fit_gpytorch_mll(mll)
    fitted, num = time.perf_counter(), len(calls)
    cpu = time.process_time() - cpu
    with fast_log_prob(model), torch.no_grad():
        loss = float(get_loss_closure(mll.train())())
    return Fitted(
        model,
        mll,
        construction_seconds=constructed - start,
        fit_seconds=fitted - constructed,
        fit_cpu_seconds=cpu,
        evaluations=num,
        loss=loss,
    )


@contextmanager
def _counted_evaluations(mll: MarginalLogLikelihood) -> Iterator[list[None]]:
    """A list that grows with each evaluation of the objective, or of a copy of it."""
    calls: list[None] = []
    of_class = type(mll)
    forward = of_class.forward  # GPyTorch's modules call it without PyTorch's hooks

    def counted(*args: Any, **kwargs: Any) -> Tensor:
        calls.append(None)
        return forward(*args, **kwargs)

    with mock.patch.object(of_class, "forward", counted):
        yield calls


@torch.no_grad()
def predict(model: GPyTorchModel, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of new observations at the rows of `X`, each `n`."""
    model.eval()
    posteriors = [
        model.posterior(rows, observation_noise=True)
        for rows in X.split(PREDICTION_ROWS)
    ]
    mean = torch.cat([posterior.mean.squeeze(-1) for posterior in posteriors])
    variance = torch.cat([posterior.variance.squeeze(-1) for posterior in posteriors])
    return mean, variance
