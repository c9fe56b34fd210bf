"""Methods of `benchmarks.gssbo`."""

from gpytorch.kernels import MaternKernel

from benchmarks.gssbo_methods import Setting, bbkb, run_strategy
from benchmarks.gssbo_problems import NUM_INITIAL, Problem


def test_bbkb_has_the_kernel_of_all_methods() -> None:
    problem, setting = Problem("eggholder2", 0), Setting(total=NUM_INITIAL + 4)
    strategy = bbkb(problem, setting)
    found = run_strategy(strategy, problem, setting)
    assert len(found["regret"]) == len(found["cpu"]) == setting.total
    kernel = strategy.surrogate.view.prior.covar_module
    assert isinstance(kernel, MaternKernel) and kernel.nu == 2.5
    inputs = strategy.surrogate.source.inputs(problem.bounds)
    assert inputs.tolist() == [[0.0] * problem.dim, [1.0] * problem.dim]
