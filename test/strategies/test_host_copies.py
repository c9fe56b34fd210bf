"""Inside a batch an accelerator is asked for one small tensor at each step."""

from collections.abc import Callable

import pytest
from host_copies import HostCopies
from strategy_table import TABLE, objective

from botorch_sparse.batching.rules import Global, Local, Product, Rule, Single
from botorch_sparse.pools import NystromPool
from botorch_sparse.pools.shard import ALL_ROWS

BATCHES: dict[str, tuple[str, Rule]] = {
    "global": ("bbkb-global", Global(4.0)),
    "global-local": ("bbkb-global-local", Local(4.0)),
    "streamed": ("bbkb-streamed", Local(4.0)),
    "published": ("bbkb-global-local", Local(4.0, "paper")),
    "single": ("bkb", Single()),
    "product": ("gpbucb-product", Product(4.0)),
    "sum": ("gpbucb-sum", Global(4.0)),
    "exact-single": ("gpucb", Single()),
}


def select(name: str, pending: list[int], limit: int) -> tuple[list[int], HostCopies]:
    """A batch, and the copies that choosing it took."""
    strategy = TABLE[BATCHES[name][0]]()
    strategy.run(objective, 25, progress=False)
    rule = BATCHES[name][1]
    view, where = strategy.surrogate.view, (strategy.record, strategy.generator)
    with HostCopies() as copies:
        batch = view.batch(3.0, rule, pending, ALL_ROWS, *where).choose(limit)
    return batch, copies


@pytest.mark.one_in(5)
@pytest.mark.parametrize("pending", [[], [3, 3, 50]], ids=["none", "pending"])
@pytest.mark.parametrize("name", BATCHES)
def test_one_copy_a_step(
    name: str,
    pending: list[int],
    set_first_block: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first maximizer, then one after each point; the batch is the host's."""
    expected, _ = select(name, pending, 1000)
    monkeypatch.setattr(NystromPool, "on_device", True)
    set_first_block(40)
    batch, copies = select(name, pending, 1000)
    assert batch == expected
    extra = len(pending) + bool(pending)  # those before the batch
    assert len(batch) <= copies.count <= len(batch) + 1 + extra, copies.places
    assert set(copies.places) <= {"tolist", "aten._local_scalar_dense.default"}
