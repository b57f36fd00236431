"""The training loop: learned tensors in, learned tensors out, one row of history an epoch."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from promptcal.errors import NumericalError
from promptcal.losses.contract import LossTerm, check_terms, weighted_sum
from promptcal.models.classifier import BoundClassifier
from promptcal.precision import autocast
from promptcal.training.batches import Batches
from promptcal.training.settings import Training
from promptcal.training.state import TrainingState, capture
from promptcal.types import Batch


def fit(
    bound: BoundClassifier,
    batches: Batches,
    terms: Mapping[str, LossTerm],
    settings: Training,
    *,
    precision: str = "float32",
    on_epoch: Callable[[dict[str, Any]], None] = lambda row: None,
    resume: TrainingState | None = None,
    keep: Callable[[TrainingState], None] = lambda state: None,
) -> list[dict[str, Any]]:
    """Train the learner of a bound classifier; the last epoch is what is deployed, without model selection.

    Args:
        bound: the classifier bound to the training classes; its learner is changed in place.
        batches: the training set.
        terms: loss terms by name; their weighted sum is minimised.
        settings: optimiser and schedule.
        precision: ``float32``, or autocast in ``bfloat16`` or ``float16``.
        on_epoch: called with the row of history after each epoch.
        resume: go on from here; the result is, bit for bit, that of a training that was never stopped.
        keep: called with the state of the training after each epoch, once ``on_epoch`` has completed its row.

    Returns:
        The history: epoch, learning rate, steps, and the mean of each term, the total and the accuracy of the batches.

    Raises:
        NumericalError: a term or a gradient became NaN or infinite; says the step and the name.
        ConfigError: terms or precision that cannot be.
    """
    learner = bound.learner
    check_terms(terms, learns_text=learner.learns_text, n_classes=len(bound.classes))
    needs = frozenset().union(*(term.needs for term in terms.values()))
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    optimiser = torch.optim.SGD(
        parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    scaler = torch.amp.GradScaler(bound.clip.device.type, enabled=precision == "float16")
    started = time.perf_counter() - (resume.seconds if resume else 0.0)
    history = resume.restore(learner, optimiser, scaler) if resume else []
    learner.train()
    for epoch in range(len(history), settings.epochs):
        rate = settings.lr_at(epoch)
        for group in optimiser.param_groups:
            group["lr"] = rate
        sums: dict[str, float] = {}
        for step, batch in enumerate(batches.epoch(epoch)):
            where = f"epoch {epoch + 1}, step {step + 1}"
            values = _step(bound, batch, terms, needs, optimiser, scaler, precision, where)
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value / batches.steps
        row = {"epoch": epoch + 1, "lr": rate, "steps": batches.steps, **sums}
        history.append(row)
        on_epoch(row)
        keep(capture(learner, optimiser, scaler, history, time.perf_counter() - started))
    learner.eval()
    return history


def _step(
    bound: BoundClassifier,
    batch: Batch,
    terms: Mapping[str, LossTerm],
    needs: frozenset[str],
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    precision: str,
    where: str,
) -> dict[str, float]:
    """One optimisation step; returns each term, the total and the accuracy as plain numbers."""
    with autocast(bound.clip.device, precision):
        outputs = bound(batch, needs)
    values = {name: term(outputs, batch.labels) for name, term in terms.items()}
    for name, value in values.items():
        require_finite(value, f"{where}: the loss term '{name}'")
    total = weighted_sum(values, terms)
    optimiser.zero_grad(set_to_none=True)
    scaler.scale(total).backward()  # type: ignore[no-untyped-call]
    scaler.unscale_(optimiser)
    if not scaler.is_enabled():
        for name, parameter in bound.learner.named_parameters():
            if parameter.grad is not None:
                require_finite(parameter.grad, f"{where}: the gradient of '{name}'")
    scaler.step(optimiser)
    scaler.update()
    accuracy = (outputs.logits.argmax(dim=1) == batch.labels).double().mean()
    numbers = {**values, "total": total, "accuracy": accuracy}
    return {name: float(number.detach()) for name, number in numbers.items()}


def require_finite(value: Tensor, what: str) -> None:
    """Stop with a sentence where a NaN or an infinity appears.

    Raises:
        NumericalError: names ``what`` and the number.
    """
    if not bool(torch.isfinite(value).all()):
        kind = "NaN" if bool(torch.isnan(value).any()) else "infinite"
        raise NumericalError(f"{what} is {kind}; lower training.lr, check the inputs, or use precision=float32.")
