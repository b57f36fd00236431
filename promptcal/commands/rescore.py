"""Apply other calibrators to the stored predictions of finished runs, and report them.

Nothing is trained and no image is opened: each calibrator is fitted on the base validation predictions that a run has
stored and applied to its test predictions. The runs themselves are left as they are.

Examples:
  promptcal rescore runs --calibrators none,temperature,dac+temperature
  promptcal rescore runs/digits --calibrators none,isotonic --out rescored
"""

import argparse

HELP = "apply calibrators to the stored predictions of finished runs, and report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptcal rescore``."""
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="folders of runs, or of folders of runs")
    parser.add_argument(
        "--calibrators",
        required=True,
        metavar="A,B,…",
        help="calibrators by name, 'none' for the predictions as they are; 'a+b' applies a, then b",
    )
    parser.add_argument("--out", metavar="DIR", default="report", help="where the report goes (default: report)")
    parser.add_argument("--title", default="Base-to-novel calibration, rescored", help="the heading of the page")


def run(arguments: argparse.Namespace) -> int:
    """Measure every run anew and report."""
    from pathlib import Path

    from promptcal.console import say
    from promptcal.report import rescore, write_report
    from promptcal.run import find_runs

    calibrators = [name.strip() for name in arguments.calibrators.split(",") if name.strip()]
    folders = find_runs(*map(Path, arguments.runs))
    rescored = {folder.path.name: rescore(folder, calibrators) for folder in folders}
    written = write_report(folders, Path(arguments.out), title=arguments.title, rescored=rescored)
    say(str(written))
    return 0
