"""Cross-entropy to smoothed labels."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from promptcal.config import register
from promptcal.errors import ConfigError, unknown
from promptcal.losses.reading import log_probabilities
from promptcal.types import Outputs

SPREADS = ("all", "others")


@register("loss", "label_smoothing")
@dataclass(frozen=True)
class LabelSmoothing:
    """L = −mean_i Σ_c q_ic log p_ic with q = (1 − ε)·onehot(y) + ε/C, p the softmax of the calibrated logits.

    Args:
        weight: weight of the term.
        epsilon: ε in [0, 1).
        spread: ``all``: ε/C to every class, the true one included, as torch does; ``others``: 1 − ε to the true class
            and ε/(C − 1) to each other one, as MDCA's code does, which is ``all`` with ε·C/(C − 1).

    Raises:
        ConfigError: ε outside [0, 1), or an unknown spread.

    References:
        Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016, arXiv 1512.00567;
        ε = 0.05 as in Mukhoti et al., NeurIPS 2020, arXiv 2002.09437.
    """

    weight: float = 1.0
    epsilon: float = 0.05
    spread: str = "all"
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = True
    of_text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < 1:
            raise ConfigError(f"epsilon={self.epsilon} of label smoothing must be in [0, 1).")
        if self.spread not in SPREADS:
            raise ConfigError(unknown("spread of label smoothing", self.spread, SPREADS))

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch."""
        log_probs = log_probabilities(outputs)
        classes = log_probs.shape[1]
        epsilon = self.epsilon if self.spread == "all" else self.epsilon * classes / (classes - 1)
        uniform = -log_probs.mean(dim=1).mean()
        return (1 - epsilon) * cross_entropy(log_probs, labels) + epsilon * uniform
