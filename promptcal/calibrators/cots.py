"""CoTS: the temperature at which tuned predictions are as confident as the frozen model's, found without labels."""

import warnings
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from promptcal.calibrators.contract import CalibrationWarning, Calibrator
from promptcal.calibrators.rewrite import current_logits, divide_rows
from promptcal.config import register
from promptcal.errors import ConfigError, unknown
from promptcal.types import Predictions

LOWEST, HIGHEST = 0.01, 100.0
"""The temperatures that are looked at."""

GRANULARITIES = ("split", "row")


@register("calibrator", "cots")
class CoTS(Calibrator):
    """z' = z / T with the T that minimises mean_i (max_c softmax(z_i / T)_c − max_c softmax(z⁰_i)_c)².

    z⁰ are the frozen model's logits of the same images and classes; labels are never read. T is found at ``transform``
    from the very rows it transforms, within 0.01 and 100; a T at a bound is told by a CalibrationWarning. Where tuning
    has raised the accuracy, as on base classes, matching the frozen confidence makes predictions underconfident.

    Args:
        per: ``split``: one T for all rows; ``row``: a T for each row, which then has the frozen model's confidence.

    Raises:
        ConfigError: at ``transform``, for another word in ``per``.

    "CoTS", 2026, a temperature for test-time prompt tuning. Deviations: there the mean runs over the views of one test
    image that were selected, with 50 gradient steps; here over the rows of a split, one view each, to the minimum. Its
    mixture of strong and weak views (E-CoTS) is left out, as predictions hold one view.

    >>> CoTS().needs
    frozenset({'zero_shot_logits'})
    """

    name: ClassVar[str] = "cots"
    learns_from = "nothing"
    reads_other_rows = True
    needs = frozenset({"zero_shot_logits"})

    def __init__(self, per: str = "split") -> None:
        self.per = per

    def _move(self, predictions: Predictions) -> Predictions:
        if self.per not in GRANULARITIES:
            raise ConfigError(unknown("granularity of CoTS", self.per, GRANULARITIES))
        gaps, aim = _gaps(current_logits(predictions)), frozen_confidence(predictions)
        if self.per == "row":
            return divide_rows(predictions, row_temperatures(gaps, aim))
        return divide_rows(predictions, split_temperature(gaps, aim))

    def _found(self) -> str:
        return f"T of each {self.per} from its own rows, without labels"


@register("calibrator", "cots_val")
class CoTSOnValidation(Calibrator):
    """z' = z / T with the T of CoTS found on the rows of ``fit``, whose labels are not read, and used everywhere.

    Attributes:
        temperature_: T.

    See :class:`CoTS`, which finds T anew on the rows it transforms.

    >>> CoTSOnValidation().learns_from
    'rows'
    """

    name: ClassVar[str] = "cots_val"
    needs = frozenset({"zero_shot_logits"})

    def _learn(self, predictions: Predictions) -> None:
        self.temperature_ = split_temperature(_gaps(current_logits(predictions)), frozen_confidence(predictions))

    def _move(self, predictions: Predictions) -> Predictions:
        return divide_rows(predictions, self.temperature_)

    def _found(self) -> str:
        return f"T = {self.temperature_:.4f}, without labels"


def frozen_confidence(predictions: Predictions) -> Float[np.ndarray, " n"]:
    """The largest zero-shot probability of each row."""
    return _confidence(_gaps(predictions.require("zero_shot_logits").astype(np.float64)), 1.0)


def split_temperature(gaps: Float[np.ndarray, "n C"], aim: Float[np.ndarray, " n"]) -> float:
    """The T with the least mean squared difference between confidence and ``aim``.

    Confidence falls as T grows in every row, but the mean of squares may have several minima: the best of a grid over
    log T is refined between its neighbours.
    """

    def objective(log_temperature: float) -> float:
        return float(np.square(_confidence(gaps, float(np.exp(log_temperature))) - aim).mean())

    grid = np.linspace(np.log(LOWEST), np.log(HIGHEST), 41)
    values = [objective(point) for point in grid]
    best = int(np.argmin(values))
    around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    refined = minimize_scalar(objective, bounds=around, method="bounded", options={"xatol": 1e-9})
    if float(refined.fun) < values[best]:
        return float(np.exp(refined.x))
    if best in (0, len(grid) - 1):
        warnings.warn(
            f"T of CoTS lies at its bound {np.exp(grid[best]):g}: no temperature brings these predictions to the "
            f"zero-shot confidence.",
            CalibrationWarning,
            stacklevel=4,
        )
    return float(np.exp(grid[best]))


def row_temperatures(gaps: Float[np.ndarray, "n C"], aim: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The T of each row whose confidence is ``aim``, by bisection on log T; a bound where no T within reaches it."""
    low, high = np.full(len(aim), np.log(LOWEST)), np.full(len(aim), np.log(HIGHEST))
    for _ in range(60):
        middle = (low + high) / 2
        too_sure = _confidence(gaps, np.exp(middle)[:, None]) > aim
        low, high = np.where(too_sure, middle, low), np.where(too_sure, high, middle)
    found: np.ndarray = np.exp((low + high) / 2)
    return found


def _gaps(logits: Float[np.ndarray, "n C"]) -> Float[np.ndarray, "n C"]:
    """How far each logit is below the largest of its row."""
    gaps: np.ndarray = logits - logits.max(axis=1, keepdims=True)
    return gaps


def _confidence(gaps: Float[np.ndarray, "n C"], temperature: float | np.ndarray) -> Float[np.ndarray, " n"]:
    confidence: np.ndarray = 1.0 / np.exp(gaps / temperature).sum(axis=1)
    return confidence
