"""Give finished runs a temperature per image, fitted on what their prompts have not seen, and say what it does.

The features of a log-linear head are read from stored predictions, and its weights are fitted in one of three ways:

  val      on the stored base validation predictions; trains nothing
  images   on training images that were left out: the run's method is trained again without each fold of them
  classes  on base classes that were left out, so that the head is kept only where classes that the prompts have not
           seen gain by it; otherwise the answer is temperature scaling (default)

The runs are left as they are. Beside each head lie the predictions that it calibrates and its numbers on base and novel
test images.

Examples:
  promptcal head runs/digits/coop/1a2b3c4d
  promptcal head runs/digits --fit images --out heads
  promptcal head runs --fit val --features range,kl,entropy
"""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptcal.calibrators import LogLinear
    from promptcal.heads.loglinear import LogLinearHead
    from promptcal.run import RunFolder
    from promptcal.types import Predictions

HELP = "add a temperature per image to finished runs, safe for new classes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptcal head``."""
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="folders of runs, or of folders of runs")
    parser.add_argument("--fit", default="classes", metavar="HOW", help="classes (default), images or val")
    parser.add_argument("--features", metavar="A,B,…", help="features of the head (default: those of the calibrator)")
    parser.add_argument("--folds", type=int, default=5, metavar="N", help="folds of the images or classes (default: 5)")
    parser.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="how often classes are divided (default: 1)"
    )
    parser.add_argument("--root", metavar="DIR", help="where the data sets are now, if they have moved")
    parser.add_argument("--out", default="heads", metavar="DIR", help="where the heads go (default: heads)")


def run(arguments: argparse.Namespace) -> int:
    """Fit, write, measure and print."""
    from pathlib import Path

    from promptcal.heads.loglinear import LogLinearHead
    from promptcal.run import find_runs

    head = LogLinearHead(mode=arguments.fit, folds=arguments.folds, repeats=arguments.repeats)
    if arguments.features is not None:
        head = replace(head, features=arguments.features.split(","))
    for folder in find_runs(*map(Path, arguments.runs)):
        give(folder, head, arguments)
    return 0


def give(folder: "RunFolder", head: "LogLinearHead", arguments: argparse.Namespace) -> None:
    """Give one run a head."""
    from pathlib import Path

    from promptcal.calibrators import build_calibrator, no_validation
    from promptcal.console import columns, say
    from promptcal.heads.effects import effects, spread, verdict
    from promptcal.storage import save_predictions, write_jsonl

    stored = {file.stem: folder.predictions(file.stem) for file in sorted((folder.path / "predictions").iterdir())}
    val = stored.pop("val", None)
    if val is None:
        raise no_validation("loglinear")
    fitted = fit(folder, head, val, arguments.root)
    scaling = build_calibrator("temperature").fit(val)
    others = {"none": build_calibrator("none"), "temperature": scaling}
    others |= {"dac+temperature": build_calibrator("dac+temperature").fit(val), "loglinear": fitted}
    found = effects(others, scaling, stored)
    spreads = [spread(fitted, scaling, predictions) for predictions in stored.values()]
    out = Path(arguments.out) / folder.path.parent.parent.name / folder.path.parent.name / folder.path.name
    fitted.save(out / "head.safetensors")
    for split, predictions in stored.items():
        save_predictions(out / "predictions" / f"{split}.safetensors", fitted.transform(predictions))
    write_jsonl(out / "effects.jsonl", [effect.row() for effect in found])
    write_jsonl(out / "temperatures.jsonl", [one.row() for one in spreads])
    say(str(folder.path))
    say(fitted.report())
    head_line = ["calibrator", "split", "metric", "value", "less TS", "95 %"]
    lines = [
        [e.calibrator, e.split, e.metric, f"{e.value:.4f}", f"{e.difference:+.4f}", f"{e.low:+.4f} to {e.high:+.4f}"]
        for e in found
    ]
    say(columns([head_line, *lines]))
    for one in spreads:
        correlation = "none" if one.correlation is None else f"{one.correlation:+.3f}"
        say(
            f"{one.split}: s {one.mean:.3f} on average, 90 % between {one.low:.3f} and {one.high:.3f}; correlation "
            f"with being right {correlation}; left to T: {one.residual:.3f} (behind TS {one.residual_scaling:.3f})"
        )
    for sentence in verdict(found, "loglinear"):
        say(sentence)
    say(f"head, calibrated predictions and numbers are in {out}")
    say()


def fit(folder: "RunFolder", head: "LogLinearHead", val: "Predictions", root: str | None) -> "LogLinear":
    """The head of a run; the model and the data are looked for only where something is trained anew."""
    from omegaconf import OmegaConf

    from promptcal.console import complain
    from promptcal.errors import DataError
    from promptcal.experiment import fit_head
    from promptcal.preparation import prepare

    if head.mode == "val":
        return head.calibrator.fit(val)
    config = folder.config
    if root is not None:
        OmegaConf.update(config, "data.root", root)
    prepared = prepare(config)
    if prepared.weights != folder.info["weights"]:
        raise DataError(f"the weights of the model are not those {folder.path} was trained on; restore them.")
    return fit_head(prepared, head, val, lambda line: complain(f"{folder.path}: {line}"))
