"""CoCoOp: a learned context that a small network shifts for each image."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import relu

from promptcal.config import register
from promptcal.learners.contract import Learner
from promptcal.learners.coop import context_start
from promptcal.models.clip import FrozenClip
from promptcal.models.layers import seeded_linear
from promptcal.types import Prompts


@register("learner", "cocoop")
class CoCoOp(Learner):
    """Context v_m + π(f) for each image, π = W₂·relu(W₁ f + b₁) + b₂ the meta-net, f the normalised image feature.

    Every image has a text pass of its own over all classes. The hidden width is D // 16, D the joint embedding width.
    The meta-net starts as ``nn.Linear`` does, from the run's generator.

    Args:
        clip: the frozen model; widths and initial words come from it.
        generator: the random numbers of the initialisation.
        n_context: number of context tokens, where ``init`` is empty.
        init: words to start from.
        reduction: D over the hidden width of the meta-net.

    References:
        Zhou, Yang, Loy, Liu, "Conditional Prompt Learning for Vision-Language Models", CVPR 2022, arXiv 2203.05557.
        Deviation: float32 throughout, where the released code keeps the meta-net in float16.
    """

    learns_text = True
    reads_image = True
    per_image = True

    def __init__(
        self,
        clip: FrozenClip,
        generator: torch.Generator | None = None,
        n_context: int = 4,
        init: str = "a photo of a",
        reduction: int = 16,
    ) -> None:
        super().__init__()
        self.context = nn.Parameter(context_start(clip, n_context, init, generator))
        hidden = max(1, clip.embed_dim // reduction)
        self.meta_net = nn.ModuleDict(
            {
                "linear1": seeded_linear(clip.embed_dim, hidden, generator),
                "linear2": seeded_linear(hidden, clip.text_width, generator),
            }
        )

    def forward(
        self, image_features: Float[Tensor, "b D"] | None, class_features: Float[Tensor, "C D"] | None = None
    ) -> Prompts:
        """The contexts of the images of a batch [b, 1, 1, n, d]."""
        del class_features
        if image_features is None:
            raise ValueError("CoCoOp reads image features and was given none.")
        shift = self.meta_net["linear2"](relu(self.meta_net["linear1"](image_features)))
        return Prompts(text=(self.context + shift[:, None])[:, None, None])
