"""The exact fast text pass: what a causal tower shares between classes and steps is computed once.

A token of a causal tower depends on the tokens before it alone. So nothing after the end token is computed; tokens
before the first learned one are constants, of which only keys and values are kept; the learned context and whatever
else all classes have in common is computed once a step; each class adds its own few tokens. The last block computes
queries, projections and MLP for end tokens only, and what a deep prompt replaces goes no further than its keys and
values. Features and gradients equal the plain pass (:meth:`FrozenClip.encode_plan`) up to rounding.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from promptcal.errors import ConfigError, unknown
from promptcal.models.causal_attention import CausalAttention, QuickMlp, Segment
from promptcal.models.clip import FrozenClip
from promptcal.models.text_plan import TextPlan
from promptcal.models.token_tree import Queries, TokenTree, choose, token_tree
from promptcal.types import Prompts

log = logging.getLogger(__name__)


@runtime_checkable
class TextPass(Protocol):
    """One class list bound to one text tower."""

    def encode(self, prompts: Prompts) -> Float[Tensor, "B P C D"]:
        """Features of the prompted class texts, before normalisation, with gradients to the prompts."""
        ...

    def rows(self, prompts: Prompts) -> int:
        """Token rows that a block of the tower computes in one pass."""
        ...


def text_pass(clip: FrozenClip, plan: TextPlan, kind: str = "fast") -> TextPass:
    """The text pass of a class list: ``fast``, or ``plain`` for the full-length reference.

    Towers that are not plain causal ones go through the plain pass, which is said once in the log.

    Raises:
        ConfigError: an unknown kind.
    """
    if kind not in ("fast", "plain"):
        raise ConfigError(unknown("text pass", kind, ("fast", "plain")))
    if kind == "fast" and not clip.is_plain_causal:
        _say_plain(clip.name)
        kind = "plain"
    return CausalText(clip, plan) if kind == "fast" else PlainText(clip, plan)


@cache
def _say_plain(name: str) -> None:
    log.warning("the text tower of '%s' is not a plain causal one, so its texts go through the full pass.", name)


class PlainText:
    """The full-length pass behind the interface of the fast one: every class, all positions, every step."""

    def __init__(self, clip: FrozenClip, plan: TextPlan) -> None:
        self.clip, self.plan = clip, plan

    def encode(self, prompts: Prompts) -> Float[Tensor, "B P C D"]:
        """Features of the prompted class texts, before normalisation, with gradients to the prompts."""
        return self.clip.encode_plan(self.plan, prompts)

    def rows(self, prompts: Prompts) -> int:
        """Token rows that a block of the tower computes in one pass."""
        images, count = self.plan.groups(prompts)
        return images * count * int(self.plan.ids.size)

    def flops(self, prompts: Prompts) -> int:
        """FLOPs of the matrix products of one forward pass and one backward pass to the prompts."""
        images, count = self.plan.groups(prompts)
        classes, length = self.plan.ids.shape
        layer = _linear_flops(self.clip, length, length, length) + _attention_flops(self.clip, length * length)
        return int(images * count * classes * (self.clip.text_layers * layer + _projection_flops(self.clip)))


class CausalText:
    """The fast pass of one class list through one causal tower; another class list takes another object.

    Constants are built at the first use, and again when the tower's weights, dtype or device have changed. A change is
    seen by the address and version of every parameter; one written through ``parameter.data`` goes unseen. Under
    autocast the products run in its dtype, as in the plain pass, on constants of the tower's own dtype.

    Raises:
        ConfigError: the text tower is not a plain causal one.
    """

    def __init__(self, clip: FrozenClip, plan: TextPlan) -> None:
        if not clip.is_plain_causal:
            raise ConfigError(f"the text tower of '{clip.name}' is not a plain causal one; use the plain text pass.")
        self.clip, self.plan = clip, plan
        self._modules = tuple(module for module in clip.text.transformer.modules() if module._parameters)
        self._weights: tuple[Any, ...] = ()
        self._bound: dict[bool, _BoundTree] = {}

    def encode(self, prompts: Prompts) -> Float[Tensor, "B P C D"]:
        """Features of the prompted class texts, before normalisation, with gradients to the prompts."""
        groups, bound = self.plan.groups(prompts), self._bind(prompts)
        x = bound.forward(self.plan.learned(prompts), *groups)
        features: Tensor = self.clip.project_text(self.clip.text.ln_final(x))
        return features.view(*groups, len(self.plan.ids), -1)

    def rows(self, prompts: Prompts) -> int:
        """Token rows that a block of the tower computes in one pass, padding included."""
        images, count = self.plan.groups(prompts)
        return images * count * len(self._bind(prompts).tree.token)

    def flops(self, prompts: Prompts) -> int:
        """FLOPs of the matrix products of one forward pass and one backward pass to the prompts."""
        images, count = self.plan.groups(prompts)
        bound, total = self._bind(prompts), len(self.plan.ids) * _projection_flops(self.clip)
        for index in range(self.clip.text_layers):
            view = bound.view(index, prompts.text_deep)
            outputs = len(bound.fixed if view.rows is None else view.rows)
            if index == 0:  # keys, values and queries of fixed tokens are constants here
                keys = queries = len(bound.slots)
            else:
                keys, queries = len(bound.fixed), outputs
            total += _linear_flops(self.clip, keys, queries, outputs)
            total += _attention_flops(self.clip, sum(segment.mask.numel() for segment in view.segments))
        return images * count * total

    def _bind(self, prompts: Prompts) -> "_BoundTree":
        """The tree for shared or for class-specific contexts, with constants of the weights as they are now."""
        text = self.clip.text
        frozen = [p for module in self._modules for p in module._parameters.values() if p is not None]
        frozen += [text.token_embedding.weight, text.positional_embedding]
        weights = tuple((p.data_ptr(), p.is_inference() or p._version, p.dtype, p.device) for p in frozen)
        if weights != self._weights:
            self._weights, self._bound = weights, {}
        per_class = any(tokens.shape[2] > 1 for tokens in self.plan.learned(prompts).values())
        if per_class not in self._bound:
            tree = token_tree(self.plan, self.clip.text_width, per_class=per_class)
            with torch.inference_mode(False), torch.no_grad(), torch.autocast(self.clip.device.type, enabled=False):
                self._bound[per_class] = _BoundTree(self.clip, self.plan, tree)
        return self._bound[per_class]


@dataclass(frozen=True)
class _View:
    """The rows that go on through a block: all of them with ``rows`` None, or some, and what they attend to."""

    rows: Tensor | None
    segments: tuple[Segment, ...]


def _view(tree: TokenTree, queries: Queries | None, like: Tensor) -> _View:
    rows, mask, trunk = np.arange(len(tree.token)), tree.mask, tree.trunk
    if queries is not None:
        rows, mask, trunk = queries.rows, queries.mask, queries.trunk
    own, constants = slice(tree.trunk, len(tree.token)), tree.constants.shape[1]
    segments = [Segment(slice(trunk, len(rows)), tree.trunk, own, constants, _additive(mask, like))]
    if trunk:
        seen = np.arange(tree.stem + tree.trunk) < tree.stem + 1 + rows[:trunk, None]
        segments.append(Segment(slice(0, trunk), 0, slice(0, tree.trunk), tree.stem, _additive(seen[None], like)))
    return _View(None if queries is None else torch.as_tensor(rows, device=like.device), tuple(segments))


def _additive(seen: np.ndarray, like: Tensor) -> Tensor:
    """0 where a key is seen and minus infinity where it is not."""
    hidden = torch.as_tensor(~seen[:, None], device=like.device)
    return torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill_(hidden, -torch.inf)


class _BoundTree:
    """A token tree bound to a tower: indices on its device, and the constants of its weights."""

    def __init__(self, clip: FrozenClip, plan: TextPlan, tree: TokenTree) -> None:
        text, learned = clip.text, tree.slot >= 0
        self.tree, self.tower = tree, text.transformer.resblocks

        def on_device(array: np.ndarray) -> Tensor:
            return torch.as_tensor(array, device=clip.device)

        self.slots = on_device(np.nonzero(learned)[0])
        self.slot, self.owner = on_device(tree.slot[learned]), on_device(tree.owner[learned])
        places = text.positional_embedding[on_device(tree.position)].to(clip.dtype)
        self.place = places[self.slots]
        self.fixed: Tensor = text.token_embedding(on_device(tree.token)) + places
        self.fixed_qkv = _qkv(self.tower[0], self.fixed)
        live = choose(tree, ~learned & (tree.owner >= 0))
        ends = choose(tree, np.isin(np.arange(len(tree.token)), tree.leaf))
        self.all, self.live, self.ends = (_view(tree, queries, self.fixed) for queries in (None, live, ends))
        joined = live.place.copy()
        joined[learned] = len(live.rows) + np.arange(len(self.slots))
        self.joined, self.leaf = on_device(joined), on_device(ends.place[tree.leaf])
        self.constants = _constants(clip, plan, tree)

    def view(self, index: int, learned: Mapping[int, Tensor]) -> _View:
        """Which rows go on through a block: end tokens through the last, and no row that a deep prompt overwrites."""
        if index + 1 == len(self.tower):
            return self.ends
        return self.live if index + 1 in learned else self.all

    def forward(self, learned: Mapping[int, Tensor], images: int, count: int) -> Tensor:
        """The last hidden state of every class's end token [images·count, C, d]."""
        groups, width = images * count, self.fixed.shape[-1]
        deep = {index: self._spread(tokens, images, count) for index, tokens in learned.items()}
        rows = deep[-1] + self.place
        if 0 in deep:  # overwritten at once: the gradient of the context is zero, not absent
            rows = torch.where(torch.ones_like(rows, dtype=torch.bool), deep[0], rows)
        x: Tensor = self.fixed.expand(groups, -1, -1).index_copy(1, self.slots, rows)
        for index, block in enumerate(self.tower):
            view = self.view(index, learned)
            if index == 0:
                new = _qkv(block, rows)
                packed = self.fixed_qkv.to(new.dtype).expand(groups, -1, -1).index_copy(1, self.slots, new)
                query = None if view.rows is None else packed[:, :, :width].index_select(1, view.rows)
                packed = packed if view.rows is None else packed[:, :, width:].contiguous()
            else:
                if index in deep:
                    x = torch.cat([x, deep[index]], 1).index_select(1, self.joined)
                packed, query = _project(block, x, view.rows)
            constants = self.constants[index][: len(view.segments)]
            attended = CausalAttention.apply(packed, query, constants, view.segments, block.attn.num_heads)
            x = x if view.rows is None else x.index_select(1, view.rows)
            x = x + block.ls_1(block.attn.out_proj(attended))
            x = x + block.ls_2(_mlp(block.mlp, block.ln_2(x)))
        return x.index_select(1, self.leaf)

    def _spread(self, tokens: Tensor, images: int, count: int) -> Tensor:
        """Learned tokens [B, P, C, n, d] as the rows that hold them [images·count, slots, d]."""
        classes, n, width = tokens.shape[2:]
        flat = tokens.to(self.fixed.dtype).expand(images, count, -1, -1, -1).reshape(images * count, classes * n, width)
        return flat.index_select(1, self.slot if classes == 1 else self.owner * n + self.slot)


def _qkv(block: Any, x: Tensor) -> Tensor:
    return F.linear(block.ln_1(x), block.attn.in_proj_weight, block.attn.in_proj_bias)


def _project(block: Any, x: Tensor, rows: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Queries, keys and values of all rows; or keys and values of all rows, and queries of the chosen ones."""
    if rows is None:
        return _qkv(block, x), None
    weight, bias, width = block.attn.in_proj_weight, block.attn.in_proj_bias, x.shape[-1]
    h = block.ln_1(x)
    return F.linear(h, weight[width:], bias[width:]), F.linear(h.index_select(1, rows), weight[:width], bias[:width])


def _mlp(module: Any, h: Tensor) -> Tensor:
    quick, first, second = type(module.gelu).__name__ == "QuickGELU", module.c_fc, module.c_proj
    output: Tensor = QuickMlp.apply(h, first.weight, first.bias, second.weight, second.bias) if quick else module(h)
    return output


def _constants(clip: FrozenClip, plan: TextPlan, tree: TokenTree) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of the constant tokens at every layer [2, 1, blocks, heads, k, head]: all, and the stem's."""
    text, width = clip.text, clip.text_width
    of, at = torch.as_tensor(tree.constants, device=clip.device).unbind(-1)
    classes, which = torch.unique(of, return_inverse=True)
    length = int(at.max()) + 1
    x = text.token_embedding(torch.as_tensor(plan.ids, device=clip.device)[classes, :length])
    x = x + text.positional_embedding[:length].to(clip.dtype)
    result = []
    for block in text.transformer.resblocks:
        kv = F.linear(block.ln_1(x), block.attn.in_proj_weight[width:], block.attn.in_proj_bias[width:])[which, at]
        kv = kv.view(1, *at.shape, 2, block.attn.num_heads, -1).permute(3, 0, 1, 4, 2, 5).contiguous()
        result.append((kv, kv[:, :, :1, :, : tree.stem]))
        x = block(x, attn_mask=text.attn_mask[:length, :length])
    return result


def _linear_flops(clip: FrozenClip, keys: int, queries: int, outputs: int) -> int:
    """A block's linear layers, forward and back, by rows that get keys and values, get queries, and go on."""
    width, inner = clip.text_width, int(clip.text.transformer.resblocks[0].mlp.c_fc.out_features)
    return 4 * width * (2 * keys * width + queries * width + outputs * (width + 2 * inner))


def _attention_flops(clip: FrozenClip, pairs: int) -> int:
    """A block's attention over pairs of query and key: two products forward, four back."""
    return 12 * pairs * clip.text_width


def _projection_flops(clip: FrozenClip) -> int:
    """The text projection of one feature, forward and back."""
    return 0 if clip.text.text_projection is None else 4 * clip.text_width * clip.embed_dim
