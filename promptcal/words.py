"""What learned tokens lie near: the vocabulary words whose embeddings are nearest."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.models.clip import FrozenClip
from promptcal.models.vision import VisionModel

LEARNED_TOKENS = ("context",)
"""Tensors of a learner that stand where word embeddings stand."""

MOST_TOKENS = 32
"""How many tokens are looked up; class-specific contexts and prompt ensembles have more."""


Nearest = list[tuple[str, float]]
"""The nearest words of a learned token with their distances, nearest first."""


def nearest_words(clip: FrozenClip, tokens: Float[Tensor, "n d"], count: int = 3) -> list[Nearest]:
    """The words of the vocabulary nearest to each token, by Euclidean distance between embeddings, nearest first.

    Start and end of text and tokens that are only a part of a word are words here too; a part ends in ``…``. An empty
    list where the tokenizer has no vocabulary to look in.

    References:
        Zhou, Yang, Loy, Liu, "Learning to Prompt for Vision-Language Models", IJCV 2022, arXiv 2109.01134, table 4.
        They say themselves that the words are not to be read as sentences.
    """
    vocabulary = getattr(clip.tokenizer, "decoder", None)
    if not isinstance(vocabulary, dict):
        return []
    table = clip.text.token_embedding.weight.detach().float()
    distances = torch.cdist(
        tokens.detach().float().to(table.device), table, compute_mode="donot_use_mm_for_euclid_dist"
    )
    found = distances.topk(count, dim=1, largest=False)
    return [
        [(_word(str(vocabulary.get(i, i))), round(d, 4)) for i, d in zip(ids, near, strict=True)]
        for ids, near in zip(found.indices.tolist(), found.values.tolist(), strict=True)
    ]


def word_record(model: FrozenClip | VisionModel, learner: nn.Module) -> dict[str, list[Nearest]]:
    """The nearest words of what a learner has put in the place of words, by tensor name; at most ``MOST_TOKENS``."""
    if not isinstance(model, FrozenClip):
        return {}
    named, found = dict(learner.named_parameters()), {}
    for name in LEARNED_TOKENS:
        tensor = named.get(name)
        if tensor is not None and tensor.shape[-1] == model.text_width:
            found[name] = nearest_words(model, tensor.flatten(0, -2)[:MOST_TOKENS])
    return {name: words for name, words in found.items() if words}


def _word(token: str) -> str:
    return token.removesuffix("</w>") if token.endswith("</w>") or token.startswith("<") else f"{token}…"
