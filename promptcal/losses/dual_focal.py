"""Dual focal loss: the focal factor also sees the class that ranks just below the true one."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.errors import ConfigError, unknown
from promptcal.losses.focal import focal_rows, log_rest, require_gamma, true_log_probs
from promptcal.losses.reading import log_probabilities
from promptcal.types import Outputs

FORMS = ("dual", "two_terms")


@register("loss", "dual_focal")
@dataclass(frozen=True)
class DualFocal:
    """L = −mean_i (1 − p_y + p_j)^γ log p_y, p_j the largest probability strictly below p_y (0 where there is none).

    The gradient flows through p_j.

    Args:
        weight: weight of the term.
        gamma: γ ≥ 0; 5 by default. The paper tunes it on validation images for each data set and network.
        form: ``dual`` as above; ``two_terms`` for −(1 − p_y)^γ log p_y − p_j^γ log(1 − p_j) with p_j the largest
            probability of another class, which CalAttn's code (arXiv 2508.08547, γ = 2) calls by the same name.

    Raises:
        ConfigError: γ below 0, or an unknown form.

    References:
        Tao, Dong, Xu, "Dual Focal Loss for Calibration", ICML 2023, arXiv 2305.13665. Deviation: the mean over the
        batch, where the authors' code takes the sum and fails on a batch of 1.
    """

    weight: float = 1.0
    gamma: float = 5.0
    form: str = "dual"
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = True
    of_text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_gamma(self.gamma)
        if self.form not in FORMS:
            raise ConfigError(unknown("form of the dual focal loss", self.form, FORMS))

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch."""
        log_probs = log_probabilities(outputs)
        rows = self._dual(log_probs, labels) if self.form == "dual" else self._two_terms(log_probs, labels)
        return rows.mean()

    def _dual(self, log_probs: Float[Tensor, "b C"], labels: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        true = true_log_probs(log_probs, labels)
        below = log_probs.masked_fill(log_probs >= true[:, None], float("-inf")).amax(dim=1)
        return -(self.gamma * torch.logaddexp(log_rest(log_probs, labels), below)).exp() * true

    def _two_terms(self, log_probs: Float[Tensor, "b C"], labels: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        other, index = log_probs.scatter(1, labels[:, None], float("-inf")).max(dim=1)
        competitor = (self.gamma * other).exp() * log_rest(log_probs, index)
        return focal_rows(log_probs, labels, self.gamma) - competitor
