"""The Monte Carlo upper confidence bound of a block, pending points hallucinated."""

from botorch.acquisition import AcquisitionFunction, qUpperConfidenceBound
from botorch.acquisition.objective import MCAcquisitionObjective, PosteriorTransform
from botorch.models.model import Model
from botorch.sampling.base import MCSampler
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import validate_beta
from botorch_sparse.acquisition.frozen import FrozenPosterior, freeze
from botorch_sparse.acquisition.frozen.model_space import validate_batch, validate_model
from botorch_sparse.argument_checks import check_tensors


class qBatchUpperConfidenceBound(qUpperConfidenceBound):
    r"""qUCB of q points at once, given points that are pending.

    .. math:: E \max_j \big(\mu_j + |\tilde Y_j - \mu_j|\big), \qquad
        \tilde Y \sim N(\mu_{fb}, \tfrac{\beta\pi}{2} \Sigma_t)

    Points to choose enter by their joint covariance, as in `qUpperConfidenceBound`;
    pending ones shrink it, mean frozen, instead of joining the maximum. There they
    would be counted as if they were still to be chosen, with the value of the best.

    With outcome constraints use another one, such as `qLogNoisyExpectedImprovement`:
    the objective of BoTorch's input constructor jumps by the cost of an infeasible
    point at the boundary, the bound takes the jump for hope, and all points go there.

    The mean is frozen in the space of transformed outcomes. The model is read once,
    when the acquisition function is built.

    Args:
        model: `SparseSingleTaskGP`, or an exact GP such as `SingleTaskGP`.
        beta: As in `BatchUpperConfidenceBound`.
        sampler: As in `qUpperConfidenceBound`.
        objective: As in `qUpperConfidenceBound`.
        posterior_transform: As in `qUpperConfidenceBound`.
        X_pending: `j x d` points whose evaluations are still to come, or None.
    """

    def __init__(
        self,
        model: Model,
        beta: float,
        sampler: MCSampler | None = None,
        objective: MCAcquisitionObjective | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        validate_model(model)
        validate_beta(beta)
        super().__init__(
            model, beta, sampler, objective, posterior_transform, X_pending
        )

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Take other points as pending, `j x d`; those pending already cost nothing."""
        frozen: FrozenPosterior | None = getattr(self, "frozen", None)
        if frozen is None:
            frozen = freeze(self.model)
        if X_pending is not None:
            check_tensors(X_pending=X_pending)
            validate_batch(X_pending, frozen.X_batch.shape[-1])
        AcquisitionFunction.set_X_pending(self, X_pending)
        self.frozen = frozen.with_batch(self.X_pending)

    @t_batch_mode_transform()
    def forward(self, X: Tensor) -> Tensor:
        """The bound of each block.

        Args:
            X: A `batch_shape x q x d` tensor.

        Returns:
            A `batch_shape` tensor.
        """
        check_tensors(X=X)
        values = self._non_reduced_forward(X)
        return self._sample_reduction(self._q_reduction(values))

    def _get_samples_and_objectives(self, X: Tensor) -> tuple[Tensor, Tensor]:
        posterior = self.frozen.posterior(X, self.posterior_transform)
        samples = self.get_posterior_samples(posterior)
        return samples, self.objective(samples=samples, X=X)
