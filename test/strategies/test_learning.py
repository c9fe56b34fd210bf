"""What strategies learn: the statistics, the end of a batch, and the optimum."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import box_table
import dense_posteriors
import numpy as np
import pytest
import strategy_table
import torch
from gpytorch.means import Mean, ZeroMean
from strategy_table import GP, TABLE, objective
from torch import Tensor

from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.strategies import BBKB

LAM = 1e-2
rbf = partial(dense_posteriors.rbf, lengthscale=0.3)
dense_posterior = partial(dense_posteriors.dense_moments, lengthscale=0.3, noise=LAM)
# The papers' setting, and a constant that the data decide on.
MEANS = [ZeroMean(), None]
OUTSIDE = torch.tensor([[1.5, -0.5], [0.1, 2.0], [1.5, -0.5]], dtype=torch.float64)


def inducing(strategy: Any) -> Tensor | None:
    """The inducing points that the strategy saves; None for the exact posterior."""
    saved = strategy.surrogate.state_dict().get("inducing")
    return (
        None if saved is None else strategy.history.points(torch.tensor(saved).long())
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mean_module", MEANS, ids=repr)
@pytest.mark.parametrize("name", GP)
def test_statistics_are_dense(name: str, mean_module: Mean | None) -> None:
    """All sums anew, each evaluation with the variance at the start of its batch."""
    strategy = TABLE[name](lam=LAM, mean_module=mean_module)
    has_constant = mean_module is None
    candidates = strategy.candidates
    log_det, inflated = 0.0, 0.0
    S: Tensor | None = None if name.startswith("gp") else torch.zeros(0, 2)
    for step in range(12):
        batch = strategy.ask(30)
        history = strategy.history
        _, before = dense_posterior(history.X, history.Y, S, batch.X)
        log_det += np.log1p(before / LAM).sum()
        inflated += np.log1p(3 * before / LAM).sum()
        strategy.tell(batch, objective(batch.X))
        S = inducing(strategy)
        mean, variance = dense_posterior(
            history.X, history.Y, S, candidates, has_constant=has_constant
        )
        pool = strategy.surrogate.view.pool
        np.testing.assert_allclose(pool.all_moments().mean.numpy(), mean, atol=1e-6)
        np.testing.assert_allclose(
            pool.all_moments().variance.numpy(), variance, rtol=2e-5, atol=1e-8
        )
        statistics = strategy.statistics
        assert statistics.num_evaluations == len(history)
        assert statistics.log_det_sum == pytest.approx(log_det, rel=1e-5)
        if step == 0:  # by the chain rule where that is smaller
            inflated = min(inflated, 3 * log_det)
        assert statistics.log_det_sum_inflated == pytest.approx(inflated, rel=1e-5)
        _, now = dense_posterior(history.X, history.Y, S, history.X)
        expected = now.sum() / LAM if name == "bkb" else 0.0
        assert statistics.leverage_sum == pytest.approx(expected, rel=1e-4)
        gain = np.linalg.slogdet(np.eye(len(history)) + rbf(history.X, history.X) / LAM)
        assert 1.0001 * statistics.log_det_sum >= gain[1] or S is not None


@pytest.mark.parametrize("name", GP)
def test_first_feedback_counts_by_the_chain_rule(name: str) -> None:
    strategy = TABLE[name](lam=LAM)
    X = strategy.candidates[:20].repeat(3, 1)
    strategy.tell(X, objective(X))
    S = inducing(strategy)
    K = rbf(X, X)
    if S is not None:
        K = rbf(X, S) @ np.linalg.pinv(rbf(S, S), rcond=1e-13) @ rbf(S, X)
    gain = np.linalg.slogdet(np.eye(60) + K / LAM)[1]
    assert gain < 60 * math.log1p(1 / LAM)
    assert strategy.statistics.log_det_sum == pytest.approx(gain, rel=1e-6)
    inflated = min(3 * gain, 60 * math.log1p(3 / LAM))
    assert strategy.statistics.log_det_sum_inflated == pytest.approx(inflated, rel=1e-6)


def test_batch_records_say_what_was_used() -> None:
    for name in GP:
        strategy = TABLE[name]()
        strategy.run(objective, 30, progress=False)
        beta = strategy.radius.botorch_beta(strategy.statistics)
        variance = float(strategy.surrogate.view.pool.all_moments().variance.max())
        m = strategy.surrogate.view.num_inducing()
        strategy.ask(3)
        record = strategy.history.batches[-1]
        assert (record.beta, record.max_variance) == (beta, variance)
        assert record.num_inducing == m


def warm(case: str) -> tuple[Any, Any, Any]:
    """A strategy that has learned, its objective, and its dense posterior."""
    if case.startswith("box-"):
        strategy = box_table.TABLE[case.removeprefix("box-")]()
        X = strategy.box.sample(12, 3)
        X = torch.cat([X, X[:4]])
        strategy.tell(X, box_table.objective(X))
        given = {"lengthscale": torch.tensor([0.8, 0.4]).double()}
        posterior = partial(
            dense_posteriors.dense_moments, noise=box_table.LAM, **given
        )
        return strategy, box_table.objective, posterior
    strategy = TABLE["bbkb-global"](lam=LAM)
    strategy.run(objective, 30, progress=False)
    if case == "outside":
        strategy.tell(OUTSIDE, objective(OUTSIDE))
    return strategy, objective, dense_posterior


@pytest.mark.parametrize("case", ["table", "outside", "box-bbkb-global", "box-bkb"])
def test_order_of_a_batchs_end(case: str) -> None:
    """The inducing set is drawn with variances from before the feedback, with counts
    that include it, before the posterior is built anew."""
    strategy, f, dense_posterior = warm(case)
    lam = strategy.statistics.lam
    seen: list[dict[str, Any]] = []
    sampler = PosteriorVarianceSampler(2.0)

    def spy(covar_module: Any, X: Tensor, noise: Tensor, **kwargs: Any) -> Tensor:
        chosen = sampler(covar_module, X, noise, **kwargs)
        seen.append(kwargs | {"X": X, "noise": noise, "chosen": chosen})
        return chosen

    strategy.surrogate = replace(strategy.surrogate, sampler=spy)
    for _ in range(3):
        batch = strategy.ask()
        history = strategy.history
        X, Y, S = history.X, history.Y, inducing(strategy)
        log_det = strategy.statistics.log_det_sum
        strategy.tell(batch, f(batch.X))
        drawn = seen[-1]
        unique, counts = history.X.unique(dim=0, return_counts=True)
        place = [(unique == x).all(-1).nonzero().item() for x in drawn["X"]]
        assert sorted(place) == list(range(len(unique)))  # the batch's points too
        torch.testing.assert_close(drawn["noise"], lam / counts[place].double())
        _, before = dense_posterior(X, Y, S, drawn["X"])
        torch.testing.assert_close(
            drawn["variance"], torch.from_numpy(before), rtol=1e-5, atol=1e-7
        )
        _, before = dense_posterior(X, Y, S, batch.X)
        grown = log_det + np.log1p(before / lam).sum()
        assert strategy.statistics.log_det_sum == pytest.approx(grown, rel=1e-6)
        new = inducing(strategy)
        assert new is not None and torch.equal(new, drawn["X"][drawn["chosen"]])
    assert len(seen) == 3


# A constant that the data decide on takes a few evaluations to learn.
@pytest.mark.one_in(4)
@pytest.mark.parametrize("mean_module, most", [(MEANS[0], 0.1), (None, 0.125)])
@pytest.mark.parametrize("termination", ["global", "global-local"])
def test_finds_the_best_of_300(
    termination: str, mean_module: Mean | None, most: float
) -> None:
    X = strategy_table.make_candidates(300)
    f = torch.sin(5 * X[:, 0]) * torch.cos(3 * X[:, 1])
    uniform = float((f.max() - f).mean())
    for seed in range(2):
        g = torch.Generator().manual_seed(seed)
        strategy = BBKB(
            X,
            covar_module=strategy_table.make_kernel(0.3),
            lam=1e-2,
            noise_variance=1e-2,
            delta=1 / 400,
            termination=termination,
            mean_module=mean_module,
            seed=seed,
        )

        def noisy(index: Tensor, g: torch.Generator = g) -> Tensor:
            return f[index] + 0.1 * torch.randn(len(index), generator=g).double()

        history = strategy.run(noisy, 400, progress=False, by_index=True)
        assert int(f.argmax()) in history.indices.tolist()
        last = history.indices[-130:]
        assert float((f.max() - f[last]).mean()) < most * uniform
        m = history.num_inducing
        assert int(m.max()) < 100 and len(history.batches) < 200


@dataclass(frozen=True)
class First:
    """A sampler that takes the first points."""

    uses_variance: ClassVar[bool] = False
    num: int

    def __call__(self, covar_module: Any, X: Tensor, *args: Any, **kwargs: Any) -> Any:
        return torch.arange(self.num, device=X.device)


@pytest.mark.parametrize("sampler, least", [(None, 0.0), (First(4), 0.5)])
def test_information_gain_of_a_warm_start_is_a_bound(
    sampler: Any, least: float
) -> None:
    """log det(I + K/lam) from above, within what the inducing points leave.

    Of four points that is most of it.
    """
    strategy = TABLE["bbkb-global"](lam=LAM, initial_sampler=sampler)
    X = strategy.candidates[torch.arange(60).repeat(2)]
    strategy.tell(X, objective(X))
    exact = np.linalg.slogdet(np.eye(len(X)) + rbf(X, X) / LAM)[1]
    S = inducing(strategy)
    assert S is not None and len(S) < 60
    bound = strategy.surrogate.view.information_gain(strategy.record)
    basis = np.linalg.cholesky(rbf(S, S) + 1e-12 * np.eye(len(S)))
    Q = np.linalg.solve(basis, rbf(S, X))
    left = np.trace(rbf(X, X) - Q.T @ Q) / LAM
    embedded = np.linalg.slogdet(np.eye(len(X)) + Q.T @ Q / LAM)[1]
    assert left >= least * bound
    assert bound >= exact * (1 - 1e-6)
    assert bound == pytest.approx(embedded + left, rel=1e-6)
