"""Means and variances computed by the published BBKB code."""

import json
from pathlib import Path

import pytest
import torch
from device_cases import sweep
from gpytorch.kernels import RBFKernel

from botorch_sparse.posteriors import NystromPosterior, RepeatedRows, fold_repeats

CASES = json.loads(
    (Path(__file__).parents[1] / "data" / "bbkb_reference_cases.json").read_text()
)


@pytest.mark.parametrize("fold", [True, False], ids=["folded", "unfolded"])
@sweep("number", range(len(CASES)), [0])
def test_means_and_variances(number, fold, double):
    case = CASES[number]
    A = torch.tensor(case["candidates"], **double)
    X, Y = A[case["pulled_indices"]], torch.tensor(case["y"], **double)
    lam = case["lam"]
    noise = torch.full_like(Y, lam)
    kernel = RBFKernel().to(**double)
    kernel.lengthscale = torch.tensor(case["lengthscale"], **double)
    if fold:
        rows = RepeatedRows.find(X)
        X, (Y, noise, _) = X[rows.first], fold_repeats(rows, Y, noise)
    S = A[case["dictionary_indices"]]
    with torch.no_grad():
        moments = NystromPosterior.from_data(kernel, X, Y, noise, S).moments(A)
    means = torch.tensor(case["means"], **double)
    variances = torch.tensor(case["variances_over_lambda"], **double)
    scale = means.abs().max().item()
    torch.testing.assert_close(moments.mean, means, rtol=1e-5, atol=1e-6 * scale)
    torch.testing.assert_close(moments.variance / lam, variances, rtol=1e-5, atol=0)
