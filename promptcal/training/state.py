"""What a training needs to go on after it was stopped: learned tensors, optimiser and history at the end of an epoch.

The order of the samples and their views depend on (seed, epoch) alone, so no state of a random generator is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from promptcal.errors import DataError
from promptcal.storage import load_tensors, save_tensors


@dataclass(frozen=True)
class TrainingState:
    """A training after some whole epochs.

    Attributes:
        history: one row for each whole epoch.
        learner: the learner's state.
        optimiser: the tensors of the optimiser's state, such as momentum, as ``parameter number.name``.
        scaler: the gradient scaler's state; empty where none is used.
        kept: the tensors to deploy so far, such as an average; empty where the last epoch is deployed.
        seconds: what the epochs took, in seconds.
    """

    history: tuple[Mapping[str, Any], ...]
    learner: Mapping[str, Tensor]
    optimiser: Mapping[str, Tensor]
    scaler: Mapping[str, Any]
    kept: Mapping[str, Tensor]
    seconds: float

    def restore(
        self, learner: nn.Module, optimiser: torch.optim.Optimizer, scaler: torch.amp.GradScaler
    ) -> list[dict[str, Any]]:
        """Put the state back, bit for bit; returns the history so far."""
        learner.load_state_dict(dict(self.learner))
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in self.optimiser.items():
            number, _, name = key.partition(".")
            state.setdefault(int(number), {})[name] = tensor
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
        if self.scaler:
            scaler.load_state_dict(dict(self.scaler))
        return [dict(row) for row in self.history]


def capture(
    learner: nn.Module,
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    history: Sequence[Mapping[str, Any]],
    kept: Mapping[str, Tensor],
    seconds: float,
) -> TrainingState:
    """The state of a training at the end of an epoch."""
    momentum = {
        f"{number}.{name}": value.clone()
        for number, values in optimiser.state_dict()["state"].items()
        for name, value in values.items()
        if isinstance(value, Tensor)
    }
    learned = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    return TrainingState(tuple(history), learned, momentum, scaler.state_dict(), dict(kept), seconds)


def write_state(path: Path, state: TrainingState, made_with: Mapping[str, Any]) -> None:
    """Write a state whole or not at all.

    Args:
        path: the file.
        state: the state.
        made_with: schema, versions and device; a state made with others is not gone on from.
    """
    parts = {"learner": state.learner, "optimiser": state.optimiser, "kept": state.kept}
    tensors = {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
    about = {
        "made_with": dict(made_with),
        "history": [dict(row) for row in state.history],
        "scaler": dict(state.scaler),
        "seconds": state.seconds,
        "shapes": {name: list(tensor.shape) for name, tensor in tensors.items()},  # the file keeps no scalar's shape
    }
    save_tensors(path, {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}, about)


def read_state(path: Path, learner: nn.Module, made_with: Mapping[str, Any]) -> TrainingState | None:
    """The state in a file; None where there is no file.

    Raises:
        DataError: the file is broken, was made with another version or device, or is another learner's.
    """
    if not path.is_file():
        return None
    arrays, about = load_tensors(path)
    differing = sorted(key for key, value in made_with.items() if about.get("made_with", {}).get(key) != value)
    if differing:
        raise DataError(f"{path} was made with another {' and '.join(differing)}.")
    try:
        tensors = {name: torch.from_numpy(array.reshape(about["shapes"][name])) for name, array in arrays.items()}
        state = TrainingState(
            history=tuple(about["history"]),
            learner=_part(tensors, "learner/"),
            optimiser=_part(tensors, "optimiser/"),
            scaler=about["scaler"],
            kept=_part(tensors, "kept/"),
            seconds=float(about["seconds"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not a whole training state ({error}).") from error
    if _forms(state.learner) != _forms(learner.state_dict()):
        raise DataError(f"{path} holds the tensors of another learner.")
    return state


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _forms(tensors: Mapping[str, Tensor]) -> dict[str, tuple[Any, ...]]:
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
