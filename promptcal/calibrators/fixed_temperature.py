"""One temperature for every data set, taken from a paper."""

from typing import ClassVar

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.rewrite import divide_rows
from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.types import Predictions


@register("calibrator", "fixed_temperature")
class FixedTemperature(Calibrator):
    """z' = z / T with a T that was learned elsewhere and is used everywhere.

    Args:
        temperature: T; 1.16 is published for CLIP's ViT-B/16 and 1.15 for its ResNet-50, both learned on ImageNet.

    Raises:
        ConfigError: at ``transform``, for a T that is not above zero.

    Yoon et al., "C-TPT: Calibrated Test-Time Prompt Tuning for Vision-Language Models via Text Feature Dispersion",
    ICLR 2024, arXiv 2403.14119, whose baseline it is; that one T serves many data sets is the finding of Tu et al.,
    "An Empirical Study Into What Matters for Calibrating Vision-Language Models", ICML 2024, arXiv 2402.07417.

    >>> FixedTemperature(temperature=1.15).predict_proba(np.zeros((1, 2)))
    array([[0.5, 0.5]])
    """

    name: ClassVar[str] = "fixed_temperature"
    learns_from = "nothing"

    def __init__(self, temperature: float = 1.16) -> None:
        self.temperature = temperature

    def _move(self, predictions: Predictions) -> Predictions:
        if not self.temperature > 0:
            raise ConfigError(f"temperature={self.temperature} must be above zero.")
        return divide_rows(predictions, self.temperature)

    def _found(self) -> str:
        return f"T = {self.temperature}"
