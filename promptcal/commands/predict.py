"""Classify images with a finished run: class, probability and calibrated probability.

For example:
  promptcal predict runs/digits/coop/1a2b3c4d photo.png
  promptcal predict runs/digits/coop/1a2b3c4d photos/*.png --json > answers.jsonl
  promptcal predict RUN photo.png --classes "red apple,green pear" --calibrator none
"""

import argparse

HELP = "classify images with a finished run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptcal predict``."""
    parser.add_argument("run", metavar="RUN", help="the folder of a finished run")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files")
    parser.add_argument("--split", metavar="NAME", help="whose classes to answer with: base (default), novel, …")
    parser.add_argument("--classes", metavar="A,B,…", help="class names to answer with instead of the run's own")
    parser.add_argument("--calibrator", metavar="NAME", help="calibrator, fitted on the run's validation images")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, with every class")


def run(arguments: argparse.Namespace) -> int:
    """Classify and print."""
    import json

    from promptcal.console import say
    from promptcal.predictor import load

    classes = arguments.classes.split(",") if arguments.classes else None
    predictor = load(arguments.run, classes=classes, split=arguments.split, calibrator=arguments.calibrator)
    seen = predictor.predictions(arguments.images)
    raw, calibrated = seen.probs(), predictor.calibrator.transform(seen).probs()
    best = calibrated.argmax(axis=1)
    if arguments.json:
        for path, row, before in zip(arguments.images, calibrated, raw, strict=True):
            answer = {
                "image": path,
                "class": predictor.classes[int(row.argmax())],
                "probability": float(row.max()),
                "uncalibrated": float(before[row.argmax()]),
                "probabilities": dict(zip(predictor.classes, map(float, row), strict=True)),
            }
            say(json.dumps(answer, ensure_ascii=False))
        return 0
    width = max(len("image"), *(len(path) for path in arguments.images))
    name_width = max(len("class"), *(len(predictor.classes[index]) for index in best))
    say(f"{'image':<{width}}  {'class':<{name_width}}  calibrated  uncalibrated")
    for row, (path, index) in enumerate(zip(arguments.images, best, strict=True)):
        name = predictor.classes[int(index)]
        say(f"{path:<{width}}  {name:<{name_width}}  {calibrated[row, index]:>10.3f}  {raw[row, index]:>12.3f}")
    return 0
