"""How the gradients of several loss terms become one: their sum, or ProGrad's projection."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from promptcal.config import register
from promptcal.errors import ConfigError, unknown


@runtime_checkable
class GradientRule(Protocol):
    """Adds the gradient of a batch to ``.grad`` of each learned tensor."""

    def check(self, terms: Sequence[str]) -> None:
        """Refuse, before training, terms that the rule cannot work on.

        Raises:
            ConfigError: a term that the rule needs is missing.
        """
        ...

    def __call__(self, weighted: Mapping[str, Tensor], parameters: Sequence[Tensor]) -> None:
        """Add the gradient of this batch.

        Args:
            weighted: scalar value of each term, times its weight.
            parameters: the learned tensors.
        """
        ...


@register("gradient_rule", "sum")
@dataclass(frozen=True)
class Sum:
    """The gradient of the weighted sum of all terms."""

    def check(self, terms: Sequence[str]) -> None:
        """Any terms will do."""
        del terms

    def __call__(self, weighted: Mapping[str, Tensor], parameters: Sequence[Tensor]) -> None:
        """One backward pass."""
        del parameters
        torch.stack(list(weighted.values())).sum().backward()  # type: ignore[no-untyped-call]


@register("gradient_rule", "prograd")
@dataclass(frozen=True)
class ProGrad:
    """Prompt-aligned gradient: what works against the general knowledge is taken out of the gradient.

    For each learned tensor, with g_A the gradient of all other terms and g_B that of the ``guide``:

        g = g_A                                     where ⟨g_A, g_B⟩ ≥ 0
        g = g_A − λ·⟨g_A, ĝ_B⟩·ĝ_B, ĝ_B = g_B/‖g_B‖   otherwise.

    The guide's weight does not matter: its gradient gives a direction alone.

    Args:
        guide: the name of the term whose gradient guides, as in the recipe.
        strength: λ, 1.0 in the paper.

    Raises:
        ConfigError: no term of the guide's name, or no other term.

    References:
        Zhu, Niu, Han, Wu, Zhang, "Prompt-aligned Gradient for Prompt Tuning", ICCV 2023, arXiv 2205.14865.
        Deviation: where ‖g_B‖ = 0 the gradient is g_A; the released code divides by zero.
    """

    guide: str = "distillation"
    strength: float = 1.0

    def check(self, terms: Sequence[str]) -> None:
        """There must be the guide and something to guide."""
        if self.guide not in terms:
            raise ConfigError(unknown("gradient_rule.guide", self.guide, list(terms)))
        if len(terms) < 2:
            raise ConfigError(f"'{self.guide}' is the only loss term; ProGrad needs another one to guide.")

    def __call__(self, weighted: Mapping[str, Tensor], parameters: Sequence[Tensor]) -> None:
        """Two backward passes through one forward pass."""
        others = torch.stack([value for name, value in weighted.items() if name != self.guide]).sum()
        task: tuple[Tensor | None, ...] = torch.autograd.grad(others, parameters, retain_graph=True, allow_unused=True)
        general: tuple[Tensor | None, ...] = torch.autograd.grad(weighted[self.guide], parameters, allow_unused=True)
        for parameter, g_task, g_general in zip(parameters, task, general, strict=True):
            if g_task is None:
                continue
            gradient = g_task if g_general is None else self.project(g_task, g_general)
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    def project(self, task: Tensor, general: Tensor) -> Tensor:
        """The gradient of one tensor from g_A and g_B."""
        unit = general / general.norm().clamp_min(torch.finfo(general.dtype).tiny)
        along = (task * unit).sum()
        gradient: Tensor = task - self.strength * along.clamp_max(0) * unit
        return gradient
