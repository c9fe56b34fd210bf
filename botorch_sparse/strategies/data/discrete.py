"""Features of a box that take some values: numbers with an order, and categories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import torch
from botorch.exceptions import InputDataError
from torch import Tensor
from torch.nn.functional import one_hot

from botorch_sparse.argument_checks import as_numbers, check_kind, check_whole

Values: TypeAlias = Mapping[int, Sequence[float]]


@dataclass(frozen=True, eq=False)
class DiscreteFeatures:
    """The values of the features that take some only.

    Attributes:
        ordered: Ascending values of features such as counts, float64, by index.
        categories: The same of features whose values have no order.
    """

    ordered: Mapping[int, Tensor] = field(default_factory=dict)
    categories: Mapping[int, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls, bounds: Tensor, discrete_dims: Values | None, cat_dims: Values | None
    ) -> "DiscreteFeatures":
        """Those of a box with `2 x d` bounds, from what a user gave.

        Raises:
            InputDataError: If an index or a value is outside of the box, a feature has
                less than two values, or comes twice.
        """
        found = cls(
            _values("discrete_dims", bounds, discrete_dims),
            _values("cat_dims", bounds, cat_dims),
        )
        if both := sorted(found.ordered.keys() & found.categories.keys()):
            raise InputDataError(
                f"Got the features {both} in discrete_dims and in cat_dims; need each "
                "in one of them: cat_dims where the values have no order."
            )
        return found

    @cached_property
    def values(self) -> dict[int, Tensor]:
        """Values of all of them, by index in ascending order."""
        return dict(sorted({**self.ordered, **self.categories}.items()))

    def __len__(self) -> int:
        return len(self.values)

    def nearest(self, X: Tensor) -> Tensor:
        """The same `... x d` points with each of these features at a value it takes."""
        X = X.clone()
        for index, values in self.values.items():
            values = values.to(X)
            X[..., index] = values[_places(values, X[..., index])]
        return X

    def spread(self, X: Tensor, bounds: Tensor) -> Tensor:
        """Points whose discrete features are as uniform as `n x d` points of a box."""
        X, (low, high) = X.clone(), bounds.double()
        for index, values in self.values.items():
            U = (X[:, index] - low[index]) / (high[index] - low[index])
            X[:, index] = values.to(X)[_place(U, len(values))]
        return X

    def others(self, x: Tensor, U: Tensor, reach: Tensor) -> Tensor:
        """Other values than those of a point, `n x d`; elsewhere its coordinates.

        Of a feature with an order the values within `reach`, and at least the ones
        next to it; of categories all.

        Args:
            x: `d` coordinates.
            U: `n x d` numbers in [0, 1) that choose from them.
            reach: How far away values are, `d`.
        """
        X = x.expand_as(U).clone()
        for index, values in self.values.items():
            values = values.to(X)
            here = int((values - x[index]).abs().argmin())
            low, high = 0, len(values) - 1
            if index in self.ordered:
                is_near = (values - x[index]).abs() <= reach[index]
                near = is_near.nonzero().squeeze(-1).tolist() or [here]
                low = max(low, min(near[0], here - 1))
                high = min(high, max(near[-1], here + 1))
            place = low + _place(U[:, index], high - low)
            X[:, index] = values[place + (place >= here).long()]
        return X

    def encoded(self, X: Tensor) -> Tensor:
        """Points with the categories one-hot, after the other features.

        `... x d` points become `... x e`, where `e` counts a column for each category.
        """
        if not self.categories:
            return X
        parts = [X[..., self.columns(X.shape[-1])]]
        for index, values in sorted(self.categories.items()):
            place = _places(values.to(X), X[..., index])
            parts.append(one_hot(place, len(values)).to(X))
        return torch.cat(parts, dim=-1)

    def columns(self, dim: int) -> list[int]:
        """The features that are no categories, as `encoded` has them first."""
        return [index for index in range(dim) if index not in self.categories]

    def encoded_ranges(self, ranges: Tensor) -> Tensor:
        """`2 x e` smallest and largest values of encoded points, from `2 x d`."""
        if not self.categories:
            return ranges
        num = sum(map(len, self.categories.values()))
        unit = ranges.new_tensor([[0.0], [1.0]]).expand(2, num)
        return torch.cat([ranges[:, self.columns(ranges.shape[-1])], unit], dim=-1)

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        return {
            name: [[index, values.tolist()] for index, values in sorted(part.items())]
            for name, part in (
                ("discrete_dims", self.ordered),
                ("cat_dims", self.categories),
            )
            if part
        }


def _values(name: str, bounds: Tensor, given: Values | None) -> dict[int, Tensor]:
    """Ascending values by index, checked."""
    given = {} if given is None else given
    check_kind(name, given, Mapping, "values by the index of a feature: {0: [1, 2, 4]}")
    found = dict[int, Tensor]()
    for index, listed in given.items():
        at, dim = f"{name}[{index!r}]", bounds.shape[-1]
        check_whole(name, index, 0, "need indices of features, from 0 on.")
        listed = list(listed) if isinstance(listed, Sequence) else listed
        values = as_numbers(at, listed, "need a list of numbers.").double()
        if index >= dim:
            raise InputDataError(f"Got {at}; need an index from 0 to {dim - 1}.")
        values = values.to(bounds).double().unique()  # sorted
        low, high = bounds[:, index].double().tolist()
        if len(values) < 2 or not bool(((low <= values) & (values <= high)).all()):
            raise InputDataError(
                f"Got {at}={values.tolist()}, with bounds from {low} to {high}; need "
                "at least two different values within the bounds. For one value take "
                "fixed_features."
            )
        found[int(index)] = values
    return dict(sorted(found.items()))


def _place(U: Tensor, num: int) -> Tensor:
    """Places 0 to `num - 1` from numbers in [0, 1]."""
    return (U * num).long().clamp(0, max(0, num - 1))


def _places(values: Tensor, x: Tensor) -> Tensor:
    """Places of the nearest of `k` ascending values. O(log k) each."""
    between = (values[1:] + values[:-1]) / 2
    return torch.bucketize(x.contiguous(), between)
