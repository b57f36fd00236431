"""Relevance rules: operations whose backward pass hands relevance, not gradients, to their inputs.

Layer-wise relevance propagation as Chefer, Gur and Wolf, "Transformer Interpretability Beyond Attention Visualization",
CVPR 2021, arXiv 2012.09838, apply it to transformers. Under these rules ``torch.autograd.grad`` of the logits, started
with 1 at a class, is the relevance of each tensor for that class; a tensor that is used twice collects the sum of what
its uses hand back. A signal is a tensor that requires a gradient; everything else, learned weights included, is
constant. The first axis of every signal is the batch.

Deviation: the sums that the residual rule keeps are those of each image; the released code takes them over the batch,
so that its relevance of an image depends on the images beside it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

EPSILON = 1e-9
"""The stabiliser of divisions, as in the released code."""

KEEPING = frozenset(
    {"softmax", "layer_norm", "rms_norm", "gelu", "silu", "relu", "sigmoid", "tanh", "hardswish", "dropout", "neg"}
)
"""Operations on one signal, element by element or near it, through which relevance passes unchanged."""

# fmt: off
ROUTING = frozenset({
    "amax", "broadcast_tensors", "cat", "chunk", "clone", "concat", "contiguous", "detach", "double", "expand",
    "expand_as", "flatten", "flip", "float", "gather", "get", "getitem", "index_select", "movedim", "narrow", "permute",
    "repeat", "repeat_interleave", "reshape", "roll", "select", "split", "squeeze", "stack", "swapaxes", "to",
    "transpose", "type_as", "unbind", "unflatten", "unsqueeze", "view", "view_as",
})
# fmt: on
"""Operations that move values about; their gradient is where relevance came from."""

IN_PLACE = {"__iadd__": "add", "add_": "add", "__isub__": "sub", "sub_": "sub", "__imul__": "mul", "mul_": "mul"}
"""Operations that change their input, and those that give the same result beside it."""


def safe_divide(a: Tensor, b: Tensor) -> Tensor:
    """The quotient a / (b ± 1e-9), the sign that of b; 0 where b is 0."""
    return torch.where(b == 0, torch.zeros_like(a), a / (b + EPSILON * b.sign()))


class _Linear(Function):
    """The α-rule with α = 1: R_in = x⁺ ⊙ (S W⁺) + x⁻ ⊙ (S W⁻) with S = R / (x⁺W⁺ᵀ + x⁻W⁻ᵀ); the bias takes none.

    The relevance of an output to which no input contributes positively goes nowhere.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None]:
        x, weight = ctx.saved_tensors
        above, below = x.clamp(min=0), x.clamp(max=0)
        positive, negative = weight.clamp(min=0), weight.clamp(max=0)
        share = safe_divide(relevance, above @ positive.T + below @ negative.T)
        return above * (share @ positive) + below * (share @ negative), None, None


class _Product(Function):
    """The z-rule of a matrix product of two signals, halved: R_a = ½ a ⊙ (S bᵀ), R_b = ½ b ⊙ (aᵀ S), S = R / (a b)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        share = safe_divide(relevance, a @ b) / sum(ctx.needs_input_grad)  # a constant factor takes none of it
        of_a, of_b = ctx.needs_input_grad
        return (
            (a * (share @ b.mT)).sum_to_size(a.shape) if of_a else None,
            (b * (a.mT @ share)).sum_to_size(b.shape) if of_b else None,
        )


class _Residual(Function):
    """The z-rule of a sum of two signals, rescaled to conserve, image by image.

    The parts a′ = a R/(a+b) and b′ = b R/(a+b) are rescaled so that their sums are to one another as |Σa′| to |Σb′| and
    add up to ΣR: a′ is multiplied by sign(Σa′) ΣR / (|Σa′| + |Σb′|), at most 1 in size.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a + b

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        share = safe_divide(relevance, a + b)
        parts = (a * share, b * share)
        sums = [_per_image(part) for part in parts]
        factor = safe_divide(_per_image(relevance), sums[0].abs() + sums[1].abs())
        return parts[0] * sums[0].sign() * factor, parts[1] * sums[1].sign() * factor


class _Gate(Function):
    """A product of two signals element by element, such as a gate: half of the relevance to each."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, Tensor]:
        return relevance / 2, relevance / 2


class _Total(Function):
    """The z-rule of a sum or mean over axes, kept as axes of length 1: R_in = x R / Σx."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axes: tuple[int, ...], mean: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.axes = axes
        return x.mean(axes, keepdim=True) if mean else x.sum(axes, keepdim=True)

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return x * safe_divide(relevance, x.sum(ctx.axes, keepdim=True)), None, None


class _Kept(Function):
    """A value computed elsewhere, whose relevance passes to the signal unchanged."""

    @staticmethod
    def forward(ctx: Any, signal: Tensor, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None]:
        return relevance, None


def is_signal(value: object) -> bool:
    """Whether relevance is to reach this operand: a tensor that requires a gradient."""
    return isinstance(value, Tensor) and value.requires_grad


def _per_image(relevance: Tensor) -> Tensor:
    """The sum over all axes but the first, kept as axes of length 1."""
    return relevance.sum(dim=tuple(range(1, relevance.ndim)), keepdim=True)


def _keep(operation: Callable[..., Any], signal: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The operation on ``args``, of which only ``signal`` is one; its relevance is that of the result."""
    with torch.no_grad():
        value = operation(*args, **kwargs)
    signal = signal if signal.shape == value.shape else signal.expand_as(value)
    return _Kept.apply(signal, value)  # type: ignore


def _pair(operation: Callable[..., Any], rule: type[Function] | None) -> Callable[..., Tensor]:
    """An operation on two operands, element by element: ``rule`` where both are signals, kept where one is."""

    def ruled(input: Any, other: Any) -> Tensor:
        signals = [operand for operand in (input, other) if is_signal(operand)]
        if len(signals) == 1:
            return _keep(operation, signals[0], input, other)
        if rule is None:
            raise NoRule
        return rule.apply(*torch.broadcast_tensors(input, other))  # type: ignore

    return ruled


def _difference(input: Any, other: Any) -> Tensor:
    """The difference a − b, as the sum of a and −b."""
    return _add(input, _keep(torch.neg, other, other) if is_signal(other) else -other)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _Linear.apply(input, weight, bias)  # type: ignore


def _matmul(input: Tensor, other: Tensor) -> Tensor:
    return _Product.apply(input, other)  # type: ignore


def _total(mean: bool) -> Callable[..., Tensor]:
    """A sum or mean over some axes."""

    def ruled(input: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
        axes = (dim,) if isinstance(dim, int) else tuple(dim)
        total: Tensor = _Total.apply(input, axes, mean)
        return total if keepdim else total.squeeze(axes)

    return ruled


_add = _pair(torch.add, _Residual)

RULES: Mapping[str, Callable[..., Tensor]] = {
    "linear": _linear,
    "matmul": _matmul,
    "bmm": _matmul,
    "add": _add,
    "sub": _difference,
    "mul": _pair(torch.mul, _Gate),
    "div": _pair(torch.div, None),
    "truediv": _pair(torch.div, None),
    "sum": _total(mean=False),
    "mean": _total(mean=True),
}
"""The operations with a rule of their own, by name."""


class NoRule(Exception):
    """An operation on signals through which no rule carries relevance."""


def apply_rule(operation: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The result of a torch operation, whose backward pass is its relevance rule.

    Raises:
        NoRule: the operation mixes signals in a way that has no rule.
    """
    given = operation.__name__
    name = IN_PLACE.get(given, given.strip("_"))
    signals = [value for value in (*args, *kwargs.values()) if is_signal(value)]
    if signals and name in RULES:
        return RULES[name](*args, **kwargs)
    if signals and name in KEEPING:
        return _keep(operation, signals[0], *args, **kwargs)
    result = operation(*args, **kwargs)
    parts = result if isinstance(result, tuple | list) else (result,)
    if name not in ROUTING and any(is_signal(part) for part in parts):
        raise NoRule(given)
    return result
