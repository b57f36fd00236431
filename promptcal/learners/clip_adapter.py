"""CLIP-Adapter: a small network mixes into the image features; no prompts, no learned text."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import relu

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.learners.contract import Learner
from promptcal.learners.deep import require_at_least_one
from promptcal.models.clip import FrozenClip
from promptcal.models.layers import seeded_linear


@register("learner", "clip_adapter")
class ClipAdapter(Learner):
    """f' = r·A(f) + (1 − r)·f with A(f) = relu(W₂·relu(W₁ f)), f the image feature before normalisation.

    W₁ maps D to D // 4 and W₂ back, without biases; both start as ``nn.Linear`` does. The classes are the frozen texts
    "a photo of a NAME." whatever the data set, as released. The image tower stays frozen, so its features are cached.

    Args:
        clip: the frozen model, of any kind.
        generator: the random numbers of the initialisation.
        ratio: r in [0, 1], the share of the adapter.
        reduction: D over the hidden width.
        templates: the texts of the classes; empty = those of the data set.

    Raises:
        ConfigError: a ratio outside [0, 1] or a reduction below 1.

    References:
        Gao, Geng, Zhang, Ma, Fang, Zhang, Li, Qiao, "CLIP-Adapter: Better Vision-Language Models with Feature
        Adapters", IJCV 2024, arXiv 2110.04544. The adapter of the image alone with r = 0.2, as in the authors' code;
        the paper also has one for the text and searches r for each data set.
    """

    def __init__(
        self,
        clip: FrozenClip,
        generator: torch.Generator | None = None,
        ratio: float = 0.2,
        reduction: int = 4,
        templates: Sequence[str] = ("a photo of a {}.",),
    ) -> None:
        super().__init__()
        require_at_least_one(reduction=reduction)
        if not 0 <= ratio <= 1:
            raise ConfigError(f"ratio is {ratio}; the share of the adapter lies in [0, 1].")
        self.ratio, self.templates = ratio, tuple(templates)
        hidden = max(1, clip.embed_dim // reduction)
        self.adapter = nn.ModuleDict(
            {
                "linear1": seeded_linear(clip.embed_dim, hidden, generator, bias=False),
                "linear2": seeded_linear(hidden, clip.embed_dim, generator, bias=False),
            }
        )

    def adapt_image(self, features: Float[Tensor, "b D"]) -> Float[Tensor, "b D"]:
        """The mixed features, before normalisation."""
        adapted = relu(self.adapter["linear2"](relu(self.adapter["linear1"](features))))
        return self.ratio * adapted + (1 - self.ratio) * features
