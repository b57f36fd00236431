"""Isotonic regression of all classes together, which keeps the predicted class."""

from typing import ClassVar

import numpy as np

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.monotone import MonotoneColumns, evaluate_monotone, fit_monotone
from promptcal.calibrators.rewrite import replace_probabilities
from promptcal.config import register
from promptcal.types import Predictions

SLOPE = 1e-9
"""What is added per unit of probability, so that the map is strictly increasing."""


@register("calibrator", "multi_isotonic")
class MultiIsotonic(Calibrator):
    """p'_k = f(p_k) + 1e-9·p_k with one non-decreasing f fitted on all n·C pairs (p_k, [y = k]); rows renormalised.

    f is the same for every class, so the order within a row stays and the map may be applied to new classes.

    Attributes:
        knots_: the function: inputs, outputs, and where its one column begins.

    Zhang, Kailkhura, Han, "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep
    Learning", ICML 2020, arXiv 2003.07329 (IRM). Its use for prompt learners leaves the rows without renormalisation
    and takes a second softmax of the probabilities; neither is done here.

    >>> both = MultiIsotonic().fit(np.log(np.array([[0.2, 0.8], [0.6, 0.4]])), np.array([1, 0]))
    >>> both.predict_proba(np.log(np.array([[0.3, 0.7]]))).round(6)
    array([[0., 1.]])
    """

    name: ClassVar[str] = "multi_isotonic"

    def _learn(self, predictions: Predictions) -> None:
        probs = predictions.probs()
        truth = np.eye(probs.shape[1])[predictions.labels]
        self.knots_ = fit_monotone(probs.reshape(-1, 1), truth.reshape(-1, 1))._asdict()

    def _move(self, predictions: Predictions) -> Predictions:
        probs = predictions.probs()
        mapped = evaluate_monotone(MonotoneColumns(**self.knots_), probs.reshape(-1, 1)).reshape(probs.shape)
        return replace_probabilities(predictions, mapped + SLOPE * probs, top=probs.argmax(axis=1))

    def _found(self) -> str:
        return f"{len(self.knots_['inputs'])} knots"
