"""The next rows of a table to measure, on the command line.

`python -m botorch_sparse suggest --candidates pool.csv --results measured.csv --key id
--target loss --minimize --batch 20 > next.csv` reads the candidates and the results,
fits a sparse Gaussian process, and writes the rows to measure next, with predictions.
`--help` lists the options.

Columns in which every cell is a number are numbers; others are categories. Each row is
proposed once. The results hold all feedback, and each call learns from them anew, also
from rows that are no longer candidates, if all features are among the columns. Rows
that were proposed and have no result yet are remembered with `--state` alone. The same
files give the same next rows, to the bit.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from botorch.exceptions import BotorchError, InputDataError
from botorch.exceptions.warnings import BotorchWarning

from botorch_sparse.argument_checks import short_list
from botorch_sparse.command_line import (
    INTERRUPTED,
    OneLineParser,
    positive_int,
    positive_number,
    say,
    seed_number,
)
from botorch_sparse.suggest.candidate_pool import Pool, read_pool
from botorch_sparse.suggest.exclusions import excluded_rows, repeated_rows
from botorch_sparse.suggest.html_report import html_page
from botorch_sparse.suggest.outcome_options import add_outcome_options, outcomes_of
from botorch_sparse.suggest.proposed_rows import (
    ProposedRows,
    locked,
    named_errors,
    read_proposed,
    without_results,
    write_proposed,
    write_whole,
)
from botorch_sparse.suggest.report import (
    column_lines,
    drawn_lines,
    exclusion_lines,
    related_lines,
    result_lines,
    summarize,
)
from botorch_sparse.suggest.result_checks import check_known_before, check_no_results
from botorch_sparse.suggest.results import Results, read_related, read_results
from botorch_sparse.suggest.selection import (
    ROW,
    STRATEGIES,
    added_columns,
    choose,
    format_rows,
)
from botorch_sparse.suggest.warning_words import pool_warnings


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the next rows.

    Exits with status 2 and one line on stderr if an option or a table is wrong.
    """
    parser = _parser()
    args = parser.parse_args(arguments)
    old = dict[Path, os.stat_result]()
    try:
        _check_paths(args)
        _check_costs(args)
        old |= {
            path: path.stat()
            for path in (args.output, args.report)
            if path is not None and path.is_file()
        }
        with _one_line_warnings(args.quiet), locked(args.state):
            _suggest(args)
    except KeyboardInterrupt:
        say("Interrupted; nothing was written.")
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        parser.error("the output was closed before all rows were written")
    except (BotorchError, OSError) as error:
        parser.error(f"{error}{_of_earlier_call(old)}")


def _of_earlier_call(old: Mapping[Path, os.stat_result]) -> str:
    """A sentence on files that a call which failed has left as they were."""
    same = [
        str(path)
        for path, before in old.items()
        if path.exists() and os.path.samestat(path.stat(), before)
    ]
    if not same:
        return ""
    shown = short_list(same, show=repr)
    return f" Not written, and still of an earlier call: {shown}."


def _suggest(args: argparse.Namespace) -> None:
    """Read, learn, propose, write; the state is written last."""
    pool = read_pool(
        args.candidates,
        args.key,
        outcomes_of(args),
        args.text,
        args.ignore,
        cost=args.cost,
        decimal=args.decimal,
        smiles=args.smiles,
    )
    _check_names(pool, args.ignore)
    files = [path for path in args.results if path.exists()]
    one_file = any(path.samefile(args.candidates) for path in files)
    check_known_before(pool, args.ignore, one_file=one_file)
    before = read_proposed(args.state, pool)
    results = read_results(
        args.results,
        pool,
        skip_empty=args.skip_empty,
        candidates=args.candidates,
        waiting=set(before.rows),
        ignored=args.ignore,
    )
    _check_ignored(pool, results, args.ignore)
    if not len(results) and not results.failed:
        check_no_results(pool, args.ignore)
    related = read_related(args.related, pool)
    proposed = without_results(before, pool, results)
    out = excluded_rows(pool, args.exclude, args.decimal)
    of_conditions = {*chain.from_iterable(out.values())}
    known = {*results.rows, *results.failed, *proposed.rows}
    excluded = sorted({*of_conditions, *repeated_rows(pool, known, of_conditions)})
    chosen = choose(args, pool, results, proposed.rows, excluded, related)
    strategy, rows = chosen.strategy, chosen.rows
    history = None if strategy is None else strategy.history
    columns = dict.fromkeys(  # a file of both is read twice
        [
            *column_lines(pool, args.text, args.ignore, one_file=one_file),
            *pool_warnings(pool, {*known, *excluded}),
            *result_lines(pool, results),
            *related_lines(pool, results, related),
            *exclusion_lines(pool, out),
            *drawn_lines(chosen),
        ]
    )
    summary = summarize(
        pool, results, proposed, rows, history, excluded, args.budget, columns
    )
    text = format_rows(pool, chosen.rows, chosen.explained)
    page = None
    if args.report is not None:
        page = html_page(pool, results, strategy, summary, text)
    _write(text, args.output)
    if page is not None:
        write_whole(args.report, page.encode())
    if args.state is not None:
        waiting = ProposedRows([*proposed.rows, *chosen.rows], proposed.gone)
        write_proposed(args.state, pool, waiting, results)
    for line in () if args.quiet else summary.lines:
        say(line)


def _write(text: str, path: Path | None) -> None:
    """Write in UTF-8, to a file as a whole or to stdout.

    Text beyond ASCII has a byte order mark, without which Excel reads it otherwise.
    """
    content = text.encode("utf-8" if text.isascii() else "utf-8-sig")
    if path is not None:
        return write_whole(path, content)
    with named_errors("the standard output"):
        try:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        except OSError:  # what is left would fail again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise


def _check_names(pool: Pool, ignored: Collection[str]) -> None:
    """Check that columns of the output have names of their own, ignored ones aside."""
    added = added_columns(pool.outcomes)
    for name in added if pool.key is not None else (ROW, *added):
        if name in pool.text.columns and name not in ignored:
            key = f", give it as --key {ROW}" * (name == ROW)
            raise InputDataError(
                f"{pool.text.name} has a column {name!r}, which the output adds; "
                f"rename it{key} or leave it out with --ignore {name}."
            )


def _check_ignored(pool: Pool, results: Results, ignored: Sequence[str]) -> None:
    """Check that some file has each column that is left out."""
    of_results = {*chain.from_iterable(text.columns for text in results.texts)}
    pool.text.need(
        (name for name in ignored if name not in of_results), "which --ignore names"
    )


def _check_costs(args: argparse.Namespace) -> None:
    """Check that a budget has costs, and that the strategy takes them."""
    if args.budget is not None and args.cost is None:
        raise InputDataError("--budget needs --cost, the column with the costs.")
    if args.cost is not None and args.strategy == "bbkb":
        raise InputDataError("--strategy bbkb takes no --cost; leave one of them out.")


def _check_paths(args: argparse.Namespace) -> None:
    """Check that results come once, and that output is no input and has a folder."""
    given = [path.resolve() for path in (*args.results, *args.related)]
    for i, path in enumerate((*args.results, *args.related)):
        if given[i] in given[:i]:
            option = "--results" if i < len(args.results) else "--results or --related"
            raise InputDataError(
                f"{str(path)!r} is given twice as {option}; name each file once."
            )
    given.append(args.candidates.resolve())
    for path in filter(None, (args.state, args.output, args.report)):
        if path.resolve() in given:
            raise InputDataError(f"{str(path)!r} is given twice; nothing was written.")
        if not path.parent.is_dir() or path.is_dir():
            raise InputDataError(f"{str(path)!r} cannot be written: no such folder.")
        given.append(path.resolve())


@contextmanager
def _one_line_warnings(is_quiet: bool) -> Iterator[None]:
    """Print warnings of the library as notes of one line, and no others."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    ours = [w.message for w in caught if issubclass(w.category, BotorchWarning)]
    for message in dict.fromkeys(map(str, ours)) if not is_quiet else ():
        say(f"note: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m botorch_sparse suggest",
        description="Propose the rows of a table to measure next, each of them once.",
        epilog="predicted_sd is the standard deviation of the function; a measurement "
        "varies more, by its noise. Call it again when there are more results. Rows "
        "that were proposed and have no result yet are remembered with --state alone; "
        "without it they can be proposed again.",
        allow_abbrev=False,
    )
    _add_tables(parser)
    add = parser.add_argument
    _add_first_batch(parser)
    add(
        "--strategy",
        choices=STRATEGIES,
        default="improvement",
        help="default: improvement; thompson is quicker on large tables",
    )
    add(
        "--state",
        type=Path,
        metavar="FILE",
        help="remembers the rows that wait for results; in the results they may have "
        "no value yet",
    )
    add("--seed", type=seed_number, default=0, help="default: 0")
    add("--output", type=Path, metavar="FILE.csv", help="default: standard output")
    add(
        "--report",
        type=Path,
        metavar="FILE.html",
        help="a page for a browser or for paper: the best row so far, progress, "
        "predictions against measurements, what each column does, and the next rows. "
        "It loads nothing from the network; its pictures need matplotlib",
    )
    add("--quiet", action="store_true", help="print errors alone")
    return parser


def _add_first_batch(parser: argparse.ArgumentParser) -> None:
    """Add the options on the rows at the start, and on costs."""
    add = parser.add_argument
    add(
        "--first",
        type=positive_int,
        metavar="N",
        help="rows that are measured before a model chooses: the first batches have so "
        "many together (default: 5 to 20, in whole batches)",
    )
    add(
        "--design",
        choices=["k-means", "random"],
        default="k-means",
        help="how these rows are chosen: spread over the table, one of each of as many "
        "clusters (default: k-means), or drawn at random",
    )
    add(
        "--cost",
        metavar="COLUMN",
        help="a column of the candidates with what a measurement of each costs, above "
        "0. It is no feature; rows are chosen for what they bring for their cost",
    )
    add(
        "--budget",
        type=positive_number,
        metavar="NUMBER",
        help="what all measurements may cost together, those in the results and those "
        "that wait included; costs count less as it is spent",
    )


def _add_tables(parser: argparse.ArgumentParser) -> None:
    """Add the options on files and their columns."""
    add = parser.add_argument
    add("--candidates", type=Path, required=True, metavar="FILE.csv")
    add(
        "--results",
        action="extend",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE.csv",
        help="measured rows, in one file or in several, as one for each round. Without "
        "it, or with an empty file, a first batch is drawn. A row with the same value "
        "in two files counts once. A file of candidates and results is given twice, as "
        "--candidates and as --results: its rows without a value can be proposed",
    )
    add(
        "--related",
        action="extend",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE.csv",
        help="results of earlier campaigns with the same columns, a file for each. "
        "What they share with this one is learned, level and sign of the values "
        "included. They are no results of this one: their rows may be measured again",
    )
    add(
        "--key",
        metavar="COLUMN",
        help="names the rows (default: their features do, to six digits)",
    )
    add_outcome_options(parser)
    add("--batch", type=positive_int, default=20, metavar="Q", help="default: 20")
    add(
        "--text",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a feature of categories although its cells are numbers, or although "
        "nearly each row has another text; can be repeated",
    )
    add(
        "--smiles",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a feature of molecules, written as SMILES; can be repeated, for "
        "reactions (needs botorch_sparse[molecules])",
    )
    add(
        "--ignore",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column of the candidates that is no feature, or one of the results; "
        "can be repeated",
    )
    add(
        "--exclude",
        action="append",
        default=[],
        metavar="CONDITION",
        help="rows that may not be measured now: COLUMN=VALUE, or with a number <, <=, "
        '>, >= or != in quotes, such as "temperature>80"; can be repeated. Their '
        "results count all the same",
    )
    add(
        "--decimal",
        choices=[".", ","],
        metavar="MARK",
        help="decimal mark of the numbers in all files, those that are written "
        "included (default: a point, where it can be no mark between thousands). Cells "
        "are separated as in the candidates",
    )
    add(
        "--skip-empty",
        action="store_true",
        help="results without a value (empty, NA, NaN) have failed, as if they had the "
        "word failed, and are not proposed again. In a file of candidates and results "
        "they have not been measured yet",
    )
