"""The Nystrom posterior against dense closed forms and exact Gaussian processes."""

from itertools import product
from typing import Any

import mpmath
import oracles
import pytest
import torch
from botorch.models import SingleTaskGP
from device_cases import on_the_host, sweep
from gpytorch.means import ConstantMean, LinearMean
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior


def problem(
    n: int, m: int, lam: float, seed: int = 0, d: int = 2, **tkwargs: Any
) -> dict[str, Tensor]:
    """Data with unequal noise, a third of the inducing points outside of the data."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=g, dtype=torch.float64)
    outside = torch.rand(m, d, generator=g, dtype=torch.float64)
    outside[: m - m // 3] = X[: m - m // 3] if m > 0 else outside
    Z = torch.rand(7, d, generator=g, dtype=torch.float64)
    Z = torch.cat([1.5 * Z[:2], Z[2:], X[:3]])
    data = {
        "X": X,
        "Y": X.sin().sum(-1) + lam**0.5 * torch.randn(n, generator=g).double(),
        "noise": lam * (0.5 + torch.rand(n, generator=g, dtype=torch.float64)),
        "S": outside,
        "Z": Z,
    }
    return {key: value.to(**tkwargs) for key, value in data.items()}


def build(kernel: Any, data: dict[str, Tensor], **kwargs: Any) -> NystromPosterior:
    return NystromPosterior.from_data(
        kernel, data["X"], data["Y"], data["noise"], data["S"], **kwargs
    )


def reference(name: str, data: dict[str, Tensor]) -> oracles.Dense:
    X, Y, noise, S, Z = oracles.to_cpu(
        *(data[k] for k in ("X", "Y", "noise", "S", "Z"))
    )
    return oracles.dtc(oracles.DENSE[name], X, Y, noise, S, Z, rtol=1e-14)


def close(actual: Tensor, expected: Tensor, **tolerance: float) -> None:
    torch.testing.assert_close(actual.detach().cpu().double(), expected, **tolerance)


@sweep(
    "name, n, m",
    [
        (name, *sizes)
        for name in oracles.KERNELS
        for sizes in [(1, 1), (40, 1), (40, 7), (150, 30), (60, 60)]
    ],
    [("matern52", 40, 7), ("rbf", 60, 60)],
)
def test_dense_closed_form(name, n, m, double):
    data = problem(n, m, lam=1e-2, **double)
    posterior = build(oracles.make_kernel(name, **double), data)
    expected = reference(name, data)
    S, Z = data["S"].cpu(), data["Z"].cpu()
    condition = torch.linalg.cond(oracles.DENSE[name](S, S)).item()
    # Features are solved with `L`, and enter `B` with a precision of up to 2 / lam;
    # their squares sum to k(x, x) at most.
    scale = max(
        oracles.DENSE[name](x, x).diagonal().max().item() for x in (data["X"].cpu(), Z)
    )
    solved = torch.finfo(torch.float64).eps * condition**0.5 * 2 * n * scale / 1e-2
    moved = [
        oracles.effect_of_rounding(lambda i=i: reference(name, data)[i])
        for i in range(2)
    ]
    mean_tolerance = {"rtol": 0, "atol": solved + moved[0]}
    tolerance = joint = {"rtol": 0, "atol": solved + moved[1]}
    rows = torch.ones(len(Z), dtype=torch.bool)
    if condition >= 1e6:
        # Far outside of the data both sides depend on which directions were cut. What
        # is left has a condition of 1e14 at most: `solved` is 1e-5 then.
        rows = (Z <= 1).all(-1)
        mean_tolerance, tolerance = {"rtol": 0, "atol": 1e-6}, {"rtol": 1e-5, "atol": 0}
        joint = {"rtol": 1e-5, "atol": 1e-6}
    moments = posterior.moments(data["Z"])
    weights = posterior.representer_weights()
    by_weights = posterior.covariance_with_inducing(data["Z"]).mT @ weights
    for mean in (moments.mean, posterior.mean(data["Z"]), by_weights):
        close(mean.cpu()[rows], expected.mean[rows], **mean_tolerance)
    for variance in (moments.variance, posterior.variance(data["Z"])):
        close(variance.cpu()[rows], expected.variance[rows], **tolerance)
    covariance = posterior.covariance(data["Z"]).cpu()
    close(covariance.diagonal()[rows], expected.variance[rows], **tolerance)
    close(covariance[rows][:, rows], expected.covariance[rows][:, rows], **joint)
    cross = posterior.covariance(data["Z"][:4], data["Z"]).cpu()[rows[:4]]
    close(cross[:, rows], expected.covariance[:4][rows[:4]][:, rows], **joint)


@on_the_host
@pytest.mark.parametrize("lam", [1e-6, 1e-4, 1e-1])
@pytest.mark.parametrize("m", [5, 24])
def test_multiple_precision(m, lam, double):
    data = problem(30, m, lam=lam, seed=m, **double)
    posterior = build(oracles.make_kernel("rbf", **double), data)
    mean, variance = oracles.mp_rbf_dtc(
        *(data[k] for k in ("X", "Y", "noise", "S", "Z"))
    )
    close(posterior.mean(data["Z"]), mean, rtol=1e-6, atol=1e-6)
    close(posterior.variance(data["Z"]), variance, rtol=1e-5, atol=0.0)


def test_multiple_precision_itself():
    data = problem(12, 4, lam=1e-2)
    mean, variance = oracles.mp_rbf_dtc(
        *(data[k] for k in ("X", "Y", "noise", "S", "Z"))
    )
    expected = reference("rbf", data)
    assert mpmath.mp.dps == 15
    close(expected.mean, mean, rtol=1e-9, atol=1e-9)
    close(expected.variance, variance, rtol=1e-9, atol=1e-9)


@sweep("name", oracles.KERNELS, ["matern52"])
def test_float32(name, device):
    single = {"dtype": torch.float32, "device": device}
    data = problem(200, 30, lam=4e-2, d=5, **single)
    posterior = build(oracles.make_kernel(name, **single), data)
    expected = reference(name, data)
    moments = posterior.moments(data["Z"])
    assert moments.mean.dtype == moments.variance.dtype == torch.float32
    close(moments.mean, expected.mean, rtol=1e-3, atol=1e-3)
    close(moments.variance, expected.variance, rtol=1e-3, atol=1e-3)


@sweep(
    "name, lam",
    product(["rbf", "matern12", "matern52", "linear", "product"], [1e-4, 1e-2, 1.0]),
    [("matern52", 1e-2)],
)
def test_all_points_is_the_exact_gp(name, lam, double):
    kernel = oracles.make_kernel(name, **double)
    data = problem(120, 1, lam=lam, **double)
    data["noise"] = torch.full_like(data["noise"], lam)
    # For scale: lam is meant relative to k(x, x).
    data["noise"] *= kernel(data["X"], diag=True).max()
    model = SingleTaskGP(
        data["X"],
        data["Y"].unsqueeze(-1),
        data["noise"].unsqueeze(-1),
        covar_module=kernel,
        mean_module=ConstantMean().to(**double),
        outcome_transform=None,
    )
    model.mean_module.constant.data.fill_(0.3)
    exact = model.posterior(data["Z"])
    posterior = build(
        kernel, {**data, "S": data["X"]}, mean_module=model.mean_module
    ).moments(data["Z"])
    X, Y, noise, Z = oracles.to_cpu(*(data[k] for k in ("X", "Y", "noise", "Z")))
    moved = [
        oracles.effect_of_rounding(
            lambda i=i: oracles.exact(oracles.DENSE[name], X, Y, noise, Z)[i]
        )
        for i in range(2)
    ]
    mean = exact.mean.squeeze(-1).detach().cpu()
    close(posterior.mean, mean, rtol=1e-6, atol=1e-6 + moved[0])
    variance = exact.variance.squeeze(-1).detach().cpu()
    scale = kernel(data["Z"], diag=True).cpu()
    close(
        posterior.variance / scale.to(posterior.variance),
        variance / scale,
        rtol=1e-6,
        atol=1e-6 + moved[1] / scale.max().item(),
    )


def test_no_inducing_points_is_the_prior(tkwargs):
    kernel = oracles.make_kernel("scaled", **tkwargs)
    data = problem(20, 0, lam=0.1, **tkwargs)
    mean_module = LinearMean(2).to(**tkwargs)
    posterior = build(kernel, data, mean_module=mean_module)
    Z = data["Z"]
    assert posterior.num_inducing == 0
    assert posterior.features(Z).shape == (10, 0)
    torch.testing.assert_close(posterior.mean(Z), mean_module(Z))
    torch.testing.assert_close(posterior.variance(Z), kernel(Z, diag=True))
    torch.testing.assert_close(posterior.covariance(Z), kernel(Z).to_dense())
    again = posterior.condition(data["X"], data["Y"], data["noise"])
    torch.testing.assert_close(again.variance(Z), kernel(Z, diag=True))
    update = posterior.hallucinate(Z[:2], data["noise"][:2])
    torch.testing.assert_close(
        posterior.hallucinated_variance(Z, update), kernel(Z, diag=True)
    )


def test_no_data_is_the_prior(double):
    kernel = oracles.make_kernel("rbf", **double)
    data = problem(0, 0, lam=0.1, **double)
    data["S"] = data["Z"][:5]
    posterior = build(kernel, data)
    close(posterior.mean(data["Z"]), torch.zeros(7).double())
    close(posterior.variance(data["Z"]), torch.ones(7).double())


def test_points_of_zero_prior_variance(double):
    data = problem(20, 4, lam=0.1, **double)
    data["S"] = torch.cat([torch.zeros(1, 2, **double), data["S"]])
    data["Z"] = torch.cat([torch.zeros(1, 2, **double), data["Z"]])
    posterior = build(oracles.make_kernel("linear", **double), data)
    expected = reference("linear", data)
    assert posterior.num_inducing == 2
    close(posterior.variance(data["Z"]), expected.variance, rtol=1e-8, atol=1e-10)
    assert posterior.variance(data["Z"])[0] == 0.0
    nothing = build(
        oracles.make_kernel("linear", **double), {**data, "S": data["S"][:1]}
    )
    assert nothing.num_inducing == 0


@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_prior_mean(mean, double):
    data = problem(60, 9, lam=1e-2, **double)
    if mean == "constant":
        mean_module = ConstantMean().to(**double)
        mean_module.constant.data.fill_(3.0)
    else:
        mean_module = LinearMean(2).to(**double)
        mean_module.weights.data.copy_(torch.tensor([[1.0], [-2.0]]))
        mean_module.bias.data.fill_(0.5)
    posterior = build(
        oracles.make_kernel("matern52", **double), data, mean_module=mean_module
    )
    centred = {**data, "Y": data["Y"] - mean_module(data["X"]).detach()}
    expected = reference("matern52", centred)
    prior = mean_module(data["Z"]).detach().cpu()
    close(posterior.mean(data["Z"]), prior + expected.mean, rtol=1e-8, atol=1e-8)
    close(posterior.moments(data["Z"]).mean, prior + expected.mean)


@pytest.mark.parametrize("batch_shape", [(2,), (2, 3)])
def test_batch_is_a_loop(batch_shape, double):
    kernel = oracles.make_kernel("matern52", **double)
    count = 2 if len(batch_shape) == 1 else 6
    problems = [problem(30, 8, lam=1e-2, seed=s, **double) for s in range(count)]
    data = {
        key: torch.stack([p[key] for p in problems]).unflatten(0, batch_shape)
        for key in problems[0]
    }
    posterior = build(kernel, data, chunk_size=11)
    moments = posterior.moments(data["Z"])
    covariance = posterior.covariance(data["Z"])
    update = posterior.hallucinate(data["Z"][..., :3, :], data["noise"][..., :3])
    reduced = posterior.hallucinated_variance(data["Z"], update)
    assert moments.mean.shape == moments.variance.shape == (*batch_shape, 10)
    assert reduced.shape == (*batch_shape, 10)
    for i, each in enumerate(problems):
        single = build(kernel, each)
        where = divmod(i, 3) if len(batch_shape) == 2 else (i,)
        close(moments.mean[where], single.mean(each["Z"]).cpu())
        close(moments.variance[where], single.variance(each["Z"]).cpu())
        close(covariance[where], single.covariance(each["Z"]).cpu())
        one = single.hallucinate(each["Z"][:3], each["noise"][:3])
        close(reduced[where], single.hallucinated_variance(each["Z"], one).cpu())


def test_t_batches_of_an_unbatched_posterior(double):
    data = problem(30, 8, lam=1e-2, **double)
    posterior = build(oracles.make_kernel("rbf", **double), data)
    flat = posterior.moments(data["Z"])
    T = data["Z"].view(5, 2, 2)
    torch.testing.assert_close(posterior.mean(T), flat.mean.view(5, 2))
    torch.testing.assert_close(posterior.variance(T), flat.variance.view(5, 2))
    assert posterior.covariance(T).shape == (5, 2, 2)
    update = posterior.hallucinate(data["Z"][:2], data["noise"][:2])
    torch.testing.assert_close(
        posterior.hallucinated_variance(T, update),
        posterior.hallucinated_variance(data["Z"], update).view(5, 2),
    )


def test_batch_with_repeated_inducing_points(double):
    """A batch keeps all points, so singular K_SS gets jitter; accuracy is lower."""
    problems = [problem(40, 12, lam=1e-2, seed=s, **double) for s in range(2)]
    problems[1]["S"] = problems[1]["S"][[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]]
    data = {key: torch.stack([p[key] for p in problems]) for key in problems[0]}
    moments = build(oracles.make_kernel("matern52", **double), data).moments(data["Z"])
    for i, each in enumerate(problems):
        expected = reference("matern52", each)
        close(moments.mean[i], expected.mean, rtol=1e-6, atol=1e-6)
        close(moments.variance[i], expected.variance, rtol=1e-5, atol=1e-8)


def test_residuals_that_round_below_zero(double):
    """They count as zero."""
    X = torch.linspace(0, 1, 40, **double).unsqueeze(-1)
    kernel, noise = oracles.make_kernel("rbf", **double), torch.full_like(X[:, 0], 1e-9)
    posterior = NystromPosterior.from_data(kernel, X, X[:, 0], noise, X)
    phi = posterior.features(X)
    assert (1 - phi.square().sum(-1) < 0).any()
    assert (posterior.residual(X, phi) >= 0).all()


def test_chunk_sizes_agree(double):
    data = problem(30, 12, lam=1e-2, **double)
    kernel = oracles.make_kernel("rbf", **double)
    whole = build(kernel, data)
    for chunk_size in (1, 7, 30):
        posterior = build(kernel, data, chunk_size=chunk_size)
        assert posterior.chunk_size == chunk_size
        close(posterior.mean(data["Z"]), whole.mean(data["Z"]).cpu())
        # Chunks of the points that are predicted, too.
        moments = posterior.moments(data["X"])
        close(moments.variance, whole.moments(data["X"]).variance.cpu())
    again = build(kernel, data, chunk_size=7).moments(data["Z"])
    same = build(kernel, data, chunk_size=7).moments(data["Z"])
    assert torch.equal(again.mean, same.mean)
    assert torch.equal(again.variance, same.variance)


def test_nothing_of_size_n_by_n(double):
    data = problem(500, 6, lam=1e-2, **double)
    kernel = oracles.RecordingKernel().to(**double)
    posterior = build(kernel, data, chunk_size=64)
    posterior.moments(data["X"])
    assert len(kernel.shapes) > 8
    assert max(shape.numel() for shape in kernel.shapes) <= 64 * 6


@pytest.mark.one_in(4)
@sweep("name", ["rbf", "matern52", "sum", "polynomial"], ["matern52"])
def test_gradients(name, double):
    """Through Z, the inducing points, the data and every hyperparameter."""
    kernel = oracles.make_kernel(name, **double).requires_grad_(True)
    data = problem(12, 3, lam=0.1, **double)
    data["S"] = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.5, 0.4]], **double)
    parameters = tuple(kernel.parameters())
    keys = ("X", "Y", "noise", "S", "Z")
    data["Z"] = data["Z"][:3]

    def outputs(*inputs: Tensor) -> tuple[Tensor, ...]:
        values = dict(zip(keys, inputs[: len(keys)], strict=True))
        posterior = build(kernel, values, chunk_size=5)
        moments = posterior.moments(values["Z"])
        update = posterior.hallucinate(values["Z"][:1], values["noise"][:1])
        reduced = posterior.hallucinated_variance(values["Z"], update)
        return *moments, posterior.covariance(values["Z"]), reduced

    inputs = tuple(data[key].requires_grad_() for key in keys)
    assert torch.autograd.gradcheck(outputs, (*inputs, *parameters), fast_mode=True)
