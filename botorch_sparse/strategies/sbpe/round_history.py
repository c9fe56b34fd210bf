"""The record of S-BPE's batches, beside that of its asks."""

from dataclasses import asdict, dataclass
from typing import Any

from botorch_sparse.strategies.data.evaluations import RunRecord
from botorch_sparse.strategies.data.history import History


@dataclass(frozen=True)
class Round:
    """One batch of S-BPE: points chosen blindly, then one look at their feedback.

    A first batch that a kernel is fitted to has no bounds, and leaves all.

    Attributes:
        length: Points that the schedule gave it.
        num_evaluations: Points whose feedback was there at its end.
        num_inducing: Inducing points of its posterior.
        survivors: Candidates left after it; None on a continuous domain.
        fraction: Share of what it explored that is left after it.
        beta: BoTorch's beta, the square of what multiplies the standard deviation.
        offset: What is added to the radius whatever the variance, in units of Y.
        lambda_max: Certified upper bound on the largest eigenvalue of the residual
            matrix at its points, in units of the noise variance.
        max_width: Largest width of its intervals over what is left, in units of Y.
    """

    length: int
    num_evaluations: int = 0
    num_inducing: int = 0
    survivors: int | None = None
    fraction: float = 1.0
    beta: float = float("nan")
    offset: float = 0.0
    lambda_max: float = float("nan")
    max_width: float = float("inf")


class RoundRecord(RunRecord):
    """A record with what became of S-BPE's batches.

    Attributes:
        rounds: One `Round` for each batch that has ended; replaced by a longer one.
    """

    rounds: tuple[Round, ...] = ()


class RoundHistory(History):
    """Evaluations, asks, and rounds of feedback."""

    record_type = RoundRecord

    @property
    def rounds(self) -> list[Round]:
        """One `Round` for each batch that has ended."""
        return list(self._rounds)

    @property
    def _rounds(self) -> tuple[Round, ...]:
        assert isinstance(self._record, RoundRecord)
        return self._record.rounds

    def state_dict(self) -> dict[str, Any]:
        """See `History.state_dict`."""
        return super().state_dict() | {"rounds": [asdict(r) for r in self._rounds]}

    def _read(self, state: dict[str, Any]) -> RunRecord:
        record = super()._read(state)
        assert isinstance(record, RoundRecord)
        record.rounds = tuple(Round(**r) for r in state["rounds"])
        return record
