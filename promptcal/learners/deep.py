"""Deep prompts: what the learners that replace tokens before several blocks of a tower have in common."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.errors import ConfigError
from promptcal.models.clip import FrozenClip


def deep_tokens(depth: int, n: int, width: int, generator: torch.Generator | None) -> nn.ParameterList:
    """Tokens [n, width] for each of the blocks 1 … depth − 1, N(0, 0.02²)."""
    return nn.ParameterList(nn.Parameter(0.02 * torch.randn(n, width, generator=generator)) for _ in range(1, depth))


def deep_text(tokens: Iterable[Tensor]) -> dict[int, Tensor]:
    """Text tokens [n, d] of the blocks from 1 on, as ``Prompts.text_deep``."""
    return {block: part[None, None, None] for block, part in enumerate(tokens, start=1)}


def deep_image(tokens: Iterable[Tensor]) -> dict[int, Tensor]:
    """Image tokens [n, width] of the blocks from 1 on, as ``Prompts.image_deep``."""
    return {block: part[None] for block, part in enumerate(tokens, start=1)}


def first_words(
    clip: FrozenClip, n_context: int, init: str, generator: torch.Generator | None
) -> tuple[Float[Tensor, "n d"], str]:
    """A context that starts as the first n words of ``init``, and the tail that keeps the rest before the name.

    ``a photo of a`` with n = 2 gives the embeddings of "a photo" and the tail ``of a {}.``; an empty ``init`` gives
    N(0, 0.02²) and the tail ``{}.``.

    Raises:
        ConfigError: fewer than n words, or one of the first n words that is no single token.
    """
    words = init.split()
    if not words:
        return 0.02 * torch.randn(n_context, clip.text_width, generator=generator), "{}."
    learned = " ".join(words[:n_context])
    context = clip.embed_words(learned).float()
    if len(words) < n_context or len(context) != n_context:
        raise ConfigError(
            f"the first {n_context} context tokens start from '{learned}', which is {len(context)}; choose init and "
            f"n_context so that the first n_context words are one token each."
        )
    return context, " ".join([*words[n_context:], "{}."])


def require_at_least_one(**numbers: int) -> None:
    """Refuse numbers of tokens and depths below 1.

    Raises:
        ConfigError: names the number.
    """
    for name, number in numbers.items():
        if number < 1:
            raise ConfigError(f"{name} is {number}; this learner needs at least 1.")
