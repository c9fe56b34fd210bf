"""What predictions, fits and fantasies touch: nothing square, or none of the data."""

from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from forbid_large import ForbidLarge
from sparse_model_cases import FAST, make_data, make_mll, make_model, random_data
from torch import Size, Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from botorch_sparse.models import SparseSingleTaskGP, loo_cv
from botorch_sparse.models.fit import exact_fit

# As `SingleTaskGP` says of several observations of the same inputs.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Non-strict enforcement of botorch tensor"
)

N, M = 2053, 12  # a prime above the number of features of a path


class Shapes(TorchDispatchMode):
    """Records the shapes of all tensors that operations return."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[int, ...]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, Tensor):
                self.seen.add(tuple(value.shape))
        return result

    def of_the_data(self) -> set[tuple[int, ...]]:
        """The shapes with a dimension as large as the data."""
        return {shape for shape in self.seen if max(shape, default=0) >= N}


def make(fixed_noise: bool = False, **double: Any) -> SparseSingleTaskGP:
    X, Y, Yvar = make_data(n=N, repeats=0, **double)
    noise = Yvar if fixed_noise else None
    return SparseSingleTaskGP(X, Y, noise, inducing_points=X[:M]).eval()


def fantasize(model: SparseSingleTaskGP, X: Tensor, size: int) -> SparseSingleTaskGP:
    return model.fantasize(X, SobolQMCNormalSampler(Size([size])))


def test_nothing_of_the_size_of_the_data(double):
    model = make(**double)
    X, Y = torch.rand(4, 1, 2, **double), torch.rand(3, 4, 1, 1, **double)
    model.posterior(X)
    with Shapes() as shapes:
        model.posterior(X)
        model.condition_on_observations(X, Y).posterior(X)
        nested = fantasize(fantasize(model, X, 3), X, 2)
        nested.posterior(X)
        draw_matheron_paths(model, Size([3]))(X[:, 0])
    assert shapes.of_the_data() == set()
    assert len(shapes.seen) > 20
    with Shapes() as shapes:
        assert nested.train_inputs[0].shape == (2, 3, 4, N + 2, 2)
    assert shapes.of_the_data() != set()


def test_fixed_noise_is_only_averaged(double):
    """The noise of all data is read once for the base model, and never copied."""
    model, T = make(fixed_noise=True, **double), torch.rand(4, 1, 2, **double)
    model.posterior(T)
    with Shapes() as shapes:
        fantasies = fantasize(model, T, 3)
        fantasies.posterior(T)
        nested = fantasize(fantasies, T, 2)
        nested.posterior(T)
    assert shapes.of_the_data() <= {(N, 1), (N,)}
    noise = nested.likelihood.noise
    assert noise.shape[-1] == N + 2
    expected = model.likelihood.noise.expand(*noise.shape[:-1], N)
    torch.testing.assert_close(noise[..., :N], expected)


def test_fantasies_share_the_factors(double):
    """Memory O(q m) for each batch element, and the observations share even that."""
    model = make(**double)
    X, Y = torch.rand(50, 2, 2, **double), torch.rand(30, 50, 2, 1, **double)
    model.posterior(X)
    with ForbidLarge(30 * 50 * 2 * M):
        model.condition_on_observations(X, Y).posterior(X[0])


def test_warm_posterior_factorizes_nothing(double, monkeypatch):
    """A condition on one point factorizes one number."""
    model = make(**double)
    X, Y = torch.rand(1, 1, 2, **double), torch.rand(3, 1, 1, 1, **double)
    model.posterior(X)
    sizes: list[int] = []
    for name in ("cholesky", "cholesky_ex", "qr", "eigh", "inv"):
        wrapped = getattr(torch.linalg, name)

        def record(A: Tensor, *args: Any, wrapped: Any = wrapped, **kwargs: Any) -> Any:
            sizes.append(A.shape[-1])
            return wrapped(A, *args, **kwargs)

        monkeypatch.setattr(torch.linalg, name, record)
    model.posterior(X)
    model.condition_on_observations(X, Y).posterior(X)
    assert sizes == [1]


def test_nothing_square_in_the_data(double, monkeypatch):
    """From the draw of the inducing points through a fit to the posterior."""
    X, Y, _ = make_data(n=700, **double)
    monkeypatch.setattr(exact_fit, "MOST_EXACT", 600)
    monkeypatch.setattr(exact_fit, "FIRST_ROWS", 500)
    with ForbidLarge(500 * 500):  # the observations of the exact fit
        model = SparseSingleTaskGP(X, Y, max_inducing_points=50)
        fit_gpytorch_mll(make_mll(model), optimizer_kwargs=FAST)
        model.posterior(X[:5])
        assert loo_cv(model).posterior.mean.shape == (700, 1, 1)
    assert model.num_inducing == 50


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("batch", "num_outputs"), [((), 1), ((), 2), ((2,), 2)])
@pytest.mark.filterwarnings("ignore:The joint covariance of 1800 points is formed")
def test_all_data_at_once_is_never_q_by_q(batch, num_outputs, double):
    """Several outputs are indexed out of a covariance that stays lazy."""
    model = make_model(batch, num_outputs, n=9000, m=50, **double)
    X = random_data(batch, num_outputs, n=9000, **double)[0]
    few = model.posterior(X[..., :100, :], observation_noise=True)
    elements = torch.Size(batch).numel() * num_outputs
    with torch.no_grad(), ForbidLarge(elements * 2048 * 50):  # the features of a chunk
        posterior = model.posterior(X, observation_noise=True)
        mean, variance = posterior.mean, posterior.variance
    # A graph of the kernel's parameters would keep the features of all rows.
    assert not model.posterior(X).variance.requires_grad
    torch.testing.assert_close(mean[..., :100, :], few.mean)
    torch.testing.assert_close(variance[..., :100, :], few.variance)
    with pytest.raises(AssertionError, match=r"1800|3600"), ForbidLarge(2_000_000):
        _ = model.posterior(X[..., :1800, :]).distribution.covariance_matrix
