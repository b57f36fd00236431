"""Figures of a report: drawn by matplotlib, put into the page as SVG that follows the page's colours."""

import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from promptcal.plots import BAR, CURVE, GAP, LINE, top_label_diagram
from promptcal.report.estimates import Compared, Estimate
from promptcal.report.results import Group, Number, Results, Row
from promptcal.report.samples import Samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SERIES = ("#0f6cab", "#c2571a", "#1f8a63", "#a34f94", "#8a6d00", "#4b5fc4", "#b23a48", "#4d7c0f")
MARKERS = "osD^vPX*"
THEME = {
    LINE: "var(--muted)",
    CURVE: "var(--ink)",
    BAR: "var(--bar)",
    GAP: "var(--gap)",
    "#000000": "var(--ink)",
    "#ffffff": "var(--page)",
    **{colour: f"var(--series-{index})" for index, colour in enumerate(SERIES)},
}
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.titlesize": 9.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
PANEL, LEFT, RIGHT, BELOW, ABOVE, BETWEEN = 1.75, 0.52, 0.12, 0.45, 0.25, 0.35
"""Inches: the side of a panel and the room around and between panels."""
CONFIDENCE_TICKS = (0.0, 0.5, 1.0)
STRIP = 0.32
"""Inches: the strip of counts above a reliability diagram."""
OVER_SHOTS = (("accuracy", "accuracy, %", 100), ("ece", "ECE, %", 100), ("nll", "NLL, nats", 1))
"""What is drawn against the number of shots: the metric, its label, and what its values are multiplied by."""


@contextmanager
def style(name: str) -> Iterator[None]:
    """Our settings for the figures drawn inside; ``name`` keeps the ids of one figure apart from another's."""
    with rc_context({**STYLE, "svg.hashsalt": name}):
        yield


def to_svg(figure: Figure) -> str:
    """The figure as an SVG element whose colours and fonts are those of the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 var(--sans)", text)
    for colour, variable in THEME.items():
        text = re.sub(rf"(fill|stroke): {colour}", rf"\1: {variable}", text)
    return re.sub(r"<text (?![^>]*fill)", '<text fill="currentColor" ', text)


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG on white."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def panels(
    rows: int, columns: int, *, legend: float = 0.0, strip: float = 0.0, left: float = LEFT
) -> tuple[Figure, np.ndarray]:
    """A figure of square panels whose sizes are fixed in inches, with room for a legend below and strips above."""
    width_all = left + columns * PANEL + (columns - 1) * BETWEEN + RIGHT
    below, above, between = BELOW + legend, ABOVE + strip, BETWEEN + strip
    height_all = above + rows * PANEL + (rows - 1) * between + below
    figure = Figure(figsize=(width_all, height_all))
    axes: np.ndarray = figure.subplots(rows, columns, squeeze=False, sharey="row")
    figure.subplots_adjust(
        left=left / width_all,
        right=1 - RIGHT / width_all,
        bottom=below / height_all,
        top=1 - above / height_all,
        wspace=BETWEEN / PANEL,
        hspace=between / PANEL,
    )
    return figure, axes


def reliability(
    results: Results, group: Group, rows: Sequence[Row], samples: Mapping[str, Samples], *, named: bool = True
) -> Figure:
    """Reliability diagrams of all images of a row's runs together: a line of panels a row, one panel a split.

    ``named`` puts the name of the row at the left of its line.
    """
    splits = results.splits(group)
    names = [textwrap.wrap(row.name, 28) if named else [] for row in rows]
    figure, axes = panels(len(rows), len(splits), strip=STRIP, left=LEFT + 0.16 * max(map(len, names)))
    for line, row, name in zip(axes, rows, names, strict=True):
        for ax, split in zip(line, splits, strict=True):
            known = [samples[run.name].scores.get((row.calibrator, split)) for run in results.of(group, row)]
            scores = [one for one in known if one is not None]
            if not scores:
                ax.set_axis_off()
                continue
            confidence = np.concatenate([one.confidence for one in scores])
            correct = np.concatenate([one.correct for one in scores])
            top_label_diagram(confidence, correct, ax, counts=True, title=split)
            ax.set(xticks=CONFIDENCE_TICKS, ylabel="\n".join([*name, "accuracy"]))
            ax.label_outer()
            ax.child_axes[0].set_ylabel("")
    return figure


def confidences(results: Results, group: Group, rows: Sequence[Row], samples: Mapping[str, Samples]) -> Figure:
    """How confident each row is, a panel for each split: the share of images in each of 20 bins of confidence."""
    splits = results.splits(group)
    figure, axes = panels(1, len(splits), legend=_legend_height(rows))
    for ax, split in zip(axes[0], splits, strict=True):
        for index, row in enumerate(rows):
            known = [samples[run.name].scores.get((row.calibrator, split)) for run in results.of(group, row)]
            confidence = np.concatenate([np.zeros(0), *(one.confidence for one in known if one is not None)])
            share, edges = np.histogram(confidence, bins=20, range=(0.0, 1.0))
            ax.stairs(
                share / max(1, len(confidence)), edges, color=_colour(index), linewidth=1.4, label=row.method_name
            )
        ax.set(title=split, xlim=(0, 1), ylim=(0, None), xticks=CONFIDENCE_TICKS, xlabel="confidence")
    axes[0, 0].set_ylabel("share of images")
    _legend(figure, axes[0, 0])
    return figure


def over_shots(by_shots: Mapping[int, Compared], rows: Sequence[Row], splits: Sequence[str]) -> Figure:
    """Accuracy, ECE and NLL against the training images a class: a line of panels a metric, a panel for each split.

    With 95 % intervals.
    """
    figure, axes = panels(len(OVER_SHOTS), len(splits), legend=_legend_height(rows))
    shots = sorted(by_shots)
    for line, (metric, label, scale) in zip(axes, OVER_SHOTS, strict=True):
        for ax, split in zip(line, splits, strict=True):
            number = Number(split, metric)
            for index, row in enumerate(rows):
                known = [(shot, by_shots[shot].estimates.get((row, number))) for shot in shots]
                points = [(shot, e) for shot, e in known if e is not None]
                values = [e.value * scale for _, e in points]
                reach = np.array([_reach(e) for _, e in points]).reshape(-1, 2).T * scale
                ax.errorbar(
                    [shot for shot, _ in points],
                    values,
                    reach,
                    color=_colour(index),
                    marker=_marker(index),
                    markersize=4,
                    linewidth=1.2,
                    elinewidth=0.8,
                    label=row.method_name,
                )
            ax.set_xscale("log", base=2)
            ax.set_xticks(shots, [str(shot) for shot in shots])
            ax.minorticks_off()
            ax.set(title=split if metric == OVER_SHOTS[0][0] else "", xlabel="training images a class", ylabel=label)
            if metric != "accuracy":
                ax.set_ylim(0, None)
            ax.label_outer()
    _legend(figure, axes[0, 0])
    return figure


def _reach(estimate: Estimate) -> tuple[float, float]:
    """How far the interval reaches below and above the value: a basic interval may lie wholly to one side of it."""
    value, low, high = estimate.value, estimate.low, estimate.high
    return (0.0, 0.0) if low is None or high is None else (max(0.0, value - low), max(0.0, high - value))


def over_epochs(
    results: Results, group: Group, rows: Sequence[Row], histories: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Figure:
    """ECE on test images after each epoch that was evaluated, the mean over runs, a panel for each split."""
    splits = results.splits(group)
    figure, axes = panels(1, len(splits), legend=_legend_height(rows))
    for ax, split in zip(axes[0], splits, strict=True):
        for index, row in enumerate(rows):
            seen = [one for run in results.of(group, row) for one in histories[run.name] if f"{split}_ece" in one]
            epochs = sorted({one["epoch"] for one in seen})
            means = [np.mean([one[f"{split}_ece"] for one in seen if one["epoch"] == epoch]) for epoch in epochs]
            ax.plot(epochs, np.array(means) * 100, color=_colour(index), linewidth=1.2, label=row.method_name)
        ax.set(title=split, ylim=(0, None), xlabel="epoch")
    axes[0, 0].set_ylabel("ECE, %")
    _legend(figure, axes[0, 0])
    return figure


def margin_spreads(results: Results, group: Group, rows: Sequence[Row], samples: Mapping[str, Samples]) -> Figure:
    """ECE against the standard deviation of the margin, a point for each run, a panel for each split."""
    splits = results.splits(group)
    figure, axes = panels(1, len(splits), legend=_legend_height(rows))
    for ax, split in zip(axes[0], splits, strict=True):
        for index, row in enumerate(rows):
            runs = [run for run in results.of(group, row) if split in samples[run.name].margin_spread]
            ax.plot(
                [samples[run.name].margin_spread[split] for run in runs],
                [run.values[row.calibrator, Number(split, "ece")] * 100 for run in runs],
                color=_colour(index),
                marker=_marker(index),
                markersize=4,
                linestyle="none",
                alpha=0.8,
                label=row.method_name,
            )
        ax.set(title=split, ylim=(0, None), xlabel="spread of the margin")
    axes[0, 0].set_ylabel("ECE, %")
    _legend(figure, axes[0, 0])
    return figure


def temperatures(results: Results, group: Group, rows: Sequence[Row], samples: Mapping[str, Samples]) -> Figure:
    """The T of temperature scaling in each run, on a logarithmic axis, a line for each method."""
    figure = Figure(figsize=(LEFT + 2 * PANEL + BETWEEN + RIGHT, 0.6 + 0.3 * len(rows)))
    ax = figure.subplots()
    longest = max(len(row.method_name) for row in rows)
    figure.subplots_adjust(
        left=min(0.5, 0.05 + longest * 0.0155), right=0.98, top=0.97, bottom=0.42 / figure.get_figheight()
    )
    for index, row in enumerate(rows):
        found = [samples[run.name].temperature for run in results.of(group, row)]
        values = [value for value in found if value is not None]
        ax.plot(values, [index] * len(values), _marker(index), color=_colour(index), markersize=5, alpha=0.7)
    ax.axvline(1.0, color=LINE, linewidth=0.8, linestyle="--")
    ax.set_yticks(range(len(rows)), [row.method_name for row in rows])
    ax.set(xscale="log", ylim=(len(rows) - 0.5, -0.5), xlabel="T (above 1 softens)")
    low, high = ax.get_xlim()
    ticks = [tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= tick <= high]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    return figure


def instance_temperatures(
    results: Results, group: Group, rows: Sequence[Row], samples: Mapping[str, Samples]
) -> Figure:
    """How the temperature of an image is distributed, on a logarithmic axis, a panel for each split."""
    splits = results.splits(group)
    figure, axes = panels(1, len(splits), legend=_legend_height(rows))
    for ax, split in zip(axes[0], splits, strict=True):
        for index, row in enumerate(rows):
            found = [samples[run.name].instance_temperature.get(split) for run in results.of(group, row)]
            values = np.log(np.concatenate([one for one in found if one is not None]))
            share, edges = np.histogram(values, bins=30)
            ax.stairs(share / len(values), np.exp(edges), color=_colour(index), linewidth=1.4, label=row.method_name)
        ax.set(title=split, xscale="log", ylim=(0, None), xlabel="temperature of an image")
    axes[0, 0].set_ylabel("share of images")
    _legend(figure, axes[0, 0])
    return figure


def _colour(index: int) -> str:
    return SERIES[index % len(SERIES)]


def _marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]


def _legend_height(rows: Sequence[Row]) -> float:
    return 0.2 * ((len(rows) + 1) // 2) if len(rows) > 1 else 0.0


def _legend(figure: Figure, ax: "Axes") -> None:
    handles, labels = ax.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="lower center", borderpad=0.0, ncols=2, columnspacing=2.0, handlelength=1.4)
