"""Warm `posterior()` at 64 x 1 x d, n = 1e3 against n = 1e5, m = 200."""

import torch
from gpytorch.kernels import MaternKernel

from benchmarks.measure import side_by_side
from botorch_sparse.models import SparseSingleTaskGP

NUM_INDUCING = 200
DIMENSION = 4


def warm_posterior(n: int, num_inducing: int = NUM_INDUCING) -> SparseSingleTaskGP:
    """A model whose caches are built."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, DIMENSION, dtype=torch.float64, generator=generator)
    Y = (6 * X).sin().sum(-1, keepdim=True)
    kernel = MaternKernel(nu=2.5, ard_num_dims=DIMENSION).double()
    kernel.lengthscale = 0.5
    model = SparseSingleTaskGP(
        X, Y, covar_module=kernel, inducing_points=X[:num_inducing]
    )
    model.eval()
    model.posterior(X[:1])
    return model


def main() -> None:
    """Print medians and their ratio."""
    small, large = warm_posterior(1_000), warm_posterior(100_000)
    X = torch.rand(64, 1, DIMENSION, dtype=torch.float64)

    def call(model: SparseSingleTaskGP) -> torch.Tensor:
        posterior = model.posterior(X)
        return posterior.mean + posterior.variance

    with torch.no_grad():
        median = side_by_side(
            {"1e3": lambda: call(small), "1e5": lambda: call(large)}, repeats=101
        )
    print(f"warm posterior(64 x 1 x {DIMENSION}), m = {NUM_INDUCING}:")
    print(
        f"  n = 1e3 {1e3 * median['1e3']:.2f} ms, n = 1e5 {1e3 * median['1e5']:.2f} ms"
    )
    print(f"  ratio {median['1e5'] / median['1e3']:.2f} (at most 1.3)")


if __name__ == "__main__":
    main()
