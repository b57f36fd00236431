"""How well confidence tells right from wrong: AUROC, risk-coverage curves and highly confident false predictions."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from promptcal.errors import ConfigError, unknown
from promptcal.metrics.inputs import top_label


@dataclass(frozen=True)
class Levels:
    """Per distinct confidence, from the largest down: the number of samples there and of errors among them.

    The last axis is the level. Leading axes are replicates (resampled data), and the areas below then have those axes.
    """

    size: Float[np.ndarray, "*r L"]
    errors: Float[np.ndarray, "*r L"]

    @property
    def rate(self) -> Float[np.ndarray, "*r L"]:
        """The share of errors of each level, 0 where it is empty."""
        result: np.ndarray = self.errors / np.maximum(self.size, 1.0)
        return result

    @property
    def covered(self) -> Float[np.ndarray, "*r L"]:
        """How many samples are more confident than each level."""
        result: np.ndarray = np.cumsum(self.size, axis=-1) - self.size
        return result

    @property
    def missed(self) -> Float[np.ndarray, "*r L"]:
        """How many errors are more confident than each level."""
        result: np.ndarray = np.cumsum(self.errors, axis=-1) - self.errors
        return result


def levels(confidence: Float[np.ndarray, " n"], correct: Float[np.ndarray, " n"]) -> Levels:
    """The levels of a set of predictions."""
    _, index, size = np.unique(-confidence, return_inverse=True, return_counts=True)
    return Levels(size.astype(np.float64), np.bincount(index, weights=1.0 - correct))


def harmonic_numbers(n: int) -> Float[np.ndarray, " n1"]:
    """1 + 1/2 + ... + 1/k for k = 0 to n."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n + 1))])


def roc_area(levels: Levels) -> np.ndarray:
    """The Mann-Whitney statistic of confidence for correctness over its maximum; NaN where one outcome is missing."""
    right, wrong = levels.size - levels.errors, levels.errors
    pairs = right.sum(axis=-1) * wrong.sum(axis=-1)
    above = levels.covered - levels.missed
    won = (wrong * (above + 0.5 * right)).sum(axis=-1)
    return np.asarray(np.where(pairs > 0, won / np.where(pairs > 0, pairs, 1.0), np.nan))


def risk_coverage_area(levels: Levels) -> np.ndarray:
    """The mean over k = 1 to n of the expected share of errors among the k most confident.

    Within a level the expected errors grow linearly, so the sum over its k is a difference of harmonic numbers.
    """
    n = int(levels.size.sum(axis=-1).max())
    harmonic = harmonic_numbers(n)
    first, last = levels.covered.astype(np.int64), (levels.covered + levels.size).astype(np.int64)
    offset = levels.missed - levels.covered * levels.rate
    return np.asarray((levels.errors + offset * (harmonic[last] - harmonic[first])).sum(axis=-1) / n)


def least_risk_coverage_area(levels: Levels) -> np.ndarray:
    """The area of an ordering with every right prediction first."""
    n = int(levels.size.sum(axis=-1).max())
    harmonic = harmonic_numbers(n)
    wrong = levels.errors.sum(axis=-1)
    right = (n - wrong).astype(np.int64)
    return np.asarray((wrong - right * (harmonic[n] - harmonic[right])) / n)


def excess_area(levels: Levels) -> np.ndarray:
    """The area under the risk-coverage curve less the least one that the same accuracy allows."""
    return np.asarray(risk_coverage_area(levels) - least_risk_coverage_area(levels))


def generalised_area(levels: Levels) -> np.ndarray:
    """The mean over k of the expected errors among the k most confident, divided by n."""
    n = levels.size.sum(axis=-1)
    errors = levels.size * levels.missed + levels.rate * levels.size * (levels.size + 1.0) / 2.0
    return np.asarray(errors.sum(axis=-1) / n**2)


def auroc(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float | None:
    """The chance that a right prediction is more confident than a wrong one, ties counted half; None without either.

    Hendrycks, Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples", ICLR 2017, arXiv
    1610.02136.

    >>> auroc(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1]))
    1.0
    """
    area = float(roc_area(levels(*top_label(probs, labels))))
    return None if np.isnan(area) else area


def aurc(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Area under the risk-coverage curve: the mean over k of the error share among the k most confident, 0 is best.

    Geifman, Uziel, El-Yaniv, "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers", ICLR 2019, arXiv
    1805.08206. Equal confidences count by their expected order, so row order never matters.

    >>> aurc(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1]))
    0.25
    """
    return float(risk_coverage_area(levels(*top_label(probs, labels))))


def eaurc(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Excess AURC: the AURC less the least one that the same accuracy allows (every right prediction first).

    Geifman, Uziel, El-Yaniv, ICLR 2019, arXiv 1805.08206; the least is exact for n samples, not its limit.

    >>> eaurc(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1]))
    0.0
    """
    return float(excess_area(levels(*top_label(probs, labels))))


def augrc(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Area under the generalised risk-coverage curve: the mean over k of (errors among the k most confident) / n.

    Traub et al., "Overcoming Common Flaws in the Evaluation of Selective Classification Systems", NeurIPS 2024, arXiv
    2407.01032; the mean over k = 1 to n in place of a trapezoid rule.

    >>> augrc(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1]))
    0.25
    """
    return float(generalised_area(levels(*top_label(probs, labels))))


@dataclass(frozen=True)
class ConfidentErrors:
    """Highly confident false predictions: their rate (None where it has no denominator) and the rows they are in."""

    rate: float | None
    indices: Int[np.ndarray, " errors"]
    threshold: float
    kind: str


KINDS = ("joint", "given_confident", "given_wrong")


def hcfp(
    probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, threshold: float = 0.9, kind: str = "joint"
) -> ConfidentErrors:
    """Highly confident false predictions: wrong with a confidence of at least ``threshold``.

    ``kind`` is the denominator: ``joint`` all n samples, P(wrong and confident); ``given_confident`` the confident
    ones, P(wrong | confident); ``given_wrong`` the wrong ones, P(confident | wrong).

    Raises:
        DataError: see ``check_probabilities``. ConfigError: an unknown kind.

    >>> hcfp(np.array([[0.95, 0.05], [0.05, 0.95]]), np.array([0, 0])).indices
    array([1])
    """
    confidence, correct = top_label(probs, labels)
    rows = confident_error_rows(confidence, correct, threshold, kind)
    indices = np.nonzero((confidence >= threshold) & (correct == 0.0))[0]
    return ConfidentErrors(float(rows.mean()) if len(rows) else None, indices, threshold, kind)


def confident_error_rows(
    confidence: Float[np.ndarray, " n"], correct: Float[np.ndarray, " n"], threshold: float, kind: str
) -> Float[np.ndarray, " m"]:
    """For each row that the kind counts among, 1 where it is a confident error, else 0."""
    confident, wrong = confidence >= threshold, correct == 0.0
    among = {"joint": np.ones_like(wrong), "given_confident": confident, "given_wrong": wrong}
    if kind not in among:
        raise ConfigError(unknown("kind of confident error", kind, KINDS))
    result: np.ndarray = (confident & wrong)[among[kind]].astype(np.float64)
    return result


def threshold_for_budget(
    probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, budget: float = 0.01, kind: str = "joint"
) -> float | None:
    """The smallest observed confidence from which the rate of confident errors is within ``budget``; None if none is.

    >>> threshold_for_budget(np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([0, 1]), budget=0.1)
    0.9
    """
    confidence, correct = top_label(probs, labels)
    found = levels(confidence, correct)
    errors, accepted = np.cumsum(found.errors), np.cumsum(found.size)
    totals = {"joint": accepted[-1], "given_confident": accepted, "given_wrong": max(errors[-1], 1.0)}
    if kind not in totals:
        raise ConfigError(unknown("kind of confident error", kind, KINDS))
    within = np.nonzero(errors / totals[kind] <= budget)[0]
    return float(np.unique(confidence)[::-1][within[-1]]) if len(within) else None
