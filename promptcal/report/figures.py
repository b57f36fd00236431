"""Figures of a report: drawn by matplotlib, put into the page as SVG that follows the page's colours."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from promptcal.plots import BAR, GAP, LINE, top_label_diagram
from promptcal.report.results import Group, Results, Row
from promptcal.report.samples import Samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THEME = {LINE: "var(--ink)", BAR: "var(--bar)", GAP: "var(--gap)", "#000000": "var(--ink)", "#ffffff": "var(--page)"}
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


@contextmanager
def style(name: str) -> Iterator[None]:
    """Our settings for the figures drawn inside; ``name`` keeps the ids of one figure apart from another's."""
    with rc_context({**STYLE, "svg.hashsalt": name}):
        yield


def to_svg(figure: Figure) -> str:
    """The figure as an SVG element whose colours and fonts are those of the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight", pad_inches=0.02)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 var(--sans)", text)
    for colour, variable in THEME.items():
        text = re.sub(rf"(fill|stroke): {colour}", rf"\1: {variable}", text)
    return re.sub(r"<text (?![^>]*fill)", '<text fill="currentColor" ', text)


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG on white."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, facecolor="white", bbox_inches="tight", metadata={"Software": None})
    return buffer.getvalue()


def pooled(
    results: Results, group: Group, row: Row, samples: Mapping[str, Samples], split: str
) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and correctness of the images of all runs of a row together."""
    scores = [samples[run.folder.path.name].scores[row.calibrator, split] for run in results.of(group, row)]
    return np.concatenate([s.confidence for s in scores]), np.concatenate([s.correct for s in scores])


def reliability(
    results: Results, group: Group, rows: Sequence[Row], samples: Mapping[str, Samples], *, named: bool = True
) -> Figure:
    """Reliability diagrams, a line of panels for each row, one panel for each split."""
    splits = results.splits(group)
    figure = Figure(figsize=(2.6 * len(splits), 2.6 * len(rows)), layout="constrained")
    axes: np.ndarray = figure.subplots(len(rows), len(splits), sharex=True, sharey=True, squeeze=False)
    for line, row in zip(axes, rows, strict=True):
        for ax, split in zip(line, splits, strict=True):
            _panel(ax, *pooled(results, group, row, samples, split))
            ax.set_title(f"{row.name}: {split}" if named else split, fontsize=9)
            ax.label_outer()
    return figure


def _panel(ax: "Axes", confidence: np.ndarray, correct: np.ndarray) -> None:
    top_label_diagram(confidence, correct, ax)
    ax.set_aspect("equal")
