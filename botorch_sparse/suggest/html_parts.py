"""A page of HTML in one file: its parts, from texts that are escaped here.

The page loads nothing: pictures are in it, and it tells the browser to fetch nothing
and to run no script.
"""

import base64
from collections.abc import Iterable, Sequence
from html import escape

from botorch_sparse.command_line import one_line
from botorch_sparse.command_line.csv_cells import number

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
# Columns of longer texts are not squeezed to one word in each line.
FEW_LETTERS = 18
STYLE = """
body { max-width: 62rem; margin: 2.5rem auto; padding: 0 1.25rem; line-height: 1.5;
  color: #1c1c1c; background: #fff;
  font-family: system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.6rem; font-weight: 600; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; font-weight: 600; margin: 2.4rem 0 .6rem; }
h3 { font-size: 1rem; font-weight: 600; margin: 1.5rem 0 .4rem; }
p, ul { margin: .4rem 0 .7rem; max-width: 48rem; overflow-wrap: anywhere; }
ul { padding-left: 1.1rem; }
.note { color: #5a5a5a; font-size: .88rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; margin: .5rem 0 .9rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem 1.1rem .3rem 0;
  border-bottom: 1px solid #e3e3e3; max-width: 18rem; overflow-wrap: break-word; }
th { font-weight: 600; border-bottom: 1px solid #8a8a8a; vertical-align: bottom; }
td:last-child, th:last-child { padding-right: 0; }
.number { text-align: right; }
.words { min-width: 11rem; }
img { display: block; max-width: 100%; height: auto; margin: .5rem 0; }
@media print {
  body { max-width: none; margin: 0; padding: 0; font-size: 10pt; }
  .wide { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding-right: .35rem; }
  .words { min-width: 4.2rem; overflow-wrap: anywhere; }
  h2, h3 { break-after: avoid; }
  img, tr { break-inside: avoid; }
}
"""


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page of parts that are HTML already."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{text(title)}</h1>\n{''.join(parts)}</body>\n</html>\n"
    )


def text(content: str) -> str:
    """A text for HTML, in one line, with control characters escaped."""
    return escape(one_line(content))


def section(title: str, *parts: str) -> str:
    """A heading, and parts that are HTML already."""
    return f"<section>\n<h2>{text(title)}</h2>\n{''.join(parts)}</section>\n"


def heading(content: str) -> str:
    """A heading inside of a section."""
    return f"<h3>{text(content)}</h3>\n"


def paragraph(content: str) -> str:
    """A paragraph."""
    return f"<p>{text(content)}</p>\n"


def note(content: str) -> str:
    """A paragraph in small print."""
    return f'<p class="note">{text(content)}</p>\n'


def bullets(lines: Iterable[str]) -> str:
    """A list."""
    items = "".join(f"<li>{text(line)}</li>\n" for line in lines)
    return f"<ul>\n{items}</ul>\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of one row at least; numbers and percentages stand to the right."""
    kinds = [_kind(cells) for cells in zip(*rows, strict=True)]

    def line(tag: str, cells: Iterable[str]) -> str:
        each = zip(kinds, cells, strict=True)
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in each)

    # Names of columns may be broken behind underscores.
    names = line("th", (text(name).replace("_", "_<wbr>") for name in header))
    body = "".join(f"<tr>{line('td', map(text, row))}</tr>\n" for row in rows)
    return (
        '<div class="wide"><table>\n'
        f"<thead><tr>{names}</tr></thead>\n<tbody>\n{body}</tbody>\n"
        "</table></div>\n"
    )


def picture(svg: str, alt: str) -> str:
    """A picture, and what it shows in words.

    As an image it has names and styles of its own, and nothing in it can run.
    """
    data = base64.b64encode(svg.encode()).decode()
    source = f"data:image/svg+xml;base64,{data}"
    return f'<img src="{source}" alt="{text(alt)}">\n'


def _kind(cells: Sequence[str]) -> str:
    """The class of a column in a table, as an attribute."""
    filled = [cell.removesuffix("%") for cell in cells if cell.strip()]
    if filled and all(number(cell) is not None for cell in filled):
        return ' class="number"'
    return ' class="words"' * any(len(cell) > FEW_LETTERS for cell in cells)
