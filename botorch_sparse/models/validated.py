"""Checks at the doors of a sparse model that are used after it was built."""

from typing import Any

from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from botorch.models.utils.assorted import fantasize as fantasize_flag
from torch import Tensor, nan


class ValidatedMixin:
    """Says what is wrong with inputs and observations before GPyTorch fails at them.

    Only shapes are looked at where points are predicted, and values of new observations
    only on the CPU: a look would wait for the device. NaN inputs give NaN at those
    points, as in `SingleTaskGP`, and NaN observations everywhere.
    """

    training: bool
    _inputs: Any
    _targets: Any
    _input_dimension: int | None

    def _validate_call(self, *args: Any) -> None:
        """Check what `__call__` gets, transformed inputs.

        Raises:
            BotorchTensorDimensionError: If the inputs have another dimension than the
                training inputs, or these another length than the training targets.
        """
        d = self._input_dimension
        if not args or d is None or self._targets is None:
            return
        rows = (
            self._inputs[0] if isinstance(self._inputs, tuple | list) else self._inputs
        )
        n, num_targets = rows.shape[-2], self._targets.shape[-1]
        if n != num_targets and not hasattr(self, "input_transform"):
            raise BotorchTensorDimensionError(
                f"The model has {n} training inputs and {num_targets} training targets;"
                " they must be as many. Pass both to set_train_data."
            )
        if not self.training:
            _validate_dimension(args[0], d)

    def _validate_points(self, X: Tensor) -> None:
        """Check what `remember` gets.

        Raises:
            BotorchTensorDimensionError: If it is not a matrix.
        """
        if X.dim() != 2:
            raise BotorchTensorDimensionError(
                f"Got points of shape {tuple(X.shape)}; need `r x d`, without a batch."
            )

    def _validate_new_data(self, X: Tensor, Y: Tensor) -> None:
        """Check what `get_fantasy_model` gets, transformed inputs and outcomes.

        Raises:
            BotorchTensorDimensionError: If the shapes do not fit.
            InputDataError: If observations (not fantasies) on the CPU are not finite.
        """
        if self._input_dimension is not None:
            _validate_dimension(X, self._input_dimension)
        if Y.dim() == 0 or X.dim() < 2 or X.shape[-2] != Y.shape[-1]:
            raise BotorchTensorDimensionError(
                f"Got new inputs of shape {tuple(X.shape)} and observations of shape "
                f"{tuple(Y.shape)} (several outputs first, points last); they need as "
                "many points."
            )
        is_seen = fantasize_flag.off() and X.device.type == "cpu"
        if is_seen and not (X.isfinite().all() and Y.isfinite().all()):
            raise InputDataError(
                "Got new observations with NaN or infinity; all inputs and "
                "observations must be finite. Leave out the rows concerned."
            )

    def _checked_noise(self, noise: Tensor) -> Tensor:
        """The noise variances of new observations.

        On a device, where a look is a wait, negative ones become NaN.

        Raises:
            InputDataError: If one on the CPU is negative or not finite.
        """
        if noise.device.type != "cpu":
            return noise.where(noise >= 0, nan)
        if not ((noise >= 0) & noise.isfinite()).all():
            raise InputDataError(
                f"Got noise from {noise.min().item():.3g} to {noise.max().item():.3g} "
                "for new observations; variances must be finite and at least 0."
            )
        return noise


def _validate_dimension(X: Tensor, d: int) -> None:
    if X.dim() == 1 and d == 1:
        return  # GPyTorch reads it as n x 1
    if X.dim() < 2 or X.shape[-1] != d:
        raise BotorchTensorDimensionError(
            f"Got inputs of shape {tuple(X.shape)} for a model of inputs of dimension "
            f"{d} (after the input transform); need `batch_shape x q x {d}`."
        )
