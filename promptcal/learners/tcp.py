"""TCP: prompts made of the class's own frozen text, put into a middle block of the text tower."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.config import register
from promptcal.learners.contract import Learner
from promptcal.learners.coop import context_start
from promptcal.learners.deep import require_at_least_one
from promptcal.models.clip import FrozenClip
from promptcal.models.layers import seeded_linear
from promptcal.types import Prompts


@register("learner", "tcp")
class TCP(Learner):
    """Class-aware prompts: n tokens W₂·quickgelu(W₁ t⁰_c + b₁) + b₂ replace the shared context before one block.

    t⁰_c is the frozen, normalised text feature of class c, W₁ maps D to D // 4 and W₂ to n token vectors; the maps
    serve new classes. quickgelu(x) = x·sigmoid(1.702·x). The context starts from N(0, 0.02²), the maps as ``nn.Linear``
    does.

    Args:
        clip: the frozen model, of any kind.
        generator: the random numbers of the initialisation.
        n_context: n.
        init: words to start the context from instead; n is then the number of their tokens.
        block: the text block, counted from 0, before which the class-aware tokens come in; at most the last one.
        reduction: D over the hidden width.
        tail: the fixed words that carry the name; empty = the first template of the classes from the name on, such as
            ``{}, a type of pet.``

    Raises:
        ConfigError: a number below 1.

    References:
        Yao, Zhang, Xu, "TCP: Textual-based Class-aware Prompt Tuning for Visual-Language Model", CVPR 2024,
        arXiv 2311.18231. The tokens replace what is there, as in the released code, whose blending weight is fixed at
        1. Deviations: float32 throughout, where the released code needs Adam's ε = 1e-3 to keep float16 finite, and the
        tail is taken from the data set's template, which for some data sets is not the released list of texts.
    """

    learns_text = True
    reads_classes = True

    def __init__(
        self,
        clip: FrozenClip,
        generator: torch.Generator | None = None,
        n_context: int = 4,
        init: str = "",
        block: int = 8,
        reduction: int = 4,
        tail: str = "",
    ) -> None:
        super().__init__()
        require_at_least_one(block=block, reduction=reduction)
        self.context = nn.Parameter(context_start(clip, n_context, init, generator))
        self.block = min(block, clip.text_layers - 1)
        self.tail = tail
        hidden = max(1, clip.embed_dim // reduction)
        self.meta_net = nn.ModuleDict(
            {
                "linear1": seeded_linear(clip.embed_dim, hidden, generator),
                "linear2": seeded_linear(hidden, self.context.numel(), generator),
            }
        )

    def forward(
        self, image_features: Float[Tensor, "b D"] | None, class_features: Float[Tensor, "C D"] | None = None
    ) -> Prompts:
        """The shared context, and the tokens of each class [1, 1, C, n, d] before the block."""
        del image_features
        if class_features is None:
            raise ValueError("TCP reads class features and was given none.")
        hidden = self.meta_net["linear1"](class_features)
        tokens = self.meta_net["linear2"](hidden * torch.sigmoid(1.702 * hidden))
        return Prompts(
            text=self.context[None, None, None],
            text_deep={self.block: tokens.view(1, 1, len(class_features), *self.context.shape)},
            tail=self.tail,
        )
