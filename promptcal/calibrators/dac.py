"""Distance-aware calibration: softer where the text features of a class have moved away from the base classes."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.rewrite import current_logits, divide_rows
from promptcal.config import register
from promptcal.errors import ConfigError, DataError
from promptcal.types import Predictions


@register("calibrator", "dac")
class DAC(Calibrator):
    """z'_i = a_c · z_i for a row of predicted class c, with a_c = exp(-d(c)) / exp(-d0(c)), a temperature 1 / a_c.

    d(c) is the mean Euclidean distance of the tuned text feature of class c to the K nearest tuned features of the base
    classes, d0(c) the same among the frozen features. A class within ``threshold`` of a base class (tuned) is one, and
    keeps a_c = 1; so base classes are left alone. ``fit`` takes the base split for its text features; it reads neither
    images nor labels.

    Args:
        neighbours: K, at most the number of base classes (fewer base classes: all of them).
        threshold: the distance below which a class counts as a base class, for unit-norm features.

    Attributes:
        text_features_: tuned text features of the base classes, [B, D], L2-normalised.
        zero_shot_text_features_: the frozen ones, [B, D].

    Raises:
        ConfigError: at ``fit``, for K < 1. DataError: text features of another width or not one a class.

    Wang et al., "Open-Vocabulary Calibration for Fine-tuned CLIP", ICML 2024, arXiv 2402.04655. K = 5 and the threshold
    0.05 are those of the authors' code, which divides by K also where there are fewer base classes.

    >>> DAC(neighbours=3).get_params()
    {'neighbours': 3, 'threshold': 0.05}
    """

    name: ClassVar[str] = "dac"
    learns_from = "classes"
    needs = frozenset({"text_features", "zero_shot_text_features"})

    def __init__(self, neighbours: int = 5, threshold: float = 0.05) -> None:
        self.neighbours = neighbours
        self.threshold = threshold

    def _learn(self, predictions: Predictions) -> None:
        if self.neighbours < 1:
            raise ConfigError(f"neighbours={self.neighbours} makes no sense; ask for at least one.")
        self.text_features_ = unit_features(predictions, "text_features")
        self.zero_shot_text_features_ = unit_features(predictions, "zero_shot_text_features")

    def factors(self, predictions: Predictions) -> Float[np.ndarray, " C"]:
        """a_c of each class of these predictions; 1 for a base class."""
        tuned = self._distances(unit_features(predictions, "text_features"), self.text_features_)
        frozen = self._distances(unit_features(predictions, "zero_shot_text_features"), self.zero_shot_text_features_)
        return np.where(tuned[:, 0] < self.threshold, 1.0, np.exp(frozen.mean(axis=1) - tuned.mean(axis=1)))

    def _distances(
        self, features: Float[np.ndarray, "C D"], base: Float[np.ndarray, "B D2"]
    ) -> Float[np.ndarray, "C K"]:
        """The distances to the K nearest base classes, ascending."""
        if features.shape[1] != base.shape[1]:
            raise DataError(f"text features have {features.shape[1]} numbers, those of the base split {base.shape[1]}.")
        nearest: np.ndarray = np.sort(cdist(features, base), axis=1)[:, : self.neighbours]
        return nearest

    def _move(self, predictions: Predictions) -> Predictions:
        predicted = current_logits(predictions).argmax(axis=1)
        return divide_rows(predictions, 1.0 / self.factors(predictions)[predicted])


def unit_features(predictions: Predictions, name: str) -> Float[np.ndarray, "C D"]:
    """Text features by name in float64, L2-normalised."""
    features = predictions.require(name).astype(np.float64)
    if len(features) != len(predictions.classes):
        raise DataError(
            f"{len(features)} rows of {name} for {len(predictions.classes)} classes; there must be one each."
        )
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    if not norms.all():
        raise DataError(f"the {name} of class '{predictions.classes[int(norms.argmin())]}' are all zero.")
    result: np.ndarray = features / norms
    return result
