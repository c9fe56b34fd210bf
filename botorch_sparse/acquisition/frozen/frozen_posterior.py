r"""The posterior at the last feedback, and what pending points make of its variance.

With features :math:`\phi` (what data or inducing points explain of the prior) and
:math:`w` (what they leave open; none for the exact GP),

.. math::
    \mathrm{cov}_{fb}(x, x') = k(x, x') - \phi(x)^\top \phi(x') + w(x)^\top w(x'),
    \qquad
    \mathrm{var}_t(x) = \mathrm{var}_{fb}(x) - \textstyle\sum_j g_j(x)^2,

one row :math:`g_j` for each pending point. Pending points shrink the embedded part
:math:`w^\top w` of a Nystrom posterior alone, and all of the exact GP's variance.

All is in the model's transformed space. Tensors are `aug x N`, where `aug` is empty
for one output and the number of outputs else, and `N` counts points.

References:
    [Calandriello2020]_ Section 3 and Appendix B.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors import Posterior
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_sparse.acquisition.frozen.model_space import (
    pending_noise,
    raw_train_inputs,
    transformed_inputs,
    untransformed_posterior,
    validate_batch,
    validate_model,
    validate_noise,
    validate_width,
)


class Features(NamedTuple):
    """What a posterior knows of `N` points; all `aug x N x ...`."""

    Z: Tensor  # transformed inputs, `aug x N x d`
    prior_variance: Tensor  # k(x, x), `aug x N`
    phi: Tensor  # `aug x N x r`
    w: Tensor  # `aug x N x m`

    def row(self, index: int) -> Features:
        """The features of one of the points, the last for -1."""
        one = slice(index, index + 1 or None)
        return Features(
            self.Z[..., one, :],
            self.prior_variance[..., one],
            self.phi[..., one, :],
            self.w[..., one, :],
        )

    def append(self, other: Features) -> Features:
        """The features of these points and then of others."""
        dims = (-2, -1, -2, -2)
        pairs = zip(self, other, dims, strict=True)
        return Features(*(torch.cat([mine, more], dim) for mine, more, dim in pairs))


class FrozenPosterior(ABC):
    r"""A posterior with mean and inducing set frozen, and a batch of pending points.

    Build it with `freeze`. A view never changes: `add` and `with_batch` return new
    ones. It reads the model once, when it is built.

    Cost: O(m^2) to `add` a point (O(n^2) for the exact GP).

    Args:
        model: A fitted model.

    Attributes:
        X_batch: `s x d` pending points, as the user sees them.
        noise: `aug x s`, the noise variances :math:`d_s` of their evaluations.
        variance: `aug x s`, :math:`\mathrm{var}_{fb}(x_s)`.
        variance_before: `aug x s`, :math:`\mathrm{var}_{s-1}(x_s)`.
        lam: `aug`, the noise variance of an evaluation where no other is given.
    """

    def __init__(self, model: Model) -> None:
        validate_model(model)
        self.model: Any = model.eval()
        m = model.num_outputs
        self.aug_shape = torch.Size([m] if m > 1 else [])
        self.dtype = torch.float64

    @torch.no_grad()
    def _start(self) -> None:
        """Begin with no pending point; called once all else is set."""
        X = raw_train_inputs(self.model)
        self.lam = pending_noise(self.model).to(self.dtype)
        self.X_batch = X.new_empty(0, X.shape[-1])
        self.batch = self.features(self.X_batch)
        self.noise = self.variance = self.variance_before = self.batch.prior_variance
        self._empty: Any = self

    def with_batch(self, X: Tensor | None, noise: Tensor | None = None) -> Self:
        """This posterior with other pending points.

        Args:
            X: `s x d` points, or None. Points that are pending already, in the same
                order, are not worked on again.
            noise: As in `add`.
        """
        if X is None and noise is None:
            return self._empty
        X = self._empty.X_batch if X is None else X
        validate_batch(X, self._empty.X_batch.shape[-1])
        s = len(self.X_batch)
        is_longer = noise is None and 0 < s <= len(X)
        if is_longer and torch.equal(self.X_batch, X[:s].to(self.X_batch)):
            return self.add(X[s:])
        return self._empty.add(X, noise)

    @torch.no_grad()
    def add(self, X: Tensor, noise: Tensor | None = None) -> Self:
        """This posterior with more pending points.

        Args:
            X: `s x d` points.
            noise: `s` or `aug x s` noise variances of their evaluations, in the space
                of transformed outcomes, positive; the likelihood's by default
                (its mean where noise was given with the data).
        """
        f, view = self.features(X), self
        if noise is None:
            noise = self.lam.unsqueeze(-1)
        else:
            validate_noise(noise, len(X))
        noise = noise.to(f.Z).expand(*self.aug_shape, len(X))
        for i in range(len(X)):
            one = slice(i, i + 1)
            view = view._add_one(X[one], f.row(i), noise[..., one])
        return view

    def _add_one(self, X: Tensor, f: Features, noise: Tensor) -> Self:
        rows = self.reduction(f)
        residual, embedded = self.parts(f)
        left = (embedded - rows.square().sum(-1)).clamp_min(0.0)
        view = copy.copy(self)
        view.X_batch = torch.cat([self.X_batch, X.to(self.X_batch)])
        view.batch = self.batch.append(f)
        view.noise = torch.cat([self.noise, noise], -1)
        view.variance = torch.cat([self.variance, residual + embedded], -1)
        view.variance_before = torch.cat([self.variance_before, residual + left], -1)
        view._extend(f, noise, rows, left)
        return view

    @abstractmethod
    def _extend(
        self, f: Features, noise: Tensor, rows: Tensor, embedded: Tensor
    ) -> None:
        """Make one more point pending, whose embedded variance is left as given."""

    @abstractmethod
    def _features(self, Z: Tensor) -> Features:
        """Features of transformed inputs, `aug x N x d`."""

    @abstractmethod
    def mean(self, f: Features) -> Tensor:
        """The posterior mean at the last feedback, `aug x N`."""

    @abstractmethod
    def parts(self, f: Features) -> tuple[Tensor, Tensor]:
        """Variance that pending points leave alone, and that they shrink; `aug x N`."""

    @abstractmethod
    def prior_covariance(self, Z: Tensor, Z2: Tensor | None = None) -> Tensor:
        """The kernel between transformed inputs, `... x N x N2`."""

    @abstractmethod
    def covariances(self, f: Features, g: Features) -> tuple[Tensor, Tensor]:
        """Full and embedded ones of points with others, `aug x N x s` each."""

    @abstractmethod
    def reduction(self, f: Features) -> Tensor:
        """The rows `g_j(x)` by which pending points lower variances; `aug x N x j`."""

    @abstractmethod
    def last_reduction(self, f: Features, rows: Tensor) -> Tensor:
        """The row of the last pending point, given those before; `aug x N x 1`."""

    def features(self, X: Tensor) -> Features:
        """Features of `N x d` points as the user sees them. Cost: O(N m^2).

        Raises:
            BotorchTensorDimensionError: If the model has another number of features.
        """
        validate_width("points", X, self.X_batch.shape[-1])
        Z = transformed_inputs(self.model, X).to(self.dtype)
        return self._features(Z.expand(*self.aug_shape, *Z.shape))

    def initial_variance(self, f: Features) -> Tensor:
        r""":math:`\mathrm{var}_{fb}(x)`, `aug x N`."""
        residual, embedded = self.parts(f)
        return residual + embedded

    def present_variance(self, f: Features) -> Tensor:
        r""":math:`\mathrm{var}_t(x)`, with the pending points; `aug x N`."""
        residual, embedded = self.parts(f)
        return residual + (embedded - self.reduction(f).square().sum(-1)).clamp_min(0.0)

    def squared_sums(self, f: Features) -> tuple[Tensor, Tensor]:
        r"""Sums over the batch, :math:`1/d_s` times squared covariances; `aug x N`.

        Returns:
            The sum of full, and of embedded covariances.
        """
        weights = self.noise.reciprocal().unsqueeze(-1)
        both = self.covariances(f, self.batch)
        full, embedded = ((c.square() @ weights).squeeze(-1) for c in both)
        return full, embedded

    def posterior(
        self, X: Tensor, posterior_transform: PosteriorTransform | None = None
    ) -> Posterior:
        r"""The joint posterior, mean frozen, covariance conditioned on pending points.

        Args:
            X: A `batch_shape x q x d` tensor.
            posterior_transform: Applied after the outcome transform was undone.

        Returns:
            A posterior over `batch_shape x q x 1` (or the model's outputs). Cost:
            O(q m^2) for each of the batch's elements.
        """
        f = self.features(X.reshape(-1, X.shape[-1]))
        mean = self._blocks(self.mean(f).unsqueeze(-1), X).squeeze(-1)
        covariance = self._joint_covariance(f, X)
        return untransformed_posterior(
            self.model, mean, covariance, X, posterior_transform
        )

    def posterior_from_moments(
        self,
        X: Tensor,
        mean: Tensor,
        variance: Tensor,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """A posterior of points by themselves, from moments in the transformed space.

        Args:
            X: `N x d` points.
            mean: Their means, `aug x N`.
            variance: Their variances, `aug x N`.
            posterior_transform: Applied after the outcome transform was undone.

        Returns:
            A posterior over `N x 1 x 1` (or the model's outputs).
        """
        mean, variance = (v.movedim(-1, 0).unsqueeze(-1) for v in (mean, variance))
        return untransformed_posterior(
            self.model,
            mean,
            variance.unsqueeze(-1),
            X.unsqueeze(-2),
            posterior_transform,
        )

    def sequential_variance(self, f: Features, X: Tensor) -> Tensor:
        r"""Variances of a block's points, each with those before it pending too.

        With :math:`L L^\top = E + D`, `E` the embedded covariance of the block, that is
        :math:`r(x_j, x_j) + L_{jj}^2 - d_j`.

        Args:
            f: Features of the points, block after block.
            X: The points, `b x q x d`.

        Returns:
            A tensor `aug x (b q)`.
        """
        if X.shape[-2] == 1:
            return self.present_variance(f)
        E, d = self._embedded_blocks(f, X), self.lam.unsqueeze(-1)
        L = psd_safe_cholesky(E + torch.diag_embed(d.expand(E.shape[:-1])))
        left = L.diagonal(dim1=-2, dim2=-1).square() - d  # b x aug x q
        residual, embedded = self.parts(f)
        return residual + left.movedim(0, -2).reshape(embedded.shape).clamp_min(0.0)

    @abstractmethod
    def _embedded_blocks(self, f: Features, X: Tensor) -> Tensor:
        """Embedded covariances within each block, pending taken off."""

    def _joint_covariance(self, f: Features, X: Tensor) -> Tensor:
        """The covariance within each block, pending taken off; `... x aug x q x q`."""
        phi, w, g = (self._blocks(v, X) for v in (f.phi, f.w, self.reduction(f)))
        Z = self._blocks(f.Z, X)
        residual = self.prior_covariance(Z) - phi @ phi.mT
        below_zero = residual.diagonal(dim1=-2, dim2=-1).clamp_max(0.0)
        return residual - torch.diag_embed(below_zero) + w @ w.mT - g @ g.mT

    def _blocks(self, values: Tensor, X: Tensor) -> Tensor:
        """`aug x N x c` values as `batch_shape x aug x q x c`."""
        dims = X.dim() - 2
        shaped = values.reshape(*self.aug_shape, *X.shape[:-1], values.shape[-1])
        return shaped.movedim(0, dims) if self.aug_shape else shaped
