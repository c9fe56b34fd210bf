"""Which points a sparse model has as inducing points, and how they are drawn.

A point is drawn with the largest of the probabilities that the outputs give it: with
the same random numbers for all outputs, that is the union of their draws. Elements of a
batch that got fewer points than others get their next most probable ones.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.inducing import InducingPointSampler, RecursiveRLSSampler
from botorch_sparse.inducing.sampler import (
    cap_of,
    returns_valid_indices,
    thinned,
    uses_variance,
    with_cap,
)
from botorch_sparse.kernels import in_double, kernel_at
from botorch_sparse.models.training_data import TrainingData, ranges_of, same_tensor
from botorch_sparse.posteriors import NystromPosterior, RepeatedRows

# Peak of a fit and of a first posterior, in float64 numbers: measured 26 m^2 at
# m = 1000 and 22 m^2 at m = 2000, whatever n is, and blocks of rows.
PER_PAIR, PER_POINT = 26, 8192
BYTES = 8


def affordable_inducing_points(max_memory: int) -> int:
    """The largest `m`, at least one, whose fit and posterior stay within some bytes.

    Nothing of the size of the data is kept, so that the budget does not depend on `n`.

    Example:
        >>> affordable_inducing_points(2**30)
        2119
    """
    # PER_PAIR m^2 + PER_POINT m = budget
    budget = max_memory / BYTES
    half = PER_POINT / (2 * PER_PAIR)
    return max(1, math.floor(math.sqrt(half**2 + budget / PER_PAIR) - half))


Leverage = Callable[[Tensor], Tensor]


def sample_inducing_points(
    sampler: InducingPointSampler,
    covar_module: Kernel,
    X: Tensor,
    noise: Tensor,
    *,
    generator: torch.Generator,
    variance: Tensor | None = None,
    cap: int | None = None,
) -> Tensor:
    """Sorted indices of inducing points among `n x d` unique transformed points.

    Above `cap` as many are kept in proportion to their variance. `variance` is under
    the previous inducing points, `n`.
    """
    index = sampler(covar_module, X, noise, generator=generator, variance=variance)
    is_trusted = not X.is_cpu and returns_valid_indices(sampler)
    _validate_index(index, len(X), is_in_range=is_trusted)
    weights = torch.ones_like(noise) if variance is None else variance / noise
    tiny = torch.finfo(weights.dtype).tiny
    return thinned(cap, index, weights.clamp_min(tiny), generator)


def _validate_index(index: Tensor, num_points: int, is_in_range: bool = False) -> None:
    """Check that a sampler returned a vector of at least one index of `num_points`.

    With `is_in_range` values are not looked at: that waits for a device.
    """
    is_index = isinstance(index, Tensor) and index.dtype == torch.int64
    if not is_index or index.dim() != 1 or len(index) == 0:
        shown = f"{index.dtype} of shape {tuple(index.shape)}" if is_index else index
        raise InputDataError(
            f"The inducing sampler returned {shown}; need a vector of int64 indices "
            "with at least one entry."
        )
    if is_in_range:
        return
    ends = ranges_of({"index": index})["index"]
    if ends.low < 0 or ends.high >= num_points:
        raise InputDataError(
            f"The inducing sampler returned indices from {ends.low} to {ends.high} for "
            f"{num_points} unique training points; they must be from 0 to one less."
        )


def sample_shared_points(
    sampler: InducingPointSampler,
    covar_module: Kernel,
    X: Tensor,
    noise: Tensor,
    *,
    num_outputs: int,
    generator: torch.Generator,
    variance: Tensor | None = None,
    cap: int | None = None,
) -> Tensor:
    """Inducing points for several outputs or a batch of data, `batch_shape x m`.

    The sampler sees one output of one element at a time. `X` (`aug_batch x n x d`),
    `noise` and `variance` (`aug_batch x n`) have the outputs as the last batch
    dimension, where there are several. Indices are sorted: the union of those that each
    output draws by itself from the same state of the generator, thinned or filled up
    to the size of all elements. Cost: O(n m^2) for each output of each element.
    """
    aug_batch, n = noise.shape[:-1], noise.shape[-1]
    if not aug_batch:
        return sample_inducing_points(
            sampler,
            covar_module,
            X,
            noise,
            generator=generator,
            variance=variance,
            cap=cap,
        )
    X = X.expand(*aug_batch, n, X.shape[-1])
    batch_shape = aug_batch[:-1] if num_outputs > 1 else aug_batch
    chosen, leverages = [], []
    for element in itertools.product(*map(range, batch_shape)):
        outputs = [(*element, t) for t in range(num_outputs)]
        outputs = outputs if num_outputs > 1 else [element]
        kernels = [kernel_at(covar_module, output) for output in outputs]
        draws, state = list[Tensor](), generator.get_state()
        seed = torch.randint(2**31, (), generator=generator, device=generator.device)
        for kernel, output in zip(kernels, outputs, strict=True):
            generator.set_state(state)
            index = sample_inducing_points(
                sampler,
                kernel,
                X[output],
                noise[output],
                generator=generator,
                variance=None if variance is None else variance[output],
                cap=cap,
            )
            draws.append(index)
        generator.manual_seed(int(seed))  # the next element sees other numbers
        chosen.append(torch.cat(draws).unique())
        leverages.append(_leverage_of(kernels, X, noise, outputs))
    size = max(len(index) for index in chosen)
    size = size if cap is None else min(size, cap)
    pairs = zip(chosen, leverages, strict=True)
    index = torch.stack([_resized(index, size, score) for index, score in pairs])
    return index.reshape(*batch_shape, size)


def _leverage_of(
    kernels: list[Kernel], X: Tensor, noise: Tensor, outputs: list[tuple[int, ...]]
) -> Leverage:
    """Largest ridge leverage score over the outputs, given the points chosen so far."""

    def leverage(index: Tensor) -> Tensor:
        scores = []
        for kernel, output in zip(kernels, outputs, strict=True):
            points, d = X[output], noise[output]
            posterior = NystromPosterior.from_data(
                kernel, points, torch.zeros_like(d), d, points[index]
            )
            scores.append(posterior.moments(points).variance / d)
        return torch.stack(scores).amax(0)

    return leverage


def _resized(index: Tensor, size: int, leverage: Leverage) -> Tensor:
    """The `size` most probable points, those in `index` first."""
    if len(index) == size:
        return index
    score = leverage(index)
    if len(index) > size:
        return index[score[index].topk(size).indices].sort().values
    score[index] = -1.0
    more = score.topk(size - len(index)).indices
    return torch.cat([index, more]).sort().values


# Up to this many points the exact GP is cheap, and nothing is gained by sampling.
EXACT_SIZE = 500
# Up to this many all of them are affordable, where points up to the cap of the sampler
# would not say enough: factors of 0.07 GB, for all outputs together.
MOST_EXACT = 3000
# Cap for a sampler that has none of its own: factors of 0.8 GB.
MOST_INDUCING_POINTS = 2000
DEFAULT_SEED = 0


@dataclass(frozen=True, eq=False)
class InducingSet:
    """Inducing points of one data set, as indices or raw inputs.

    Learned input transforms move the training points, and models of other data load our
    state: so transformed coordinates are not kept.
    """

    train_X: Tensor  # `batch_shape x n x d`, the raw training inputs that it belongs to
    index: Tensor | None  # `m` or `batch_shape x m` training rows; None if `given`
    given: Tensor | None  # raw inputs, `m x d` or `batch_shape x m x d`
    is_complete: bool = False  # whether every training point is an inducing point
    is_exact: bool = False  # whether the model runs the code of the exact GP
    stays: bool = False  # whether other hyperparameters do not call for other points

    @classmethod
    def of_points(cls, train_X: Tensor, given: Tensor) -> Self:
        """Given points, raw inputs. Cost: O((m + n) d log(m + n)) for each element."""
        chosen = cls(train_X, None, given)
        unique = train_X[..., chosen.rows.first, :]
        if given.shape[-2] < unique.shape[-2]:
            return chosen
        batch_shape = torch.broadcast_shapes(given.shape[:-2], unique.shape[:-2])
        both = [t.expand(*batch_shape, *t.shape[-2:]) for t in (given, unique)]
        elements = torch.cat(both, dim=-2)
        elements = elements.reshape(-1, *elements.shape[-2:])
        return chosen._completed(all(_covers(e, given.shape[-2]) for e in elements))

    @classmethod
    def of_rows(cls, train_X: Tensor, rows: RepeatedRows, index: Tensor) -> Self:
        """Drawn points, `m` different indices into the unique points."""
        chosen = cls(train_X, rows.first[index], None)
        chosen.__dict__["rows"] = rows
        return chosen._completed(index.shape[-1] == len(rows.first))

    @classmethod
    def of_all(cls, train_X: Tensor) -> Self:
        """All points, of a model that was the exact GP and is conditioned."""
        return cls(train_X, None, train_X, True, is_exact=True, stays=True)

    @cached_property
    def rows(self) -> RepeatedRows:
        """The repeated rows of `train_X`. Cost: O(n d log n), once."""
        with torch.inference_mode(False):  # indices that autograd may keep
            return RepeatedRows.find(self.train_X)

    @property
    def points(self) -> Tensor:
        """The inducing points, `batch_shape x m x d` raw inputs."""
        if self.given is not None:
            return self.given
        if self.index is None or self.index.dim() == 1:
            return self.train_X[..., self.index, :]
        return self.train_X.take_along_dim(self.index.unsqueeze(-1), dim=-2)

    def belongs_to(self, train_X: Tensor) -> bool:
        """Whether it was chosen for `train_X`. Cost: O(1) for the same tensor."""
        return same_tensor(self.train_X, train_X)

    def moved(self, train_X: Tensor, fn: Callable[[Tensor], Tensor]) -> Self:
        """The same points for `train_X`, the training inputs that `fn` has moved."""
        index = None if self.index is None else self.index.to(train_X.device)
        given = None if self.given is None else fn(self.given)
        moved = replace(self, train_X=train_X, index=index, given=given)
        rows = (t.to(train_X.device) for t in self.rows)
        moved.__dict__["rows"] = RepeatedRows(*rows)
        return moved

    def _completed(self, is_complete: bool) -> Self:
        """The same set, given whether it holds every point."""
        is_exact = is_complete and len(self.rows.inverse) <= EXACT_SIZE
        completed = replace(self, is_complete=is_complete, is_exact=is_exact)
        completed.__dict__["rows"] = self.rows
        return completed


def _covers(points: Tensor, num_inducing: int) -> bool:
    """Whether the first rows of `points` (`p x d`) are all that there are."""
    return bool((RepeatedRows.find(points).first < num_inducing).all())


@dataclass(frozen=True, eq=False)
class InducingPoints:
    """How a model comes by its inducing points."""

    given: Tensor | None  # raw inputs that are used at any `n`, or None to draw points
    sampler: InducingPointSampler  # draws them
    keeps_all_of_few: bool  # see `EXACT_SIZE` and `MOST_EXACT`
    max_inducing_points: int | None  # cap on drawn points, or None for the sampler's
    max_memory: int | None  # bytes for all outputs together, or None for no such bound

    def together(
        self, drawn: Sequence[InducingSet], rows: RepeatedRows
    ) -> Tensor | None:
        """What outputs draw together, of what each drew alone; indices into `rows`.

        None where that takes another draw: a sampler's own, of batches, or of too many.
        """
        indices = [each.index for each in drawn]
        known = [index for index in indices if index is not None and index.dim() == 1]
        if not self.are_drawn_freely or len(known) < len(drawn):
            return None
        num_points, num_outputs = len(rows.first), len(drawn)
        union, cap = torch.cat(known).unique(), self.cap(num_outputs)
        if self._prefers_all(min(len(union), cap), num_points, num_outputs):
            return torch.arange(num_points, device=union.device)
        if len(union) > cap or any(each.is_complete for each in drawn):
            return None
        return rows.inverse[union]

    @property
    def are_drawn_freely(self) -> bool:
        """Whether the model itself decides on points and sampler."""
        return self.given is None and self.keeps_all_of_few

    def cap(self, num_outputs: int) -> int:
        """The largest number of points to draw."""
        asked = (self.max_inducing_points, cap_of(self.sampler))
        caps = [cap for cap in asked if cap is not None]
        return min([*(caps or [MOST_INDUCING_POINTS]), *self._in_memory(num_outputs)])

    def is_bound_by_memory(self, num_outputs: int) -> bool:
        """Whether it is `max_memory` that the cap comes from."""
        return self._in_memory(num_outputs) == [self.cap(num_outputs)]

    def takes_all(self, num_points: int, num_outputs: int) -> bool:
        """Whether there are so few different points that the exact GP is cheap."""
        few = min(EXACT_SIZE, self.cap(num_outputs))
        return self.are_drawn_freely and num_points <= few

    @torch.no_grad()
    def draw(
        self,
        kernel: Kernel,
        data: TrainingData,
        *,
        previous: InducingSet | None = None,
        generator: torch.Generator | None = None,
    ) -> InducingSet:
        """The inducing points of the data under the kernel's hyperparameters; O(n m^2).

        A sampler may want the variances under the `previous` ones, by default under
        those that `RecursiveRLSSampler` draws. The default generator has a fixed seed.
        """
        with torch.inference_mode(False):  # indices that autograd may keep
            if self.given is not None:
                return InducingSet.of_points(data.raw_X, self.given)
            before = None if previous is None else previous.index
            index = self._index(kernel, data, before, generator)
            return InducingSet.of_rows(data.raw_X, data.rows, index)

    def _index(
        self,
        kernel: Kernel,
        data: TrainingData,
        before: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Indices into the different points, `batch_shape x m`."""
        num_points, num_outputs = len(data.rows.first), data.noise.shape[:-1].numel()
        if self.takes_all(num_points, num_outputs):
            return torch.arange(num_points, device=data.raw_X.device)
        variance = None
        if uses_variance(self.sampler):
            if before is None:
                first = replace(self, sampler=RecursiveRLSSampler())
                before = data.rows.first[first._index(kernel, data, None, None)]
            variance = _variance_under(kernel, data, before)
        if generator is None:
            generator = torch.Generator().manual_seed(DEFAULT_SEED)
        cap = self.cap(num_outputs)
        index = sample_shared_points(
            with_cap(self.sampler, cap),
            kernel,
            data.points,
            data.folded.noise,
            num_outputs=data.num_outputs,
            generator=generator,
            variance=variance,
            cap=cap,
        )
        if self._prefers_all(index.shape[-1], num_points, num_outputs):
            return torch.arange(num_points, device=index.device)
        return index

    def _prefers_all(self, m: int, num_points: int, num_outputs: int) -> bool:
        """Whether all points are better than `m` drawn: below ten times the cost."""
        if not self.are_drawn_freely or self.max_inducing_points is not None:
            return False
        is_affordable = num_outputs * num_points**2 <= MOST_EXACT**2
        if not is_affordable or any(
            num_points > n for n in self._in_memory(num_outputs)
        ):
            return False
        return m == self.cap(num_outputs) or 3 * m**2 > num_points**2

    def _in_memory(self, num_outputs: int) -> list[int]:
        """The number of points that `max_memory` allows, if it is given."""
        if self.max_memory is None:
            return []
        return [affordable_inducing_points(self.max_memory // max(1, num_outputs))]


def _variance_under(kernel: Kernel, data: TrainingData, index: Tensor) -> Tensor:
    """Variances of the different points if these training rows are inducing points."""
    if data.num_outputs > 1:
        index = index.unsqueeze(-2)
    index = index.expand(*data.X.shape[:-2], -1)
    S = data.X.take_along_dim(index.unsqueeze(-1), dim=-2)
    X, folded = data.points.double(), data.folded
    posterior = NystromPosterior.prior(in_double(kernel, S.dtype), S.double())
    zero, noise = torch.zeros_like(folded.Y), folded.noise
    posterior = posterior.condition(X, zero.double(), noise.double())
    return posterior.moments(X).variance.to(noise)
