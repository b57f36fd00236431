"""How well confidence tells right from wrong: AUROC, risk-coverage curves and highly confident false predictions."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import rankdata

from promptcal.errors import ConfigError, unknown
from promptcal.metrics.inputs import top_label


def auroc(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float | None:
    """The chance that a right prediction is more confident than a wrong one, ties counted half; None without either.

    Hendrycks, Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples", ICLR 2017, arXiv
    1610.02136.

    >>> auroc(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1]))
    1.0
    """
    return area_under_roc(*top_label(probs, labels))


def area_under_roc(score: Float[np.ndarray, " n"], outcome: Float[np.ndarray, " n"]) -> float | None:
    """The Mann-Whitney statistic of a score for a 0/1 outcome, divided by its maximum; None where one outcome lacks."""
    positive = float(outcome.sum())
    negative = len(outcome) - positive
    if positive == 0.0 or negative == 0.0:
        return None
    rank_sum = float(rankdata(score)[outcome == 1.0].sum())
    return (rank_sum - positive * (positive + 1.0) / 2.0) / (positive * negative)


def expected_errors(confidence: Float[np.ndarray, " n"], correct: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Expected number of errors among the k most confident samples, k = 1 to n, ties broken at random."""
    order = np.argsort(-confidence, kind="stable")
    _, group, size = np.unique(-confidence[order], return_inverse=True, return_counts=True)
    rate = np.bincount(group, weights=1.0 - correct[order]) / size
    result: np.ndarray = np.cumsum(rate[group])
    return result


def risk_coverage(confidence: Float[np.ndarray, " n"], correct: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The expected share of errors among the k most confident samples, k = 1 to n."""
    result: np.ndarray = expected_errors(confidence, correct) / np.arange(1, len(correct) + 1)
    return result


def area_under_risk_coverage(confidence: Float[np.ndarray, " n"], correct: Float[np.ndarray, " n"]) -> float:
    """The mean of the risk-coverage curve."""
    return float(risk_coverage(confidence, correct).mean())


def excess_area(confidence: Float[np.ndarray, " n"], correct: Float[np.ndarray, " n"]) -> float:
    """The area under the risk-coverage curve less that of an ordering with every right prediction first."""
    return area_under_risk_coverage(confidence, correct) - area_under_risk_coverage(correct, correct)


def aurc(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Area under the risk-coverage curve: the mean over k of the error share among the k most confident, 0 is best.

    Geifman, Uziel, El-Yaniv, "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers", ICLR 2019, arXiv
    1805.08206. Equal confidences count by their expected order, so row order never matters.

    >>> aurc(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1]))
    0.25
    """
    return area_under_risk_coverage(*top_label(probs, labels))


def eaurc(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Excess AURC: the AURC less the least one that the same accuracy allows (every right prediction first).

    Geifman, Uziel, El-Yaniv, ICLR 2019, arXiv 1805.08206; the least is exact for n samples, not its limit.

    >>> eaurc(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1]))
    0.0
    """
    return excess_area(*top_label(probs, labels))


def augrc(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Area under the generalised risk-coverage curve: the mean over k of (errors among the k most confident) / n.

    Traub et al., "Overcoming Common Flaws in the Evaluation of Selective Classification Systems", NeurIPS 2024, arXiv
    2407.01032; the mean over k = 1 to n in place of a trapezoid rule.

    >>> augrc(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1]))
    0.25
    """
    return generalised_area(*top_label(probs, labels))


def generalised_area(confidence: Float[np.ndarray, " n"], correct: Float[np.ndarray, " n"]) -> float:
    """The mean over k of the expected errors among the k most confident, divided by n."""
    return float(expected_errors(confidence, correct).mean() / len(correct))


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
    return confident_errors(*top_label(probs, labels), threshold, kind)


def confident_errors(
    confidence: Float[np.ndarray, " n"], correct: Float[np.ndarray, " n"], threshold: float = 0.9, kind: str = "joint"
) -> ConfidentErrors:
    """The errors with a confidence of at least ``threshold`` and their rate."""
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
    return budget_threshold(*top_label(probs, labels), budget, kind)


def budget_threshold(
    confidence: Float[np.ndarray, " n"], correct: Float[np.ndarray, " n"], budget: float = 0.01, kind: str = "joint"
) -> float | None:
    """The smallest observed confidence that keeps the rate of confident errors within the budget."""
    order = np.argsort(-confidence, kind="stable")
    last = np.append(np.diff(confidence[order]) != 0.0, True)
    errors = np.cumsum(1.0 - correct[order])[last]
    accepted = np.nonzero(last)[0] + 1.0
    wrong = max(float((1.0 - correct).sum()), 1.0)
    totals = {"joint": np.full_like(accepted, len(correct)), "given_confident": accepted, "given_wrong": wrong}
    if kind not in totals:
        raise ConfigError(unknown("kind of confident error", kind, KINDS))
    within = np.nonzero(errors / totals[kind] <= budget)[0]
    return float(confidence[order][last][within[-1]]) if len(within) else None
