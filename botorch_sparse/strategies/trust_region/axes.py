r"""The axes along which a small region has its sides, by a quadratic model nearby.

Along a valley that is no feature's direction a box of features has to be as small as
the valley is narrow. So a region may be turned: its axes are the eigenvectors of the
function's Hessian, with lengths that fall with the root of the curvature. The model is
a regression whose weights fall as values get worse, as in [Hansen2019]_.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource

# Points of a quadratic model: most and least, in numbers of its coefficients.
MOST_OF_MODEL, LEAST_OF_MODEL = 2.0, 1.2
# Where tricube weights are zero, in distances of the farthest of these points.
BANDWIDTH = 1.01
# Curvatures below this part of the largest one are taken as that.
LEAST_CURVATURE = 1e-6
# Values whose distance from the best one is this quantile count a quarter of that one.
GOOD_QUANTILE = 0.1
# What is added to the normal equations, relative to their largest eigenvalue at most:
# features that do not vary nearby would make them singular.
RIDGE = 1e-12
# Mean logarithm of how much longer sides are along the eigenvectors than along the
# features, above which a region is turned: noise in a Hessian makes 0.1 to 0.3 of it.
SKEWED = 0.35


@dataclass(frozen=True, eq=False)
class Frame:
    """Coordinates in which a region is a box, and that box.

    Attributes:
        domain: The domain.
        source: Makes the coordinates, along its axes or of the features.
        box: Where the region is searched, in these coordinates.
        center: `d`, the middle in these.
        sides: `d` sides of the region, as parts of the sides of `box`.
    """

    domain: Box
    source: PriorSource
    box: Box
    center: Tensor
    sides: Tensor

    @classmethod
    def of(
        cls, domain: Box, source: PriorSource, center: Tensor, sides: Tensor
    ) -> "Frame":
        """The frame of a region.

        Args:
            domain: The domain.
            source: Knows its axes.
            center: `d` coordinates of its middle.
            sides: `d` sides along the axes, as parts of the domain's; at most as long
                as these in any feature.
        """
        if source.inputs.axes is None:
            return cls(domain, source, domain, center, sides)
        middle = source.inputs(center)
        sides = torch.minimum(sides, 1 / source.inputs.axes.abs().amax(0))
        box = Box(torch.stack([middle - sides / 2, middle + sides / 2]))
        return cls(domain, source, box, middle, torch.ones_like(sides))

    @property
    def is_turned(self) -> bool:
        """Whether its axes are not the features."""
        return self.source.inputs.axes is not None

    @property
    def widths(self) -> Tensor:
        """The `d` sides of the region."""
        return self.sides * (self.box.bounds[1] - self.box.bounds[0])

    def coordinates(self, X: Tensor) -> Tensor:
        """`... x d` points of the domain in these coordinates."""
        return self.source.inputs(X) if self.is_turned else X

    def points(self, Z: Tensor) -> Tensor:
        """Points at `... x d` coordinates, or next to them in the domain."""
        if self.source.inputs.axes is None:
            return Z
        low, high = self.domain.bounds.double()
        X = low + (high - low) * (Z @ self.source.inputs.axes.mT)
        return torch.minimum(torch.maximum(X, low), high)


def sizes_of_model(dim: int) -> tuple[int, int]:
    """Points of a quadratic model of `d` features, at least and at most."""
    num = (dim + 1) * (dim + 2) // 2
    return math.ceil(LEAST_OF_MODEL * num), math.floor(MOST_OF_MODEL * num)


def local_hessian(U: Tensor, losses: Tensor) -> Tensor | None:
    r"""The Hessian of a quadratic model of what is minimized, around the origin.

    Of a regression with weights: the nearest points, twice as many as coefficients,
    have tricube weights of their distance, times

    .. math:: \Big( \frac{1}{1 + (y - y_{\min}) / q} \Big)^2,

    with the tenth of the distances from the best value as `q`. So values from the steep
    sides of a valley, which no quadratic model has, count little.

    Args:
        U: `n x d` steps from the middle.
        losses: `n` values.

    Returns:
        `d x d`, up to a factor; None of too few points, where a tenth of them is as
        good as the best one, and where they say nothing of it. Cost: O(n d), and O(d^6)
        for the regression.
    """
    d = U.shape[-1]
    least, most = sizes_of_model(d)
    if len(U) < least:
        return None
    away = U.norm(dim=-1)
    near = away.argsort(stable=True)[:most]
    U, away, y = U[near], away[near], losses[near] - losses[near].min()
    good, scale = y.quantile(GOOD_QUANTILE), away.median()
    if not (good > 0 and scale > 0):
        return None
    y = y / good
    weight = (1 - (away / (BANDWIDTH * away.max())) ** 3) ** 1.5 / (1 + y)
    i, j = torch.triu_indices(d, d)
    U = U / scale
    terms = torch.cat([torch.ones_like(U[:, :1]), U, U[:, i] * U[:, j]], dim=-1)
    terms, target = weight.unsqueeze(-1) * terms, weight * y
    norms = terms.norm(dim=0).clamp_min(torch.finfo(y.dtype).tiny)
    terms = terms / norms
    # LAPACK's least squares round by where memory lies, and Cholesky's factor does not.
    gram = terms.mT @ terms
    gram.diagonal().add_(RIDGE * len(gram))
    target = (terms.mT @ target).unsqueeze(-1)
    found = torch.cholesky_solve(target, torch.linalg.cholesky(gram))
    coefficients = found.squeeze(-1) / norms
    H = U.new_zeros(d, d)
    H[i, j] = coefficients[d + 1 :]
    H = H + H.mT
    return H if bool(H.isfinite().all() and H.any()) else None


def axes_of(hessian: Tensor) -> tuple[Tensor, float]:
    r"""Axes for a Hessian, and how much longer sides are along them.

    Eigenvectors times :math:`|\lambda_i|^{-1/2}`, of determinant one in absolute value.
    Along the features a box of the same losses has sides of :math:`|H|_{ii}^{-1/2}`.

    Returns:
        `d x d`, and the mean of :math:`\log(|H|_{ii} / |\lambda_i|) / 2`, at least
        zero by Hadamard's inequality. Cost: O(d^3).
    """
    values, Q = torch.linalg.eigh(hessian)
    # In the order of curvatures: lengthscales of a fit go on with the next axes.
    values, order = values.abs().sort(stable=True)
    Q = Q[:, order]
    values = values.clamp_min(LEAST_CURVATURE * values.max())
    diagonal = (Q.square() * values).sum(-1)
    logs = values.log()
    longer = float((diagonal.log() - logs).mean()) / 2
    # A saved state has them by rows, and products round by the order in memory.
    return (Q * ((logs.mean() - logs) / 2).exp()).contiguous(), longer
