r"""Leave-one-out predictions of a Nystrom posterior, without refits.

With :math:`v_i = w(x_i)^\top w(x_i)`, the leverage :math:`h_i = v_i / d_i` and
:math:`e_i = y_i - c(x_i)`, the posterior of all observations but the `i`-th, with the
same hyperparameters and inducing points, has

.. math::
    \mu_{-i} = c(x_i) + \frac{w(x_i)^\top a - h_i e_i}{1 - h_i}, \qquad
    \sigma^2_{-i} = r(x_i, x_i) + \frac{v_i}{1 - h_i},

since leaving out is a rank-one update of `B` downwards. With
:math:`s_i = \phi(x_i)^\top B_{-i}^{-1} \phi(x_i)` it is

.. math:: 1 - h_i = \frac{d_i}{d_i + s_i} \geq \frac{d_i}{d_i + |\phi(x_i)|^2},

for the eigenvalues of :math:`B_{-i}` are at least one. A difference that rounds to
less is set to the bound, at which the variance is the prior's. Where :math:`1 - h_i`
is below the rounding of :math:`h_i` the posterior does not tell what the others say of
`x_i`, and the prior predicts. With :math:`u = B^{-1} \phi(x_i)`, and
:math:`|\Delta B_{jk}| \leq m \epsilon \sqrt{B_{jj} B_{kk}}` for the backward error of a
Cholesky factor, that rounding is

.. math:: |u^\top \Delta B \, u| / d_i
    \leq m \epsilon \Big(\sum_j \sqrt{B_{jj}} \, |u_j|\Big)^2 / d_i.
"""

import torch
from torch import Tensor

from botorch_sparse.argument_checks import check_kind, check_tensors
from botorch_sparse.posteriors.features import inner_rows
from botorch_sparse.posteriors.nystrom import Moments, NystromPosterior


def leave_one_out(
    posterior: NystromPosterior, X: Tensor, Y: Tensor, noise: Tensor
) -> Moments:
    """Mean and variance (without noise) at each point, given all other observations.

    The `posterior` is of all observations, those asked for among them. Moments are
    `batch_shape x n`, in the dtype of `Y`. Cost: O(n m^2) time, O(chunk_size m) memory.
    """
    check_kind("posterior", posterior, NystromPosterior, "a NystromPosterior")
    check_tensors(X=X, Y=Y, noise=noise)
    posterior = posterior.absorbed()
    dtype, size = posterior.inducing_points.dtype, posterior.chunk_size
    chunks = zip(
        X.to(dtype).split(size, dim=-2),
        Y.to(dtype).split(size, dim=-1),
        noise.to(dtype).split(size, dim=-1),
        strict=True,
    )
    parts = [_left_out(posterior, x, y, d) for x, y, d in chunks]
    return Moments(*(torch.cat(part, -1).to(Y) for part in zip(*parts, strict=True)))


def _left_out(posterior: NystromPosterior, x: Tensor, y: Tensor, d: Tensor) -> Moments:
    """The moments of some rows."""
    phi = posterior.features(x)
    w = posterior.whiten(phi)
    c, v, s_max = posterior.mean_module(x), w.square().sum(-1), phi.square().sum(-1)
    h = v / d
    rest = torch.maximum(1 - h, d / (d + s_max))
    shift = (inner_rows(w, posterior.weights) - h * (y - c)) / rest
    is_known = 1 - h > _rounding(posterior.chol_inner, w) / d
    return Moments(
        c + torch.where(is_known, shift, 0.0),
        posterior.residual(x, phi) + torch.where(is_known, v / rest, s_max),
    )


def _rounding(L_B: Tensor, w: Tensor) -> Tensor:
    """The rounding of `w(x)'w(x)`; row `j` of `L_B` has the norm `sqrt(B_jj)`."""
    u = torch.linalg.solve_triangular(L_B.mT, w.mT, upper=True)
    sums = (u.abs() * L_B.norm(dim=-1, keepdim=True)).sum(-2)
    return w.shape[-1] * torch.finfo(w.dtype).eps * sums.square()
