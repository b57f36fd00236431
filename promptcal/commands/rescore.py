"""Apply other calibrators to the stored predictions of finished runs, and report them.

Nothing is trained and no image is opened: each calibrator is fitted on the base validation predictions that a run has
stored and applied to its test predictions. The runs themselves are left as they are. A calibrator that is tied to its
classes leaves splits of other classes out, with a note.

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
    parser.add_argument("--title", help="the heading of the page (default: what the protocol of the runs is about)")


def run(arguments: argparse.Namespace) -> int:
    """Measure every run anew and report."""
    import warnings
    from pathlib import Path

    from promptcal.calibrators import CalibrationWarning
    from promptcal.console import say
    from promptcal.report import rescore, title_of, write_report
    from promptcal.run import find_runs

    calibrators = [name.strip() for name in arguments.calibrators.split(",") if name.strip()]
    folders = find_runs(*map(Path, arguments.runs))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        rescored = {folder.path.name: rescore(folder, calibrators) for folder in folders}
    for note in dict.fromkeys(str(warning.message) for warning in caught):
        say(f"note: {note}")
    title = arguments.title or f"{title_of(folders)}, rescored"
    written = write_report(folders, Path(arguments.out), title=title, rescored=rescored)
    say(str(written))
    return 0
