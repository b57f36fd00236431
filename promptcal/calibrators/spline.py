"""Spline calibration of the top label."""

from typing import ClassVar

import numpy as np
from scipy.interpolate import CubicSpline

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.rewrite import with_confidence
from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.types import Predictions


@register("calibrator", "spline")
class Spline(Calibrator):
    """c' = c + h'(t) for the confidence c of the predicted class, which lies at percentile t of the fitted confidences.

    h(t) is the cumulative sum of (correct - confidence) / n over the fitted rows in order of confidence, smoothed by a
    natural cubic spline fitted by least squares with equally spaced knots. Between fitted confidences c' is linear,
    beyond them constant; it is clipped to [0, 1], and the other classes share the rest as they did. Where c' falls
    below the runner-up, the predicted class changes.

    Args:
        knots: how many knots in [0, 1].

    Attributes:
        confidence_: the fitted confidences, ascending and distinct.
        calibrated_: c' at each of them.

    Raises:
        ConfigError: at ``fit``, for fewer than two knots.

    Gupta et al., "Calibration of Neural Networks using Splines", ICLR 2021, arXiv 2006.12800 (top-1, 6 knots), where c'
    is not clipped and the other classes are left as they are.

    >>> z = np.log(np.array([[0.8, 0.2]] * 4))
    >>> Spline(knots=2).fit(z, np.array([0, 0, 1, 1])).calibrated_.round(2)
    array([0.5])
    """

    name: ClassVar[str] = "spline"
    keeps_argmax = False

    def __init__(self, knots: int = 6) -> None:
        self.knots = knots

    def _learn(self, predictions: Predictions) -> None:
        if self.knots < 2:
            raise ConfigError(f"knots={self.knots} makes no spline; ask for at least two.")
        probs = predictions.probs()
        confidence, correct = probs.max(axis=1), probs.argmax(axis=1) == predictions.labels
        # Equal confidences are one point, so that the order of the rows does not matter.
        self.confidence_, inverse, count = np.unique(confidence, return_inverse=True, return_counts=True)
        excess = np.bincount(inverse, weights=correct - confidence) / len(confidence)
        percentile = np.r_[0.0, np.cumsum(count) / len(confidence)]
        basis = CubicSpline(np.linspace(0.0, 1.0, self.knots), np.eye(self.knots), bc_type="natural")
        heights = np.linalg.lstsq(basis(percentile), np.r_[0.0, np.cumsum(excess)], rcond=None)[0]
        middle = (percentile[1:] + percentile[:-1]) / 2
        self.calibrated_ = np.clip(self.confidence_ + basis(middle, 1) @ heights, 0.0, 1.0)

    def _move(self, predictions: Predictions) -> Predictions:
        confidence = predictions.probs().max(axis=1)
        return with_confidence(predictions, np.interp(confidence, self.confidence_, self.calibrated_))

    def _found(self) -> str:
        return f"{self.knots} knots"
