"""Each row of docs/reference/faults/models.md: what comes, and what happens."""

import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    ModelFittingError,
)
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.sampling import IIDNormalSampler
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from sparse_model_cases import make_mll
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "faults" / "models.md"
ROW = re.compile(r"\| (?P<came>.+) \| (`(?P<error>\w+)`|(?P<works>Works.*)): .+ \|")
LINES = PAGE.read_text().split("\n")
ROWS = {row["came"]: row for row in map(ROW.fullmatch, LINES) if row}
ERRORS = {
    error.__name__: error
    for error in (
        BotorchTensorDimensionError,
        InputDataError,
        ModelFittingError,
        RuntimeError,
        TypeError,
    )
}
NAN, INFINITY = float("nan"), float("inf")
M = SparseSingleTaskGP


class Case(NamedTuple):
    """How to see what a row says, and what the error or the warning says."""

    run: Callable[[Tensor, Tensor], Any]
    match: str = ""


def fit(model: SparseSingleTaskGP) -> tuple[Tensor, Tensor]:
    """A short fit and the moments of a few points, which must be finite."""
    fit_gpytorch_mll(make_mll(model), optimizer_kwargs={"options": {"maxiter": 5}})
    d = model.train_inputs[0].shape[-1]
    posterior = model.posterior(torch.rand(3, d).to(model.train_targets))
    return posterior.mean, posterior.variance


def put(values: Tensor, value: float) -> Tensor:
    """One bad entry."""
    values = values.clone()
    values[3, 0] = value
    return values


def model(X: Tensor, Y: Tensor, **options: Any) -> SparseSingleTaskGP:
    """A sparse model that was evaluated."""
    sparse = SparseSingleTaskGP(X, Y, inducing_points=X[:8], **options)
    sparse.posterior(X[:2])
    return sparse


def kernel_of(lengthscale: float) -> RBFKernel:
    """A kernel whose lengthscale has no lower bound."""
    kernel = RBFKernel()
    kernel.lengthscale = lengthscale
    return kernel


def with_lengthscale(X: Tensor, Y: Tensor, value: float) -> SparseSingleTaskGP:
    """A model whose lengthscale is set later."""
    sparse = SparseSingleTaskGP(X, Y, covar_module=RBFKernel(), inducing_points=X[:8])
    sparse.covar_module.lengthscale = value
    return sparse


def option(**options: Any) -> Callable[[Tensor, Tensor], Any]:
    """A model with a wrong option."""
    return lambda X, Y: M(X, Y, **options)


def condition_on_host(X: Tensor, Y: Tensor, noise: Tensor | None = None) -> Any:
    """New observations on the CPU, where they are looked at."""
    options = {} if noise is None else {"noise": noise[:2].cpu()}
    sparse = model(X.cpu(), X.cpu()[:, :1])
    return sparse.condition_on_observations(X[:2].cpu(), Y[:2].cpu(), **options)


def other_targets(X: Tensor, Y: Tensor) -> Any:
    """Targets of another length."""
    sparse = model(X, Y)
    sparse.set_train_data(targets=Y[:7, 0], strict=False)
    return sparse.posterior(X)


def sampler_of(*index: int) -> Callable[..., Tensor]:
    """A sampler that returns these indices."""
    return lambda *_, **__: torch.tensor(index, dtype=torch.long)


def clusters(X: Tensor, Y: Tensor) -> Any:
    """Pairs of points at a distance of rounding."""
    twice = torch.cat([X, X + 1e-12])
    return fit(
        SparseSingleTaskGP(twice, torch.cat([Y, Y + 1.0]), inducing_points=twice)
    )


def load(X: Tensor, Y: Tensor, other: SingleTaskGP) -> Any:
    """The state of another model."""
    return model(X, Y).load_state_dict(other.state_dict())


CASES = {
    "`train_X` with one dimension": Case(
        lambda X, Y: M(X[:, 0], Y), "same number of dimensions"
    ),
    "`train_Y` without its output dimension": Case(
        lambda X, Y: M(X, Y[:, 0]), "explicit output dimension"
    ),
    "`train_X` and `train_Y` both with one dimension": Case(
        lambda X, Y: M(X[:, 0], Y[:, 0]), "need `n x d` and `n x 1`"
    ),
    "`train_X` and `train_Y` of different lengths": Case(
        lambda X, Y: M(X, Y[:20]), "the same n"
    ),
    "no training points": Case(lambda X, Y: M(X[:0], Y[:0]), "at least one point"),
    "inputs of dimension zero": Case(
        lambda X, Y: M(X[:, :0], Y), "one input dimension"
    ),
    "NumPy arrays or lists": Case(
        lambda X, Y: M(X.cpu().numpy(), Y), "of type ndarray; need a torch.Tensor"
    ),
    "different dtypes": Case(lambda X, Y: M(X, Y.float()), "share the same dtype"),
    "integers, float16 or complex numbers": Case(
        lambda X, Y: M((9 * X).long(), (9 * Y).long()),
        "data in torch.int64; need float64",
    ),
    "tensors on different devices": Case(
        lambda X, Y: M(X.to("meta"), Y), "train_X on meta, train_Y on"
    ),
    "NaN in `train_X`": Case(
        lambda X, Y: M(put(X, NAN), Y), "train_X with NaN or infinity in 1 of 60"
    ),
    "NaN in `train_Y`": Case(
        lambda X, Y: M(X, put(Y, NAN)), "train_Y with NaN or infinity in 1 of 30"
    ),
    "infinity in `train_X` or `train_Y`": Case(
        lambda X, Y: M(X, put(Y, -INFINITY)), "train_Y with NaN or infinity"
    ),
    "observations whose squares overflow, such as 1e200": Case(
        lambda X, Y: M(X, 1e200 * Y), "squares overflow"
    ),
    "inputs whose squares overflow, without an input transform": Case(
        lambda X, Y: M(1e200 * X, Y), r"overflow.*Normalize\(d\)"
    ),
    "such inputs with `Normalize`": Case(
        lambda X, Y: fit(M(1e200 * X, Y, input_transform=Normalize(2)))
    ),
    "observations as small as 1e-200": Case(lambda X, Y: fit(M(X, 1e-200 * Y))),
    "one point": Case(lambda X, Y: fit(M(X[:1], Y[:1]))),
    "constant observations": Case(lambda X, Y: fit(M(X, torch.ones_like(Y)))),
    "all rows the same": Case(
        lambda X, Y: fit(M(X[:1].repeat(700, 1), Y[:1] + torch.rand(700, 1).to(Y)))
    ),
    "points at a distance of rounding, all inducing": Case(clusters),
    "a constant input column": Case(
        lambda X, Y: fit(
            M(torch.cat([X, torch.ones_like(Y)], -1), Y, input_transform=Normalize(3))
        )
    ),
    "negative `train_Yvar`": Case(
        lambda X, Y: M(X, Y, -torch.ones_like(Y)), "train_Yvar as small as -1"
    ),
    "NaN in some entries of `train_Yvar`": Case(
        lambda X, Y: M(X, Y, put(torch.ones_like(Y), NAN)),
        "NaN in 1 of 30 entries.*train_Yvar=None",
    ),
    "`train_Yvar` that is NaN everywhere": Case(
        lambda X, Y: M(X, Y, torch.full_like(Y, NAN)),
        "NaN everywhere; pass train_Yvar=None",
    ),
    "infinity in `train_Yvar`": Case(
        lambda X, Y: M(X, Y, put(torch.ones_like(Y), INFINITY)),
        "train_Yvar with NaN or infinity",
    ),
    "`train_Yvar` of another shape": Case(
        lambda X, Y: M(X, Y, torch.ones(30, 2).to(Y)), "Expected Yvar with shape"
    ),
    "zero `train_Yvar`": Case(
        lambda X, Y: fit(model(X, Y, train_Yvar=torch.zeros_like(Y))),
        "Very small noise",
    ),
    "a `covar_module` that is no kernel, or a class": Case(
        option(covar_module=RBFKernel), "covar_module=the class RBFKernel"
    ),
    "a kernel for another input dimension": Case(
        option(covar_module=RBFKernel(ard_num_dims=5)),
        r"RBFKernel which at inputs of shape \(2, 2\) fails.*ard_num_dims",
    ),
    "a kernel with a lengthscale of zero": Case(
        option(covar_module=kernel_of(0.0)), "is NaN or infinite.*lengthscale"
    ),
    "a lengthscale set to zero later": Case(
        lambda X, Y: with_lengthscale(X, Y, 0.0).posterior(X), "kernel returned NaN"
    ),
    "a fit from such hyperparameters": Case(
        lambda X, Y: fit(with_lengthscale(X, Y, 0.0)), "as it was before"
    ),
    "a `likelihood` that is not Gaussian": Case(
        option(likelihood=RBFKernel()), "likelihood=RBFKernel"
    ),
    "a `mean_module` that is no mean": Case(
        option(mean_module=RBFKernel()), "mean_module=RBFKernel"
    ),
    "an `input_transform` or `outcome_transform` that is a name, a class, or the "
    "other kind": Case(
        option(input_transform=Normalize), "input_transform=the class Normalize"
    ),
    "`task_feature`, `data_fidelities`": Case(
        option(data_fidelities=[1]), r"'data_fidelities'.*models\.SingleTaskMultiFid"
    ),
    "an option that it does not have": Case(
        option(max_inducing_point=9), r"'max_inducing_point'.*'max_inducing_points'\?"
    ),
    "an unknown `objective`": Case(option(objective="vfe"), "objective='vfe'"),
    "`inducing_points` of a wrong shape": Case(
        lambda X, Y: M(X, Y, inducing_points=X[:, 0]), "`m x 2`"
    ),
    "`inducing_points` of another dtype or device": Case(
        lambda X, Y: M(X, Y, inducing_points=X.float()), "they must agree"
    ),
    "`inducing_points` with NaN or infinity": Case(
        lambda X, Y: M(X, Y, inducing_points=put(X, NAN)), "must be finite"
    ),
    "no `inducing_points`, or a list": Case(
        lambda X, Y: M(X, Y, inducing_points=X[:0]), "at least one row"
    ),
    "more `inducing_points` than training points": Case(
        lambda X, Y: fit(M(X, Y, inducing_points=torch.rand(50, 2).to(X)))
    ),
    "an `inducing_sampler` that cannot be called": Case(
        option(inducing_sampler="greedy"), "inducing_sampler='greedy'"
    ),
    "a sampler that returns nothing, or indices out of range": Case(
        lambda X, Y: M(X, Y, inducing_sampler=sampler_of(100)).posterior(X),
        "indices from 100 to 100 for 30",
    ),
    "`max_inducing_points` of zero, or not an integer": Case(
        option(max_inducing_points=2.5), "max_inducing_points=2.5"
    ),
    "`max_inducing_points` that is far too small": Case(
        lambda X, Y: fit(M(X, Y, max_inducing_points=1))
    ),
    "`max_memory` of zero": Case(option(max_memory=0), "max_memory=0"),
    "`rounds=0`, or not an integer": Case(
        lambda X, Y: model(X, Y).custom_fit(None, rounds=0), "rounds=0"
    ),
    "a posterior at points of another dimension": Case(
        lambda X, Y: model(X, Y).posterior(torch.rand(3, 5).to(X)),
        r"shape \(3, 5\) for a model of inputs of dimension 2",
    ),
    "a posterior at one point without its row dimension": Case(
        lambda X, Y: model(X, Y).posterior(X[0]), r"shape \(2,\)"
    ),
    "points or observations as arrays or lists": Case(
        lambda X, Y: model(X, Y).posterior(X.tolist()), "X=.* need a torch.Tensor"
    ),
    "a posterior at no points": Case(lambda X, Y: model(X, Y).posterior(X[:0]).mean),
    "a posterior at NaN": Case(
        lambda X, Y: model(X, Y).posterior(put(X, NAN).unsqueeze(-2)).mean[4:]
    ),
    "new observations at inputs of another dimension": Case(
        lambda X, Y: model(X, Y).condition_on_observations(X[:2].repeat(1, 3), Y[:2]),
        "inputs of dimension 2",
    ),
    "new inputs and observations of different lengths": Case(
        lambda X, Y: model(X, Y).condition_on_observations(X[:2], Y[:3]),
        "as many points",
    ),
    "new observations with NaN": Case(
        lambda X, Y: condition_on_host(X, NAN * Y), "new observations with NaN"
    ),
    "new observations with negative noise, or with NaN as theirs": Case(
        lambda X, Y: condition_on_host(X, Y, -0.1 + 0 * Y), "variances must be finite"
    ),
    "fantasies at inputs of another dimension": Case(
        lambda X, Y: model(X, Y).fantasize(
            X[:2].repeat(1, 3), IIDNormalSampler(torch.Size([3]))
        ),
        "inputs of dimension 2",
    ),
    "training targets set to another length": Case(
        other_targets, "30 training inputs and 7 training targets"
    ),
    "the state dict of another kernel": Case(
        lambda X, Y: load(X, Y, M(X, Y, covar_module=ScaleKernel(MaternKernel()))),
        "Missing key.*covar_module",
    ),
    "the state dict of another input dimension": Case(
        lambda X, Y: load(X, Y, M(X.repeat(1, 2), Y)), "size mismatch for covar_module"
    ),
}


def tensors(result: Any) -> Iterable[Tensor]:
    """The tensors that a case that works returned."""
    return (result,) if isinstance(result, Tensor) else result


def test_the_model_of_several_tasks():
    X = torch.rand(30, 2, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"'task_feature'.*models\.SparseMultiTaskGP"):
        M(X, X[:, :1], task_feature=1)


@pytest.mark.parametrize("came", CASES)
def test_what_happens(came, double):
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(30, 2, generator=generator, dtype=torch.float64).to(**double)
    Y = (3 * X).sin().sum(-1, keepdim=True)
    (run, match), row = CASES[came], ROWS[came]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if row["error"]:
            with pytest.raises(ERRORS[row["error"]], match=f"(?s){match}"):
                run(X, Y)
            return
        result = run(X, Y)
    for values in tensors(result):
        assert values.isfinite().all()
    if row["works"] == "Works, and warns":
        assert any(match in str(w.message) for w in caught)


def test_all_rows_are_seen():
    assert list(CASES) == list(ROWS)
