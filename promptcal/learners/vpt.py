"""VPT: learned tokens in the image tower, beside CLS and patches; the text stays frozen."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.config import register
from promptcal.learners.contract import Learner
from promptcal.learners.deep import deep_image, deep_tokens, require_at_least_one
from promptcal.models.clip import FrozenClip
from promptcal.types import Prompts


@register("learner", "vpt")
class VPT(Learner):
    """Visual prompt tuning: n tokens after CLS and patches, replaced before each of the blocks 1 … J − 1.

    Depth 1 is VPT-shallow, the full depth VPT-deep. All tokens start from N(0, 0.02²). Classes are the frozen texts
    "a photo of a NAME." whatever the data set, as in the released code of MaPLe, whose tables are the ones quoted.

    Args:
        clip: the frozen model; its image tower must have tokens. J is at most its depth.
        generator: the random numbers of the initialisation.
        n_context: n.
        depth: J.
        templates: the texts of the classes; empty = those of the data set.

    Raises:
        ConfigError: an image tower without tokens, a number below 1.

    References:
        Jia, Tang, Chen, Cardie, Belongie, Hariharan, Lim, "Visual Prompt Tuning", ECCV 2022, arXiv 2203.12119; for CLIP
        as in Khattak, Rasheed, Maaz, Khan, Khan, "MaPLe: Multi-modal Prompt Learning", CVPR 2023, arXiv 2210.03117.
        Deviations: tokens stand after the patches, not before them (the towers have no mask, so nothing depends on it);
        float32 throughout.
    """

    prompts_image = True

    def __init__(
        self,
        clip: FrozenClip,
        generator: torch.Generator | None = None,
        n_context: int = 8,
        depth: int = 12,
        templates: Sequence[str] = ("a photo of a {}.",),
    ) -> None:
        super().__init__()
        clip.require_image_tokens()
        require_at_least_one(n_context=n_context, depth=depth)
        self.templates = tuple(templates)
        self.image_context = nn.Parameter(0.02 * torch.randn(n_context, clip.image_width, generator=generator))
        self.deep_image = deep_tokens(min(depth, clip.image_layers), n_context, clip.image_width, generator)

    def forward(
        self, image_features: Float[Tensor, "b D"] | None, class_features: Float[Tensor, "C D"] | None = None
    ) -> Prompts:
        """The same image tokens for every image."""
        del image_features, class_features
        return Prompts(image=self.image_context[None], image_deep=deep_image(self.deep_image))
