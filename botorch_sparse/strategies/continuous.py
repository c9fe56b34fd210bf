"""The posterior that strategies on continuous domains learn with: a BoTorch model."""

from copy import copy
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import InputDataError
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.sampling.pathwise.paths import SamplePath
from botorch.utils.sampling import manual_seed
from gpytorch.means import Mean
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.confidence import posterior_mean_norm
from botorch_sparse.acquisition.frozen import FrozenPosterior, freeze
from botorch_sparse.acquisition.gap_stopping import model_confidence_gap
from botorch_sparse.inducing import InducingPointSampler, RecursiveRLSSampler
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.inducing_points import EXACT_SIZE
from botorch_sparse.models.sampling import sample_inducing_points
from botorch_sparse.optim.adaptive_batch import optimize_adaptive_batch
from botorch_sparse.strategies.domain import Box
from botorch_sparse.strategies.folded import FoldedEvaluations
from botorch_sparse.strategies.history import History
from botorch_sparse.strategies.model_building import (
    Hyperparameters,
    ModelBuilder,
    fit_hyperparameters,
    hyperparameters_of,
)
from botorch_sparse.strategies.model_settings import ModelSettings
from botorch_sparse.strategies.rules import BatchRequest
from botorch_sparse.strategies.seeding import draw_seed
from botorch_sparse.strategies.table_prior import announce_scale

GAP_OPTIONS = {"num_restarts": 10, "raw_samples": 1024}
# The features of so many points are computed at a time.
CHUNK_SIZE = 4096


class ModelSurrogate:
    """`SparseSingleTaskGP` whose inducing set is drawn anew each time it learns.

    As on tables ([Calandriello2020]_, Algorithm 1, lines 10-15), but where
    hyperparameters were fitted since: then the variances are those of the previous
    inducing set under the new hyperparameters. Without a sampler all points are
    inducing points, and the model is the exact GP. Where hyperparameters are inferred,
    which no theorem covers, so it is up to 500 points, and from there on 500 is the
    largest number of inducing points.

    Args:
        box: The domain.
        settings: How the model is built, fitted and maximized over.
        sampler: Sampler of inducing points; None for all points.
        initial_sampler: Sampler of the first ones; see `NystromSurrogate`.
        mean_module: The prior mean of a given kernel; see `ModelBuilder`.

    Attributes:
        exact_size: That number of points, where hyperparameters are inferred.
    """

    def __init__(
        self,
        box: Box,
        settings: ModelSettings,
        *,
        sampler: InducingPointSampler | None,
        initial_sampler: InducingPointSampler | None = None,
        mean_module: Mean | None = None,
    ) -> None:
        self.box = box
        self.settings = settings
        self.sampler = sampler
        self.initial_sampler = initial_sampler or RecursiveRLSSampler()
        self.exact_size = EXACT_SIZE
        self.builder = ModelBuilder(
            box.bounds,
            settings.covar_module,
            settings.lam,
            is_fitted=settings.refit is not None,
            mean_module=mean_module,
        )
        self._forget()

    def _forget(self) -> None:
        """Start from the prior."""
        self.model: SparseSingleTaskGP | None = None
        self._frozen: FrozenPosterior | None = None
        self._hyperparameters: Hyperparameters | None = None
        self._inducing: list[int] = []
        self._last_fit: int | None = None
        self._factor = 1.0  # of the lengthscales
        self._is_scale_known = self.settings.covar_module is None
        self.lam = 1.0 if self.settings.lam is None else self.settings.lam

    @property
    def dim(self) -> int:
        """See `Surrogate`."""
        return self.box.dim

    @property
    def num_inducing(self) -> int:
        """Inducing points in use."""
        return len(self._inducing)

    def max_variance(self) -> float:
        """NaN: a maximum over a continuous domain is not known."""
        return float("nan")

    def kernel_config(self) -> dict[str, Any]:
        """See `Surrogate`."""
        return self.builder.kernel_config()

    @torch.no_grad()
    def information_gain(self, history: History) -> float:
        """See `NystromSurrogate.information_gain`, of which this is the same bound."""
        if self.model is None:
            return 0.0
        posterior = self.model.nystrom_posterior()
        log_det = 2.0 * posterior.chol_inner.diagonal().log().sum()
        return max(float(log_det), 0.0) + self.residual_trace(history)

    @torch.no_grad()
    def residual_trace(self, history: History) -> float:
        """See `Surrogate`. Cost: O(n m^2)."""
        if self.model is None:
            return 0.0
        data = FoldedEvaluations.of(history, len(history))
        posterior = self.model.nystrom_posterior()
        X = self.model.transform_inputs(data.X)
        residual = posterior.residual(X, posterior.features(X))
        return float((residual * data.counts).sum()) / self.lam

    def mean_norm(self, history: History) -> float:
        """See `Surrogate`, in units of the model's outcomes. Cost: O(m^2)."""
        if self.model is None:
            return 0.0
        return posterior_mean_norm(self.model.nystrom_posterior())

    def variance(self, history: History, point: Tensor) -> Tensor:
        """Present variances at `k` point numbers, on the scale of `lam`."""
        return self._variance_at(history.points(point).double()).cpu()

    @torch.no_grad()
    def _variance_at(self, X: Tensor) -> Tensor:
        frozen = self._frozen
        if frozen is None:
            return self._variance_of_prior(X)
        chunks = [
            frozen.initial_variance(frozen.features(x)) for x in X.split(CHUNK_SIZE)
        ]
        return torch.cat(chunks)

    def learn(
        self,
        history: History,
        generator: torch.Generator,
        lengthscale_factor: float = 1.0,
    ) -> bool:
        """Fit where that is due, resample the inducing set, and condition.

        See `Surrogate`.
        """
        n = len(history)
        data = FoldedEvaluations.of(history, n)
        is_due = self.settings.is_refit_due(history.values, self._last_fit)
        if is_due:
            seed = draw_seed(generator)
            with manual_seed(seed):
                model = fit_hyperparameters(
                    self.builder,
                    history,
                    data,
                    self._hyperparameters,
                    torch.Generator().manual_seed(seed),
                )
            self._hyperparameters = hyperparameters_of(model)
            self._last_fit = n
        is_other = is_due or lengthscale_factor != self._factor
        self._factor = lengthscale_factor
        if is_other:
            self._condition(history, data, self._inducing)
        self._condition(history, data, self._draw(data, generator))
        if not self._is_scale_known and (self.settings.refit is None or self._last_fit):
            k_diag = float(self._variance_of_prior(data.X).mean())
            self._is_scale_known = announce_scale(data.Y, self.lam, k_diag)
        return is_other

    @torch.no_grad()
    def _variance_of_prior(self, X: Tensor) -> Tensor:
        """Prior variances at `k x d` points under the present hyperparameters."""
        model = self.builder.prior(self._hyperparameters, self._factor)
        return model.covar_module(model.transform_inputs(X), diag=True)

    @torch.no_grad()
    def predict(self, X: Tensor, history: History) -> tuple[Tensor, Tensor]:
        """See `Surrogate`; before any feedback those of the prior."""
        X = X.to(self.box.bounds).double()
        if self.model is None:
            variance = self._variance_of_prior(X)
            return torch.zeros_like(variance), variance.sqrt()
        posterior = self.model.posterior(X)
        return posterior.mean.squeeze(-1), posterior.variance.sqrt().squeeze(-1)

    def _draw(self, data: FoldedEvaluations, generator: torch.Generator) -> list[int]:
        """Numbers of the next inducing points; all where that is cheap."""
        infers_all = self.settings.covar_module is None
        if self.sampler is None or (infers_all and len(data) <= self.exact_size):
            return data.point.tolist()
        fresh = self._frozen is None and len(data) > 1
        model = self.builder.prior(self._hyperparameters, self._factor)
        chosen = sample_inducing_points(
            self.initial_sampler if fresh else self.sampler,
            model.covar_module,
            model.transform_inputs(data.X),
            model.likelihood.noise.detach() / data.counts,
            generator=generator,
            variance=self._variance_at(data.X),
            cap=self.exact_size if infers_all else None,
        )
        return data.point[chosen.cpu()].tolist()

    def _condition(
        self, history: History, data: FoldedEvaluations, inducing: list[int]
    ) -> None:
        """Build the model of all data anew; with no inducing points, forget it."""
        if not inducing:
            self.model = self._frozen = None
            return
        S = history.points(torch.tensor(inducing)).double()
        first = torch.arange(int(data.counts.sum()))
        self.model = self.builder.build(
            history, first, S, self._hyperparameters, self._factor
        )
        self._frozen = freeze(self.model)
        self._inducing = inducing
        self.lam = float(self.model.likelihood.noise.detach())

    def select(
        self, request: BatchRequest, history: History, generator: torch.Generator
    ) -> list[int]:
        """Maximizers of the bound, one after the other, until the rule ends it."""
        if self.model is None:
            raise InputDataError("The model has no data yet: tell some feedback first.")
        pending = history.points(torch.tensor(request.pending).long()).double()
        acqf = BatchUpperConfidenceBound(
            self.model, request.multiplier**2, pending if len(pending) else None
        )
        options = self._options(draw_seed(generator))
        if request.rule.is_single:
            return self._select_one(acqf, request, history, options)
        if request.rule.size is not None:
            return self._select_fixed(acqf, request, history, options)
        batch = optimize_adaptive_batch(
            acqf,
            request.rule.on_model(self.model),
            request.rule.ratio_threshold,
            bounds=options.pop("bounds"),
            max_batch_size=request.limit,
            optimizer_options=options,
        )
        return [history.add_point(x) for x in self.box.clamp(batch.X)]

    def _select_one(
        self,
        acqf: BatchUpperConfidenceBound,
        request: BatchRequest,
        history: History,
        options: dict[str, Any],
    ) -> list[int]:
        """One point, as often as the rule says."""
        with manual_seed(options["options"]["seed"]):
            X, _ = optimize_acqf(acqf, q=1, **options)
        X = self.box.clamp(X)
        variance = float(acqf.frozen.add(X.double()).variance_before[..., -1])
        count = request.rule.evaluations(variance, self.lam, request.limit)
        return [history.add_point(X[0])] * count

    def _select_fixed(
        self,
        acqf: BatchUpperConfidenceBound,
        request: BatchRequest,
        history: History,
        options: dict[str, Any],
    ) -> list[int]:
        """So many points, one after the other."""
        chosen: list[int] = []
        with manual_seed(options["options"]["seed"]):
            for _ in range(request.size):
                X, _ = optimize_acqf(acqf, q=1, **options)
                X = self.box.clamp(X)
                chosen.append(history.add_point(X[0]))
                pending = acqf.X_pending
                X = X.double()
                acqf.set_X_pending(X if pending is None else torch.cat([pending, X]))
        return chosen

    def sample_maximizers(
        self, request: BatchRequest, history: History, generator: torch.Generator
    ) -> list[int]:
        """Maximizers of as many sample paths as the request has points at most."""
        if self.model is None:
            raise InputDataError("The model has no data yet: tell some feedback first.")
        options = self._options(draw_seed(generator))
        chosen = []
        with manual_seed(options["options"]["seed"]):
            for _ in range(request.limit):
                X, _ = optimize_acqf(_PathValue.draw(self.model), q=1, **options)
                chosen.append(history.add_point(self.box.clamp(X)[0]))
        return chosen

    def _options(self, seed: int) -> dict[str, Any]:
        """Arguments of `optimize_acqf`, with randomness from a seed alone."""
        options = self.settings.optimizer_options | self.box.arguments()
        return options | {"options": {**(options.get("options") or {}), "seed": seed}}

    def confidence_gap(self, multiplier: float, offset: float) -> float:
        """The largest upper less the largest lower bound, by local searches.

        These are thorough whatever the options say: a largest upper bound that is
        missed would end a run too early.
        """
        options = self._options(0)
        for name, least in GAP_OPTIONS.items():
            options[name] = max(least, options[name])
        gap = model_confidence_gap(
            self.model,
            multiplier**2,
            bounds=options.pop("bounds"),
            optimizer_options=options,
        )
        return gap + 2 * offset * self._unit()

    def _unit(self) -> float:
        """Units of Y in one of the model's outcomes."""
        transform = getattr(self.model, "outcome_transform", None)
        return 1.0 if transform is None else float(transform.stdvs)

    def snapshot(self) -> dict[str, Any]:
        """See `Surrogate`; no copies, since learning replaces what it changes."""
        return copy(vars(self))

    def restore(self, snapshot: dict[str, Any]) -> None:
        """See `Surrogate`."""
        vars(self).update(snapshot)

    def state_dict(self) -> dict[str, Any]:
        """Inducing points by number, and hyperparameters."""
        return {
            "inducing": list(self._inducing),
            "last_fit": self._last_fit,
            "hyperparameters": self._hyperparameters,
            "lengthscale_factor": self._factor,
        }

    def load_state_dict(
        self, state: dict[str, Any], history: History, num_learned: int
    ) -> None:
        """Condition again on what had been learned, with the same inducing set."""
        self._forget()
        self._last_fit = state["last_fit"]
        self._factor = state["lengthscale_factor"]
        self._hyperparameters = state["hyperparameters"]
        if num_learned > 0:
            data = FoldedEvaluations.of(history, num_learned)
            self._condition(history, data, state["inducing"])


class _PathValue(AcquisitionFunction):
    """The value of one sample path.

    Args:
        model: Whose posterior was drawn from.
        path: A draw of it.
    """

    def __init__(self, model: Model, path: SamplePath) -> None:
        super().__init__(model)
        self.path = path

    @classmethod
    def draw(cls, model: Model) -> "_PathValue":
        """One path, by torch's own randomness."""
        return cls(model, draw_matheron_paths(model, torch.Size([1])))

    def forward(self, X: Tensor) -> Tensor:
        """Values at `b x 1 x d` points, `b`."""
        return self.path(X.squeeze(-2))[0]
