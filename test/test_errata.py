"""What docs/reference/errata.md says of misprints and gaps in the papers, in numbers.

Dense NumPy in float64, without the package. A test takes what is printed and what is
right, on a problem where both can be computed, and shows that the first fails and the
second holds. Keys and letters are those of docs/reference/errata.md.

Features are finite: `k(x, y) = x'y` of the rows given, so that an operator of the
proofs is a matrix. Where a test asks for equality, the matrices have condition numbers
below 1e4 and fewer than 100 rows: `ROUNDING` is their product with the machine epsilon.
"""

import doctest
from fractions import Fraction
from math import ceil, comb, e, exp, log, log2, sqrt
from pathlib import Path

import numpy as np
import pytest

ROUNDING = 1e4 * 100 * np.finfo(np.float64).eps


def lattice(n: int, d: int) -> np.ndarray:
    """`n x d` points of the unit cube, spread evenly, the same on every machine."""
    ratio = 2.0
    for _ in range(60):  # the root of x^(d+1) = x + 1
        ratio = (1 + ratio) ** (1 / (d + 1))
    return np.arange(1, n + 1)[:, None] * ratio ** -np.arange(1.0, d + 1) % 1


def matern(A: np.ndarray, B: np.ndarray, lengthscale: float = 0.5) -> np.ndarray:
    """The Matern-5/2 kernel."""
    squared = ((A[:, None] - B[None]) ** 2).sum(-1)
    r = np.sqrt(5 * squared) / lengthscale
    return (1 + r + r * r / 3) * np.exp(-r)


def projector(columns: np.ndarray) -> np.ndarray:
    """The orthogonal projector on the span of the columns."""
    Q, _ = np.linalg.qr(columns)
    return Q @ Q.T


def cov(A: np.ndarray, B: np.ndarray, seen: np.ndarray, lam: float) -> np.ndarray:
    """`A (seen' seen + lam)^-1 B'`, the papers' posterior covariance of features."""
    precision = seen.T @ seen + lam * np.eye(seen.shape[1])
    return A @ np.linalg.solve(precision, B.T)


def var(points: np.ndarray, seen: np.ndarray, lam: float) -> np.ndarray:
    """The diagonal of `cov`."""
    return np.diagonal(cov(points, points, seen, lam))


@pytest.fixture(scope="module")
def features():
    """Twelve points in five features."""
    return 2 * lattice(12, 5) - 1


# --- BKB and BBKB, the posterior -----------------------------------------------------


def test_variances_are_divided_by_lambda(features):
    """BKB Eq. 2 lacks 1/lambda; BBKB A.1 scales deviations as if they were variances.

    Eq. 5 (the effective dimension) holds for the variance divided by lambda. With it,
    `sigma_bay = sqrt(lambda) sigma` and so `beta_bay = beta / sqrt(lambda)`.
    """
    lam, K = 0.5, features @ features.T
    d_eff = np.trace(K @ np.linalg.inv(K + lam * np.eye(12)))
    bayes = np.diagonal(K - K @ np.linalg.solve(K + lam * np.eye(12), K))
    assert (bayes / lam).sum() == pytest.approx(d_eff, rel=ROUNDING)
    assert bayes.sum() < 0.6 * d_eff

    sigma = np.sqrt(var(features, features, lam))
    assert np.sqrt(bayes) == pytest.approx(np.sqrt(lam) * sigma, rel=ROUNDING)
    assert (np.sqrt(bayes) > 1.4 * lam * sigma).all()


# --- BKB -----------------------------------------------------------------------------


def test_bkb_logarithm_needs_a_large_lambda_and_a_large_argument():
    """BKB Theorem 2: `log det <= 2 log(kappa^2 t) d_eff` for lambda >= 1 and u >= 3.5.

    One arm, `t` times: the kernel matrix has one eigenvalue, `u = kappa^2 t`.
    """

    def holds(u: float, lam: float) -> bool:
        return log(1 + u / lam) <= 2 * log(u) * u / (u + lam)

    assert holds(100, 1)
    assert not holds(100, 1e-4)
    assert not holds(1.2, 1)
    # The proof's step, 1 + log(u + 1) <= 2 log u, from the root of e (u + 1) = u^2 on.
    root = (e + sqrt(e * e + 4 * e)) / 2
    assert 3.49 < root < 3.5
    assert 1 + log(3.49 + 1) > 2 * log(3.49)
    assert 1 + log(3.5 + 1) < 2 * log(3.5)


def tail_of_all_rounds(q: float, R_times_q: float, rounds: int = 100) -> float:
    """Proposition 7 with its minus, `R = sigma^2` and epsilon = 1/2, summed over t."""
    R = R_times_q / q
    exponent = -(0.5**2 / 2) / (R + R * 0.5 / 3)
    return sum(4 * t * exp(exponent) for t in range(1, rounds + 1))


def test_oversampling_of_the_accuracy_proofs():
    """BKB Prop. 7 and C.3, BBKB Theorem 1: a minus, `R = alpha / q`, and 72 for 8.

    At epsilon = 1/2, alpha is 3 and BKB's `6 alpha / epsilon^2` is 72.
    """
    delta, alpha, L = 0.1, 3, log(4 * 100 / 0.1)
    assert tail_of_all_rounds(72 * L, alpha) < delta
    assert tail_of_all_rounds(8 * L, alpha) > 1
    # A point whose estimate is alpha times too small has p = q sigma^2 / alpha: the
    # norm of G is then above 1 / q.
    q, sigma_squared = 72 * L, 1e-6
    p = q * sigma_squared / alpha
    assert 2 / q < (1 / p - 1) * sigma_squared <= alpha / q
    # Without the minus the bound is above 4 t: it says nothing.
    assert exp(+(0.5**2 / 2) / (2 * alpha / q)) > 1


def test_accuracy_fails_far_more_rarely_than_theorem_1_allows():
    """BKB and BBKB Theorem 2: two events of delta each, the first with room to spare.

    So 1 - 2 delta is what follows from the theorems, and 1 - 1.1 delta from the proofs.
    """
    for delta in (0.1, 0.025):
        q = 72 * log(4 * 100 / delta)
        assert tail_of_all_rounds(q, 3) < 0.1 * delta


def test_bkb_tail_of_the_number_of_points():
    """BKB Proposition 8: `exp(-2 d)` is too small, `exp(-(3 log 3 - 2) d)` holds."""
    n, d = 1000, 10
    p = Fraction(d, n)
    below = sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(3 * d))
    tail = float(1 - below)
    assert tail > 50 * exp(-2 * d)
    assert tail <= exp(-(3 * log(3) - 2) * d)


def test_information_gain_bounds_half_of_the_variances(features):
    """BKB 3.2, S-BPE 3.3: `sum sigma_i^2(x_i)` and `d_eff` are at most 2 gamma."""
    lam, x = 1.0, np.ones((1, 1))
    gain = np.log1p(1 / lam) / 2
    assert gain < var(x, x, lam)[0] <= 2 * gain

    lam, total = 0.3, 0.0
    for t in range(1, 13):
        total += var(features[t - 1 : t], features[:t], lam)[0]
    d_eff = var(features, features, lam).sum()
    log_det = np.linalg.slogdet(features @ features.T / lam + np.eye(12))[1]
    assert d_eff <= total <= log_det


def test_bkb_regret_sums_variances_before_the_evaluation():
    """BKB D.2: `sigma_(t-1)^2(x_t)` exceeds Proposition 5, by up to 1 + kappa^2/lam."""
    x, k_over_lam = np.array([[sqrt(3.0)]]), 3.0
    before, after = var(x, x[:0], 1)[0], var(x, x, 1)[0]
    log_det = log(1 + k_over_lam)
    assert after <= log_det < 0.5 * before
    assert before <= (1 + k_over_lam) * after * (1 + ROUNDING)


# --- BBKB ----------------------------------------------------------------------------


def test_bbkb_bounds_are_of_variances():
    """BBKB Lemma 1 and line 5: `sigma^2(x_s)`; `sigma(x)` and `sigma(x_s)` fail.

    One feature, nothing seen, lambda = 1: after an evaluation of `x_s` the variance of
    every multiple of it is divided by `1 + x_s^2`.
    """
    nothing = np.zeros((0, 1))
    for x, x_s in ((0.01, 1.0), (3.0, 3.0)):
        point, chosen = np.array([[x]]), np.array([[x_s]])
        before = var(point, nothing, 1)[0]
        ratio = before / var(point, chosen, 1)[0]
        of_chosen = var(chosen, nothing, 1)[0]
        assert ratio == pytest.approx(1 + of_chosen, rel=ROUNDING)
        if x < x_s:  # the lemma with x for x_s: false even for the ratio of deviations
            assert sqrt(ratio) > 1.3 * (1 + sqrt(before))
        else:  # line 5: the ratio of variances may pass the threshold
            assert ratio > 2 * (1 + sqrt(of_chosen))


def test_bbkb_dimension_is_of_variances(features):
    """BBKB Section 2: `d_eff` sums `sigma^2`."""
    lam, K = 0.1, features @ features.T
    variances = var(features, features, lam)
    d_eff = np.trace(K @ np.linalg.inv(K + lam * np.eye(12)))
    assert variances.sum() == pytest.approx(d_eff, rel=ROUNDING)
    assert np.sqrt(variances).sum() > 1.3 * d_eff


def test_bbkb_probabilities_are_of_variances():
    """BBKB Section 3.1: p-tilde is `q sigma^2`, or 1) of Theorem 1 fails.

    Evaluations of one point have `d_eff < 1`. With `q sigma^2` the expected number of
    inducing points is `q d_eff`; with `q sigma` it grows like the root of n, beyond
    what the theorem allows, at the q that it asks for; 72 and 81 are of its errata.
    """
    n, lam, delta, C = 2 * 10**6, 0.5, 0.1, 1.0
    variance = var(np.ones((1, 1)), np.ones((n, 1)), lam)[0]
    d_eff, q = n / (n + lam), 72 * log(4 * n / delta)
    assert n * variance == pytest.approx(d_eff, rel=ROUNDING)
    assert q * sqrt(variance) < 1
    assert n * q * sqrt(variance) > 81 * C * (1 + 1 / lam) ** 2 * q * d_eff


def test_bbkb_uncertainty_sampling():
    """BBKB Algorithm 3: `sigma^2 >= 1/P`, and the first point has to count.

    The lines are run as they stand, with the variances of independent arms.
    """

    def points(
        k: np.ndarray, P: float, power: float, *, counts_first: bool
    ) -> list[int]:
        n = np.zeros(len(k))
        chosen = [int(k.argmax())]
        n[chosen] += counts_first
        while max(k / (1 + n * k)) ** power >= 1 / P:
            chosen.append(int((k / (1 + n * k)).argmax()))
            n[chosen[-1]] += 1
        return chosen

    one, two = np.array([1.0]), np.array([2.0, 1.0])
    # 1 / (1 + n) against 1 / P, and against 1 / P^2 when deviations stop the loop.
    assert len(points(one, 9.5, 1.0, counts_first=True)) == 9
    assert len(points(one, 9.5, 0.5, counts_first=True)) == 90
    # Without an update after line 1 the first point is chosen twice.
    assert points(two, 10, 1.0, counts_first=True)[:2] == [0, 1]
    assert points(two, 10, 1.0, counts_first=False)[:2] == [0, 0]


def test_bbkb_sum_is_below_the_product_of_gpbucb(features):
    """BBKB 3.2: GP-BUCB's product has sequential variances, not those of the start.

    `1 + tr C <= det(I + C) = prod (1 + sigma_(s-1)^2(x_s))` for the batch's covariance
    C, and the printed product is larger than that: it does not tell of GP-BUCB's.
    """
    seen, batch, lam = features[:4], features[4:], 0.5
    C = cov(batch, batch, seen, lam)
    sequential = [
        var(batch[s : s + 1], np.vstack((seen, batch[:s])), lam)[0] for s in range(8)
    ]
    product = np.prod([1 + v for v in sequential])
    assert product == pytest.approx(np.linalg.det(np.eye(8) + C), rel=ROUNDING)
    assert 1 + np.trace(C) <= product
    assert np.prod(1 + np.diagonal(C)) > 1.5 * product


def test_bbkb_root_of_the_threshold_suffices(features):
    """BBKB Theorem 2: alpha = C beta; deviations shrink by sqrt(C), and attain it."""
    seen, x, lam = features[:4], features[6:7], 0.5
    batch = np.repeat(x, 5, axis=0)
    C = 1 + var(batch, seen, lam).sum()
    everything = np.vstack((seen, batch))
    ratio = np.sqrt(var(features, seen, lam) / var(features, everything, lam))
    assert ratio.max() == pytest.approx(sqrt(C), rel=ROUNDING)
    assert sqrt(C) < C


def test_bbkb_determinant_needs_lambda(features):
    """BBKB C.2: Schur's complement is divided by lambda."""
    K, one = features[:3] @ features[:3].T, np.eye(2)
    k, last = K[2, :2], K[2, 2]
    for lam, printed_holds in ((1.0, True), (0.1, False)):
        whole = np.linalg.det(K / lam + np.eye(3))
        ratio = whole / np.linalg.det(K[:2, :2] / lam + one)
        printed = 1 + last - k @ np.linalg.solve(K[:2, :2] / lam + one, k)
        right = 1 + (last - k @ np.linalg.solve(K[:2, :2] + lam * one, k)) / lam
        assert right == pytest.approx(ratio, rel=ROUNDING)
        assert (abs(printed - right) < 0.1 * right) == printed_holds


def test_bbkb_full_covariance_does_not_dominate():
    """BBKB B.3: residual covariances may be negative, and then the bound fails.

    Two features, the first in the dictionary: of `x = (1, 1)` and `x_s = (1, -1)` the
    full covariance vanishes, and the variance falls all the same.
    """
    x, x_s, P, lam = np.array([[1.0, 1]]), np.array([[1.0, -1]]), np.diag([1.0, 0]), 1
    nothing = np.zeros((0, 2))
    variance = var(x, nothing, lam)[0]
    ratio = variance / var(x, x_s @ P, lam)[0]
    full = 1 + cov(x, x_s, nothing, lam)[0, 0] ** 2 / variance
    embedded = 1 + cov(x, x_s @ P, nothing, lam)[0, 0] ** 2 / variance
    assert (x @ (np.eye(2) - P) @ x_s.T)[0, 0] < 0
    assert full == pytest.approx(1, rel=ROUNDING)
    assert full < 1.3 < ratio <= embedded


def test_bbkb_local_bound_holds_though_its_step_does_not(features):
    """BBKB B.3, "after inversion": 1 / (1 - a) > 1 + a; Cauchy-Schwarz gives it.

    `(u'u)^2 <= u'(I + P P')u u'(I + P P')^-1 u`, with `u'u` the variance of before.
    """
    seen, batch, lam = features[:4], features[4:6], 2.0
    before = var(features, seen, lam)
    after = var(features, np.vstack((seen, batch)), lam)
    a = (cov(features, batch, seen, lam) ** 2).sum(1) / before
    assert (before / after <= (1 + a) * (1 + ROUNDING)).all()
    assert ((a < 1) & (1 / (1 - a) > 1.01 * (1 + a))).any()


# --- S-BPE ---------------------------------------------------------------------------


def test_sbpe_variances_are_not_ordered():
    """S-BPE Lemma G.1 fails on both sides; the certificate's factor holds.

    Two features, the first in the dictionary, one evaluation of `(1, 1)`, tau = 1.
    """
    seen, points = np.array([[1.0, 1]]), np.array([[1.0, -1], [1.0, 1]])
    embedded = seen @ np.diag([1.0, 0])
    exact, approximate = var(points, seen, 1), var(points, embedded, 1)
    lambda_max = (seen @ seen.T - embedded @ embedded.T)[0, 0]
    assert approximate[0] < 0.8 * exact[0]
    assert approximate[1] > 1.1 * (1 + lambda_max) * exact[1]
    alpha = 1 + (lambda_max + sqrt(lambda_max**2 + 4 * lambda_max)) / 2
    assert (approximate / alpha <= exact).all()
    assert (exact <= alpha * approximate).all()


def test_sbpe_sum_of_variances_needs_a_kernel_below_one():
    """S-BPE Eq. 27 holds for k_max <= 1; else `2 k_max / log(1 + k_max / tau^2)`."""
    k_max, tau2 = 4.0, 1.0
    gain = log(1 + k_max / tau2) / 2  # of one evaluation, before it the variance 4
    assert k_max > 1.5 * 2 / log(1 + 1 / tau2) * gain
    right = 2 * k_max / log(1 + k_max / tau2) * gain
    assert k_max == pytest.approx(right, rel=ROUNDING)  # attained


def test_sbpe_norms_are_roots_of_the_kernel():
    """S-BPE Cor. 3.7, Lemma F.2, R_1: `|f(x)| <= C_k sqrt(k(x, x))`.

    The linear kernel on {-a, a}, a < 1, and `f(x) = C x`, of norm C.
    """
    a, C = 0.5, 2.0
    k_max = a * a
    assert C * a == C * sqrt(k_max) > C * k_max
    # The first batch: two evaluations for N = 2, each with a regret up to 2 C a.
    lost, N = C * a - C * -a, 2
    length = ceil(sqrt(N))
    assert length * lost > C * k_max * sqrt(N)
    assert length * lost <= 2 * C * sqrt(k_max) * ceil(sqrt(N))


def lengths(N: int) -> list[int]:
    """The batches of S-BPE's Algorithm 1, the last cut at N."""
    batches, previous = [], 1
    while sum(batches) < N:
        previous = ceil(sqrt(N * previous))
        batches.append(min(previous, N - sum(batches)))
    return batches


def test_sbpe_number_of_batches_has_logarithms_to_base_two():
    """S-BPE H: `ceil(log log N) + 1` batches; with natural logarithms too few."""
    assert len(lengths(10**4)) > ceil(log(log(10**4))) + 1
    for N in (10, 100, 10**4, 10**6, 10**9):
        assert len(lengths(N)) <= ceil(log2(log2(N))) + 1


# --- GSSBO ---------------------------------------------------------------------------


class Selection:
    """60 points spread over a cube, a Matern kernel, and ways to choose 12 of them."""

    def __init__(self) -> None:
        self.N, self.M = 60, 12
        X = lattice(self.N, 3)
        self.K = matern(X, X)
        self.inverse = np.linalg.inv(self.K)
        self.identity = np.eye(self.N)
        values, vectors = np.linalg.eigh(self.K)
        self.eigenvalues, self.U = values[::-1], vectors[:, ::-1]

    def nystrom(self, S: list[int]) -> np.ndarray:
        """K-hat of the chosen points."""
        return self.K[:, S] @ np.linalg.solve(self.K[np.ix_(S, S)], self.K[S])

    def error(self, S: list[int]) -> float:
        """The spectral norm of K - K-hat."""
        return float(np.linalg.norm(self.K - self.nystrom(S), 2))

    def farthest_columns(self, columns: np.ndarray) -> list[int]:
        """The column farthest from the span of those before it, M times."""
        chosen, rest = [], columns.copy()
        for _ in range(self.M):
            norms = np.linalg.norm(rest, axis=0)
            norms[chosen] = -1
            chosen.append(int(norms.argmax()))
            q = rest[:, chosen[-1]] / norms.max()
            rest -= np.outer(q, q @ rest)
        return chosen

    def diverse(self, first: int) -> list[int]:
        """Eq. 1: the gradient column of smallest cosines with those chosen, M times."""
        unit = self.inverse / np.linalg.norm(self.inverse, axis=0)
        chosen, total = [first], unit[:, first].copy()
        while len(chosen) < self.M:
            scores = unit.T @ total
            scores[chosen] = np.inf
            chosen.append(int(scores.argmin()))
            total += unit[:, chosen[-1]]
        return chosen


@pytest.fixture(scope="module")
def selection():
    """One for all tests."""
    return Selection()


def test_gssbo_gradient_columns_are_no_kernel_columns(selection):
    """GSSBO A.1: `K^-1 C_t = [e_j]`, other ranges, and no conjugation of projectors."""
    S = selection.farthest_columns(selection.K)
    C, G = selection.K[:, S], selection.inverse[:, S]
    assert np.linalg.solve(selection.K, C) == pytest.approx(
        selection.identity[:, S], abs=ROUNDING
    )
    assert np.linalg.norm(G - selection.identity[:, S]) > np.linalg.norm(G) / 2

    P_K, P_g, one = projector(C), projector(G), selection.identity
    assert np.linalg.norm(P_K @ G - G) > np.linalg.norm(G) / 2
    printed = selection.inverse @ (one - P_K) @ selection.K
    assert np.linalg.norm(one - P_g - printed) > np.linalg.norm(one - P_g)
    assert np.linalg.norm(printed - printed.T) > np.linalg.norm(one - P_g)


def test_gssbo_gradient_diversity_is_not_nystrom_selection(selection):
    """GSSBO A.1: the two greedy rules choose other points, from the first one on."""
    by_kernel = selection.farthest_columns(selection.K)
    by_gradient = selection.farthest_columns(selection.inverse)
    assert by_kernel[0] != by_gradient[0]
    assert len(set(by_kernel) & set(by_gradient)) < selection.M / 2


def test_gssbo_gradient_diversity_is_worse_than_chance(selection):
    """GSSBO A.1, 5: "better than random selection" is contradicted, on even points."""
    generator = np.random.default_rng(0)
    draws = [generator.permutation(selection.N)[: selection.M] for _ in range(40)]
    by_chance = [selection.error(list(draw)) for draw in draws]
    by_diversity = [selection.error(selection.diverse(i)) for i in range(0, 60, 6)]
    assert min(by_diversity) > np.median(by_chance)


def test_gssbo_bound_changes_with_the_units(selection):
    """GSSBO Eq. 11: `lambda_(M+1) + eps_g sum K_ii^2`, an error against its square.

    Scaled down far enough, any choice worse than the best of rank M violates it.
    """
    S, M = selection.farthest_columns(selection.K), selection.M
    rest = selection.identity - projector(selection.K[:, S])
    eps_g = np.linalg.norm(rest @ selection.U[:, :M])
    excess = selection.error(S) - selection.eigenvalues[M]
    assert excess > 0
    K = excess / (2 * eps_g * selection.N) * selection.K
    K_hat = K[:, S] @ np.linalg.solve(K[np.ix_(S, S)], K[S])
    bound = np.linalg.eigvalsh(K)[-M - 1] + eps_g * (np.diagonal(K) ** 2).sum()
    assert np.linalg.norm(K - K_hat, 2) > bound


def test_gssbo_residual_energy(selection):
    """GSSBO A.1, "Comparison": lambda_M^2 for lambda_1, and no recursion for E_t."""
    S, M, K = selection.farthest_columns(selection.K), selection.M, selection.K
    largest, smallest = selection.eigenvalues[0], selection.eigenvalues[M - 1]
    printed_fails = False
    for t in range(M):
        rest = selection.identity - (projector(K[:, S[:t]]) if t else 0)
        E_t = np.linalg.norm(rest @ selection.U[:, :M]) ** 2
        columns = np.linalg.norm(rest @ K) ** 2
        assert columns >= smallest**2 * E_t
        printed_fails |= bool(columns < largest * E_t)
        if t == 0:  # E_0 = M, from which the first column would be taken off
            assert E_t == pytest.approx(M, rel=ROUNDING)
            assert np.linalg.norm(K[:, S[0]]) ** 2 > E_t
    assert printed_fails


def test_gssbo_approximation_is_no_posterior(selection):
    """GSSBO A.2: Lemma A.2 takes `f | y` normal, which holds for the exact posterior.

    Theorem 5.1's variance, that of the low-rank matrix with exact cross-covariances,
    is never above the exact one, and negative at points outside of the subset.
    """
    noise = 1e-2 * selection.identity
    K_hat = selection.nystrom(list(range(selection.M)))
    exact = 1 - np.diagonal(
        selection.K @ np.linalg.solve(selection.K + noise, selection.K)
    )
    theorem = 1 - np.diagonal(selection.K @ np.linalg.solve(K_hat + noise, selection.K))
    assert (exact > 0).all()
    assert (theorem <= exact + ROUNDING).all()
    assert (theorem < 0).any()


def test_gssbo_square_of_the_regret():
    """GSSBO Eq. 52: `r_n <= 2 sqrt(beta) sigma` squares to 4 beta sigma^2.

    With 4 the sum is `C_1 beta I`, as Eq. 53 ends; with the printed 2, half of it.
    """
    noise, variances, beta = 0.1, np.array([1.0, 0.4, 0.05]), 7.0
    C_1 = 8 / log(1 + 1 / noise)
    gain = np.log1p(variances / noise).sum() / 2
    assert ((2 * np.sqrt(beta * variances)) ** 2).sum() <= C_1 * beta * gain
    one = np.log1p(1 / noise) / 2  # the gain of a variance of 1, where both sides meet
    assert (2 * sqrt(beta)) ** 2 == pytest.approx(C_1 * beta * one, rel=ROUNDING)
    # Eq. 52's right side is 2 beta whatever the variance: its sum is no gain.
    printed = len(variances) * C_1 * beta * log(1 + 1 / noise) / 4
    assert abs(printed - C_1 * beta * gain) > 0.1 * printed


# --- Arithmetic ----------------------------------------------------------------------


def test_lines_for_the_reader():
    """The examples of docs/reference/errata.md give what stands there."""
    page = Path(__file__).parents[1] / "docs" / "reference" / "errata.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 0
    assert failed == 0
