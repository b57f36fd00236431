"""The exact fast text pass: what a causal tower shares between classes and steps is computed once.

A token of a causal tower depends on the tokens before it alone. So nothing after the end token is computed; tokens
before the first learned one are constants, of which only keys and values are kept; the learned context and whatever
else all classes have in common is computed once a step; each class adds its own few tokens. The last block computes
queries, projections and MLP for end tokens only, and what a deep prompt replaces goes no further than its keys and
values. Features and gradients equal the plain pass (:meth:`FrozenClip.encode_plan`) up to rounding.
"""

import logging
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from promptcal.errors import ConfigError, unknown
from promptcal.models.clip import FrozenClip
from promptcal.models.text_plan import TextPlan
from promptcal.models.token_tree import Queries, TokenTree, choose, token_tree
from promptcal.types import Prompts

log = logging.getLogger(__name__)

QUICK = 1.702
"""The constant of open_clip's QuickGELU: x·sigmoid(1.702x) = silu(1.702x) / 1.702."""


@runtime_checkable
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
        images, count = _groups(prompts)
        return images * count * self.plan.ids.size


class CausalText:
    """The fast pass of one class list through one causal tower; another class list takes another object.

    Constants are built at the first use, and again when the tower's weights, dtype or device have changed. A change is
    seen by the address and version of every parameter; one written through ``parameter.data`` goes unseen.

    Raises:
        ConfigError: the text tower is not a plain causal one.
    """

    def __init__(self, clip: FrozenClip, plan: TextPlan) -> None:
        if not clip.is_plain_causal:
            raise ConfigError(f"the text tower of '{clip.name}' is not a plain causal one; use the plain text pass.")
        self.clip, self.plan = clip, plan
        self._weights: tuple[Any, ...] = ()
        self._bound: dict[bool, _BoundTree] = {}

    def encode(self, prompts: Prompts) -> Float[Tensor, "B P C D"]:
        """Features of the prompted class texts, before normalisation, with gradients to the prompts."""
        bound = self._bind(prompts)
        images, count = _groups(prompts)
        x = bound.forward(*bound.learned(prompts, images, count))
        x = self.clip.project_text(self.clip.text.ln_final(x))
        return x.view(images, count, len(self.plan.ids), -1)

    def rows(self, prompts: Prompts) -> int:
        """Token rows that a block of the tower computes in one pass, padding included."""
        images, count = _groups(prompts)
        return images * count * len(self._bind(prompts).tree.token)

    def _bind(self, prompts: Prompts) -> "_BoundTree":
        """The tree for shared or for class-specific contexts, with constants of the weights as they are now."""
        text = self.clip.text
        frozen = (*text.transformer.parameters(), text.token_embedding.weight, text.positional_embedding)
        weights = tuple((p.data_ptr(), p._version, p.dtype, p.device) for p in frozen)
        if weights != self._weights:
            self._weights, self._bound = weights, {}
        per_class = any(tokens.shape[2] > 1 for tokens in _learned(prompts))
        if per_class not in self._bound:
            tree = token_tree(self.plan, self.clip.text_width, per_class=per_class)
            with torch.inference_mode(False), torch.no_grad():
                self._bound[per_class] = _BoundTree(self.clip, self.plan, tree)
        return self._bound[per_class]


def _learned(prompts: Prompts) -> list[Tensor]:
    if prompts.text is None:
        raise ConfigError("there is no text context to encode; empty prompts use the templates instead.")
    return [prompts.text, *prompts.text_deep.values()]


def _groups(prompts: Prompts) -> tuple[int, int]:
    """How many images and how many prompts there are; every pair of them has its own learned tokens."""
    tensors = _learned(prompts)
    return max(tokens.shape[0] for tokens in tensors), max(tokens.shape[1] for tokens in tensors)


class _View:
    """The rows that go on through a layer, on the device: all of them, or some."""

    def __init__(self, tree: TokenTree, queries: Queries | None, like: Tensor) -> None:
        self.rows = None if queries is None else torch.as_tensor(queries.rows, device=like.device)
        self.trunk = tree.trunk if queries is None else queries.trunk
        self.mask = _additive(tree.mask if queries is None else queries.mask, like)
        stood = tree.position[: tree.trunk] if queries is None else tree.position[queries.rows[: queries.trunk]]
        self.trunk_mask = _additive(np.arange(tree.stem + tree.trunk) <= stood[:, None], like)


def _additive(seen: np.ndarray, like: Tensor) -> Tensor:
    """0 where a key is seen and minus infinity where it is not."""
    hidden = torch.as_tensor(~seen, device=like.device)
    return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill_(hidden, -torch.inf)


class _BoundTree:
    """A token tree bound to a tower: its indices on the device and the constants of the tower's weights."""

    def __init__(self, clip: FrozenClip, plan: TextPlan, tree: TokenTree) -> None:
        text, learned = clip.text, tree.slot >= 0
        self.tree, self.tower = tree, text.transformer.resblocks
        self.heads = int(self.tower[0].attn.num_heads)

        def on_device(array: np.ndarray) -> Tensor:
            return torch.as_tensor(array, device=clip.device)

        self.slots = on_device(np.nonzero(learned)[0])
        self.slot, self.owner = on_device(tree.slot[learned]), on_device(tree.owner[learned])
        places = text.positional_embedding[on_device(tree.position)].to(clip.dtype)
        self.place = places[self.slots]
        self.fixed = text.token_embedding(on_device(tree.token)) + places
        self.fixed_qkv = _qkv(self.tower[0], self.fixed)
        live = choose(tree, ~learned & (tree.owner >= 0))
        ends = choose(tree, np.isin(np.arange(len(tree.token)), tree.leaf))
        self.all = _View(tree, None, self.fixed)
        self.live = _View(tree, live, self.fixed)
        self.ends = _View(tree, ends, self.fixed)
        joined = live.place.copy()
        joined[learned] = len(live.rows) + np.arange(len(self.slots))
        self.joined = on_device(joined)
        self.leaf = on_device(ends.place[tree.leaf])
        self.constants = _constants(clip, plan, tree)

    def learned(self, prompts: Prompts, images: int, count: int) -> tuple[Tensor, dict[int, Tensor]]:
        """The rows of learned tokens [images·count, slots, d]: at the input and before each deep block."""

        def spread(tokens: Tensor) -> Tensor:
            classes, n, width = tokens.shape[2:]
            flat = (
                tokens.to(self.fixed.dtype)
                .expand(images, count, -1, -1, -1)
                .reshape(images * count, classes * n, width)
            )
            return flat.index_select(1, self.slot if classes == 1 else self.owner * n + self.slot)

        deep = {index: spread(tokens) for index, tokens in prompts.text_deep.items()}
        context = spread(_learned(prompts)[0]) + self.place
        if 0 in deep:  # the context is overwritten at once; its gradient is zero, not absent
            context = torch.where(torch.ones_like(context, dtype=torch.bool), deep[0], context)
        return context, deep

    def forward(self, context: Tensor, deep: dict[int, Tensor]) -> Tensor:
        """The last hidden state of every class's end token [groups, C, d]."""
        x: Tensor = self.fixed.expand(len(context), -1, -1).index_copy(1, self.slots, context)
        for index, block in enumerate(self.tower):
            last = index + 1 == len(self.tower)
            view = self.ends if last else self.live if index + 1 in deep else self.all
            if index == 0:
                qkv = self.fixed_qkv.expand(len(context), -1, -1).index_copy(1, self.slots, _qkv(block, context))
                q, kv = qkv.tensor_split([x.shape[-1]], -1)
                q = q if view.rows is None else q.index_select(1, view.rows)
            else:
                if index in deep:
                    x = torch.cat([x, deep[index]], 1).index_select(1, self.joined)
                q, kv = _project(block, x, view.rows)
            attended = self._attend(q, kv, *self.constants[index], view)
            x = x if view.rows is None else x.index_select(1, view.rows)
            x = x + block.ls_1(block.attn.out_proj(attended))
            x = x + block.ls_2(_mlp(block.mlp, block.ln_2(x)))
        return x.index_select(1, self.leaf)

    def _attend(self, q: Tensor, kv: Tensor, stem: Tensor, constants: Tensor, view: _View) -> Tensor:
        """Attention of a view's rows: trunk rows to the trunk, each block to the trunk, its constants and itself."""
        (groups, _, width), blocks, trunk = q.shape, len(self.tree.mask), self.tree.trunk
        shared = torch.cat([stem.expand(groups, -1, -1), kv[:, :trunk]], 1)
        parts = (
            shared[:, None].expand(-1, blocks, -1, -1),
            constants.expand(groups, -1, -1, -1),
            kv[:, trunk:].reshape(groups, blocks, -1, 2 * width),
        )
        query = q[:, view.trunk :].reshape(groups * blocks, -1, width)
        mask = view.mask.expand(groups, -1, -1, -1).flatten(0, 1)[:, None]
        own = self._heads(query, torch.cat(parts, 2).flatten(0, 1), mask).view(groups, -1, width)
        if view.trunk == 0:
            return own
        return torch.cat([self._heads(q[:, : view.trunk], shared, view.trunk_mask), own], 1)

    def _heads(self, q: Tensor, kv: Tensor, mask: Tensor) -> Tensor:
        """Multi-head attention of [b, q, d] to keys and values [b, k, 2d]."""
        batch, rows, width = q.shape
        query = q.view(batch, rows, self.heads, -1).transpose(1, 2)
        key, value = kv.view(batch, -1, 2, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2).reshape(q.shape)


def _qkv(block: Any, x: Tensor) -> Tensor:
    return F.linear(block.ln_1(x), block.attn.in_proj_weight, block.attn.in_proj_bias)


def _project(block: Any, x: Tensor, rows: Tensor | None) -> tuple[Tensor, Tensor]:
    """Queries of the chosen rows; keys and values, side by side, of all rows."""
    weight, bias, width = block.attn.in_proj_weight, block.attn.in_proj_bias, x.shape[-1]
    if rows is None:
        q, kv = _qkv(block, x).tensor_split([width], -1)
        return q, kv
    h = block.ln_1(x)
    return F.linear(h.index_select(1, rows), weight[:width], bias[:width]), F.linear(h, weight[width:], bias[width:])


def _mlp(module: Any, h: Tensor) -> Tensor:
    """The MLP; with QuickGELU the constant goes into the matrix products, which saves an operation and a tensor."""
    if type(module.gelu).__name__ != "QuickGELU":
        output: Tensor = module(h)
        return output
    flat = h.flatten(0, -2)
    inner = F.silu(torch.addmm(module.c_fc.bias, flat, module.c_fc.weight.T, alpha=QUICK, beta=QUICK))
    return torch.addmm(module.c_proj.bias, inner, module.c_proj.weight.T, alpha=1 / QUICK).view_as(h)


def _constants(clip: FrozenClip, plan: TextPlan, tree: TokenTree) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of the constant tokens at every layer: of the stem [t, 2d] and of the blocks [blocks, k, 2d]."""
    text, width = clip.text, clip.text_width
    classes = np.unique(np.append(tree.constants[..., 0], 0))
    length = max(tree.stem, int(tree.constants[..., 1].max(initial=0)) + 1)
    x = text.token_embedding(torch.as_tensor(plan.ids[classes, :length], device=clip.device))
    x = x + text.positional_embedding[:length].to(clip.dtype)
    which = torch.as_tensor(np.searchsorted(classes, tree.constants[..., 0]), device=clip.device)
    where = torch.as_tensor(tree.constants[..., 1], device=clip.device)
    result = []
    for block in text.transformer.resblocks:
        weight, bias = block.attn.in_proj_weight[width:], block.attn.in_proj_bias[width:]
        kv = F.linear(block.ln_1(x), weight, bias)
        result.append((kv[0, : tree.stem].clone(), kv[which, where]))
        x = block(x, attn_mask=text.attn_mask[:length, :length])
    return result
