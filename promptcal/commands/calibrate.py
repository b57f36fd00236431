"""Fit calibrators on one prediction file, apply them to another, and see what they change.

Both files hold labels and, of every class, probabilities or logits (npz, csv or safetensors). The table shows the
second file after each calibrator, and how far the rows it was fitted on flatter it. A calibrator that is tied to its
classes is left out, with a note, where the second file has others.

Examples:
  promptcal calibrate --fit val.npz --apply test.npz --out calibrated
  promptcal calibrate --fit val.npz --apply test.npz --calibrators temperature,isotonic,vector --out calibrated
  promptcal calibrate --fit val.safetensors --apply novel.safetensors --calibrators dac+temperature,route --out novel
"""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from promptcal.calibrators import Calibrator
    from promptcal.types import Predictions

HELP = "fit calibrators on one prediction file, apply them to another"
HEAD = ["calibrator", "accuracy", "ece", "nll", "brier", "ece (fitted rows)", "nll (fitted rows)", ""]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptcal calibrate``."""
    parser.add_argument("--fit", required=True, metavar="FILE", help="predictions to fit on: .npz, .csv, .safetensors")
    parser.add_argument("--apply", required=True, metavar="FILE", help="predictions to calibrate, of other samples")
    parser.add_argument(
        "--calibrators",
        default="temperature",
        metavar="NAMES",
        help="names with commas between them; a+b applies a, then b; 'all' takes all that these files allow",
    )
    parser.add_argument("--logits", action="store_true", help="the tables hold logits, not probabilities")
    parser.add_argument("--out", required=True, metavar="DIR", help="where the calibrators and calibrated files go")


def run(arguments: argparse.Namespace) -> int:
    """Fit, apply, measure, write and print."""
    import warnings
    from pathlib import Path

    from promptcal.console import columns, say
    from promptcal.metrics import measure
    from promptcal.storage import save_predictions, write_jsonl

    fit_on, apply_to = (_read(Path(name), arguments.logits) for name in (arguments.fit, arguments.apply))
    out = Path(arguments.out)
    wanted, notes = _choose(arguments.calibrators, fit_on, apply_to)
    lines, rows = [HEAD], []
    for name, calibrator in wanted.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            calibrator.fit(fit_on)
            calibrated = calibrator.transform(apply_to)
        notes += dict.fromkeys(f"{name}: {warning.message}" for warning in caught)
        calibrator.save(out / "calibrators" / f"{name}.safetensors")
        save_predictions(out / "predictions" / f"{name}.safetensors", calibrated)
        rows += [{"calibrator": name, **row.row()} for row in measure(calibrated)]
        lines.append(_line(name, calibrated, calibrator.apply(fit_on), calibrator.rows_seen(apply_to)))
    write_jsonl(out / "metrics.jsonl", rows)
    say(f"fitted on {len(fit_on.labels)} rows of {arguments.fit}")
    say(f"applied to {len(apply_to.labels)} rows of {arguments.apply}; fractions, NLL in nats, 15 bins")
    say()
    say(columns(lines))
    say()
    for calibrator in wanted.values():
        say(calibrator.report())
    for note in notes:
        say(f"note: {note}")
    say()
    say(f"calibrators, calibrated predictions and every metric are in {out}")
    return 0


def _read(path: "Path", logits: bool) -> "Predictions":
    from promptcal.data.prediction_files import read_predictions
    from promptcal.errors import DataError
    from promptcal.types import Predictions

    predictions = read_predictions(path, logits=logits)
    if not isinstance(predictions, Predictions):
        raise DataError(f"{path} has the top label alone; calibrators need the probabilities or logits of all classes.")
    return predictions


def _choose(names: str, fit_on: "Predictions", apply_to: "Predictions") -> "tuple[dict[str, Calibrator], list[str]]":
    """The calibrators to fit, with ``none`` first to compare with, and a sentence for each that is left out.

    'all' leaves out what these files do not allow; a name leaves out a calibrator that is tied to other classes.
    """
    from promptcal.calibrators import build_calibrator
    from promptcal.config import options

    chosen, notes = {"none": build_calibrator("none")}, []
    for name in filter(None, map(str.strip, names.split(","))):
        for member in options("calibrator") if name == "all" else [name]:
            calibrator = build_calibrator(member)
            reason = _tied(calibrator, fit_on, apply_to)
            reason = _lacking(calibrator, fit_on, apply_to) or reason if name == "all" else reason
            if reason is None:
                chosen[member] = calibrator
            else:
                notes.append(f"{member} is left out: {reason}.")
    return chosen, notes


def _lacking(calibrator: "Calibrator", fit_on: "Predictions", apply_to: "Predictions") -> str | None:
    """What a calibrator needs and a file has not, or None."""
    for predictions, which in ((fit_on, "fit"), (apply_to, "apply")):
        for field in sorted(calibrator.needs):
            if getattr(predictions, field) is None:
                return f"the file to {which} has no '{field}'"
    return None


def _tied(calibrator: "Calibrator", fit_on: "Predictions", apply_to: "Predictions") -> str | None:
    """Why a calibrator cannot go from the classes of one file to those of the other, or None."""
    if not calibrator.transfers_to_new_classes and fit_on.classes != apply_to.classes:
        return "it is tied to its classes, and the files have different ones"
    return None


def _line(name: str, calibrated: "Predictions", fitted: "Predictions", seen: int) -> list[str]:
    """The cells of a calibrator's line in the table."""
    from promptcal.metrics import accuracy, brier, ece, nll

    after, before = (calibrated.probs(), calibrated.labels), (fitted.probs(), fitted.labels)
    numbers = [accuracy(*after), ece(*after), nll(*after), brier(*after), ece(*before), nll(*before)]
    return [name, *(f"{number:.4f}" for number in numbers), f"in-sample: {seen} rows" if seen else ""]
