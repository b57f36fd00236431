"""Focal loss: cross-entropy that counts less where the true class is already likely."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.losses.reading import log_probabilities
from promptcal.types import Outputs


@register("loss", "focal")
@dataclass(frozen=True)
class Focal:
    """L = −mean_i (1 − p_iy)^γ log p_iy, with p the softmax of the calibrated logits; γ = 0 is cross-entropy.

    Args:
        weight: weight of the term.
        gamma: γ ≥ 0; 3 as in the calibration paper.

    Raises:
        ConfigError: γ below 0.

    References:
        Lin, Goyal, Girshick, He, Dollár, "Focal Loss for Dense Object Detection", ICCV 2017, arXiv 1708.02002; for
        calibration Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", NeurIPS 2020, arXiv 2002.09437.
        Deviation: the mean over the batch, where the latter's code takes the sum and clips the gradient's norm at 2.
    """

    weight: float = 1.0
    gamma: float = 3.0
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = True
    of_text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_gamma(self.gamma)

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch."""
        return focal_rows(log_probabilities(outputs), labels, self.gamma).mean()


def focal_rows(
    log_probs: Float[Tensor, "b C"], labels: Int[Tensor, " b"], gamma: float | Float[Tensor, " b"]
) -> Float[Tensor, " b"]:
    """−(1 − p_y)^γ log p_y of each row; finite with its gradient also where p_y rounds to 1."""
    return -(gamma * log_rest(log_probs, labels)).exp() * true_log_probs(log_probs, labels)


def true_log_probs(log_probs: Float[Tensor, "b C"], labels: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
    """The logarithm of p_y of each row."""
    return log_probs.gather(1, labels[:, None])[:, 0]


def log_rest(log_probs: Float[Tensor, "b C"], labels: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
    """The logarithm of 1 − p_y of each row, from the sum over the other classes: exact where p_y rounds to 1."""
    return log_probs.scatter(1, labels[:, None], float("-inf")).logsumexp(dim=1)


def require_gamma(gamma: float) -> None:
    """Refuse a focal exponent below zero.

    Raises:
        ConfigError: says the value.
    """
    if not gamma >= 0:
        raise ConfigError(f"gamma={gamma} must be at least 0; 0 is cross-entropy.")
