"""The knowledge term of KgCoOp: tuned class texts stay near the frozen ones."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.precision import wide
from promptcal.types import Outputs


@register("loss", "knowledge")
@dataclass(frozen=True)
class Knowledge:
    """L = 1 − mean_c cos(T_c, T⁰_c), which on unit vectors is ½·mean_c ‖T_c − T⁰_c‖².

    Where the text features depend on the image, the mean runs over images too.

    Args:
        weight: 8.0 in the paper.

    References:
        Yao, Zhang, Xu, "Visual-Language Prompt Tuning with Knowledge-guided Context Optimization", CVPR 2023,
        arXiv 2303.13283. The frozen texts T⁰ are those the recipe refers to (its key ``reference``), else those of the
        data card.
    """

    weight: float = 8.0
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = True

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value for the current class list; the labels are not read."""
        del labels
        reference = outputs.reference_text_features
        reference = outputs.require("zero_shot_text_features") if reference is None else reference
        cosine = (wide(outputs.require("text_features")) * wide(reference)).sum(dim=-1)
        return 1 - cosine.mean()
