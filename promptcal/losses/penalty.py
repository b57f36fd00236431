"""The zero-shot penalty: tuned logits stay in the range of the zero-shot ones."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.losses.reading import REFERENCE_SCALE, chosen_logits
from promptcal.precision import wide
from promptcal.types import Outputs


@register("loss", "zero_shot_penalty")
@dataclass(frozen=True)
class ZeroShotPenalty:
    """L = mean_ic relu(z_ic − max_k z⁰_ik) + mean_ic relu(min_k z⁰_ik − z_ic), z⁰ the zero-shot logits.

    Args:
        weight: 10 in the authors' code, for logits times 100.
        rescale: multiply by 100/s at a logit scale s other than 100.
        reads: ``logits``, or ``calibrated_logits`` for those divided by the instance temperature.

    References:
        Murugesan, Silva-Rodríguez, Ben Ayed, Dolz, "Robust Calibration of Large Vision-Language Adapters", ECCV 2024,
        arXiv 2407.13588. Deviation: active under autocast too, where the released code of prompt learning falls back to
        cross-entropy.
    """

    weight: float = 10.0
    rescale: bool = False
    reads: str = "logits"
    needs: ClassVar[frozenset[str]] = frozenset({"zero_shot_logits"})
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = False

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over batch and classes; the labels are not read."""
        del labels
        logits = chosen_logits(outputs, self.reads, rescale=self.rescale)
        frozen = wide(outputs.zero_shot_logits) * (REFERENCE_SCALE / outputs.logit_scale if self.rescale else 1.0)
        low, high = frozen.aminmax(dim=1, keepdim=True)
        return ((logits - high).relu() + (low - logits).relu()).mean()
