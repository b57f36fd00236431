"""FLSD-53: focal loss with a sample-dependent exponent."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.losses.focal import focal_rows, require_gamma, true_log_probs
from promptcal.losses.reading import log_probabilities
from promptcal.types import Outputs


@register("loss", "flsd53")
@dataclass(frozen=True)
class FLSD53:
    """L = −mean_i (1 − p_iy)^γ_i log p_iy with γ_i = 5 where p_iy < 0.2, else 3; no gradient through the choice.

    Args:
        weight: weight of the term.
        gamma_low: γ below the threshold.
        gamma: γ from the threshold on.
        threshold: of p_iy.

    Raises:
        ConfigError: a γ below 0.

    References:
        Mukhoti, Kulharia, Sanyal, Golodetz, Torr, Dokania, "Calibrating Deep Neural Networks using Focal Loss",
        NeurIPS 2020, arXiv 2002.09437. Deviation: the mean over the batch, where the authors' code takes the sum.
        CalAttn's code has another loss of this name, one γ for all samples that stays at 5: ``focal`` with gamma=5.
    """

    weight: float = 1.0
    gamma_low: float = 5.0
    gamma: float = 3.0
    threshold: float = 0.2
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = True
    of_text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_gamma(self.gamma_low)
        require_gamma(self.gamma)

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch."""
        log_probs = log_probabilities(outputs)
        likely = true_log_probs(log_probs, labels).detach().exp()
        low, high = likely.new_tensor(self.gamma_low), likely.new_tensor(self.gamma)
        return focal_rows(log_probs, labels, torch.where(likely < self.threshold, low, high)).mean()
