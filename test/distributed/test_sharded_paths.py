"""Sample paths over a table that ranks share."""

import importlib
from itertools import product
from typing import Any

import pytest
import torch
from botorch.utils.sampling import manual_seed
from device_cases import sweep
from gpytorch.kernels import RBFKernel
from thread_ranks import together

from botorch_sparse.distributed import Ranks
from botorch_sparse.pools.sample_paths import path_maximizers
from botorch_sparse.pools.shard import RANK_TILE, SelectableRows, Shard
from botorch_sparse.posteriors import NystromPosterior

# The function of the same name hides the module.
module: Any = importlib.import_module("botorch_sparse.pools.sample_paths")
ROWS, PATHS = 4 * RANK_TILE - 300, 12


@sweep("once, size", product([False, True], [2, 3, 4]), [(True, 2), (False, 4)])
def test_ranks_choose_what_one_process_chooses(
    once: bool, size: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also among copies of a row, excluded rows, and where a path's best is taken."""
    X = torch.rand(ROWS, 2, generator=torch.Generator().manual_seed(0)).double()
    X[RANK_TILE + 7] = X[3 * RANK_TILE + 7] = X[5]
    X = X.to(device)
    Y, noise = X[:20].sum(-1).sin(), torch.full((20,), 0.5).to(X)
    kernel = RBFKernel().to(X).requires_grad_(False)
    kernel.lengthscale = 0.5
    posterior = NystromPosterior.from_data(kernel, X[:20], Y, noise, X[:20])
    with manual_seed(3):  # one generator for all threads would not do
        paths = module._Paths.draw(posterior, PATHS, 64)
    monkeypatch.setattr(module._Paths, "draw", lambda *_: paths)
    first = path_maximizers(X, posterior, PATHS, SelectableRows(None, once))
    excluded = torch.tensor(sorted({*first[::2], 0, ROWS - 1}), device=device)
    choosable = SelectableRows(excluded, once)
    whole = path_maximizers(X, posterior, PATHS, choosable)

    def choose(ranks: Ranks) -> list[int]:
        shard = Shard(ROWS, ranks)
        own = X[shard.start : shard.stop]
        return path_maximizers(own, posterior, PATHS, choosable, shard=shard)

    assert together(size, choose, device) == [whole] * size
    assert not {*whole} & {*choosable.excluded.tolist()}
    assert not once or len({*whole}) == PATHS
