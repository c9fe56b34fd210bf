"""Dictionaries whose forks share what they have not changed."""

import random

import pytest

from botorch_sparse.strategies.core.trials import NUM_PARTS, PersistentDict


@pytest.mark.parametrize("most", [NUM_PARTS // 4, 6 * NUM_PARTS])
def test_forks_are_dictionaries_of_their_own(most: int) -> None:
    """With fewer keys than parts, and with many in each."""
    draw = random.Random(most)
    pairs = [(PersistentDict[int](), dict[int, int]())]
    for step in range(60):
        forked, plain = draw.choice(pairs)
        if step % 3 == 0:
            forked, plain = forked.fork(), dict(plain)
            pairs.append((forked, plain))
        keys = [draw.randrange(most) for _ in range(most // 4)]
        for key in keys:
            forked[key] = plain[key] = step
        forked[most], plain[most] = step, step
        for key in {draw.randrange(most) for _ in range(most // 16)} & {*plain}:
            assert forked.pop(key) == plain.pop(key)
    for forked, plain in pairs:
        assert len(forked) == len(plain) and set(forked) == set(plain)
        assert all(forked[key] == value for key, value in plain.items())
        assert all((key in forked) == (key in plain) for key in range(most))
