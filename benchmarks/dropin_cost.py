"""What each member of `SingleTaskGP`'s surface costs, n = 1e3 to 1e5, at equal m.

`SparseSingleTaskGP` against `SingleTaskGP`, `SingleTaskVariationalGP` and
`SingleTaskGP` with GPyTorch's `InducingPointKernel` (its fast `log_prob` switched on).
All have the same kernel, hyperparameters and `m` inducing points, and BoTorch's
defaults otherwise. Within a row the models are timed in turns.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from botorch.exceptions import UnsupportedError
from botorch.models import SingleTaskVariationalGP
from botorch.models.gpytorch import GPyTorchModel
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import InducingPointKernel, MaternKernel

from benchmarks import dropin_peers
from benchmarks.measure import CLOCK, in_fresh_process, seconds, side_by_side

DIMENSION = 4
BATCH = 64
FANTASIES = 16
MODELS = ("sparse", "exact", "sgpr", "svgp")
TITLES = {
    "sparse": "SparseSingleTaskGP",
    "exact": "SingleTaskGP",
    "sgpr": "InducingPointKernel",
    "svgp": "VariationalGP",
}
# A call that takes longer is made once; an exact fit is not run above that n.
SLOW = 5.0
EXACT_FIT = 2000
FLAT = ("warm posterior", "condition on 1 point", f"fantasize({FANTASIES})")


Table = dict[str, dict[str, float]]


class Setting(NamedTuple):
    """One model on one data set."""

    name: str
    n: int
    m: int


def build(setting: Setting, device: torch.device | str = "cpu") -> GPyTorchModel:
    """The model: a smooth function with noise, the first `m` points inducing."""
    name, n, m = setting
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, DIMENSION, dtype=torch.float64, generator=generator)
    noise = torch.randn(n, 1, dtype=torch.float64, generator=generator)
    Y = (6 * X).sin().sum(-1, keepdim=True) + 0.1 * noise
    X, Y = X.to(device), ((Y - Y.mean()) / Y.std()).to(device)
    kernel = MaternKernel(nu=2.5, ard_num_dims=DIMENSION).to(X)
    kernel.lengthscale = 0.5
    if name == "exact":
        return dropin_peers.exact(X, Y, kernel)
    return getattr(dropin_peers, name)(X, Y, X[:m], kernel)


def operations(
    model: GPyTorchModel, conditions: bool = True
) -> dict[str, Callable[[], Any]]:
    """What is timed, by name, in an order that leaves each its caches."""
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(BATCH, 1, DIMENSION, dtype=torch.float64, generator=generator)
    X = X.to(next(model.parameters()))
    x, y = X[0], X.new_zeros(1, 1)
    sampler = SobolQMCNormalSampler(torch.Size([FANTASIES]), seed=0)

    def moments(of: GPyTorchModel, at: torch.Tensor) -> torch.Tensor:
        posterior = of.posterior(at)
        return posterior.mean + posterior.variance

    @torch.no_grad()
    def first() -> torch.Tensor:
        model.train()
        return moments(model.eval(), X)

    @torch.no_grad()
    def warm() -> torch.Tensor:
        return moments(model, X)

    def gradient() -> None:
        moments(model, X.clone().requires_grad_()).sum().backward()

    timed = {
        "objective": dropin_peers.evaluation(model),
        "first posterior": first,
        "warm posterior": warm,
        "posterior, gradient": gradient,
    }
    if not conditions or not can_condition(model):
        return timed
    condition = torch.no_grad()(lambda: model.condition_on_observations(x, y))
    fantasize = torch.no_grad()(lambda: model.fantasize(x, sampler))
    return timed | {
        FLAT[1]: condition,
        FLAT[2]: fantasize,
        "condition, then posterior": torch.no_grad()(lambda: moments(condition(), X)),
    }


def can_condition(model: GPyTorchModel) -> bool:
    """BoTorch has no fantasies for its variational model, GPyTorch none for SGPR."""
    if isinstance(model, SingleTaskVariationalGP):
        return False
    return not isinstance(model.covar_module, InducingPointKernel)


def too_large(setting: Setting, exact_limit: int, max_memory: float) -> bool:
    """Whether a model is left out: n^3 time, or a `batch x n x m` posterior."""
    name, n, m = setting
    if name == "exact":
        return n > exact_limit
    # An estimate from below: its temporaries are five to ten of that size at a time.
    return name == "sgpr" and 5 * 8 * BATCH * n * m > max_memory * 2**30


def peak(setting: Setting) -> None:
    """One evaluation of the objective, and a posterior with its gradient."""
    timed = operations(build(setting), conditions=False)
    for function in timed.values():
        function()


def measure(models: dict[str, GPyTorchModel], repeats: int) -> Table:
    """Median seconds, by operation and then by the keys of `models`."""
    calls = {key: operations(model) for key, model in models.items()}
    table: Table = {}
    for operation in max(calls.values(), key=len):
        row = {
            key: timed[operation] for key, timed in calls.items() if operation in timed
        }
        for model in models.values():
            model.eval()
        try:
            table[operation] = timed_row(row, repeats)
        except UnsupportedError as error:
            print(f"  {operation}: left out, {str(error).split('. ')[0]}.")
    return table


def timed_row(row: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Medians side by side; a single call of what takes longer than `SLOW`."""
    once = {key: seconds(function) for key, function in row.items()}
    quick = {key: function for key, function in row.items() if once[key] <= SLOW}
    return once | (side_by_side(quick, repeats) if quick else {})


def whole_fits(n: int, m: int, names: Sequence[str]) -> dict[str, float]:
    """Seconds of one fit from BoTorch's defaults, until its own stopping rule."""
    result = {}
    for name in names:
        fitted = dropin_peers.fit(partial(build, Setting(name, n, m)))
        result[name] = fitted.fit_seconds
    return result


def print_table(n: int, m: int, table: Table) -> None:
    """One line for each operation: ours in ms, and the peers' in multiples of it."""
    print(f"n = {n}, m = {m}: milliseconds, and how many times ours the peers take")
    print(f"  {'':26}" + "".join(f"{TITLES[name]:>21}" for name in MODELS))
    for operation, row in table.items():
        ours = row["sparse"]
        cells = [f"{1e3 * ours:.4g} ms"] + [
            f"{row[name] / ours:.3g}" if name in row else "-" for name in MODELS[1:]
        ]
        print(f"  {operation:26}" + "".join(f"{cell:>21}" for cell in cells))


def report_size(args: argparse.Namespace, n: int) -> None:
    """All of one n."""
    m = min(args.num_inducing, n // 2)
    settings = [Setting(name, n, m) for name in MODELS]
    kept = [s for s in settings if not too_large(s, args.exact_limit, args.max_memory)]
    peaks = {s.name: in_fresh_process(peak, s)[1] for s in kept}
    table = measure({s.name: build(s) for s in kept}, args.repeats)
    if n <= args.fit_limit:
        names = [s.name for s in kept if s.name != "exact" or n <= EXACT_FIT]
        table["whole fit"] = whole_fits(n, m, names)
    print_table(n, m, table)
    memory = ", ".join(f"{TITLES[name]} {peaks[name]:.2f}" for name in peaks)
    print(f"  peak GiB of a process: {memory}")
    for operation in ("warm posterior", "posterior, gradient"):
        ratio = table[operation]["sparse"] / table[operation]["svgp"]
        print(f"  {operation}: {ratio:.2f} of SVGP's (at most 1)", flush=True)


def report_flat(sizes: Sequence[int], m: int, repeats: int) -> None:
    """Ours at the smallest and the largest n, in turns."""
    few, many = min(sizes), max(sizes)
    table = measure(
        {str(n): build(Setting("sparse", n, min(m, few // 2))) for n in (few, many)},
        repeats,
    )
    for operation in FLAT:
        if operation in table:
            low, high = (table[operation][str(n)] for n in (few, many))
            print(
                f"{operation}: n = {many} over n = {few} is {high / low:.2f} "
                f"(at most 1.3; {1e3 * low:.2f} ms, {1e3 * high:.2f} ms)"
            )


def main(arguments: list[str] | None = None) -> None:
    """Print a table for each n, and the two bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--num-inducing", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--exact-limit", type=int, default=10_000, help="largest n")
    parser.add_argument("--max-memory", type=float, default=8.0, help="GiB of a call")
    parser.add_argument("--fit-limit", type=int, default=0, help="n of a whole fit")
    parser.add_argument("--short", action="store_true", help="small sizes, quickly")
    args = parser.parse_args(arguments)
    if args.short:
        args.sizes, args.exact_limit, args.max_memory = [1000, 10_000], 1000, 1.0
    print(
        f"medians over {args.repeats} repeats, {torch.get_num_threads()} threads, "
        f"{CLOCK.__name__}"
    )
    for n in args.sizes:
        report_size(args, n)
    report_flat(args.sizes, args.num_inducing, args.repeats)


if __name__ == "__main__":
    main()
