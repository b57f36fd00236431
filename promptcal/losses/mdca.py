"""MDCA: for every class, the difference between mean probability and frequency in a batch."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from promptcal.config import register
from promptcal.losses.reading import log_probabilities
from promptcal.types import Outputs


@register("loss", "mdca")
@dataclass(frozen=True)
class MDCA:
    """L = (1/C) Σ_c |mean_i p_ic − mean_i [y_i = c]|, with p the softmax of the calibrated logits.

    With more classes than samples most frequencies are 0, and the term shrinks as 1/C.

    Args:
        weight: β, 1 by default; the authors' configurations have 1, 5 and 10.

    References:
        Hebbalaguppe, Prakash, Madan, Arora, "A Stitch in Time Saves Nine: A Train-Time Regularizing Loss for Improved
        Neural Network Calibration", CVPR 2022, arXiv 2203.13834.
    """

    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = False

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value of the batch."""
        probs = log_probabilities(outputs).exp()
        return (probs - one_hot(labels, probs.shape[1])).mean(dim=0).abs().mean()
