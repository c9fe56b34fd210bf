"""Demo: BBKB next to GP-UCB and random search on a table of candidates.

`python -m botorch_sparse --help` lists the options. The setting is that of the
experiments of [Calandriello2020]_: RBF kernel of fixed lengthscale, regularizer and
noise variance 1e-4, RKHS norm bound 1, delta = 1/T, oversampling 2, ratio threshold
2; the feedback is the target, scaled to [0, 1], plus N(0, 0.01^2).

References:
    .. [Calandriello2020]
        D. Calandriello, L. Carratino, A. Lazaric, M. Valko and L. Rosasco.
        Near-linear time Gaussian process optimization with adaptive batching and
        resparsification. ICML 2020.
"""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from botorch_sparse.datasets import Table, load_table
from botorch_sparse.strategies import BBKB, GPUCB, RandomSearch, StopAfter

LAM = 1e-4
NOISE_SD = 0.01
LENGTHSCALES = {"abalone": 17.5, "california_housing": 12.5}  # [Calandriello2020]_

Histories = dict[str, Any]


def compare(
    table: Table,
    *,
    num_evaluations: int,
    lengthscale: float,
    gp_seconds: float = 20.0,
    seed: int = 0,
    progress: bool = True,
) -> Histories:
    """Run BBKB with both termination rules, GP-UCB and random search on a table.

    Args:
        table: The candidates and the function's values, `A` rows.
        num_evaluations: Evaluations `T` of each strategy.
        lengthscale: Lengthscale of the RBF kernel, in standard deviations of the
            features.
        gp_seconds: GP-UCB, which takes O(A t) to O(A t^2) per evaluation, stops
            after the evaluation in which this time is over.
        seed: Seed of the strategies and of the noise of the feedback.
        progress: Whether to show progress bars.

    Returns:
        The history of each strategy by its name.
    """
    shared: dict[str, Any] = {"candidates": table.X, "seed": seed}
    gp: dict[str, Any] = shared | {
        "covar_module": _kernel(table, lengthscale),
        "lam": LAM,
        "noise_variance": LAM,
        "norm_bound": 1.0,
        "delta": 1.0 / max(num_evaluations, 2),
    }
    sparse = gp | {"oversampling": 2.0, "ratio_threshold": 2.0}
    strategies = {
        "BBKB global": BBKB(**sparse, termination="global"),
        "BBKB global-local": BBKB(**sparse, termination="global-local"),
        "GP-UCB": GPUCB(**gp),
        "random search": RandomSearch(**shared),
    }
    return {
        name: strategy.run(
            noisy_rows(table, seed),
            num_evaluations=num_evaluations,
            progress=progress,
            by_index=True,
            callbacks=[StopAfter(gp_seconds)] if name == "GP-UCB" else [],
        )
        for name, strategy in strategies.items()
    }


def noisy_rows(table: Table, seed: int) -> Callable[[Tensor], Tensor]:
    """Feedback at `b` rows of the table: its target plus N(0, 0.01^2)."""
    generator = torch.Generator().manual_seed(seed)

    def objective(indices: Tensor) -> Tensor:
        noise = torch.randn(len(indices), generator=generator, dtype=table.Y.dtype)
        return table.Y[indices] + NOISE_SD * noise.to(table.Y)

    return objective


def format_table(histories: Histories, table: Table) -> str:
    """One line per strategy: cost, sizes and quality.

    Seconds are those spent in `ask` and `tell`; best is the largest value of the
    target among the rows evaluated, on its scale of [0, 1], without noise; regret is
    the cumulative one over that expected of uniform choice.
    """
    head = ("method", "evaluations", "seconds", "batches", "inducing", "best", "regret")
    lines = ["{:<18}{:>12}{:>9}{:>9}{:>10}{:>8}{:>8}".format(*head)]
    for name, history in histories.items():
        inducing = history.batches[-1].num_inducing or "-"
        best = table.Y[history.indices].max().item()
        regret = table.regret_ratio(history.indices)[-1].item()
        lines.append(
            f"{name:<18}{len(history.Y):>12}{history.seconds:>9.2f}{len(history.batches):>9}"
            f"{inducing:>10}{best:>8.3f}{regret:>8.3f}"
        )
    return "\n".join(lines)


def default_lengthscale(table: Table) -> float:
    """The papers' lengthscales; 12.5 sqrt(d / 8) for a table of `d` other features.

    Distances between standardized rows grow as sqrt(d), and 12.5 is the papers' value
    for the 8 features of california_housing.
    """
    d = table.X.shape[-1]
    return LENGTHSCALES.get(table.name, 12.5 * math.sqrt(d / 8))


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run the comparison, print the table, write the plot.

    Exits with status 2 and one line on stderr if an option or the data is wrong.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments[:1]) == ["suggest"]:
        from botorch_sparse import suggest

        return suggest.main(arguments[1:])
    parser = _parser()
    args = parser.parse_args(arguments)
    try:
        _run(args)
    except InputDataError as error:
        parser.error(" ".join(str(error).split()))


def _run(args: argparse.Namespace) -> None:
    table = load_table(args.data, target=args.target, device=args.device)
    path = _plot_path(args.output, table.name)
    lengthscale = args.lengthscale or default_lengthscale(table)
    rows, d = table.X.shape
    print(
        f"{table.name}: {rows} candidates, {d} features, target {table.target_name!r}, "
        f"RBF lengthscale {lengthscale:g}, seed {args.seed}",
        flush=True,
    )
    histories = compare(
        table,
        num_evaluations=args.evaluations,
        lengthscale=lengthscale,
        gp_seconds=args.gp_seconds,
        seed=args.seed,
        progress=not args.quiet,
    )
    print(format_table(histories, table))
    _draw(histories, table, path)


def _kernel(table: Table, lengthscale: float) -> Kernel:
    kernel = RBFKernel().to(table.X)
    kernel.lengthscale = lengthscale
    return kernel.requires_grad_(False)


def _draw(histories: Histories, table: Table, path: Path) -> None:
    try:
        from botorch_sparse.plotting import plot_comparison
    except ImportError:
        print("No plot: matplotlib is missing (pip install 'botorch_sparse[plot]').")
        return
    title = f"{table.name}: {len(table.Y)} candidates, {table.X.shape[-1]} features"
    plot_comparison(histories, table, title).savefig(path, dpi=130)
    print(f"Plot: {path}")


def _plot_path(output: Path, name: str) -> Path:
    """Where the plot goes; its folder is made before the strategies run."""
    path = output if output.suffix.lower() == ".png" else output / f"{name}.png"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputDataError(
            f"--output: {path.parent} is no folder and cannot be made one "
            f"({error.strerror})."
        ) from error
    return path


class _OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="python -m botorch_sparse",
        description="Compare BBKB with GP-UCB and random search on a table.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--data",
        default="abalone",
        metavar="abalone|california_housing|FILE.csv",
        help="table of numbers; its rows are the candidates (default: %(default)s)",
    )
    add("--target", metavar="COLUMN", help="column to maximize (default: the last)")
    add(
        "--evaluations",
        type=_positive_int,
        default=2000,
        metavar="T",
        help="of each strategy (default: %(default)s)",
    )
    add(
        "--lengthscale",
        type=_positive_float,
        metavar="L",
        help="of the RBF kernel (default: 17.5 for abalone, 12.5 for "
        "california_housing, 12.5 sqrt(d / 8) for d other features)",
    )
    _add_run_options(parser)
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """How the comparison is run, and where its plot goes."""
    add = parser.add_argument
    add(
        "--gp-seconds",
        type=_positive_float,
        default=20.0,
        metavar="S",
        help="time for GP-UCB (default: 20)",
    )
    add("--seed", type=_seed, default=0, help="of strategies and noise (default: 0)")
    add("--device", type=_device, default="cpu", help="default: cpu")
    add(
        "--output",
        type=Path,
        default=Path("output"),
        help="folder or .png (default: output)",
    )
    add("--quiet", action="store_true", help="no progress bars")


def _positive_int(text: str) -> int:
    return int(_positive_float(text, int))


def _positive_float(text: str, kind: Callable[[str], float] = float) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        what = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} above 0")
    return value


def _seed(text: str) -> int:
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if not 0 <= seed < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return seed


def _device(text: str) -> torch.device:
    try:
        return torch.zeros(1, dtype=torch.float64, device=text).device
    except (RuntimeError, AssertionError, TypeError) as error:  # as torch raises
        reason = str(error).splitlines()[0]
        raise argparse.ArgumentTypeError(f"no device {text!r}: {reason}") from None


if __name__ == "__main__":
    main()
