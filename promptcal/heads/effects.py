"""What a head does to stored predictions beside temperature scaling and DAC, with intervals, on base and on novel."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import spearmanr

from promptcal.calibrators import Calibrator
from promptcal.calibrators.rewrite import current_logits
from promptcal.diagnostics import QUANTILES, residual_temperature
from promptcal.metrics.bins import bin_index
from promptcal.metrics.inputs import top_label
from promptcal.metrics.proper import row_nll_from_logits
from promptcal.metrics.selective import Levels, risk_coverage_area
from promptcal.types import Predictions

BINS = 15
REPLICATES = 1000


@dataclass(frozen=True)
class Effect:
    """A number of a calibrator on a split, and how much it is above that of temperature scaling on the same rows.

    ``low`` and ``high`` bound the difference with 95 % (paired basic bootstrap over the rows of one run: the luck of
    the drawn shots, and of the classes, is not in it).
    """

    calibrator: str
    split: str
    metric: str
    value: float
    difference: float
    low: float
    high: float
    n: int

    def row(self) -> dict[str, Any]:
        """The effect as one JSON-ready row."""
        return asdict(self)

    @property
    def is_worse(self) -> bool:
        """The number is higher than that of temperature scaling, and the interval leaves no doubt."""
        return self.low > 0.0


METRICS = ("nll", "ece", "aurc")
"""What effects are told of: NLL in nats, ECE of 15 bins, AURC; lower is better in each."""


def effects(
    calibrators: Mapping[str, Calibrator], scaling: Calibrator, splits: Mapping[str, Predictions], *, seed: int = 0
) -> list[Effect]:
    """NLL, ECE (15 bins) and AURC of fitted calibrators on test splits, and their differences from temperature scaling.

    Args:
        calibrators: fitted, by the name to print.
        scaling: temperature scaling, fitted on the same base validation rows.
        splits: test predictions, by split.
        seed: of the bootstrap.
    """
    found = []
    for split, predictions in splits.items():
        n = len(predictions.labels)
        drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), REPLICATES).astype(np.float64)
        times = np.concatenate([np.ones((1, n)), drawn])  # the rows as they are, then the resampled ones
        reference = resampled(scaling.transform(predictions), times)
        for calibrator, fitted in calibrators.items():
            values = resampled(fitted.transform(predictions), times)
            for metric, value, less in zip(METRICS, values, values - reference, strict=True):
                low, high = 2.0 * less[0] - np.quantile(less[1:], [0.975, 0.025])
                bounds = float(low), float(high)
                found.append(Effect(calibrator, split, metric, float(value[0]), float(less[0]), *bounds, n))
    return found


def resampled(predictions: Predictions, times: Float[np.ndarray, "R n"]) -> Float[np.ndarray, "3 R"]:
    """The ``METRICS`` of rows that count so many times each."""
    n = len(predictions.labels)
    confidence, correct = top_label(predictions.probs(), predictions.labels)
    nll = times @ row_nll_from_logits(current_logits(predictions), predictions.labels) / n
    gaps = np.zeros((n, BINS))
    gaps[np.arange(n), bin_index(confidence, BINS)] = confidence - correct
    ece = np.abs(times @ gaps).sum(axis=1) / n
    order = np.argsort(-confidence, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(confidence[order]) != 0.0])
    size = np.add.reduceat(times[:, order], starts, axis=1)
    errors = np.add.reduceat((times * (1.0 - correct))[:, order], starts, axis=1)
    return np.stack([nll, ece, risk_coverage_area(Levels(size, errors))])


@dataclass(frozen=True)
class Spread:
    """How the temperatures of a head are distributed over a split, and what they go with.

    Attributes:
        split: which rows.
        mean: of s.
        low: its 5 % quantile.
        median: its 50 % quantile.
        high: its 95 % quantile.
        correlation: Spearman's, of s with being right; None where either does not vary. Hard rows that are cooled show
            as a negative one.
        residual: the T that would be best behind the head on the labels of this very split (1 = nothing left).
        residual_scaling: the same behind temperature scaling.
    """

    split: str
    mean: float
    low: float
    median: float
    high: float
    correlation: float | None
    residual: float
    residual_scaling: float

    def row(self) -> dict[str, Any]:
        """The spread as one JSON-ready row."""
        return asdict(self)


def spread(head: Calibrator, scaling: Calibrator, predictions: Predictions) -> Spread:
    """The temperatures that a head gives the rows of a split."""
    moved, scaled = head.transform(predictions), scaling.transform(predictions)
    before = 1.0 if predictions.temperature is None else predictions.temperature
    temperatures = (np.ones(len(predictions.labels)) if moved.temperature is None else moved.temperature) / before
    correct = predictions.logits.argmax(axis=1) == predictions.labels
    varies = np.ptp(temperatures) > 0 and 0 < correct.sum() < len(correct)
    low, median, high = np.quantile(temperatures, QUANTILES)
    return Spread(
        split=predictions.split,
        mean=float(temperatures.mean()),
        low=float(low),
        median=float(median),
        high=float(high),
        correlation=float(spearmanr(temperatures, correct)[0]) if varies else None,
        residual=residual_temperature(moved),
        residual_scaling=residual_temperature(scaled),
    )


def verdict(found: list[Effect], head: str) -> list[str]:
    """What the numbers say of a head against temperature scaling, a sentence for each split."""
    sentences = []
    for effect in found:
        if effect.calibrator != head or effect.metric != "nll":
            continue
        interval = f"{effect.difference:+.4f} nats ({effect.low:+.4f} to {effect.high:+.4f})"
        if effect.is_worse:
            sentences.append(f"The head makes the {effect.split} NLL worse than temperature scaling does: {interval}.")
        elif effect.high < 0.0:
            sentences.append(f"The head makes the {effect.split} NLL better than temperature scaling does: {interval}.")
        else:
            sentences.append(f"On {effect.split} the head's NLL cannot be told from temperature scaling's: {interval}.")
    return sentences
