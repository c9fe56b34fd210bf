"""A run of trust regions from results that are kept elsewhere, and a note of the rest.

What results do not tell: the regions, the hyperparameters, and whose a point is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import as_array, short_repr
from botorch_sparse.posteriors import RepeatedRows
from botorch_sparse.strategies.core.trials import Trial, TrialState
from botorch_sparse.strategies.data.run_record import BatchRecord, RunRecord
from botorch_sparse.strategies.trust_region.local_surrogate import LocalSurrogate


class RegionNote(TypedDict):
    """Where regions stand, in plain values that JSON takes.

    Attributes:
        regions: The regions, with coordinates of their middles.
        priors: Hyperparameters and scale of each outcome, and when they were fitted.
        axes: `d x d` axes of a turned region, or None.
    """

    regions: list[dict[str, Any]]
    priors: list[dict[str, Any]]
    axes: list[list[float]] | None


@dataclass(frozen=True)
class Reports:
    """Results in the order in which they were learned, those that are new last.

    Attributes:
        X: `n x d` points.
        Y: `n x k` values in the user's signs, NaN where one was not measured.
        trials: `n` numbers; reports with the same one and point are of one evaluation.
        runs: `n` runs that the points were proposed for, -1 for none.
        num_learned: How many were learned when the note was written.
    """

    X: Tensor
    Y: Tensor
    trials: Tensor
    runs: Tensor
    num_learned: int


def note_of(surrogate: LocalSurrogate, record: RunRecord) -> RegionNote:
    """Where the regions of a strategy stand."""
    regions = [asdict(region) for region in surrogate.regions]
    for region in regions:
        if region["center"] is not None:
            center = record.points(torch.tensor([region["center"]]))
            region["center"] = center[0].tolist()
    priors = surrogate.state_dict()["priors"]
    axes = None if surrogate.axes is None else surrogate.axes.tolist()
    plain = [_plain(prior) for prior in priors]
    return RegionNote(regions=regions, priors=plain, axes=axes)


def restored_state(
    state: Mapping[str, Any],
    record: RunRecord,
    reports: Reports,
    pending: Tensor,
    failed: Tensor,
    note: RegionNote | None,
) -> dict[str, Any]:
    """The state of a strategy that had these reports.

    Args:
        state: Of a strategy without any.
        record: Its record.
        reports: The results.
        pending: `p x d` points that are being evaluated. They belong to the newest run.
        failed: `f x d` points that gave no result.
        note: Where the regions stood; None if they begin.
    """
    num, last = len(reports.X), len(reports.X) + len(pending)
    X = torch.cat([reports.X, pending, failed]).cpu()
    rows = RepeatedRows.find(X)
    number, points = rows.inverse, X[rows.first]
    point, out = number[:num], number[num:last].tolist()
    trial, of_trial = _trials(reports, point)
    runs = dict(state["surrogate"]["runs"])
    priors, axes = state["surrogate"]["priors"], None
    if note is not None:
        priors = [_prior(each) for each in note["priors"]]
        runs["regions"] = [
            _region(each, points, point.unique()) for each in note["regions"]
        ]
        if (noted := note.get("axes")) is not None:
            axes = torch.tensor(noted, dtype=torch.float64)
    newest = max(region["run"] for region in runs["regions"])
    runs["of_trial"] = torch.cat([of_trial, of_trial.new_full((len(out),), newest)])
    draft, first = record.fork(), len(of_trial)
    if out:
        draft.batches.append(BatchRecord(size=len(out)))
    columns = {
        "point": point,
        "Y": record.outcomes.signed_rows(reports.Y.cpu().double()),
        "batch": torch.full_like(point, -1),
        "trial": trial,
        "extra": points,
    }
    awaited = [Trial(first + i, p, 0) for i, p in enumerate(out)]
    return {
        **state,
        "history": draft.state_dict() | columns,
        "surrogate": {"priors": priors, "runs": runs, "axes": axes},
        "num_proposed": first + len(out),
        "pending": [[*each[:-1], TrialState.PENDING.value] for each in awaited],
        "failed": number[last:].unique().tolist(),
        "num_learned": reports.num_learned,
    }


def whole_numbers(name: str, value: object) -> Tensor:
    """Whole numbers, as trials and runs have them."""
    need = "need a whole number for each point."
    given = as_array(name, value, need, "iuf")
    numbers = given.long()
    if not torch.equal(numbers.to(given), given):
        raise InputDataError(f"Got {name}={short_repr(value)}; {need}")
    return numbers


def check_note(note: RegionNote, dim: int, num_outcomes: int) -> None:
    """Refuse a note of regions with other features or outcomes."""
    need = f"need a note of {dim} features and {num_outcomes} outcomes."
    try:
        centers = [region["center"] for region in note["regions"]]
        num, dims = len(note["priors"]), {len(c) for c in centers if c is not None}
        if (axes := note.get("axes")) is not None:
            dims |= {len(axes), *map(len, axes)}
        parts = [region.get("part") for region in note["regions"]]
        dims |= {_dim_of(part) for part in parts if part is not None}
    except (KeyError, TypeError, ValueError) as error:
        got = f"note={short_repr(note)} that no strategy made"
        raise InputDataError(f"Got {got}; {need}") from error
    if num != num_outcomes or dims - {dim}:
        raise InputDataError(
            f"Got a note of {sorted(dims)} features and {num} outcomes; {need} Leave "
            "it out to begin anew."
        )


def _dim_of(part: Sequence[Sequence[float]]) -> int:
    """Features of a part, whose lower ends are below the upper ones."""
    lower, upper = part
    pairs = zip(lower, upper, strict=True)
    if not all(0 <= low < high <= 1 for low, high in pairs):
        raise ValueError
    return len(lower)


def _trials(reports: Reports, point: Tensor) -> tuple[Tensor, Tensor]:
    """Ids of the reports' trials, and the run of each id."""
    ids, of_trial = dict[tuple[int, int], int](), list[int]()
    found = list[int]()
    columns = (reports.trials.tolist(), point.tolist(), reports.runs.tolist())
    for trial, number, run in zip(*columns, strict=True):
        if (trial, number) not in ids:
            ids[trial, number] = len(of_trial)
            of_trial.append(run)
        found.append(ids[trial, number])
    return torch.tensor(found).long(), torch.tensor(of_trial).long()


def _plain(prior: Mapping[str, Any]) -> dict[str, Any]:
    """A prior's state with lists in place of tensors."""
    known = prior["hyperparameters"]
    lists = known and {name: value.tolist() for name, value in known.items()}
    return {**prior, "hyperparameters": lists}


def _prior(noted: Mapping[str, Any]) -> dict[str, Any]:
    known = noted["hyperparameters"]
    tensors = known and {
        name: torch.tensor(value, dtype=torch.float64) for name, value in known.items()
    }
    return {**noted, "hyperparameters": tensors}


def _region(noted: Mapping[str, Any], points: Tensor, known: Tensor) -> dict[str, Any]:
    """A region whose middle is the point next to where it was, of those evaluated."""
    center, part = noted["center"], noted.get("part")
    plain = {**noted, "part": part and tuple(map(tuple, part)), "center": None}
    if center is None or not len(known):
        return plain
    away = (points[known] - torch.tensor(center, dtype=points.dtype)).square().sum(-1)
    return {**plain, "center": int(known[away.argmin()])}
