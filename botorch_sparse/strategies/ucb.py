"""Upper confidence bound strategies on a table of candidates, and their batches."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.acquisition.confidence import ConfidenceRadius, RadiusStatistics
from botorch_sparse.optim.termination import TerminationRule
from botorch_sparse.strategies.base import Strategy
from botorch_sparse.strategies.history import BatchRecord
from botorch_sparse.strategies.surrogates import Surrogate

# Where a batch ends at the latest: points without variance add nothing to any bound.
MAX_BATCH_SIZE = 10_000


class UCBStrategy(Strategy):
    r"""Batches of maximizers of :math:`\mu_{fb}(x) + \beta^{1/2} \sigma_t(x)`.

    Mean and inducing set stand still within a batch, variances shrink with each of its
    points, and a rule ends it. The first point of all is drawn uniformly.

    Args:
        candidates: `A x d` points to choose from.
        surrogate: The posterior.
        radius: The confidence radius.
        statistics: What the radius knows before the first evaluation.
        seed: Seed of the strategy's generator.
    """

    def __init__(
        self,
        candidates: Tensor,
        *,
        surrogate: Surrogate,
        radius: ConfidenceRadius,
        statistics: RadiusStatistics,
        seed: int,
    ) -> None:
        super().__init__(candidates, seed=seed)
        self.surrogate = surrogate
        self.radius = radius
        self.statistics = statistics

    @property
    def posterior(self) -> Any:
        """The posterior that batches are chosen with; None before any feedback."""
        return getattr(self.surrogate.pool, "posterior", None)

    @abstractmethod
    def _rule(self) -> TerminationRule | None:
        """A rule for a new batch; None for batches of one point."""

    def _select(self, max_batch_size: int | None) -> list[int]:
        if self._num_learned == 0:
            return torch.randint(
                len(self.candidates), (1,), generator=self.generator
            ).tolist()
        lam = self.statistics.lam
        multiplier = self.radius.multiplier(self.statistics)
        ucb = self.surrogate.pool.ucb(multiplier, lam)
        rule, limit = self._rule(), max_batch_size or MAX_BATCH_SIZE
        chosen: list[int] = []
        for index, _ in self._pending:
            variance = ucb.append(index)
            if rule is not None:
                rule.add(index, variance)
        while True:
            index = ucb.argmax()
            chosen.append(index)
            if rule is None or len(chosen) == limit:
                return chosen
            if not rule.add(index, ucb.append(index)):
                return chosen

    def _learn(self) -> None:
        """Steps 1-4 of a batch's end, in the order of Algorithm 1.

        The log-determinant and the inducing set are taken with the variances from
        before the feedback; then the posterior is built.
        """
        snapshot, generator = self.surrogate.snapshot(), self.generator.get_state()
        try:
            self._learn_in_order()
        except BaseException:
            self.surrogate.restore(snapshot)
            self.generator.set_state(generator)
            raise
        super()._learn()

    def _learn_in_order(self) -> None:
        history, lam = self.history, self.statistics.lam
        new = history.point[self._num_learned :]
        leverage = self._finite(self.surrogate.variance(history, new)) / lam
        statistics = self.statistics.add_batch(leverage)
        self.surrogate.learn(history, self.generator)
        if self._num_learned == 0:
            statistics = self._with_chain_rule(statistics)
        variance = self._finite(self.surrogate.variance(history, history.point))
        self.statistics = replace(statistics, leverage_sum=float(variance.sum()) / lam)

    @staticmethod
    def _finite(variance: Tensor) -> Tensor:
        """The variances, if they are finite."""
        if not variance.isfinite().all():
            raise InputDataError(
                "The kernel returned NaN or infinity, and nothing was learned. Check "
                "the points told and the kernel's hyperparameters."
            )
        return variance

    def _with_chain_rule(self, statistics: RadiusStatistics) -> RadiusStatistics:
        r"""The sums over the first feedback, by the chain rule where that is smaller.

        Data that a strategy starts from were not chosen as one batch under the prior:
        their :math:`\sum_s \log(1 + v_s)` with sequential variances is the information
        gain, and :math:`\log(1 + 3 v) \le 3 \log(1 + v)`.
        """
        gain = self.surrogate.information_gain(self.history)
        return replace(
            statistics,
            log_det_sum=min(statistics.log_det_sum, gain),
            log_det_sum_inflated=min(statistics.log_det_sum_inflated, 3 * gain),
        )

    def _describe(self) -> BatchRecord:
        return BatchRecord(
            size=0,
            num_inducing=self.surrogate.num_inducing,
            beta=self.radius.botorch_beta(self.statistics),
            max_variance=float(self.surrogate.pool.variance.max()),
        )

    def state_dict(self) -> dict[str, Any]:
        """See `Strategy.state_dict`."""
        statistics = {
            "num_evaluations": self.statistics.num_evaluations,
            "log_det_sum": self.statistics.log_det_sum,
            "log_det_sum_inflated": self.statistics.log_det_sum_inflated,
            "leverage_sum": self.statistics.leverage_sum,
        }
        return super().state_dict() | {
            "statistics": statistics,
            "surrogate": self.surrogate.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Strategy.load_state_dict`."""
        super().load_state_dict(state)
        self.statistics = replace(self.statistics, **state["statistics"])
        self.surrogate.load_state_dict(
            state["surrogate"], self.history, self._num_learned
        )

    def _config(self) -> dict[str, Any]:
        return super()._config() | {
            "kernel": _fingerprint(self.surrogate),
            "lam": self.statistics.lam,
            "ratio_threshold": self.statistics.ratio_threshold,
            "radius": repr(self.radius),
        }


@torch.no_grad()
def _fingerprint(surrogate: Surrogate) -> dict[str, Any]:
    """A kernel's parameters, exactly, and a few values for what it makes of them.

    The values are rounded, since they may differ in the last bits between machines.
    """
    X, covar_module = surrogate.pool.X, surrogate.covar_module
    K = covar_module(X[:: -(-len(X) // 4)]).to_dense()
    state = {name: value.tolist() for name, value in covar_module.state_dict().items()}
    return {"values": [f"{value:.4g}" for value in K.flatten().tolist()]} | state


def validate_lam(lam: float) -> None:
    """Refuse a regularizer that is not positive."""
    if not lam > 0:
        raise InputDataError(
            f"Got lam={lam}; need a positive noise variance, such as 1e-4 times the "
            "variance of the observations."
        )
