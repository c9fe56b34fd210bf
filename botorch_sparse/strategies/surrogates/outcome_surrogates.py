"""One surrogate for each of several outcomes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from botorch_sparse.batching.acquisition_batch import BoxBatch
from botorch_sparse.batching.rules import (
    GrowingBatch,
    Rule,
)
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.pools.shard import SelectableRows
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies.data.domain import Domain, TableDomain, draw_seed
from botorch_sparse.strategies.data.preference import Preference
from botorch_sparse.strategies.data.run_record import (
    Evaluations,
    RunRecord,
    each_outcome,
)
from botorch_sparse.strategies.surrogates.joint_batch import (
    JointBatch,
    JointBoxBatch,
    JointTableBatch,
    Width,
)
from botorch_sparse.strategies.surrogates.surrogate import JointOutcomes, Surrogate


@dataclass(frozen=True, eq=False)
class OutcomeSurrogates:
    """A `Surrogate` for each outcome, with its own hyperparameters and points; a value.

    Each learns from the evaluations that have its outcome. Outcomes are independent
    of each other. What `Surrogate` has one of, such as `posterior`, has `k` here.

    Attributes:
        parts: The `k` surrogates, in the order of the outcomes.
    """

    parts: tuple[Surrogate, ...]

    @property
    def posterior(self) -> tuple[NystromPosterior | None, ...]:
        """The Nystrom posteriors; None for outcomes without data."""
        return tuple(part.posterior for part in self.parts)

    @property
    def model(self) -> tuple[SparseSingleTaskGP | None, ...]:
        """The BoTorch models of a box; None for outcomes without data."""
        return tuple(part.model for part in self.parts)

    @property
    def inducing(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the inducing points in use."""
        return tuple(part.inducing for part in self.parts)

    def num_inducing(self) -> int:
        """Inducing points in use, of the outcome that has most."""
        return max(part.num_inducing() for part in self.parts)

    def max_variance(self) -> float:
        """Not known: outcomes have units of their own."""
        return float("nan")

    def predict(self, X: Tensor, record: RunRecord) -> tuple[Tensor, Tensor]:
        """Means and standard deviations of `q x d` points, `q x k`."""
        pairs = [
            p.predict(X, r)
            for p, r in zip(self.parts, each_outcome(record), strict=True)
        ]
        mean, sd = (torch.stack(each, dim=-1) for each in zip(*pairs, strict=True))
        return mean, sd

    def certificate(self, record: RunRecord) -> tuple[Any, ...]:
        """How far each is from the exact posterior."""
        return tuple(
            part.certificate(one)
            for part, one in zip(self.parts, each_outcome(record), strict=True)
        )

    def clear(self) -> None:
        """Drop what is kept for later values."""
        for part in self.parts:
            part.clear()

    def learn(self, record: RunRecord, generator: torch.Generator) -> Self:
        """Each learns from the evaluations that have its outcome."""
        return self._changed(
            record, lambda part, one: part.learn(one, generator) if len(one) else part
        )

    def maximizers(
        self,
        num_paths: int,
        selectable: SelectableRows,
        record: RunRecord,
        generator: torch.Generator,
        price: Tensor | None = None,
    ) -> list[int]:
        """Points where paths of all outcomes are best together."""
        views = tuple(part.view for part in self.parts)
        joint = JointOutcomes(views, Preference.of(record))
        return views[0].maximizers(
            num_paths, selectable, record, generator, joint, price
        )

    def batch(
        self,
        widths: Sequence[Width | None],
        rule: Rule | None,
        pending: Sequence[list[int]],
        selectable: SelectableRows,
        record: RunRecord,
        generator: torch.Generator,
        preference: Preference,
        first: int,
    ) -> GrowingBatch:
        """Start a batch by upper confidence bounds on all outcomes.

        Args:
            widths: How far bounds are from the means, for each outcome; None for those
                that have learned nothing.
            rule: What ends each outcome's batch, and with it this one.
            pending: For each outcome the points that are in it from the start.
            selectable: Which rows may be chosen; excluded ones on the host.
            record: Gives points of a box their numbers.
            generator: Source of randomness.
            preference: What is wanted of the outcomes.
            first: Number of the batch's next point in the run. Its scalarization is
                drawn by that, so that a batch is the same however it is asked for.
        """
        views, records = [p.view for p in self.parts], each_outcome(record)
        fork = torch.Generator()
        fork.set_state(generator.get_state())
        seed = draw_seed(fork)

        def draw_weights(place: int) -> Tensor:
            own = torch.Generator().manual_seed(seed + first + place)
            return preference.draw_weights(1, own)

        batches = [
            view.batch(width.multiplier, rule, points, selectable, one, generator)
            if width is not None
            else None
            for view, width, points, one in zip(
                views, widths, pending, records, strict=True
            )
        ]
        kind: type[JointBatch] = JointTableBatch
        if any(isinstance(batch, BoxBatch) for batch in batches):
            kind = JointBoxBatch
        joint = JointOutcomes(tuple(views), preference)
        return kind(joint, widths, draw_weights, batches)

    def with_parts(self, parts: Sequence[Surrogate]) -> Self:
        """With other surrogates of the outcomes."""
        return replace(self, parts=tuple(parts))

    def config(self, domain: Domain) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        return {"surrogates": [part.config(domain) for part in self.parts]}

    def state_dict(self) -> dict[str, Any]:
        """The states of all parts."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def of_state(
        self, state: dict[str, Any], record: RunRecord, num_learned: int
    ) -> Self:
        """What a saved run had learned, to the bit, from `state_dict`."""
        states = iter(state["parts"])
        return self._changed(
            record,
            lambda part, one: part.of_state(next(states), one, one.count(num_learned)),
        )

    def moved(
        self,
        domain: TableDomain,
        number: Mapping[int, int],
        record: RunRecord,
        num_learned: int,
    ) -> Self:
        """The same on another table; see `Surrogate.moved`."""
        return self._changed(
            record,
            lambda part, one: part.moved(domain, number, one, one.count(num_learned)),
        )

    def _changed(
        self, record: RunRecord, change: Callable[[Surrogate, Evaluations], Surrogate]
    ) -> Self:
        """With each part replaced."""
        pairs = zip(self.parts, each_outcome(record), strict=True)
        return replace(self, parts=tuple(change(part, one) for part, one in pairs))
