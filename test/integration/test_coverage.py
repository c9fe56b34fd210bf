"""f lies within every radius of theory constants, with the posterior of its proof.

One false alarm in `delta` of the runs is allowed, as the theorems do. Every case also
shows a factor of its width that fails: the tests are not won by doing nothing.
"""

import pytest
from coverage_cases import CASES, DELTA


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", CASES)
def test_coverage(name):
    """A sample of four runs."""
    _check(name, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_coverage_of_100_runs(name):
    """f lies inside at all candidates and all batch starts in 1 - delta of the runs."""
    _check(name, 100)


def _check(name: str, runs: int) -> None:
    case, too_small = CASES[name]
    needed = [case(seed) for seed in range(runs)]
    assert sum(factor > 1 for factor in needed) <= DELTA * runs
    assert sum(factor > too_small for factor in needed) > DELTA * runs
