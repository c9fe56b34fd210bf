"""What a strategy proposes, and the record of what came of it."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from botorch_sparse.posteriors import RepeatedRows


@dataclass(frozen=True, eq=False)
class Batch:
    """Points to evaluate.

    Attributes:
        X: `b x d` points.
        indices: `b` rows of the candidate table; None on a continuous domain.
        number: Which `ask` proposed it; -1 where several did.
    """

    X: Tensor
    indices: Tensor | None = None
    number: int = -1

    def __len__(self) -> int:
        return self.X.shape[0]

    def unique(self) -> tuple[Tensor, Tensor]:
        """Its different points, for experiments that are repeated in one go.

        Returns:
            `b_u x d` points in the order of their first appearance, and `b_u` numbers
            of evaluations.
        """
        rows = RepeatedRows.find(self.X)
        return self.X[rows.first], rows.inverse.bincount(minlength=len(rows.first))


@dataclass
class BatchRecord:
    """One batch, as it was chosen.

    Attributes:
        size: Points in the batch.
        num_inducing: Inducing points `m` in use while it was chosen (unique points for
            an exact posterior).
        beta: BoTorch's beta, the square of what multiplies the standard deviation; NaN
            for strategies that use none.
        max_variance: Largest posterior variance of a candidate when the batch starts;
            NaN likewise, and on continuous domains.
        ask_seconds: Wall time of `ask`.
        tell_seconds: Wall time of all `tell` that brought feedback for this batch.
    """

    size: int
    num_inducing: int = 0
    beta: float = float("nan")
    max_variance: float = float("nan")
    ask_seconds: float = 0.0
    tell_seconds: float = 0.0


class History:
    """All evaluations in the order of their feedback, and all batches.

    Attributes:
        batches: One `BatchRecord` for each `ask`.
        point_list: `point` as a list, `values` and `Y` likewise in full precision.
        values: See `point_list`.

    Args:
        candidates: `A x d` table; on a continuous domain it has no rows.
    """

    def __init__(self, candidates: Tensor) -> None:
        self._candidates = candidates
        self._extra = candidates[:0]  # points beside the table, with room for more
        self._extra_number: dict[bytes, int] = {}
        self.point_list: list[int] = []
        self.values: list[float] = []
        self._batch: list[int] = []
        self.batches: list[BatchRecord] = []

    def __len__(self) -> int:
        return len(self.values)

    @property
    def point(self) -> Tensor:
        """`n` point numbers: rows of the candidates, then of points beside them."""
        return torch.tensor(self.point_list, dtype=torch.long)

    @property
    def indices(self) -> Tensor:
        """`n` rows of the candidate table, -1 for points that are not in it."""
        point = self.point
        return torch.where(point < len(self._candidates), point, -1)

    @property
    def X(self) -> Tensor:
        """`n x d` points evaluated, repeats included."""
        return self.points(self.point)

    @property
    def Y(self) -> Tensor:
        """`n` observations, on the candidates' device and in their dtype."""
        return torch.tensor(self.values, dtype=torch.float64).to(self._candidates)

    @property
    def batch_number(self) -> Tensor:
        """`n` numbers of the batches that proposed the points, -1 for none."""
        return torch.tensor(self._batch, dtype=torch.long)

    @property
    def num_inducing(self) -> Tensor:
        """Inducing points of each batch."""
        return torch.tensor([b.num_inducing for b in self.batches], dtype=torch.long)

    @property
    def seconds(self) -> float:
        """Wall time spent in `ask` and `tell`."""
        return sum(b.ask_seconds + b.tell_seconds for b in self.batches)

    @property
    def num_unique(self) -> int:
        """Number of different points evaluated."""
        return len(set(self.point_list))

    @property
    def num_switches(self) -> int:
        """How often an evaluation was of another point than the one before."""
        pairs = zip(self.point_list[1:], self.point_list, strict=False)
        return sum(now != before for now, before in pairs)

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self._candidates.device

    def points(self, number: Tensor, there: Tensor | None = None) -> Tensor:
        """Coordinates of point numbers, `k x d`.

        Args:
            number: `k` numbers, on the host.
            there: The same where the points are, if they are there already.
        """
        X, beside = self._candidates, number.cpu() >= len(self._candidates)
        there = number.to(X.device) if there is None else there
        if not beside.any():
            return X[there]
        extra = self._extra[(there - len(X)).clamp_min(0)]
        if beside.all():
            return extra
        rows = X[there.clamp_max(len(X) - 1)]
        return torch.where((there >= len(X)).unsqueeze(-1), extra, rows)

    def append(self, points: list[int], Y: list[float], batch: list[int]) -> None:
        """Add evaluations."""
        self.point_list += points
        self.values += Y
        self._batch += batch

    def add_point(self, x: Tensor) -> int:
        """The number of a point that is not a candidate; equal ones share it."""
        used = len(self._extra_number)
        number = len(self._candidates) + used
        known = self._extra_number.setdefault(row_bytes(x), number)
        if known == number:
            if used == len(self._extra):
                room = self._extra.new_empty(max(16, used), x.shape[-1])
                self._extra = torch.cat([self._extra, room])
            self._extra[used] = x.detach()
        return known

    def truncate(self, num_evaluations: int, num_extra: int) -> None:
        """Forget what came after; undoes a `tell` that failed."""
        for x in self._extra[num_extra : self.num_extra]:
            del self._extra_number[row_bytes(x)]
        for column in (self.point_list, self.values, self._batch):
            del column[num_evaluations:]

    @property
    def num_extra(self) -> int:
        """Number of points told or proposed that are not candidates."""
        return len(self._extra_number)

    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors and plain Python values."""
        return {
            "point": list(self.point_list),
            "Y": list(self.values),
            "batch": list(self._batch),
            "extra": self._extra[: self.num_extra].clone(),
            "batches": [asdict(b) for b in self.batches],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the history that `state_dict` came from."""
        self.point_list, self.values = list(state["point"]), list(state["Y"])
        self._batch = list(state["batch"])
        self._extra, self._extra_number = self._candidates[:0], {}
        for x in state["extra"]:
            self.add_point(x.to(self._candidates))
        self.batches = [BatchRecord(**b) for b in state["batches"]]


def row_bytes(x: Tensor) -> bytes:
    """A hashable key of a point; equal points, negative zeros too, have equal keys."""
    return (x.detach() + 0.0).cpu().numpy().tobytes()
