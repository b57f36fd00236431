"""PromptSRC's consistency of logits."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from promptcal.config import register
from promptcal.precision import wide
from promptcal.types import Outputs


@register("loss", "promptsrc_logits")
@dataclass(frozen=True)
class PromptSrcLogits:
    """L = 1/(b·C) · Σ_i KL(softmax z⁰_i ‖ softmax z_i), in nats; z⁰ are the frozen model's logits.

    The frozen texts are those the recipe refers to. The divisor b·C, not b, is that of the released code.

    Args:
        weight: 1 in the paper.

    References:
        Khattak, Wasim, Naseer, Khan, Yang, Khan, "Self-regulating Prompts: Foundational Model Adaptation without
        Forgetting", ICCV 2023, arXiv 2307.06948.
    """

    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"zero_shot_logits"})
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = False

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over images and classes; the labels are not read."""
        del labels
        tuned = log_softmax(wide(outputs.logits), dim=1)
        frozen = log_softmax(wide(outputs.reference_logits).detach(), dim=1)
        return kl_div(tuned, frozen, reduction="sum", log_target=True) / tuned.numel()
