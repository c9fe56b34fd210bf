r"""What earlier campaigns with the same columns say of a new one.

Each campaign has a posterior of its own, fitted once. Its mean :math:`\mu_j`, in
standard deviations of the campaign's values, becomes a feature of the new one, whose
prior is the autoregressive model of [KennedyOHagan2000]_,

.. math:: f(x) = \sum_j \rho_j \, \mu_j(x) + \delta(x), \qquad
    k(x, x') = \sum_j v_j \, \mu_j(x) \, \mu_j(x') + s \, k_\delta(x, x'),

with :math:`\rho_j \sim N(0, v_j)`. The data of the new campaign decide on all
:math:`\rho_j`, of either sign. All `v` and `s` are fitted, with BoTorch's lengthscales
and noise. A campaign without which the data are likelier is left out until the next
fit. That the mean stands for the earlier campaign's function is the recursive form of
[LeGratietGarnier2014]_, without its variance: far from all earlier points the mean is
constant, but near few or noisy ones it counts as if it were known. On a table a batch
costs what it costs without, however much is related; on a box each evaluation of the
model asks all campaigns, at O(m^2).

References:
    .. [KennedyOHagan2000]
        M. C. Kennedy and A. O'Hagan. Predicting the output from a complex computer code
        when fast approximations are available. Biometrika, 2000.
    .. [LeGratietGarnier2014]
        L. Le Gratiet and J. Garnier. Recursive co-kriging model for design of computer
        experiments with multiple levels of fidelity. International Journal for
        Uncertainty Quantification, 2014.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models.transforms.input import InputTransform
from botorch.settings import propagate_grads
from gpytorch.settings import detach_test_caches
from torch import Tensor
from typing_extensions import override

from botorch_sparse.argument_checks import check_finite, check_kind
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.strategies.data.domain import LARGEST_VALUE, Domain, TableDomain
from botorch_sparse.strategies.data.feedback import (
    as_tensor,
    paired,
    read_points,
    refuse_large_values,
)
from botorch_sparse.strategies.data.outcomes import Outcomes

# Different values that a campaign needs.
FEWEST_RELATED = 3
# Rows that a campaign's mean is computed at in one go.
CHUNK = 2**12


@dataclass(frozen=True, eq=False)
class RelatedData:
    """One outcome of one earlier campaign.

    Attributes:
        X: `n x d` points, float64.
        Y: `n` values, in the sign that is maximized.
    """

    X: Tensor
    Y: Tensor

    def checksum(self) -> int:
        """Of all numbers."""
        both = torch.cat([self.X, self.Y.unsqueeze(-1)], dim=-1)
        return zlib.crc32(both.cpu().contiguous().numpy().data)


def read_related(
    related: Iterable[Any] | None, domain: Domain, outcomes: Outcomes
) -> list[tuple[RelatedData, ...]]:
    """For each outcome the earlier campaigns in which it was measured.

    Args:
        related: Pairs of `n x d` points, or a DataFrame with the table's columns, and
            of `n`, `n x 1` or `n x k` values; NaN for not measured. With a DataFrame
            a Series is paired by its index, as feedback is.
        domain: Where the new campaign is.
        outcomes: Its `k` outcomes.

    Raises:
        BotorchTensorDimensionError: If points have another width.
        InputDataError: If something else comes, or points are not finite, or values
            infinite or beyond 1e150, or too few differ.
        UnsupportedError: If the domain is a table of molecules, or that ranks share.
    """
    if related is None:
        return [()] * len(outcomes)
    need = "pairs of points and values, such as [(X, Y)]"
    check_kind("related", related, Iterable, need)
    _require_room(domain)
    campaigns = list[tuple[Tensor, Tensor]]()
    for place, pair in enumerate(related):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            got = f"Got a {type(pair).__name__} in related"
            raise InputDataError(f"{got}; need {need}.")
        with _naming(place):
            campaigns.append(_values_of(pair[0], pair[1], domain, outcomes))
    return [
        tuple(
            RelatedData(X[is_measured], Y[is_measured, column])
            for X, Y in campaigns
            if (is_measured := ~Y[:, column].isnan()).any()
        )
        for column in range(len(outcomes))
    ]


@contextmanager
def _naming(place: int) -> Iterator[None]:
    """Say of an error which campaign it is about."""
    try:
        yield
    except (InputDataError, BotorchTensorDimensionError) as error:
        raise type(error)(f"In related[{place}]: {error}") from error


def _values_of(
    points: Any, values: Any, domain: Domain, outcomes: Outcomes
) -> tuple[Tensor, Tensor]:
    """Points of a campaign and `n x k` values, in the signs that are maximized."""
    X = read_points(points, domain).double()
    check_finite(X=X)
    values = outcomes.ordered(values)
    if hasattr(points, "iloc"):
        values = paired(points, values)
    Y = as_tensor(values).to(X)
    if not outcomes.is_shape(Y.shape, len(X)):
        raise InputDataError(
            f"Got values of shape {tuple(Y.shape)} for {len(X)} points; need "
            f"{outcomes.shape_text}."
        )
    Y = outcomes.signed_rows(Y.reshape(len(X), len(outcomes)))
    if num := int(Y.isinf().sum()):
        raise InputDataError(
            f"Got {num} values that are infinite; need numbers, or NaN for what was "
            "not measured."
        )
    refuse_large_values(Y, LARGEST_VALUE)
    different = [len(y[~y.isnan()].unique()) for y in Y.unbind(-1)]
    few = [num for num in different if 0 < num < FEWEST_RELATED]
    if few or not any(different):
        raise InputDataError(
            f"Got {min(few, default=0)} different values; need {FEWEST_RELATED} at "
            "least. Leave this campaign out."
        )
    return X, Y


def _require_room(domain: Domain) -> None:
    """Refuse what has no room for more features."""
    if isinstance(domain, TableDomain) and (
        domain.ranks.size > 1 or domain.fingerprints
    ):
        raise UnsupportedError(
            "Got related with a table that ranks share, or with molecules; need a "
            "whole table of numbers and categories, or a box."
        )


def campaign_mean(model: SparseSingleTaskGP, X: Tensor) -> Tensor:
    """What a fitted model of an earlier campaign says of `... x d` inputs, `...`.

    In standard deviations of the campaign's values. Gradients are of the inputs alone.
    Cost: O(n m^2) for `n` inputs.
    """
    with propagate_grads(False), detach_test_caches(True):  # the posterior is kept
        posterior = model.nystrom_posterior()
    rows = X.reshape(-1, X.shape[-1])
    means = [posterior.mean(part) for part in rows.split(CHUNK)]
    return torch.cat(means).view(X.shape[:-1])


def with_means(campaigns: Sequence[SparseSingleTaskGP], X: Tensor) -> Tensor:
    """Inputs with what each campaign says of them, `... x (d + t)`."""
    means = [campaign_mean(model, X) for model in campaigns]
    return torch.cat([X, torch.stack(means, dim=-1)], dim=-1)


class RelatedMeans(InputTransform):
    """Appends what each campaign says of inputs in [0, 1].

    Args:
        campaigns: Their models, whose hyperparameters are none of a model with this
            transform. They stay where they are when it is moved.
    """

    transform_on_train = transform_on_eval = transform_on_fantasize = True
    is_one_to_many = False

    def __init__(self, campaigns: Sequence[SparseSingleTaskGP]) -> None:
        super().__init__()
        self.campaigns = tuple(campaigns)

    @override
    def transform(self, X: Tensor) -> Tensor:
        return with_means(self.campaigns, X)

    @override
    def equals(self, other: InputTransform) -> bool:
        """Whether it is of the same campaigns."""
        is_same = isinstance(other, type(self)) and super().equals(other)
        return is_same and self.campaigns == other.campaigns
