"""PromptSRC's consistency of image features."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.precision import wide
from promptcal.types import Outputs


@register("loss", "promptsrc_image")
@dataclass(frozen=True)
class PromptSrcImage:
    """L = mean_{i,d} |f_id − f⁰_id|: tuned image features stay near those of the frozen tower for the same view.

    Args:
        weight: 10 in the paper.

    References:
        Khattak, Wasim, Naseer, Khan, Yang, Khan, "Self-regulating Prompts: Foundational Model Adaptation without
        Forgetting", ICCV 2023, arXiv 2307.06948.
    """

    weight: float = 10.0
    needs: ClassVar[frozenset[str]] = frozenset({"zero_shot_logits"})
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = False

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch; the labels are not read."""
        del labels
        return (wide(outputs.image_features) - wide(outputs.require("zero_shot_image_features"))).abs().mean()
