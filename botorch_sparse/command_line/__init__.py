"""What the command lines of `suggest` and of the demo share: options and messages."""

import argparse
import math
import os
import sys
from contextlib import suppress
from typing import NoReturn

__all__ = [
    "INTERRUPTED",
    "OneLineParser",
    "one_line",
    "positive_int",
    "positive_number",
    "printable",
    "say",
    "seed_number",
    "shortened",
]

INTERRUPTED = 130  # the exit status of shells: 128 + SIGINT


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without usage or control characters."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2; of many ranks the first prints."""
        if os.environ.get("RANK", "0") == "0":
            say(f"{self.prog}: error: {message}")
        raise SystemExit(2)


def say(message: str) -> None:
    """Print one line on stderr, with control characters escaped."""
    print(one_line(message), file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """A text in one line, with control characters escaped."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else printable(c) for c in line)


def shortened(text: str, most: int) -> str:
    """A text in one line of at most so many characters: its beginning and its end."""
    line = one_line(text)
    if len(line) <= most:
        return line
    return f"{line[: most // 2]}\u2026{line[len(line) - (most - 1) // 2 :]}"


def positive_int(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or not 0 < int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def positive_number(text: str) -> float:
    """A finite number above 0."""
    with suppress(ValueError):
        if 0 < (value := float(text)) < math.inf:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def seed_number(text: str) -> int:
    """A whole number that seeds a generator, from 0 up to 2^63."""
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def printable(text: str) -> str:
    """A whole text without quotes for a message, control characters escaped."""
    return repr(text)[1:-1]
