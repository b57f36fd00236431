"""The alignment of every class text with its frozen one, the rival of matching their moments."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.losses.reading import tuned_texts
from promptcal.precision import wide
from promptcal.types import Outputs


@register("loss", "text_alignment")
@dataclass(frozen=True)
class TextAlignment:
    """L = mean_c ‖T_c − T⁰_c‖², of L2-normalised text features, tuned and frozen (the data set's templates).

    On unit vectors it is twice the knowledge term of KgCoOp. Where the text features depend on the image, the mean runs
    over images too.

    Args:
        weight: 5, the weight of the moment term it is compared with.

    References:
        The alternative to the moment term of Sharifdeen et al. (TCPT), CVPR 2026, arXiv 2602.19024.
    """

    weight: float = 5.0
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = True

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value for the current class list; the labels are not read."""
        del labels
        frozen = wide(outputs.require("zero_shot_text_features"))
        return (tuned_texts(outputs) - frozen).square().sum(dim=-1).mean()
