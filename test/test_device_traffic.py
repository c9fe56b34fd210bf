"""What the host and an accelerator say to one another, operation by operation.

Each row is an operation with the most waits, uploads and launches that it may cost on
the simulated device. `python test/test_device_traffic.py` prints what they cost, as the
table of docs/reference/device_traffic.md.
"""

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import simulated_device
import torch
from botorch.models.transforms import Normalize
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_sparse.distributed import Ranks, ShardedDomain
from botorch_sparse.models import SparseSingleTaskGP, SubsetSingleTaskGP
from botorch_sparse.strategies import BBKB, GPUCB, SBPE
from botorch_sparse.strategies.core.strategy import Strategy

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "device_traffic.md"
needs_simulation = pytest.mark.skipif(
    not simulated_device.IS_AVAILABLE, reason="needs torch >= 2.9"
)

OPTIONS = {"lam": 1e-2, "noise_variance": 1e-2, "ratio_threshold": 4}


class Cost(NamedTuple):
    """Counts of one operation."""

    waits: int
    our_waits: int
    uploads: int
    launches: int

    @classmethod
    def of(cls, traffic: simulated_device.Traffic) -> "Cost":
        counters = (traffic.uploads, traffic.launches)
        others = (counter.total() for counter in counters)
        return cls(traffic.waits.total(), traffic.our_waits, *others)

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(*(a - b for a, b in zip(self, other, strict=True)))

    def __floordiv__(self, count: int) -> "Cost":
        """Each number divided, and rounded up."""
        return Cost(*(-(-a // count) for a in self))


Operation = Callable[[simulated_device.Traffic], Cost]


def cost_of(traffic: simulated_device.Traffic, step: Callable[[], Any]) -> Cost:
    """What one call costs."""
    before = Cost.of(traffic)
    step()
    return Cost.of(traffic) - before


def table(num: int = 3000) -> Tensor:
    """A table of candidates of four columns on the device."""
    X = torch.rand(num, 4, generator=torch.Generator().manual_seed(0))
    return X.double().to(simulated_device.DEVICE)


def values(X: Tensor) -> Tensor:
    """Feedback as a user has it: numbers of the host."""
    return (6 * X.cpu()).sin().prod(-1, keepdim=True)


def kernel() -> RBFKernel:
    """A kernel on the device, with a lengthscale for tables of four columns."""
    covar_module = RBFKernel().to(table(1)).requires_grad_(False)
    covar_module.lengthscale = 0.5
    return covar_module


def bbkb(*, is_shared: bool = False) -> BBKB:
    """A strategy that has told its first 101 evaluations.

    Args:
        is_shared: Whether ranks share its table; there is one of them, and with more
            each exchange is one launch, or three where tensors have to be put together.
    """
    alone = Ranks(device=torch.device(simulated_device.DEVICE))
    candidates = ShardedDomain.of(table(), alone) if is_shared else table()
    strategy = BBKB(candidates, kernel(), **OPTIONS)
    strategy.load_state_dict(begun())
    strategy.run(values, 101, progress=False)  # what is made once is there then
    return strategy


@cache
def begun() -> dict[str, Any]:
    """The state after a hundred evaluations, made on the host, which is quicker."""
    strategy = BBKB(table().cpu(), kernel().cpu(), **OPTIONS)
    strategy.run(values, 100, progress=False)
    return strategy.state_dict()


def per_point(traffic: simulated_device.Traffic, strategy: Strategy) -> Cost:
    """One more point of a batch: ten points less two, by two copies of a strategy."""
    state, costs = strategy.state_dict(), []
    for size in (2, 10):
        strategy.load_state_dict(state)
        costs.append(cost_of(traffic, lambda size=size: strategy.ask(size)))
        assert strategy.history.batches[-1].size == size
    return (costs[1] - costs[0]) // 8


def bbkb_step(traffic: simulated_device.Traffic, *, is_shared: bool = False) -> Cost:
    """One point inside of a batch."""
    strategy = bbkb(is_shared=is_shared)
    strategy.tell(batch := strategy.ask(), values(batch.X))
    return per_point(traffic, strategy)


def bbkb_batch_end(
    traffic: simulated_device.Traffic, *, is_shared: bool = False
) -> Cost:
    """Feedback, a new inducing set, all candidates embedded, the next first point."""
    strategy = bbkb(is_shared=is_shared)
    batch = strategy.ask()
    Y = values(batch.X)

    def step() -> None:
        strategy.tell(batch, Y)
        strategy.ask(1)

    return cost_of(traffic, step)


def sbpe_point(traffic: simulated_device.Traffic) -> Cost:
    """One point of a long batch."""
    strategy = SBPE(table(), kernel(), num_evaluations=400, lam=1e-2, noise_std=0.1)
    strategy.tell(batch := strategy.ask(), values(batch.X))
    return per_point(traffic, strategy)


def gpucb_evaluation(traffic: simulated_device.Traffic) -> Cost:
    """Feedback for one point, and the next point."""
    strategy = GPUCB(table(), kernel(), lam=1e-2)
    strategy.run(values, 40, progress=False)
    batch = strategy.ask()
    Y = values(batch.X)

    def step() -> None:
        strategy.tell(batch, Y)
        strategy.ask()

    return cost_of(traffic, step)


def sparse_model() -> tuple[SparseSingleTaskGP, Tensor]:
    """A model of 900 points with scaled inputs, and other points."""
    X = table(910)
    Y = values(X).to(X)
    model = SparseSingleTaskGP(X[10:], Y[10:], input_transform=Normalize(4))
    return model.eval(), X[:10]


def first_posterior(traffic: simulated_device.Traffic) -> Cost:
    """Draws inducing points, certifies them, and conditions on the data."""
    model, X = sparse_model()
    return cost_of(traffic, lambda: model.posterior(X[:1]))


def certificate(traffic: simulated_device.Traffic) -> Cost:
    """What the inducing points leave out, for a model that has them."""
    model, X = sparse_model()
    model.posterior(X)
    return cost_of(traffic, model.certificate)


def warm_posterior(q: int) -> Operation:
    """A posterior, once the model has been asked before."""

    def operation(traffic: simulated_device.Traffic) -> Cost:
        model, X = sparse_model()
        model.posterior(X[:q])

        def step() -> None:
            posterior = model.posterior(X[:q])
            _ = posterior.mean, posterior.distribution.covariance_matrix

        return cost_of(traffic, step)

    return operation


def conditioning(traffic: simulated_device.Traffic) -> Cost:
    """`condition_on_observations` with new points."""
    model, X = sparse_model()
    model.posterior(X)
    Y = values(X).to(X)
    return cost_of(traffic, lambda: model.condition_on_observations(X, Y))


def fantasies(traffic: simulated_device.Traffic) -> Cost:
    """`fantasize` with a sampler that has its base samples already."""
    model, X = sparse_model()
    model.posterior(X)
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    model.fantasize(X[:2], sampler)
    return cost_of(traffic, lambda: model.fantasize(X[:2], sampler))


def new_subset(traffic: simulated_device.Traffic) -> Cost:
    """Checks the data, selects the subset, and builds the model on it."""
    X = table(900)
    Y = values(X).to(X)
    return cost_of(traffic, lambda: SubsetSingleTaskGP(X, Y, subset_size=100))


def first_subset_posterior(traffic: simulated_device.Traffic) -> Cost:
    """Factorizes the subset's covariance."""
    X = table(900)
    model = SubsetSingleTaskGP(X[1:], values(X[1:]).to(X), subset_size=100).eval()
    return cost_of(traffic, lambda: model.posterior(X[:1]))


OPERATIONS: dict[str, tuple[Operation, Cost]] = {
    "BBKB, one step inside a batch": (bbkb_step, Cost(1, 1, 0, 75)),
    "BBKB, the end of a batch": (bbkb_batch_end, Cost(4, 4, 3, 175)),
    "BBKB on ranks, one step": (partial(bbkb_step, is_shared=True), Cost(1, 1, 0, 100)),
    "BBKB on ranks, the end of a batch": (
        partial(bbkb_batch_end, is_shared=True),
        Cost(12, 10, 15, 200),
    ),
    "S-BPE, one point": (sbpe_point, Cost(2, 2, 1, 110)),
    "GP-UCB, one evaluation": (gpucb_evaluation, Cost(3, 3, 3, 70)),
    "first posterior of 900 points": (first_posterior, Cost(12, 9, 8, 1150)),
    "certificate": (certificate, Cost(4, 3, 2, 440)),
    "warm posterior, q = 1": (warm_posterior(1), Cost(2, 0, 0, 55)),
    "warm posterior, q = 10": (warm_posterior(10), Cost(2, 0, 0, 70)),
    "condition_on_observations": (conditioning, Cost(0, 0, 0, 70)),
    "fantasize": (fantasies, Cost(3, 0, 0, 150)),
    "SubsetSingleTaskGP, built": (new_subset, Cost(8, 6, 20, 4000)),
    "its first posterior": (first_subset_posterior, Cost(5, 0, 0, 90)),
}


@pytest.mark.one_in(2)
@needs_simulation
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_costs_more_than_its_limit(name):
    operation, limit = OPERATIONS[name]
    with simulated_device.accelerator() as traffic:
        cost = operation(traffic)
    assert all(a <= b for a, b in zip(cost, limit, strict=True)), (cost, traffic)


def test_the_page_has_these_limits():
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    limits = {name: [int(n) for n in cells.split(" | ")] for name, cells in rows[1:]}
    assert limits == {name: list(limit) for name, (_, limit) in OPERATIONS.items()}


def main() -> None:
    """Print what each operation costs now."""
    for name, (operation, _) in OPERATIONS.items():
        with simulated_device.accelerator() as traffic:
            print(f"| {name} | {' | '.join(map(str, operation(traffic)))} |")


if __name__ == "__main__":
    main()
