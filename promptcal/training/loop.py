"""The training loop: learned tensors in, learned tensors out, one row of history an epoch."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from promptcal.errors import NumericalError
from promptcal.learners.contract import begin_epoch
from promptcal.losses.contract import LossTerm, check_terms
from promptcal.precision import autocast
from promptcal.training.averaging import Averaging, LastEpoch
from promptcal.training.batches import Batches
from promptcal.training.gradient_rules import GradientRule, Sum
from promptcal.training.settings import Settings
from promptcal.training.state import TrainingState, capture
from promptcal.types import Batch, ClassNames, Outputs


@runtime_checkable
class Trainable(Protocol):
    """What the loop asks of a model that is bound to its classes."""

    @property
    def classes(self) -> ClassNames:
        """The classes it tells apart."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    @property
    def learner(self) -> Any:
        """The module whose parameters are learned."""
        ...

    def __call__(self, batch: Batch, needs: AbstractSet[str] = frozenset()) -> Outputs:
        """Classify a batch, with what the terms need."""
        ...


@dataclass(frozen=True)
class Recipe:
    """How a batch becomes a step, and which tensors are deployed in the end.

    Attributes:
        terms: loss terms by name; their weights are their own.
        gradient_rule: how their gradients become one.
        averaging: what is deployed.
        precision: ``float32``, or autocast in ``bfloat16`` or ``float16``.
    """

    terms: Mapping[str, LossTerm]
    gradient_rule: GradientRule = field(default_factory=Sum)
    averaging: Averaging = field(default_factory=LastEpoch)
    precision: str = "float32"

    @property
    def needs(self) -> frozenset[str]:
        """What the terms ask of the model."""
        return frozenset().union(*(term.needs for term in self.terms.values()))


def fit(
    bound: Trainable,
    batches: Batches,
    recipe: Recipe,
    settings: Settings,
    *,
    seed: int = 0,
    on_epoch: Callable[[dict[str, Any]], None] = lambda row: None,
    resume: TrainingState | None = None,
    keep: Callable[[TrainingState], None] = lambda state: None,
) -> list[dict[str, Any]]:
    """Train the learner of a bound classifier and leave in it what the recipe deploys.

    Args:
        bound: the classifier bound to the training classes; its learner is changed in place.
        batches: the training set.
        recipe: loss terms, gradient rule, averaging, precision.
        settings: optimiser and schedule.
        seed: with the epoch it decides what layers draw at random, such as dropout.
        on_epoch: called with the row of history after each epoch.
        resume: go on from here; the result is, bit for bit, that of a training that was never stopped.
        keep: called with the state of the training after each epoch, once ``on_epoch`` has completed its row.

    Returns:
        The history: epoch, learning rate, steps, and the mean of each term, the total and the accuracy of the batches.

    Raises:
        NumericalError: a term or a gradient became NaN or infinite; says the step and the name.
        ConfigError: terms, rule or precision that cannot be.
    """
    learner = bound.learner
    check_terms(recipe.terms, learns_text=learner.learns_text, n_classes=len(bound.classes))
    recipe.gradient_rule.check(list(recipe.terms))
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    separate = learner.head is not None and learner.head.mode == "separate"
    optimiser = settings.optimiser(parameters, list(learner.head.parameters()) if separate else [])
    scaler = torch.amp.GradScaler(bound.device.type, enabled=recipe.precision == "float16")
    started = time.perf_counter() - (resume.seconds if resume else 0.0)
    history = resume.restore(learner, optimiser, scaler) if resume else []
    kept = dict(resume.kept) if resume else {}
    learner.train()
    for epoch in range(len(history), settings.epochs):
        rate = settings.lr_at(epoch)
        for group in optimiser.param_groups:
            group["lr"] = rate
        begin_epoch(learner, epoch)
        sums: dict[str, float] = {}
        with torch.random.fork_rng([bound.device] if bound.device.type == "cuda" else []):
            torch.manual_seed((seed * 1_000_003 + epoch) % 2**63)
            for step, batch_group in enumerate(_groups(batches.epoch(epoch), settings.accumulate)):
                where = f"epoch {epoch + 1}, step {step + 1}"
                for name, value in _step(bound, batch_group, recipe, parameters, optimiser, scaler, where).items():
                    sums[name] = sums.get(name, 0.0) + value / batches.steps
        row = {"epoch": epoch + 1, "lr": rate, "steps": -(-batches.steps // settings.accumulate), **sums}
        history.append(row)
        on_epoch(row)
        kept = dict(recipe.averaging.fold(kept, learner.state_dict(), history, settings.epochs))
        keep(capture(learner, optimiser, scaler, history, kept, time.perf_counter() - started))
    if kept:
        learner.load_state_dict(kept)
    learner.eval()
    return history


def _groups(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    """The batches of each optimisation step; the last group of an epoch may be smaller."""
    while group := list(islice(batches, size)):
        yield group


def _step(
    bound: Trainable,
    group: Sequence[Batch],
    recipe: Recipe,
    parameters: Sequence[nn.Parameter],
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    where: str,
) -> dict[str, float]:
    """One optimisation step on the mean over its batches; returns sums over them of each term, total and accuracy."""
    optimiser.zero_grad(set_to_none=True)
    numbers: dict[str, float] = {}
    for batch in group:
        with autocast(bound.device, recipe.precision):
            outputs = bound(batch, recipe.needs)
        values = {name: term(outputs, batch.labels) for name, term in recipe.terms.items()}
        weighted = {name: recipe.terms[name].weight * value for name, value in values.items()}
        if outputs.apart is not None:
            apart = {name: term(outputs.apart, batch.labels) for name, term in recipe.terms.items()}
            apart = {name: value for name, value in apart.items() if value.requires_grad}  # terms that see the head
            values |= {f"head_{name}": value for name, value in apart.items()}
            weighted |= {f"head_{name}": recipe.terms[name].weight * value for name, value in apart.items()}
        for name, value in values.items():
            require_finite(value, f"{where}: the loss term '{name}'")
        recipe.gradient_rule({name: scaler.scale(value / len(group)) for name, value in weighted.items()}, parameters)
        accuracy = (outputs.logits.argmax(dim=1) == batch.labels).double().mean()
        for name, number in {
            **values,
            "total": torch.stack(list(weighted.values())).sum(),
            "accuracy": accuracy,
        }.items():
            numbers[name] = numbers.get(name, 0.0) + float(number.detach())
    scaler.unscale_(optimiser)
    if not scaler.is_enabled():
        for name, parameter in bound.learner.named_parameters():
            if parameter.grad is not None:
                require_finite(parameter.grad, f"{where}: the gradient of '{name}'")
    scaler.step(optimiser)
    scaler.update()
    return numbers


def require_finite(value: Tensor, what: str) -> None:
    """Stop with a sentence where a NaN or an infinity appears.

    Raises:
        NumericalError: names ``what`` and the number.
    """
    if not bool(torch.isfinite(value).all()):
        kind = "NaN" if bool(torch.isnan(value).any()) else "infinite"
        raise NumericalError(f"{what} is {kind}; lower training.lr, check the inputs, or use precision=float32.")
