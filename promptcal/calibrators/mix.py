"""A weighted mean of tuned and zero-shot logits."""

from typing import ClassVar

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.rewrite import current_logits, replace_logits
from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.types import Predictions


@register("calibrator", "mix")
class Mix(Calibrator):
    """z' = (1 - w)·z + w·z0 with the frozen model's logits z0 and the logits z divided by their temperature.

    Args:
        weight: w, the weight of the zero-shot logits, in [0, 1]; one half by default.

    Raises:
        ConfigError: at ``transform``, for a weight outside [0, 1].

    >>> Mix(weight=0.25).get_params()
    {'weight': 0.25}
    """

    name: ClassVar[str] = "mix"
    learns_from = "nothing"
    keeps_argmax = False
    needs = frozenset({"zero_shot_logits"})

    def __init__(self, weight: float = 0.5) -> None:
        self.weight = weight

    def _move(self, predictions: Predictions) -> Predictions:
        if not 0.0 <= self.weight <= 1.0:
            raise ConfigError(f"weight={self.weight} of the zero-shot logits must be in [0, 1].")
        zero_shot = predictions.require("zero_shot_logits").astype("float64")
        return replace_logits(predictions, (1.0 - self.weight) * current_logits(predictions) + self.weight * zero_shot)
