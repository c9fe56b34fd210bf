"""A trust region: how it grows, shrinks and ends, and the candidates in it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_sparse.kernels.lengthscales import innermost
from botorch_sparse.strategies.data.box import Box, LinearConstraint

# In sides of the box; the first two are from [Eriksson2019]_, which ends at 2^-7.
INITIAL_LENGTH, LARGEST_LENGTH, SMALLEST_LENGTH = 0.8, 1.6, 0.5**12
SUCCESSES = 3  # in a row, after which a region doubles
# A success beats the best value by `MARGIN` of its lead on the median of all values. In
# a region that was turned by less: by `MARGIN` of its lead on the median of the `BEST`
# best values, plus `MARGIN_OF_ALL` of its lead on the median of all.
MARGIN, MARGIN_OF_ALL, BEST = 1e-3, 1e-5, 100
# The least length of a region that has just been turned: a small one, below
# `SMALL_LENGTH` of `local_surrogate.py`, since others have no axes.
TURNED_LENGTH = INITIAL_LENGTH / 32
# Ends of runs that are nearer to each other are one, in sides of the box, and in units
# of the last digit of coordinates: a region that ends has some of these on a side.
NEAREST_ENDS, NEAREST_DIGITS = 0.5**20, 2.0**16
# Coordinates that a candidate changes, in the mean [Eriksson2019]_; and those that
# half of them change at most, to leave a middle that is best in most coordinates.
NUM_CHANGED, FEW_CHANGED = 20, 4
# By how much constraints may be missed, in sides of the box: a hundredth of what
# `Box.is_feasible` allows.
SLACK = 1e-8
# Sweeps over the inequalities; what they leave is pulled to the middle.
SWEEPS = 3
# Evaluations after which a local maximization ends.
LOCAL_EVALUATIONS = 20


# Lower and upper ends of a part of the domain in each feature, in sides of the box.
Part: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Region:
    """A trust region, from its first points until it is too small; a value.

    Attributes:
        run: Its number; a region that begins anew has another one.
        start: Evaluations that were learned when it began.
        length: Of its side, as a part of the box's, before lengthscales scale it.
        successes: Rounds of feedback in a row that brought a better value.
        failures: Evaluations since the last of them.
        center: Number of the point in its middle; None before feedback.
        is_turned: Whether its sides are along axes of its own while it is small, and
            smaller gains are a success; see `is_better`.
        part: Where its first points are from; None for all of the domain.
    """

    run: int
    start: int = 0
    length: float = INITIAL_LENGTH
    successes: int = 0
    failures: int = 0
    center: int | None = None
    is_turned: bool = False
    part: Part | None = None

    @classmethod
    def begun_in(cls, part: Part, run: int, start: int) -> "Region":
        """A region that is to a part of the domain as others are to all of it."""
        return cls(run, start, INITIAL_LENGTH * _width(part), part=part)

    @property
    def width(self) -> float:
        """Length of what its first points are from; one for all of the domain."""
        return 1.0 if self.part is None else _width(self.part)

    def turned(self) -> "Region":
        """The region with axes of its own, and of a length from which it may grow."""
        length = max(self.length, TURNED_LENGTH * self.width)
        return replace(self, length=length, successes=0, failures=0, is_turned=True)

    def after(self, num: int, *, is_success: bool, tolerance: int) -> "Region":
        """The region after a round of feedback.

        Args:
            num: Evaluations that the round brought it.
            is_success: Whether one of them was better than all before.
            tolerance: Evaluations without success after which it is halved.
        """
        successes = self.successes + 1 if is_success else 0
        failures = 0 if is_success else self.failures + num
        length = self.length
        if successes >= SUCCESSES:
            successes, length = 0, min(2 * length, LARGEST_LENGTH)
        elif failures >= tolerance:
            failures, length = 0, length / 2
        return replace(self, length=length, successes=successes, failures=failures)


def part_around(box: Box, X: Tensor) -> Part | None:
    r"""The part of the domain around some points.

    Within a standard deviation of their mean in each feature, at least a quarter of
    what it is in all of them together. None where they are equal but for rounding, or
    where a region of that size would end between two numbers of the box's dtype.

    Args:
        box: The domain.
        X: `k x d` points.
    """
    low, high = box.bounds.double()
    X = (X.double() - low) / (high - low)
    deviation = X.std(0, correction=0)
    typical = float(deviation.square().mean().sqrt())
    digit = torch.finfo(box.bounds.dtype).eps * box.bounds.abs().amax(0).double()
    least = max(NEAREST_ENDS, NEAREST_DIGITS * float((digit / (high - low)).max()))
    if not typical > least:
        return None
    reach = deviation.clamp_min(typical / 4)
    lower, upper = (X.mean(0) - reach).clamp(0, 1), (X.mean(0) + reach).clamp(0, 1)
    return tuple(lower.tolist()), tuple(upper.tolist())


def moved_into(box: Box, part: Part, X: Tensor) -> Tensor:
    """`n x d` points of the domain, each at the same place of a part of it."""
    low, high = box.bounds.double()
    lower, upper = (X.new_tensor(ends).double() for ends in part)
    U = lower + (upper - lower) * (X.double() - low) / (high - low)
    return box.clamp(low + (high - low) * U)


def _width(part: Part) -> float:
    """The geometric mean of its sides."""
    lower, upper = torch.tensor(part, dtype=torch.float64)
    return float((upper - lower).log().mean().exp())


def fail_tolerance(dim: int, batch_size: int) -> int:
    r"""Evaluations without success after which a region is halved.

    :math:`q \lceil \max(4/q, d/q) \rceil`, as many whole batches as in
    [Eriksson2019]_.
    """
    return batch_size * math.ceil(max(4 / batch_size, dim / batch_size))


def is_better(new: Tensor, before: Tensor, *, is_turned: bool) -> bool:
    """Whether one of `k` values is better than all of `n` by more than a margin.

    The margin moves with the unit of the values, and not with what is added to them.
    The last digits of an optimum are no success, since the next run may find a better
    one. A region that was turned may follow a valley, where no batch gains a thousandth
    of what the first points were worse by. So its margin gets smaller as the run gets
    near to its optimum, and is not zero there. Values of minus infinity do not count.
    """
    new, before = new[new > -torch.inf], before[before > -torch.inf]
    if not len(new) or not len(before):
        return len(new) > 0
    best = before.max()
    lead = best - before.median()
    margin = MARGIN * lead
    if is_turned:
        good = before.sort(descending=True).values[:BEST]
        margin = MARGIN * (best - good.median()) + MARGIN_OF_ALL * lead
    return bool(new.max() > best + margin)


def smallest_length(box: Box) -> float:
    """The length below which a region is too small to go on.

    That is 2^-12; where no feature is continuous, where each candidate differs from the
    middle in one feature, by one value.
    """
    values, fixed = box.discrete.values, box.fixed_features or {}
    if any(j not in values and j not in fixed for j in range(box.dim)):
        return SMALLEST_LENGTH
    steps = [1 / len(v) for j, v in box.discrete.ordered.items() if j not in fixed]
    return min([*steps, 0.5 / max(1, len(values))])


@torch.no_grad()
def side_weights(
    kernels: Sequence[Kernel], span: Tensor, columns: Sequence[int] | None = None
) -> Tensor:
    """What multiplies the length in each feature, `d`, of product one.

    Proportional to the lengthscales, in sides of the box; of several kernels to their
    geometric mean.

    Args:
        kernels: Kernels of one lengthscale, or of one for each input; all sides are
            alike for others.
        span: Sides of the box in units of the kernels' inputs.
        columns: The `d` inputs that have a side; None for all.
    """
    logs = torch.stack([_log_sides(kernel, span) for kernel in kernels])
    logs = logs if columns is None else logs[:, list(columns)]
    return (logs - logs.mean(-1, keepdim=True)).mean(0).exp()


def _log_sides(kernel: Kernel, span: Tensor) -> Tensor:
    """Logarithms of the lengthscales in sides of the box, `d`; zeros without any."""
    lengthscale = getattr(innermost(kernel), "lengthscale", None)
    if lengthscale is None or lengthscale.numel() not in (1, len(span)):
        return torch.zeros_like(span)
    return (lengthscale.flatten().to(span) / span).log()


def candidates_around(
    box: Box, center: Tensor, sides: Tensor, num: int, seed: int
) -> Tensor:
    """Sobol points of a region that differ from its middle in some coordinates.

    Half of the candidates change one to four of them, and the others each coordinate
    with probability min(1, 20 / d), at least one. Constraints are met by projection,
    and then by moving towards the middle, which meets them.

    A discrete feature that changes takes another value: any category, or a number
    within the region and at least the next one. At most as many of them change as the
    region's length is of all of them, and at least one, so that a region shrinks in
    these too [Wan2021]_. Candidates with discrete features are different ones, and of
    those that do not meet the constraints none.

    Args:
        box: The domain.
        center: `d` coordinates of the middle.
        sides: `d` sides of the region, as parts of the box's sides.
        num: How many.
        seed: Decides on all of them.

    Returns:
        Points in the dtype of the bounds, `k x d`, with `k` at most `num`: those that
        constraints or rounding leave at the middle are left out. Cost: O(num d), and
        O(num d k) for `k` constraints.
    """
    low, high = box.bounds.double()
    free, c = _free(box), _middle(box, center)
    if not free.any():
        return box.clamp(c).unsqueeze(0)
    c = (c - low) / (high - low)
    lower, upper = (c - sides / 2).clamp_min(0.0), (c + sides / 2).clamp_max(1.0)
    sobol = SobolEngine(box.dim, scramble=True, seed=seed)
    U = sobol.draw(num, dtype=torch.float64).to(c)
    X = lower + (upper - lower) * U
    changed = _changed(free, num, seed, *_most_discrete(box, sides))
    if len(box.discrete):
        reach = sides / 2 * (high - low)
        others = box.discrete.others(low + (high - low) * c, U, reach)
        places = list(box.discrete.values)
        X[:, places] = ((others - low) / (high - low))[:, places]
    steps = torch.where(changed, X - c, 0.0)
    if box.inequality_constraints or box.equality_constraints:
        steps = _feasible(box, steps, c, lower - c, upper - c)
        moved = (steps.abs() > SLACK).any(-1)
        steps = steps[moved] if moved.any() else steps[:1]
    X = low + (high - low) * (c + steps)
    if len(box.discrete):
        X = box.discrete.nearest(X)
        X = torch.cat([X[box.is_feasible(X)], center.to(X).unsqueeze(0)])
        X = X.unique(dim=0)
    X = box.clamp(X)
    moved = (X != center.to(X)).any(-1)
    return X[moved] if moved.any() else X[:1]


def maximize_in_region(
    f: Callable[[Tensor], Tensor], X: Tensor, box: Box, center: Tensor, sides: Tensor
) -> Tensor:
    """Points of a region that are better than those from which they were searched.

    All searches are one of L-BFGS-B. `maximize_each` of `local_maximization` has many
    starts for each function, and constraints by SLSQP, whose time grows with the third
    power of all coordinates. Here steps are projected on the constraints as those of
    candidates are. Features that are fixed or discrete stay as they are.

    Args:
        f: From `k x d` points to `k` values, each of another function; differentiable.
        X: `k x d` points of the region, as `candidates_around` has them.
        box: The domain.
        center: `d` coordinates of the region's middle.
        sides: `d` sides of the region, as parts of the box's sides.

    Returns:
        `k x d` points in the dtype of the bounds, none of them worse. Cost: some 20
        values and gradients of `f`.
    """
    from scipy.optimize import minimize  # takes time, and a table has no regions

    low, high = box.bounds.double()
    c = (_middle(box, center) - low) / (high - low)
    lower, upper = (c - sides / 2).clamp_min(0.0), (c + sides / 2).clamp_max(1.0)
    start, moves = (X.double() - low) / (high - low) - c, _moves(box)
    A, b = _matrix(box, box.inequality_constraints, c)
    E, e = _matrix(box, box.equality_constraints, c)
    is_constrained = len(A) + len(E) > 0

    def steps(V: Tensor) -> Tensor:
        """Steps from the middle, from parts of the region's sides."""
        S = torch.where(moves, lower + (upper - lower) * V - c, start)
        return _projected(S, A, b, E, e, moves) if is_constrained else S

    def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
        V = torch.from_numpy(v).view(X.shape).to(low).requires_grad_()
        with torch.enable_grad():
            total = -f(low + (high - low) * (c + steps(V))).sum()
            (gradient,) = torch.autograd.grad(total, V)
        return float(total.detach()), gradient.flatten().cpu().numpy()

    first = ((start + c - lower) / (upper - lower)).clamp(0.0, 1.0)
    options: dict[str, Any] = {
        "maxfun": LOCAL_EVALUATIONS,
        "ftol": 0.0,
        "gtol": 0.0,
    }
    found = minimize(
        loss,
        first.flatten().cpu().numpy(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * first.numel(),
        options=options,
    )
    S = steps(torch.from_numpy(found.x).view(X.shape).to(low))
    if is_constrained:
        S = _feasible(box, S, c, lower - c, upper - c)
    end = box.clamp(low + (high - low) * (c + S))
    with torch.no_grad():
        is_better = f(end.double()) > f(X.double())
    return torch.where(is_better.unsqueeze(-1), end, X)


def _middle(box: Box, center: Tensor) -> Tensor:
    """The middle of a region, `d`, float64, with the values of fixed features."""
    c = center.double().clone()
    for index, value in (box.fixed_features or {}).items():
        c[index] = value
    return c


def _free(box: Box) -> Tensor:
    """Which features are not fixed, `d`."""
    free = torch.ones_like(box.bounds[0], dtype=torch.bool)
    free[list(box.fixed_features or {})] = False
    return free


def _moves(box: Box) -> Tensor:
    """Which features may take any value, `d`: neither fixed nor discrete."""
    moves = _free(box)
    moves[list(box.discrete.values)] = False
    return moves


def _most_discrete(box: Box, sides: Tensor) -> tuple[list[int], int]:
    """The discrete features that may change, and how many of them in one candidate."""
    fixed = box.fixed_features or {}
    places = [index for index in box.discrete.values if index not in fixed]
    length = min(1.0, float(sides.log().mean().exp()))
    return places, max(1, math.ceil(length * len(places) - SLACK))


def _changed(
    free: Tensor, num: int, seed: int, discrete: Sequence[int] = (), most: int = 0
) -> Tensor:
    """Which coordinates each candidate changes, `num x d`; one of the free at least.

    At most so many of the discrete ones.
    """
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
    if len(discrete) > most:
        order = torch.rand(num, len(discrete), generator=generator)
        order = order.masked_fill(~changed[:, discrete], torch.inf).argsort(-1)
        changed[:, discrete] &= order.argsort(-1) < most
    return changed.to(free.device)


def _feasible(
    box: Box, steps: Tensor, c: Tensor, lower: Tensor, upper: Tensor
) -> Tensor:
    r"""The part of each step that the constraints and the region leave of it.

    With :math:`A s \ge b` and :math:`E s = e` for steps :math:`s` from the middle `c`,
    in sides of the box. Discrete coordinates are where they were drawn; what is free
    and not discrete moves for the constraints.

    Args:
        box: The domain.
        steps: `k x d`.
        c: `d`, the middle.
        lower: `d`, the least steps.
        upper: `d`, the largest ones.
    """
    moves = _moves(box)
    A, b = _matrix(box, box.inequality_constraints, c)
    E, e = _matrix(box, box.equality_constraints, c)
    steps = _projected(steps, A, b, E, e, moves)
    if len(box.discrete):  # shortened, these would be between their values
        return torch.where(moves, steps.clamp(lower, upper), steps)
    return _shortened(steps, A * moves, b, lower, upper)


def _projected(
    steps: Tensor, A: Tensor, b: Tensor, E: Tensor, e: Tensor, moves: Tensor
) -> Tensor:
    """Steps that meet the equalities, and mostly the inequalities."""
    E = E * moves
    pinv = torch.linalg.pinv(E)
    steps = steps + (e - steps @ E.mT) @ pinv.mT
    along = A * moves - (A * moves) @ pinv @ E  # the equalities
    squares = along.square().sum(-1)
    for _ in range(SWEEPS):
        for a, square, row, least in zip(along, squares, A, b, strict=True):
            missing = (least - steps @ row).clamp_min(0.0)
            if square > 0:
                steps = steps + missing.unsqueeze(-1) * (a / square)
    return steps


def _shortened(
    steps: Tensor, A: Tensor, b: Tensor, lower: Tensor, upper: Tensor
) -> Tensor:
    """The longest part of each step within region and inequalities."""
    sides = torch.eye(len(lower)).to(lower)
    rows = torch.cat([A, sides, -sides])
    room = torch.cat([-b, -lower, upper]).clamp_min(0.0)
    room = room + SLACK * rows.abs().sum(-1)
    against = (-steps @ rows.mT).clamp_min(torch.finfo(steps.dtype).tiny)
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
