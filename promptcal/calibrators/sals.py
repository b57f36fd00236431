"""Sample-adaptive logit scaling: each row gets the logit range of the frozen model."""

from typing import ClassVar

import numpy as np

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.rewrite import current_logits, divide_rows
from promptcal.config import register
from promptcal.errors import DataError
from promptcal.types import Predictions


@register("calibrator", "sals")
class SaLS(Calibrator):
    """z' = (z - min z) / (max z - min z) · (max z0 - min z0) + min z0 per row, with the frozen model's logits z0.

    The shift does not matter to a softmax, so this is a temperature per row, T = (max z - min z) / (max z0 - min z0),
    and is recorded as one. A row whose logits are all equal keeps T = 1.

    Raises:
        DataError: the zero-shot logits of a row are all equal while the tuned ones are not.

    Murugesan, Silva-Rodríguez, Ben Ayed, Dolz, "Robust Calibration of Large Vision-Language Adapters", ECCV 2024, arXiv
    2407.13588 (SaLS; ZS-Norm is the same map inside the training loss).

    >>> SaLS().learns_from
    'nothing'
    """

    name: ClassVar[str] = "sals"
    learns_from = "nothing"
    needs = frozenset({"zero_shot_logits"})

    def _move(self, predictions: Predictions) -> Predictions:
        tuned = np.ptp(current_logits(predictions), axis=1)
        zero_shot = np.ptp(predictions.require("zero_shot_logits").astype(np.float64), axis=1)
        flat = (zero_shot == 0) & (tuned > 0)
        if flat.any():
            raise DataError(f"row {int(flat.argmax())} has zero-shot logits that are all equal, which have no range.")
        return divide_rows(predictions, np.where(tuned > 0, tuned, 1.0) / np.where(tuned > 0, zero_shot, 1.0))
