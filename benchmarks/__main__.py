"""`python -m benchmarks [NAME ...]` runs the benchmarks of RESULTS.md in turn."""

import argparse
import platform
from datetime import UTC, datetime
from importlib import import_module

import torch

NAMES = (
    "posterior_cost",
    "fit_objective",
    "model_memory",
    "bbkb",
    "authors",
    "bbkb_paper",
    "bkb_figure",
    "streaming",
    "samplers",
    "dropin_cost",
    "dropin_accuracy",
    "fits",
    "tasks",
    "transfer",
    "outliers",
    "model_outcomes",
    "continuous",
    "boxes",
    "long_loop",
    "sbpe",
    "sbpe_rates",
    "gssbo",
    "ax_client",
    "ax_flow",
    "pools",
    "outcomes",
    "laboratory",
    "molecules",
    "bits",
    "threads",
    "start",
)
# Arguments of those that take some. The short ones have a long form of their own:
# `python -m benchmarks.dropin_accuracy --output FILE.json`.
ARGUMENTS: dict[str, list[str]] = {
    "model_memory": ["--rows", "100000", "--steps", "1000"],
    "bbkb": [],
    "authors": [],
    "bbkb_paper": [],
    "bkb_figure": ["--seeds", "2"],
    "streaming": [],
    "samplers": ["--short"],
    "dropin_cost": ["--short"],
    "dropin_accuracy": ["--short"],
    "fits": "--names Branin Hartmann3 --sizes 600 --noises 0.1 --seeds 1".split(),
    "tasks": "--sizes 600 --seeds 1 --methods sparse alone".split(),
    "transfer": "--seeds 1 --methods related alone random".split(),
    "outliers": "--functions branin --sizes 40 --seeds 1".split(),
    "model_outcomes": ["--sizes", "600", "--starts", "2"],
    "continuous": ["--short"],
    "boxes": "--problems hartmann6 --seeds 1 --total 200 "
    "--methods trust-region random".split(),
    "long_loop": "--seeds 1 --total 1500".split(),
    "sbpe": ["--short"],
    "sbpe_rates": ["--seeds", "1", "--last", "500"],
    "gssbo": "--problems hartmann6 --seeds 1 --total 40 --size 25 "
    "--methods gssbo-leverage rssbo".split(),
    "ax_client": ["--short"],
    "ax_flow": ["--trials", "500"],
    "start": ["--repeats", "1"],
    "threads": ["--jobs", "BBKB, 4,000", "--beside", "alone", "two", "--repeats", "1"],
    "outcomes": "--problems limited dtlz2 --seeds 1 --total 100 --methods thompson "
    "random forest nsga2".split(),
    "laboratory": "--tables redoxmers --seeds 1 --methods suggest random".split(),
    "molecules": "--problems lipophilicity --seeds 1 --total 60 --methods thompson "
    "random forest-ucb exact-logei".split(),
    "pools": "--tables abalone --seeds 1 --evaluations 100 --methods "
    "thompson,bbkb,random,forest-ucb,exact-ts-quick".split(),
}


def main() -> None:
    """Run the benchmarks that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}")
    names = parser.parse_args().names or NAMES
    unknown = set(names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {sorted(unknown)}; there are {', '.join(NAMES)}")
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    for name in names:
        print(f"\n== {name}", flush=True)
        module = import_module(f"benchmarks.{name}")
        module.main(ARGUMENTS[name]) if name in ARGUMENTS else module.main()


if __name__ == "__main__":
    main()
