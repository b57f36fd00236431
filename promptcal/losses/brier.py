"""The Brier score as a loss."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from promptcal.config import register
from promptcal.losses.reading import log_probabilities
from promptcal.types import Outputs


@register("loss", "brier")
@dataclass(frozen=True)
class Brier:
    """L = mean_i Σ_c (p_ic − [c = y_i])², in [0, 2], with p the softmax of the calibrated logits.

    References:
        Brier, "Verification of Forecasts Expressed in Terms of Probability", Monthly Weather Review 1950; the sum over
        classes and the mean over samples, as in the code of Mukhoti et al., NeurIPS 2020, arXiv 2002.09437.
    """

    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = True
    of_text: ClassVar[bool] = False

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch."""
        return brier_rows(log_probabilities(outputs), labels).mean()


def brier_rows(log_probs: Float[Tensor, "b C"], labels: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
    """Σ_c (p_c − [c = y])² of each row."""
    return (log_probs.exp() - one_hot(labels, log_probs.shape[1])).square().sum(dim=1)
