"""ProDA's semantic orthogonality: prompts without a class name point in different directions."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.precision import wide
from promptcal.types import Outputs


@register("loss", "proda_orthogonality")
@dataclass(frozen=True)
class ProdaOrthogonality:
    """L = mean over p ≠ q of |cos(g_p, g_q)|, g_p the text feature of prompt p without any class name.

    Args:
        weight: 0.1 in the released code.

    Raises:
        ConfigError: a single prompt, which has no other to be orthogonal to.

    References:
        Lu, Liu, Zhang, Liu, Tian, "Prompt Distribution Learning", CVPR 2022, arXiv 2205.03340.
    """

    weight: float = 0.1
    needs: ClassVar[frozenset[str]] = frozenset({"nameless_features"})
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = True

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value for the current prompts; the labels are not read."""
        del labels
        features = wide(outputs.require("nameless_features"))
        count = len(features)
        if count < 2:
            raise ConfigError("orthogonality needs at least two prompts; raise learner.n_prompts or leave it out.")
        cosine = (features @ features.T).abs()
        return (cosine.sum() - cosine.diagonal().sum()) / (count * (count - 1))
