"""The table of `benchmarks.tasks`."""

from argparse import Namespace
from types import SimpleNamespace

from benchmarks import tasks


def test_methods_are_compared_on_the_same_seeds() -> None:
    """The exact model has one seed, on which ours is as good."""
    values = {"sparse": (0.1, 0.7, 0.9), "exact": (0.1,), "alone": (0.3, 0.8, 0.9)}
    records = {
        tasks.key_of("correlation 0", 600, method, seed): {
            "nlpd": value,
            "rmse": value,
            "seconds": 1.0,
        }
        for method, each in values.items()
        for seed, value in enumerate(each)
    }
    records |= {
        tasks.key_of("correlation 0", 3000, "sparse", seed): {
            "nlpd": value,
            "rmse": value,
            "seconds": 2.0,
        }
        for seed, value in enumerate((0.2, 0.4, 0.5))
    }
    store = SimpleNamespace(records=records)
    args = Namespace(sizes=[600, 3000], seeds=3)
    rows = tasks.report(store, args).splitlines()[2:]  # type: ignore[arg-type]
    assert len(rows) == 2
    assert rows[0].startswith("| correlation 0 | 600 | 1 | 0.1 | 0.1 | 0.3 |")
    assert rows[1].startswith("| correlation 0 | 3,000 | 3 | 0.4 | - | - |")
