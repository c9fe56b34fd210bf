"""The functions of the experiments of [Wei2025]_, to maximize without noise.

Its real problem (Section 6.2) is a search for hyperparameters on the Pima diabetes
data: batch size, learning rate, its decay and the number of hidden units of a small
network, judged by its error on held-out patients, each training repeated five times.
The data are public domain (768 patients); `BOTORCH_SPARSE_DATA` names their folder.
"""

from collections.abc import Callable
from functools import cache

import torch
from botorch.test_functions import (
    EggHolder,
    Hartmann,
    Levy,
    Powell,
    Rastrigin,
    SyntheticTestFunction,
)
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from botorch_sparse.demo.datasets import load_table

NUM_INITIAL = 20
FUNCTIONS: dict[str, Callable[[], SyntheticTestFunction]] = {
    "eggholder2": lambda: EggHolder(negate=True),
    "hartmann6": lambda: Hartmann(dim=6, negate=True),
    "levy20": lambda: Levy(dim=20, negate=True),
    "powell50": lambda: Powell(dim=50, negate=True),
    "rastrigin100": lambda: Rastrigin(dim=100, negate=True),
}
PROBLEMS = (*FUNCTIONS, "pima")
NUM_REPEATS = 5
NUM_EPOCHS = 10
# Batch size, log10 of the learning rate and of its decay, hidden units.
PIMA_BOUNDS = [[32.0, -6.0, -6.0, 1.0], [128.0, 0.0, 0.0, 8.0]]
TEST_SHARE = 0.2


class Problem:
    """A function on a box, with the initial design that all methods share.

    Args:
        name: One of `PROBLEMS`.
        seed: Of the initial design.

    Raises:
        InputDataError: For `pima`, if its data are not there.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed
        self.function = None
        if name == "pima":
            pima_split()
            self.bounds = torch.tensor(PIMA_BOUNDS, dtype=torch.float64)
        else:
            self.function = FUNCTIONS[name]().to(dtype=torch.float64)
            self.bounds = self.function.bounds.double()

    @property
    def dim(self) -> int:
        """The number of inputs."""
        return self.bounds.shape[-1]

    def initial(self, num: int = NUM_INITIAL) -> Tensor:
        """Sobol points, `num x d`."""
        return draw_sobol_samples(self.bounds, n=num, q=1, seed=self.seed).squeeze(1)

    def evaluate(self, X: Tensor) -> Tensor:
        """Values, `n x 1`; minus the test error for `pima`."""
        if self.function is not None:
            return self.function(X).unsqueeze(-1)
        errors = [[-held_out_error(x)] for x in X]
        return torch.tensor(errors, dtype=torch.float64)

    def regret(self, Y: Tensor) -> list[float]:
        """How far `n` values are below the optimum; for `pima`, the test errors.

        The lowest error that a network can have is not known.
        """
        best = 0.0 if self.function is None else self.function.optimal_value
        return (best - Y.flatten()).tolist()


@cache
def pima_split() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features and outcomes of the patients for training and for the test, float32.

    Raises:
        InputDataError: If the data are not where `BOTORCH_SPARSE_DATA` says.
    """
    table = load_table("pima_diabetes", target="outcome", dtype=torch.float32)
    order = torch.randperm(len(table.Y), generator=torch.Generator().manual_seed(0))
    num_test = int(TEST_SHARE * len(order))
    test, train = order[:num_test], order[num_test:]
    return table.X[train], table.Y[train], table.X[test], table.Y[test]


def held_out_error(x: Tensor) -> float:
    """Mean share of misclassified patients of the test set, over five trainings.

    A function of the hyperparameters alone: initial weights and the order of the
    patients are the same each time, so that all methods optimize one function.

    Args:
        x: `4` hyperparameters within `PIMA_BOUNDS`; batch size and hidden units are
            rounded.
    """
    batch_size, log_rate, log_decay, hidden = x.tolist()
    return _trained_error(
        round(batch_size), round(log_rate, 4), round(log_decay, 4), round(hidden)
    )


@cache
def _trained_error(
    batch_size: int, log_rate: float, log_decay: float, hidden: int
) -> float:
    """Train five networks side by side with Adam; see `test_error`."""
    X, Y, X_test, Y_test = pima_split()
    generator = torch.Generator().manual_seed(1)
    weights = _initial_weights(X.shape[-1], hidden, generator)
    optimizer = torch.optim.Adam(weights, lr=10**log_rate, foreach=True)
    step, decay = 0, 10**log_decay
    for _ in range(NUM_EPOCHS):
        order = torch.rand(NUM_REPEATS, len(X), generator=generator).argsort(-1)
        for rows in order.split(batch_size, dim=-1):
            for group in optimizer.param_groups:
                group["lr"] = 10**log_rate / (1 + decay * step)
            optimizer.zero_grad()
            loss = binary_cross_entropy_with_logits(_logits(weights, X[rows]), Y[rows])
            (NUM_REPEATS * loss).backward()  # the mean over repeats is no average model
            optimizer.step()
            step += 1
    with torch.no_grad():
        predicted = _logits(weights, X_test.expand(NUM_REPEATS, -1, -1)) > 0
    return float((predicted != (Y_test > 0.5)).float().mean())


def _initial_weights(dim: int, hidden: int, generator: torch.Generator) -> list[Tensor]:
    """Weights and biases of `NUM_REPEATS` networks with one hidden layer."""
    shapes = [(dim, hidden), (1, hidden), (hidden, 1), (1, 1)]
    return [
        (torch.rand(NUM_REPEATS, *shape, generator=generator) * 2 - 1)
        .div(max(1, fan_in) ** 0.5)
        .requires_grad_()
        for shape, fan_in in zip(shapes, (dim, dim, hidden, hidden), strict=True)
    ]


def _logits(weights: list[Tensor], X: Tensor) -> Tensor:
    """Logits of `r x b x d` inputs, `r x b`."""
    W1, b1, W2, b2 = weights
    return (torch.baddbmm(b1, X, W1).relu() @ W2 + b2).squeeze(-1)
