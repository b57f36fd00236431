"""The log-linear head as a choice of a run: which features, and on what its weights are fitted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from promptcal.calibrators import LogLinear, no_validation
from promptcal.config import register
from promptcal.data.protocols import Splits
from promptcal.errors import ConfigError, unknown
from promptcal.heads.folds import cross_fit, leave_classes_out
from promptcal.heads.held_out import Episode, fit_held_out
from promptcal.types import Predictions, Task

MODES = ("classes", "images", "val")

Trained = Callable[[Splits], Mapping[str, Predictions]]
"""Trains the method of a run on other splits, from its start, and predicts their targets."""


@register("head", "loglinear")
@dataclass(frozen=True)
class LogLinearHead:
    """``LogLinear`` fitted behind the training of a run, whose predictions then carry its temperatures.

    Where the image tower is frozen, every view of every training image is in the feature cache already, and the further
    trainings cost what their text passes cost.

    Attributes:
        mode: ``classes`` = on held-out images and on classes left out, behind a gate (see ``fit_held_out``);
            ``images`` = on held-out images; ``val`` = on the base validation images, without a further training.
        folds: of the classes, and of the images.
        repeats: how often the classes are divided anew.
        features: see ``LogLinear``.
        penalty: see ``LogLinear``.
        clip: see ``LogLinear``.
        tokens: see ``LogLinear``.

    Raises:
        ConfigError: an unknown way to fit.
    """

    mode: str = "classes"
    folds: int = 5
    repeats: int = 1
    features: Sequence[str] = ("range", "dac", "cosine", "margin", "entropy", "kl")
    penalty: float = 0.01
    clip: float = 4.0
    tokens: int = 3

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(unknown("head.mode", self.mode, MODES))

    @property
    def calibrator(self) -> LogLinear:
        """The head before it is fitted."""
        return LogLinear(list(self.features), penalty=self.penalty, clip=self.clip, tokens=self.tokens)

    def divided(self, task: Task, seed: int) -> tuple[Splits, ...]:
        """The further trainings: what each is trained on and predicts.

        Raises:
            DataError: too few classes or images to leave any out.
        """
        if self.mode == "classes":
            return leave_classes_out(task, self.folds, self.repeats, self.folds, seed)
        return cross_fit(task, self.folds, seed) if self.mode == "images" else ()

    def fitted(self, val: Predictions | None, folds: Sequence[Splits], trained: Trained) -> LogLinear:
        """The head of a run.

        Args:
            val: base validation predictions of the run's own prompts.
            folds: the further trainings, those of ``divided``.
            trained: trains anew and predicts.

        Raises:
            DataError: no validation images.
        """
        if val is None:
            raise no_validation("loglinear")
        if self.mode == "val":
            return self.calibrator.fit(val)
        episodes = []
        for fold in folds:
            seen = trained(fold)
            episodes.append(Episode(seen["base"], seen.get("novel")))
        return fit_held_out(self.calibrator, val, episodes)


LOGLINEAR = f"{LogLinearHead.__module__}.{LogLinearHead.__qualname__}"
"""What a configuration calls it."""
