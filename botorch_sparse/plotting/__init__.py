"""Figures drawn from strategies and their histories; needs the extra `plot`.

The functions draw into `ax` where one is given, else into a new figure, and return
the figure. They never call `plt.show` and touch no global state of matplotlib.
"""

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError(
        "botorch_sparse.plotting needs matplotlib: pip install 'botorch_sparse[plot]'."
    ) from error

from botorch_sparse.plotting.accuracy import certified_step, plot_certificates
from botorch_sparse.plotting.comparison import plot_best_rank, plot_comparison
from botorch_sparse.plotting.elimination import plot_elimination
from botorch_sparse.plotting.front import plot_hypervolume, plot_pareto
from botorch_sparse.plotting.learned import (
    plot_best_so_far,
    plot_category_effects,
    plot_effects,
    plot_predicted,
)
from botorch_sparse.plotting.posterior import plot_confidence_band, plot_slice
from botorch_sparse.plotting.progress import (
    plot_batch_sizes,
    plot_num_inducing,
    plot_seconds,
)
from botorch_sparse.plotting.regret import (
    plot_cumulative_regret,
    plot_regret,
    plot_simple_regret,
)
from botorch_sparse.plotting.style import svg_of

__all__ = [
    "certified_step",
    "plot_batch_sizes",
    "plot_best_rank",
    "plot_best_so_far",
    "plot_category_effects",
    "plot_certificates",
    "plot_comparison",
    "plot_confidence_band",
    "plot_cumulative_regret",
    "plot_effects",
    "plot_elimination",
    "plot_hypervolume",
    "plot_num_inducing",
    "plot_pareto",
    "plot_predicted",
    "plot_regret",
    "plot_seconds",
    "plot_simple_regret",
    "plot_slice",
    "svg_of",
]
