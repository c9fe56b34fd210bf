"""What a cell of a workbook has beside its value: comments, strokes and colours."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from botorch_sparse.argument_checks import short_repr

# Of a column at most this share of cells has a colour that says something of each.
FEW_COLOURED = 0.25
# Numbers of white, and of the window's own colour, in the palette.
WHITE = frozenset([1, 9, 65])


def marked_cells(cells: Sequence[Any]) -> tuple[list[str], list[str]]:
    """Places of filled cells that are struck out; and comments, with their places."""
    styles, struck, commented = dict[int, bool](), list[str](), list[str]()
    for cell in cells:
        if cell.comment is not None:
            commented.append(f"{cell.coordinate}, {short_repr(cell.comment.text)}")
        is_struck = bool(_struck_parts(cell)) and all(_struck_parts(cell))
        if cell.has_style and not is_struck:
            style = cell.style_id
            if style not in styles:
                styles[style] = bool(cell.font.strike)
            is_struck = styles[style]
        if is_struck:
            struck.append(cell.coordinate)
    return struck, commented


def few_coloured(cells: Sequence[Any]) -> dict[int, list[str]]:
    """Of columns, by place: the few filled cells below the header with a colour.

    They are a quarter of the column's cells at most. A single one may be of fewer if
    its row has another cell without, and is no band.
    """
    styles = dict[int, bool]()
    rows = defaultdict[int, list[bool]](list)
    columns = defaultdict[int, list[Any]](list)
    for cell in cells:
        if cell.style_id not in styles:
            styles[cell.style_id] = cell.has_style and _has_colour(cell.fill)
        if cell.row > cells[0].row:
            rows[cell.row].append(styles[cell.style_id])
            columns[cell.column - 1].append(cell)
    few = dict[int, list[str]]()
    for place, column in columns.items():
        found = [cell for cell in column if styles[cell.style_id]]
        is_alone = len(found) == 1 < len(column) and not all(rows[found[0].row])
        if found and (len(found) <= FEW_COLOURED * len(column) or is_alone):
            few[place] = [cell.coordinate for cell in found]
    return few


def _has_colour(fill: Any) -> bool:
    """Whether a cell is filled, and not with white."""
    if fill.fill_type is None:
        return False
    colour = getattr(fill, "fgColor", None)  # a gradient has several
    if colour is None or colour.type == "rgb":
        return colour is None or not str(colour.rgb).upper().endswith("FFFFFF")
    if colour.type == "theme":
        return (colour.theme, colour.tint) != (0, 0)
    return colour.indexed not in WHITE


def _struck_parts(cell: Any) -> list[bool]:
    """Of a text whose parts have fonts of their own: whether each is struck out."""
    parts = cell.value if isinstance(cell.value, list) else []
    fonts = (getattr(part, "font", None) for part in parts if str(part).strip())
    return [font is not None and bool(font.strike) for font in fonts]


def partly_struck(cells: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Cells of which a part is struck out, by the places of their columns."""
    for cell in cells:
        if len(set(_struck_parts(cell))) > 1:
            yield (
                cell.column - 1,
                f"a part of cell {cell.coordinate}, {short_repr(str(cell.value))}, is "
                "struck out; write in it what counts, and no more",
            )
