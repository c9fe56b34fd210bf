"""Batch trials whose size the posterior decides."""

from typing import Any

import torch
from ax.core.search_space import SearchSpaceDigest
from ax.generators.torch.botorch_modular.surrogate import Surrogate
from ax.generators.torch.botorch_modular.utils import choose_botorch_acqf_class
from ax.generators.torch_base import TorchOptConfig
from botorch.acquisition import AcquisitionFunction
from botorch.models import ModelListGP
from botorch.models.model import Model
from torch import Tensor

from botorch_sparse.acquisition import BatchUpperConfidenceBound, GlobalLocal
from botorch_sparse.ax.sparse_acquisition import Candidates, SparseAcquisition
from botorch_sparse.batching import optimize_adaptive_batch

DEFAULT_THRESHOLD = 2.0
# Trials that differ by less, relative to the bounds, are near copies.
NEAR = 0.01


class AdaptiveBatchAcquisition(SparseAcquisition):
    r"""Chooses points until the variances have shrunk too far [Calandriello2020]_.

    `n` points were asked for; the batch ends earlier once a bound on
    :math:`\mathrm{var}_{fb}(x) / \mathrm{var}_t(x)` crosses `ratio_threshold` (see
    `GlobalLocal`), and the point that crosses it is the last. Trials that are pending
    count. Feedback would tell more, from there on, than another point.

    `BatchUpperConfidenceBound` stands back for Ax's choice where it does not apply:
    with several objectives, and with outcome constraints. (The bound of an objective
    that is penalized where it is infeasible is highest at the boundary, where nobody
    ever knows on which side a point is.) Several outcomes have a rule each, and the
    first to be crossed counts.

    Where trials that are pending have crossed the threshold already, and where the
    point would be a near copy of one of them although repeats do not pay, Ax's choice
    takes over: so a `Client` that is asked for eight trials gets eight different ones.

    Its options (`acquisition_options`) are as in `SparseAcquisition`, and
    `ratio_threshold`, the largest ratio of variances allowed, 2 by default.
    """

    option_names = SparseAcquisition.option_names | {"ratio_threshold"}

    def __init__(
        self, surrogate: Surrogate, *, torch_opt_config: TorchOptConfig, **kwargs: Any
    ) -> None:
        self._torch_opt_config = torch_opt_config
        super().__init__(surrogate, torch_opt_config=torch_opt_config, **kwargs)

    def _construct_botorch_acquisition(
        self,
        botorch_acqf_class: type[AcquisitionFunction],
        botorch_acqf_options: dict[str, Any],
        model: Model,
    ) -> AcquisitionFunction:
        chosen, options = botorch_acqf_class, botorch_acqf_options
        if chosen is BatchUpperConfidenceBound and not self._has_bound(model):
            chosen, options = self._class_of_ax(), {}
        return super()._construct_botorch_acquisition(chosen, options, model)

    def _has_bound(self, model: Model) -> bool:
        """Whether one outcome is all that counts."""
        is_list = isinstance(model, ModelListGP) and len(model.models) > 1
        is_constrained = self._outcome_constraints is not None
        return not (is_list or is_constrained or self._torch_opt_config.is_moo)

    def optimize(
        self, n: int, search_space_digest: SearchSpaceDigest, **kwargs: Any
    ) -> Candidates:
        """At most `n` candidates; see `SparseAcquisition.optimize`."""
        is_full = self._is_full()
        if is_full:
            self._use_acqf_of_ax()
        if n == 1 or is_full:
            found = super().optimize(1, search_space_digest, **kwargs)
            if is_full or not self._is_near_copy(found[0]):
                return found
            self._use_acqf_of_ax()
            return super().optimize(1, search_space_digest, **kwargs)
        choices = None if kwargs.get("candidate_set") is not None else self.choices
        if choices is not None and not isinstance(self._model, ModelListGP):
            return self._select_batch(n, self._eligible(choices, kwargs))
        return self._search_batch(n, search_space_digest, kwargs)

    def _class_of_ax(self) -> type[AcquisitionFunction]:
        return choose_botorch_acqf_class(
            search_space_digest=self.search_space_digest,
            torch_opt_config=self._torch_opt_config,
            datasets=self.surrogate.training_data,
        )

    def _use_acqf_of_ax(self) -> None:
        """Reckon with what pending trials may tell, instead of the bound."""
        if self._has_bound(self._model):
            chosen = self._class_of_ax()
            self.acqf = super()._construct_botorch_acquisition(chosen, {}, self._model)

    def _is_full(self) -> bool:
        """Whether the trials that are pending have crossed the threshold."""
        if self.X_pending is None:
            return False
        rules = [GlobalLocal(model, self.X_pending) for model in _each(self._model)]
        bounds = self._bounds()
        return any(rule.terminates(self._threshold, bounds=bounds) for rule in rules)

    def _is_near_copy(self, X: Tensor) -> bool:
        """Whether a `1 x d` point is nearly one that is pending; never if repeats pay.

        A choice that differs is another point.
        """
        if self.X_pending is None or self.allows_repeats():
            return False
        lower, upper = self._bounds()
        width = (upper - lower).clamp_min(torch.finfo(self.dtype).tiny)
        distance = ((self.X_pending - X.to(self.X_pending)).abs() / width).amax(-1)
        return bool(distance.min() < NEAR)

    def _bounds(self) -> Tensor:
        bounds = torch.tensor(self.search_space_digest.bounds, dtype=self.dtype)
        return bounds.T.to(self.device)

    def _select_batch(self, n: int, choices: Tensor) -> Candidates:
        """Rows of a table, embedded once."""
        batch = optimize_adaptive_batch(
            self.acqf,
            GlobalLocal(self._model),
            self._threshold,
            choices=choices,
            max_batch_size=n,
            unique=not self.allows_repeats(),
        )
        return batch.X, batch.values, torch.ones(len(batch.X), dtype=self.dtype)

    def _search_batch(
        self, n: int, search_space_digest: SearchSpaceDigest, kwargs: dict[str, Any]
    ) -> Candidates:
        """Points of the search space, each by Ax's optimizer for it."""
        rules = [GlobalLocal(model, self.X_pending) for model in _each(self._model)]
        bounds, pending = self._bounds(), self.X_pending
        chosen: list[tuple[Tensor, Tensor]] = []
        try:
            while len(chosen) < n:
                options = dict(kwargs.get("optimizer_options") or {})
                X, value, _ = super().optimize(
                    1, search_space_digest, **{**kwargs, "optimizer_options": options}
                )
                chosen.append((X, value.reshape(-1)[:1]))
                self._set_pending(pending, [x for x, _ in chosen])
                for rule in rules:
                    rule.add(X)
                if any(
                    rule.terminates(self._threshold, bounds=bounds) for rule in rules
                ):
                    break
        finally:
            self._set_pending(pending, [])
        Xs, values = zip(*chosen, strict=True)
        return torch.cat(Xs), torch.cat(values), torch.ones(len(Xs), dtype=self.dtype)

    @property
    def _threshold(self) -> float:
        return self.options.get("ratio_threshold", DEFAULT_THRESHOLD)

    def _set_pending(self, pending: Tensor | None, chosen: list[Tensor]) -> None:
        """Make points pending, for the acquisition function and for Ax."""
        points = [*([] if pending is None else [pending]), *chosen]
        self.X_pending = torch.cat(points) if points else None
        self.acqf.set_X_pending(self.X_pending)


def _each(model: Model) -> list[Model]:
    return list(model.models) if isinstance(model, ModelListGP) else [model]
