"""Pictures: data in, matplotlib Axes out; nothing is shown or saved here."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from promptcal.metrics.bins import equal_width, l1
from promptcal.metrics.inputs import check_outcomes, top_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR, GAP, LINE = "#4878a8", "#d1605e", "#222222"


def reliability_diagram(
    probs: Float[np.ndarray, "n C"],
    labels: Int[np.ndarray, " n"],
    ax: "Axes",
    *,
    bins: int = 15,
    closed: str = "right",
) -> "Axes":
    """Accuracy against confidence of the top label, bin by bin, with the gap to the diagonal and the counts.

    Bars stand at the bins' accuracies; the gap bar runs from there to the bin's mean confidence; empty bins are blank;
    the printed ECE is ``ece`` of the same bins.

    Raises:
        DataError: what ``check_probabilities`` refuses.
    """
    return top_label_diagram(*top_label(probs, labels), ax, bins=bins, closed=closed)


def top_label_diagram(
    confidence: Float[np.ndarray, " n"],
    correct: Float[np.ndarray, " n"],
    ax: "Axes",
    *,
    bins: int = 15,
    closed: str = "right",
) -> "Axes":
    """A reliability diagram from confidences [n] and their correctness (0 or 1) [n]."""
    confidence, correct = check_outcomes(confidence, correct)
    sums = equal_width(confidence, correct, bins, closed)
    filled = sums.count > 0
    centres, width = ((np.arange(bins) + 0.5) / bins)[filled], 1.0 / bins
    accuracy, gap = sums.accuracy[filled], sums.gap[filled]
    ax.bar(centres, accuracy, width, color=BAR, edgecolor="white", linewidth=0.5, label="accuracy")
    ax.bar(centres, gap, width, bottom=accuracy, color=GAP, alpha=0.45, edgecolor=GAP, linewidth=0.5, label="gap")
    ax.plot([0, 1], [0, 1], color=LINE, linewidth=0.8, linestyle="--")
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")
    ax.text(0.03, 0.96, f"ECE {float(l1(sums)):.4f}\nn = {len(correct)}", va="top", transform=ax.transAxes)
    return ax
