"""Margin-based label smoothing: no logit falls further than a margin below the largest."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.losses.reading import chosen_logits
from promptcal.types import Outputs


@register("loss", "mbls")
@dataclass(frozen=True)
class MarginBasedLabelSmoothing:
    """L = mean_ic relu(max_k z_ik − z_ic − m), over samples and classes; the gradient flows through the maximum.

    The mean runs over classes too, so the term shrinks as their number grows. At a logit scale of 100, CLIP's logits
    span about 10 to 25, so a margin of 10 is seldom neutral there.

    Args:
        weight: 0.1 in the paper.
        margin: m ≥ 0; 10 in the paper (0 in the KgCoOp trainer of TCPT, arXiv 2602.19024).
        rescale: read the logits times 100/s at a logit scale s other than 100.
        reads: ``logits``, or ``calibrated_logits`` for those divided by the instance temperature.

    Raises:
        ConfigError: a margin below 0.

    References:
        Liu, Ben Ayed, Galdran, Dolz, "The Devil is in the Margin: Margin-based Label Smoothing for Network
        Calibration", CVPR 2022, arXiv 2111.15430.
    """

    weight: float = 0.1
    margin: float = 10.0
    rescale: bool = False
    reads: str = "logits"
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.margin >= 0:
            raise ConfigError(f"margin={self.margin} of MbLS must be at least 0.")

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over batch and classes; the labels are not read."""
        del labels
        logits = chosen_logits(outputs, self.reads, rescale=self.rescale)
        return (logits.amax(dim=1, keepdim=True) - logits - self.margin).relu().mean()
