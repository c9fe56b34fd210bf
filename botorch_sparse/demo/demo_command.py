"""Demo: the best row of a table, by our strategies and by random search.

`python -m botorch_sparse --help` lists the options; see
`botorch_sparse.demo.comparison_run` for what is run. `python -m botorch_sparse suggest`
proposes the next rows of a table of one's own; see `botorch_sparse.suggest`.
"""

import argparse
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError

from botorch_sparse.command_line import (
    INTERRUPTED,
    OneLineParser,
    positive_int,
    positive_number,
    printable,
    say,
    seed_number,
)
from botorch_sparse.demo.comparison_run import (
    METHODS,
    PAPER_METHODS,
    RANDOM,
    Histories,
    Interrupted,
    chosen_names,
    compare,
    default_lengthscale,
    find_best,
    format_seeds,
    format_table,
)
from botorch_sparse.demo.datasets import Table, load_table
from botorch_sparse.distributed import RankError, Ranks, joined_ranks, own_device
from botorch_sparse.strategies import History

EVALUATIONS, PAPER_EVALUATIONS = 500, 2000
BATCH_SIZE = 20
PLOTS = (".png", ".pdf", ".svg", ".jpg", ".jpeg")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run the comparison, print the table, write the plot.

    Exits with status 2 and one line on stderr if an option or the data is wrong, and
    after Ctrl-C with 130 and the table of the strategies that were finished.
    """
    parser = _parser()
    try:
        args = parser.parse_args(arguments)
        _check_setting(args)
        with joined_ranks(args.device) as ranks:
            _run(args, ranks)
    except KeyboardInterrupt:
        say(f"{parser.prog}: interrupted; what is printed above was finished")
        raise SystemExit(INTERRUPTED) from None
    except RankError as error:
        say(f"{parser.prog}: error: {error}")
        raise SystemExit(1) from None
    except (InputDataError, UnsupportedError) as error:
        parser.error(str(error))


def _check_setting(args: argparse.Namespace) -> None:
    """Refuse options that belong to the other setting."""
    if args.lengthscale is not None and not args.paper:
        raise InputDataError(
            "--lengthscale belongs to --paper; without it the kernel is inferred"
        )
    if args.batch is not None and args.paper:
        raise InputDataError(
            "--batch does not go with --paper, whose rules end the batches"
        )
    names = chosen_names(args.methods, paper=args.paper)
    for option in ("choices", "checkpoint"):
        if getattr(args, option) and (len(names), args.seeds) != (1, 1):
            raise InputDataError(
                f"--{option} is of one run; got {len(names)} strategies and "
                f"{args.seeds} seeds: give --methods one of them"
            )


def _run(args: argparse.Namespace, ranks: Ranks) -> None:
    """The same on all ranks; the first one prints and writes."""
    ranks.require_equal("command", lambda: sorted(map(str, vars(args).items())))
    device = ranks.device
    table = load_table(args.data, target=args.target, device=device, ranks=ranks)
    path = ranks.once(lambda: _plot_path(args.output, table.name))
    if args.choices:
        ranks.once(lambda: _check_writable(args.choices))
    seeds = range(args.seed, args.seed + args.seeds)
    tell = partial(print, flush=True) if ranks.rank == 0 else lambda text: None
    tell(_headline(args, table, seeds))
    runs: list[Histories] = []
    try:
        for seed in seeds:
            runs.append(_run_seed(args, table, seed))
    except Interrupted as error:
        finished = runs or [error.finished]
        if finished[0]:
            tell(format_table(finished, table))
        raise
    tell(format_table(runs, table))
    if len(runs) > 1:
        tell(format_seeds(runs, table))
    if args.choices:
        (history,) = runs[0].values()
        ranks.once(lambda: _write_choices(history, args.choices))
    _draw(runs[0], table, path, args.seed)


def _headline(args: argparse.Namespace, table: Table, seeds: range) -> str:
    """The table, and what is run on it."""
    setting = "no kernel given, each row once"
    if RANDOM in chosen_names(args.methods, paper=args.paper):
        setting += ", random search too"
    if args.paper:
        lengthscale = args.lengthscale or default_lengthscale(table)
        setting = f"RBF lengthscale {lengthscale:g}"
    of = f"seed {seeds[0]}"
    if len(seeds) > 1:
        of = f"medians of seeds {seeds[0]} to {seeds[-1]}"
    return f"{_sizes(table)}, target {table.target_name!r}, {setting}, {of}"


def _sizes(table: Table) -> str:
    rows, d = table.num_rows, table.X.shape[-1]
    return f"{printable(table.name)}: {rows} candidates, {d} features"


def _run_seed(args: argparse.Namespace, table: Table, seed: int) -> Histories:
    shared: dict[str, Any] = {
        "gp_seconds": args.gp_seconds,
        "seed": seed,
        "progress": not args.quiet and table.shard.ranks.rank == 0,
        "methods": chosen_names(args.methods, paper=args.paper),
        "checkpoint": args.checkpoint,
    }
    if args.paper:
        return compare(
            table,
            num_evaluations=args.evaluations or PAPER_EVALUATIONS,
            lengthscale=args.lengthscale or default_lengthscale(table),
            **shared,
        )
    return find_best(
        table,
        num_evaluations=args.evaluations or EVALUATIONS,
        batch_size=args.batch or BATCH_SIZE,
        **shared,
    )


def _check_writable(path: Path) -> None:
    """Refuse a file that can't be written to, before anything is evaluated."""
    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise InputDataError(
            f"--choices: {path} can't be written to; need a file in a folder that is "
            "there."
        )


def _write_choices(history: History, path: Path) -> None:
    """Write the rows that were evaluated, one a line."""
    rows = "".join(f"{row}\n" for row in history.indices.tolist())
    try:
        path.write_text(rows)
    except OSError as error:
        raise InputDataError(f"--choices: {path}: {error.strerror}.") from error


def _draw(histories: Histories, table: Table, path: Path, seed: int) -> None:
    try:
        from botorch_sparse.plotting import plot_comparison
    except ImportError:
        say("No plot: matplotlib is missing (pip install 'botorch_sparse[plot]').")
        return
    figure = plot_comparison(histories, table, f"{_sizes(table)}, seed {seed}")
    if table.shard.ranks.rank == 0:
        figure.savefig(path, dpi=130)
        print(f"Plot: {printable(str(path))}")


def _plot_path(output: Path, name: str) -> Path:
    """Where the plot goes; its folder is made before the strategies run."""
    path = output if output.suffix.lower() in PLOTS else output / f"{name}.png"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputDataError(
            f"--output: {path.parent} is no folder and cannot be made one "
            f"({error.strerror})."
        ) from error
    return path


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m botorch_sparse",
        description="Find the best row of a table with BBKB, Thompson sampling, GP-UCB "
        "and random search. No kernel is told; each evaluates a row at most once.",
        epilog="`python -m botorch_sparse suggest --help`: the next rows of a table of "
        "your own to measure.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--data",
        default="abalone",
        metavar="abalone|california_housing|FILE.csv|FILE.npy",
        help="table of numbers; its rows are the candidates (default: %(default)s)",
    )
    add("--target", metavar="COLUMN", help="column to maximize (default: the last)")
    add(
        "--evaluations",
        type=positive_int,
        metavar="T",
        help=f"of each strategy (default: {EVALUATIONS}; {PAPER_EVALUATIONS} with "
        "--paper)",
    )
    add(
        "--batch",
        type=positive_int,
        metavar="Q",
        help=f"points in a batch, but for GP-UCB (default: {BATCH_SIZE})",
    )
    add(
        "--methods",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"strategies to run, of {', '.join(METHODS)}; with --paper of "
        f"{', '.join(PAPER_METHODS)} (default: all)",
    )
    _add_paper_options(parser)
    _add_run_options(parser)
    return parser


def _add_paper_options(parser: argparse.ArgumentParser) -> None:
    """The setting of the papers' experiments."""
    parser.add_argument(
        "--paper",
        action="store_true",
        help="the setting of the papers: BBKB with both termination rules, RBF kernel "
        "of fixed lengthscale, rows may come again",
    )
    parser.add_argument(
        "--lengthscale",
        type=positive_number,
        metavar="L",
        help="of --paper's kernel (default: 17.5 for abalone, 12.5 for "
        "california_housing, 12.5 sqrt(d / 8) for d other features)",
    )


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """How the comparison is run, and where its plot goes."""
    add = parser.add_argument
    add(
        "--gp-seconds",
        type=positive_number,
        default=20.0,
        metavar="S",
        help="time for GP-UCB (default: 20)",
    )
    add("--seed", type=seed_number, default=0, help="of strategies and noise; 0")
    add(
        "--seeds",
        type=positive_int,
        default=1,
        metavar="N",
        help="so many seeds from --seed on, and medians (default: 1)",
    )
    add(
        "--device",
        type=_device,
        default="cpu",
        help="such as cuda; under torchrun each process takes its own (default: cpu)",
    )
    add(
        "--output",
        type=Path,
        default=Path("output"),
        help="folder, or file for the plot of the first seed, .png, .pdf, .svg or .jpg "
        "(default: output)",
    )
    add(
        "--choices",
        type=Path,
        metavar="FILE",
        help="write the rows that were chosen, one a line (one method, one seed)",
    )
    add(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="the state after each batch; a run goes on from the file if it is there "
        "(one method, one seed)",
    )
    add("--quiet", action="store_true", help="no progress bars")


def _device(text: str) -> torch.device:
    """The same on all ranks: a GPU has no number yet, unless it was given one."""
    try:
        device = torch.device(text)
        torch.zeros(1, dtype=torch.float64, device=own_device(device))
        return device
    except InputDataError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    except (RuntimeError, AssertionError, TypeError) as error:  # as torch raises
        reason = str(error).splitlines()[0]
        raise argparse.ArgumentTypeError(f"no device {text!r}: {reason}") from None
