"""Trust regions in a search space of Ax; each generation notes what the next needs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TypedDict

import torch
from ax.core.search_space import SearchSpaceDigest
from ax.generators.torch.botorch_modular.surrogate import Surrogate, SurrogateSpec
from ax.generators.torch_base import TorchGenResults, TorchOptConfig
from ax.utils.common.random import with_rng_seed
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from botorch_sparse.ax.cross_validation import LeftOutPredictions
from botorch_sparse.ax.encoded_box import EncodedBox
from botorch_sparse.ax.size_schedule import DEFAULT_GROWTH
from botorch_sparse.ax.sparse_generator import Metadata, SparseGenerator
from botorch_sparse.ax.thompson_acquisition import wanted_outcomes
from botorch_sparse.ax.trial_data import NOTE, TrialData
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import TrustRegionBBKB
from botorch_sparse.strategies.core.trials import Trial, TrialState
from botorch_sparse.strategies.data.run_record import BatchRecord, row_bytes
from botorch_sparse.strategies.trust_region.trust_region_bbkb import MAX_INDUCING

# Evaluations between fits, at least: each takes some tenths of a second.
LEAST_REFIT = 10


class Note(TypedDict):
    """What a generation leaves for the next one, in plain values.

    Attributes:
        space: Names of the columns, and the outcomes by their numbers.
        regions: The regions, with coordinates of their middles.
        priors: Hyperparameters, and when they were fitted.
        learned: First and last numbers of the trials whose results were learned.
    """

    space: list[Any]
    regions: list[dict[str, Any]]
    priors: list[dict[str, Any]]
    learned: list[list[int]]


class TrustRegionGenerator(SparseGenerator):
    """Proposes points by `TrustRegionBBKB`, whatever came from where before.

    The strategy is built anew from the data at each generation. What data do not tell
    is in the metadata of the arms: of each arm its run, and of each generation the
    regions, hyperparameters and the trials that were learned. Ax saves these with the
    experiment. Trials of other origin belong to the runs that went on when they came.

    A model of all data, as that of `SparseGenerator`, predicts, and is not searched: it
    is fitted when a prediction is first asked for. Arms that were just generated are
    predicted by the posterior that they come from.

    The other arguments are as in `SparseGenerator` and in `TrustRegionBBKB`.

    Args:
        batch_size: Arms that are evaluated at a time.
        max_local_points: Inducing points at most of the posterior near the regions.
    """

    def __init__(
        self,
        surrogate_spec: SurrogateSpec | None = None,
        batch_size: int = 1,
        num_regions: int | None = None,
        num_candidates: int | None = None,
        max_local_points: int = MAX_INDUCING,
        num_initial: int | None = None,
        refit_on_cv: bool = False,
        refit_growth: float = DEFAULT_GROWTH,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            surrogate_spec=surrogate_spec,
            refit_on_cv=refit_on_cv,
            refit_growth=refit_growth,
            seed=seed,
        )
        self.batch_size = batch_size
        self.num_regions = num_regions
        self.num_candidates = num_candidates
        self.max_local_points = max_local_points
        self.num_initial = num_initial
        self.data = TrialData((), ())
        self._fit_later: tuple[Any, ...] | None = None
        self._proposed: tuple[Tensor, Tensor, Tensor] | None = None

    def fit(
        self,
        datasets: Sequence[SupervisedDataset],
        search_space_digest: SearchSpaceDigest,
        candidate_metadata: Metadata = None,
        **kwargs: Any,
    ) -> None:
        """Take the data; the model is fitted when it is asked for."""
        self.data = TrialData.of(datasets, candidate_metadata)
        self._fit_later = (datasets, search_space_digest, candidate_metadata, kwargs)
        self._proposed = None

    @property
    def surrogate(self) -> Surrogate:
        """The model of all data, fitted."""
        if self._fit_later is not None:
            *data, kwargs = self._fit_later
            self._fit_later = None
            super().fit(*data, **kwargs)
        return super().surrogate

    @property
    def Xs(self) -> list[Tensor]:
        """The observed points of each data set."""
        return [data.X for data in self.data.datasets]

    def predict(
        self, X: Tensor, use_posterior_predictive: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Predictions; see `BoTorchGenerator.predict`."""
        if self._proposed is not None and not use_posterior_predictive:
            proposed, mean, covariance = self._proposed
            if X.shape == proposed.shape and torch.allclose(X.to(proposed), proposed):
                return mean, covariance
        return super().predict(X, use_posterior_predictive=use_posterior_predictive)

    def best_point(
        self, search_space_digest: SearchSpaceDigest, torch_opt_config: TorchOptConfig
    ) -> Tensor | None:
        """None: trials note none, which would take a fit for each."""
        return None

    def left_out_models(self) -> list[LeftOutPredictions] | None:
        """See `SparseGenerator.left_out_models`."""
        return super().left_out_models() if self.surrogate is not None else None

    def gen(
        self,
        n: int,
        search_space_digest: SearchSpaceDigest,
        torch_opt_config: TorchOptConfig,
    ) -> TorchGenResults:
        """`n` points of the regions. O(n) for as many trials; see `TrustRegionBBKB`.

        Raises:
            UnsupportedError: For learning curves, fidelities and tasks, and for
                objectives and constraints that combine outcomes.
        """
        config, space = torch_opt_config, EncodedBox.of(search_space_digest)
        wanted = wanted_outcomes(
            config.objective_weights,
            config.objective_thresholds,
            config.outcome_constraints,
        )
        with with_rng_seed(self._next_seed(config)):
            seed = int(torch.randint(2**31, ()))
        strategy = TrustRegionBBKB(
            batch_size=self.batch_size,
            num_regions=self.num_regions,
            num_candidates=self.num_candidates,
            max_inducing_points=self.max_local_points,
            num_initial=self.num_initial,
            refit=RefitSchedule(every=max(self.batch_size, LEAST_REFIT)),
            outcomes=wanted.values(),
            seed=seed,
            **space.domain(config),
        )
        columns = [search_space_digest.feature_names, list(wanted)]
        trials = self._restore(strategy, space, config, columns)
        points, runs = list[Tensor](), list[int]()
        while len(points) < n:
            batch = strategy.ask(n - len(points))
            points += batch.X
            runs += strategy.surrogate.runs.of_trial[batch.ids].tolist()
        note = _note(strategy, columns, trials)
        rows = space.rows(torch.stack(points))
        predictions = self._predictions(strategy, torch.stack(points), list(wanted))
        self._proposed = rows, *predictions
        return TorchGenResults(
            rows,
            torch.ones(n, dtype=rows.dtype),
            {"objective_thresholds": _thresholds(strategy, config)},
            [
                {NOTE: {"run": run, **({"regions": note} if i == 0 else {})}}
                for i, run in enumerate(runs)
            ],
        )

    def _restore(
        self,
        strategy: TrustRegionBBKB,
        space: EncodedBox,
        config: TorchOptConfig,
        columns: list[Any],
    ) -> Tensor:
        """Give a strategy the data, and what the last generation noted.

        Returns:
            The numbers of the trials with data.
        """
        outputs = columns[-1]
        X, Y, trial, notes = self.data.reports(outputs)
        note = (self.last_note or {}).get("regions")
        if note is not None and note["space"] != columns:
            note = None  # of another search space: begin anew
        is_known = _within(trial, [] if note is None else note["learned"])
        order = (~is_known).long().argsort(stable=True)  # what was learned comes first
        run = [(notes[place] or {}).get("run", -1) for place in order.tolist()]
        out = config.pending_observations or []
        pending = torch.cat([X[:0], *(out[output] for output in outputs if out)])
        reports = space.points(X[order]), Y[order], trial[order], torch.tensor(run)
        strategy.load_state_dict(
            _state(
                strategy,
                reports,
                space.points(pending.unique(dim=0)),
                note,
                int(is_known.sum()),
            )
        )
        return trial

    def _predictions(
        self, strategy: TrustRegionBBKB, points: Tensor, outputs: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Means and covariances of the outputs, NaN of those that nobody wants."""
        num = sum(data.Y.shape[-1] for data in self.data.datasets)
        known = strategy.predict(points)
        mean = points.new_full((len(points), num), torch.nan)
        variance = mean.clone()
        if known is not None:
            columns = list(outputs)
            mean[:, columns], sd = (each.reshape(len(points), -1) for each in known)
            variance[:, columns] = sd.square()
        return mean, torch.diag_embed(variance)


def _thresholds(strategy: TrustRegionBBKB, config: TorchOptConfig) -> Tensor | None:
    """The reference point in use, in the signs of what is maximized."""
    if len(config.objective_weights) == 1:
        return None
    reference = strategy.history.reference_point().to(config.objective_weights)
    return config.objective_weights.sum(-1).sign() * reference


def _state(
    strategy: TrustRegionBBKB,
    reports: tuple[Tensor, Tensor, Tensor, Tensor],
    pending: Tensor,
    note: Note | None,
    num_learned: int,
) -> dict[str, Any]:
    """The state of a strategy with these reports, `n` of each, and `p` pending points.

    Args:
        strategy: A new one.
        reports: Points, values, numbers of trials in Ax, and runs, -1 for none.
        pending: Points that are being evaluated; they belong to the newest run.
        note: What the last generation noted.
        num_learned: How many of the reports it had learned.
    """
    X, Y, trial, run = reports
    number, points = _numbered(torch.cat([X, pending]))
    point, out = number[: len(X)], number[len(X) :].tolist()
    id_of = dict[tuple[int, int], int]()
    keys = zip(trial.tolist(), point.tolist(), run.tolist(), strict=True)
    ids = [id_of.setdefault((t, p), len(id_of)) if r >= 0 else -1 for t, p, r in keys]
    of_trial = torch.zeros(len(id_of), dtype=torch.long)
    is_ours = run >= 0
    of_trial[torch.tensor(ids, dtype=torch.long)[is_ours]] = run[is_ours]
    state, record = strategy.state_dict(), strategy.record.fork()
    runs = state["surrogate"]["runs"]
    if note is not None:
        state["surrogate"]["priors"] = [_prior(each) for each in note["priors"]]
        runs["regions"] = [_region(each, points) for each in note["regions"]]
    newest = max(region["run"] for region in runs["regions"])
    runs["of_trial"] = torch.cat([of_trial, of_trial.new_full((len(out),), newest)])
    if out:
        record.batches.append(BatchRecord(size=len(out)))
    first = len(id_of)
    return state | {
        "history": record.state_dict()
        | {
            "point": point,
            "Y": strategy.record.outcomes.signed_rows(Y.cpu()),
            "batch": torch.full_like(point, -1),
            "trial": torch.tensor(ids, dtype=torch.long),
            "extra": points,
        },
        "num_proposed": first + len(out),
        "pending": [
            [*Trial(first + i, p, 0)[:-1], TrialState.PENDING.value]
            for i, p in enumerate(out)
        ],
        "num_learned": num_learned,
    }


def _note(strategy: TrustRegionBBKB, space: list[Any], trials: Tensor) -> Note:
    """What the next generation needs of a strategy that learned these trials."""
    state = strategy.surrogate.state_dict()
    regions = [asdict(region) for region in strategy.regions]
    for region in regions:
        if (center := region["center"]) is not None:
            region["center"] = strategy.record.extra.values[center].tolist()
    return Note(
        space=space,
        regions=regions,
        priors=[
            prior
            | {
                "hyperparameters": prior["hyperparameters"]
                and {k: v.tolist() for k, v in prior["hyperparameters"].items()}
            }
            for prior in state["priors"]
        ],
        learned=_ranges(trials),
    )


def _prior(noted: dict[str, Any]) -> dict[str, Any]:
    known = noted["hyperparameters"]
    tensors = known and {
        name: torch.tensor(value, dtype=torch.float64) for name, value in known.items()
    }
    return noted | {"hyperparameters": tensors}


def _region(noted: dict[str, Any], points: Tensor) -> dict[str, Any]:
    """A region whose middle is the point next to where it was."""
    center = noted["center"]
    if center is None or not len(points):
        return noted | {"center": None}
    away = (points - torch.tensor(center, dtype=points.dtype)).square().sum(-1)
    return noted | {"center": int(away.argmin())}


def _numbered(X: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of `n` points by their first rows, and the different points."""
    place, number = dict[bytes, int](), list[int]()
    for x in X.cpu():
        number.append(place.setdefault(row_bytes(x), len(place)))
    first = list[int]()
    for i, n in enumerate(number):
        if n == len(first):
            first.append(i)
    return torch.tensor(number, dtype=torch.long), X.cpu()[first]


def _ranges(trials: Tensor) -> list[list[int]]:
    """First and last numbers of the runs of whole numbers that these are."""
    if not len(trials):
        return []
    every = trials.unique().cpu()
    ends = (every.diff() > 1).nonzero().squeeze(-1) + 1
    return [[int(part[0]), int(part[-1])] for part in every.tensor_split(ends)]


def _within(trials: Tensor, ranges: Sequence[Sequence[int]]) -> Tensor:
    """Which of `n` numbers are within one of the ranges."""
    inside = torch.zeros_like(trials, dtype=torch.bool)
    for first, last in ranges:
        inside |= (first <= trials) & (trials <= last)
    return inside
