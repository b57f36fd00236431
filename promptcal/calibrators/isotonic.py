"""Isotonic regression, one class against the rest."""

from typing import ClassVar

import numpy as np

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.monotone import MonotoneColumns, evaluate_monotone, fit_monotone
from promptcal.calibrators.rewrite import replace_probabilities
from promptcal.config import register
from promptcal.types import Predictions


@register("calibrator", "isotonic")
class Isotonic(Calibrator):
    """p'_k = f_k(p_k) with the non-decreasing f_k closest to [y = k] in squares, for each class; rows renormalised.

    Between fitted values f_k is linear, beyond them constant. A row in which every class gets zero keeps its
    probabilities.

    Attributes:
        knots_: the functions: inputs, outputs, and where each class begins.

    Zadrozny, Elkan, "Transforming classifier scores into accurate multiclass probability estimates", KDD 2002.

    >>> iso = Isotonic().fit(np.log(np.array([[0.2, 0.8], [0.6, 0.4]])), np.array([1, 0]))
    >>> iso.predict_proba(np.log(np.array([[0.6, 0.4]])))
    array([[1., 0.]])
    """

    name: ClassVar[str] = "isotonic"
    transfers_to_new_classes = False
    keeps_argmax = False

    def _learn(self, predictions: Predictions) -> None:
        probs = predictions.probs()
        fitted = fit_monotone(probs, np.eye(probs.shape[1])[predictions.labels])
        self.knots_ = fitted._asdict()

    def _move(self, predictions: Predictions) -> Predictions:
        return replace_probabilities(
            predictions, evaluate_monotone(MonotoneColumns(**self.knots_), predictions.probs())
        )

    def _found(self) -> str:
        return f"{len(self.knots_['inputs'])} knots for {len(self.knots_['starts']) - 1} classes"
