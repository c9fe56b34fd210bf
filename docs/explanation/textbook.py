"""BKB, BBKB, S-BPE and GSSBO as their papers print them: dense, and without any speed.

There are `A` candidates. `K` is their kernel matrix, `A x A`, and a point is its row
number. `X` lists the evaluated rows, with repeats, and `y` is their feedback. The prior
mean is zero. Letters are those of `docs/notation.md`; line numbers are those of the
papers' algorithms. Where a printed formula is wrong, the right one stands here, with a
remark that begins with "Printed"; `docs/theory.md` has the reasons.

The caller gives the feedback, `observe(rows)`, and all that is random: the first row
`x_1`, drawn uniformly, and `bernoulli(p)`, which says for each probability whether the
event happens.

References:
    [Calandriello2019] Gaussian process optimization with adaptive sketching (BKB).
    [Calandriello2020] Near-linear time Gaussian process optimization (BBKB).
    [Vakili2022] Improved convergence rates for sparse approximation methods (S-BPE).
    [Wei2025] Gradient-based sample selection for faster Bayesian optimization (GSSBO).
"""

from collections.abc import Callable, Sequence
from math import ceil, isqrt, log, log2, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = list[int]
Observe: TypeAlias = Callable[[Rows], list[float]]
Radius: TypeAlias = Callable[[Array], float]  # of the variances of all evaluations
Draw: TypeAlias = Callable[[Rows, Array], Rows]  # `resample`, given q-bar and draws
Bernoulli: TypeAlias = Callable[[Array], Sequence[bool]]


def argmax(values: Array) -> int:
    """The place of the largest value; the lowest of several."""
    return int(values.argmax())


# --- The posterior --------------------------------------------------------------------


def exact(K: Array, X: Rows, y: Array, noise: float) -> tuple[Array, Array]:
    """Mean and covariance of the exact GP. [Vakili2022] Eqs. 1 and 3."""
    K_y = K[np.ix_(X, X)] + noise * np.eye(len(X))
    gain = np.linalg.solve(K_y, K[X]).T
    return gain @ y, K - gain @ K[X]


def embedding(K: Array, S: Rows) -> Array:
    """Row i is z(x_i, S)' = k_S(x_i)' K_S^(+/2). [Calandriello2020] Section 2."""
    values, U = np.linalg.eigh(K[np.ix_(S, S)])
    kept = values > 1e-12 * values.max(initial=0.0)  # of the pseudo-inverse
    return K[:, S] @ (U[:, kept] / np.sqrt(values[kept])) @ U[:, kept].T


def nystrom_mean(K: Array, S: Rows, X: Rows, y: Array, lam: float) -> Array:
    """mu~_t(x) = z(x)' V_t^-1 Z(X_t)' y_t. [Calandriello2020] Eq. 1.

    Printed: Z(x)' for Z(X_t)', here and in [Calandriello2019] Eq. 4.
    """
    Z = embedding(K, S)
    V = Z[X].T @ Z[X] + lam * np.eye(len(S))
    return Z @ np.linalg.solve(V, Z[X].T @ y)


def nystrom_covariance(K: Array, S: Rows, X: Rows, lam: float) -> tuple[Array, Array]:
    """k~_t(x, x'), and its embedded part z(x)' V_t^-1 z(x'). [Calandriello2020] Eq. 2.

    The diagonal is sigma~_t^2: Eq. 3, and [Calandriello2019] Eq. 4, for which
    Z' Z V^-1 = I - lambda V^-1. The Bayesian covariance (DTC) is lambda times k~_t, and
    so is [Vakili2022] Eq. 4. Printed there: k_(X_n, Z_m)(x') for k_(Z_m)(x').
    """
    Z = embedding(K, S)
    V = Z[X].T @ Z[X] + lam * np.eye(len(S))
    embedded = Z @ np.linalg.solve(V, Z.T)
    return (K - Z @ Z.T) / lam + embedded, embedded


# --- BKB ------------------------------------------------------------------------------


def beta_bkb(
    variances: Array, lam: float, F: float, xi: float, delta: float, k_max: float
) -> float:
    """beta~_t of [Calandriello2019] Theorem 2, for epsilon = 1/2 and k_max = kappa^2.

    `variances` are sigma~_t^2(x_s) of all evaluations. Printed: log(kappa^2 t) in any
    case. Its proof needs lambda >= 1 and kappa^2 t >= 3.5; Eq. 6 gives the other one.
    """
    alpha = (1 + 1 / 2) / (1 - 1 / 2)
    trace = k_max * len(variances)
    log_t = max(log(trace), (1 + log(1 + trace / lam)) / 2)
    noise = 2 * xi * sqrt(alpha * log_t * variances.sum() + log(1 / delta))
    return noise + (1 + 1 / sqrt(1 - 1 / 2)) * sqrt(lam) * F


def resample(X: Rows, variance: Array, q_bar: float, bernoulli: Bernoulli) -> Rows:
    """Inducing points. [Calandriello2019] Algorithm 1, [Calandriello2020] lines 11-16.

    The papers draw each evaluation of a row by itself. One draw with the sum of their
    probabilities takes the row at least as often. The papers allow the empty set; here
    the most probable row takes its place.
    """
    rows = list(dict.fromkeys(X))  # each once, in the order of the first evaluation
    p = np.array([q_bar * X.count(x) * variance[x] for x in rows])  # line 13
    z = bernoulli(p.clip(max=1.0))  # line 14
    S = [x for x, is_drawn in zip(rows, z, strict=True) if is_drawn]  # line 15
    return S or [rows[argmax(p)]]


def bkb(
    K: Array, observe: Observe, T: int, lam: float, beta: Radius, x_1: int, draw: Draw
) -> Rows:
    """The rows that BKB evaluates. [Calandriello2019] Algorithm 1."""
    X, y, S = [x_1], observe([x_1]), [x_1]
    while len(X) < T:
        variance = nystrom_covariance(K, S, X, lam)[0].diagonal()
        mean = nystrom_mean(K, S, X, np.array(y), lam)
        X.append(argmax(mean + beta(variance[X]) * np.sqrt(variance)))  # Eq. 4
        y += observe(X[-1:])
        S = draw(X, variance)  # p~_(t+1) has the variances of t
    return X


# --- BBKB -----------------------------------------------------------------------------


def beta_bbkb(variances: Array, lam: float, F: float, xi: float, delta: float) -> float:
    """beta~_fb(t) of [Calandriello2020] Theorem 2; alpha~ is C~ times that.

    `variances` are sigma~_fb(s-1)^2(x_s) of all evaluations, each as it was at the
    start of its batch. The root of C~ is enough, since Lemma 1 bounds variances.
    """
    noise = 2 * xi * sqrt(np.log(1 + 3 * variances).sum() + log(1 / delta))
    return noise + (1 + sqrt(2)) * sqrt(lam) * F


def global_bound(covariance: Array, embedded: Array, batch: Rows) -> float:
    """1 + sum_s sigma~_fb^2(x_s). [Calandriello2020] Lemma 1.

    Printed: deviations for variances, here and in line 5, and x for x_s.
    """
    return 1 + float(covariance.diagonal()[batch].sum())


def local_bound(covariance: Array, embedded: Array, batch: Rows) -> float:
    """The largest local bound. [Calandriello2020] Lemma 3, and the end of B.3.

    It is never above the global one, so that it alone ends a batch of "global-local".
    Printed in Lemma 3: the first sum alone. At some x only the second is a bound.
    """
    sums = (covariance[:, batch] ** 2).sum(1), (embedded[:, batch] ** 2).sum(1)
    return 1 + float((np.maximum(*sums) / covariance.diagonal()).max())


def bbkb(
    K: Array,
    observe: Observe,
    T: int,
    lam: float,
    alpha: Radius,
    x_1: int,
    draw: Draw,
    bound: Callable[[Array, Array, Rows], float],
    C: float,
) -> list[Rows]:
    """The batches of rows that BBKB evaluates. [Calandriello2020] Algorithm 1."""
    X, y, variances, batches = Rows(), list[float](), list[float](), [[x_1]]  # line 1
    covariance, _ = nystrom_covariance(K, [], [], lam)  # line 2: sigma~_0^2 = k / lam
    while True:
        X += batches[-1]
        y += observe(batches[-1])  # line 17
        variance = covariance.diagonal()  # as it was at the batch's start
        variances += variance[batches[-1]].tolist()
        S = draw(X, variance)  # lines 11-16
        covariance, embedded = nystrom_covariance(K, S, X, lam)  # line 18
        mean = nystrom_mean(K, S, X, np.array(y), lam)
        if len(X) == T:
            return batches
        radius, batch = alpha(np.array(variances)), Rows()
        while len(X) + len(batch) < T:
            now = nystrom_covariance(K, S, X + batch, lam)[0].diagonal()  # lines 7-9
            batch.append(argmax(mean + radius * np.sqrt(now)))  # line 4
            if bound(covariance, embedded, batch) > C:  # line 5
                break
        batches.append(batch)


# --- S-BPE ----------------------------------------------------------------------------


def batch_lengths(N: int) -> list[int]:
    """N_i = ceil(sqrt(N N_(i-1))) with N_0 = 1. [Vakili2022] Algorithm 1, line 3."""
    lengths, N_i = list[int](), 1
    while sum(lengths) < N:
        N_i = isqrt(N * N_i - 1) + 1
        lengths.append(min(N_i, N - sum(lengths)))  # lines 11-13
    return lengths


def beta_sbpe(lam_max: float, delta: float, tau2: float, C_k: float, R: float) -> float:
    """beta(delta) of [Vakili2022] Theorem 3.5; tau2 is tau^2."""
    noise = R / sqrt(tau2) * sqrt(2 * log(1 / delta))
    return (2 + sqrt(lam_max / tau2)) * C_k + noise


def keep(upper: Array, lower: Array, left: Rows) -> Rows:
    """The x in X_i with u_i(x) >= max l_i. [Vakili2022] Section 5.1."""
    return [x for x in left if upper[x] >= lower[left].max()]


def sbpe(
    K: Array,
    observe: Observe,
    N: int,
    tau2: float,
    delta: float,
    beta: Callable[[float, float], float],
    inducing: Callable[[Rows], Rows],
) -> list[tuple[Rows, Rows]]:
    """For each batch its rows, and the rows left at its end. [Vakili2022] Algorithm 1.

    `inducing(X)` is the method of Lemma 3.8, or another one with lambda_max <= tau^2
    (Section 5.1): all of X gives BPE, with the exact posterior.
    """
    rounds, left = [], list(range(len(K)))
    B = ceil(log2(log2(N))) + 1  # appendix H. Printed: no base
    for N_i in batch_lengths(N):
        X, Z = Rows(), Rows()  # line 4: earlier batches are ignored
        for _ in range(N_i):
            covariance, _ = nystrom_covariance(K, Z, X, tau2)  # line 7
            X.append(left[argmax(covariance.diagonal()[left])])  # lines 8-9
            Z = inducing(X)  # line 6
        y = np.array(observe(X))  # line 14. Printed: inside the loop over j
        mean = nystrom_mean(K, Z, X, y, tau2)  # line 16
        sigma = np.sqrt(tau2 * nystrom_covariance(K, Z, X, tau2)[0].diagonal())
        residual = K - embedding(K, Z) @ embedding(K, Z).T  # k - kappa, Eq. 6
        lam_max = max(0.0, np.linalg.eigvalsh(residual[np.ix_(X, X)])[-1])
        width = beta(lam_max, delta / (4 * B * len(K))) * sigma  # Eq. 13
        left = keep(mean + width, mean - width, left)  # line 17
        rounds.append((X, left))
    return rounds


# --- GSSBO ----------------------------------------------------------------------------


def gradients(K: Array, D: Rows, y: Array, noise: float, reading: str) -> Array:
    """Gradients of log p(y) by the observations, a row for each. [Wei2025] Section 4.1.

    "scalar": Eq. 3, g_i = -(K^-1 y)_i, of which a cosine sees the sign alone.
    "column": -K^-1 e_i, the columns of appendix A.1 but for the sign.
    "contribution": -K^-1 e_i y_i, whose sum over i is the vector of Eq. 3.
    """
    inverse = np.linalg.inv(K[np.ix_(D, D)] + noise * np.eye(len(D)))
    contribution = -inverse * y[:, None]
    scalar = contribution.sum(0)[:, None]
    return {"scalar": scalar, "column": -inverse, "contribution": contribution}[reading]


def select(G: Array, M: int, forced: Rows) -> Rows:
    """M samples of diverse directions: Eq. 1 of [Wei2025], greedily (Section 4.3)."""
    directions = G / np.linalg.norm(G, axis=1, keepdims=True)
    U = list(forced)
    while len(U) < M:
        cosines = directions @ directions[U].sum(0)
        cosines[U] = np.inf
        U.append(argmax(-cosines))
    return U


def gssbo(
    K: Array,
    observe: Observe,
    initial: Rows,
    N: int,
    M: int,
    noise: float,
    beta: float,
    gradients_of: Callable[[Rows, Array], Array],
) -> tuple[Rows, list[Rows]]:
    """The rows that GSSBO evaluates, and its subsets. [Wei2025] Algorithm 1.

    A subset has places in the list of evaluations. `gradients_of` adds the noise of
    Section 4.3 (3). M is given, which lines 5-10 find by the clock, and so is beta:
    that of Theorem 5.2 subtracts A_n and may be negative. Eq. 19 adds it.
    """
    D, y, subsets = list(initial), observe(initial), [[*range(len(initial))]]  # line 1
    while len(D) < N:
        U = subsets[-1]
        mean, covariance = exact(K, [D[i] for i in U], np.array(y)[U], noise)
        D.append(argmax(mean + np.sqrt(beta * covariance.diagonal())))  # line 3: UCB
        y += observe(D[-1:])  # line 4
        U = [*range(len(D))]  # line 17
        if len(D) > M:
            forced = [*range(len(initial)), len(D) - 1]  # line 13
            U = select(gradients_of(D, np.array(y)), M, forced)  # lines 12 and 14
        subsets.append(U)
    return D, subsets
