"""Pictures: data in, matplotlib Axes out; nothing is shown or saved here."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from promptcal.metrics.bins import equal_width, l1
from promptcal.metrics.curve import reliability_curve
from promptcal.metrics.inputs import check_outcomes, top_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR, GAP, CURVE, LINE = "#4878a8", "#d1605e", "#222222", "#555555"


def reliability_diagram(
    probs: Float[np.ndarray, "n C"],
    labels: Int[np.ndarray, " n"],
    ax: "Axes",
    *,
    bins: int = 15,
    closed: str = "right",
    counts: bool = False,
    smooth: bool = False,
    title: str | None = None,
) -> "Axes":
    """Accuracy against confidence of the top label, bin by bin, with the gaps, the counts and a smooth curve.

    Blue bars stand at the bins' accuracies; red ones run from there to the bins' mean confidence; empty bins are blank.
    The printed ECE is ``ece`` of the same bins. ``counts`` adds a strip above with the samples of each bin; ``smooth``
    the kernel estimate of accuracy with its pointwise 95 % band (``promptcal.metrics.curve``).

    Raises:
        DataError: what ``check_probabilities`` refuses.
    """
    return top_label_diagram(
        *top_label(probs, labels), ax, bins=bins, closed=closed, counts=counts, smooth=smooth, title=title
    )


def top_label_diagram(
    confidence: Float[np.ndarray, " n"],
    correct: Float[np.ndarray, " n"],
    ax: "Axes",
    *,
    bins: int = 15,
    closed: str = "right",
    counts: bool = False,
    smooth: bool = False,
    title: str | None = None,
) -> "Axes":
    """A reliability diagram from confidences [n] and their correctness (0 or 1) [n]; see ``reliability_diagram``.

    Raises:
        DataError: what ``check_outcomes`` refuses.
    """
    confidence, correct = check_outcomes(confidence, correct)
    sums = equal_width(confidence, correct, bins, closed)
    filled = sums.count > 0
    centres, width = ((np.arange(bins) + 0.5) / bins)[filled], 1.0 / bins
    accuracy, gap = sums.accuracy[filled], sums.gap[filled]
    ax.bar(centres, accuracy, width, color=BAR, edgecolor="white", linewidth=0.5, label="accuracy")
    ax.bar(centres, gap, width, bottom=accuracy, color=GAP, alpha=0.45, edgecolor=GAP, linewidth=0.5, label="gap")
    ax.plot([0, 1], [0, 1], color=LINE, linewidth=0.8, linestyle="--")
    if smooth:
        curve = reliability_curve(confidence, correct)
        ax.fill_between(curve.confidence, curve.low, curve.high, color=CURVE, alpha=0.15, linewidth=0)
        ax.plot(curve.confidence, curve.accuracy, color=CURVE, linewidth=1.2, label="smooth accuracy")
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")
    ax.text(0.03, 0.97, f"ECE {float(l1(sums)):.4f}\nn = {len(correct)}", va="top", transform=ax.transAxes)
    strip = ax
    if counts:
        strip = ax.inset_axes((0.0, 1.02, 1.0, 0.16))
        strip.bar(centres, sums.count[filled], width, color=BAR, edgecolor="white", linewidth=0.5)
        strip.set(xlim=(0, 1), xticks=[], yticks=[sums.count.max()], ylabel="samples")
        strip.tick_params(labelsize=7)
    if title is not None:
        strip.set_title(title)
    return ax
