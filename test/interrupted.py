"""Raises at a line of the package that is traced."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

import torch
from botorch import settings
from gpytorch.settings import lazily_evaluate_kernels

import botorch_sparse

PACKAGE = str(Path(botorch_sparse.__file__).parent)
Line: TypeAlias = tuple[CodeType, int]


class Trace:
    """Counts lines of the package, and raises at one of them.

    Where a `with` is left, Python looks at its line once more. No signal comes there
    before the `__exit__` of a lock, which is in C, so that nothing is raised at that.

    Args:
        line: The line, by its code and number; None to raise nowhere.
        visit: At which visit.
        error: What is raised.
    """

    def __init__(
        self, line: Line | None, visit: int = 1, error: type = RuntimeError
    ) -> None:
        self.lines: dict[Line, int] = {}
        self._line, self._visit, self._error = line, visit, error

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            line = frame.f_code, frame.f_lineno
            visit = self.lines[line] = self.lines.get(line, 0) + 1
            if line == self._line and visit == self._visit:
                raise self._error(f"at {frame.f_code.co_filename}:{frame.f_lineno}")
        return self

    @contextmanager
    def on(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


def surroundings() -> tuple[Any, ...]:
    """What all code of a process shares."""
    generator = torch.random.get_rng_state().tolist()
    switches = (
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        settings.validate_input_scaling.on(),
        lazily_evaluate_kernels.on(),
    )
    return *switches, generator, list(warnings.filters)
