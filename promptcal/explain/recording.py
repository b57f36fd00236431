"""One recorded pass through a timm vision transformer: its tokens, attention maps and classifier inputs.

timm computes attention in one fused call and its families of models (ViT, DeiT with its distillation token, EVA with
rotary positions and gated layers, …) write their blocks differently. Instead of copying their forward methods, a pass
runs the model itself under a torch function mode, which sees every operation.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from promptcal.errors import ConfigError, unknown
from promptcal.explain.rules import NoRule, apply_rule

FOLLOW = ("tokens", "values", "gradient", "relevance")


@dataclass(frozen=True)
class Pass:
    """What one pass through a vision transformer of L blocks showed; N tokens of width D.

    Attributes:
        logits: [b, C].
        tokens: L + 1 tensors [b, N, D]: at the input of each block and after the last one.
        attention: for each block its attention maps [b, heads, N, N], rows sum to 1; most blocks have one.
        features: the inputs [b, D] of the classifier; a distilled DeiT has two.
        options: for each block the keyword arguments that it was called with, such as rotary positions.
    """

    logits: Float[Tensor, "b C"]
    tokens: tuple[Float[Tensor, "b N D"], ...]
    attention: tuple[tuple[Tensor, ...], ...]
    features: tuple[Float[Tensor, "b D"], ...]
    options: tuple[Mapping[str, Any], ...]

    def maps(self) -> tuple[Tensor, ...]:
        """The attention map of each block.

        Raises:
            ConfigError: a block without attention or with several maps, for which rollout is not defined.
        """
        for index, found in enumerate(self.attention, start=1):
            if len(found) != 1:
                raise ConfigError(
                    f"block {index} has {len(found)} attention maps; a rollout needs blocks with exactly one."
                )
        return tuple(found[0] for found in self.attention)


def record(model: nn.Module, pixels: Float[Tensor, "b c h w"], *, follow: str = "values") -> Pass:
    """Run the model on some images in evaluation mode and record the pass.

    Args:
        model: a timm vision transformer; its modes and its gradients are as before afterwards.
        pixels: transformed images.
        follow: ``values`` = no gradient, and the fused attention stays what the model computes with; ``tokens`` = the
            same without the attention maps; ``gradient`` = the recorded tensors are in the graph of the logits;
            ``relevance`` = so they are, and backward passes follow the rules of ``promptcal.explain.rules``.

    Raises:
        ConfigError: a model without blocks, attention or classifier of its own, or an operation without a rule; named.
    """
    if follow not in FOLLOW:
        raise ConfigError(unknown("follow", follow, FOLLOW))
    blocks = blocks_of(model)
    recorder = _Recorder(type(model).__name__, blocks, follow)
    with ExitStack() as undo:
        undo.enter_context(_still(model))
        undo.enter_context(torch.set_grad_enabled(recorder.derives))
        if recorder.derives:
            undo.enter_context(torch.autocast(pixels.device.type, enabled=False))
        for index, block in enumerate(blocks):
            undo.callback(block.register_forward_pre_hook(recorder.entering(index), with_kwargs=True).remove)
            undo.callback(block.register_forward_hook(recorder.leaving(index)).remove)
        for classifier in classifiers_of(model):
            undo.callback(classifier.register_forward_pre_hook(recorder.classify).remove)
        if follow != "tokens":
            undo.enter_context(recorder)
        logits = model(pixels)
    return Pass(
        logits,
        tuple(recorder.tokens),
        tuple(tuple(found) for found in recorder.attention),
        tuple(recorder.features),
        tuple(recorder.options),
    )


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of a vision transformer, in order.

    Raises:
        ConfigError: the model keeps no single sequence of tokens through its blocks (Swin's windows, a CNN's maps).
    """
    blocks = getattr(model, "blocks", None)
    prefix = getattr(model, "num_prefix_tokens", None)
    if not isinstance(blocks, nn.Sequential | nn.ModuleList) or prefix is None or not hasattr(model, "forward_head"):
        raise ConfigError(
            f"{type(model).__name__} does not keep one sequence of tokens through its blocks; choose a timm ViT, DeiT, "
            f"FlexiViT or EVA."
        )
    return list(blocks)


def classifiers_of(model: nn.Module) -> tuple[nn.Linear, ...]:
    """The linear classifiers of a timm model: one, or two of a distilled DeiT, whose logits are averaged.

    Raises:
        ConfigError: a model without classifier.
    """
    found = model.get_classifier()  # type: ignore[operator]
    layers = found if isinstance(found, tuple) else (found,)
    if not all(isinstance(layer, nn.Linear) for layer in layers):
        raise ConfigError(f"this {type(model).__name__} has no linear classifier; create it with num_classes above 0.")
    return layers


@contextmanager
def _still(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, without gradients of its weights or recomputed blocks; afterwards as before."""
    training = [(module, module.training) for module in model.modules()]
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    checkpointing = getattr(model, "grad_checkpointing", False)
    model.eval()
    model.requires_grad_(False)
    if checkpointing:
        model.set_grad_checkpointing(False)  # type: ignore[operator]
    try:
        yield
    finally:
        for module, mode in training:
            module.training = mode
        for parameter in learned:
            parameter.requires_grad_(True)
        if checkpointing:
            model.set_grad_checkpointing(True)  # type: ignore[operator]


class _Recorder(TorchFunctionMode):
    """Sees every operation of the blocks and of what follows them."""

    def __init__(self, model: str, blocks: list[nn.Module], follow: str) -> None:
        super().__init__()
        self.model, self.follow = model, follow
        self.names = [type(block).__name__ for block in blocks]
        self.derives = follow in ("gradient", "relevance")
        self.block: int | None = None
        self.started = False
        self.tokens: list[Tensor] = []
        self.attention: list[list[Tensor]] = [[] for _ in blocks]
        self.features: list[Tensor] = []
        self.options: list[Mapping[str, Any]] = []

    def entering(self, index: int) -> Callable[..., Any]:
        """A hook before a block; the tokens before the first one start the graph."""

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            tokens = args[0]
            if not self.started and self.derives:
                tokens = tokens.detach().requires_grad_()
            self.started, self.block = True, index
            self.tokens.append(tokens)
            self.options.append(dict(kwargs))
            return (tokens, *args[1:]), kwargs

        return hook

    def leaving(self, index: int) -> Callable[..., None]:
        """A hook after a block."""

        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            self.block = None
            if index == len(self.names) - 1:
                self.tokens.append(output)

        return hook

    def classify(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """A hook before a classifier."""
        self.features.append(args[0])

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if not self.started or (self.block is None and self.follow != "relevance"):
            return func(*args, **kwargs)
        if name == "scaled_dot_product_attention":
            if self.follow == "values":
                self._keep_map(_weights(*args, **kwargs))
                return func(*args, **kwargs)
            with self:  # its operations one by one, so that each has its gradient or rule
                return _attention(*args, **kwargs)
        result = self._ruled(func, args, kwargs) if self.follow == "relevance" else func(*args, **kwargs)
        if name == "softmax":
            self._keep_map(result)
        return result

    def _keep_map(self, weights: Tensor) -> None:
        if self.block is not None:
            self.attention[self.block].append(weights)

    def _ruled(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return apply_rule(func, args, kwargs)
        except NoRule as error:
            where = "after its blocks" if self.block is None else f"in block {self.block + 1}, {self.names[self.block]}"
            raise ConfigError(
                f"{self.model} uses the operation '{func.__name__}' {where}, through which no rule carries relevance; "
                f"attention rollout may still do."
            ) from error


def _weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """The attention map softmax(scale · query keyᵀ + mask) of torch's fused attention; without dropout."""
    scores = query * (query.shape[-1] ** -0.5 if scale is None else scale) @ key.mT
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=scores.dtype).masked_fill(~attn_mask, float("-inf"))
    return (scores if attn_mask is None else scores + attn_mask).softmax(dim=-1)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """The fused attention of torch, operation by operation."""
    return _weights(query, key, value, attn_mask, dropout_p, is_causal, scale) @ value
