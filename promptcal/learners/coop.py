"""CoOp: a learned context in front of, around or behind the class name."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.learners.contract import Learner
from promptcal.models.clip import FrozenClip
from promptcal.models.reference import Reference
from promptcal.models.text_plan import POSITIONS
from promptcal.types import ClassNames, Prompts


@register("learner", "coop")
class CoOp(Learner):
    """Context optimisation: ``n_context`` token vectors shared by all classes, or a set for each class.

    Initialisation is N(0, 0.02²), or the token embeddings of the words of ``init``; ``n_context`` is then the number of
    their tokens. The released code counts whitespace words instead, which is the same for words of one token.

    Args:
        clip: the frozen model (width and initial words come from it).
        classes: needed for class-specific contexts and for words of a template only.
        reference: the frozen texts of the recipe.
        generator: the random numbers of the initialisation.
        n_context: number of learned tokens, where there are no words to start from.
        init: words to start from, such as ``a photo of a``.
        init_reference: start from the words that the recipe's first reference template, else the data set's first
            template, has before the name; ``init`` is then not read.
        min_context: zero vectors stand before the words until there are so many tokens: 16 in ProGrad.
        position: where the class name stands: ``end`` (context first), ``middle`` or ``front``.
        class_specific: a context for each class; such a learner cannot serve new classes.
        tail: the fixed words that carry the name.

    References:
        Zhou, Yang, Loy, Liu, "Learning to Prompt for Vision-Language Models", IJCV 2022, arXiv 2109.01134. Zero vectors
        before the words: the released code of Zhu, Niu, Han, Wu, Zhang, "Prompt-aligned Gradient for Prompt Tuning",
        ICCV 2023, arXiv 2205.14865, which takes as many tokens as there are words and so drops the last word of a
        template with a comma; here all tokens of the words are taken.
    """

    learns_text = True

    def __init__(
        self,
        clip: FrozenClip,
        classes: ClassNames | None = None,
        generator: torch.Generator | None = None,
        reference: Reference | None = None,
        n_context: int = 16,
        init: str = "",
        init_reference: bool = False,
        min_context: int = 0,
        position: str = "end",
        class_specific: bool = False,
        tail: str = "{}.",
    ) -> None:
        super().__init__()
        if position not in POSITIONS:
            raise ConfigError(f"unknown position '{position}' of the class name; choose {', '.join(POSITIONS)}.")
        if class_specific and classes is None:
            raise ConfigError("class-specific contexts need the class list at construction.")
        if init_reference:
            init = _words_before_the_name(classes, reference)
        context = context_start(clip, n_context, init, generator)
        if init and len(context) < min_context:
            context = torch.cat([context.new_zeros(min_context - len(context), clip.text_width), context])
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


def _words_before_the_name(classes: ClassNames | None, reference: Reference | None) -> str:
    """What the first reference template, else the first template of the classes, says before the name.

    Raises:
        ConfigError: no template, or no word before its name.
    """
    templates = (*(reference.templates if reference else ()), *(classes.templates if classes else ()))
    words = templates[0].partition("{}")[0].strip() if templates else ""
    if not words:
        raise ConfigError(
            f"init_reference starts from the words before the name, and there are none in '{''.join(templates[:1])}'; "
            f"give a reference template that has some, or learner.init."
        )
    return words


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
