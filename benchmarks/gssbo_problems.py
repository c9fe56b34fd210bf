"""The functions of the experiments of [Wei2025]_, to maximize without noise."""

from collections.abc import Callable

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

from benchmarks.gssbo_pima import PIMA_BOUNDS, pima_split, test_error

NUM_INITIAL = 20
FUNCTIONS: dict[str, Callable[[], SyntheticTestFunction]] = {
    "eggholder2": lambda: EggHolder(negate=True),
    "hartmann6": lambda: Hartmann(dim=6, negate=True),
    "levy20": lambda: Levy(dim=20, negate=True),
    "powell50": lambda: Powell(dim=50, negate=True),
    "rastrigin100": lambda: Rastrigin(dim=100, negate=True),
}
PROBLEMS = (*FUNCTIONS, "pima")


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
        errors = [[-test_error(x)] for x in X]
        return torch.tensor(errors, dtype=torch.float64)

    def regret(self, Y: Tensor) -> list[float]:
        """How far `n` values are below the optimum; for `pima`, the test errors.

        The lowest error that a network can have is not known.
        """
        best = 0.0 if self.function is None else self.function.optimal_value
        return (best - Y.flatten()).tolist()
