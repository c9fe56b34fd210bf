"""All that is public is imported from one place."""

import pytest

import botorch_sparse.acquisition as acquisition
from botorch_sparse.acquisition import confidence


@pytest.mark.parametrize("name", confidence.__all__)
def test_radii_are_exported(name):
    assert name in acquisition.__all__
    assert getattr(acquisition, name) is getattr(confidence, name)
