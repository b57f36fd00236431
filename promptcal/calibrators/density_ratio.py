"""Density-ratio calibration: how often rows of this confidence and this proximity are right."""

import warnings
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logsumexp

from promptcal.calibrators.contract import CalibrationWarning, Calibrator
from promptcal.calibrators.rewrite import with_confidence
from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.metrics.neighbours import proximity
from promptcal.types import Predictions

SMALLEST_BANDWIDTH = 1e-3
BLOCK_ELEMENTS = 1 << 22
"""How many pairs of points are looked at together."""


@register("calibrator", "density_ratio")
class DensityRatio(Calibrator):
    """c' = n1·f1(c, D) / (n1·f1(c, D) + n0·f0(c, D)) for confidence c and proximity D of a row.

    f1 and f0 are Gaussian kernel densities of (c, D) over the n1 right and n0 wrong fitted rows, with the bandwidth
    1.06·σ·n^(-1/6) in each direction. D = exp(-mean distance to the K nearest image features of the fitting split), a
    fitted row being left out of its own neighbours. The other classes share 1 - c' as they did; where c' falls below
    the runner-up, the predicted class changes.

    With fewer than two right or two wrong rows there is no ratio: confidences are then left alone, with a
    CalibrationWarning.

    Args:
        neighbours: K.

    Attributes:
        features_: image features of the fitted rows, [n, D].
        right_: (c, D) of the right rows, [n1, 2].
        wrong_: (c, D) of the wrong rows, [n0, 2].

    Raises:
        ConfigError: at ``fit``, for K < 1.

    Xiong et al., "Proximity-Informed Calibration for Deep Neural Networks", NeurIPS 2023, arXiv 2306.04590. The ratio
    is taken of log-densities, where the authors' code floors the denominator at 1e-10 and so gives rows far from all
    others a confidence of zero; a bandwidth below 1e-3 is raised to it.

    >>> DensityRatio().needs
    frozenset({'image_features'})
    """

    name: ClassVar[str] = "density_ratio"
    keeps_argmax = False
    needs = frozenset({"image_features"})

    def __init__(self, neighbours: int = 10) -> None:
        self.neighbours = neighbours

    def _learn(self, predictions: Predictions) -> None:
        if self.neighbours < 1:
            raise ConfigError(f"neighbours={self.neighbours} makes no sense; ask for at least one.")
        self.features_ = predictions.require("image_features").astype(np.float64)
        probs = predictions.probs()
        points = np.stack([probs.max(axis=1), proximity(self.features_, neighbours=self.neighbours)], axis=1)
        correct = probs.argmax(axis=1) == predictions.labels
        self.right_, self.wrong_ = points[correct], points[~correct]
        if not self._has_ratio():
            warnings.warn(
                f"{len(self.wrong_)} of {len(points)} rows are wrong and {len(self.right_)} right, too few for a ratio "
                f"of densities; 'density_ratio' leaves confidences alone, use more validation rows.",
                CalibrationWarning,
                stacklevel=3,
            )

    def _has_ratio(self) -> bool:
        return min(len(self.right_), len(self.wrong_)) >= 2

    def _move(self, predictions: Predictions) -> Predictions:
        if not self._has_ratio():
            return predictions
        features = predictions.require("image_features").astype(np.float64)
        near = proximity(features, self.features_, neighbours=self.neighbours)
        points = np.stack([predictions.probs().max(axis=1), near], axis=1)
        odds = log_density_sum(self.right_, points) - log_density_sum(self.wrong_, points)
        return with_confidence(predictions, expit(odds))

    def _found(self) -> str:
        return f"{len(self.right_)} right and {len(self.wrong_)} wrong rows"


def log_density_sum(sample: Float[np.ndarray, "n 2"], points: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, " m"]:
    """The log of n times the Gaussian kernel density of n sample points, at each of m points."""
    bandwidth = np.maximum(1.06 * sample.std(axis=0) * len(sample) ** (-1 / 6), SMALLEST_BANDWIDTH)
    scaled, at = sample / bandwidth, points / bandwidth
    rows = max(1, BLOCK_ELEMENTS // len(sample))
    parts = []
    for start in range(0, len(at), rows):
        apart = at[start : start + rows, None, :] - scaled[None, :, :]
        parts.append(logsumexp(-0.5 * (apart**2).sum(axis=2), axis=1))
    result: np.ndarray = np.concatenate(parts) - np.log(2.0 * np.pi * bandwidth.prod())
    return result
