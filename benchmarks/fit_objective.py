"""Value and gradient of the fit objective, against GPyTorch's low-rank path.

BoTorch switches GPyTorch's fast log-probability off when it is imported; the same
Nystrom prior through `InducingPointKernel` then costs a dense O(n^3) Cholesky. And the
covariance of a fit to the exact likelihood, with its gradient, and that of candidates,
without, against GPyTorch's; and the exact likelihood of the default model at few
points, by its closed form and by its modules, and a whole fit there against BoTorch's.
And evaluations of 2,000 points from the optimum of 1,000 to theirs, by L-BFGS and by
Newton's steps that these 1,000 lead.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from botorch import test_functions
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim.closures import get_loss_closure_with_grads
from botorch.utils.transforms import standardize
from gpytorch.kernels import (
    InducingPointKernel,
    Kernel,
    MaternKernel,
    RBFKernel,
)
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks.measure import in_fresh_process, seconds, side_by_side
from botorch_sparse.kernels import dense_covariance, kernel_for_fit
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.fit.exact_fit import on_random_rows
from botorch_sparse.models.fit.log_parameters import (
    GAIN,
    fit_gpytorch_mll_in_logarithms,
)
from botorch_sparse.models.fit.plain_likelihood import Closure, plain_closure

DIMENSION = 4


def data(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A smooth function with noise."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, DIMENSION, dtype=torch.float64, generator=generator)
    noise = torch.randn(n, 1, dtype=torch.float64, generator=generator)
    return X, (6 * X).sin().sum(-1, keepdim=True) + 0.1 * noise


def ours(n: int, m: int) -> SparseSingleTaskGP:
    """Our model, BoTorch's default kernel, the first `m` points inducing."""
    X, Y = data(n)
    return SparseSingleTaskGP(X, Y, inducing_points=X[:m])


def gpytorch_model(n: int, m: int) -> SingleTaskGP:
    """GPyTorch's, on the same inducing points."""
    X, Y = data(n)
    model = SingleTaskGP(X, Y)
    model.covar_module = InducingPointKernel(
        model.covar_module, inducing_points=X[:m].clone(), likelihood=model.likelihood
    )
    return model


def value_and_gradient(model: SingleTaskGP) -> float:
    """One evaluation, as a fit makes it."""
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    mll.train()
    for parameter in mll.parameters():
        parameter.grad = None
    loss = -mll(model(*model.train_inputs), model.train_targets)
    loss.backward()
    return loss.item()


def large() -> float:
    """Seconds at n = 100,000, m = 500."""
    model = ours(100_000, 500)
    return seconds(lambda: value_and_gradient(model))


def covariance_and_gradient(kernel: Kernel, X: torch.Tensor) -> torch.Tensor:
    """What a likelihood needs of a kernel; the parameters are GPyTorch's."""
    parameters = [p for p in kernel.parameters() if p.requires_grad]
    K = kernel(X).to_dense()
    (gradient, *_) = torch.autograd.grad(K, parameters, torch.ones_like(K))
    return gradient


def report(
    name: str, calls: dict[str, Callable[[], torch.Tensor]], peer: str = "GPyTorch"
) -> None:
    """Print the times of ours and of a peer's."""
    found = side_by_side(calls)
    ratio = found[peer] / found["ours"]
    print(
        f"  {name}: ours {1e3 * found['ours']:.1f} ms, {peer} "
        f"{1e3 * found[peer]:.1f} ms, {ratio:.1f} times faster"
    )


def few_points() -> None:
    """Print the times of the likelihood at few points, in closed form and not."""
    for n in (20, 100, 300):
        X, Y = data(n)
        model = SparseSingleTaskGP(X, Y, inducing_points=X)
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        parameters = dict(mll.named_parameters())
        ours = plain_closure(mll, parameters)
        if ours is None:
            raise RuntimeError("The default model has no closed form.")
        model._is_fitting = True  # the inverse in closed form too
        theirs = get_loss_closure_with_grads(mll, parameters)
        calls = {"ours": partial(loss, ours), "modules": partial(loss, theirs)}
        report(f"n = {n}", calls, "modules")


def fits_of_few_points() -> None:
    """Print the times of default fits, which make the same steps."""
    for n in (20, 100, 400):
        X, Y = data(n)
        calls = {
            "ours": partial(fitted, SparseSingleTaskGP, X, Y),
            "SingleTaskGP": partial(fitted, SingleTaskGP, X, Y),
        }
        report(f"n = {n}", calls, "SingleTaskGP")


def fitted(
    model_class: type[SingleTaskGP], X: torch.Tensor, Y: torch.Tensor
) -> torch.Tensor:
    """The noise of a model that is fitted by default."""
    model = model_class(X, Y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model.likelihood.noise.detach()


def loss(closure: Closure) -> torch.Tensor:
    """The value of an objective that has its gradient too."""
    return closure()[0]


def covariances() -> None:
    """Print the times of covariances, in closed form and by GPyTorch."""
    for n, kind in product((300, 1500, 3000), (RBFKernel, MaternKernel)):
        kernel = kind(ard_num_dims=DIMENSION).double()
        X, _ = data(n)
        calls = {
            name: partial(covariance_and_gradient, each, X)
            for name, each in {
                "ours": kernel_for_fit(kernel, X.dtype),
                "GPyTorch": kernel,
            }.items()
        }
        report(f"{kind.__name__}, n = {n}", calls)


@torch.no_grad()
def of_candidates() -> None:
    """Print the times of covariances of candidates to inducing points."""
    kernel = MaternKernel(ard_num_dims=DIMENSION).double()
    for m, num in ((200, 2000), (500, 5000), (1000, 16384)):
        S, X = data(m)[0], data(num)[0]
        calls = {
            "ours": partial(dense_covariance, kernel, S, X),
            "GPyTorch": lambda S=S, X=X: kernel(S, X).to_dense(),
        }
        report(f"MaternKernel, {m} x {num}", calls)


def steps_near_an_optimum() -> None:
    """Print evaluations of 2,000 points from the optimum of 1,000, and their times."""
    for name, d in (("Cosine8", 8), ("Hartmann", 6), ("StyblinskiTang", 6)):
        kind = getattr(test_functions, name)
        function = kind() if name == "Cosine8" else kind(dim=d)
        generator = torch.Generator().manual_seed(0)
        X = torch.rand(2000, d, dtype=torch.float64, generator=generator)
        low, high = function.bounds.double()
        Y = standardize(function(low + (high - low) * X).unsqueeze(-1))
        Y = Y + 0.1 * torch.randn(Y.shape, dtype=Y.dtype, generator=generator)
        model = SparseSingleTaskGP(X, Y)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        few, all_points = on_random_rows(mll, 1000), on_random_rows(mll, 2000)
        fit_gpytorch_mll_in_logarithms(few, options={"ftol": GAIN})
        found = list[str]()
        for how, lead in (
            ("L-BFGS", None),
            ("Newton", partial(on_random_rows, few, 1000)),
        ):
            all_points.load_state_dict(few.state_dict(), strict=False)
            losses, start = list[torch.Tensor](), time.process_time()
            result = fit_gpytorch_mll_in_logarithms(
                all_points,
                options={"ftol": GAIN},
                on_evaluation=losses.append,
                few=lead,
            )
            elapsed = time.process_time() - start
            found.append(f"{how} {len(losses)} in {elapsed:.1f} s to {result.fval:.4f}")
        print(f"  {name}({d}): {', '.join(found)}")


def main() -> None:
    """Print all figures."""
    n, m = 5_000, 300
    model, peer = ours(n, m), gpytorch_model(n, m)
    mine = side_by_side({"ours": lambda: value_and_gradient(model)}, repeats=9)["ours"]
    theirs = seconds(lambda: value_and_gradient(peer))
    print(f"fit objective, value and gradient, n = {n}, m = {m}:")
    print(f"  ours {mine:.3f} s, GPyTorch as BoTorch leaves it {theirs:.1f} s")
    print(f"  {theirs / mine:.0f} times faster (at least 50)")
    elapsed, peak = in_fresh_process(large)
    print(f"  n = 100000, m = 500: {elapsed:.1f} s, peak {peak:.2f} GiB (below 4)")
    print("exact likelihood of the default model and its gradient, few points:")
    few_points()
    print("default fit of few points:")
    fits_of_few_points()
    print("evaluations of 2,000 points, from the optimum of 1,000, and CPU seconds:")
    steps_near_an_optimum()
    print("covariance and gradient of a fit to the exact likelihood:")
    covariances()
    print("covariance of candidates, without gradients:")
    of_candidates()


if __name__ == "__main__":
    main()
