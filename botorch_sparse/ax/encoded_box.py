"""The box of `TrustRegionBBKB` behind a search space as Ax's transforms encode it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from ax.adapter.transforms.one_hot import OH_PARAM_INFIX
from ax.core.search_space import SearchSpaceDigest
from ax.generators.torch_base import TorchOptConfig
from botorch.exceptions import UnsupportedError
from torch import Tensor
from torch.nn.functional import one_hot


@dataclass(frozen=True)
class EncodedBox:
    """Where the features of a box are among the columns of the model.

    Ax has a column for each value of an unordered choice. Of a box that is one
    feature, the number of the value, after all other features.

    Attributes:
        space: The search space, with its `e` columns.
        groups: Columns of each unordered choice.
    """

    space: SearchSpaceDigest
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, space: SearchSpaceDigest) -> "EncodedBox":
        """The box of a search space.

        Raises:
            UnsupportedError: If there are tasks, a hierarchy that Ax was told not to
                flatten, or fidelities, as learning curves have.
        """
        odd = space.task_features or space.fidelity_features
        if odd or space.hierarchical_dependencies:
            raise UnsupportedError(
                "Trust regions got a search space with tasks, fidelities, learning "
                "curves or a hierarchy that is not flattened; take "
                "sparse_generation_strategy for those."
            )
        groups = dict[str, list[int]]()
        for column, name in enumerate(space.feature_names):
            choice, infix, _ = name.rpartition(OH_PARAM_INFIX)
            if infix:
                groups.setdefault(choice, []).append(column)
        return cls(space, tuple(map(tuple, groups.values())))

    @cached_property
    def others(self) -> list[int]:
        """Columns that are features of the box as they are."""
        grouped = {column for group in self.groups for column in group}
        return [c for c in range(len(self.space.bounds)) if c not in grouped]

    def points(self, X: Tensor) -> Tensor:
        """Points of the box, `n x d`, from `n x e` rows."""
        codes = [X[:, group].argmax(-1, keepdim=True) for group in self.groups]
        return torch.cat([X[:, self.others], *codes], dim=-1)

    def rows(self, points: Tensor) -> Tensor:
        """`n x e` rows from `n x d` points of the box."""
        X = points.new_zeros(len(points), len(self.space.bounds))
        num = len(self.others)
        X[:, self.others] = points[:, :num]
        for group, codes in zip(self.groups, points[:, num:].T, strict=True):
            X[:, group] = one_hot(codes.round().long(), len(group)).to(X)
        return X

    def domain(self, config: TorchOptConfig) -> dict[str, Any]:
        """Arguments of a strategy, from what Ax demands of the columns."""
        sides = [self.space.bounds[column] for column in self.others]
        sides += [(0.0, len(group) - 1.0) for group in self.groups]
        place = {column: i for i, column in enumerate(self.others)}
        bounds = torch.tensor(sides, dtype=torch.float64).T
        discrete = {
            place[column]: torch.tensor(values).double().clamp(*sides[place[column]])
            for column, values in self.space.discrete_choices.items()
            if len(values) > 1 and column in place
        }
        unordered = {place[c] for c in self.space.categorical_features if c in place}
        codes = range(len(self.others), len(sides))
        return dict(
            bounds=bounds,
            inequality_constraints=_constraints(config.linear_constraints, place, -1),
            equality_constraints=_constraints(config.equality_constraints, place, 1),
            fixed_features=self._fixed(config.fixed_features or {}, place),
            discrete_dims={
                j: v.tolist() for j, v in discrete.items() if j not in unordered
            },
            cat_dims={
                **{j: v.tolist() for j, v in discrete.items() if j in unordered},
                **{j: range(len(g)) for j, g in zip(codes, self.groups, strict=True)},
            },
        )

    def _fixed(
        self, fixed: Mapping[int, float], place: Mapping[int, int]
    ) -> dict[int, float]:
        found = {place[c]: float(v) for c, v in fixed.items() if c in place}
        for code, group in enumerate(self.groups, len(self.others)):
            values = [fixed.get(column, 0.0) for column in group]
            if max(values) > 0:
                found[code] = float(values.index(max(values)))
        return found


def _constraints(
    given: tuple[Tensor, Tensor] | None, place: Mapping[int, int], sign: int
) -> list[tuple[Tensor, Tensor, float]] | None:
    """Rows of `A x <= b` (by the sign -1) or `A x = b` (1), of the box's features."""
    if given is None:
        return None
    found = list[tuple[Tensor, Tensor, float]]()
    for row, bound in zip(*given, strict=True):
        columns = row.nonzero().squeeze(-1)
        indices = torch.tensor([place[column] for column in columns.tolist()])
        found.append((indices, sign * row[columns], sign * float(bound)))
    return found or None
