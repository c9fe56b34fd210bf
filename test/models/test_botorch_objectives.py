"""Cases of BoTorch's tests of objectives and sample paths, written anew.

For sparse models with as many inducing points as training points, and with few.
"""

from typing import Any

import gpytorch
import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim.closures import get_loss_closure, get_loss_closure_with_grads
from botorch.sampling.pathwise import (
    draw_kernel_feature_paths,
    draw_matheron_paths,
    gaussian_update,
    get_matheron_path_model,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from sparse_model_cases import sine_data
from torch import Size, Tensor
from torch.utils.data import DataLoader, TensorDataset

from botorch_sparse.models import SparseSingleTaskGP

close = torch.testing.assert_close
pytestmark = pytest.mark.filterwarnings("ignore")  # BoTorch's, of so few data

# As many inducing points as training points, or few.
SIZES = pytest.mark.parametrize("size", [None, 5], ids=["exact", "sparse"])


def objectives(size: int | None) -> list[Any]:
    """That of a model whose inputs are not in the unit cube, and of a list."""
    X, Y = sine_data(10)
    model = SparseSingleTaskGP(
        5 * X, Y, input_transform=Normalize(d=2), max_inducing_points=size
    )
    other = SparseSingleTaskGP(5 * X[:9], Y[:9], max_inducing_points=size)
    models = ModelListGP(model, other)
    return [
        ExactMarginalLogLikelihood(model.likelihood, model),
        SumMarginalLogLikelihood(models.likelihood, models),
    ]


@SIZES
def test_closures_are_the_marginal_likelihood(size):
    """`test_model_closures.py::test_main`: where few points are in use, of those."""
    for mll in objectives(size):
        parameters = {n: p for n, p in mll.named_parameters() if p.requires_grad}
        loss = -mll(mll.model(*mll.model.train_inputs), mll.model.train_targets).sum()
        expected = torch.autograd.grad(loss, list(parameters.values()))
        close(get_loss_closure(mll)(), loss)
        value, gradients = get_loss_closure_with_grads(mll, parameters)()
        close(value, loss)
        for gradient, known in zip(gradients, expected, strict=True):
            close(gradient, known)


@SIZES
def test_closures_of_a_data_loader(size):
    """`test_data_loader`: all data at once in any order, or some of them."""
    mll = objectives(size)[0]
    model = mll.model
    X, Y = model.train_inputs[0], model.train_targets
    parameters = {n: p for n, p in mll.named_parameters() if p.requires_grad}
    loss, gradients = get_loss_closure_with_grads(mll, parameters)()
    loss, gradients = loss.clone(), [g.clone() for g in gradients]
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(X, Y), batch_size=10, shuffle=True)
    with gpytorch.settings.debug(False):  # GPyTorch's check of the inputs
        shuffled = get_loss_closure_with_grads(mll, parameters, data_loader=loader)()
        close(shuffled[0], loss)
        for gradient, known in zip(shuffled[1], gradients, strict=True):
            close(gradient, known)
        some = DataLoader(TensorDataset(X[:4], Y[:4]), batch_size=4)
        part = get_loss_closure(mll, data_loader=some)()
    close(part, -mll(model.forward(X[:4]), Y[:4]))


class Listening(GaussianLikelihood):
    """A likelihood that remembers at which inputs it was asked for noise."""

    def __init__(self, base: GaussianLikelihood) -> None:
        gpytorch.Module.__init__(self)
        self.base, self.heard = base, []

    def __call__(self, distribution: Any, X: Any, **kwargs: Any) -> Any:
        self.heard.append(X if isinstance(X, Tensor) else X[0])
        return self.base(distribution, X, **kwargs)


@SIZES
def test_the_likelihood_is_given_transformed_inputs(size):
    """`test_with_input_transforms`: in a fit as in a posterior.

    BoTorch counts the calls, too: choosing inducing points asks once more.
    """
    mll = objectives(size)[0]
    model, X = mll.model, mll.model.train_inputs[0]
    mll.likelihood = model.likelihood = Listening(model.likelihood)
    parameters = {n: p for n, p in mll.named_parameters() if p.requires_grad}
    get_loss_closure_with_grads(mll.train(), parameters)()
    in_fit = len(mll.likelihood.heard)
    model.posterior(X, observation_noise=True)
    assert 0 < in_fit < len(mll.likelihood.heard)
    seen = model.input_transform(X)
    for inputs in mll.likelihood.heard:
        close(inputs, seen)


def of_paths(size: int | None, num_outputs: int = 1, **options: Any) -> Any:
    X, Y = sine_data(5, **options)
    Y = torch.cat([Y, Y.cos(), -Y], dim=-1)[..., :num_outputs]
    return SparseSingleTaskGP(
        X, Y, max_inducing_points=None if size is None else 3
    ).eval()


@SIZES
@pytest.mark.parametrize("batch", [(), (4,)])
@pytest.mark.parametrize("kind", ["one", "several", "list"])
def test_models_of_paths(kind, batch, size):
    """`test_get_matheron_path_model`: shapes as the posterior's, with samples first."""
    model = of_paths(size, 3 if kind == "several" else 1, batch=batch)
    if kind == "list":
        model = ModelListGP(model, of_paths(size, batch=batch))
    m = model.num_outputs
    path, paths = (
        get_matheron_path_model(model),
        get_matheron_path_model(model, sample_shape=Size([2])),
    )
    assert paths._is_ensemble and not path._is_ensemble
    for shape in ((5, 2), (3, *(1 for _ in batch), 5, 2), (3, *batch, 5, 2)):
        X = torch.rand(shape, dtype=torch.double)
        assert path.posterior(X).mean.shape == model.posterior(X).mean.shape
    X = torch.rand(3, 2, *batch, 5, 2, dtype=torch.double)
    assert paths.posterior(X).mean.shape == (3, 2, *batch, 5, m)
    assert batch or paths(X[0, 0]).shape == (2, 5, m)


@SIZES
def test_paths_of_lists(size):
    """`test_model_lists`: one for each model, which have one output each."""
    models = ModelListGP(of_paths(size), of_paths(size))
    paths = draw_matheron_paths(models, Size([2]))
    X = sine_data(4)[0]
    for path, values in zip(paths, paths(X), strict=True):
        close(path(X), values, rtol=0, atol=0)
    with pytest.raises(UnsupportedError, match="list of multi-output models"):
        get_matheron_path_model(ModelListGP(of_paths(size, 3)))


@SIZES
def test_updates_of_paths(size):
    """`test_update_strategies.py::test_base_models`: at the points that are in use."""
    model = of_paths(size)
    X = model.train_inputs[0]
    prior = draw_kernel_feature_paths(model, sample_shape=Size([3]))
    del model.outcome_transform
    if size is None:
        exact = SingleTaskGP(X, model.train_targets.unsqueeze(-1)).eval()
        exact.load_state_dict(model.state_dict(), strict=False)
        updates = []
        for known in (model, exact):
            torch.manual_seed(0)
            values = prior.forward(X)
            update = gaussian_update(known, values, target_values=model.train_targets)
            updates.append(update(X))
        close(*updates)
        return
    S = model.nystrom_posterior().inducing_points
    assert gaussian_update(model, prior.forward(S))(X).shape == (3, 5)
    with pytest.raises(InputDataError, match="Got values at 5 points; need them at"):
        gaussian_update(model, prior.forward(X))
