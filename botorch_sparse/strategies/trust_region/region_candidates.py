"""Candidates of a trust region: near its middle, in the domain."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_sparse.strategies.data.box import Box, LinearConstraint

# Coordinates that a candidate changes, in the mean [Eriksson2019]_; and those that
# half of them change at most, to leave a middle that is best in most coordinates.
NUM_CHANGED, FEW_CHANGED = 20, 4
# By how much constraints may be missed, in sides of the box: a hundredth of what
# `Box.is_feasible` allows.
SLACK = 1e-8
# Sweeps over the inequalities; what they leave is pulled to the middle.
SWEEPS = 3


def candidates_around(
    box: Box, center: Tensor, sides: Tensor, num: int, seed: int
) -> Tensor:
    """Sobol points of a region that differ from its middle in some coordinates.

    Half of the candidates change one to four of them, and the others each coordinate
    with probability min(1, 20 / d), at least one. Constraints are met by projection,
    and then by moving towards the middle, which meets them.

    Args:
        box: The domain.
        center: `d` coordinates of the middle.
        sides: `d` sides of the region, as parts of those of the box.
        num: How many.
        seed: Decides on all of them.

    Returns:
        Points in the dtype of the bounds, `k x d`, with `k` at most `num`: those that
        constraints or rounding leave at the middle are left out. Cost: O(num d), and
        O(num d k) for `k` constraints.
    """
    low, high = box.bounds.double()
    free, c = torch.ones_like(low, dtype=torch.bool), center.double().clone()
    for index, value in (box.fixed_features or {}).items():
        free[index], c[index] = False, value
    if not free.any():
        return box.clamp(c).unsqueeze(0)
    c = (c - low) / (high - low)
    lower, upper = (c - sides / 2).clamp_min(0.0), (c + sides / 2).clamp_max(1.0)
    sobol = SobolEngine(box.dim, scramble=True, seed=seed)
    U = lower + (upper - lower) * sobol.draw(num, dtype=torch.float64).to(c)
    steps = torch.where(_changed(free, num, seed), U - c, 0.0)
    if box.inequality_constraints or box.equality_constraints:
        cut = _Cut.of(box, c, free)
        steps = cut.shortened(cut.projected(steps), lower - c, upper - c)
        moved = (steps.abs() > SLACK).any(-1)
        steps = steps[moved] if moved.any() else steps[:1]
    X = box.clamp(low + (high - low) * (c + steps))
    moved = (X != center.to(X)).any(-1)
    return X[moved] if moved.any() else X[:1]


def _changed(free: Tensor, num: int, seed: int) -> Tensor:
    """Which coordinates each candidate changes, `num x d`; one of the free at least."""
    generator = torch.Generator().manual_seed(seed)
    places = free.nonzero().squeeze(-1).cpu()
    k = len(places)
    # A coordinate is changed where its rank in a random order is below a number.
    rank = torch.rand(num, k, generator=generator).argsort(-1).argsort(-1)
    share = torch.full((num, k), min(1.0, NUM_CHANGED / k))
    many = share.bernoulli(generator=generator).sum(-1).clamp_min(1)
    few = torch.randint(1, FEW_CHANGED + 1, (num,), generator=generator)
    # By halves of the Sobol sequence: its even and odd points are on different sides.
    number = torch.where(torch.arange(num) < num // 2, few, many)
    changed = torch.zeros(num, len(free), dtype=torch.bool)
    changed[:, places] = rank < number.unsqueeze(-1)
    return changed.to(free.device)


@dataclass(frozen=True)
class _Cut:
    r"""The constraints of a step :math:`s` from the middle, in sides of the box.

    :math:`A s \ge b` and :math:`E s = e`, where coordinates are free.

    Attributes:
        A: `k x d`.
        b: `k`, at most zero where the middle meets the inequality.
        E: `j x d`.
        e: `j`.
    """

    A: Tensor
    b: Tensor
    E: Tensor
    e: Tensor

    @classmethod
    def of(cls, box: Box, c: Tensor, free: Tensor) -> "_Cut":
        """Those of a domain around a middle."""
        A, b = _matrix(box, box.inequality_constraints, c)
        E, e = _matrix(box, box.equality_constraints, c)
        return cls(A * free, b, E * free, e)

    def projected(self, steps: Tensor) -> Tensor:
        """Steps that meet the equalities, and mostly the inequalities."""
        pinv = torch.linalg.pinv(self.E)
        steps = steps + (self.e - steps @ self.E.mT) @ pinv.mT
        A = self.A - self.A @ pinv @ self.E  # along the equalities
        squares = A.square().sum(-1)
        for _ in range(SWEEPS):
            for a, square, row, b in zip(A, squares, self.A, self.b, strict=True):
                missing = (b - steps @ row).clamp_min(0.0)
                if square > 0:
                    steps = steps + missing.unsqueeze(-1) * (a / square)
        return steps

    def shortened(self, steps: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """The longest part of each step within region and inequalities."""
        A = torch.cat([self.A, torch.eye(len(lower)).to(lower)])
        A = torch.cat([A, -A[len(self.A) :]])
        room = torch.cat([-self.b, -lower, upper]).clamp_min(0.0)
        room = room + SLACK * A.abs().sum(-1)
        against = (-steps @ A.mT).clamp_min(torch.finfo(steps.dtype).tiny)
        part = (room / against).amin(-1).clamp_max(1.0)
        return part.unsqueeze(-1) * steps


def _matrix(
    box: Box, constraints: Sequence[LinearConstraint] | None, c: Tensor
) -> tuple[Tensor, Tensor]:
    """Coefficients of steps in sides of the box, and what is missing in the middle."""
    low, high = box.bounds.double()
    rows, missing = c.new_zeros(0, len(c)), c.new_zeros(0)
    for index, coefficients, value in constraints or []:
        row = torch.zeros_like(c).index_add_(0, index.to(c.device), coefficients.to(c))
        here = row @ (low + (high - low) * c)
        rows = torch.cat([rows, (row * (high - low)).unsqueeze(0)])
        missing = torch.cat([missing, (value - here).reshape(1)])
    return rows, missing
