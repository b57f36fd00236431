"""Bin-mean-shift: one binning calibrator for each level of proximity."""

from typing import ClassVar

import numpy as np

from promptcal.calibrators.building import Described, build_calibrator
from promptcal.calibrators.contract import Calibrator
from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.metrics.base_novel import take
from promptcal.metrics.neighbours import proximity
from promptcal.types import Predictions


@register("calibrator", "bin_mean_shift")
class BinMeanShift(Calibrator):
    """The rows are split at quantiles of their proximity D, and a binning calibrator of its own is fitted on each part.

    D = exp(-mean distance to the K nearest image features of the fitting split), a fitted row being left out of its own
    neighbours. Equal quantiles are merged, so no part is empty.

    Args:
        binning: the calibrator of each part, by name, node or object: a map of probabilities such as
            ``multi_isotonic``, ``histogram`` or ``isotonic``.
        levels: how many levels of proximity.
        neighbours: K.

    Attributes:
        features_: image features of the fitted rows, [n, D].
        edges_: the inner edges between levels; a level is (a, b].
        parts_: the fitted calibrators, one a level.

    Raises:
        ConfigError: at ``fit``, for K < 1 or fewer than one level.

    Xiong et al., "Proximity-Informed Calibration for Deep Neural Networks", NeurIPS 2023, arXiv 2306.04590. Their
    code takes a second softmax of the probabilities before binning them; that is not done here.

    >>> BinMeanShift(levels=3).transfers_to_new_classes
    True
    """

    name: ClassVar[str] = "bin_mean_shift"

    def __init__(self, binning: Described = "multi_isotonic", levels: int = 5, neighbours: int = 10) -> None:
        self.binning = binning
        self.levels = levels
        self.neighbours = neighbours

    @property
    def transfers_to_new_classes(self) -> bool:  # type: ignore[override]
        """The binning calibrator transfers."""
        return build_calibrator(self.binning).transfers_to_new_classes

    @property
    def keeps_argmax(self) -> bool:  # type: ignore[override]
        """The binning calibrator keeps it."""
        return build_calibrator(self.binning).keeps_argmax

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """Image features, and what the binning calibrator needs."""
        return frozenset({"image_features"}) | build_calibrator(self.binning).needs

    def _learn(self, predictions: Predictions) -> None:
        if self.neighbours < 1 or self.levels < 1:
            raise ConfigError(f"neighbours={self.neighbours} and levels={self.levels} must both be at least 1.")
        self.features_ = predictions.require("image_features").astype(np.float64)
        near = proximity(self.features_, neighbours=self.neighbours)
        quantiles = np.quantile(near, np.arange(1, self.levels) / self.levels, method="lower")
        self.edges_ = np.unique(quantiles[quantiles < near.max()])
        level = np.searchsorted(self.edges_, near)
        self.parts_ = [
            build_calibrator(self.binning).fit(take(predictions, np.flatnonzero(level == part)))
            for part in range(len(self.edges_) + 1)
        ]

    def _move(self, predictions: Predictions) -> Predictions:
        features = predictions.require("image_features").astype(np.float64)
        near = proximity(features, self.features_, neighbours=self.neighbours)
        level = np.searchsorted(self.edges_, near)
        probs = np.empty(predictions.logits.shape)
        for part, calibrator in enumerate(self.parts_):
            rows = np.flatnonzero(level == part)
            if len(rows):
                probs[rows] = calibrator.apply(take(predictions, rows)).probs()
        return predictions.replace(probabilities=probs)

    def _found(self) -> str:
        return f"{len(self.parts_)} levels of {', '.join(str(part.n_fit_) for part in self.parts_)} rows"
