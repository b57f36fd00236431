"""Histogram binning, one class against the rest."""

from typing import ClassVar

import numpy as np

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.rewrite import replace_probabilities
from promptcal.config import register
from promptcal.metrics.bins import bin_index, class_sums
from promptcal.types import Predictions


@register("calibrator", "histogram")
class Histogram(Calibrator):
    """p'_k = the share of rows of class k among the fitted rows whose p_k fell into the same bin; rows renormalised.

    The bins are equal-width and right-closed. An empty bin answers with its midpoint, and a row in which every class
    gets zero keeps its probabilities.

    Args:
        bins: bins in [0, 1] for each class.

    Attributes:
        frequency_: the answer of each bin, [C, bins].

    Zadrozny, Elkan, "Obtaining calibrated probability estimates from decision trees and naive Bayesian classifiers",
    ICML 2001; one against the rest as in Guo et al., ICML 2017, arXiv 1706.04599.

    >>> Histogram(bins=2).fit(np.array([[9.0, 0.0], [9.0, 0.0]]), np.array([0, 1])).frequency_
    array([[0.25, 0.5 ],
           [0.5 , 0.75]])
    """

    name: ClassVar[str] = "histogram"
    transfers_to_new_classes = False
    keeps_argmax = False

    def __init__(self, bins: int = 15) -> None:
        self.bins = bins

    def _learn(self, predictions: Predictions) -> None:
        sums = class_sums(predictions.probs(), predictions.labels, self.bins, "right")
        middle = np.tile((np.arange(self.bins) + 0.5) / self.bins, len(predictions.classes))
        share = np.where(sums.count > 0, sums.outcome / np.maximum(sums.count, 1.0), middle)
        self.frequency_ = share.reshape(-1, self.bins)

    def _move(self, predictions: Predictions) -> Predictions:
        index = bin_index(predictions.probs(), self.bins)
        return replace_probabilities(predictions, self.frequency_[np.arange(len(self.frequency_)), index])

    def _found(self) -> str:
        return f"{self.bins} bins for each of {len(self.frequency_)} classes"
