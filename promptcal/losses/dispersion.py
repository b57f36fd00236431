"""The text feature dispersion of C-TPT: class texts far from their mean are rewarded."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import normalize

from promptcal.config import register
from promptcal.losses.reading import tuned_texts
from promptcal.types import Outputs


@register("loss", "text_dispersion")
@dataclass(frozen=True)
class TextDispersion:
    """L = −mean_c ‖T_c − mean_k T_k‖, over the L2-normalised tuned text features of the classes.

    Where the text features depend on the image, the mean runs over images too.

    Args:
        weight: λ; 50 in the paper's fine-grained scripts and 20 for shifted ImageNets, both for tuning at test time.

    References:
        Yoon et al., "C-TPT: Calibrated Test-Time Prompt Tuning for Vision-Language Models via Text Feature Dispersion",
        ICLR 2024, arXiv 2403.14119, where it stands beside the entropy of one test image; here beside the loss of a
        training batch.
    """

    weight: float = 50.0
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = True

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value for the current class list; the labels are not read."""
        del labels
        text = normalize(tuned_texts(outputs), dim=-1)
        distances: Tensor = vector_norm(text - text.mean(dim=-2, keepdim=True), dim=-1)
        return -distances.mean()
