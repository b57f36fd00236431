"""Ensemble temperature scaling: a mixture of scaled, unscaled and uniform probabilities."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.rewrite import current_logits, replace_probabilities
from promptcal.calibrators.temperature import best_temperature
from promptcal.config import register
from promptcal.types import Predictions


@register("calibrator", "ensemble_temperature")
class EnsembleTemperature(Calibrator):
    """p' = w1·softmax(z / T) + w2·softmax(z) + w3 / C with weights that are non-negative and sum to one.

    T is that of temperature scaling; the weights then minimise the mean NLL, which is convex in them, so the NLL of the
    fitted rows is at most that of temperature scaling.

    Attributes:
        temperature_: T.
        weights_: w1, w2, w3.

    Zhang, Kailkhura, Han, "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep
    Learning", ICML 2020, arXiv 2003.07329, where T and weights may also be fitted by the mean squared error.

    >>> z = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    >>> EnsembleTemperature().fit(z, np.array([0, 0, 0, 1])).predict_proba(z[:1]).round(4)
    array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "ensemble_temperature"

    def _learn(self, predictions: Predictions) -> None:
        self.temperature_ = best_temperature(current_logits(predictions), predictions.labels).temperature
        members = self._members(predictions)
        rows = np.arange(len(predictions.labels))
        likelihoods = np.stack([member[rows, predictions.labels] for member in members], axis=1)
        self.weights_ = best_weights(likelihoods)

    def _members(self, predictions: Predictions) -> list[Float[np.ndarray, "n C"]]:
        logits = current_logits(predictions)
        plain = predictions.replace(logits=logits, temperature=None, probabilities=None)
        scaled = plain.replace(logits=logits / self.temperature_)
        return [scaled.probs(), plain.probs(), np.full(logits.shape, 1.0 / logits.shape[1])]

    def _move(self, predictions: Predictions) -> Predictions:
        mixed = sum(w * member for w, member in zip(self.weights_, self._members(predictions), strict=True))
        return replace_probabilities(predictions, np.asarray(mixed), top=current_logits(predictions).argmax(axis=1))

    def _found(self) -> str:
        return f"T = {self.temperature_:.4f}, weights {', '.join(f'{weight:.4f}' for weight in self.weights_)}"


def best_weights(likelihoods: Float[np.ndarray, "n M"]) -> Float[np.ndarray, " M"]:
    """The weights on the simplex that maximise the mean log of ``likelihoods @ weights``, [n] rows of M members."""
    floored = np.maximum(likelihoods, np.finfo(np.float64).tiny)

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = np.maximum(floored @ weights, np.finfo(np.float64).tiny)
        return -float(np.log(mixed).mean()), -(floored / mixed[:, None]).mean(axis=0)

    members = floored.shape[1]
    first = np.eye(members)[0]
    simplex = {"type": "eq", "fun": lambda weights: weights.sum() - 1.0, "jac": np.ones_like}
    start = 0.9 * first + 0.1 / members
    found = minimize(loss, start, jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * members, constraints=[simplex])
    weights = np.clip(found.x, 0.0, 1.0) / np.clip(found.x, 0.0, 1.0).sum()
    best: np.ndarray = weights if loss(weights)[0] < loss(first)[0] else first
    return best
