"""Doctests of what extras are missing for are left out."""

from importlib.util import find_spec

collect_ignore_glob = [
    f"botorch_sparse/{package}/*"
    for package, extra in (("ax", "ax"), ("plotting", "matplotlib"))
    if find_spec(extra) is None
]
