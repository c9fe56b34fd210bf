"""Batches that become rows, and low-rank updates, against plain broadcasting."""

import oracles
import pytest
import torch

from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.features import by_rows, inner_rows, solve_rows
from botorch_sparse.posteriors.low_rank_update import LowRankUpdate

SHAPES = [
    ((), ()),
    ((), (4,)),
    ((3,), ()),
    ((3,), (3,)),
    ((3,), (4, 3)),
    ((3,), (1,)),
    ((1, 3), (2, 3)),
    ((2, 1), (5, 2, 3)),
    ((2, 3), (3,)),
    ((2, 3), (4, 1, 1)),
]
close = torch.testing.assert_close


@pytest.mark.parametrize(("own", "rows_batch"), SHAPES)
def test_solve_and_inner_products(own, rows_batch, double):
    torch.manual_seed(0)
    L = (torch.rand(*own, 5, 5, **double) + 2 * torch.eye(5, **double)).tril()
    rows = torch.rand(*rows_batch, 2, 5, **double)
    close(solve_rows(L, rows), (torch.linalg.inv(L) @ rows.mT).mT)
    vector = torch.rand(*own, 5, **double)
    close(inner_rows(rows, vector), (rows * vector.unsqueeze(-2)).sum(-1))
    update = LowRankUpdate.from_rows(L[..., :2, :], L[..., :2, :])
    close(update.apply(rows), rows @ _dense_root(L[..., :2, :]))
    close(update.apply_transpose(rows), rows @ _dense_root(L[..., :2, :]).mT)


def _dense_root(P: torch.Tensor) -> torch.Tensor:
    """F, from the definition, so that `rows @ F` are the rows F'w."""
    R = torch.linalg.cholesky(torch.eye(P.shape[-2]).to(P) + P @ P.mT)
    T = torch.linalg.inv(R.mT) @ torch.linalg.inv(R + torch.eye(P.shape[-2]).to(P))
    F = torch.eye(P.shape[-1]).to(P) - P.mT @ T @ P
    close(F @ F.mT, torch.linalg.inv(torch.eye(P.shape[-1]).to(P) + P.mT @ P))
    return F


def test_rows_are_not_copied_for_a_batch(double):
    seen = []
    by_rows(
        torch.rand(4, 3, 2, 5, **double),
        torch.Size([3]),
        lambda r: (seen.append(r.shape), r)[1],
    )
    assert seen == [(3, 8, 5)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["matern52", "linear"])
@pytest.mark.parametrize("chunk_size", [4, 2048])
def test_batched_posterior_is_each_element(name, chunk_size, double):
    """Elements of different rank, also where a kernel has low rank."""
    torch.manual_seed(0)
    kernel = oracles.make_kernel(name, **double)
    X, S = torch.rand(3, 11, 2, **double), torch.rand(3, 5, 2, **double)
    S[1, 3:] = S[1, :2]
    Y, noise = torch.rand(3, 11, **double), 0.1 + torch.rand(3, 11, **double)
    T = torch.rand(4, 1, 6, 2, **double)
    data = X, Y, noise
    posterior = NystromPosterior.from_data(kernel, *data, S, chunk_size=chunk_size)
    assert posterior.batch_shape == (3,)
    moments, covariance = posterior.moments(T), posterior.covariance(T)
    new = torch.rand(2, 3, 2, 2, **double), torch.rand(2, 3, 2, **double)
    conditioned = posterior.condition(*new, torch.ones_like(new[1]))
    absorbed = conditioned.absorbed()
    # As many new points as inducing points call for a new factor.
    assert len(conditioned.updates) == (name != "linear")
    assert absorbed.updates == ()
    for i in range(3):
        one = NystromPosterior.from_data(kernel, *(t[i] for t in data), S[i])
        for t in range(4):
            close(moments.mean[t, i], one.mean(T[t, 0]))
            close(moments.variance[t, i], one.variance(T[t, 0]))
            close(covariance[t, i], one.covariance(T[t, 0]))
        for f in range(2):
            expected = one.condition(
                new[0][f, i], new[1][f, i], torch.ones(2, **double)
            )
            for ours in (conditioned, absorbed):
                close(ours.moments(T[0]).mean[f, i], expected.mean(T[0, 0]))
                close(ours.covariance(T[0])[f, i], expected.covariance(T[0, 0]))
