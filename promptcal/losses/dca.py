"""DCA: the difference between mean confidence and accuracy of a batch."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.losses.reading import log_probabilities
from promptcal.types import Outputs


@register("loss", "dca")
@dataclass(frozen=True)
class DCA:
    """L = |mean_i max_c p_ic − mean_i [argmax_c p_ic = y_i]|, with p the softmax of the calibrated logits.

    The accuracy has no gradient. A batch of 1 has an accuracy of 0 or 1.

    Args:
        weight: β, 1 by default; the paper tunes it.

    References:
        Liang, Zhang, Wang, Jacobs, "Improved Trainable Calibration Method for Neural Networks on Medical Imaging
        Classification", BMVC 2020, arXiv 2009.04057.
    """

    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = False

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value of the batch."""
        log_confidence, predicted = log_probabilities(outputs).max(dim=1)
        confidence = log_confidence.exp()
        return (confidence.mean() - (predicted == labels).to(confidence.dtype).mean()).abs()
