"""Tables that several processes share."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botorch_sparse.distributed.ranks import RankError, Ranks, joined_ranks
    from botorch_sparse.distributed.sharded_domain import ShardedDomain

__all__ = ["RankError", "Ranks", "ShardedDomain", "joined_ranks"]


def __getattr__(name: str) -> Any:
    """A public name, whose module is imported when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "sharded_domain" if name == "ShardedDomain" else "ranks"
    return getattr(import_module(f"{__name__}.{module}"), name)
