"""Fixtures shared by all tests: every dtype on every device that is present.

Where there is no GPU the devices are the host and a simulated accelerator, which
computes on the host but keeps the rules of CUDA (`simulated_device.py`). It has one
dtype: its arithmetic is the host's.
"""

import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import torch
from botorch.acquisition.multi_objective import logei

# Tests share the dense formulas of `oracles.py`, whatever pytest's import mode is.
sys.path.insert(0, str(Path(__file__).parent))

import simulated_device

from botorch_sparse.posteriors import features

# Imported by tests and by hand, once: not searched for doctests.
collect_ignore = ["simulated_device.py", "mutants.py", "matrix.py"]

# BoTorch compiles a kernel for hypervolumes when it first meets one, for most of a
# minute where there is a compiler, and has the same in Python.
logei._load_attempted = True

# A run in the background of a script is started with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

DTYPES = {"float64": torch.float64, "float32": torch.float32}
DEVICES = ["cpu"]
if torch.cuda.is_available():
    DEVICES.append("cuda")
if simulated_device.IS_AVAILABLE:
    DEVICES.append("sim")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """One device that is present; the simulated one is there until the test ends."""
    is_simulated = request.param == "sim"
    with simulated_device.accelerator() if is_simulated else nullcontext():
        yield torch.device(simulated_device.DEVICE if is_simulated else request.param)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few rows embedded at a time on each device as on the host."""
    monkeypatch.setattr(features, "DEVICE_FEATURES", 0)


@pytest.fixture
def double(device: torch.device) -> dict[str, Any]:
    """Keyword arguments of a float64 tensor on each device."""
    return {"dtype": torch.float64, "device": device}


@pytest.fixture(params=DTYPES)
def tkwargs(request: pytest.FixtureRequest, device: torch.device) -> dict[str, Any]:
    """Keyword arguments of a tensor for each dtype on each device."""
    return {"dtype": DTYPES[request.param], "device": device}


@pytest.fixture
def screened_at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools of the host use branch and bound, as they do for millions of rows."""
    monkeypatch.setattr("botorch_sparse.pools.nystrom_pool.SCREENED", 0)


@pytest.fixture
def set_first_block(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Blocks of bounds begin with so few rows, as they do of larger tables."""
    name = "botorch_sparse.pools.device_batch.BlockBatch.first_block"
    return partial(monkeypatch.setattr, name)


# Of a test's cases on the simulated device, one in so many is run each time.
SIMULATED_CASES = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    """A part of the tests: `--part 1/2` and `--part 2/2` are all of them."""
    parser.addoption("--part", default="1/1", help="I/N: one test in N, by its name")


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave other parts out, and float32 on the simulated device.

    It may be warned of elsewhere. What a simulated case shows, that nothing crosses
    from one device to another unseen, the next one mostly shows again: all of them are
    run with the slow tests. So are the rest of those of which one in some is run.
    """
    said = pytest.mark.filterwarnings(
        "ignore:The model inputs are of type torch.float32"
    )
    items[:] = [item for item in items if not _is_simulated_float32(item)]
    simulated: Counter[str] = Counter()
    for item in items:
        if _params(item).get("tkwargs") == "float32":
            item.add_marker(said)
        if "sim" in _params(item).values():
            item.add_marker(pytest.mark.sim)
            test = item.nodeid.partition("[")[0]
            is_slow = item.get_closest_marker("slow_sim") is not None
            if is_slow or simulated[test] % SIMULATED_CASES:
                item.add_marker(pytest.mark.slow)
            simulated[test] += 1
    for item in _not_in_the_sample(items):
        item.add_marker(pytest.mark.slow)
    part, parts = map(int, config.getoption("--part").split("/"))
    items[:] = [item for item in items if _hash(item) % parts == part % parts]


def _not_in_the_sample(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Of tests marked `one_in(n)` all cases but each `n`th, in the order of a hash.

    So the sample is the same each time, and is spread over all parameters of a test.
    """
    cases = defaultdict[tuple[str, Any], list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("one_in") and not item.get_closest_marker("slow"):
            test = item.nodeid.partition("[")[0]
            cases[test, _params(item).get("device")].append(item)
    for sampled in cases.values():
        (n,) = sampled[0].get_closest_marker("one_in").args
        yield from (item for i, item in enumerate(sorted(sampled, key=_hash)) if i % n)


def _hash(item: pytest.Item) -> int:
    """The same in all processes."""
    return crc32(item.nodeid.encode())


def _is_simulated_float32(item: pytest.Item) -> bool:
    params = _params(item)
    return params.get("device") == "sim" and params.get("tkwargs") == "float32"


def _params(item: pytest.Item) -> dict[str, Any]:
    """The parameters of a test."""
    return getattr(getattr(item, "callspec", None), "params", {})
