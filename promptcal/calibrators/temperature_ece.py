"""Temperature scaling by calibration error on a grid, as published tables do it."""

import warnings
from typing import ClassVar

import numpy as np

from promptcal.calibrators.contract import CalibrationWarning, Calibrator
from promptcal.calibrators.rewrite import current_logits, divide_rows
from promptcal.config import register
from promptcal.metrics import binary_ece
from promptcal.types import Predictions

GRID = tuple(step / 10 for step in range(1, 101))
"""T = 0.1, 0.2, …, 10.0."""


@register("calibrator", "temperature_ece")
class TemperatureECE(Calibrator):
    """z' = z / T with the T of {0.1, 0.2, …, 10.0} whose ECE is lowest on the fitting split; the first of equals.

    The ECE is noisy and not convex in T, so ``temperature`` (by NLL) is the better default; this one is what papers
    that select T by validation ECE print. T = 1 has no privilege. A minimum at an end of the grid is warned of.

    Args:
        bins: equal-width, right-closed bins of the ECE.

    Attributes:
        temperature_: T.
        ece_: ECE of the fitted rows at each T of the grid, [100].
        at_bound_: T is the first or the last of the grid.

    Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", NeurIPS 2020, arXiv 2002.09437 (Appendix); the
    grid values are exact tenths here, where the authors' code adds 0.1 over and over.

    >>> z = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> TemperatureECE().fit(z, np.array([0, 1])).temperature_
    10.0
    """

    name: ClassVar[str] = "temperature_ece"

    def __init__(self, bins: int = 15) -> None:
        self.bins = bins

    def _learn(self, predictions: Predictions) -> None:
        logits = current_logits(predictions)
        correct = (logits.argmax(axis=1) == predictions.labels).astype(np.float64)
        below = logits - logits.max(axis=1, keepdims=True)
        confidences = (1.0 / np.exp(below / temperature).sum(axis=1) for temperature in GRID)
        self.ece_ = np.array([binary_ece(confidence, correct, bins=self.bins) for confidence in confidences])
        best = int(self.ece_.argmin())
        self.temperature_ = GRID[best]
        self.at_bound_ = best in (0, len(GRID) - 1)
        if self.at_bound_:
            warnings.warn(
                f"T = {self.temperature_} is an end of the grid: on these {len(correct)} rows the lowest ECE may lie "
                f"beyond it; the calibrator 'temperature' has no grid.",
                CalibrationWarning,
                stacklevel=3,
            )

    def _move(self, predictions: Predictions) -> Predictions:
        return divide_rows(predictions, self.temperature_)

    def _found(self) -> str:
        return f"T = {self.temperature_}{' (an end of the grid)' if self.at_bound_ else ''}"
