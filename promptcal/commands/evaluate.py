"""Measure predictions from a file: every calibration number, with its convention, noise floor and interval.

The file holds labels and, of every class, probabilities or logits (npz, csv or safetensors), or the top label alone
(a csv with true_label, pred_label, confidence).

Examples:
  promptcal evaluate predictions.npz
  promptcal evaluate predictions.npz --intervals --out evaluation
  promptcal evaluate runs/digits/coop/1a2b3c4d/predictions/novel.safetensors --preset torchmetrics
"""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from promptcal.metrics.contract import Measurement, TopLabelPredictions
    from promptcal.types import Predictions

HELP = "every calibration number of a prediction file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptcal evaluate``."""
    parser.add_argument("file", metavar="FILE", help="predictions: .npz, .csv or .safetensors")
    parser.add_argument("--preset", default="guo15", help="whose conventions: guo15 (default) or a peer's name")
    parser.add_argument("--intervals", action="store_true", help="add 95%% intervals and a test of calibration")
    parser.add_argument(
        "--also",
        nargs="+",
        default=[],
        metavar="METRIC",
        help="slow metrics: kde_ece, smooth_calibration_error, piece",
    )
    parser.add_argument("--logits", action="store_true", help="the table holds logits, not probabilities")
    parser.add_argument("--out", metavar="DIR", help="write metrics.json, metrics.csv and reliability.png there")


def run(arguments: argparse.Namespace) -> int:
    """Read, measure, print, and write where asked to."""
    from pathlib import Path

    from promptcal.console import say
    from promptcal.data.prediction_files import read_predictions
    from promptcal.metrics import TopLabelPredictions, measure
    from promptcal.metrics.presets import PRESETS

    path = Path(arguments.file)
    predictions = read_predictions(path, logits=arguments.logits)
    rows = measure(predictions, arguments.preset, intervals=arguments.intervals, also=arguments.also)
    say(f"{path.name}: {len(predictions.labels)} samples, preset {arguments.preset}, fractions unless a unit is given")
    say()
    say(table(rows))
    if isinstance(predictions, TopLabelPredictions):
        left_out = dict.fromkeys(metric.name for metric in PRESETS[arguments.preset] if metric.all_classes)
        say()
        say(f"The file has the top label alone; these need the probabilities of all classes: {', '.join(left_out)}.")
    if arguments.out is not None:
        say()
        for file in write(Path(arguments.out), path.name, predictions, rows):
            say(f"wrote {file}")
    return 0


def table(rows: "list[Measurement]") -> str:
    """The measurements as aligned text: value, interval, noise floor, convention."""
    from promptcal.console import columns

    lines = [("metric", "value", "95 % interval", "noise floor", "convention")]
    for row in rows:
        bounds = "" if row.low is None or row.high is None else f"{row.low:.4f} to {row.high:.4f}"
        bins, closed = row.bins and f"{row.bins} bins", row.closed and f"{row.closed}-closed"
        width = row.bandwidth and f"bandwidth {row.bandwidth:.3g}"
        unit = None if row.unit == "fraction" else row.unit
        lines.append(
            (
                row.metric,
                "undefined" if row.value is None else f"{row.value:.5g}",
                bounds,
                "" if row.noise_floor is None else f"{row.noise_floor:.4f}",
                ", ".join(part for part in (unit, bins, row.norm, closed, width) if part),
            )
        )
    shown = [column for column in range(5) if column < 2 or any(line[column] for line in lines[1:])]
    return columns([[line[column] for column in shown] for line in lines])


def write(
    folder: "Path", name: str, predictions: "Predictions | TopLabelPredictions", rows: "list[Measurement]"
) -> "list[Path]":
    """Write the rows as JSON and CSV and the reliability diagram as PNG; returns the files."""
    import csv
    import io

    from matplotlib.figure import Figure

    from promptcal.metrics.contract import score
    from promptcal.plots import top_label_diagram
    from promptcal.storage import write_bytes, write_json, write_text

    dictionaries = [row.row() for row in rows]
    files = [folder / "metrics.json", folder / "metrics.csv", folder / "reliability.png"]
    write_json(files[0], {"file": name, "n": len(predictions.labels), "metrics": dictionaries})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dictionaries[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(dictionaries)
    write_text(files[1], text.getvalue())
    scored = score(predictions)
    figure = Figure(figsize=(4.2, 4.6), layout="constrained")
    top_label_diagram(scored.confidence, scored.correct, figure.subplots(), counts=True, smooth=True, title=name)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=160, metadata={"Software": None})
    write_bytes(files[2], picture.getvalue())
    return files
