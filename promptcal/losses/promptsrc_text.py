"""PromptSRC's consistency of text features."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.precision import wide
from promptcal.types import Outputs


@register("loss", "promptsrc_text")
@dataclass(frozen=True)
class PromptSrcText:
    """L = mean_{c,d} |T_cd − T⁰_cd|: tuned class texts stay near the frozen ones the recipe refers to.

    Where the text features depend on the image, the mean runs over images too.

    Args:
        weight: 25 in the paper.

    References:
        Khattak, Wasim, Naseer, Khan, Yang, Khan, "Self-regulating Prompts: Foundational Model Adaptation without
        Forgetting", ICCV 2023, arXiv 2307.06948.
    """

    weight: float = 25.0
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = True

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value for the current class list; the labels are not read."""
        del labels
        tuned, frozen = outputs.require("text_features"), outputs.require("reference_text_features")
        return (wide(tuned) - wide(frozen)).abs().mean()
