"""What a metric is handed, what it hands back, and how a preset names it."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from promptcal.errors import MissingField
from promptcal.metrics.bins import Binning, BinSums, bin_sums, width_bins
from promptcal.metrics.inputs import check_labels, check_outcomes, check_probabilities, top_of
from promptcal.metrics.proper import softmax_and_nll
from promptcal.metrics.selective import Levels, levels
from promptcal.metrics.smooth import AtBandwidth
from promptcal.types import Predictions


@dataclass(frozen=True)
class Measurement:
    """One number, with what a reader needs to compare it: a fraction unless ``unit`` says otherwise.

    ``value`` is None where the quantity does not exist (such as the AUROC of a model that is always right).
    ``noise_floor`` is the expected value for a perfectly calibrated model with the same confidences; ``low`` and
    ``high`` are 95 % bounds by the method that ``interval_kind`` names.
    """

    metric: str
    value: float | None
    n: int
    bins: int | None = None
    norm: str | None = None
    closed: str | None = None
    bandwidth: float | None = None
    unit: str = "fraction"
    preset: str = "guo15"
    noise_floor: float | None = None
    low: float | None = None
    high: float | None = None
    interval_kind: str | None = None

    def row(self) -> dict[str, Any]:
        """The measurement as one JSON-ready row, with the same keys for every metric."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class TopLabelPredictions:
    """Predictions of which only the top label is known: its confidence [n], its class [n], and the true labels [n]."""

    confidence: Float[np.ndarray, " n"]
    predicted: Int[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class Scored:
    """One split, checked, with its top labels: what every metric draws on.

    ``probabilities`` is None where only the top label is known; ``logits`` (divided by any temperature) and the ``nll``
    of each row are None where the probabilities did not come from logits.
    """

    confidence: Float[np.ndarray, " n"]
    correct: Float[np.ndarray, " n"]
    predicted: Int[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]
    probabilities: Float[np.ndarray, "n C"] | None = None
    logits: Float[np.ndarray, "n C"] | None = None
    nll: Float[np.ndarray, " n"] | None = None
    image_features: Float[np.ndarray, "n D"] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def probs(self) -> Float[np.ndarray, "n C"]:
        """The probabilities of all classes; raises MissingField where only the top label is known."""
        if self.probabilities is None:
            raise MissingField("this metric needs the probabilities of all classes; only the top label is known.")
        return self.probabilities

    @cached_property
    def single_probs(self) -> Float[np.ndarray, "n C"]:
        """The probabilities in float32, as most tools hold them."""
        return self.probs.astype(np.float32)

    @cached_property
    def softmax_probs(self) -> Float[np.ndarray, "n C"]:
        """What tools that take logits see: the softmax of float32 logits, else of log-probabilities."""
        given = self.logits
        logits = np.log(np.maximum(self.probs, 1e-38)) if given is None else given.astype(np.float32)
        table: np.ndarray = logits - logits.max(axis=1, keepdims=True)
        np.exp(table, out=table)
        table /= table.sum(axis=1, keepdims=True)
        return table


def score(predictions: Predictions | TopLabelPredictions) -> Scored:
    """The predictions, checked and with their top labels.

    Raises:
        DataError: what ``check_probabilities`` refuses, or a logit that is not finite; the first offending row named.
    """
    if isinstance(predictions, TopLabelPredictions):
        labels = check_labels(predictions.labels, len(predictions.confidence))
        predicted = check_labels(predictions.predicted, len(predictions.confidence))
        confidence, correct = check_outcomes(predictions.confidence, (predicted == labels).astype(np.float64))
        return Scored(confidence, correct, predicted, labels)
    logits, nll = None, None
    if predictions.probabilities is None:
        logits = predictions.calibrated_logits
        labels = check_labels(predictions.labels, *logits.shape)
        probs, nll = softmax_and_nll(logits, labels)
    else:
        probs, labels = check_probabilities(predictions.probabilities, predictions.labels)
    confidence, correct = top_of(probs, labels)
    predicted = probs.argmax(axis=1)
    return Scored(confidence, correct, predicted, labels, probs, logits, nll, predictions.image_features)


@dataclass(frozen=True)
class Binned:
    """A function of top-label bin sums, and how the samples get their bins."""

    binning: Binning
    reduce: Callable[[BinSums], np.ndarray]


@dataclass(frozen=True)
class Metric:
    """A named metric of a preset and the convention its rows carry.

    Attributes:
        value: the metric of a split, with its bandwidth where it has one.
        rows: where the metric is a mean over samples, the values it is the mean of.
        binned: where the metric is a function of top-label bin sums, that function.
        all_classes: whether it needs the probabilities of all classes.
        levels: where the metric is a function of the errors at each confidence, that function.
        floor: for the noise floor of a metric without ``binned``: such a function that it comes to on a split.
    """

    name: str
    value: Callable[[Scored], float | AtBandwidth | None]
    rows: Callable[[Scored], np.ndarray] | None = None
    binned: Binned | None = None
    bins: int | None = None
    norm: str | None = None
    closed: str | None = None
    unit: str = "fraction"
    levels: Callable[[Levels], np.ndarray] | None = None
    all_classes: bool = False
    floor: Callable[[Scored], Binned | None] = lambda scored: None


def mean_metric(
    name: str, rows: Callable[[Scored], np.ndarray], unit: str = "fraction", all_classes: bool = False
) -> Metric:
    """A metric that is the mean of one value per sample, or per sample of a subset; None where that is empty."""

    def value(scored: Scored) -> float | None:
        values = rows(scored)
        return float(values.mean()) if len(values) else None

    return Metric(name, value, rows=rows, unit=unit, all_classes=all_classes)


def level_metric(name: str, area: Callable[[Levels], np.ndarray]) -> Metric:
    """A metric that is a function of the errors at each confidence; None where that is NaN."""

    def value(scored: Scored) -> float | None:
        found = float(area(levels(scored.confidence, scored.correct)))
        return None if np.isnan(found) else found

    return Metric(name, value, levels=area)


def binned_metric(
    name: str,
    reduce: Callable[[BinSums], np.ndarray],
    bins: int = 15,
    *,
    norm: str | None = None,
    closed: str = "right",
    binning: Binning | None = None,
    unit: str = "fraction",
) -> Metric:
    """A metric that is a function of top-label bin sums: equal-width bins unless ``binning`` says otherwise."""
    assign = binning or width_bins(bins, closed)

    def value(scored: Scored) -> float:
        return float(reduce(bin_sums(scored.confidence, scored.correct, *assign(scored.confidence))))

    return Metric(name, value, binned=Binned(assign, reduce), bins=bins, norm=norm, closed=closed, unit=unit)
