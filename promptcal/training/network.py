"""How a whole image classifier is trained: optimiser, schedule, crops."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from promptcal.config import register
from promptcal.errors import ConfigError, unknown

CHOICES = {
    "algorithm": ("adamw", "sgd"),
    "schedule": ("cosine", "steps"),
    "decays": ("matrices", "all"),
    "crop": ("pad", "resized", "none"),
}


@register("training", "network")
@dataclass(frozen=True)
class NetworkTraining:
    """Training of a whole network; the validation images are measured after every epoch, by the test transform.

    The learning rate rises in equal steps over the warm-up epochs; then it is lr·½(1 + cos πt) with t from 0 at the end
    of the warm-up to 1 at the end (``cosine``), or lr·gamma^k after k ``milestones`` (``steps``).

    Attributes:
        epochs: passes over the training images, E.
        batch_size: images a step; the last smaller batch is dropped where there is more than one batch.
        lr: the learning rate after the warm-up.
        algorithm: ``adamw`` or ``sgd``.
        momentum: of SGD.
        nesterov: Nesterov's momentum.
        weight_decay: of the optimiser; decoupled in AdamW.
        decays: ``all`` tensors, or ``matrices`` alone: no bias, no normalisation, no single scale.
        schedule: ``cosine`` or ``steps``.
        milestones: epochs after which the rate of ``steps`` is multiplied by ``gamma``.
        gamma: that factor.
        warmup_epochs: epochs of the warm-up.
        clip_norm: the greatest norm of a step's whole gradient; 0 = no limit.
        crop: ``pad`` = the image padded with black and cut out at random, ``resized`` = the data card's random resized
            crop, ``none`` = the test transform; the flip is the card's with either crop.
        pad: pixels of padding on each side.
        accumulate: batches whose mean gradient makes one step.
        evaluate_every: also measure the targets every so many epochs; 0 = at the end alone.

    Raises:
        ConfigError: a number that cannot be, or an unknown choice.
    """

    epochs: int = 30
    batch_size: int = 64
    lr: float = 1e-3
    algorithm: str = "adamw"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.05
    decays: str = "matrices"
    schedule: str = "cosine"
    milestones: Sequence[int] = (150, 250)
    gamma: float = 0.1
    warmup_epochs: int = 2
    clip_norm: float = 1.0
    crop: str = "pad"
    pad: int = 4
    accumulate: int = 1
    evaluate_every: int = 0

    watches_validation: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate"):
            if getattr(self, name) < 1:
                raise ConfigError(f"training.{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("lr", "weight_decay", "warmup_epochs", "clip_norm", "pad"):
            if getattr(self, name) < 0:
                raise ConfigError(f"training.{name} is {getattr(self, name)}; it cannot be negative.")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ConfigError(unknown(f"training.{name}", getattr(self, name), known))

    def optimiser(
        self, parameters: Sequence[nn.Parameter], apart: Sequence[nn.Parameter] = ()
    ) -> torch.optim.Optimizer:
        """The optimiser of the learned tensors; it clips their gradient before each step, and ``apart`` by itself."""
        spared = [parameter for parameter in parameters if self.decays == "matrices" and parameter.ndim < 2]
        spared_ids = {id(parameter) for parameter in spared}
        decayed = [parameter for parameter in parameters if id(parameter) not in spared_ids]
        groups = [{"params": decayed, "weight_decay": self.weight_decay}, {"params": spared, "weight_decay": 0.0}]
        groups = [group for group in groups if group["params"]]
        optimiser: torch.optim.Optimizer
        if self.algorithm == "adamw":
            optimiser = torch.optim.AdamW(groups, lr=self.lr)
        else:
            optimiser = torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov)
        if self.clip_norm:
            apart_ids = {id(parameter) for parameter in apart}
            together = [parameter for parameter in parameters if id(parameter) not in apart_ids]
            optimiser.register_step_pre_hook(lambda *_: self._clip(together, apart))
        return optimiser

    def _clip(self, *groups: Sequence[nn.Parameter]) -> None:
        """Bound the norm of each group's gradient."""
        for group in groups:
            torch.nn.utils.clip_grad_norm_(group, self.clip_norm)

    def lr_at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        if epoch < self.warmup_epochs:
            return self.lr * (epoch + 1) / (self.warmup_epochs + 1)
        if self.schedule == "steps":
            return self.lr * self.gamma ** sum(epoch >= milestone for milestone in self.milestones)
        done = (epoch - self.warmup_epochs) / max(1, self.epochs - self.warmup_epochs)
        return self.lr * 0.5 * (1 + math.cos(math.pi * done))
