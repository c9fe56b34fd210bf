"""Runs that are killed at random moments, and go on: `kill_runs.py KILLS SEED`.

All that computes is in children, forked before this process has used torch: what it had
begun, such as the threads of gradients, is not there in a child, which then waits for
ever. A child that does not end is ended by its alarm. The parent draws the moments,
kills, looks at how children ended, and prints what it has seen, as JSON.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from finish_runs import OBJECTIVES, TABLES
from strategy_table import equal, without_times

from botorch_sparse import strategies
from botorch_sparse.strategies import Strategy
from botorch_sparse.strategies.core import checkpoint

# Domain, strategy and evaluations.
CASES = (
    ("table", "bbkb-global-local", 40),
    ("table", "random", 40),
    ("box", "bbkb-global-local", 8),
    ("sbpe", "table", 30),
    ("table", "thompson", 30),
    ("table", "gpucb", 16),
    ("box", "gssbo-known", 10),
)
PACKAGE = str(Path(strategies.__file__).parents[1])
LATEST = {"run": 0.02, "save": 0.003}  # seconds from a line to the signal
CHILD_SECONDS = 120
KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Moment:
    """When to kill.

    Attributes:
        where: `run` for any line of the package, `save` for those that write states.
        line: Which of the lines in the order of execution, from 1.
        delay: Seconds after it, or None for at once, by the child itself.
    """

    where: str
    line: int
    delay: float | None


@dataclass(frozen=True)
class Case:
    """A run of a strategy, with a folder for its files."""

    domain: str
    name: str
    total: int
    folder: Path

    def finish(self, seed: int, path: Path) -> Strategy:
        """Run to the end, from the checkpoint where there is one."""
        strategy = TABLES[self.domain][self.name](seed=seed)
        if path.exists():
            strategy.resume(path)
        objective = OBJECTIVES[self.domain]
        strategy.run(objective, self.total, progress=False, checkpoint=path)
        return strategy


def count(at: Callable[[dict[str, int]], None]) -> None:
    """Call a function at each line of the package from here on.

    Args:
        at: Called with the numbers of lines so far, of all and of those that save.
    """
    seen = dict.fromkeys(("run", "save"), 0)

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            seen["run"] += 1
            seen["save"] += frame.f_code.co_filename == checkpoint.__file__
            at(seen)
        return line

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(PACKAGE) else None

    sys.settrace(enter)


def forked(work: Callable[[int], None], delay: float | None = None) -> int:
    """How a child ended that did some work.

    Args:
        work: Called in the child with a pipe.
        delay: Seconds after which the child is killed that wrote to the pipe.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(CHILD_SECONDS)
        try:
            work(writes)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(writes)
    if os.read(reads, 1) and delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    os.close(reads)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def undisturbed(case: Case) -> dict[str, int]:
    """Keep the state at the end of the run; how many lines it and its saves take."""
    end, numbers = case.folder / "end.pt", case.folder / "numbers"

    def work(pipe: int) -> None:
        seen: dict[str, int] = {}
        count(seen.update)
        strategy = case.finish(3, case.folder / "run.pt")
        sys.settrace(None)
        torch.save(without_times(strategy.state_dict()), end)
        numbers.write_text(json.dumps(seen))

    if status := forked(work):
        raise SystemExit(f"{case} ended with {status}, undisturbed.")
    return json.loads(numbers.read_text())


def killed(case: Case, moment: Moment, path: Path) -> int:
    """How a run ended that was to be killed at a moment."""

    def work(pipe: int) -> None:
        def at(seen: dict[str, int]) -> None:
            if seen[moment.where] == moment.line:
                sys.settrace(None)
                if moment.delay is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                os.write(pipe, b".")

        count(at)
        case.finish(3, path)

    return forked(work, moment.delay)


def gone_on(case: Case, path: Path) -> int:
    """Whether a run that was killed goes on to the same bits: 0 if so."""

    def work(pipe: int) -> None:
        state = without_times(case.finish(8 if path.exists() else 3, path).state_dict())
        end = torch.load(case.folder / "end.pt", weights_only=True)
        if not equal(state, end):
            raise ValueError("other bits")
        if (left := os.listdir(path.parent)) != [path.name]:
            raise ValueError(f"left behind: {left}")

    return forked(work)


def drawn(draw: random.Random, lines: dict[str, int]) -> Moment:
    """A moment, anywhere or while a state is written, at a line or after it."""
    where = draw.choice([*LATEST])
    delay = draw.uniform(0.0, LATEST[where]) if draw.random() < 0.5 else None
    return Moment(where, draw.randint(1, lines[where]), delay)


@dataclass
class Seen:
    """How often a run was killed, before its first save, in one, or at no time."""

    kills: int = 0
    at_start: int = 0
    in_save: int = 0
    too_late: int = 0


def disturb(case: Case, moment: Moment, seen: Seen) -> None:
    """Kill a run, and see it go on."""
    folder = Path(tempfile.mkdtemp(dir=case.folder))
    path = folder / "run.pt"
    status = killed(case, moment, path)
    if status not in (0, KILLED):
        raise SystemExit(f"{case} ended with {status}, to be killed at {moment}.")
    seen.kills += status == KILLED
    seen.too_late += status == 0
    seen.at_start += not path.exists()
    seen.in_save += len(os.listdir(folder)) > path.exists()
    if status := gone_on(case, path):
        raise SystemExit(f"{case} ended with {status}, killed at {moment}.")


def main(num_kills: int, seed: int) -> Seen:
    """Kill runs of the cases in turn, one at least; of many kills few are too late."""
    draw, seen = random.Random(seed), Seen()
    with tempfile.TemporaryDirectory() as parent:
        cases = [
            Case(*case, Path(tempfile.mkdtemp(dir=parent)))
            for case in CASES[:num_kills]
        ]
        lines = [undisturbed(case) for case in cases]
        for number in range(2 * num_kills):
            if seen.kills < num_kills:
                which = number % len(cases)
                disturb(cases[which], drawn(draw, lines[which]), seen)
    return seen


if __name__ == "__main__":
    print(json.dumps(asdict(main(*map(int, sys.argv[1:])))))
