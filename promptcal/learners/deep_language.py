"""Deep language prompting: learned tokens at the input and in the blocks of the text tower alone."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.config import register
from promptcal.learners.contract import Learner
from promptcal.learners.deep import deep_text, deep_tokens, first_words, require_at_least_one
from promptcal.models.clip import FrozenClip
from promptcal.types import Prompts


@register("learner", "deep_language")
class DeepLanguage(Learner):
    """CoOp's context, replaced by new tokens before each of the blocks 1 … J − 1 of the text tower.

    The context starts as the first n words of ``init``, the rest of which stays fixed; deep tokens start from
    N(0, 0.02²). Any image tower will do.

    Args:
        clip: the frozen model. J is at most the depth of its text tower.
        generator: the random numbers of the initialisation.
        n_context: n.
        depth: J.
        init: words to start from and to keep; empty = N(0, 0.02²).

    Raises:
        ConfigError: a number below 1, or one of the first n words that is no single token.

    References:
        "Deep language prompting" of Khattak, Rasheed, Maaz, Khan, Khan, "MaPLe: Multi-modal Prompt Learning", CVPR
        2023, arXiv 2210.03117. Deviation: float32 throughout.
    """

    learns_text = True

    def __init__(
        self,
        clip: FrozenClip,
        generator: torch.Generator | None = None,
        n_context: int = 4,
        depth: int = 12,
        init: str = "a photo of a",
    ) -> None:
        super().__init__()
        require_at_least_one(n_context=n_context, depth=depth)
        context, self.tail = first_words(clip, n_context, init, generator)
        self.context = nn.Parameter(context)
        self.deep_text = deep_tokens(min(depth, clip.text_layers), n_context, clip.text_width, generator)

    def forward(
        self, image_features: Float[Tensor, "b D"] | None, class_features: Float[Tensor, "C D"] | None = None
    ) -> Prompts:
        """The same text tokens for every image and class."""
        del image_features, class_features
        return Prompts(text=self.context[None, None, None], text_deep=deep_text(self.deep_text), tail=self.tail)
