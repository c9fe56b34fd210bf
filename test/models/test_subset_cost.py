"""What it costs to choose rows again and to predict after it."""

from typing import Any

import pytest
import torch
from subset_model_cases import Recorded, make_data, make_model, rows

close = torch.testing.assert_close


@pytest.mark.parametrize("selection", ["gradient", "random", "recent"])
@pytest.mark.parametrize("noise_scale", [0.0, 0.1])
def test_reselection_makes_nothing_of_size_n_squared(
    selection: str, noise_scale: float, double: dict[str, Any]
) -> None:
    n, size = 400, 10
    data = make_data(n + 1, **double)
    options = {"selection": selection, "noise_scale": noise_scale}
    model = make_model(rows(data, slice(n)), subset_size=size, **options)
    with Recorded() as done:
        model.add_observations(*rows(data, slice(n, n + 1)))
        model.posterior(data[0][:3])
    assert 0 < done.numel <= 4 * n * size
    assert max(done.factorizations) == size


def test_points_apart_share_the_factor(double: dict[str, Any]) -> None:
    """An acquisition function asks for `b x 1` points: not b copies of M x M."""
    data = make_data(150, **double)
    model = make_model(data, subset_size=100).eval()
    points = data[0][:60]
    with torch.no_grad(), Recorded() as first:
        variance = model.posterior(points.unsqueeze(-2)).variance
    assert first.numel <= 60 * 100 * 10  # and not 60 * 100 * 100
    close(variance.squeeze(-1), model.posterior(points).variance)
    with Recorded() as warm:
        model.posterior(points)
    assert warm.factorizations == []
