"""The pseudo-observations that explain most of the candidates come first in bounds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class Order:
    """Inducing points that explain much of the candidates, kept between boundaries.

    Attributes:
        points: The points as bytes, those first that explain most.
        share: What the first bound left when the order was new; zero before that.
    """

    points: tuple[bytes, ...] = ()
    share: float = 0.0

    def of(self, keys: Sequence[bytes]) -> list[int]:
        """Where those of them are that are still among the inducing points."""
        place = {key: i for i, key in enumerate(keys)}
        return list(dict.fromkeys(place[key] for key in self.points if key in place))

    def after(self, share: float) -> "Order":
        """The order for the next boundary; none where the share has doubled."""
        if self.share == 0.0:
            return Order(self.points, max(share, 1e-2))
        return self if share <= 2 * self.share else Order()


def greedy_order(F: Tensor, sample: Tensor) -> list[int]:
    """The third of the pseudo-observations that explain most of a sample.

    Args:
        F: `m x m`, the factor of their covariance.
        sample: `m x k` covariances of them with the sample.

    Returns:
        Their indices. Cost: O(m^2 (m + k)).
    """
    rest, explained = (F @ F.mT).numpy(), sample.numpy().copy()
    variance = rest.diagonal().copy()
    least = 1e-14 * variance
    order: list[int] = []
    for _ in range(-(-len(F) // 3)):
        score = np.einsum("ij,ij->i", explained, explained)
        score /= np.maximum(rest.diagonal(), least)
        score[order] = -1.0
        j = int(score.argmax())
        order.append(j)
        column = rest[:, j] / max(rest[j, j], least[j])
        explained -= np.outer(column, explained[j])
        rest -= np.outer(column, rest[j])
    return order
