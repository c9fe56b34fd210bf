"""Costs and promises of the subset model that are easily lost."""

from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from botorch_sparse.inducing import select_by_gradient_diversity
from botorch_sparse.models import SubsetSingleTaskGP


def make_data(n: int, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    X = torch.rand(n, 2, generator=torch.Generator().manual_seed(n), dtype=torch.double)
    return X.to(**tkwargs), (6 * X).sin().sum(-1, keepdim=True).to(**tkwargs)


class Largest(TorchDispatchMode):
    """The largest number of elements of a tensor that an operation returned."""

    numel = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_contiguous():
            self.numel = max(self.numel, result.numel())
        return result


def test_points_apart_share_the_factor(double: dict[str, Any]) -> None:
    """An acquisition function asks for `b x 1` points: not b copies of M x M."""
    X, Y = make_data(150, **double)
    model = SubsetSingleTaskGP(X, Y, subset_size=100).eval()
    points = X[:60].unsqueeze(-2)
    with torch.no_grad(), Largest() as largest:
        apart = model.posterior(points)
        variance = apart.variance
    assert largest.numel <= 60 * 100 * 10  # and not 60 * 100 * 100
    together = model.posterior(X[:60]).variance
    torch.testing.assert_close(variance.squeeze(-1), together)


def test_a_fit_leaves_the_input_transform(double: dict[str, Any]) -> None:
    """Bounds are those of all data, though the fit sees a subset."""
    X, Y = make_data(60, **double)
    transform = Normalize(2)
    model = SubsetSingleTaskGP(
        5 * X, Y, subset_size=12, selection="recent", input_transform=transform
    )
    offset = model.input_transform.offset.clone()
    torch.testing.assert_close(offset.squeeze(), 5 * X.amin(0))
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 3}})
    assert torch.equal(model.input_transform.offset, offset)
    model.add_observations(5 * X[:3] + 9.0, Y[:3])
    assert torch.equal(model.input_transform.offset, offset)
    assert not torch.equal(model.refit_transforms().input_transform.coefficient, offset)
    torch.testing.assert_close(
        model.input_transform.coefficient.squeeze(),
        model.all_train_X.amax(0) - model.all_train_X.amin(0),
    )


def test_a_failed_selection_adds_nothing(double: dict[str, Any]) -> None:
    X, Y = make_data(40, **double)
    fails = False

    def selection(model: Any, num: int, forced: Tensor, generator: Any) -> Tensor:
        if fails:
            raise RuntimeError("no")
        return torch.arange(num, device=forced.device)

    model = SubsetSingleTaskGP(X, Y, subset_size=9, num_newest=0, selection=selection)
    fails, rows = True, model.subset_indices
    with pytest.raises(RuntimeError, match="no"):
        model.add_observations(X[:2], Y[:2])
    assert model.num_observations == 40
    assert torch.equal(model.subset_indices, rows)


def test_newest_rows_stay_when_rows_are_chosen_again(double: dict[str, Any]) -> None:
    X, Y = make_data(60, **double)
    model = SubsetSingleTaskGP(X, Y, subset_size=20, selection="random")
    model.reselect(num_newest=5)
    assert torch.isin(torch.arange(55, 60, device=X.device), model.subset_indices).all()


def test_scalars_tie_and_are_chosen_at_random() -> None:
    """All scalars of a sign have one direction; which are taken must not be the age."""
    gradients = torch.tensor([1.0, -1.0], dtype=torch.double).repeat(100) * 50
    oldest = select_by_gradient_diversity(gradients, 40)
    assert oldest.max() < 41
    generator = torch.Generator().manual_seed(0)
    chosen = select_by_gradient_diversity(gradients, 40, None, 0.1, generator)
    assert chosen.double().mean() > 80
    assert gradients[chosen].sum().abs() <= 50
