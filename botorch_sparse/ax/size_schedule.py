"""At which numbers of observations the parts that cost most are computed anew.

Ax builds a model from scratch for every trial. What is slow and changes little, the
hyperparameters, the inducing points and the scale of the outcomes, comes from the
first `scheduled_size(n)` observations instead of all `n`. It is then a function of the
data alone: a strategy that was saved and loaded computes the same once more, and until
the next size in the schedule it is the same for each trial.
"""

import math

import torch
from botorch.utils.datasets import SupervisedDataset

from botorch_sparse.argument_checks import check_number

# Up to this many observations everything is computed for each trial, as in Ax.
EVERY_TRIAL = 50
DEFAULT_GROWTH = 1.2


def scheduled_size(num_observations: int, growth: float = DEFAULT_GROWTH) -> int:
    """The largest size of the schedule up to `num_observations`.

    All sizes up to 50, and from there on each `growth` times the one before.

    Example:
        >>> [scheduled_size(n) for n in (7, 50, 59, 60, 71, 72)]
        [7, 50, 50, 60, 60, 72]
    """
    size = min(num_observations, EVERY_TRIAL)
    while size >= EVERY_TRIAL:
        larger = max(size + 1, math.ceil(growth * size))
        if larger > num_observations:
            break
        size = larger
    return size


def validate_growth(growth: float) -> None:
    """Raise `InputDataError` unless `growth` is finite and at least one."""
    need = (
        "need a number of at least 1. Use 1 to refit for each trial, and 1.2 to refit "
        "when there are 20% more observations."
    )
    check_number("refit_growth", growth, "[1, inf)", need)


def first_rows(dataset: SupervisedDataset, size: int) -> SupervisedDataset:
    """The first `size` rows of a data set, in the order of trials."""
    if size >= len(dataset.X):
        return dataset
    return dataset.clone(mask=torch.arange(len(dataset.X)) < size)
