"""The embeddings of an image that a head may read beside its feature, from the same pass of the image tower."""

import torch
from jaxtyping import Float
from torch import Tensor

from promptcal.errors import ConfigError, unknown
from promptcal.models.clip import FrozenClip
from promptcal.types import Prompts

PROJECTED = "projected"
SOURCES = (PROJECTED, "cls", "patch_mean", "concat")
"""What a head may read.

``projected`` is the image feature before normalisation (of a ResNet, its attention-pooled map); ``cls`` what the tower
projects: the class token behind the last normalisation; ``patch_mean`` the mean over the patches behind the last
normalisation, prompts left out; ``concat`` these two side by side.
"""


def token_width(clip: FrozenClip, source: str) -> int:
    """The width of an embedding.

    Raises:
        ConfigError: an unknown source, or one that this tower does not have.
    """
    if source not in SOURCES:
        raise ConfigError(unknown("head.source", source, SOURCES))
    if source == PROJECTED:
        return clip.embed_dim
    visual = clip.visual
    plain = all(hasattr(visual, name) for name in ("class_embedding", "_embeds", "_pool", "ln_post"))
    if not plain or (source != "cls" and visual.attn_pool is not None):
        raise ConfigError(
            f"the image tower of '{clip.name}' is a {type(visual).__name__} without the embedding "
            f"head.source={source}; head.source={PROJECTED} reads what every tower has."
        )
    pooled = clip.embed_dim if visual.proj is None else int(visual.proj.shape[0])
    return {"cls": pooled, "patch_mean": clip.image_width, "concat": pooled + clip.image_width}[source]


def encode_image_token(
    clip: FrozenClip, pixels: Float[Tensor, "b 3 h w"], prompts: Prompts | None, source: str
) -> tuple[Float[Tensor, "b D"], Float[Tensor, "b d"]]:
    """Image features before normalisation, and another embedding of the same pass.

    Args:
        clip: the model.
        pixels: the images.
        prompts: image prompts; None or empty = the frozen tower.
        source: one of ``SOURCES`` that the tower has.
    """
    if source == PROJECTED:
        features = clip.encode_image(pixels, prompts)
        return features, features
    x, own = clip.image_blocks(pixels, prompts or Prompts(), patches=source != "cls")
    pooled = clip.visual._pool(x)[0]
    token = pooled
    if source != "cls":
        mean = clip.visual.ln_post(x[:, 1:own]).mean(dim=1)
        token = mean if source == "patch_mean" else torch.cat([pooled, mean], dim=1)
    return clip.project_image(pooled), token
