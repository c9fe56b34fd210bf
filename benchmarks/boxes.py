"""Ten thousand evaluations on a box: ours, CMA-ES, TPE, random search, TuRBO, log EI.

And a thousand with binary features and categories: ours, TPE and random search.

Each run is kept in a JSON file as soon as it is over. Seconds are CPU seconds of the
method, without the objective; `--limit` breaks a run off after so many. All problems
are minimized. Of the swimmer's noisy returns the best is the luckiest; other noise is
left out of the values that are noted. `pip install -e ".[bench,boxes]"` has the peers
and the simulator; those that are not installed are left out. For `turbo-enn` add
`pip install --no-deps ennbo==0.1.9 faiss-cpu`.

    python -m benchmarks.boxes --store FILE.json --problems ackley20 --total 2000
    python -m benchmarks.boxes --report benchmarks/results/boxes.json.gz
"""

import argparse
import math
import statistics
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.box_methods import BATCH_SIZE, DISCRETE_METHODS, METHODS, Run
from benchmarks.box_problems import PROBLEMS
from benchmarks.measure import installed
from benchmarks.store import Store

# Problems with features that take some values only.
DISCRETE = ("ackley-binary", "pest-control", "labs50")
AT = (100, 200, 500, 1000, 2000, 5000, 10000)
# Where ours is held beside the best of these peers.
TWELVE = ("rosenbrock20", "rosenbrock20-rotated", "zakharov20", "ellipsoid20")
TWELVE += ("ackley20", "levy20", "rastrigin20", "griewank20", "hartmann6", "rover60")
TWELVE += ("swimmer16", "noisy-levy10")
PEERS = ("cma-es", "turbo-1", "tpe")
# Packages that a problem or a method needs.
NEEDS = {
    "cma-es": "cma",
    "tpe": "optuna",
    "turbo-enn": "enn",
    "swimmer16": "mujoco",
}


def execute(
    problem: str, method: str, seed: int, total: int, limit: float
) -> dict[str, Any]:
    """One run: the best values so far and seconds, at some numbers of evaluations."""
    f = PROBLEMS[problem].make(seed)
    for needed in {problem, method} & NEEDS.keys():
        import_module(NEEDS[needed])  # before the clock starts, as below
    torch.broadcast_shapes((1,), (1,))  # imports sympy when it is first called
    run = Run(f, f.bounds, total, seed, limit)
    METHODS[method](run)
    num = min(total, len(run.values))
    best = torch.tensor(run.values[:num]).cummin(0).values.tolist()
    ends = {*range(BATCH_SIZE, min(num, 500), BATCH_SIZE), *range(500, num, 100), num}
    at = sorted(ends)
    return {
        "at": at,
        "best": [best[n - 1] for n in at],
        "seconds": [round(run.seconds[n - 1], 3) for n in at],
        "limit": limit if num < total else None,
    }


def key_of(problem: str, method: str, seed: int, total: int) -> str:
    """The key of a run in the store."""
    return f"{problem}/{method}/{seed}/{total}"


def runs_of(
    store: Store, problem: str, method: str, total: int, seeds: int
) -> list[dict[str, Any]]:
    """The runs of some seeds that are stored."""
    keys = (key_of(problem, method, seed, total) for seed in range(seeds))
    return [store.records[key] for key in keys if key in store.records]


def with_runs(
    store: Store, problems: list[str], methods: list[str], total: int, seeds: int
) -> list[str]:
    """The problems of which there is a run of so many evaluations, or of all."""
    return [
        name
        for name in problems
        if any(
            runs_of(store, name, method, min(PROBLEMS[name].total, total), seeds)
            for method in methods
        )
    ]


def seen(run: dict[str, Any], name: str, at: int) -> float | None:
    """What a run had after so many evaluations; None if that is not stored."""
    if not run["at"][0] <= at <= run["at"][-1]:
        return None
    return float(run[name][max(i for i, n in enumerate(run["at"]) if n <= at)])


def all_seen(runs: list[dict[str, Any]], name: str, at: int) -> list[float]:
    """What those of the runs had that came so far."""
    return [value for run in runs if (value := seen(run, name, at)) is not None]


def cell(runs: list[dict[str, Any]], at: int, digits: int) -> str:
    """Medians over the runs that came so far, of best value and CPU seconds."""
    best, seconds = (all_seen(runs, name, at) for name in ("best", "seconds"))
    if not best:
        return "-"
    cut = "" if len(best) == len(runs) else f", {len(best)} seeds"
    median = statistics.median
    return f"{median(best):.{digits}f} ({median(seconds):.3g} s{cut})"


def slowing(runs: list[dict[str, Any]], total: int) -> str:
    """Time of an evaluation in the last tenth over that from total/20 to total/10."""
    ratios = []
    for run in runs:
        at, seconds = run["at"], run["seconds"]
        ends = (total // 20, total // 10, total - total // 10, total)
        places = [sum(n <= end for n in at) - 1 for end in ends]
        if at[-1] < total or at[0] > ends[0]:
            continue
        early, late = (
            (seconds[b] - seconds[a]) / (at[b] - at[a])
            for a, b in (places[:2], places[2:])
        )
        ratios += [late / early] if early > 0 else []
    return f"{statistics.median(ratios):.2f}" if ratios else "-"


def report(
    store: Store, problems: list[str], methods: list[str], total: int, seeds: int
) -> str:
    """Markdown: best value (CPU seconds) by evaluations, one table for a problem."""
    lines = list[str]()
    for name in with_runs(store, problems, methods, total, seeds):
        problem = PROBLEMS[name]
        end = min(problem.total, total)
        ends = [at for at in AT if at < end] + [end]
        lines += ["", f"### {name}", ""]
        head = " | ".join(f"at {at:,}" for at in ends)
        lines.append(f"| method | seeds | {head} | slowing | broken off at |")
        lines.append("|---" * (len(ends) + 4) + "|")
        for method in methods:
            runs = runs_of(store, name, method, end, seeds)
            if not runs:
                continue
            row = " | ".join(cell(runs, at, problem.digits) for at in ends)
            cut = [run for run in runs if run["limit"] is not None]
            last = ", ".join(f"{r['at'][-1]:,} ({r['limit']:.0f} s)" for r in cut)
            slow = slowing(runs, end)
            lines.append(f"| {method} | {len(runs)} | {row} | {slow} | {last or '-'} |")
    if set(TWELVE) <= set(problems):
        peers = ", ".join(PEERS[:-1])
        lines += ["", f"trust-region beside the best of {peers} and {PEERS[-1]}, by"]
        lines += ["medians as the tables print them:", ""]
        lines += [verdict(store, at, seeds) for at in AT]
    return "\n".join(lines)


def typical(runs: list[dict[str, Any]], at: int, digits: int) -> float:
    """The median best value as a table shows it; infinite if no run came so far."""
    best = all_seen(runs, "best", at)
    return round(statistics.median(best), digits) if best else math.inf


def verdict(store: Store, at: int, seeds: int) -> str:
    """On how many of the twelve functions ours is no worse than the best peer.

    By medians as tables show them, over the runs that came so far; it ends with how
    many these are. A function is left out where no run of ours came so far, or none of
    all peers.
    """
    methods = ("trust-region", *PEERS)
    is_worse, numbers = dict[str, bool](), dict[str, list[int]]()
    for name in TWELVE:
        problem = PROBLEMS[name]
        runs = [runs_of(store, name, each, problem.total, seeds) for each in methods]
        ours, *theirs = (typical(each, at, problem.digits) for each in runs)
        if max(ours, min(theirs)) < math.inf:
            is_worse[name] = ours > min(theirs)
            numbers[name] = [len(all_seen(each, "best", at)) for each in runs]
    worse = [name for name in is_worse if is_worse[name]]
    text = f"- at {at:,}: no worse on {len(is_worse) - len(worse)} of {len(is_worse)}"
    text += f"; WORSE on {', '.join(worse)}" if worse else ""
    text += time_beside(store, at, seeds)
    if not numbers:
        return text
    counts = zip(methods, zip(*numbers.values(), strict=True), strict=True)
    said = [f"{name} {min(each)} to {max(each)}" for name, each in counts]
    return f"{text}; runs of a function: {', '.join(said)}"


def time_beside(store: Store, at: int, seeds: int, peer: str = "turbo-1") -> str:
    """The range of ours over a peer's CPU time, on the functions where both got so far.

    Medians over seeds; names those where it is more than a fifth.
    """
    ratios = dict[str, float]()
    for name in TWELVE:
        ours, theirs = (
            all_seen(
                runs_of(store, name, method, PROBLEMS[name].total, seeds), "seconds", at
            )
            for method in ("trust-region", peer)
        )
        if ours and theirs:
            ratios[name] = statistics.median(ours) / statistics.median(theirs)
    if not ratios:
        return ""
    least, most = min(ratios.values()), max(ratios.values())
    more = [f"{name} {r:.2f}" for name, r in ratios.items() if r > 0.2]
    text = f"; CPU time {least:.2f} to {most:.2f} of {peer}'s on {len(ratios)}"
    return f"{text}, MORE than a fifth on {', '.join(more)}" if more else text


def plot(
    store: Store, names: list[str], methods: list[str], seeds: int, path: Path
) -> None:
    """Median best value against evaluations and against CPU seconds, full runs."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    colors = colormaps["tab20"]
    whole = max(PROBLEMS[name].total for name in names)
    names = with_runs(store, names, methods, whole, seeds)
    figure = Figure(figsize=(2.6 * len(names), 5.2), layout="constrained")
    panels = figure.subplots(2, len(names), squeeze=False)
    shown = {}
    for column, name in zip(panels.T, names, strict=True):
        total = PROBLEMS[name].total
        found = {m: runs_of(store, name, m, total, seeds) for m in methods}
        found = {method: runs for method, runs in found.items() if runs}
        low = min(run["best"][-1] for runs in found.values() for run in runs)
        for method, runs in found.items():
            at = [n for n in runs[0]["at"] if all(n in run["at"] for run in runs)]
            best, seconds = (
                [statistics.median(r[key][r["at"].index(n)] for r in runs) for n in at]
                for key in ("best", "seconds")
            )
            above = [max(value - low, 1e-6) for value in best]
            style = {"color": colors(methods.index(method)), "linewidth": 1.2}
            (shown[method],) = column[0].loglog(at, above, **style)
            column[1].loglog(seconds, above, **style)
        column[0].set(title=name, xlabel="evaluations")
        column[1].set(xlabel="CPU seconds")
    figure.supylabel("best value above the lowest found", fontsize=9)
    figure.legend(
        shown.values(), shown, loc="outside lower center", ncols=len(shown), fontsize=8
    )
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> None:
    """Run what is not stored yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--total", type=int, default=10_000, help="at most")
    parser.add_argument("--limit", type=float, default=math.inf, help="CPU s of a run")
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", type=Path, help="only print this file")
    parser.add_argument("--plot", type=Path, help="PNG or SVG file")
    args = parser.parse_args(arguments)
    store = Store(args.report or args.store)
    for seed in range(args.seeds) if args.report is None else ():
        for name in installed(args.problems, NEEDS):
            total = min(PROBLEMS[name].total, args.total)
            for method in installed(args.methods, NEEDS):
                if name in DISCRETE and method not in DISCRETE_METHODS:
                    continue
                key = key_of(name, method, seed, total)
                limit = store.records.get(key, {"limit": 0.0})["limit"]
                if limit is None or limit >= args.limit:
                    continue
                run = execute(name, method, seed, total, args.limit)
                store.add(key, run)
                print(
                    f"{key}: {run['best'][-1]:.4f}, {run['seconds'][-1]:.1f} CPU s, "
                    f"{run['at'][-1]} evaluations",
                    flush=True,
                )
    print(store.made(store.records))
    print(report(store, args.problems, args.methods, args.total, args.seeds))
    if args.plot:
        plot(store, args.problems, args.methods, args.seeds, args.plot)


if __name__ == "__main__":
    main()
