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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from strategy_cases import ALL
from strategy_table import equal, without_times

from botorch_sparse import strategies
from botorch_sparse.strategies import Strategy
from botorch_sparse.strategies.core import checkpoint

# Strategies by their names in `strategy_cases.py`, with evaluations.
CASES = (
    ("table-bbkb-global-local", 40),
    ("table-random", 40),
    ("box-bbkb-global-local", 8),
    ("sbpe-table", 30),
    ("table-thompson", 30),
    ("table-thompson-several", 30),
    ("table-bbkb-global-several", 30),
    ("table-gpucb", 16),
    ("box-gssbo-known", 10),
)
PACKAGE = str(Path(strategies.__file__).parents[1])
# Lines of the package, and those that write states; seconds from one to the signal.
LATEST = {"run": 0.02, "save": 0.003}
CHILD_SECONDS = 120
KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Case:
    """A run of a strategy, with a folder for its files."""

    name: str
    total: int
    folder: Path

    def finish(self, seed: int, path: Path) -> Strategy:
        """Run to the end, from the checkpoint where there is one."""
        make, objective, _ = ALL[self.name]
        strategy = make(seed=seed)
        if path.exists():
            strategy.resume(path)
        strategy.run(objective, self.total, progress=False, checkpoint=path)
        return strategy


def count(at: Callable[[dict[str, int]], None]) -> None:
    """Call a function at each line of the package, with the numbers of lines so far."""
    seen = dict.fromkeys(LATEST, 0)

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
    numbers = case.folder / "numbers"

    def work(pipe: int) -> None:
        seen: dict[str, int] = {}
        count(seen.update)
        strategy = case.finish(3, case.folder / "run.pt")
        sys.settrace(None)
        torch.save(without_times(strategy.state_dict()), case.folder / "end.pt")
        numbers.write_text(json.dumps(seen))

    if status := forked(work):
        raise SystemExit(f"{case} ended with {status}, undisturbed.")
    return json.loads(numbers.read_text())


def killed(case: Case, path: Path, where: str, number: int, delay: Any) -> int:
    """How a run ended that was to be killed at a line, or some seconds after it."""

    def work(pipe: int) -> None:
        def at(seen: dict[str, int]) -> None:
            if seen[where] == number:
                sys.settrace(None)
                if delay is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                os.write(pipe, b".")

        count(at)
        case.finish(3, path)

    return forked(work, delay)


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


def disturb(case: Case, lines: dict[str, int], draw: random.Random) -> Counter[str]:
    """Kill a run, anywhere or while a state is written, and see it go on."""
    where = draw.choice([*LATEST])
    delay = draw.uniform(0.0, LATEST[where]) if draw.random() < 0.5 else None
    moment = where, draw.randint(1, lines[where]), delay
    path = Path(tempfile.mkdtemp(dir=case.folder)) / "run.pt"
    ended = killed(case, path, *moment)
    in_save = len(os.listdir(path.parent)) > path.exists()
    if ended not in (0, KILLED) or gone_on(case, path):
        raise SystemExit(f"{case} ended with {ended}, killed at {moment}.")
    return Counter(kills=ended == KILLED, in_save=in_save)


def main(num_kills: int, seed: int) -> Counter[str]:
    """Kill runs of the cases in turn, one at least; of many kills few are too late."""
    draw, seen = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as parent:
        cases = [
            Case(*case, Path(tempfile.mkdtemp(dir=parent)))
            for case in CASES[:num_kills]
        ]
        lines = [undisturbed(case) for case in cases]
        for number in range(2 * num_kills):
            if seen["kills"] < num_kills:
                which = number % len(cases)
                seen += disturb(cases[which], lines[which], draw)
    return seen


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
