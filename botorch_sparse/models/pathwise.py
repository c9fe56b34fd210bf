r"""Sample paths of a sparse model by Matheron's rule, in O(m) features.

A draw `f` of the prior becomes a draw of the Nystrom posterior by an update at the
inducing points alone:

.. math::
    f(x) + \phi(x)^\top \big( z - L^{-1} (f - c)(S) \big), \qquad
    z = L_B^{-\top} (a + \varepsilon), \quad \varepsilon \sim N(0, I).

Its mean is :math:`c(x) + w(x)^\top a` and its covariance
:math:`r(x, x') + w(x)^\top w(x')`, exactly so for an exact draw of the prior; with
random features the features give the kernel of :math:`r`.

References:
    .. [Wilson2020]
        J. Wilson, V. Borovitskiy, A. Terenin, P. Mostowsky and M. Deisenroth.
        Efficiently sampling functions from Gaussian process posteriors. ICML 2020.
"""

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models.transforms.input import InputTransform
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths, MatheronPath
from botorch.sampling.pathwise.prior_samplers import TPathwisePriorSampler
from botorch.sampling.pathwise.update_strategies import GaussianUpdate, TPathwiseUpdate
from botorch.sampling.pathwise.utils import get_input_transform, get_output_transform
from botorch.utils.context_managers import delattr_ctx
from gpytorch.models import ExactGP
from torch import Size, Tensor

from botorch_sparse.models.sparse_gp import SparseGP
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.features import inner_rows
from botorch_sparse.private_names import GaussianLikelihoodBase


class NystromPath(SamplePath):
    r"""The function :math:`\phi(x)^\top v` of the Nystrom features.

    The weight `v` is `sample_shape x batch_shape x m`.
    """

    def __init__(
        self,
        posterior: NystromPosterior,
        weight: Tensor,
        input_transform: InputTransform | None = None,
    ) -> None:
        super().__init__()
        self.posterior = posterior
        self.register_buffer("weight", weight)
        self.input_transform = input_transform

    def forward(self, x: Tensor, **kwargs: object) -> Tensor:
        """Values at `x` (`batch_shape x q x d`), `sample_shape x batch_shape x q`."""
        phi = self.posterior.features(x.to(self.weight.dtype))
        return inner_rows(phi, self.weight).to(x.dtype)

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Nothing to set: the model is no ensemble."""


@DrawMatheronPaths.register(SparseGP)
def _draw_matheron_paths(
    model: SparseGP,
    *,
    sample_shape: Size,
    prior_sampler: TPathwisePriorSampler,
    update_strategy: TPathwiseUpdate,
) -> MatheronPath:
    """Paths of the posterior. Cost: O(n m^2) once, then O(m^3) for all paths.

    The model is then in eval mode: input transforms must not learn from paths.
    """
    model.eval().sparsify()
    if model.is_exact and not model.outlier_noise.any():
        return DrawMatheronPaths.dispatch(ExactGP)(
            model,
            sample_shape=sample_shape,
            prior_sampler=prior_sampler,
            update_strategy=update_strategy,
        )
    S = model.nystrom_posterior().inducing_points.to(model.train_targets.dtype)
    with delattr_ctx(model, "outcome_transform"):
        prior_paths = prior_sampler(model=model, sample_shape=sample_shape)
        values = prior_paths.forward(S)  # `forward` bypasses the input transform
        update_paths = update_strategy(model=model, sample_values=values)
    return MatheronPath(
        prior_paths=prior_paths,
        update_paths=update_paths,
        output_transform=get_output_transform(model),
    )


@GaussianUpdate.register(SparseGP, GaussianLikelihoodBase)
def _gaussian_update(
    model: SparseGP,
    likelihood: GaussianLikelihoodBase,
    *,
    sample_values: Tensor,
    **kwargs: object,
) -> SamplePath:
    """The update for values of the prior at the inducing points (`... x m`) alone."""
    if model.is_exact and not model.outlier_noise.any():
        update = GaussianUpdate.dispatch(ExactGP, GaussianLikelihoodBase)
        return update(model, likelihood, sample_values=sample_values, **kwargs)
    given = sorted(name for name, value in kwargs.items() if value is not None)
    if given:
        raise UnsupportedError(
            f"Got {', '.join(given)}; the paths of a sparse model are "
            "conditioned on its own data. Use model.condition_on_observations for more."
        )
    posterior = model.nystrom_posterior()
    if sample_values.shape[-1] != posterior.num_inducing:
        raise InputDataError(
            f"Got values at {sample_values.shape[-1]} points; need them at the "
            f"{posterior.num_inducing} points of model.nystrom_posterior() in their "
            "order. Use draw_matheron_paths."
        )
    weight = _update_weight(posterior, sample_values)
    return NystromPath(posterior, weight, get_input_transform(model))


def _update_weight(posterior: NystromPosterior, sample_values: Tensor) -> Tensor:
    """The vector :math:`z - L^{-1} (f - c)(S)`, `sample_shape x batch_shape x m`.

    As everywhere in pathwise sampling, `z` is drawn from PyTorch's global generator.
    """
    S, a = posterior.inducing_points, posterior.weights
    f = sample_values.to(S.dtype) - posterior.mean_module(S)
    if posterior.kept is not None:
        f = f * posterior.kept
    shape = torch.broadcast_shapes(f.shape, a.shape)
    z = _solve(posterior.chol_inner.mT, a + torch.randn(shape).to(a), upper=True)
    return z - _solve(posterior.chol_inducing, f, upper=False)


def _solve(L: Tensor, b: Tensor, *, upper: bool) -> Tensor:
    """Triangular solve for vectors `... x m`."""
    return torch.linalg.solve_triangular(L, b.unsqueeze(-1), upper=upper).squeeze(-1)
