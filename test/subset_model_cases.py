"""Data and oracles that the tests of `SubsetSingleTaskGP` share."""

from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.posteriors import GPyTorchPosterior
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from botorch_sparse.models import SubsetSingleTaskGP

every_kind = pytest.mark.parametrize(
    ("m", "fixed_noise", "transform"),
    [(1, False, False), (1, True, True), (2, False, True), (2, True, False)],
)


def make_data(
    n: int, m: int = 1, fixed_noise: bool = False, **tkwargs: Any
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Noisy observations in [0, 3]^2."""
    generator = torch.Generator().manual_seed(n)
    X = 3 * torch.rand(n, 2, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(n, m, generator=generator, dtype=torch.float64)
    Y = 5 + 2 * torch.sin(X.sum(-1, keepdim=True) + torch.arange(m)) + noise
    Yvar = 0.01 + 0.1 * torch.rand(n, m, generator=generator, dtype=torch.float64)
    X, Y, Yvar = (T.to(**tkwargs) for T in (X, Y, Yvar))
    return X, Y, Yvar if fixed_noise else None


def rows(data: tuple[Tensor | None, ...], index: Any) -> list[Any]:
    """Some rows of data."""
    return [None if T is None else T[..., index, :] for T in data]


def make_model(
    data: tuple[Tensor | None, ...], transform: bool = False, **options: Any
) -> SubsetSingleTaskGP:
    """A model with 12 of the rows, the first two always."""
    options = {"subset_size": 12, "num_initial": 2, **options}
    if transform:
        options["input_transform"] = Normalize(2)
    return SubsetSingleTaskGP(*data, **options)  # type: ignore[arg-type]


def exact_on_subset(
    model: SubsetSingleTaskGP, data: tuple[Tensor | None, ...]
) -> SingleTaskGP:
    """`SingleTaskGP` on the chosen rows of raw data, with the model's parameters.

    Transforms are applied by hand: the outcome transform as the model has it, none for
    inputs but that of the model.
    """
    X, Y, Yvar = rows(data, model.subset_indices)
    Y, Yvar = model.outcome_transform.eval()(Y, Yvar)
    exact = SingleTaskGP(model.transform_inputs(X), Y, Yvar, outcome_transform=None)
    for name in ("covar_module", "mean_module"):
        getattr(exact, name).load_state_dict(getattr(model, name).state_dict())
    if not isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        exact.likelihood.load_state_dict(model.likelihood.state_dict())
    return exact


def dense_posterior(
    model: SubsetSingleTaskGP, data: tuple[Tensor | None, ...], X: Tensor
) -> GPyTorchPosterior:
    """What the model must predict at raw inputs."""
    posterior = exact_on_subset(model, data).posterior(model.transform_inputs(X))
    return model.outcome_transform.untransform_posterior(posterior)


def same(first: Any, second: Any, **tolerance: float) -> None:
    """Two posteriors have the same marginals."""
    torch.testing.assert_close(first.mean, second.mean, **tolerance)
    torch.testing.assert_close(first.variance, second.variance, **tolerance)


class Recorded(TorchDispatchMode):
    """Sizes of factorizations, and the largest tensor that an operation filled."""

    def __init__(self) -> None:
        super().__init__()
        self.factorizations: list[int] = []
        self.numel = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(word in str(func) for word in ("cholesky_ex", "linalg_qr", "eigh")):
            self.factorizations.append(args[0].shape[-1])
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, Tensor) and value.is_contiguous():
                self.numel = max(self.numel, value.numel())
        return result
