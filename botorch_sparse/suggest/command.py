"""The next rows of a table to measure, on the command line.

`python -m botorch_sparse suggest --candidates pool.csv --results measured.csv --key id
--target loss --minimize --batch 20 > next.csv` reads what can be measured and what has
been, fits a sparse Gaussian process, and writes the rows to measure next with what the
model expects of them. `--help` lists the options.

Columns in which every cell is a number are numbers; others are categories. Each row is
proposed once. The results hold all feedback, and each call learns from them anew, also
from those whose rows are no longer candidates, if all features are among their columns.
Rows that were proposed and have no result yet are remembered with `--state` alone,
which one call at a time can use; they wait even where they are no candidates. The
results may be in several files, and in the candidates' own: what has no value there is
not yet measured. The word `failed` as value says that there will be none.
The same files give the same next rows, to the bit.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from botorch.exceptions import BotorchError, InputDataError
from botorch.exceptions.warnings import BotorchWarning

from botorch_sparse import strategies
from botorch_sparse.strategies import Batch
from botorch_sparse.strategies.core.checkpoint import write_whole
from botorch_sparse.strategies.data.history import Best
from botorch_sparse.suggest.candidate_file import read_pool
from botorch_sparse.suggest.candidate_pool import Pool, with_points
from botorch_sparse.suggest.command_line import (
    OneLineParser,
    StoreOnce,
    positive_int,
    say,
    seed_number,
)
from botorch_sparse.suggest.notes import note_columns, report
from botorch_sparse.suggest.proposed_rows import (
    ProposedRows,
    locked,
    read_proposed,
    without_results,
    write_proposed,
)
from botorch_sparse.suggest.result_checks import check_no_results
from botorch_sparse.suggest.results import Results, read_results
from botorch_sparse.suggest.selection import (
    ADDED,
    ONLY,
    ROW,
    explain,
    format_rows,
    propose,
)

STRATEGIES = {"bbkb": "BBKB", "thompson": "ThompsonSampling"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the next rows.

    Exits with status 2 and one line on stderr if an option or a table is wrong.
    """
    parser = _parser()
    args = parser.parse_args(arguments)
    try:
        _check_paths(args)
        with _one_line_warnings(args.quiet), locked(args.state):
            _suggest(args)
    except KeyboardInterrupt:
        say("Interrupted; nothing was written.")
        raise SystemExit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        parser.error("the output was closed before all rows were written")
    except (BotorchError, OSError) as error:
        parser.error(str(error))


def _suggest(args: argparse.Namespace) -> None:
    """Read, learn, propose, write; the state is written last."""
    pool = read_pool(
        args.candidates,
        args.key,
        args.target,
        args.text,
        args.ignore,
        decimal=args.decimal,
    )
    _check_names(pool, args.ignore)
    before = read_proposed(args.state, pool, minimize=args.minimize)
    results = read_results(
        args.results,
        pool,
        skip_empty=args.skip_empty,
        candidates=args.candidates,
        waiting=set(before.rows),
    )
    is_told = len(results) or results.failed
    if not is_told and args.target not in args.ignore:
        check_no_results(pool)
    proposed = without_results(before, pool, results, args.state)
    chosen, explained, best = _choose(args, pool, results, proposed.rows)
    text = format_rows(pool, chosen, explained)
    _write(text, args.output)
    if args.state is not None:
        waiting = ProposedRows([*proposed.rows, *chosen], proposed.gone)
        write_proposed(args.state, pool, waiting, minimize=args.minimize)
    if not args.quiet:
        one_file = _is_one_file(args.candidates, args.results)
        note_columns(pool, args.text, args.ignore, one_file=one_file)
        report(pool, results, proposed, len(chosen), best)


def _choose(
    args: argparse.Namespace, pool: Pool, results: Results, pending: Sequence[int]
) -> tuple[list[int], list[tuple[str, str, str]], Best | None]:
    """The next rows, what is said of them, and the best one so far."""
    if len(pool.table) == 1 and not results.points:  # nothing to compare it with
        chosen = [] if {*results.rows, *results.failed, *pending} else [0]
        return chosen, [("", "", ONLY)] * len(chosen), None
    strategy = rebuild(args, pool, results, pending)
    chosen, num_drawn = propose(strategy, args.batch)
    X = strategy.table.X[: len(pool.table)]
    explained = explain(strategy, X, chosen, num_drawn)
    return chosen, explained, strategy.history.best() if len(results) else None


def rebuild(
    args: argparse.Namespace, pool: Pool, results: Results, pending: Sequence[int]
) -> Any:
    """A strategy that knows the results, and which rows are not to be proposed.

    Its seed depends on how many rows are known: the same files give the same next
    rows, and each call draws sample paths of its own.

    Results beside the pool are rows of its table, behind the pool's: all of them are
    measured, so none is proposed, and what varies among them alone counts too.

    Args:
        args: The options `strategy`, `batch`, `minimize` and `seed`.
        pool: The candidates.
        results: All measurements.
        pending: Rows that wait for results.
    """
    kind = getattr(strategies, STRATEGIES[args.strategy])
    known = len(results) + len(results.failed) + len(pending)
    drawn = np.random.SeedSequence((args.seed, known)).generate_state(1, np.uint64)
    table = with_points(pool.table, results.points)
    with _naming(pool.text.name):
        strategy = kind(
            table,
            batch_size=args.batch,
            minimize=args.minimize,
            unique=True,
            seed=int(drawn[0] >> 1),
        )
    strategy.restore_trials(pending, failed=results.failed)
    if len(results):
        index = torch.tensor([*results.rows, *range(len(pool.table), len(table))])
        Y = torch.tensor([*results.values, *results.point_values], dtype=torch.float64)
        with _naming(results.name):
            strategy.tell(Batch(table.X[index], index), Y)
            strategy.learn()  # whatever is pending
    return strategy


def _write(text: str, path: Path | None) -> None:
    """In UTF-8, to a file as a whole or to stdout."""
    if path is not None:
        write_whole(path, lambda file: file.write(text.encode()))
        return
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """What the library says of its input is said of a file."""
    try:
        yield
    except InputDataError as error:
        raise InputDataError(f"{name}: {error}") from error


def _check_names(pool: Pool, ignored: Collection[str]) -> None:
    """The output's own columns must not be taken; it leaves out ignored ones."""
    for name in ADDED if pool.key is not None else (ROW, *ADDED):
        if name in pool.text.columns and name not in ignored:
            key = f", give it as --key {ROW}" * (name == ROW)
            raise InputDataError(
                f"{pool.text.name} has a column {name!r}, which the output adds; "
                f"rename it{key} or leave it out with --ignore {name}."
            )


def _is_one_file(candidates: Path, results: Sequence[Path]) -> bool:
    """Whether there are results in the file of the candidates."""
    return any(path.samefile(candidates) for path in results)


def _check_paths(args: argparse.Namespace) -> None:
    """Results count once; what is written must be no input, and have a folder."""
    for i, path in enumerate(args.results):
        if path.resolve() in [p.resolve() for p in args.results[:i]]:
            raise InputDataError(
                f"{str(path)!r} is given twice as --results; name each file once."
            )
    inputs = [args.candidates, *args.results]
    written = [path for path in (args.state, args.output) if path is not None]
    for i, path in enumerate(written):
        if path.resolve() in [p.resolve() for p in (*inputs, *written[:i])]:
            raise InputDataError(f"{str(path)!r} is given twice; nothing was written.")
        if not path.parent.is_dir() or path.is_dir():
            raise InputDataError(f"{str(path)!r} cannot be written: no such folder.")


@contextmanager
def _one_line_warnings(is_quiet: bool) -> Iterator[None]:
    """What the library warns of comes as lines, and what its parts warn of does not."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    if is_quiet:
        return
    ours = [w.message for w in caught if issubclass(w.category, BotorchWarning)]
    for message in dict.fromkeys(map(str, ours)):
        say(f"note: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m botorch_sparse suggest",
        description="Propose the rows of a table to measure next, each of them once.",
        epilog="predicted_sd is the standard deviation of the function; a measurement "
        "varies more, by its noise. Call it again when there are more results. Rows "
        "that were proposed and have none yet are remembered with --state alone; "
        "without it they can be proposed again.",
        allow_abbrev=False,
    )
    parser.register("action", None, StoreOnce)
    _add_tables(parser)
    add = parser.add_argument
    add("--strategy", choices=STRATEGIES, default="thompson", help="default: thompson")
    add(
        "--state",
        type=Path,
        metavar="FILE",
        help="remembers the rows that wait for results; these may be among the results "
        "without a value",
    )
    add("--seed", type=seed_number, default=0, help="default: 0")
    add("--output", type=Path, metavar="FILE.csv", help="default: standard output")
    add("--quiet", action="store_true", help="no messages but errors")
    return parser


def _add_tables(parser: argparse.ArgumentParser) -> None:
    """What is read, and how."""
    add = parser.add_argument
    add("--candidates", type=Path, required=True, metavar="FILE.csv")
    add(
        "--results",
        action="extend",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE.csv",
        help="measured rows, in one file or in several, as one for each round; "
        "without it, or with an empty file, a first batch is drawn. A row with the "
        "same value in two files counts once. One file that is "
        "both is given twice, as --candidates and as --results: rows without a value "
        "are those to be measured",
    )
    add(
        "--key",
        metavar="COLUMN",
        help="names the rows (default: their features do, to six digits)",
    )
    add("--target", required=True, metavar="COLUMN", help="of the results")
    add("--minimize", action="store_true", help="smaller is better (default: larger)")
    add("--batch", type=positive_int, default=20, metavar="Q", help="default: 20")
    add(
        "--text",
        action="append",
        default=[],
        metavar="COLUMN",
        help="of categories, though its cells are numbers, or though nearly each row "
        "has a text of its own, which is left out else; can be repeated",
    )
    add(
        "--ignore",
        action="append",
        default=[],
        metavar="COLUMN",
        help="of the candidates, is left out; can be repeated",
    )
    add(
        "--decimal",
        choices=[".", ","],
        default=".",
        metavar="MARK",
        help="decimal mark of the numbers in all files that are read (default: a "
        "point, which what is written has); the user's own cells stay as they are",
    )
    add(
        "--skip-empty",
        action="store_true",
        help="results without a value (empty, NA, NaN) have failed, as those with the "
        "word failed, and are not proposed again; in one file for both they have not "
        "been measured yet",
    )
