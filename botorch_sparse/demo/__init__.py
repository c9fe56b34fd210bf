"""The demo: tables, strategies side by side, and what is printed."""

from typing import TYPE_CHECKING

from botorch_sparse.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from botorch_sparse.demo.datasets import Table, load_table

__all__ = ["Table", "load_table"]

__getattr__, __dir__ = lazy_exports(__name__, __file__)
