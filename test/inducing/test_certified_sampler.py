"""What `CertifiedSampler` adds: it grows as far as it must, and says so."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from gpytorch.kernels import LinearKernel
from linear_operator.utils.errors import NanError
from sampler_cases import clustered, effective_dimension, largest_gap, rbf
from torch.linalg import LinAlgError

from botorch_sparse.inducing import CertifiedSampler, certified_sampler
from botorch_sparse.inducing.certificate import ScaledResidual


class TestCertified:
    """Draws from clusters."""

    def setup_method(self) -> None:
        self.X = clustered(600, dtype=torch.float64)
        self.noise = torch.full((600,), 1e-3, dtype=torch.float64)
        self.kernel = rbf(0.3, dtype=torch.float64)
        self.K = self.kernel(self.X).to_dense()
        self.sampler = CertifiedSampler(max_inducing_points=None, num_initial=10)

    def draw(self, sampler: CertifiedSampler) -> Any:
        generator = torch.Generator().manual_seed(0)
        return sampler.draw(self.kernel, self.X, self.noise, generator=generator)

    @pytest.mark.parametrize("tolerance", [10.0, 1.0, 0.1])
    def test_reaches_its_tolerance(self, tolerance):
        drawn = self.draw(replace(self.sampler, tolerance=tolerance))
        gap = largest_gap(self.K, drawn.index, self.noise)
        assert drawn.is_certified
        assert gap <= drawn.certificate.lambda_max <= tolerance
        assert drawn.certificate.num_inducing == len(drawn.index)
        # The k-th of all certificates has 6 delta / (pi k)^2 of it.
        first = 6e-3 / math.pi**2
        assert drawn.certificate.failure_probability in (0, pytest.approx(first))

    def test_stays_small(self):
        """About as many points as a first draw that is large enough."""
        d_eff = effective_dimension(self.K, self.noise)
        m = len(self.draw(self.sampler).index)
        assert 1.2 * d_eff < m < 5 * d_eff

    def test_tighter_tolerance_takes_more_points(self):
        sizes = [
            len(self.draw(replace(self.sampler, tolerance=t)).index)
            for t in (100.0, 1.0, 0.1)
        ]
        assert sizes == sorted(set(sizes))

    @pytest.mark.parametrize("cap", [15, None])
    def test_indices_alone_are_the_same(self, cap, monkeypatch):
        """At the cap without a look at the data that nobody reads."""
        sampler = replace(self.sampler, max_inducing_points=cap)
        expected = self.draw(sampler).index
        summaries, summary = list[int](), ScaledResidual.summary

        def spy(error: ScaledResidual, *args: Any) -> Any:
            summaries.append(error.features.num_inducing)
            return summary(error, *args)

        monkeypatch.setattr(ScaledResidual, "summary", spy)
        generator = torch.Generator().manual_seed(0)
        index = sampler(self.kernel, self.X, self.noise, generator=generator)
        assert torch.equal(index, expected)
        assert summaries and (len(index) in summaries) == (cap is None)

    @pytest.mark.parametrize("cap", [15, None])
    def test_noise_that_is_too_small(self, cap):
        sampler = replace(self.sampler, max_inducing_points=cap)
        noise, generator = self.noise.clone(), torch.Generator().manual_seed(0)
        noise[7] = 1e-310
        for call in (sampler, sampler.draw):
            with pytest.raises((NanError, LinAlgError), match="noise variances"):
                call(self.kernel, self.X, noise, generator=generator)

    def test_all_points(self):
        """Duplicates aside, all points explain everything."""
        drawn = self.draw(replace(self.sampler, tolerance=1e-12))
        assert drawn.certificate.lambda_max <= 1e-5
        assert len(drawn.index) <= 600

    def test_ends_where_only_rounding_is_left(self, monkeypatch):
        """Residuals that are rounding exceed any tolerance, and no point is left.

        Of forty points under a linear kernel one is the origin, without any variance;
        the others are inducing points, all of them, from the start.
        """
        X = torch.rand(40, 3, generator=torch.Generator().manual_seed(0)).double()
        X[0] = 0
        calls, extend = [], certified_sampler.weighted_sample

        def spy(index: torch.Tensor, *args: Any) -> torch.Tensor:
            calls.append(len(index))
            assert len(calls) < 10, "it never ends"
            return extend(index, *args)

        monkeypatch.setattr(certified_sampler, "weighted_sample", spy)
        drawn = CertifiedSampler().draw(
            LinearKernel().double(),
            X,
            torch.full((40,), 1e-40, dtype=torch.float64),
            generator=torch.Generator().manual_seed(0),
        )
        assert calls == [0, 39]  # the second time nothing was added
        assert not drawn.is_certified and 0 not in drawn.index.tolist()

    def test_float32_counts_in_float64(self):
        sampler, g = self.sampler, torch.Generator().manual_seed(0)
        drawn = sampler.draw(
            rbf(0.3, dtype=torch.float32),
            self.X.float(),
            self.noise.float(),
            generator=g,
        )
        assert drawn.is_certified
        assert largest_gap(self.K, drawn.index, self.noise) <= 1.0
