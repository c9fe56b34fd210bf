"""Trust regions in a search space of Ax; each generation notes what the next needs."""

from collections.abc import Mapping, Sequence
from typing import Any

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
from botorch_sparse.models import RefitSchedule
from botorch_sparse.strategies import Constraint, Objective, TrustRegionBBKB

# Evaluations between fits, at least: each takes some tenths of a second.
LEAST_REFIT = 4


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

    Attributes:
        data: What was measured.
        last_note: What the newest trial notes of its generation, which the adapter
            sets, as the next.
        failed: `f x e` points of failed and abandoned trials; None for none.
    """

    def __init__(
        self,
        surrogate_spec: SurrogateSpec | None = None,
        batch_size: int = 1,
        num_regions: int | None = None,
        num_candidates: int | None = None,
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
        self.num_initial = num_initial
        self.data = TrialData((), ())
        self.last_note: Mapping[str, Any] | None = None
        self.failed: Tensor | None = None
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
        """The model of all data, fitted when it is first asked for."""
        self._fit_now()
        return super().surrogate

    def _fit_now(self) -> None:
        """Fit the model, unless it is fitted."""
        if self._fit_later is not None:
            *data, kwargs = self._fit_later
            self._fit_later = None
            super().fit(*data, **kwargs)

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
        self._fit_now()
        return super().left_out_models()

    def gen(
        self,
        n: int,
        search_space_digest: SearchSpaceDigest,
        torch_opt_config: TorchOptConfig,
    ) -> TorchGenResults:
        """`n` points of the regions. O(n) for as many trials; see `TrustRegionBBKB`.

        Raises:
            UnsupportedError: For learning curves, fidelities, tasks and hierarchies
                that are not flattened, and for objectives and constraints that
                combine outcomes.
        """
        config, space = torch_opt_config, EncodedBox.of(search_space_digest)
        wanted = wanted_outcomes(
            config.objective_weights,
            config.objective_thresholds,
            config.outcome_constraints,
        )
        strategy = self._new_strategy(space, config, wanted)
        columns = self._columns(search_space_digest, wanted)
        trials = self._restore(strategy, space, config, columns, list(wanted))
        points, runs = list[Tensor](), list[int]()
        while len(points) < n:
            batch = strategy.ask(n - len(points))
            points += batch.X
            runs += strategy.runs_of(batch)
        note = {
            "space": columns,
            "learned": _ranges(trials),
            "strategy": strategy.note(),
        }
        rows = space.rows(torch.stack(points))
        predictions = self._predictions(strategy, torch.stack(points), list(wanted))
        self._proposed = rows, *predictions
        return TorchGenResults(
            rows,
            torch.ones(n, dtype=rows.dtype),
            {"objective_thresholds": _thresholds(strategy, config)},
            [{NOTE: {"run": run, "regions": note}} for run in runs],
        )

    def _new_strategy(
        self,
        space: EncodedBox,
        config: TorchOptConfig,
        wanted: Mapping[int, Objective | Constraint],
    ) -> TrustRegionBBKB:
        """A strategy without data."""
        with with_rng_seed(self._next_seed(config)):
            seed = int(torch.randint(2**31, ()))
        return TrustRegionBBKB(
            batch_size=self.batch_size,
            num_regions=self.num_regions,
            num_candidates=self.num_candidates,
            num_initial=self.num_initial,
            refit=RefitSchedule(every=max(self.batch_size, LEAST_REFIT)),
            outcomes=wanted.values(),
            seed=seed,
            **space.domain(config),
        )

    def _columns(
        self, space: SearchSpaceDigest, wanted: Mapping[int, Objective | Constraint]
    ) -> list[Any]:
        """Features, their ranges and what is wanted: what a note is of.

        Not thresholds and limits: their units change with the data.
        """
        names = [name for data in self.data.datasets for name in data.outcome_names]
        kinds = [
            [names[output], type(each).__name__, getattr(each, "minimize", False)]
            for output, each in wanted.items()
        ]
        sides = [list(map(float, side)) for side in space.bounds]
        return [space.feature_names, sides, kinds]

    def _restore(
        self,
        strategy: TrustRegionBBKB,
        space: EncodedBox,
        config: TorchOptConfig,
        columns: list[Any],
        outputs: list[int],
    ) -> Tensor:
        """Give a strategy the data, and what the last generation noted.

        Returns:
            The numbers of the trials with data.
        """
        X, Y, trial, notes = self.data.reports(outputs)
        note: Mapping[str, Any] = (self.last_note or {}).get("regions") or {}
        if note.get("space") != columns:
            note = {}  # of another search space, or none: begin anew
        is_known = _within(trial, note.get("learned", []))
        order = (~is_known).long().argsort(stable=True)  # what was learned comes first
        out = config.pending_observations or []
        pending = torch.cat([X[:0], *(out[output] for output in outputs if out)])
        strategy.restore(
            space.points(X[order]),
            Y[order],
            trials=trial[order].tolist(),
            runs=[(notes[place] or {}).get("run", -1) for place in order.tolist()],
            num_learned=int(is_known.sum()),
            pending=space.points(pending.unique(dim=0)),
            failed=space.points(X[:0] if self.failed is None else self.failed.to(X)),
            note=note.get("strategy"),
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
