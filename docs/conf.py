"""Settings of Sphinx: `sphinx-build -W -b html docs output/docs`."""

import re
from typing import Any

from pybtex.plugin import register_plugin
from pybtex.style.formatting.plain import Style
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx

from botorch_sparse import __version__

project = "botorch_sparse"
author = "botorch_sparse authors"
release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinxcontrib.bibtex",
]
exclude_patterns = [
    "**.ipynb_checkpoints",
    "**/__pycache__",
    "tutorials/notebooks/*.py",
]
highlight_language = "default"
default_role = "code"  # `name` in a docstring
html_theme = "furo"
html_title = "botorch_sparse"

autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "inherited-members": "object",  # those of our own classes, see _skip_foreign
}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes are documented once

myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # `python -m tutorials` runs them

bibtex_bibfiles = ["reference/refs.bib"]
bibtex_default_style = "keys"
bibtex_reference_style = "label"

CITATION = re.compile(r"\[([A-Z]\w+\d{4}[a-z]?)\]_")
REST_OF_ARGS = re.compile(r"(\s*)Args \(after (.*)\):")
DEFINITION = re.compile(r"\s*\.\. \[[A-Z]\w+\d{4}[a-z]?\]")


class _KeyLabels(BaseLabelStyle):
    """References are labelled by the keys that the docstrings use."""

    def format_labels(self, sorted_entries: list[Any]) -> list[str]:
        return [entry.key for entry in sorted_entries]


class _KeyStyle(Style):
    default_label_style = _KeyLabels


register_plugin("pybtex.style.formatting", "keys", _KeyStyle)


def _link_citations(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Turn `[Key]_` into links to the references page.

    A key that is not in refs.bib is a warning, hence an error. The lists of references
    in the headers of modules are left out: the page has them all.
    """
    kept: list[str] = []
    indent: int | None = None  # of a definition that is being left out
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if DEFINITION.match(line):
            indent = depth
        elif indent is not None and line.strip() and depth <= indent:
            indent = None
        if indent is None:
            kept.append(CITATION.sub(r":cite:`\1`", line))
    lines[:] = kept


def _head_arguments(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Napoleon knows the heading "Args:" alone."""
    for number, line in enumerate(lines):
        if match := REST_OF_ARGS.fullmatch(line):
            indent, others = match.groups()
            first = f"{indent}The first arguments are as in {others}."
            lines[number : number + 1] = [first, "", f"{indent}Args:"]


def _skip_foreign(
    app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what comes from BoTorch, PyTorch and Ax.

    Returns:
        True to leave a member out, None for autodoc's own choice.
    """
    module = getattr(getattr(obj, "fget", obj), "__module__", None)
    return True if module and not module.startswith(project) else None


def setup(app: Sphinx) -> None:
    """Connect the functions above; citations before napoleon sees "References:"."""
    app.connect("autodoc-process-docstring", _link_citations, priority=100)
    app.connect("autodoc-process-docstring", _head_arguments, priority=100)
    app.connect("autodoc-skip-member", _skip_foreign)
