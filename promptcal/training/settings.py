"""How a learner is trained: optimiser, schedule, batches, views."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import nn

from promptcal.config import register
from promptcal.errors import ConfigError, unknown

ALGORITHMS = ("sgd", "adam")
"""The optimisers there are."""


@runtime_checkable
class Settings(Protocol):
    """What the training loop asks of its settings; ``Training`` says what the fields mean.

    ``watches_validation`` says that the validation images are measured after every epoch.
    """

    watches_validation: ClassVar[bool]

    @property
    def epochs(self) -> int:
        """Passes over the training images."""
        ...

    @property
    def batch_size(self) -> int:
        """Images a batch."""
        ...

    @property
    def accumulate(self) -> int:
        """Batches a step."""
        ...

    @property
    def evaluate_every(self) -> int:
        """Epochs between two measurements of the targets; 0 = at the end alone."""
        ...

    def optimiser(
        self, parameters: Sequence[nn.Parameter], apart: Sequence[nn.Parameter] = ()
    ) -> torch.optim.Optimizer:
        """The optimiser of the learned tensors.

        Args:
            parameters: all of them.
            apart: those of a head that is trained separately; nothing that joins gradients may mix them with others.
        """
        ...

    def lr_at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        ...


@register("training", "sgd")
@dataclass(frozen=True)
class Training:
    """Stochastic gradient descent, or Adam, with the schedule of the CoOp family.

    Attributes:
        epochs: passes over the few-shot images, E.
        batch_size: images a step; the last smaller batch is dropped where there is more than one batch.
        lr: learning rate of the recipe.
        lr_multiplier: multiplies ``lr``; a model whose logit scale is far below 100 has gradients that much smaller.
            Adam's steps do not depend on the size of gradients, so there it is not applied.
        momentum: of SGD.
        weight_decay: added to the gradient of every learned tensor, times the tensor.
        algorithm: ``sgd`` or ``adam`` (β = 0.9 and 0.999).
        epsilon: ε of Adam; TCP has 0.001.
        warmup_epochs: epochs at the constant ``warmup_lr``.
        warmup_lr: learning rate of the warm-up, not multiplied.
        accumulate: batches whose mean gradient makes one step; the published recipes have 1.
        evaluate_every: measure base and novel every so many epochs; ``0`` = at the end alone.
    """

    epochs: int = 50
    batch_size: int = 32
    lr: float = 0.002
    lr_multiplier: float = 1.0
    momentum: float = 0.9
    weight_decay: float = 5e-4
    algorithm: str = "sgd"
    epsilon: float = 1e-8
    warmup_epochs: int = 1
    warmup_lr: float = 1e-5
    accumulate: int = 1
    evaluate_every: int = 0

    watches_validation: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate"):
            if getattr(self, name) < 1:
                raise ConfigError(f"training.{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("lr", "lr_multiplier", "weight_decay", "momentum", "warmup_lr", "warmup_epochs", "evaluate_every"):
            if getattr(self, name) < 0:
                raise ConfigError(f"training.{name} is {getattr(self, name)}; it must not be negative.")
        if self.algorithm not in ALGORITHMS:
            raise ConfigError(unknown("training.algorithm", self.algorithm, ALGORITHMS))
        if not self.epsilon > 0:
            raise ConfigError(f"training.epsilon is {self.epsilon}; it must be positive.")

    def optimiser(
        self, parameters: Sequence[nn.Parameter], apart: Sequence[nn.Parameter] = ()
    ) -> torch.optim.Optimizer:
        """The optimiser of the learned tensors; it treats each by itself."""
        del apart
        if self.algorithm == "adam":
            return torch.optim.Adam(parameters, lr=self.lr, eps=self.epsilon, weight_decay=self.weight_decay)
        return torch.optim.SGD(parameters, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)

    def lr_at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0.

        Warm-up epochs run at ``warmup_lr``. After W warm-up epochs, epoch e runs at
        lr·½(1 + cos(π·(e − W)/E)): the cosine is delayed by the warm-up and never reaches 0, as in the released code,
        whose scheduler restarts its count after the warm-up.
        """
        if epoch < self.warmup_epochs:
            return self.warmup_lr
        peak = self.lr if self.algorithm == "adam" else self.lr * self.lr_multiplier
        return peak * 0.5 * (1 + math.cos(math.pi * (epoch - self.warmup_epochs) / self.epochs))


@register("features", "cached")
@dataclass(frozen=True)
class Features:
    """Which views of the training images a method is shown, where the image tower stays frozen.

    Attributes:
        views: augmented views an image, encoded once and reused by every run that shares them. ``null``, the default,
            is one view an epoch: the published random crops and flips in distribution. A smaller number shows each
            view several times; ``0`` is the centre crop alone. Both are faster and another recipe.
        view_seed: seed of the augmentations; ``null`` = the run's own seed, a number = shared by all runs.
    """

    views: int | None = None
    view_seed: int | None = None

    def __post_init__(self) -> None:
        if self.views is not None and self.views < 0:
            raise ConfigError(f"features.views is {self.views}; give 0 (centre crop), a number of views, or null.")

    def count(self, epochs: int) -> int:
        """How many different augmented views a run of ``epochs`` sees; 0 stands for the centre crop."""
        return epochs if self.views is None else min(self.views, epochs)
