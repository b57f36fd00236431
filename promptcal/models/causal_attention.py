"""Attention of the rows of a token tree, with a backward pass of its own.

Keys and values of a block are laid side by side once, every product is one batched matrix product, and queries, keys,
values and attention weights are all that is kept for the backward pass.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

QUICK = 1.702
"""The constant of open_clip's QuickGELU."""


@dataclass(frozen=True)
class Segment:
    """Query rows in equal blocks and the keys they see: [constants | shared rows | the block's own rows].

    Attributes:
        queries: which of the query rows.
        shared: how many leading key rows all blocks see.
        own: which key rows are the blocks' own.
        constants: how many constant keys a block sees.
        mask: [blocks, queries of a block, keys], 0 where a key is seen and minus infinity where it is not.
    """

    queries: slice
    shared: int
    own: slice
    constants: int
    mask: Tensor


class CausalAttention(torch.autograd.Function):
    """Multi-head softmax(q·k / √head) v of the rows of a token tree, the softmax in float32 or wider.

    ``apply(packed, query, constants, segments, heads)`` takes ``packed`` [g, R, 3d] = queries, keys and values of all
    rows with ``query`` None, or keys and values [g, R, 2d] with queries [g, Q, d] of some; and the constant keys and
    values of each segment [2, blocks, heads, k, head]. The first segment covers all rows as keys. Returns [g, Q, d].
    """

    @staticmethod
    def forward(
        ctx: Any,
        packed: Tensor,
        query: Tensor | None,
        constants: tuple[Tensor, ...],
        segments: tuple[Segment, ...],
        heads: int,
    ) -> Tensor:
        """The attended values of the query rows."""
        q, kv = _split(packed, query, heads)
        groups, _, _, head = q.shape
        output = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        kept: list[Tensor] = []
        for segment, constant in zip(segments, constants, strict=True):
            blocks, _, keys = segment.mask.shape
            asked = _blocks(q[:, segment.queries], blocks).contiguous()
            known = kv.new_empty(2, groups, blocks, heads, keys, head)
            first, own = segment.constants, segment.constants + segment.shared
            known[..., :first, :] = constant[:, None]
            known[..., first:own, :] = _blocks(kv[:, :, : segment.shared], 1)
            known[..., own:, :] = _blocks(kv[:, :, segment.own], blocks)
            k, v = known.flatten(1, 3)
            scores = torch.bmm(asked.flatten(0, 2), k.transpose(1, 2)).view(*asked.shape[:4], keys)
            torch.add(segment.mask[:, None], scores, alpha=head**-0.5, out=scores)
            weights = torch.softmax(scores, -1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(q.dtype)
            attended = torch.bmm(weights.flatten(0, 2), v).view(asked.shape)
            _blocks(output[:, segment.queries], blocks).copy_(attended)
            kept += [asked, known, weights]
        ctx.save_for_backward(*kept)
        ctx.segments, ctx.rows, ctx.separate = segments, packed.shape[1], query is not None
        return output.view(groups, -1, heads * head)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the packed rows and of separate queries."""
        groups, rows, width = upstream.shape
        saved = ctx.saved_tensors  # once: a checkpointed part gives them a single time
        heads = saved[0].shape[2]
        packed = upstream.new_empty(groups, ctx.rows, (2 if ctx.separate else 3) * width)
        query = torch.empty_like(upstream) if ctx.separate else None
        dq, dkv = _split(packed, query, heads)
        upstream = upstream.view(groups, rows, heads, -1)
        for index, segment in enumerate(ctx.segments):
            asked, known, weights = saved[3 * index : 3 * index + 3]
            blocks, scale = len(segment.mask), asked.shape[-1] ** -0.5
            k, v = known.flatten(1, 3)
            weights = weights.flatten(0, 2)
            g = _blocks(upstream[:, segment.queries], blocks).contiguous().flatten(0, 2)
            change = torch.empty_like(known)
            torch.bmm(weights.transpose(1, 2), g, out=change[1].flatten(0, 2))
            scores = torch.bmm(g, v.transpose(1, 2))
            scores = torch.ops.aten._softmax_backward_data(scores, weights, -1, scores.dtype).mul_(scale)
            torch.bmm(scores.transpose(1, 2), asked.flatten(0, 2), out=change[0].flatten(0, 2))
            _blocks(dq[:, segment.queries], blocks).copy_(torch.bmm(scores, k).view(asked.shape))
            first, own = segment.constants, segment.constants + segment.shared
            target = _blocks(dkv[:, :, segment.own], blocks)
            if index == 0:
                target.copy_(change[..., own:, :])
                _blocks(dkv[:, :, : segment.shared], 1).copy_(change[..., first:own, :].sum(2, keepdim=True))
            else:
                target.add_(change[..., own:, :])
        return packed, query, None, None, None


class QuickMlp(torch.autograd.Function):
    """A frozen MLP with open_clip's QuickGELU x·sigmoid(1.702x) = silu(1.702x) / 1.702.

    The constant goes into the two matrix products, where it is free, and cancels in the backward pass; the input of
    the activation is all that is kept. ``apply(x, weight1, bias1, weight2, bias2)``; gradients reach ``x`` alone.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Tensor:
        """The output of the MLP, shaped like ``x``."""
        inner = torch.addmm(bias1, x.flatten(0, -2), weight1.T, alpha=QUICK, beta=QUICK)
        ctx.save_for_backward(inner, weight1, weight2)
        return torch.addmm(bias2, torch.nn.functional.silu(inner), weight2.T, alpha=1 / QUICK).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of ``x``."""
        inner, weight1, weight2 = ctx.saved_tensors
        change = upstream.flatten(0, -2) @ weight2
        torch.ops.aten.silu_backward(change, inner, grad_input=change)
        return (change @ weight1).view(upstream.shape), None, None, None, None


def _split(packed: Tensor, query: Tensor | None, heads: int) -> tuple[Tensor, Tensor]:
    """Views: queries [g, Q, heads, head], and keys and values [2, g, R, heads, head]."""
    groups, rows, width = packed.shape
    if query is None:
        parts = packed.view(groups, rows, 3, heads, width // 3 // heads).permute(2, 0, 1, 3, 4)
        return parts[0], parts[1:]
    head = query.shape[2] // heads
    return query.view(groups, -1, heads, head), packed.view(groups, rows, 2, heads, head).permute(2, 0, 1, 3, 4)


def _blocks(x: Tensor, blocks: int) -> Tensor:
    """[..., rows, heads, head] as a view [..., blocks, heads, rows of a block, head]."""
    rows, heads, head = x.shape[-3:]
    return x.view(*x.shape[:-3], blocks, rows // blocks, heads, head).transpose(-2, -3)
