"""MaPLe: deep text prompts, and image prompts that are linear maps of them."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.config import register
from promptcal.learners.contract import Learner
from promptcal.learners.deep import deep_image, deep_text, deep_tokens, first_words, require_at_least_one
from promptcal.models.clip import FrozenClip
from promptcal.models.layers import seeded_linear
from promptcal.types import Prompts


@register("learner", "maple")
class MaPLe(Learner):
    """Multi-modal prompts: n tokens at the input and before each of the first J blocks, coupled across the towers.

    Text: the first n words of ``init`` become the context and the rest stays fixed, so that ``a photo of a`` with n = 2
    gives [ctx, ctx] "of a NAME."; before block i = 1 … J−1 tokens P_i, N(0, 0.02²), replace the context. Image:
    F(ctx) is appended after CLS and patches, and F_i(P_i) replaces it before block i; F maps the text width to the
    image width, and the J − 1 maps F_i start as copies of one. Blocks from J on propagate what is there.

    Args:
        clip: the frozen model; its image tower must have tokens. J is at most the depth of either tower.
        generator: the random numbers of the initialisation.
        n_context: n.
        depth: J, 9 for base-to-novel and 3 for cross-dataset in the paper.
        init: words to start from and to keep; empty = N(0, 0.02²) and no fixed words.

    Raises:
        ConfigError: an image tower without tokens, a depth below 1, or one of the first n words that is no single
            token.

    References:
        Khattak, Rasheed, Maaz, Khan, Khan, "MaPLe: Multi-modal Prompt Learning", CVPR 2023, arXiv 2210.03117.
        Deviation: float32 throughout, where the released code rounds prompts to float16; widths are the model's.
    """

    learns_text = True
    prompts_image = True

    def __init__(
        self,
        clip: FrozenClip,
        generator: torch.Generator | None = None,
        n_context: int = 2,
        depth: int = 9,
        init: str = "a photo of a",
    ) -> None:
        super().__init__()
        clip.require_image_tokens()
        require_at_least_one(n_context=n_context, depth=depth)
        depth = min(depth, clip.text_layers, clip.image_layers)
        context, self.tail = first_words(clip, n_context, init, generator)
        self.context = nn.Parameter(context)
        self.projection = seeded_linear(clip.text_width, clip.image_width, generator)
        self.deep_text = deep_tokens(depth, n_context, clip.text_width, generator)
        first = seeded_linear(clip.text_width, clip.image_width, generator)
        self.deep_projections = nn.ModuleList(copy.deepcopy(first) for _ in range(1, depth))

    def forward(
        self, image_features: Float[Tensor, "b D"] | None, class_features: Float[Tensor, "C D"] | None = None
    ) -> Prompts:
        """The same prompts for every image."""
        del image_features, class_features
        return Prompts(
            text=self.context[None, None, None],
            text_deep=deep_text(self.deep_text),
            image=self.projection(self.context)[None],
            image_deep=deep_image(
                projection(tokens) for projection, tokens in zip(self.deep_projections, self.deep_text, strict=True)
            ),
            tail=self.tail,
        )
