r"""What earlier campaigns with the same columns say of a new one.

Each campaign has a posterior of its own, fitted once. Its mean :math:`\mu_j`, in
standard deviations of the campaign's values, becomes a feature of the new one, whose
prior is the autoregressive model of [KennedyOHagan2000]_,

.. math:: f(x) = \sum_j \rho_j \, \mu_j(x) + \delta(x), \qquad
    k(x, x') = \sum_j v_j \, \mu_j(x) \, \mu_j(x') + k_\delta(x, x'),

with :math:`\rho_j \sim N(0, v_j)`. The data of the new campaign decide on all
:math:`\rho_j`, of either sign, and their likelihood on all `v`; where nothing is shared
they tend to zero, and :math:`\delta` is what is learned without the others. That the
mean stands for the earlier campaign's function is the recursive form of
[LeGratietGarnier2014]_: however much is related, a batch costs what it costs without.

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
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import Kernel, LinearKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor
from typing_extensions import override

from botorch_sparse.argument_checks import check_finite
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.strategies.data.domain import Domain, TableDomain
from botorch_sparse.strategies.data.feedback import as_tensor, read_points
from botorch_sparse.strategies.data.outcomes import Outcomes

# Different values that a campaign needs.
FEWEST_RELATED = 3
# Rows that a campaign's mean is computed at in one go.
CHUNK = 2**14


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
            of `n`, `n x 1` or `n x k` values; NaN for not measured.
        domain: Where the new campaign is.
        outcomes: Its `k` outcomes.

    Raises:
        InputDataError: If something else comes, or points are not finite, or values
            infinite, or too few differ.
        UnsupportedError: If the domain is no whole table of numbers and categories.
    """
    if related is None:
        return [()] * len(outcomes)
    _require_table(domain)
    campaigns = [_values_of(pair, domain, outcomes) for pair in related]
    return [
        tuple(
            RelatedData(X[is_measured], Y[is_measured, column])
            for X, Y in campaigns
            if (is_measured := ~Y[:, column].isnan()).any()
        )
        for column in range(len(outcomes))
    ]


def _values_of(pair: Any, domain: Domain, outcomes: Outcomes) -> tuple[Tensor, Tensor]:
    """Points of a campaign and `n x k` values, in the signs that are maximized."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InputDataError(
            f"Got a {type(pair).__name__} in related; need pairs of points and values, "
            "such as related=[(X, Y)]."
        )
    X = read_points(pair[0], domain).double()
    check_finite(related=X)
    Y = as_tensor(outcomes.ordered(pair[1])).to(X)
    if not outcomes.is_shape(Y.shape, len(X)):
        raise InputDataError(
            f"Got related values of shape {tuple(Y.shape)} for {len(X)} points; need "
            f"{outcomes.shape_text}."
        )
    Y = outcomes.signed_rows(Y.reshape(len(X), -1))
    if num := int(Y.isinf().sum()):
        raise InputDataError(
            f"Got {num} related values that are infinite; need numbers, or NaN for "
            "what was not measured."
        )
    for y in Y.unbind(-1):
        num = len(y[~y.isnan()].unique())
        if 0 < num < FEWEST_RELATED:
            raise InputDataError(
                f"Got related values of which {num} differ; need {FEWEST_RELATED} at "
                "least. Leave this campaign out."
            )
    return X, Y


def _require_table(domain: Domain) -> None:
    """Refuse what has no room for more features."""
    if not isinstance(domain, TableDomain):
        raise UnsupportedError(
            "Got related with bounds; need a table of candidates. On a continuous "
            "domain take SparseMultiTaskGP with an acquisition function of BoTorch."
        )
    if domain.ranks.size > 1 or domain.fingerprints:
        raise UnsupportedError(
            "Got related with a table that ranks share, or with molecules; need a "
            "whole table of numbers and categories."
        )


class Trend:
    """The posterior mean of an earlier campaign, in its standard deviations.

    Args:
        model: A fitted model of its standardized values.
    """

    def __init__(self, model: SparseSingleTaskGP) -> None:
        self._model = model.eval().requires_grad_(False)

    @torch.no_grad()
    def __call__(self, X: Tensor) -> Tensor:
        """Means at `n x d` inputs, `n`."""
        means = [self._model.posterior(part).mean for part in X.split(CHUNK)]
        return torch.cat(means).squeeze(-1)


class DenseLinearKernel(LinearKernel):
    """`LinearKernel` with dense values; a sum with others would decompose its own."""

    @override
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        found = super().forward(*args, **kwargs)
        return found if isinstance(found, Tensor) else found.to_dense()


def related_kernel(num: int, dim: int) -> Kernel:
    """The kernel of `dim` inputs, of which the last `num` are means of campaigns."""
    own, trends = range(dim - num), range(dim - num, dim)
    rest = get_covar_module_with_dim_scaled_prior(len(own), active_dims=[*own])
    shared = DenseLinearKernel(
        ard_num_dims=num,
        active_dims=[*trends],
        variance_prior=LogNormalPrior(0.0, 1.0),
    )
    shared.variance = torch.ones(1, num)
    return rest + shared
