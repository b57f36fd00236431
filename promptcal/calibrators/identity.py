"""No calibration: the row to compare with."""

from typing import ClassVar

from promptcal.calibrators.contract import Calibrator
from promptcal.config import register
from promptcal.types import Predictions


@register("calibrator", "none")
class Identity(Calibrator):
    """The predictions as they are.

    >>> Identity().predict_proba(np.zeros((1, 2)))
    array([[0.5, 0.5]])
    """

    name: ClassVar[str] = "none"
    learns_from = "nothing"

    def apply(self, predictions: Predictions) -> Predictions:
        """The very same record."""
        return predictions
