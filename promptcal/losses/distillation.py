"""Distillation from the frozen model: the general direction of ProGrad."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax, softmax

from promptcal.config import register
from promptcal.precision import wide
from promptcal.types import Outputs


@register("loss", "distillation")
@dataclass(frozen=True)
class Distillation:
    """L = −T²·mean_i Σ_c softmax(z⁰_i / T)_c · log softmax(z_i / T)_c, in nats; z⁰ are the frozen model's logits.

    The frozen texts are those the recipe refers to. The gradient is that of T²·KL(p⁰ ‖ p); the value is larger by the
    entropy of p⁰.

    Args:
        weight: of the term.
        temperature: T.

    References:
        Zhu, Niu, Han, Wu, Zhang, "Prompt-aligned Gradient for Prompt Tuning", ICCV 2023, arXiv 2205.14865: T = 1, and
        as in the released code the cross-entropy to the teacher.
    """

    weight: float = 1.0
    temperature: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"zero_shot_logits"})
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = False

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch; the labels are not read."""
        del labels
        teacher = softmax(wide(outputs.reference_logits).detach() / self.temperature, dim=1)
        student = log_softmax(wide(outputs.logits) / self.temperature, dim=1)
        return -(self.temperature**2) * (teacher * student).sum(dim=1).mean()
