"""What conditioning and fantasies touch: nothing of the size of the data."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from botorch.sampling import SobolQMCNormalSampler
from sparse_model_cases import make_data
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from botorch_sparse.models import SparseSingleTaskGP

# As `SingleTaskGP` says of several observations of the same inputs.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Non-strict enforcement of botorch tensor"
)

N, M = 1009, 12  # a prime, which no other size is a multiple of


class LargestTensor(TorchDispatchMode):
    """Records the shapes of all tensors that operations return."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, Tensor):
                self.shapes.add(tuple(value.shape))
        return result

    def of_the_data(self, n: int = N) -> set[tuple[int, ...]]:
        """The shapes with a dimension as large as the data."""
        return {shape for shape in self.shapes if max(shape, default=0) >= n}


@pytest.fixture
def model(double: dict[str, Any]) -> Iterator[SparseSingleTaskGP]:
    X, Y, _ = make_data(n=N, repeats=0, **double)
    yield SparseSingleTaskGP(X, Y, inducing_points=X[:M]).eval()


def test_nothing_of_the_size_of_the_data(
    model: SparseSingleTaskGP, double: dict[str, Any]
) -> None:
    X = torch.rand(4, 1, 2, **double)
    Y = torch.rand(3, 4, 1, 1, **double)
    model.posterior(X)
    with LargestTensor() as seen:
        model.posterior(X)
        conditioned = model.condition_on_observations(X, Y)
        conditioned.posterior(X)
        fantasies = model.fantasize(X, SobolQMCNormalSampler(torch.Size([3])))
        nested = fantasies.fantasize(X, SobolQMCNormalSampler(torch.Size([2])))
        nested.posterior(X)
    assert seen.of_the_data() == set()
    assert len(seen.shapes) > 20
    with LargestTensor() as seen:
        assert nested.train_inputs[0].shape == (2, 3, 4, N + 2, 2)
    assert seen.of_the_data() != set()


def test_fixed_noise_is_only_averaged(double: dict[str, Any]) -> None:
    """The noise of all data is read once for the base model, and never copied."""
    X, Y, Yvar = make_data(n=N, repeats=0, **double)
    model = SparseSingleTaskGP(X, Y, Yvar, inducing_points=X[:M])
    T = torch.rand(4, 1, 2, **double)
    model.posterior(T)
    with LargestTensor() as seen:
        fantasies = model.fantasize(T, SobolQMCNormalSampler(torch.Size([3])))
        fantasies.posterior(T)
        nested = fantasies.fantasize(T, SobolQMCNormalSampler(torch.Size([2])))
        nested.posterior(T)
    assert seen.of_the_data() <= {(N, 1), (N,)}
    noise = nested.likelihood.noise
    assert noise.shape[-1] == N + 2
    expected = Yvar[:, 0] / model.outcome_transform.stdvs.square().squeeze()
    torch.testing.assert_close(noise[..., :N], expected.expand(*noise.shape[:-1], N))


def test_fantasies_share_the_factors(
    model: SparseSingleTaskGP, double: dict[str, Any]
) -> None:
    """Memory O(q m) for each batch element, and the observations share even that."""
    X, Y = torch.rand(50, 2, 2, **double), torch.rand(30, 50, 2, 1, **double)
    model.posterior(X)
    with LargestTensor() as seen:
        model.condition_on_observations(X, Y).posterior(X[0])
    assert max(torch.Size(shape).numel() for shape in seen.shapes) <= 30 * 50 * 2 * M


def test_warm_posterior_factorizes_nothing(
    model: SparseSingleTaskGP, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A condition on one point factorizes one number."""
    X, Y = torch.rand(1, 1, 2, **double), torch.rand(3, 1, 1, 1, **double)
    model.posterior(X)
    sizes: list[int] = []
    for name in ("cholesky", "cholesky_ex", "qr", "eigh", "inv"):
        wrapped = getattr(torch.linalg, name)

        def record(A: Tensor, *args: Any, wrapped: Any = wrapped, **kwargs: Any) -> Any:
            sizes.append(A.shape[-1])
            return wrapped(A, *args, **kwargs)

        monkeypatch.setattr(torch.linalg, name, record)
    model.condition_on_observations(X, Y).posterior(X)
    assert sizes == [1]
