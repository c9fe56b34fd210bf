"""Names of a package that are imported when they are first used (PEP 562)."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_exports(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names are imported lazily.

    The names are those that its file imports under `if TYPE_CHECKING`, where type
    checkers and editors see them. Importing one strategy then loads what it needs, and
    not all others. A name that its module does not have is an `ImportError`.

    Args:
        package: The package's `__name__`.
        file: Its `__file__`.

    Example:
        >>> import botorch_sparse.inducing as package
        >>> get, _ = lazy_exports(package.__name__, package.__file__)
        >>> get("BLESSSampler").__module__
        'botorch_sparse.inducing.bless'
    """
    source = Path(file).read_text(encoding="utf-8")
    block = next(n for n in ast.parse(source).body if isinstance(n, ast.If))
    imports = [n for n in block.body if isinstance(n, ast.ImportFrom)]
    source_of = {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in imports
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in source_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = source_of[name]
        try:
            value = getattr(import_module(module), original)
        except AttributeError as error:
            words = f"cannot import name {original!r} from {module!r}"
            raise ImportError(words, name=module) from error
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *source_of})

    return get, names
