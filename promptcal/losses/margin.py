"""The mean-variance margin of TCPT: margins wide on average and alike across samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.losses.reading import chosen_logits
from promptcal.types import Outputs


@register("loss", "margin_mean_variance")
@dataclass(frozen=True)
class MarginMeanVariance:
    """L = −α·mean_i m_i + β·var_i m_i with the margin m_i = z_{i,y} − max_{j≠y} z_{i,j}.

    z are the logits times the logit scale, not divided by a temperature. The variance is biased (divisor b), so it is
    0 for a batch of 1, and the term is then −α·m alone: methods trained with batches of 1 get no variance from it.

    Args:
        weight: weight of the whole term.
        alpha: weight of the mean margin; 0.1 in the authors' code, for logits times 100.
        beta: weight of the variance; 0.01 there.
        rescale: for a model whose logit scale s is not 100, use α·(100/s) and β·(100/s)², which weighs margins in
            cosine units as the authors' code does. Off by default: then the published constants are taken as they are.
        reads: ``logits``, or ``calibrated_logits`` for those divided by the instance temperature.

    Raises:
        ConfigError: a single class, which has no runner-up.

    References:
        Sharifdeen et al. (TCPT), CVPR 2026, arXiv 2602.19024; α and β stand as literals in the released trainers.
    """

    weight: float = 1.0
    alpha: float = 0.1
    beta: float = 0.01
    rescale: bool = False
    reads: str = "logits"
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = False

    @staticmethod
    def remarks(settings: Mapping[str, Any], batch_size: int) -> list[str]:
        """What the reader of a report must know of batches of 1."""
        del settings
        return ["batches of 1 have no margin variance: the margin term is its mean alone."] if batch_size == 1 else []

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value over the batch."""
        margins = margin(chosen_logits(outputs, self.reads, rescale=self.rescale), labels)
        return -self.alpha * margins.mean() + self.beta * margins.var(correction=0)


def margin(logits: Float[Tensor, "b C"], labels: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
    """True logit minus the best other, [b]; negative where the sample is misclassified."""
    if logits.shape[1] < 2:
        raise ConfigError("the margin needs at least two classes: a single class has no runner-up.")
    true = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], float("-inf"))
    return true - others.amax(dim=1)
