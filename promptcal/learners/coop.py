"""CoOp: a learned context in front of, around or behind the class name."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.learners.contract import Learner
from promptcal.models.clip import FrozenClip
from promptcal.models.text_plan import POSITIONS
from promptcal.types import ClassNames, Prompts


@register("learner", "coop")
class CoOp(Learner):
    """Context optimisation: ``n_context`` token vectors shared by all classes, or a set for each class.

    Initialisation is N(0, 0.02²), or the token embeddings of the words of ``init``; ``n_context`` is then the number of
    their tokens. The released code counts whitespace words instead, which is the same for words of one token.

    Args:
        clip: the frozen model (width and initial words come from it).
        classes: needed for class-specific contexts only.
        generator: the random numbers of the initialisation.
        n_context: number of learned tokens, where ``init`` is empty.
        init: words to start from, such as ``a photo of a``.
        position: where the class name stands: ``end`` (context first), ``middle`` or ``front``.
        class_specific: a context for each class; such a learner cannot serve new classes.
        tail: the fixed words that carry the name.

    References:
        Zhou, Yang, Loy, Liu, "Learning to Prompt for Vision-Language Models", IJCV 2022, arXiv 2109.01134.
    """

    learns_text = True

    def __init__(
        self,
        clip: FrozenClip,
        classes: ClassNames | None = None,
        generator: torch.Generator | None = None,
        n_context: int = 16,
        init: str = "",
        position: str = "end",
        class_specific: bool = False,
        tail: str = "{}.",
    ) -> None:
        super().__init__()
        if position not in POSITIONS:
            raise ConfigError(f"unknown position '{position}' of the class name; choose {', '.join(POSITIONS)}.")
        if class_specific and classes is None:
            raise ConfigError("class-specific contexts need the class list at construction.")
        context = context_start(clip, n_context, init, generator)
        if class_specific and classes is not None:
            self.tied_classes = classes.names
            context = (
                context.repeat(len(classes), 1, 1)
                if init
                else context_start(clip, n_context * len(classes), "", generator).reshape(len(classes), n_context, -1)
            )
        self.context = nn.Parameter(context)
        self.position, self.tail = position, tail

    def forward(
        self, image_features: Float[Tensor, "b D"] | None, class_features: Float[Tensor, "C D"] | None = None
    ) -> Prompts:
        """The same context for every image."""
        del image_features, class_features
        context = self.context if self.context.ndim == 3 else self.context[None]
        return Prompts(text=context[None, None], position=self.position, tail=self.tail)


def context_start(
    clip: FrozenClip, n_context: int, init: str, generator: torch.Generator | None
) -> Float[Tensor, "n d"]:
    """Where a context starts, in float32: the embeddings of the words ``init``, else N(0, 0.02²).

    Raises:
        ConfigError: fewer than one context token.
    """
    if init:
        return clip.embed_words(init).float()
    if n_context < 1:
        raise ConfigError(f"n_context is {n_context}; a learned context needs at least one token.")
    return 0.02 * torch.randn(n_context, clip.text_width, generator=generator)
