"""Doctests of what extras are missing for are left out."""

from importlib.util import find_spec

EXTRAS = {"ax": "ax", "plotting": "matplotlib", "suggest": "pandas"}
collect_ignore_glob = [
    f"botorch_sparse/{package}/*"
    for package, extra in EXTRAS.items()
    if find_spec(extra) is None
]
