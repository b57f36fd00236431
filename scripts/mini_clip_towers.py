"""The two towers of an `open_clip` CLIP written out for quick training on a CPU.

Both functions return what `encode_image` and `encode_text` return, up to rounding, at about half the cost: attention is
plain matrix products, the last image block works on the class token alone, and captions are not padded to the context.
"""

import torch
from open_clip.model import CLIP
from torch import Tensor
from torch.nn import functional
from torch.nn.modules import Module


def _attend(block: Module, hidden: Tensor, queries: int) -> Tensor:
    """Self-attention of the first `queries` tokens over all tokens of `hidden`, (batch, tokens, width)."""
    attention, width = block.attn, hidden.shape[-1]
    heads = attention.num_heads
    normed = block.ln_1(hidden)
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    query = functional.linear(normed[:, :queries], weight[:width], bias[:width])
    query = query.unflatten(-1, (heads, -1)).transpose(1, 2)
    key, value = (
        functional.linear(normed, weight[width:], bias[width:]).unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
    )
    scores = (query * (width // heads) ** -0.5) @ key.transpose(-1, -2)
    mixed = scores.softmax(dim=-1).to(value.dtype) @ value
    return attention.out_proj(mixed.transpose(1, 2).flatten(2))


def encode_pictures(model: CLIP, images: Tensor) -> Tensor:
    """Image embeddings (batch, embed_dim), not normalised, of normalised pixels (batch, 3, side, side)."""
    tower = model.visual
    patches = tower.conv1(images).flatten(2).transpose(1, 2)
    first = tower.class_embedding.to(patches.dtype).expand(len(patches), 1, -1)
    hidden = tower.ln_pre(torch.cat([first, patches], dim=1) + tower.positional_embedding)
    blocks = tower.transformer.resblocks
    for index, block in enumerate(blocks):
        kept = 1 if index == len(blocks) - 1 else hidden.shape[1]
        hidden = hidden[:, :kept] + _attend(block, hidden, kept)
        hidden = hidden + block.mlp(block.ln_2(hidden))
    return tower.ln_post(hidden[:, 0]) @ tower.proj


def encode_captions(model: CLIP, tokens: Tensor) -> Tensor:
    """Normalised caption embeddings (captions, embed_dim) of tokens (captions, length) without idle padding."""
    length = tokens.shape[1]
    hidden = model.token_embedding(tokens) + model.positional_embedding[:length]
    hidden = model.ln_final(model.transformer(hidden, attn_mask=model.attn_mask[:length, :length]))
    ends = hidden[torch.arange(len(tokens)), tokens.argmax(dim=-1)]
    return functional.normalize(ends @ model.text_projection, dim=-1)
