"""The frozen model's predictions in place of the tuned ones."""

from typing import ClassVar

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.rewrite import replace_logits
from promptcal.config import register
from promptcal.types import Predictions


@register("calibrator", "zero_shot")
class ZeroShot(Calibrator):
    """z' = z0, the logits of the frozen model for the same images and classes.

    Zero-shot CLIP is nearly calibrated on many data sets, which makes it the reference row; its accuracy is its own.

    >>> ZeroShot().needs
    frozenset({'zero_shot_logits'})
    """

    name: ClassVar[str] = "zero_shot"
    learns_from = "nothing"
    keeps_argmax = False
    needs = frozenset({"zero_shot_logits"})

    def _move(self, predictions: Predictions) -> Predictions:
        return replace_logits(predictions, predictions.require("zero_shot_logits"))
