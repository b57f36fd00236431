"""What is deployed of a training: its last epoch, an average over the epochs, or the best on validation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from promptcal.config import register
from promptcal.errors import ConfigError, unknown

Tensors = Mapping[str, Tensor]


@runtime_checkable
class Averaging(Protocol):
    """Folds the learned tensors of each epoch into those that will be deployed; nothing kept = the last epoch's.

    ``reads_validation`` says that the history must hold ``val_nll``, ``val_accuracy`` and ``val_ece`` of each epoch.
    """

    @property
    def reads_validation(self) -> bool:
        """Whether base validation images are measured after each epoch."""
        ...

    def fold(self, kept: Tensors, current: Tensors, history: Sequence[Mapping[str, Any]], epochs: int) -> Tensors:
        """What is kept after an epoch.

        Args:
            kept: what was kept before; empty at the first epoch.
            current: the learned tensors now.
            history: a row for each epoch so far, this one included.
            epochs: how many there will be.
        """
        ...


@register("averaging", "none")
@dataclass(frozen=True)
class LastEpoch:
    """The learned tensors after the last epoch, as the CoOp family deploys them."""

    reads_validation: ClassVar[bool] = False

    def fold(self, kept: Tensors, current: Tensors, history: Sequence[Mapping[str, Any]], epochs: int) -> Tensors:
        """Keeps nothing."""
        del kept, current, history, epochs
        return {}


@register("averaging", "gaussian")
@dataclass(frozen=True)
class Gaussian:
    """The mean of the epochs' tensors, weighted by a Gaussian over the epochs.

    θ = Σ_e w_e θ_e with w_e ∝ exp(−(e − mean)²/(2·std²)), e = 1 … E, Σ_e w_e = 1; summed in float64.

    Args:
        mean: the epoch that counts most: 15 of 20 for base-to-novel in PromptSRC.
        std: in epochs; 1 there.

    Raises:
        ConfigError: a standard deviation that is not positive, or no epoch near enough to the mean to count.

    References:
        Khattak, Wasim, Naseer, Khan, Yang, Khan, "Self-regulating Prompts: Foundational Model Adaptation without
        Forgetting", ICCV 2023, arXiv 2307.06948. Deviations: learned tensors alone are averaged, where the released
        code sums the whole model's, its frozen float16 weights among them; a resumed training averages, too.
    """

    mean: float = 15.0
    std: float = 1.0
    reads_validation: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.std > 0:
            raise ConfigError(f"averaging.std is {self.std}; it must be positive.")

    def weights(self, epochs: int) -> list[float]:
        """w_e of the epochs 1 … E."""
        heights = [math.exp(-((epoch - self.mean) ** 2) / (2 * self.std**2)) for epoch in range(1, epochs + 1)]
        total = sum(heights)
        if total == 0:
            raise ConfigError(
                f"averaging.mean is {self.mean:g} with std {self.std:g}: no epoch of {epochs} counts; choose a mean "
                f"among the epochs."
            )
        return [height / total for height in heights]

    def fold(self, kept: Tensors, current: Tensors, history: Sequence[Mapping[str, Any]], epochs: int) -> Tensors:
        """Adds this epoch's share."""
        weight = self.weights(epochs)[len(history) - 1]
        return {name: weight * tensor.double() + kept.get(name, 0.0) for name, tensor in current.items()}


@register("averaging", "ema")
@dataclass(frozen=True)
class ExponentialMovingAverage:
    """The exponential moving average over epoch ends: θ̄ ← decay·θ̄ + (1 − decay)·θ, from the first epoch's θ; float64.

    Args:
        decay: in [0, 1); 0 is the last epoch.

    Raises:
        ConfigError: a decay outside [0, 1).
    """

    decay: float = 0.9
    reads_validation: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ConfigError(f"averaging.decay is {self.decay}; it must be in [0, 1).")

    def fold(self, kept: Tensors, current: Tensors, history: Sequence[Mapping[str, Any]], epochs: int) -> Tensors:
        """Moves the average towards this epoch."""
        del history, epochs
        return {
            name: self.decay * kept.get(name, tensor.double()) + (1 - self.decay) * tensor.double()
            for name, tensor in current.items()
        }


LOWER_IS_BETTER = {"nll": True, "accuracy": False, "ece": True}


@register("averaging", "best_on_val")
@dataclass(frozen=True)
class BestOnValidation:
    """The epoch that is best on the base validation images; of equals, the earliest.

    This is model selection: calibrators that are fitted on the same images see them twice, and a run says so.

    Args:
        metric: ``nll``, ``accuracy`` or ``ece`` (15 equal-width bins).

    Raises:
        ConfigError: another metric.
    """

    metric: str = "nll"
    reads_validation: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.metric not in LOWER_IS_BETTER:
            raise ConfigError(unknown("averaging.metric", self.metric, LOWER_IS_BETTER))

    def fold(self, kept: Tensors, current: Tensors, history: Sequence[Mapping[str, Any]], epochs: int) -> Tensors:
        """Keeps this epoch where it beats all before it."""
        del epochs
        sign = 1 if LOWER_IS_BETTER[self.metric] else -1
        *before, now = (sign * float(row[f"val_{self.metric}"]) for row in history)
        return {name: tensor.clone() for name, tensor in current.items()} if all(now < b for b in before) else kept
