"""Cross-entropy with a little of the Brier score, the loss of CalAttn."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.losses.brier import brier_rows
from promptcal.losses.focal import true_log_probs
from promptcal.losses.reading import log_probabilities
from promptcal.types import Outputs


@register("loss", "ce_brier")
@dataclass(frozen=True)
class CrossEntropyBrier:
    """L = mean_i [−log p_iy + λ·Σ_c (p_ic − [c = y_i])²], with p the softmax of the calibrated logits.

    Args:
        weight: weight of the whole term.
        brier: λ, 0.1 in the paper.

    References:
        CalAttn, arXiv 2508.08547 (2025).
    """

    weight: float = 1.0
    brier: float = 0.1
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = True
    of_text: ClassVar[bool] = False

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch."""
        log_probs = log_probabilities(outputs)
        return (self.brier * brier_rows(log_probs, labels) - true_log_probs(log_probs, labels)).mean()
