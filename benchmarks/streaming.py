"""A pool larger than its memory: 10^6 x 20 candidates, m = 300, under 6 GiB."""

import argparse

import torch
from gpytorch.kernels import MaternKernel

from benchmarks.measure import in_fresh_process, seconds
from botorch_sparse.batching import Local
from botorch_sparse.pools import NystromPool
from botorch_sparse.posteriors import NystromPosterior

STEPS = 10


def stream(
    num_candidates: int, max_memory: int
) -> tuple[list[int], float, float, bool]:
    """The first choices of a batch; seconds to embed, and for each step."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(num_candidates, 20, dtype=torch.float64, generator=generator)
    kernel = MaternKernel(nu=2.5).double().requires_grad_(False)
    kernel.lengthscale = 2.0
    chosen = X[:3000]
    Y = chosen.sum(-1).sin()
    noise = torch.full_like(Y, 1e-2)
    posterior = NystromPosterior.from_data(kernel, chosen, Y, noise, X[:300])
    pool = NystromPool(X, 1e-2, max_memory=max_memory)
    embed = seconds(lambda: pool.update(posterior))
    indices: list[int] = []

    def choose() -> None:
        batch = pool.batch(2.0, Local(ratio_threshold=1e9))
        indices.extend(batch.choose(STEPS))

    return indices, embed, seconds(choose) / STEPS, pool.in_memory


def main(arguments: list[str] | None = None) -> None:
    """Print time, memory, and whether both ways choose alike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=1_000_000)
    args = parser.parse_args(arguments)
    choices = []
    for max_memory in (2**30, 2**34):
        result, peak = in_fresh_process(stream, args.candidates, max_memory)
        indices, embed, step, in_memory = result
        choices.append(indices)
        how = "in memory" if in_memory else "streamed"
        print(
            f"pool of {args.candidates} x 20, m = 300, {how}: embed {embed:.1f} s, "
            f"{1e3 * step:.1f} ms a step, peak {peak:.2f} GiB",
            flush=True,
        )
    same = "the same" if choices[0] == choices[1] else "DIFFERENT"
    print(f"  {same} {len(choices[0])} choices (streamed: below 6 GiB)")


if __name__ == "__main__":
    main()
