"""Several calibrators in a row."""

from collections.abc import Sequence
from typing import ClassVar

from promptcal.calibrators.building import Described, build_calibrator
from promptcal.calibrators.contract import Calibrator, LearnsFrom
from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.types import Predictions


@register("calibrator", "chain")
class Chain(Calibrator):
    """Each step is fitted on what the steps before it make of the fitting split, and all are applied in that order.

    The usual order is: divide by the instance temperature (predictions that carry one already are), then DAC, then
    temperature scaling fitted on base validation after both.

    Args:
        steps: calibrators by name, configuration node or object; objects are copied, not fitted themselves.

    Raises:
        ConfigError: no step, or a step that is not known.

    >>> Chain(["temperature", "none"]).keeps_argmax
    True
    """

    name: ClassVar[str] = "chain"

    def __init__(self, steps: Sequence[Described] = ("dac", "temperature")) -> None:
        self.steps = steps

    @property
    def learns_from(self) -> LearnsFrom:  # type: ignore[override]
        """The rows where any step learns from them."""
        return "rows" if any(step.learns_from == "rows" for step in self._made()) else "classes"

    @property
    def transfers_to_new_classes(self) -> bool:  # type: ignore[override]
        """Every step transfers."""
        return all(step.transfers_to_new_classes for step in self._made())

    @property
    def keeps_argmax(self) -> bool:  # type: ignore[override]
        """Every step keeps it."""
        return all(step.keeps_argmax for step in self._made())

    @property
    def reads_other_rows(self) -> bool:  # type: ignore[override]
        """Any step does."""
        return any(step.reads_other_rows for step in self._made())

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """What any step needs."""
        return frozenset().union(*(step.needs for step in self._made()))

    def _made(self) -> list[Calibrator]:
        if not self.steps:
            raise ConfigError("a chain needs at least one step, for example steps=[dac,temperature].")
        return [build_calibrator(step) for step in self.steps]

    def _learn(self, predictions: Predictions) -> None:
        self.steps_ = self._made()
        for step in self.steps_:
            predictions = step.fit(predictions).apply(predictions)

    def apply(self, predictions: Predictions) -> Predictions:
        """The steps one after the other; each adds its own name to ``transformed_by``."""
        for step in self.steps_:
            predictions = step.apply(predictions)
        return predictions

    def report(self) -> str:
        """What each step learned, in order."""
        self._check_fitted()
        return ", then ".join(step.report() for step in self.steps_)
