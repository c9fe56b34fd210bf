"""What is measured and what is wanted of it, from the options of the command line.

`--target yield --target cost --minimize cost --constraint "impurity<=0.05"` are two
objectives and a constraint, each a column of the results.
"""

import argparse
import re
from collections.abc import Sequence
from typing import TypeAlias

from botorch.exceptions import InputDataError

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.command_line.csv_cells import POINTED, number, unit_of, with_point
from botorch_sparse.strategies import Constraint, Objective

Outcome: TypeAlias = Objective | Constraint
# A column and a number, by the mark between them.
CONSTRAINT = re.compile(r"\s*(.*\S)\s*(<=|>=)\s*(\S+)\s*", re.DOTALL)
THRESHOLD = re.compile(r"\s*(.*\S)\s*(=)\s*(\S+)\s*", re.DOTALL)
SIDES = {">=": "lower", "<=": "upper"}


def add_outcome_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `outcomes_of` reads."""
    add = parser.add_argument
    add(
        "--target",
        action="append",
        required=True,
        metavar="COLUMN",
        help="a column of the results that is to be large, or with --minimize small; "
        "can be repeated. Of several the best compromises are looked for",
    )
    add(
        "--minimize",
        action="append",
        nargs="?",
        default=[],
        metavar="COLUMN",
        help="smaller is better (default: larger); of several targets name it; can be "
        "repeated",
    )
    add(
        "--threshold",
        action="append",
        default=[],
        metavar="COLUMN=NUMBER",
        help="values of this target that are worse count for nothing (default: "
        "inferred from the results); can be repeated",
    )
    add(
        "--constraint",
        action="append",
        default=[],
        metavar='"COLUMN<=NUMBER"',
        help="a column of the results that has a limit, <= or >=, in quotes; can be "
        "repeated, also for both limits of a column",
    )


def outcomes_of(args: argparse.Namespace) -> tuple[Outcome, ...]:
    """The outcomes that the options name: targets, then columns with limits.

    Raises:
        InputDataError: If an option cannot be read, or if two contradict each other.
    """
    targets: list[str] = args.target
    _check_once("--target", targets)
    minimized = _minimized(args.minimize, targets)
    thresholds: dict[str, float] = {}
    for text in args.threshold:
        column, _, value = _read("--threshold", text, THRESHOLD, args.decimal)
        _check_target("--threshold", column, targets)
        _check_once("--threshold", [*thresholds, column])
        thresholds[column] = value
    limits = _limits(args.constraint, args.decimal)
    if both := [name for name in targets if name in limits]:
        raise InputDataError(
            f"Both --target and --constraint name {short_repr(both[0])}; keep one of "
            "them. --threshold says which values of a target count for nothing."
        )
    objectives = [Objective(n, n in minimized, thresholds.get(n)) for n in targets]
    return (*objectives, *(Constraint(name, **each) for name, each in limits.items()))


def column_names(outcomes: tuple[Outcome, ...]) -> list[str]:
    """The columns of the results, in their order."""
    return [str(outcome.name) for outcome in outcomes]


def kind_of(outcome: Outcome) -> str:
    """The option that names an outcome, without its dashes."""
    return "target" if isinstance(outcome, Objective) else "constraint"


def _minimized(given: Sequence[str | None], targets: Sequence[str]) -> list[str]:
    """The targets that are to be small."""
    if None in given and len(targets) > 1:
        raise InputDataError(
            f"--minimize names none of the {len(targets)} targets; say which, such as "
            f"--minimize {short_repr(targets[-1])}, and repeat it for others."
        )
    named = [name for name in given if name is not None]
    for name in named:
        _check_target("--minimize", name, targets)
    return named or list(targets if given else ())


def _limits(given: Sequence[str], decimal: str | None) -> dict[str, dict[str, float]]:
    """The limits of columns, by column and side."""
    limits: dict[str, dict[str, float]] = {}
    for text in given:
        column, mark, value = _read("--constraint", text, CONSTRAINT, decimal)
        sides = limits.setdefault(column, {})
        if SIDES[mark] in sides:
            raise InputDataError(
                f"--constraint gives {short_repr(column)} two limits with {mark}; keep "
                "one of them."
            )
        sides[SIDES[mark]] = value
    for column, sides in limits.items():
        if len(sides) > 1 and sides["lower"] > sides["upper"]:
            raise InputDataError(
                f"--constraint allows no value of {short_repr(column)}: it would have "
                f"to be at least {sides['lower']:g} and at most {sides['upper']:g}."
            )
    return limits


def _read(
    option: str, text: str, pattern: re.Pattern[str], decimal: str | None
) -> tuple[str, str, float]:
    """The column, the mark and the number of an option."""
    found = pattern.fullmatch(text)
    cell = found[3] if found else ""
    is_pointed = decimal == "," and POINTED.fullmatch(cell)  # of thousands, perhaps
    value = None if is_pointed else number(with_point(cell) if decimal == "," else cell)
    if found is None or value is None:
        form = "COLUMN=NUMBER" if pattern is THRESHOLD else "COLUMN<=NUMBER or >="
        mark = "comma" if decimal == "," else "point"
        unit = unit_of(text.rpartition("=")[2].strip())
        also = f", and without its unit {short_repr(unit)}" if unit else ""
        raise InputDataError(
            f"{option}: {short_repr(text)} cannot be read; write {form} in quotes, "
            f"with a finite number whose only mark is a decimal {mark}{also}."
        )
    return found[1], found[2], value


def _check_once(option: str, names: Sequence[str]) -> None:
    """Check that an option names each column once."""
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InputDataError(
                f"{option} names {short_repr(name)} twice; keep one of them."
            )


def _check_target(option: str, name: str, targets: Sequence[str]) -> None:
    """Check that an option on a target names one."""
    if name not in targets:
        raise InputDataError(
            f"{option} names {short_repr(name)}, which is no --target; these are "
            f"{short_list(targets)}."
        )
