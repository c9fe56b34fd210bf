"""Bad inputs of SparseSingleTaskGP and what happens; docs/faults.md is made of it.

Run `python test/models/fault_table.py` to write the page again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    BotorchWarning,
    InputDataError,
    ModelFittingError,
)
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.sampling import IIDNormalSampler
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
INTRODUCTION = """# Bad inputs and what happens

What `SparseSingleTaskGP` does with data, options and calls that are wrong or extreme.
Errors are raised at the door, where the bad value comes in, and say what came, what is
needed and what to try. This page is generated from `test/models/fault_table.py`, and
`test/models/test_faults.py` checks each row.

"""
NAN, INFINITY = float("nan"), float("inf")


@dataclass(frozen=True)
class Fault:
    """One row: what comes, what happens, and how to see it."""

    came: str
    happens: str
    run: Callable[[Tensor, Tensor], Any]
    error: type[Exception] | None = None
    match: str = ""
    warning: type[Warning] | None = None

    def row(self) -> str:
        """The row of the page."""
        if self.error is not None:
            return f"| {self.came} | `{self.error.__name__}`: {self.happens} |"
        word = "Works, and warns" if self.warning else "Works"
        return f"| {self.came} | {word}: {self.happens} |"


def fit(model: SparseSingleTaskGP) -> tuple[Tensor, Tensor]:
    """A short fit and the moments of a few points, which must be finite."""
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 5}})
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


def on_host(X: Tensor, Y: Tensor) -> SparseSingleTaskGP:
    """The model on the CPU."""
    return model(X.cpu(), Y.cpu())


def with_lengthscale(X: Tensor, Y: Tensor, value: float) -> SparseSingleTaskGP:
    """A model with a kernel whose lengthscale has no lower bound."""
    sparse = SparseSingleTaskGP(X, Y, covar_module=RBFKernel(), inducing_points=X[:8])
    sparse.covar_module.lengthscale = value
    return sparse


def other_targets(X: Tensor, Y: Tensor) -> Any:
    """Targets of another length."""
    sparse = model(X, Y)
    sparse.set_train_data(targets=Y[:7, 0], strict=False)
    return sparse.posterior(X)


def zero_lengthscale_kernel() -> RBFKernel:
    """A kernel that divides by zero."""
    kernel = RBFKernel()
    kernel.lengthscale = 0.0
    return kernel


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


M = SparseSingleTaskGP
DIMENSION = BotorchTensorDimensionError
DATA = [
    Fault(
        "`train_X` with one dimension",
        "needs as many dimensions as `train_Y` (BoTorch's own check)",
        lambda X, Y: M(X[:, 0], Y),
        DIMENSION,
        "same number of dimensions",
    ),
    Fault(
        "`train_Y` without its output dimension",
        "needs an explicit one (BoTorch's own check)",
        lambda X, Y: M(X, Y[:, 0]),
        DIMENSION,
        "explicit output dimension",
    ),
    Fault(
        "`train_X` and `train_Y` both with one dimension",
        "needs `n x d` and `n x 1`; try `unsqueeze(-1)`",
        lambda X, Y: M(X[:, 0], Y[:, 0]),
        DIMENSION,
        "need `n x d` and `n x 1`",
    ),
    Fault(
        "`train_X` and `train_Y` of different lengths",
        "they need the same n",
        lambda X, Y: M(X, Y[:20]),
        DIMENSION,
        "the same n",
    ),
    Fault(
        "no training points",
        "needs at least one point",
        lambda X, Y: M(X[:0], Y[:0]),
        InputDataError,
        "at least one point",
    ),
    Fault(
        "inputs of dimension zero",
        "needs at least one input dimension",
        lambda X, Y: M(X[:, :0], Y),
        InputDataError,
        "one input dimension",
    ),
    Fault(
        "NumPy arrays or lists",
        "needs tensors; try `torch.as_tensor`",
        lambda X, Y: M(X.cpu().numpy(), Y),
        InputDataError,
        "train_X of type ndarray; need a torch.Tensor",
    ),
    Fault(
        "different dtypes",
        "needs one dtype (BoTorch's own check)",
        lambda X, Y: M(X, Y.float()),
        InputDataError,
        "share the same dtype",
    ),
    Fault(
        "integers, float16 or complex numbers",
        "needs float64 or float32",
        lambda X, Y: M((9 * X).long(), (9 * Y).long()),
        InputDataError,
        "data in torch.int64; need float64",
    ),
    Fault(
        "tensors on different devices",
        "all must be on one device",
        lambda X, Y: M(X.to("meta"), Y),
        InputDataError,
        "train_X on meta, train_Y on",
    ),
    Fault(
        "NaN in `train_X`",
        "says in how many entries; leave out or impute the rows",
        lambda X, Y: M(put(X, NAN), Y),
        InputDataError,
        "train_X with NaN or infinity in 1 of 60",
    ),
    Fault(
        "NaN in `train_Y`",
        "says in how many entries; leave out or impute the rows",
        lambda X, Y: M(X, put(Y, NAN)),
        InputDataError,
        "train_Y with NaN or infinity in 1 of 30",
    ),
    Fault(
        "infinity in `train_X` or `train_Y`",
        "as NaN",
        lambda X, Y: M(X, put(Y, -INFINITY)),
        InputDataError,
        "train_Y with NaN or infinity",
    ),
    Fault(
        "observations whose squares overflow, such as 1e200",
        "rescale them",
        lambda X, Y: M(X, 1e200 * Y),
        InputDataError,
        "squares overflow",
    ),
    Fault(
        "inputs whose squares overflow, without an input transform",
        "try `input_transform=Normalize(d)`",
        lambda X, Y: M(1e200 * X, Y),
        InputDataError,
        r"overflow.*Normalize\(d\)",
    ),
    Fault(
        "such inputs with `Normalize`",
        "they are scaled before they meet the kernel",
        lambda X, Y: fit(M(1e200 * X, Y, input_transform=Normalize(2))),
    ),
    Fault(
        "observations as small as 1e-200",
        "they are standardized; BoTorch warns of their scale",
        lambda X, Y: fit(M(X, 1e-200 * Y)),
    ),
    Fault("one point", "the exact GP", lambda X, Y: fit(M(X[:1], Y[:1]))),
    Fault(
        "constant observations",
        "the mean is that constant",
        lambda X, Y: fit(M(X, torch.ones_like(Y))),
    ),
    Fault(
        "all rows the same",
        "repeats are folded into one point",
        lambda X, Y: fit(M(X[:1].repeat(700, 1), Y[:1] + torch.rand(700, 1).to(Y))),
    ),
    Fault(
        "points at a distance of rounding, all inducing",
        "inducing points that others explain are left out",
        clusters,
    ),
    Fault(
        "a constant input column",
        "`Normalize` leaves it, and no lengthscale matters",
        lambda X, Y: fit(
            M(torch.cat([X, torch.ones_like(Y)], -1), Y, input_transform=Normalize(3))
        ),
    ),
]
NOISE = [
    Fault(
        "negative `train_Yvar`",
        "variances must not be negative",
        lambda X, Y: M(X, Y, -torch.ones_like(Y)),
        InputDataError,
        "train_Yvar as small as -1",
    ),
    Fault(
        "NaN in some entries of `train_Yvar`",
        "noise must be known for all observations or for none; pass None to infer one "
        "variance, or fill in an estimate",
        lambda X, Y: M(X, Y, put(torch.ones_like(Y), NAN)),
        InputDataError,
        "NaN in 1 of 30 entries.*train_Yvar=None",
    ),
    Fault(
        "`train_Yvar` that is NaN everywhere",
        "pass None to infer it",
        lambda X, Y: M(X, Y, torch.full_like(Y, NAN)),
        InputDataError,
        "NaN everywhere; pass train_Yvar=None",
    ),
    Fault(
        "infinity in `train_Yvar`",
        "leave out the rows, which say nothing",
        lambda X, Y: M(X, Y, put(torch.ones_like(Y), INFINITY)),
        InputDataError,
        "train_Yvar with NaN or infinity",
    ),
    Fault(
        "`train_Yvar` of another shape",
        "needs that of `train_Y` (BoTorch's own check)",
        lambda X, Y: M(X, Y, torch.ones(30, 2).to(Y)),
        DIMENSION,
        "Expected Yvar with shape",
    ),
    Fault(
        "zero `train_Yvar`",
        "GPyTorch raises it to its least noise, 1e-6 in float64",
        lambda X, Y: fit(model(X, Y, train_Yvar=torch.zeros_like(Y))),
        warning=NumericalWarning,
    ),
]
OPTIONS = [
    Fault(
        "a `covar_module` that is no kernel, or a class",
        "needs an instance of `gpytorch.kernels.Kernel`",
        lambda X, Y: M(X, Y, covar_module=RBFKernel),
        InputDataError,
        "covar_module=the class RBFKernel",
    ),
    Fault(
        "a kernel for another input dimension",
        "check `ard_num_dims`",
        lambda X, Y: M(X, Y, covar_module=RBFKernel(ard_num_dims=5)),
        InputDataError,
        r"RBFKernel which at inputs of shape \(2, 2\) fails.*ard_num_dims",
    ),
    Fault(
        "a kernel with a lengthscale of zero",
        "the lengthscale must be positive",
        lambda X, Y: M(X, Y, covar_module=zero_lengthscale_kernel()),
        InputDataError,
        "is NaN or infinite.*lengthscale",
    ),
    Fault(
        "a lengthscale set to zero later",
        "the kernel returned NaN, which is said when a posterior is built",
        lambda X, Y: with_lengthscale(X, Y, 0.0).posterior(X),
        InputDataError,
        "kernel returned NaN",
    ),
    Fault(
        "a fit from such hyperparameters",
        "the model is left as it was, with a hint what to try",
        lambda X, Y: fit(with_lengthscale(X, Y, 0.0)),
        ModelFittingError,
        "as it was before",
    ),
    Fault(
        "a `likelihood` that is not Gaussian",
        "needs a Gaussian one",
        lambda X, Y: M(X, Y, likelihood=RBFKernel()),
        InputDataError,
        "likelihood=RBFKernel",
    ),
    Fault(
        "a `mean_module` that is no mean",
        "needs a `gpytorch.means.Mean`",
        lambda X, Y: M(X, Y, mean_module=RBFKernel()),
        InputDataError,
        "mean_module=RBFKernel",
    ),
    Fault(
        "an unknown `objective`",
        "needs `elbo` or `dtc`",
        lambda X, Y: M(X, Y, objective="vfe"),
        InputDataError,
        "objective='vfe'",
    ),
    Fault(
        "`inducing_points` of a wrong shape",
        "needs `m x d`",
        lambda X, Y: M(X, Y, inducing_points=X[:, 0]),
        DIMENSION,
        "`m x 2`",
    ),
    Fault(
        "`inducing_points` of another dtype or device",
        "must be those of `train_X`",
        lambda X, Y: M(X, Y, inducing_points=X.float()),
        InputDataError,
        "they must agree",
    ),
    Fault(
        "`inducing_points` with NaN or infinity",
        "all must be finite",
        lambda X, Y: M(X, Y, inducing_points=put(X, NAN)),
        InputDataError,
        "must be finite",
    ),
    Fault(
        "no `inducing_points`, or a list",
        "needs a tensor with at least one row, or None",
        lambda X, Y: M(X, Y, inducing_points=X[:0]),
        InputDataError,
        "at least one row",
    ),
    Fault(
        "more `inducing_points` than training points",
        "they are used as given",
        lambda X, Y: fit(M(X, Y, inducing_points=torch.rand(50, 2).to(X))),
    ),
    Fault(
        "an `inducing_sampler` that cannot be called",
        "needs an instance of an `InducingPointSampler`",
        lambda X, Y: M(X, Y, inducing_sampler="greedy"),
        InputDataError,
        "inducing_sampler='greedy'",
    ),
    Fault(
        "a sampler that returns nothing, or indices out of range",
        "says what it returned",
        lambda X, Y: M(X, Y, inducing_sampler=sampler_of(100)).posterior(X),
        InputDataError,
        "indices from 100 to 100 for 30",
    ),
    Fault(
        "`max_inducing_points` of zero, or not an integer",
        "needs an integer of at least one, or None",
        lambda X, Y: M(X, Y, max_inducing_points=2.5),
        InputDataError,
        "max_inducing_points=2.5",
    ),
    Fault(
        "`max_inducing_points` that is far too small",
        "what is left unexplained is said once",
        lambda X, Y: fit(M(X, Y, max_inducing_points=1)),
        warning=BotorchWarning,
    ),
    Fault(
        "`max_memory` of zero",
        "needs a positive number of bytes",
        lambda X, Y: M(X, Y, max_memory=0),
        InputDataError,
        "max_memory=0",
    ),
    Fault(
        "`rounds=0`, or not an integer",
        "needs an integer of at least one",
        lambda X, Y: model(X, Y).custom_fit(None, rounds=0),
        InputDataError,
        "rounds=0",
    ),
]
CALLS = [
    Fault(
        "a posterior at points of another dimension",
        "needs `batch_shape x q x d`",
        lambda X, Y: model(X, Y).posterior(torch.rand(3, 5).to(X)),
        DIMENSION,
        r"shape \(3, 5\) for a model of inputs of dimension 2",
    ),
    Fault(
        "a posterior at one point without its row dimension",
        "needs `batch_shape x q x d`",
        lambda X, Y: model(X, Y).posterior(X[0]),
        DIMENSION,
        r"shape \(2,\)",
    ),
    Fault(
        "a posterior at no points",
        "an empty posterior",
        lambda X, Y: model(X, Y).posterior(X[:0]).mean,
    ),
    Fault(
        "a posterior at NaN",
        "NaN at that point, and the others are not touched, as in `SingleTaskGP`",
        lambda X, Y: model(X, Y).posterior(put(X, NAN).unsqueeze(-2)).mean[4:],
    ),
    Fault(
        "new observations at inputs of another dimension",
        "needs the dimension of the training inputs",
        lambda X, Y: model(X, Y).condition_on_observations(X[:2].repeat(1, 3), Y[:2]),
        DIMENSION,
        "inputs of dimension 2",
    ),
    Fault(
        "new inputs and observations of different lengths",
        "they need as many points",
        lambda X, Y: model(X, Y).condition_on_observations(X[:2], Y[:3]),
        DIMENSION,
        "as many points",
    ),
    Fault(
        "new observations with NaN",
        "all must be finite; on an accelerator, which is not waited for, predictions "
        "are NaN",
        lambda X, Y: on_host(X, Y).condition_on_observations(
            X[:2].cpu(), NAN * Y[:2].cpu()
        ),
        InputDataError,
        "new observations with NaN",
    ),
    Fault(
        "new observations with negative noise, or with NaN as theirs",
        "variances must be finite and at least 0; not looked at on an accelerator",
        lambda X, Y: on_host(X, Y).condition_on_observations(
            X[:2].cpu(), Y[:2].cpu(), noise=torch.full_like(Y[:2].cpu(), -0.1)
        ),
        InputDataError,
        "variances must be finite",
    ),
    Fault(
        "fantasies at inputs of another dimension",
        "needs the dimension of the training inputs",
        lambda X, Y: model(X, Y).fantasize(
            X[:2].repeat(1, 3), IIDNormalSampler(torch.Size([3]))
        ),
        DIMENSION,
        "inputs of dimension 2",
    ),
    Fault(
        "training targets set to another length",
        "inputs and targets must be as many",
        other_targets,
        DIMENSION,
        "30 training inputs and 7 training targets",
    ),
    Fault(
        "the state dict of another kernel",
        "PyTorch names the keys that are missing",
        lambda X, Y: load(X, Y, M(X, Y, covar_module=ScaleKernel(MaternKernel()))),
        RuntimeError,
        "Missing key.*covar_module",
    ),
    Fault(
        "the state dict of another input dimension",
        "PyTorch names the shapes",
        lambda X, Y: load(X, Y, M(X.repeat(1, 2), Y)),
        RuntimeError,
        "size mismatch for covar_module",
    ),
]
SECTIONS = {
    "Data": DATA,
    "Noise": NOISE,
    "Options": OPTIONS,
    "Calls": CALLS,
}
FAULTS = [fault for faults in SECTIONS.values() for fault in faults]


def page() -> str:
    """The whole page."""
    text = INTRODUCTION
    for title, faults in SECTIONS.items():
        rows = "\n".join(fault.row() for fault in faults)
        text += (
            f"## {title}\n\n| What comes | What happens |\n| --- | --- |\n{rows}\n\n"
        )
    return text.rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
