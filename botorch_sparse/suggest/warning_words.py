"""Words and flags that forbid a row of the candidates, or void a result.

The list is one for both files, in English, German and French. What it finds is named,
and taken all the same.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.command_line.csv_cells import is_missing, number
from botorch_sparse.suggest.candidate_pool import Pool
from botorch_sparse.suggest.result_checks import remark_columns
from botorch_sparse.suggest.results import Results
from botorch_sparse.suggest.written_numbers import UNIT_BEHIND

# Words that warn wherever they stand in a cell.
WARNING = re.compile(
    r"\b(do not|don['\u2019]?t|stop|explosive|explosion|explodes?|peroxides|recalled"
    r"|expired|danger(ous)?|discard(ed)?|ignored?|wrong|void(ed)?|invalid|reject(ed)?"
    r"|abort(ed)?|cancell?ed|superseded|outliers?|exclude|mislabell?ed|mix(ed)?[ -]up"
    r"|discontinued|unavailable|sold out|(out[ -]of|not in)[ -]stock"
    r"|(not|no longer) available|not valid|unusable|not usable"
    r"|nicht (mehr )?(verwenden|benutzen|nehmen|ansetzen|auswerten|werten|lieferbar"
    r"|verwertbar|brauchbar|verwendbar|nutzbar"
    r"|verf\u00fcgbar|vorr\u00e4tig|auf lager)|explosiv|abgelaufen|gesperrt|verboten"
    r"|achtung|zur\u00fcckgerufen|gefahr|ung\u00fcltig|verw[oe]rfen|ignorieren|unbrauchbare?"
    r"|abgebrochen|storniert|falsche[mnrs]?|ausrei(\u00df|ss)er|ausverkauft|vergriffen"
    r"|ne pas (utiliser|employer|prendre|lancer|tenir compte)|\u00e0 jeter"
    r"|rejet\u00e9e?|invalide|annul\u00e9e?|aberrante?|erron\u00e9e?|p\u00e9rim\u00e9e?"
    r"|\u00e9puis\u00e9e?|interdite?|en rupture|indisponible|non (disponible|valide)"
    r"|inutilisables?|(non|pas) utilisables?"
    r")\b|[(\[][^)\]]*peroxid",
    re.IGNORECASE,
)
# These and others, which warn beside results alone: a value is in doubt, or may change.
OF_RESULTS = re.compile(
    rf"{WARNING.pattern}|\b(unreliable|not (be )?(reliable|trustworthy)|contaminated"
    r"|still (running|stirring|ongoing)|in progress|interim|preliminary|provisional"
    r"|unzuverl\u00e4ssig|nicht zuverl\u00e4ssig|kontaminiert|verunreinigt"
    r"|l\u00e4uft noch|noch am laufen|in (arbeit|bearbeitung)|vorl\u00e4ufig(e[mnrs]?)?"
    r"|vorlaeufig(e[mnrs]?)?|(non|pas|peu) fiables?|contamin\u00e9e?s?"
    r"|en cours(?! d['\u2019e])|provisoires?|pr\u00e9liminaires?"
    # What went wrong with a flask, a sample or an instrument.
    r"|spil(led|lage|l|t)|lost|cracked|broken?|burst|leak(s|y|ed|age|ing)?|stuck"
    r"|fail(ed|ure)|blew (off|out|up)|popped (off|out)|(ran|boiled|went) dry|typo"
    r"|geplatzt|gesprungen|(zer|ge)brochen|versch(\u00fc|ue)ttet|verloren|undicht|leck"
    r"|ausgelaufen|fehlgeschlagen|tippfehler|vertauscht|verwechselt"
    r"|perdue?s?|renvers\u00e9e?s?|cass\u00e9e?s?|fissur\u00e9e?s?|fuites?"
    r"|coinc\u00e9e?|\u00e9chou\u00e9e?s?|erreur de (frappe|saisie)"
    # Values that nobody measured.
    r"|predicted|estimated|extrapolated|guess(ed)?|from (the )?literature"
    r"|lit(erature|\.)? values?|(not|never) (yet )?(been )?(run|measured)"
    r"|to be (run|measured|repeated|confirmed)|(aus|laut) (der )?literatur"
    r"|vorhergesagt|gesch(\u00e4|ae)tzt|nicht (gemessen|gelaufen|durchgef\u00fchrt)"
    r"|estim\u00e9e?s?|pr\u00e9dite?s?|(non|pas( encore)?) (mesur|lanc)\u00e9e?s?"
    r"|de la litt\u00e9rature)\b",
    re.IGNORECASE,
)
# The same words where they say nothing of a row.
HARMLESS = re.compile(
    r"\bvoid[ -](volume|time|fraction)|\bstop(ped)?[ -]flow|\bperoxide[ -](free|test)"
    r"|\b(do not|don['\u2019]?t) (see|observe|dissolve|react)"
    r"|\b(no|not|non|nothing|keine?|nichts?|aucune?|pas)[ -]"
    r"(an? |de |product |material )?(outliers?|discarded|rejected|aborted|invalid"
    r"|explosive|ausrei\w+|contamin\w+|kontaminiert|verunreinigt|interim|preliminary"
    r"|provisional|vorl\w+|spil\w+|lost"
    r"|leak\w*|fail\w+|cracked|broken|stuck|undicht|verloren|fuites?|perdue?s?)"
    r"|\b(emulsion|vacuum)( (was|is))? brok|\bbroken? (up|down|white|vacuum|emulsion)\b"
    r"|\bburst[ -](phase|release|kinetics)|\blost (water|colou?r|solvent|gas)\b"
    r"|\bleak[ -]?(test|check|free|tight|proof)|\bfor leaks\b|\b(as|than) predicted\b"
    r"|\bfailed to (dissolve|crystalli[sz]e|precipitate|solidify|react)\b"
    r"|\bestimated (by|from) (the )?(\d+[a-z] |crude )?(nmr|gc|hplc|lc|uv)\b"
    r"|\b(ee|mp|ir|ms|nmr|gc|hplc|lc-?ms|purity|rotation|ph)( (was|is))? not (yet )?"
    r"(run|measured)|\bnot run (under|in|at|with)\b"
    r"|\b(interim|preliminary) (storage|cooling|purification|drying|step|tests?|tlc)\b"
    r"|\b(layer|phase|filtrate|liquor|supernatant|residue|washing|precipitate|solid"
    r"|fraction)s?( (was|were))? discarded",
    re.IGNORECASE,
)
# Cells that warn as a whole; and others, which do beside results alone.
STATUS = re.compile(
    r"blocked|excluded|fail(ed)?|not ok|nok|n\. ?i\. ?o\.|fehlgeschlagen|ausgeschlossen"
    r"|exclue?|\u00e9chou\u00e9e?",
    re.IGNORECASE,
)
# Of candidates some are being measured, or were; a remark may follow.
BEGUN = re.compile(
    r"(running|ongoing|done|finished|completed|l\u00e4uft|laufend|fertig|erledigt"
    r"|en cours|termin\u00e9e?|faite?)(\s*[(:,;-].*)?",
    re.IGNORECASE,
)
UNFINISHED = re.compile(
    r"running|ongoing|pending|planned|queued|l\u00e4uft|laufend|ausstehend|geplant"
    r"|en attente|pr\u00e9vue?",
    re.IGNORECASE,
)
NO_SAMPLE = re.compile(
    r"((neg(ative|\.)?|pos(itive|\.)?) )?(blank|control|leerwert|blindwert|blindprobe"
    r"|(negativ|positiv)?kontrolle|t\u00e9moin|essai \u00e0 blanc)[ _-]?\d*",
    re.IGNORECASE,
)
# Names of columns that say yes of rows and results that count; and of those that say
# whether a row can be had, or how much of it there is.
SOUND = re.compile(
    r"(is )?(valid|usable|approved|reliable)|g\u00fcltig|verwendbar|verwertbar|valide"
    r"|fiable",
    re.IGNORECASE,
)
IN_STOCK = re.compile(
    r"(is )?((in |on )?stock|available|orderable)|inventory|(lager)?bestand|lieferbar"
    r"|verf\u00fcgbar|vorr\u00e4tig|vorrat|auf lager|en stock|disponible"
    r"|(amount|quantity) (in|on) (stock|hand)|stock (amount|level|quantity)",
    re.IGNORECASE,
)
# Beside results also those that say which of them were used, and which were not; other
# words may stand around, as in `QC passed` or `include in evaluation`.
USED = re.compile(
    r"((is|was|to be|qc|rep(licate)?|run|result|value|data( ?point)?|sample) )*"
    r"(used?|include[sd]?|keep|kept|ok(ay)?|active|pass(ed)?|accepted|counts?|weight|qc"
    r"|aktiv|verwenden|verwendet|werten|gewertet|bestanden|in ordnung|einbezogen"
    r"|actif|active|retenue?|utilis\u00e9e?|\u00e0 utiliser|inclus|conforme)"
    r"( (in|for|im|f\u00fcr|dans|pour) .+| flag| status)?",
    re.IGNORECASE,
)
OMITTED = re.compile(
    r"(to )?(omit(ted)?|skip(ped)?|drop(ped)?|removed?|deleted?|left out)"
    r"|weglassen|auslassen|streichen|gestrichen|omis|\u00e0 omettre|\u00e9cart\u00e9",
    re.IGNORECASE,
)
YES = frozenset("1 1.0 y yes t true x ja wahr oui vrai \u2713 \u2714".split())
NO = frozenset(
    "0 0.0 n no f false fail failed nein falsch non faux - \u2717 \u2718".split()
)
# So much of a long cell is shown before the word.
SHOWN_BEFORE = 40


def pool_warnings(pool: Pool, known: Collection[int] = ()) -> Iterator[str]:
    """A note on keys and other cells of candidates that forbid a row.

    Columns that are no features may have them too.

    Args:
        pool: The candidates.
        known: Rows that are not proposed anyway.
    """
    found = [
        short_repr(key)
        for key, row in pool.row_of_key.items()
        if _find(key) is not None and row not in known
    ]
    for column in (*pool.features, *remark_columns(pool.text, pool)):
        kinds, all_cells = pool.categories.get(column), pool.text.columns[column]
        is_text = column not in pool.smiles and (
            kinds is not None or column not in pool.features
        )
        if not _warnings(column, all_cells if kinds is None else kinds, words=is_text):
            continue  # most columns: nothing more to look at in a long pool
        cells = {i: cell for i, cell in enumerate(all_cells) if i not in known}
        for odd in _warnings(column, cells.values(), words=is_text):
            rows = [pool.text.place(i) for i, cell in cells.items() if cell == odd]
            what = f"{_shown(odd)} of {short_repr(column)}"
            found.append(f"{short_list(rows, 1, show=str)}: {what}")
    if found:
        yield (
            f"note: {pool.text.name}: {short_list(found, 5, show=str)} may say that "
            "rows are not to be measured, and can be proposed all the same. Leave "
            "these rows out, or name them by --exclude."
        )


def result_warnings(results: Results, pool: Pool) -> Iterator[str]:
    """A note on the results of each file that are void by a remark or a flag.

    What the candidates say of a row, and the output with them, is none of its result.
    """
    for text in results.texts:
        told = [each for each in results.told if each.text is text]
        found = list[tuple[int, str]]()
        for column in remark_columns(text, pool):
            cells = text.columns[column]
            odd = {*_warnings(column, cells, words=True, of_results=True)}
            listed = pool.text.columns.get(column, cells)
            is_copy = listed != cells  # and not one file of candidates and results
            for each in told if odd else ():
                cell = cells[each.place]
                is_of_row = is_copy and each.row >= 0 and listed[each.row] == cell
                if cell in odd and not is_of_row:
                    shown = f"{_shown(cell, of_results=True)} in {short_repr(column)}"
                    found.append((each.place, f"{text.place(each.place)}, {shown}"))
        if found:
            yield (
                f"{text.name}: {short_list([x for _, x in sorted(found)], 3, show=str)}"
                " may say that results are void, and they count all the same. Leave "
                "these results out if they are not to count"
            )


def is_flag(column: str, cells: Collection[str]) -> bool:
    """Whether a column of results says of some that they do not count."""
    return bool(_flags(column, [*dict.fromkeys(cells)], of_results=True))


def _warnings(
    column: str, cells: Collection[str], *, words: bool, of_results: bool = False
) -> list[str]:
    """The different cells of a column that forbid or void what they belong to."""
    if flags := _flags(column, [*dict.fromkeys(cells)], of_results=of_results):
        return flags
    if not words:
        return []
    kinds = [kind for kind in dict.fromkeys(cells) if number(kind) is None]
    return [
        kind
        for kind in kinds
        if _find(kind, of_results=of_results) is not None
        or (of_results and NO_SAMPLE.fullmatch(kind))
    ]


def _flags(column: str, kinds: Sequence[str], *, of_results: bool) -> list[str]:
    """The cells of a column of yes and no that say the worse of the two.

    Of one kind of cell beside empty ones either may be it.
    """
    name = UNIT_BEHIND.sub("", column).replace("_", " ").strip(" ?")
    is_sound, is_stock = SOUND.fullmatch(name), IN_STOCK.fullmatch(name)
    is_bad = _find(name, of_results=of_results) is not None
    if of_results:
        is_sound = is_sound or USED.fullmatch(name)
        is_bad = is_bad or OMITTED.fullmatch(name) is not None
    if len(kinds) < 2 or not (is_sound or is_stock or is_bad):
        return []
    known = [kind for kind in kinds if not is_missing(kind)]
    yes, no = ([x for x in known if x.casefold() in words] for words in (YES, NO))
    if is_stock:
        return [] if of_results else no
    if len(known) > 2:
        return []
    if is_sound:
        return no or ([x for x in kinds if is_missing(x)] if yes else [])
    is_mark = len(known) == 1 and number(known[0]) is None
    return yes or (known if is_mark and not no else [])


def _find(cell: str, *, of_results: bool = False) -> int | None:
    """The place of the first word of a cell that warns; None for none."""
    if STATUS.fullmatch(cell) or (UNFINISHED if of_results else BEGUN).fullmatch(cell):
        return 0
    words = OF_RESULTS if of_results else WARNING
    if words.search(cell) is None:  # most cells
        return None
    found = words.search(HARMLESS.sub(lambda part: " " * len(part[0]), cell))
    return None if found is None else found.start()


def _shown(cell: str, *, of_results: bool = False) -> str:
    """A cell in messages; if it is long, from the word on that warns."""
    place = _find(cell, of_results=of_results) or 0
    return short_repr(cell if place <= SHOWN_BEFORE else f"...{cell[place:]}")
