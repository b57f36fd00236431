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
        queries: which of the query rows; the own rows where all rows are queries.
        shared: how many leading key rows all blocks see.
        own: which key rows are the blocks' own.
        constants: how many constant keys a block sees.
        mask: [blocks, 1, queries of a block, keys], 0 where a key is seen and minus infinity where it is not.
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
    values of each segment [2, 1, blocks, heads, k, head]. The first segment covers all rows as keys. Returns [g, Q, d].
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
        asking, keyed = _lanes(packed, query, heads)
        _, groups, rows, _, head = asking.shape
        output = packed.new_empty(1, groups, rows, heads, head)
        kept: list[Tensor] = []
        for segment, constant in zip(segments, constants, strict=True):
            blocks, _, _, keys = segment.mask.shape
            first, own = segment.constants, segment.constants + segment.shared
            laid = packed.new_empty(2, groups, blocks, heads, keys, head)
            laid[..., :first, :] = constant
            if segment.shared:
                laid[..., first:own, :] = _blocks(keyed[:, :, : segment.shared], 1)
            laid[..., own:, :] = _blocks(keyed[:, :, segment.own], blocks)
            k, v = laid.flatten(1, 3)
            q = _blocks(asking[:, :, segment.queries], blocks).flatten(0, 3)
            scores = torch.bmm(q, k.mT)
            masked = scores.view(groups, blocks, heads, -1, keys)
            torch.add(segment.mask, masked, alpha=head**-0.5, out=masked)
            weights = torch.softmax(scores, -1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype)
            attended = torch.bmm(weights, v).view(1, groups, blocks, heads, -1, head)
            _blocks(output[:, :, segment.queries], blocks).copy_(attended)
            kept += [q, laid, weights]
        ctx.save_for_backward(*kept)
        ctx.segments, ctx.rows, ctx.separate = segments, packed.shape[1], query is not None
        return output.view(groups, rows, heads * head)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the packed rows and of separate queries, whether autocast is still on or not."""
        groups, rows, width = upstream.shape
        saved = ctx.saved_tensors  # read once: a checkpointed part gives them a single time
        heads, _, head = saved[1].shape[3:]
        packed = upstream.new_empty(groups, ctx.rows, (2 if ctx.separate else 3) * width)
        query = torch.empty_like(upstream) if ctx.separate else None
        asking, keyed = _lanes(packed, query, heads)
        upstream = upstream.view(1, groups, rows, heads, head)
        with torch.autocast(upstream.device.type, enabled=False):
            for index, segment in enumerate(ctx.segments):
                q, laid, weights = saved[3 * index : 3 * index + 3]
                blocks, own = len(segment.mask), segment.constants + segment.shared
                change = torch.empty_like(laid)
                (k, v), (dk, dv) = laid.flatten(1, 3), change.flatten(1, 3)
                g = _blocks(upstream[:, :, segment.queries], blocks).flatten(0, 3)
                torch.bmm(weights.mT, g, out=dv)
                scores = torch.ops.aten._softmax_backward_data(torch.bmm(g, v.mT), weights, -1, g.dtype)
                scores.mul_(head**-0.5)
                torch.bmm(scores.mT, q, out=dk)
                dq = torch.bmm(scores, k).view(1, groups, blocks, heads, -1, head)
                _blocks(asking[:, :, segment.queries], blocks).copy_(dq)
                mine = _blocks(keyed[:, :, segment.own], blocks)
                if index:
                    mine.add_(change[..., own:, :])
                    continue
                mine.copy_(change[..., own:, :])
                if segment.shared:
                    shared = change[..., segment.constants : own, :].sum(2, keepdim=True)
                    _blocks(keyed[:, :, : segment.shared], 1).copy_(shared)
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
        """The gradient of ``x``, in the precision of the forward pass, whether autocast is still on or not."""
        inner, weight1, weight2 = ctx.saved_tensors
        with torch.autocast(upstream.device.type, enabled=False):
            change = upstream.flatten(0, -2).to(inner.dtype) @ weight2.to(inner.dtype)
            torch.ops.aten.silu_backward(change, inner, grad_input=change)
            return (change @ weight1.to(inner.dtype)).view(upstream.shape), None, None, None, None


def _lanes(packed: Tensor, query: Tensor | None, heads: int) -> tuple[Tensor, Tensor]:
    """Views: queries [1, g, Q, heads, head], and keys and values [2, g, R, heads, head]."""
    groups, rows, width = packed.shape
    if query is None:
        lanes = packed.view(groups, rows, 3, heads, width // (3 * heads)).permute(2, 0, 1, 3, 4)
        return lanes[:1], lanes[1:]
    head = width // (2 * heads)
    return query.view(1, groups, -1, heads, head), packed.view(groups, rows, 2, heads, head).permute(2, 0, 1, 3, 4)


def _blocks(x: Tensor, blocks: int) -> Tensor:
    """[l, g, rows, heads, head] as a view [l, g, blocks, heads, rows of a block, head]."""
    lanes, groups, rows, heads, head = x.shape
    return x.view(lanes, groups, blocks, rows // blocks, heads, head).transpose(3, 4)
