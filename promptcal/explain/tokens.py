"""Which tokens a vision transformer's decision reads, and what share of a score lies on the foreground."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from promptcal.errors import ConfigError, DataError
from promptcal.explain.recording import classifiers_of

POOLED = ("avg", "avgmax", "max")


def read_range(model: nn.Module, tokens: int) -> tuple[int, int]:
    """The first and one past the last of N tokens after the last block that the classifier reads, each alike.

    The class token alone; class and distillation token; or, where they are pooled, the patches.

    Raises:
        ConfigError: attention pooling, whose reading differs from image to image.
    """
    pooling = str(getattr(model, "global_pool", "token"))
    if pooling in POOLED:
        whole = bool(getattr(model, "pool_include_prefix", False))
        return (0 if whole else int(model.num_prefix_tokens)), tokens  # type: ignore[arg-type]
    if pooling != "token":
        raise ConfigError(f"the pooling '{pooling}' of this {type(model).__name__} reads no fixed tokens.")
    return 0, len(classifiers_of(model))


def read_tokens(model: nn.Module, tokens: int) -> Float[Tensor, " N"]:
    """How much the classifier reads of each of N tokens after the last block (see ``read_range``); sums to 1."""
    first, last = read_range(model, tokens)
    weights = torch.zeros(tokens)
    weights[first:last] = 1 / (last - first)
    return weights


def patch_scores(model: nn.Module, flow: Float[Tensor, "*d b N N"]) -> Float[Tensor, "*d b n"]:
    """What flows from each of the n patches into the tokens that the classifier reads, e.g. of a rollout."""
    weights = read_tokens(model, flow.shape[-1]).to(flow)
    return (weights @ flow)[..., int(model.num_prefix_tokens) :]  # type: ignore[arg-type]


def patch_grid(model: nn.Module) -> tuple[int, int]:
    """Rows and columns of patches."""
    rows, columns = model.patch_embed.grid_size  # type: ignore
    return int(rows), int(columns)


def foreground_patches(
    pixels: Float[Tensor, "b c h w"], grid: tuple[int, int], *, threshold: float = 0.25
) -> Bool[Tensor, "b n"]:
    """The patches that show something, for images of one object on a plain background.

    A pixel shows something where it differs from the image's median, in any channel, by more than ``threshold`` of the
    image's range; a patch does where one of its pixels does.
    """
    flat = pixels.flatten(2)
    away = (flat - flat.median(dim=2, keepdim=True).values).abs().amax(dim=1)
    span = (flat.amax(dim=2) - flat.amin(dim=2)).amax(dim=1, keepdim=True)
    shows = (away > threshold * span).reshape(len(pixels), *pixels.shape[2:]).float()
    return torch.nn.functional.adaptive_max_pool2d(shows[:, None], grid).flatten(1) > 0


def foreground_share(scores: Float[Tensor, "*d b n"], foreground: Bool[Tensor, "b n"]) -> Float[Tensor, "*d b"]:
    """Σ|score| of the foreground patches over Σ|score| of all patches, between 0 and 1.

    Raises:
        DataError: an image whose scores are all zero or not finite.
    """
    size = scores.abs()
    total = size.sum(dim=-1)
    if not bool(((total > 0) & torch.isfinite(total)).all()):
        raise DataError("an image's patch scores are all zero or not finite, so no share of them is foreground.")
    return (size * foreground).sum(dim=-1) / total
