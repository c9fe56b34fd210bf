"""`certificate` and `summary`."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from sparse_model_cases import as_seen, make_model

from botorch_sparse.inducing import accuracy_certificate
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.summary import ModelSummary


def make(**double: Any) -> SparseSingleTaskGP:
    """60 observations at 50 points, 12 inducing points, in eval mode."""
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)).to(**double)
    return make_model(
        transform="normalize",
        n=60,
        m=12,
        repeats=10,
        options={"covar_module": kernel},
        **double,
    )


class TestCertificate:
    """The figures of the inducing points at the unique, transformed points."""

    def test_by_hand(self, double):
        model = make(**double)
        certificate = model.certificate()
        X, S = model.train_inputs[0][:50], as_seen(model, model.inducing_points)
        counts = torch.ones(50, **double)
        counts[:10] = 2
        noise = model.likelihood.noise.detach() / counts
        k = lambda A, B: model.covar_module(A, B).to_dense()  # noqa: E731
        Q = k(X, S) @ torch.linalg.solve(k(S, S), k(S, X))
        D = noise.sqrt()
        E = (k(X, X) - Q) / D / D.unsqueeze(-1)
        largest = torch.linalg.eigvalsh(E).max().item()
        assert largest <= certificate.lambda_max <= 1.3 * largest
        K = k(X, X) / D / D.unsqueeze(-1)
        eye = torch.eye(50, **double)
        dimension = torch.linalg.solve(K + eye, K).trace().item()
        assert dimension <= certificate.effective_dimension <= 50
        assert certificate.num_points == 50 and certificate.num_inducing == 12
        assert not certificate.is_exact and certificate.outputs[0].num_points == 50
        assert certificate.is_certified == (certificate.lambda_max <= 1)
        ours = model.certificate(method="row-sum").outputs[0]
        posterior = model.nystrom_posterior()
        theirs = accuracy_certificate(posterior, X, noise, method="row-sum")
        assert ours.lambda_max == pytest.approx(theirs.lambda_max)
        assert ours.method == theirs.method
        assert ours.effective_dimension == pytest.approx(theirs.effective_dimension)

    def test_kept_as_long_as_the_posterior(self, double):
        model = make(**double)
        first = model.certificate()
        assert model.certificate() is first
        assert model.certificate(delta=0.1) is not first
        model.train()
        model.covar_module.base_kernel.lengthscale = 0.1
        assert model.certificate().lambda_max > first.lambda_max

    def test_outputs_and_batches(self, double):
        """The worst of the outputs, each with its share of the failure probability."""
        X = torch.rand(2, 40, 2, **double)
        Y = torch.cat([X.sum(-1, keepdim=True), (9 * X[..., :1]).sin()], dim=-1)
        model = SparseSingleTaskGP(X, Y, inducing_points=X[:, :9])
        model.covar_module.lengthscale = torch.tensor([0.3, 0.9]).view(2, 1, 1)
        certificate = model.certificate()
        bounds = [output.lambda_max for output in certificate.outputs]
        assert len(bounds) == 4 and certificate.lambda_max == max(bounds)
        assert certificate.failure_probability <= 1e-3
        single = SparseSingleTaskGP(X[1], Y[1, :, :1], inducing_points=X[1, :9])
        single.covar_module.lengthscale = 0.3
        single = single.certificate(method="row-sum")
        batched = model.certificate(method="row-sum").outputs[2]
        assert batched.lambda_max == pytest.approx(single.lambda_max)
        assert dict(model.summary().rows)["outputs"] == "2"

    def test_conditioned(self, double):
        """The certificate of all data, with the inducing points of the others."""
        model = make(**double)
        X = torch.tensor([[0.5, 2.0]], **double)
        one = model.condition_on_observations(X, torch.ones(1, 1, **double))
        assert one.certificate().lambda_max != model.certificate().lambda_max
        assert "61" in str(one.summary())

    def test_exact(self, double):
        X = torch.rand(20, 2, **double)
        model = SparseSingleTaskGP(X, X.sum(-1, keepdim=True))
        certificate = model.certificate()
        assert certificate.is_exact and certificate.is_certified
        assert certificate.alpha == 1.0 and certificate.lambda_max == 0.0
        assert certificate.num_points == certificate.num_inducing == 20
        text = str(model.summary())
        assert text.startswith("SparseSingleTaskGP, exact")
        assert "inducing" not in text and "lambda_max" not in text


class TestSummary:
    """A table that reads well in a terminal and in a notebook."""

    def test_sparse(self, double):
        model = make(**double)
        lengthscale = torch.tensor([0.25, 0.5], **double)
        model.covar_module.base_kernel.lengthscale = lengthscale
        model.covar_module.outputscale = 2.0
        model.likelihood.noise = 0.125
        text = str(model.summary())
        lines = dict(line.strip().split("  ", 1) for line in text.splitlines()[1:])
        lines = {name: value.strip() for name, value in lines.items()}
        assert text.startswith("SparseSingleTaskGP, sparse\n")
        assert lines["observations"] == "60" and lines["different points"] == "50"
        assert lines["inducing points"] == "12" and lines["objective"] == "elbo"
        assert lines["noise variance"] == "0.125" and lines["outputscale"] == "2"
        assert lines["lengthscale"] == "0.25 to 0.5"
        alpha = model.certificate().alpha
        assert lines["variance"] == f"within a factor {alpha:.3g} of the exact one"
        assert max(map(len, text.splitlines())) <= 88

    def test_html(self):
        summary = ModelSummary("A < B", (("one", "1 & 2"),))
        html = summary._repr_html_()
        assert "A &lt; B" in html and "1 &amp; 2" in html and html.count("<tr>") == 1
        assert repr(summary) == str(summary) == "A < B\n  one  1 & 2"
