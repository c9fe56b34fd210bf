"""How many kernel matrices the end of a batch makes."""

from typing import Any

import torch
from gpytorch.kernels import RBFKernel
from strategy_table import make_candidates, objective

from botorch_sparse.strategies import BBKB


class CountingKernel(RBFKernel):
    """Counts the matrices that it makes."""

    count = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The kernel."""
        self.count += not kwargs.get("diag", False)
        return super().forward(*args, **kwargs)


def test_the_end_of_a_batch_makes_few_kernel_matrices() -> None:
    """Once for the data, and for the column of each new inducing point."""
    X = make_candidates(300, dtype=torch.float64)
    kernel = CountingKernel().double().requires_grad_(False)
    kernel.lengthscale = 0.3
    strategy = BBKB(X, kernel, lam=1e-2)
    strategy.run(objective, 10, progress=False)  # looks at the feedback's scale too
    known = set(strategy.surrogate.inducing)
    for _ in range(5):
        batch = strategy.ask()
        kernel.count = 0
        strategy.tell(batch, objective(batch.X))
        inducing = set(strategy.surrogate.inducing)
        assert 0 < kernel.count <= 1 + len(inducing - known)
        known |= inducing
    assert len(known) > 5
