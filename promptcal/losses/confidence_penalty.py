"""The confidence penalty: probabilities of low entropy cost."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.errors import ConfigError, unknown
from promptcal.losses.reading import log_probabilities
from promptcal.types import Outputs

AVERAGES = ("samples", "entries")


@register("loss", "confidence_penalty")
@dataclass(frozen=True)
class ConfidencePenalty:
    """L = −mean_i H(p_i) = mean_i Σ_c p_ic log p_ic, in nats, with p the softmax of the calibrated logits.

    Args:
        weight: β, 0.1.
        average: over ``samples``, or over all ``entries`` (samples times classes), as the code of MbLS (arXiv
            2111.15430) does, so that the term shrinks as 1/C.

    Raises:
        ConfigError: another word in ``average``.

    References:
        Pereyra, Tucker, Chorowski, Kaiser, Hinton, "Regularizing Neural Networks by Penalizing Confident Output
        Distributions", ICLR 2017 workshop, arXiv 1701.06548.
    """

    weight: float = 0.1
    average: str = "samples"
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.average not in AVERAGES:
            raise ConfigError(unknown("average of the confidence penalty", self.average, AVERAGES))

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch; the labels are not read."""
        del labels
        log_probs = log_probabilities(outputs)
        terms = log_probs.exp() * log_probs
        return terms.mean() if self.average == "entries" else terms.sum(dim=1).mean()
