"""Where a strategy chooses from: the rows of a table, or a box."""

import zlib
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.argument_checks import check_keywords
from botorch_sparse.pools.compact_rows import CompactRows, Rows
from botorch_sparse.pools.nystrom_pool import NystromPool
from botorch_sparse.pools.shard import ALONE, Ranks
from botorch_sparse.strategies.data.box import Box, DomainOptions
from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.discrete import DiscreteFeatures

# Gives a point that is not in a table its number; see `RunRecord.add_point`.
AddPoint = Callable[[Tensor], int]
# Points before a model is used; one-hot columns of a table are many.
FEWEST_INITIAL, MOST_INITIAL = 5, 20
OPTIMIZER_OPTIONS: dict[str, Any] = {"num_restarts": 4, "raw_samples": 256}


@dataclass(frozen=True, eq=False)
class TableDomain:
    """The rows of a table of candidates.

    Points have numbers: these rows, and what `History` gives to others. `ShardedDomain`
    is a table whose rows several processes share.

    Attributes:
        table: The table.
        box: None.
        discrete: Nothing: columns of categories are one-hot.
    """

    table: CandidateTable
    box: ClassVar[None] = None
    discrete: ClassVar[DiscreteFeatures] = DiscreteFeatures()

    @property
    def ranks(self) -> Ranks:
        """The processes that share the rows."""
        return ALONE

    @property
    def num_rows(self) -> int:
        """Rows `A` of the table."""
        return len(self.table)

    @property
    def own_rows(self) -> Rows:
        """Coordinates of the rows that are here, `a x d`."""
        return self.table.X

    @property
    def dim(self) -> int:
        """Number `d` of encoded columns."""
        return self.own_rows.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """Of the points."""
        return self.own_rows.dtype

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self.own_rows.device

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the `d` features."""
        return self.table.feature_names

    @property
    def fingerprints(self) -> tuple[slice, ...]:
        """Columns of bits or counts that are compared as one: a slice for each."""
        return self.table.fingerprints

    @cached_property
    def ranges(self) -> Tensor:
        """`2 x d`: smallest and largest value of each, float64. Cost: O(A d), once."""
        return torch.stack(self.own_rows.detach().aminmax(dim=0)).double()

    def rows(self, number: Tensor) -> Tensor:
        """Coordinates of `k` rows, `k x d`; their numbers are where the points are."""
        return self.own_rows[number]

    def pool(self, inputs: Callable[[Any], Any], max_memory: int) -> NystromPool:
        """All rows as inputs of a kernel, without a posterior yet."""
        return NystromPool(inputs(self.own_rows), max_memory=max_memory)

    def example_rows(self) -> Tensor:
        """At most four rows, spread over all, for a kernel to be known by."""
        return self.own_rows[:: -(-self.num_rows // 4)]

    @cached_property
    def checksum(self) -> int:
        """Of all coordinates. Cost: O(A d), once."""
        return rows_checksum(self.own_rows)

    @cached_property
    def names(self) -> int:
        """A checksum of the names of rows, columns and categories. Cost: O(A), once."""
        table = self.table
        columns = [(spec.label, spec.categories) for spec in table.columns]
        return names_checksum(table.key_names, table.keys, columns)

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        shape = [self.num_rows, self.dim, str(self.dtype)]
        return {"candidates": [*shape, self.checksum], "names": self.names}

    def sample(
        self,
        num: int,
        generator: torch.Generator,
        add_point: AddPoint,
        excluded: Collection[int] = (),
    ) -> list[int]:
        """Different points, spread over all; fewer if there are no more. O(A)."""
        if num == 1 and not excluded:
            return torch.randint(self.num_rows, (1,), generator=generator).tolist()
        order = torch.randperm(self.num_rows, generator=generator)
        out = torch.tensor(sorted(excluded), dtype=torch.long)
        return order[~torch.isin(order, out)][:num].tolist()

    def uniform(
        self,
        num: int,
        generator: torch.Generator,
        add_point: AddPoint,
        excluded: Collection[int] = (),
        *,
        unique: bool = False,
    ) -> list[int]:
        """As `sample`, but rows may come again unless `unique`."""
        left = torch.ones(self.num_rows, dtype=torch.bool)
        left[list(excluded)] = False
        rows = left.nonzero().squeeze(-1)
        if unique or not len(rows):
            return rows[torch.randperm(len(rows), generator=generator)[:num]].tolist()
        return rows[torch.randint(len(rows), (num,), generator=generator)].tolist()

    def num_selectable(
        self, limit: int, excluded: Collection[int], *, unique: bool
    ) -> int:
        """The largest batch of at most `limit` points that can be proposed."""
        left = self.num_rows - len(excluded)
        return min(limit, left if unique else left * limit)

    def num_initial(self, *, is_known: bool) -> int:
        """Points before a posterior is used by default, with or without a kernel."""
        return 1 if is_known else min(max(FEWEST_INITIAL, 2 * self.dim), MOST_INITIAL)

    def optimizer_options(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Options of `optimize_acqf`, with defaults."""
        if given is not None:
            raise InputDataError(
                "Got optimizer_options with candidates, whose maximum is exact; they "
                "belong to a continuous domain. Leave them out."
            )
        return {}

    def is_unique(self, unique: bool | None, *, is_known: bool) -> bool:
        """Whether points are proposed once; by default for tables without a kernel."""
        return not is_known if unique is None else unique


@dataclass(frozen=True, eq=False)
class BoxDomain:
    """A box; see `Box`.

    Attributes:
        box: The box.
        table: None.
        num_rows: 0.
    """

    box: Box
    table: ClassVar[None] = None
    num_rows: ClassVar[int] = 0
    ranks: ClassVar[Ranks] = ALONE
    fingerprints: ClassVar[tuple[slice, ...]] = ()

    @property
    def dim(self) -> int:
        """Number `d` of features."""
        return self.box.dim

    @property
    def dtype(self) -> torch.dtype:
        """Of the points."""
        return self.box.bounds.dtype

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self.box.bounds.device

    @property
    def discrete(self) -> DiscreteFeatures:
        """Features that take some values only."""
        return self.box.discrete

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the `d` features."""
        return tuple(f"x{i}" for i in range(self.dim))

    @property
    def ranges(self) -> Tensor:
        """The bounds."""
        return self.box.bounds.double()

    def rows(self, number: Tensor) -> Tensor:
        """None: there are no rows."""
        return self.box.bounds[:0][number]

    def example_rows(self) -> Tensor:
        """Two corners and the middle."""
        bounds = self.ranges
        return torch.cat([bounds, bounds.mean(0, keepdim=True)])

    def sample(
        self,
        num: int,
        generator: torch.Generator,
        add_point: AddPoint,
        excluded: Collection[int] = (),
    ) -> list[int]:
        """Points of `Box.sample`, each of which gets a number."""
        return [add_point(x) for x in self.box.sample(num, draw_seed(generator))]

    def uniform(
        self,
        num: int,
        generator: torch.Generator,
        add_point: AddPoint,
        excluded: Collection[int] = (),
        *,
        unique: bool = False,
    ) -> list[int]:
        """As `sample`: points of a box never repeat."""
        return self.sample(num, generator, add_point)

    def num_selectable(
        self, limit: int, excluded: Collection[int], *, unique: bool
    ) -> int:
        """The limit: there are points enough."""
        return limit

    def num_initial(self, *, is_known: bool) -> int:
        """Points before a posterior is used by default, with or without a kernel."""
        return 1 if is_known else max(FEWEST_INITIAL, 2 * self.dim)

    def optimizer_options(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Options of `optimize_acqf`, with defaults."""
        # It loads BoTorch's optimizers, which tables do without.
        from botorch_sparse.batching.acquisition_batch import check_search_options

        check_search_options(given or {})
        return OPTIMIZER_OPTIONS | dict(given or {})

    def is_unique(self, unique: bool | None, *, is_known: bool) -> bool:
        """Whether points are proposed once: never, since they have no numbers."""
        if unique:
            raise InputDataError(
                "Got unique=True with bounds; points of a continuous domain have no "
                "numbers. Leave it out, or give a table of candidates."
            )
        return False

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        return self.box.config()


def rows_checksum(X: Rows, start: int = 0) -> int:
    """A checksum of coordinates, `a x d`, continued from the one of the rows before."""
    X = X.stored if isinstance(X, CompactRows) else X
    for part in X.detach().split(2**20):  # rows of a file are strided
        start = zlib.crc32(part.cpu().contiguous().numpy().data, start)
    return start


def names_checksum(
    key_names: Sequence[Hashable],
    keys: Sequence[Hashable] | None,
    columns: Sequence[tuple[Hashable, Sequence[Hashable] | None]],
) -> int:
    """A checksum of the names of rows, columns and categories."""
    names = repr((key_names, keys, columns))
    return zlib.crc32(names.encode(errors="surrogatepass"))


def draw_seed(generator: torch.Generator) -> int:
    """A seed from the next bits of a generator, at least 0 and below 2^31."""
    return int(torch.randint(2**31, (), generator=generator))


Domain: TypeAlias = TableDomain | BoxDomain


def require_whole(domain: Domain, name: str) -> None:
    """Refuse a table that ranks share."""
    if domain.ranks.size > 1:
        raise UnsupportedError(
            f"{name} does not share tables: give it a whole one, in one process, or "
            "use BBKB, BKB, ThompsonSampling or RandomSearch."
        )


def domain_of(
    candidates: Any, options: DomainOptions, owner: type | None = None
) -> Domain:
    """The table or the box that was asked for; a domain is itself."""
    if owner is not None:
        check_keywords(options, DomainOptions.__annotations__, owner)
    given = {name: value for name, value in options.items() if value is not None}
    if (candidates is None) == ("bounds" not in given):
        got = "neither" if candidates is None else "both"
        raise InputDataError(
            f"Got {got} of candidates and bounds; need a table of `A x d` candidates "
            "or the `2 x d` bounds of a continuous domain."
        )
    if candidates is not None and given:
        raise InputDataError(
            f"Got candidates with {sorted(given)}, which belong to bounds; leave out "
            "of the table the candidates that are not allowed."
        )
    if given:
        return BoxDomain(Box(**given))  # type: ignore[arg-type]
    if isinstance(candidates, TableDomain | BoxDomain):
        return candidates
    return TableDomain(CandidateTable.of(candidates))


def box_of(candidates: Any, options: DomainOptions, owner: type) -> BoxDomain:
    """The continuous domain of a strategy that takes no other; see `domain_of`."""
    check_keywords(options, DomainOptions.__annotations__, owner)
    if candidates is None and isinstance(box := domain_of(None, options), BoxDomain):
        return box
    raise InputDataError(
        f"Got candidates; {owner.__name__} works on continuous domains. Give bounds, "
        "or take BBKB for a table."
    )


# The squares of 10^8 such numbers add up to 1e308; float64 goes to 1.8e308.
LARGEST_VALUE = 1e150


def refuse_large_inputs(domain: Domain) -> None:
    """Refuse a domain whose coordinates are too large for a kernel that is given."""
    most = float(domain.ranges.abs().max())
    if most > LARGEST_VALUE:
        raise InputDataError(
            f"Got {'candidates' if domain.num_rows else 'bounds'} as large as "
            f"{most:.3g} with a kernel, whose squares overflow; need coordinates up to "
            f"{LARGEST_VALUE:.3g}. Rescale them and the lengthscales, or leave "
            "covar_module out: then inputs are scaled."
        )
