"""Tables, figures and one page from finished runs.

Every finished run at or below the given folders is in the report: tables by method and data set with base and novel or
whatever the protocol tests, averages over data sets, paired tests, reliability diagrams, costs. Runs that are still
under way are counted and left out, so a report can be made while a sweep is running. It needs no GPU, no model and no
data: the stored predictions suffice.

Examples:
  promptcal report runs
  promptcal report runs/digits runs/shapes --out report --title "Two data sets"
  promptcal report runs --published

With --published, figures that others have published for the same data sets and methods stand beside the measured ones,
in tables of their own that mark them as claimed.
"""

import argparse

HELP = "tables, figures and one page from finished runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptcal report``."""
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="folders of runs, or of folders of runs")
    parser.add_argument("--published", action="store_true", help="also what others have published of the same")
    parser.add_argument("--out", metavar="DIR", default="report", help="where the report goes (default: report)")
    parser.add_argument("--title", help="the heading of the page (default: what the protocol of the runs is about)")


def run(arguments: argparse.Namespace) -> int:
    """Find the finished runs and report them."""
    from pathlib import Path

    from promptcal.console import say
    from promptcal.report import title_of, write_report
    from promptcal.run import find_runs

    places = [Path(place) for place in arguments.runs]
    folders = find_runs(*places)
    unfinished = {found.resolve() for place in places for found in place.rglob("*.partial") if found.is_dir()}
    written = write_report(
        folders,
        Path(arguments.out),
        title=arguments.title or title_of(folders),
        unfinished=len(unfinished),
        published=arguments.published,
    )
    say(str(written))
    if arguments.published:
        say()
        say(written.files["published figures (txt)"].read_text(encoding="utf-8").rstrip())
    return 0
