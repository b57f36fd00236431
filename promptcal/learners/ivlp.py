"""IVLP: deep prompts in both towers that do not know of each other."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.config import register
from promptcal.learners.contract import Learner
from promptcal.learners.deep import deep_image, deep_text, deep_tokens, first_words, require_at_least_one
from promptcal.models.clip import FrozenClip
from promptcal.types import Prompts


@register("learner", "ivlp")
class IVLP(Learner):
    """Independent vision-language prompting: deep language prompts and deep visual prompts, trained together.

    Text: the context starts as the first n words of ``init``, the rest stays fixed. Image: n_image tokens after CLS and
    patches. Before each of the blocks 1 … J − 1 of a tower new tokens take their places. All but the words start from
    N(0, 0.02²). PromptSRC is this learner with three consistency terms and averaged tensors.

    Args:
        clip: the frozen model; its image tower must have tokens. A depth is at most that of its tower.
        generator: the random numbers of the initialisation.
        n_context: n, text tokens.
        n_image: image tokens.
        text_depth: J of the text tower.
        image_depth: J of the image tower.
        init: words to start from and to keep; empty = N(0, 0.02²).

    Raises:
        ConfigError: an image tower without tokens, a number below 1, or one of the first n words that is no single
            token.

    References:
        "Independent V-L prompting" of Khattak, Rasheed, Maaz, Khan, Khan, "MaPLe: Multi-modal Prompt Learning", CVPR
        2023, arXiv 2210.03117, and of Khattak et al., "Self-regulating Prompts: Foundational Model Adaptation without
        Forgetting", ICCV 2023, arXiv 2307.06948. Deviation: float32 throughout.
    """

    learns_text = True
    prompts_image = True

    def __init__(
        self,
        clip: FrozenClip,
        generator: torch.Generator | None = None,
        n_context: int = 2,
        n_image: int = 2,
        text_depth: int = 12,
        image_depth: int = 12,
        init: str = "a photo of a",
    ) -> None:
        super().__init__()
        clip.require_image_tokens()
        require_at_least_one(n_context=n_context, n_image=n_image, text_depth=text_depth, image_depth=image_depth)
        context, self.tail = first_words(clip, n_context, init, generator)
        self.context = nn.Parameter(context)
        self.deep_text = deep_tokens(min(text_depth, clip.text_layers), n_context, clip.text_width, generator)
        self.image_context = nn.Parameter(0.02 * torch.randn(n_image, clip.image_width, generator=generator))
        self.deep_image = deep_tokens(min(image_depth, clip.image_layers), n_image, clip.image_width, generator)

    def forward(
        self, image_features: Float[Tensor, "b D"] | None, class_features: Float[Tensor, "C D"] | None = None
    ) -> Prompts:
        """The same prompts for every image."""
        del image_features, class_features
        return Prompts(
            text=self.context[None, None, None],
            text_deep=deep_text(self.deep_text),
            image=self.image_context[None],
            image_deep=deep_image(self.deep_image),
            tail=self.tail,
        )
