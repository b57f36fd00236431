"""ZS-Norm: cross-entropy of logits squeezed into the range of the zero-shot logits."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from promptcal.config import register
from promptcal.errors import NumericalError
from promptcal.losses.reading import chosen_logits
from promptcal.precision import wide
from promptcal.types import Outputs


@register("loss", "zs_norm")
@dataclass(frozen=True)
class ZeroShotNorm:
    """L = CE(z', y) with z' = (z − min z)/(max z − min z)·(max z⁰ − min z⁰) + min z⁰ in each row.

    z are the tuned and z⁰ the zero-shot logits of the same image and classes; gradients pass through min z and max z.
    The prediction uses z as it is. The map takes out any factor of z, so an instance temperature does nothing here.

    Raises:
        NumericalError: a row of equal logits, which has no range.

    References:
        Murugesan, Silva-Rodríguez, Ben Ayed, Dolz, "Robust Calibration of Large Vision-Language Adapters", ECCV 2024,
        arXiv 2407.13588. Deviation: active under autocast too, where the released code falls back to cross-entropy.
    """

    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"zero_shot_logits"})
    replaces_cross_entropy: ClassVar[bool] = True
    of_text: ClassVar[bool] = False

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch."""
        logits = chosen_logits(outputs, "logits", rescale=False)
        low, high = logits.aminmax(dim=1, keepdim=True)
        if bool((high <= low).any()):
            row = int((high <= low).int().argmax())
            raise NumericalError(f"all logits of row {row} are equal, so ZS-Norm has no range to normalise by.")
        frozen_low, frozen_high = wide(outputs.zero_shot_logits).aminmax(dim=1, keepdim=True)
        squeezed = (logits - low) / (high - low) * (frozen_high - frozen_low) + frozen_low
        return cross_entropy(squeezed, labels)
