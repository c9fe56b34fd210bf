"""What the benchmark of outliers spoils, measures and prints."""

import pytest
import torch

from benchmarks import outliers
from benchmarks.store import Store


@pytest.mark.parametrize("share", outliers.SHARES)
def test_values_that_are_wrong(share: float) -> None:
    _, f = outliers.points("branin", 200, seed=1)
    assert f.mean().item() == pytest.approx(0.0, abs=1e-9)
    assert f.std().item() == pytest.approx(1.0)
    gross, off = (outliers.spoiled(f, share, kind, seed=1) for kind in outliers.KINDS)
    assert int((gross == -1e6).sum()) == round(200 * share)
    is_wrong = gross == -1e6
    away = (off - f)[is_wrong].abs()
    assert bool(((away - 10).abs() < 5 * outliers.NOISE).all())
    assert bool(((off - f)[~is_wrong].abs() < 5 * outliers.NOISE).all())


def test_densities_are_those_of_noisy_values() -> None:
    class Model:
        def posterior(self, X: torch.Tensor, observation_noise: bool) -> "Model":
            assert observation_noise
            self.mean, self.variance = torch.zeros(4, 1), torch.full((4, 1), 2.0)
            return self

    f = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    found = outliers.predict(Model(), torch.zeros(4, 1), f)  # type: ignore[arg-type]
    assert found["rmse"] == pytest.approx(1.0)
    noise = torch.distributions.Normal(0.0, 2.0**0.5)
    g = torch.Generator().manual_seed(0)
    y = 1.0 + outliers.NOISE * torch.randn(10**6, generator=g)
    expected = -noise.log_prob(y).mean().item()
    assert found["nlpd"] == pytest.approx(expected, abs=1e-3)


def test_regret_is_of_what_is_true_and_tables_have_all() -> None:
    """A strategy that is told lies is judged by the function."""
    store = Store(None)
    for seed in range(2):
        record = outliers.strategy_run("random", "branin", 0.05, "-1e6", seed)
        assert 0 <= record["simple"] <= record["mean"] < 10
        key = ["strategy", "random", "branin", 0.05, "-1e6", seed]
        store.records["/".join(map(str, key))] = record
    for kind, seconds in (("plain", 2.0), ("robust", 3.0)):
        record = {"seconds": seconds, "rmse": 0.5, "nlpd": 1.0}
        store.records[f"model/{kind}/branin/0.0/-1e6/100/0"] = record
    text = outliers.report(store, None)  # type: ignore[arg-type]
    assert "| branin | 100 | 0% | robust | 0.5 | 1.00 | 3 | 1.5 |" in text
    assert "of 100 observations takes 1.5 to 1.5 times the plain one, 1.5 by" in text
    assert "| branin | 5% -1e6 | random |" in text
