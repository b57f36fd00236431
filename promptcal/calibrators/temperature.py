"""Temperature scaling by negative log-likelihood."""

import warnings
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from promptcal.calibrators.contract import CalibrationWarning, Calibrator
from promptcal.calibrators.rewrite import current_logits, divide_rows
from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.metrics.proper import row_nll_from_logits
from promptcal.types import Predictions

MOST_STEPS = 100
TOLERANCE = 1e-12
NORMAL_QUANTILE = 1.959963984540054
"""Of 0.975, for an interval of 95 %."""


@register("calibrator", "temperature")
class TemperatureScaling(Calibrator):
    """z' = z / T with the one T > 0 that minimises the mean NLL of softmax(z / T); T > 1 softens.

    The NLL is convex in b = 1/T. The root of its derivative, mean_i (sum_k p_ik z_ik - z_iy) with p = softmax(b·z), is
    found by Newton steps inside a shrinking bracket, to a relative 1e-12. T = 1 is kept where no other T has a
    lower NLL. The interval is the asymptotic one of an M-estimator (sandwich variance of b, on the log scale).

    Args:
        lowest: smallest T allowed.
        highest: largest T allowed. A T at a bound is flagged in ``at_bound_`` and by a CalibrationWarning: perfectly
            separated rows have no finite best 1/T, rows that are no better than chance no finite T.

    Attributes:
        temperature_: T.
        interval_: 95 % interval of T, within the bounds.
        at_bound_: T lies at a bound, so it is not an optimum.
        nll_before_: mean NLL of the fitted rows at T = 1, in nats.
        nll_after_: mean NLL of the fitted rows at T; never above ``nll_before_``.

    Raises:
        ConfigError: at ``fit``, for bounds that are not 0 < lowest <= 1 <= highest.

    Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, arXiv 1706.04599, where T is
    found by L-BFGS from T = 1.5. Fitted on base classes it may be applied to new ones, as is done for prompt learners.

    >>> logits = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    >>> round(TemperatureScaling().fit(logits, np.array([0, 0, 0, 1])).temperature_, 4)  # 2 / ln 3
    1.8205
    """

    name: ClassVar[str] = "temperature"

    def __init__(self, lowest: float = 0.01, highest: float = 100.0) -> None:
        self.lowest = lowest
        self.highest = highest

    def _learn(self, predictions: Predictions) -> None:
        if not 0.0 < self.lowest <= 1.0 <= self.highest:
            raise ConfigError(f"the bounds of T must be 0 < lowest <= 1 <= highest, not {self.lowest}, {self.highest}.")
        logits, labels = current_logits(predictions), predictions.labels
        optimum = best_temperature(logits, labels, self.lowest, self.highest)
        self.nll_before_ = float(row_nll_from_logits(logits, labels).mean())
        self.nll_after_ = float(row_nll_from_logits(logits / optimum.temperature, labels).mean())
        gains = self.nll_after_ < self.nll_before_
        self.temperature_ = optimum.temperature if gains else 1.0
        self.nll_after_ = min(self.nll_after_, self.nll_before_)
        self.interval_ = [optimum.low, optimum.high]
        self.at_bound_ = optimum.at_bound and gains
        if self.at_bound_:
            warnings.warn(
                f"T = {self.temperature_:g} lies at a bound: on these {len(labels)} rows the NLL falls all the way to "
                f"it; use more validation rows or take another calibrator.",
                CalibrationWarning,
                stacklevel=3,
            )

    def _move(self, predictions: Predictions) -> Predictions:
        return divide_rows(predictions, self.temperature_)

    def _found(self) -> str:
        low, high = self.interval_
        flag = ", at a bound" if self.at_bound_ else ""
        return f"T = {self.temperature_:.4f} (95 % interval {low:.4f} to {high:.4f}{flag})"


class Optimum(NamedTuple):
    """The T of least NLL within bounds, its 95 % interval, and whether it lies at a bound."""

    temperature: float
    low: float
    high: float
    at_bound: bool


def best_temperature(
    logits: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], lowest: float = 0.01, highest: float = 100.0
) -> Optimum:
    """The T in [lowest, highest] that minimises the mean NLL of softmax(logits / T)."""
    centred = logits - logits[np.arange(len(labels)), labels][:, None]
    squared = centred**2

    def moments(inverse: float) -> tuple[Float[np.ndarray, " n"], float]:
        """The derivative of each row's NLL in b = 1/T, and the mean of its second derivative."""
        probs = softmax(inverse * centred, axis=1)
        slopes = np.einsum("nc,nc->n", probs, centred)
        return slopes, float((np.einsum("nc,nc->n", probs, squared) - slopes**2).mean())

    if not squared.any():
        return Optimum(1.0, lowest, highest, at_bound=False)
    inverse, low, high = 1.0, 1.0 / highest, 1.0 / lowest
    slopes, curvature = moments(inverse)
    falling = slopes.mean() < 0.0
    if (moments(high if falling else low)[0].mean() < 0.0) == falling:
        return Optimum(lowest if falling else highest, lowest, highest, at_bound=True)
    for _ in range(MOST_STEPS):
        slope = float(slopes.mean())
        low, high = (inverse, high) if slope < 0.0 else (low, inverse)
        step = inverse - slope / curvature if curvature > 0.0 else high
        if abs(step - inverse) <= TOLERANCE * inverse:
            break
        inverse = step if low < step < high else float(np.sqrt(low * high))
        slopes, curvature = moments(inverse)
    spread = NORMAL_QUANTILE * np.sqrt((slopes**2).mean() / len(labels)) / curvature / inverse
    ends = np.clip(np.exp([-spread, spread]) / inverse, lowest, highest)
    return Optimum(1.0 / inverse, float(ends[0]), float(ends[1]), at_bound=False)
