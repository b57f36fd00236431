"""Cross-entropy of the calibrated logits."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from promptcal.config import register
from promptcal.precision import wide
from promptcal.types import Outputs


@register("loss", "cross_entropy")
@dataclass(frozen=True)
class CrossEntropy:
    """L = −mean_i log softmax(z_i / s_i)[y_i], in nats; s is the instance temperature, 1 without a head."""

    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = True
    of_text: ClassVar[bool] = False

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch."""
        return functional.cross_entropy(wide(outputs.calibrated_logits), labels)
