"""MaPLe: deep text prompts, and image prompts that are linear maps of them."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.learners.cocoop import seeded_linear
from promptcal.learners.contract import Learner
from promptcal.models.clip import FrozenClip
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
        if depth < 1 or n_context < 1:
            raise ConfigError(f"MaPLe needs depth and n_context of at least 1, not {depth} and {n_context}.")
        self.depth = min(depth, clip.text_layers, clip.image_layers)
        words = init.split()
        start, self.tail = self._start(clip, words, n_context, generator)
        self.context = nn.Parameter(start)
        self.projection = seeded_linear(clip.text_width, clip.image_width, generator)
        self.deep_text = nn.ParameterList(
            nn.Parameter(0.02 * torch.randn(n_context, clip.text_width, generator=generator))
            for _ in range(1, self.depth)
        )
        first = seeded_linear(clip.text_width, clip.image_width, generator)
        self.deep_projections = nn.ModuleList(copy.deepcopy(first) for _ in range(1, self.depth))

    @staticmethod
    def _start(
        clip: FrozenClip, words: list[str], n_context: int, generator: torch.Generator | None
    ) -> tuple[Float[Tensor, "n d"], str]:
        """The first context and the fixed words that carry the name."""
        if not words:
            return 0.02 * torch.randn(n_context, clip.text_width, generator=generator), "{}."
        learned = " ".join(words[:n_context])
        context = clip.embed_words(learned).float()
        if len(words) < n_context or len(context) != n_context:
            raise ConfigError(
                f"MaPLe starts {n_context} tokens from '{learned}', which is {len(context)}; choose init and n_context "
                f"so that the first n_context words are one token each."
            )
        return context, " ".join([*words[n_context:], "{}."])

    def forward(
        self, image_features: Float[Tensor, "b D"] | None, class_features: Float[Tensor, "C D"] | None = None
    ) -> Prompts:
        """The same prompts for every image."""
        del image_features, class_features
        return Prompts(
            text=self.context[None, None, None],
            text_deep={i: tokens[None, None, None] for i, tokens in enumerate(self.deep_text, start=1)},
            image=self.projection(self.context)[None],
            image_deep={
                i: projection(tokens)[None]
                for i, (projection, tokens) in enumerate(
                    zip(self.deep_projections, self.deep_text, strict=True), start=1
                )
            },
            tail=self.tail,
        )
