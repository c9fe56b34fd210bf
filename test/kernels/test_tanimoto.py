"""The Tanimoto kernel against sums over entries, written out."""

import pytest
import torch
from botorch.exceptions import InputDataError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.kernels import (
    TanimotoKernel,
    dense_covariance,
    kernel_at,
    prior_variance,
    tanimoto,
)
from botorch_sparse.kernels.tanimoto import similarity
from botorch_sparse.models import SparseSingleTaskGP


def fingerprints(kind: str, *shape: int, seed: int = 0) -> Tensor:
    """Bits, counts, large counts or other numbers, float64, some points empty.

    Of `uneven` ones few entries are not zero, and those of seed 0 are beyond a byte.
    """
    g = torch.Generator().manual_seed(seed)
    bits = (torch.rand(*shape, generator=g) < 0.3).double()
    counts = bits * torch.randint(1, 5, shape, generator=g)
    X = {
        "bits": bits,
        "counts": counts,
        "large": counts * 37,
        "numbers": bits * torch.rand(*shape, generator=g).double(),
        "uneven": counts
        * (torch.rand(*shape, generator=g) < 0.2)
        * (1 if seed else 64),
    }[kind]
    X[..., 0, :] = 0.0
    return X


def by_entries(x: Tensor, y: Tensor) -> float:
    """Smaller entries for larger ones."""
    smaller = sum(min(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True))
    larger = sum(max(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return 1.0 if larger == 0 else smaller / larger


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.3])
@pytest.mark.parametrize("most", [1, 4, 200])
def test_bytes_are_compared_as_numbers(share, most):
    """Sums over few entries, and products, to the last bit."""
    g = torch.Generator().manual_seed(0)
    bits = torch.rand(30, 50, generator=g) < share
    X = (bits * torch.randint(1, most + 1, bits.shape, generator=g)).to(torch.uint8)
    S = X[:7].double()
    for kernel in (TanimotoKernel(), ScaleKernel(TanimotoKernel((20, 30))).double()):
        expected = dense_covariance(kernel, S, X.double())
        assert torch.equal(dense_covariance(kernel, S, X), expected)
        assert torch.equal(dense_covariance(kernel, X, S), expected.mT)
    between = S + 0.5 * (torch.arange(len(S)) == 3).double().unsqueeze(-1)
    expected = dense_covariance(TanimotoKernel(), between, X.double())
    found = dense_covariance(TanimotoKernel(), between, X)
    torch.testing.assert_close(found, expected)
    each = torch.stack([X[:10], X[10:20]])
    found = dense_covariance(TanimotoKernel(), S.expand(2, -1, -1), each)
    torch.testing.assert_close(
        found,
        dense_covariance(TanimotoKernel(), S, X[:20])
        .unflatten(1, (2, 10))
        .transpose(0, 1),
    )


KINDS = ["bits", "counts", "large", "numbers", "uneven"]


@pytest.mark.parametrize("sizes", [(7, 5), (23, 12)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_is_the_share_of_smaller_in_larger_entries(kind, dtype, sizes, device):
    """Of few points and of many, with few entries and with many."""
    X, Z = (fingerprints(kind, n, 20, seed=i) for i, n in enumerate(sizes))
    expected = torch.tensor([[by_entries(x, z) for z in Z] for x in X])
    kernel = TanimotoKernel()
    found = dense_covariance(kernel, *(x.to(device, dtype) for x in (X, Z)))
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu(), expected.to(dtype))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_gradient", [False, True])
def test_no_points(kind, has_gradient):
    X = fingerprints(kind, 3, 4).double().requires_grad_(has_gradient)
    for pair in ((X, X[:0]), (X[:0], X), (X[:0], X[:0])):
        found = TanimotoKernel()(*pair).to_dense()
        assert found.shape == (len(pair[0]), len(pair[1]))


@pytest.mark.parametrize("kind", KINDS)
def test_diagonals_batches_and_columns(kind):
    X, Z = fingerprints(kind, 2, 4, 6), fingerprints(kind, 2, 4, 6, seed=1)
    kernel = TanimotoKernel()
    found = dense_covariance(kernel, X, Z)
    each = [dense_covariance(kernel, x, z) for x, z in zip(X, Z, strict=True)]
    torch.testing.assert_close(found, torch.stack(each))
    batched = ScaleKernel(TanimotoKernel((2, 4), batch_shape=torch.Size([2]))).double()
    torch.testing.assert_close(
        prior_variance(batched, X[0]), batched(X[0], diag=True).expand(2, 4)
    )
    diagonal = kernel(X, Z, diag=True)
    torch.testing.assert_close(diagonal, found.diagonal(dim1=-2, dim2=-1))
    torch.testing.assert_close(prior_variance(kernel, X), torch.ones(2, 4).double())
    own = TanimotoKernel(active_dims=(5, 0, 2))
    expected = dense_covariance(kernel, X[..., [5, 0, 2]])
    torch.testing.assert_close(dense_covariance(own, X), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocks", [None, (3, 12), (2, 3, 10)])
def test_is_positive_definite(kind, blocks):
    X = fingerprints(kind, 60, 15)
    K = dense_covariance(TanimotoKernel(blocks).double(), X)
    # A matrix of entries up to 1 is rounded by n times the precision.
    assert torch.linalg.eigvalsh(K).min() > -60 * torch.finfo(K.dtype).eps


def test_a_product_has_a_weight_for_each_block():
    X = fingerprints("counts", 6, 9)
    kernel = TanimotoKernel((4, 5)).double()
    kernel.weight = torch.tensor([0.25, 0.75])
    whole = TanimotoKernel()
    first, second = (dense_covariance(whole, x) for x in X.split((4, 5), -1))
    expected = (0.75 + 0.25 * first) * (0.25 + 0.75 * second)
    torch.testing.assert_close(dense_covariance(kernel, X), expected)
    torch.testing.assert_close(kernel(X, diag=True), torch.ones(6).double())
    batched = TanimotoKernel((4, 5), batch_shape=torch.Size([2])).double()
    batched.weight = torch.tensor([[0.25, 0.75], [0.0, 0.5]])
    K = dense_covariance(batched, X)
    torch.testing.assert_close(K[0], expected)
    torch.testing.assert_close(K[1], 0.5 + 0.5 * second)
    torch.testing.assert_close(dense_covariance(kernel_at(batched, (0,)), X), K[0])


@pytest.mark.parametrize("weight", [-0.1, 1.7, float("nan")])
def test_weights_are_shares(weight):
    kernel = TanimotoKernel((4, 5))
    with pytest.raises(InputDataError, match="need numbers in"):
        kernel.weight = weight
    assert kernel.weight.tolist() == pytest.approx([0.9, 0.9])


def test_a_single_block_has_no_parameters():
    assert list(TanimotoKernel().parameters()) == []
    assert list(TanimotoKernel((5,)).parameters()) == []


def test_gradients_are_those_of_a_small_step():
    X = torch.rand(4, 5, generator=torch.Generator().manual_seed(0)).double() + 0.1
    kernel = TanimotoKernel((2, 3)).double()

    def entries(Z: Tensor, w: Tensor) -> Tensor:
        parts = Z.split((2, 3), -1), X.split((2, 3), -1)
        T = [similarity(z, x) for z, x in zip(*parts, strict=True)]
        return (1 - w[0] + w[0] * T[0]) * (1 - w[1] + w[1] * T[1])

    Z = (X.flip(0) + 0.05).requires_grad_()
    raw = torch.tensor([0.6, 0.4]).double().requires_grad_()
    assert torch.autograd.gradcheck(entries, (Z, raw))
    kernel.raw_weight.data = raw.detach()
    dense_covariance(kernel, Z, X).sum().backward()
    own, weight = Z.grad.clone(), kernel.raw_weight.grad.clone()
    Z.grad = None
    entries(Z, raw).sum().backward()
    torch.testing.assert_close(own, Z.grad)
    torch.testing.assert_close(weight, raw.grad)


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_fits_that_begin_at_an_end_leave_it(start):
    """Where a block matters in part: the optimum of a fit that began between."""
    X = fingerprints("counts", 80, 12)
    Y = X[:, :4].sum(-1, keepdim=True) + 0.2 * X[:, 8:].sum(-1, keepdim=True)
    Y = Y + 0.3 * torch.randn(
        80, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    losses = []
    for weight in (start, 0.5):
        kernel = ScaleKernel(TanimotoKernel((4, 4, 4))).double()
        kernel.base_kernel.weight = weight
        model = SingleTaskGP(X, Y, covar_module=kernel)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll)
        mll.train()
        losses.append(-mll(model(X), model.train_targets).item())
    assert abs(losses[0] - losses[1]) < 1e-3


def test_botorch_takes_it():
    X = fingerprints("counts", 30, 12)
    Y = X[:, :4].sum(-1, keepdim=True)
    model = SingleTaskGP(
        X, Y, covar_module=ScaleKernel(TanimotoKernel((4, 8))), input_transform=None
    )
    mean = model.posterior(X).mean
    assert torch.corrcoef(torch.cat([mean, Y], -1).mT)[0, 1] > 0.9


def test_refuses_negative_entries_and_blocks_that_do_not_fit():
    X = fingerprints("bits", 4, 6)
    with pytest.raises(InputDataError, match=r"entry -1\.0 in the Tanimoto kernel"):
        dense_covariance(TanimotoKernel(), X - 1.0)
    entries = tanimoto.Entries.of(X.to(torch.uint8))
    with pytest.raises(InputDataError, match=r"entry -1\.0 in the Tanimoto kernel"):
        entries.similarity(X.sum(-1), X - 1.0)
    with pytest.raises(InputDataError, match=r"6 columns for blocks=\(2, 3\)"):
        dense_covariance(TanimotoKernel((2, 3)), X)
    with pytest.raises(InputDataError, match="blocks"):
        TanimotoKernel((0, 3))


@pytest.fixture
def computed(monkeypatch):
    """The points whose similarities were computed, in their order."""
    points, compute = [], tanimoto._similarity

    def noted(*given):
        points.append(given)
        return compute(*given)

    monkeypatch.setattr(tanimoto, "_similarity", noted)
    return points


def test_similarities_of_a_fit_are_computed_once(computed):
    """Inside, points that come again have the same matrix; others have their own."""
    X, Z = fingerprints("counts", 6, 40), fingerprints("counts", 5, 40, seed=1)
    expected = [similarity(X, Z), similarity(Z, X), similarity(X, X)]
    computed.clear()
    with tanimoto.similarities_kept():
        for _ in range(2):
            found = [similarity(X, Z), similarity(Z, X), similarity(X.clone(), X)]
            assert all(map(torch.equal, found, expected))
        assert len(computed) == 3
        X[1, 0] += 1.0  # changed in place: another point
        assert not torch.equal(similarity(X, Z), expected[0])
        assert len(computed) == 4
        Z.requires_grad_()
        assert similarity(X, Z).requires_grad
    similarity(X, Z)
    similarity(X, Z)
    assert len(computed) == 7


def test_similarities_that_are_kept_have_their_dtype_and_a_limit(monkeypatch):
    X = fingerprints("bits", 6, 40)
    with tanimoto.similarities_kept():
        assert similarity(X.float(), X.float()).dtype == torch.float32
        assert similarity(X, X).dtype == torch.float64
        similarity(X, X).zero_()  # a copy
        assert similarity(X, X).diagonal().eq(1.0).all()
        monkeypatch.setattr(tanimoto, "MOST_KEPT", 3 * (2 * 40 + 1))
        sizes = []
        for row in X:
            similarity(row.unsqueeze(0), row.unsqueeze(0))
            sizes.append(len(tanimoto._KEPT.get()))
        assert sizes[-1] == 3 == max(sizes)
        similarity(X, X)  # more than may be kept
        assert not tanimoto._KEPT.get()


def test_a_fit_does_not_compute_similarities_again(computed):
    """The optimum is that of BoTorch's fit, which does."""
    X = fingerprints("counts", 40, 60)
    Y = X[:, :5].sum(-1, keepdim=True) + 0.1 * torch.sin(7.0 * X.sum(-1, keepdim=True))
    models = [
        kind(X, Y, covar_module=ScaleKernel(TanimotoKernel((20, 40))), **each)
        for kind, each in (
            (SparseSingleTaskGP, {"input_transform": None}),
            (SingleTaskGP, {"input_transform": None}),
        )
    ]
    numbers = []
    for model in models:
        computed.clear()
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        numbers.append(len(computed))
    assert numbers[0] <= 8 < numbers[1]
    found, expected = (model.covar_module.outputscale.item() for model in models)
    assert found == pytest.approx(expected, rel=1e-2)
