"""Focal calibration loss: focal loss with a squared Euclidean distance of the probabilities from the label."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.losses.brier import brier_rows
from promptcal.losses.focal import focal_rows, require_gamma
from promptcal.losses.reading import log_probabilities
from promptcal.types import Outputs


@register("loss", "fcl")
@dataclass(frozen=True)
class FocalCalibration:
    """L = mean_i [−(1 − p_iy)^γ log p_iy + λ·Σ_c (p_ic − [c = y_i])²], with p the softmax of the calibrated logits.

    Args:
        weight: weight of the whole term.
        gamma: γ ≥ 0 of the focal part.
        brier: λ of the Euclidean part.

    Raises:
        ConfigError: γ below 0.

    References:
        FCL, arXiv 2410.18321 (2024). The form is that of the abstract, a focal loss and a Euclidean calibration loss;
        γ = 3 is the focal loss's usual value and λ = 0.1 that of CalAttn (arXiv 2508.08547), neither of them read from
        the paper.
    """

    weight: float = 1.0
    gamma: float = 3.0
    brier: float = 0.1
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = True
    of_text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_gamma(self.gamma)

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch."""
        log_probs = log_probabilities(outputs)
        return (focal_rows(log_probs, labels, self.gamma) + self.brier * brier_rows(log_probs, labels)).mean()
