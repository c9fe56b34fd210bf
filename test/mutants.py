"""How much the tests notice: small faults put into the package, one at a time.

    python test/mutants.py map --store output/mutants    # which tests run which lines
    python test/mutants.py run --store output/mutants    # 200 faults, one process each

A fault is a comparison turned, a sign or an operator changed, a constant moved, a
`min` made a `max`, an `and` an `or`, or a statement left out. Which faults are tried
follows from the code around each of them, not from their number: the same ones are
tried before and after a change wherever that code stands. Each fault meets the tests
that run its line, the quickest first, for at most `--seconds` of processor time. The
files of the package stay as they are: a forked process imports the changed source.
"""

import argparse
import ast
import copy
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGES = (
    *("posteriors", "inducing", "acquisition", "batching", "pools", "distributed"),
    "strategies",
)
TESTS = ("linear_operators", *PACKAGES, "models", "integration")
# Tests that take longer are not asked.
SLOWEST_TEST = 3.0
OPTIONS = ["-q", "-p", "no:cacheprovider"]
# What has been imported before pytest runs cannot be rewritten, and it says so.
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]

COMPARISONS = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
CALLS = {
    "min": "max",
    "max": "min",
    "argmax": "argmin",
    "argmin": "argmax",
    "amax": "amin",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
    "sqrt": "square",
    "square": "abs",
    "sum": "mean",
    "floor": "ceil",
    "ceil": "floor",
    "cat": "stack",
}


class Mutant(NamedTuple):
    """One fault."""

    path: str
    line: int
    number: int  # of the fault in its file, as `faults` counts them
    kind: str
    code: str  # the line that is changed
    rank: str  # decides which faults are tried


def faults(tree: ast.Module) -> Iterator[tuple[ast.AST, str, Any]]:
    """Each node that can be changed, what is done to it, and how."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            new = COMPARISONS.get(type(node.ops[0]))
            if new is not None:
                yield node, "comparison", lambda n, new=new: n.ops.__setitem__(0, new())
        elif isinstance(node, ast.BinOp | ast.AugAssign):
            new = OPERATORS.get(type(node.op))
            if new is not None and not _is_text(node):
                yield node, "operator", lambda n, new=new: setattr(n, "op", new())
        elif isinstance(node, ast.BoolOp):
            new = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield node, "and/or", lambda n, new=new: setattr(n, "op", new())
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
            yield node, "sign", _without_sign
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            yield node, "constant", _other_constant
        elif isinstance(node, ast.Call):
            name = _name(node.func)
            if name in CALLS:
                yield node, "call", _other_call
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node, "statement", _left_out
        elif isinstance(node, ast.If):
            yield node, "condition", _never


def _is_text(node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether strings are joined, or types."""
    parts = [n for n in ast.walk(node) if isinstance(n, ast.Constant | ast.JoinedStr)]
    return any(isinstance(p, ast.JoinedStr) or isinstance(p.value, str) for p in parts)


def _name(func: ast.expr) -> str:
    return getattr(func, "attr", getattr(func, "id", ""))


def _without_sign(node: ast.UnaryOp) -> None:
    node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
    if isinstance(node.op, ast.Not):
        node.operand = ast.UnaryOp(ast.Not(), node.operand)


def _other_constant(node: ast.Constant) -> None:
    value = node.value
    node.value = not value if isinstance(value, bool) else value + 1


def _other_call(node: ast.Call) -> None:
    field = "attr" if isinstance(node.func, ast.Attribute) else "id"
    setattr(node.func, field, CALLS[_name(node.func)])


def _left_out(node: ast.Expr) -> None:
    node.value = ast.Constant(None)


def _never(node: ast.If) -> None:
    node.test = ast.Constant(False)


def parsed(path: Path) -> ast.Module:
    """The source, without annotations, defaults of `Literal`s and import guards."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            node.annotation = ast.Name("object", ast.Load())
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if hasattr(node, "body") and isinstance(node.body, list):
            node.body = [s for s in node.body if not _is_idle(s)] or [ast.Pass()]
    return ast.fix_missing_locations(tree)


def _is_idle(node: ast.stmt) -> bool:
    """Whether a statement does nothing when tests run: guards of imports, texts."""
    is_guard = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_raise = isinstance(node, ast.Expr) and "warn(" in ast.unparse(node)
    return is_guard or is_text or is_raise


def mutated(mutant: Mutant) -> str:
    """The source with the fault."""
    tree = parsed(ROOT / mutant.path)
    for number, (node, _, change) in enumerate(faults(tree)):
        if number == mutant.number:
            change(node)
    return ast.unparse(ast.fix_missing_locations(tree))


def all_mutants(seed: int) -> list[Mutant]:
    """All faults of the packages, in the order in which they are tried."""
    found, seen = [], Counter[str]()
    for package in PACKAGES:
        for path in sorted((ROOT / "botorch_sparse" / package).rglob("*.py")):
            lines, tree = path.read_text().splitlines(), parsed(path)
            for number, (node, kind, change) in enumerate(faults(tree)):
                code = lines[node.lineno - 1].strip()
                if code.startswith(("raise", 'f"', '"', "class ")):
                    continue
                changed = copy.deepcopy(node)
                change(changed)
                what = f"{path.name}:{code}:{kind}:{ast.unparse(changed)}"
                seen[what] += 1
                text = f"{seed}:{what}:{seen[what]}"
                rank = hashlib.sha256(text.encode()).hexdigest()
                name = str(path.relative_to(ROOT))
                found.append(Mutant(name, node.lineno, number, kind, code, rank))
    return sorted(found, key=lambda m: m.rank)


def make_map(store: Path) -> None:
    """Run the tests once, and note which of them run each line, and how long."""
    store.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "MUTANTS_DURATIONS": str(store / "durations.json"),
        "PYTHONPATH": str(ROOT / "test"),
        "COVERAGE_FILE": str(store / "coverage"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-p", "mutants", "-n", "2"]
    command += ["--cov=botorch_sparse", "--cov-context=test", "--cov-report="]
    tests = [f"test/{name}" for name in TESTS]
    only = ["-m", "not sim and not slow", "-k", "not cuda"]
    subprocess.run([*command, *only, *tests], cwd=ROOT, env=environment, check=False)


_durations: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: Any) -> None:
    """A hook of pytest: adds up what each test takes."""
    _durations[report.nodeid] += report.duration
    if report.failed:
        _durations[report.nodeid] = float("inf")


def pytest_sessionfinish(session: Any) -> None:
    """A hook of pytest: writes the durations."""
    path = os.environ.get("MUTANTS_DURATIONS")
    if path and not hasattr(session.config, "workerinput"):
        Path(path).write_text(json.dumps(_durations))


def tests_of(mutant: Mutant, data: Any, durations: dict[str, float]) -> list[str]:
    """The tests that run the line, quickest first; those of its own module at first.

    For a line that runs when the module is imported: the tests that run others of it.
    """
    lines = data.contexts_by_lineno(str(ROOT / mutant.path))
    tests = _tests(lines.get(mutant.line, [])) & durations.keys()
    if not tests:
        tests = _tests(chain.from_iterable(lines.values())) & durations.keys()
    own = f"test_{Path(mutant.path).stem}"
    quick = [t for t in tests if durations[t] < SLOWEST_TEST]
    return sorted(quick, key=lambda t: (own not in t, durations[t]))


def _tests(contexts: Iterable[str]) -> set[str]:
    """The tests of some contexts, which say at which part of the test they are."""
    return {context.split("|")[0] for context in contexts}


class _Loader(SourceLoader):
    """Loads a module from a text."""

    def __init__(self, path: str, source: str) -> None:
        self._path, self._source = path, source

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str) -> bytes:
        return self._source.encode()

    def path_stats(self, path: str) -> dict[str, Any]:
        raise OSError  # no compiled file is read or written


class _Finder(MetaPathFinder):
    """Finds the changed module before the one on the disk."""

    def __init__(self, mutant: Mutant) -> None:
        self.path = str(ROOT / mutant.path)
        parts = Path(mutant.path).with_suffix("").parts
        self.name = ".".join(parts).removesuffix(".__init__")
        self.source = mutated(mutant)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        found = PathFinder.find_spec(fullname, path)
        locations = None if found is None else found.submodule_search_locations
        loader = _Loader(self.path, self.source)
        spec: ModuleSpec | None = spec_from_loader(fullname, loader)
        if spec is not None and locations is not None:
            spec.submodule_search_locations = locations
        return spec


def started(mutant: Mutant | None, tests: list[str], seconds: float) -> int:
    """The process in which a fault, or none, meets its tests."""
    child = os.fork()
    if child == 0:
        _be_tested(mutant, tests, seconds)
    return child


def verdict(status: int) -> str:
    """What became of a fault, from the status with which its process ended."""
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        return "out of time"
    return "survived" if code == 0 else "killed"


def _be_tested(mutant: Mutant | None, tests: list[str], seconds: float) -> None:
    """In a process of its own: import the fault, and run the tests until one fails."""
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (int(4 * seconds), int(4 * seconds) + 5))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1), os.dup2(quiet, 2)
    try:
        if mutant is not None:
            sys.meta_path.insert(0, _Finder(mutant))
        code = pytest.main(["-x", *OPTIONS, *tests])
    except BaseException:
        code = 1
    os._exit(0 if code == 0 else 1)


def within(tests: list[str], durations: dict[str, float], seconds: float) -> list[str]:
    """The first tests that take no longer than that together."""
    chosen, total = [], 0.0
    for test in tests:
        total += durations[test]
        if total > seconds:
            break
        chosen.append(test)
    return chosen


def run(store: Path, number: int, seed: int, seconds: float, jobs: int) -> None:
    """Try the faults, and print what share was noticed and which were not."""
    import coverage

    os.environ["OMP_NUM_THREADS"] = "1"
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    import botorch  # noqa: F401 (once for all processes)
    import hypothesis  # noqa: F401

    durations = json.loads((store / "durations.json").read_text())
    data = coverage.CoverageData(str(store / "coverage"))
    data.read()
    mutants = all_mutants(seed)[:number]
    results = {r["rank"]: r for r in _read(store / "results.json")}
    left = [m for m in mutants if m.rank not in results]
    running: dict[int, Mutant] = {}

    def note(mutant: Mutant, became: str) -> None:
        results[mutant.rank] = mutant._asdict() | {"verdict": became}
        (store / "results.json").write_text(json.dumps([*results.values()], indent=1))
        where = f"{mutant.path}:{mutant.line}"
        print(f"{became:10} {where} {mutant.kind}: {mutant.code}", flush=True)

    control = [t for m in mutants[:5] for t in tests_of(m, data, durations)[:5]]
    _, status = os.waitpid(started(None, control, seconds), 0)
    if verdict(status) != "survived":
        raise SystemExit("Tests fail without any fault: run `make test`, then `map`.")

    while left or running:
        if left and len(running) < jobs:
            mutant = left.pop(0)
            tests = within(tests_of(mutant, data, durations), durations, seconds)
            if tests:
                running[started(mutant, tests, seconds)] = mutant
            else:
                note(mutant, "not run")
            continue
        child, status = os.wait()
        note(running.pop(child), verdict(status))
    report([results[m.rank] for m in mutants])


def _read(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text()) if path.exists() else []


def report(results: list[dict[str, Any]]) -> None:
    """The share that was noticed, by package."""
    for package in PACKAGES:
        own = [r["verdict"] for r in results if f"/{package}/" in r["path"]]
        print(f"{package:20}", dict(Counter(own)))
    verdicts = Counter(r["verdict"] for r in results)
    noticed = verdicts["killed"] + verdicts["out of time"]
    print(f"noticed: {noticed} of {len(results)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["map", "run"])
    parser.add_argument("--store", type=Path, default=ROOT / "output" / "mutants")
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    store = args.store.resolve()
    if args.what == "map":
        make_map(store)
    else:
        run(store, args.number, args.seed, args.seconds, args.jobs)


if __name__ == "__main__":
    main()
