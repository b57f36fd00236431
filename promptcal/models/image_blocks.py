"""A block of a frozen ViT whose tokens carry gradients, for prompted image towers.

The same numbers as open_clip's block up to rounding: gradients reach the tokens alone, so the MLP keeps one tensor
instead of three for the backward pass, and the last block computes only the token that is read.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from promptcal.models.causal_attention import QuickMlp


def frozen_block(block: Any, x: Float[Tensor, "b n w"], *, first_only: bool = False) -> Float[Tensor, "b m w"]:
    """The tokens after a block; ``first_only`` gives the first token alone, [b, 1, w].

    Blocks that are not open_clip's standard ones run as they are.
    """
    if type(block).__name__ != "ResidualAttentionBlock" or not isinstance(block.attn, nn.MultiheadAttention):
        whole: Tensor = block(x)
        return whole[:, :1] if first_only else whole
    attention, kept = block.attn, x[:, :1] if first_only else x
    h = block.ln_1(x)
    if first_only:
        width, (weight, bias) = x.shape[-1], (attention.in_proj_weight, attention.in_proj_bias)
        query = F.linear(h[:, :1], weight[:width], bias[:width])
        key, value = F.linear(h, weight[width:], bias[width:]).chunk(2, dim=-1)
    else:
        query, key, value = F.linear(h, attention.in_proj_weight, attention.in_proj_bias).chunk(3, dim=-1)
    q, k, v = (part.reshape(*part.shape[:2], attention.num_heads, -1).transpose(1, 2) for part in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    kept = kept + block.ls_1(F.linear(mixed, attention.out_proj.weight, attention.out_proj.bias))
    return kept + block.ls_2(_mlp(block.mlp, block.ln_2(kept)))  # type: ignore[no-any-return]


def _mlp(module: Any, h: Float[Tensor, "b n w"]) -> Float[Tensor, "b n w"]:
    first, second = module.c_fc, module.c_proj
    if type(module.gelu).__name__ != "QuickGELU" or torch.is_autocast_enabled(h.device.type):
        return module(h)  # type: ignore[no-any-return]
    return QuickMlp.apply(h, first.weight, first.bias, second.weight, second.bias)  # type: ignore[no-any-return]
