"""Train, predict, calibrate and measure; end with a table and a page.

Without a word it runs the quickstart: handwritten digits, zero-shot CLIP, CoOp, and CoOp with the calibration
regularisers, on the CLIP that ships with promptcal. Runs that are done already are found and not repeated.

Examples:
  promptcal run
  promptcal run seed=2
  promptcal run method=coop dataset=shapes 'plugin=[margin,moments]'
  promptcal run dataset=folder dataset.path=/my/folder method=coop shots=8
  promptcal run model=vit_b16 dataset=oxford_pets data.root=/data method=coop seed=1
"""

import argparse

HELP = "train, predict, calibrate and measure; end with a table and a page"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptcal run``."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="choices (model, dataset, method, plugin, protocol, experiment) and keys of the configuration",
    )
    parser.add_argument("--again", action="store_true", help="repeat runs that are done already")
    parser.add_argument("--show", action="store_true", help="print the resolved configuration of each run and stop")
    parser.add_argument("--dry", action="store_true", help="list the runs and whether they are done, and stop")
    parser.add_argument("--out", metavar="DIR", help="where the report goes (default: RUNS/reports/NAME)")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")


def run(arguments: argparse.Namespace) -> int:
    """Do the runs and report them."""
    from promptcal.sweep import study

    wanted = study(arguments.overrides)
    from pathlib import Path

    from omegaconf import OmegaConf

    from promptcal.config import compose
    from promptcal.console import complain, say

    configs = [compose(overrides) for overrides in wanted.runs]
    if arguments.show:
        for config in configs:
            say(OmegaConf.to_yaml(config, resolve=True).rstrip())
            say("---")
        return 0

    from promptcal import experiment
    from promptcal.report import write_report
    from promptcal.run import method_label

    if arguments.dry:
        for config in configs:
            folder = experiment.prepare(config).folder
            say(
                f"{'done   ' if folder.is_done else 'to do  '} {method_label(config)} seed {config.seed}  {folder.path}"
            )
        return 0
    folders = [experiment.run(config, again=arguments.again, quiet=arguments.quiet, say=complain) for config in configs]
    out = Path(arguments.out) if arguments.out else Path(configs[0].runs) / "reports" / wanted.name
    written = write_report(folders, out, title=wanted.title)
    say(written.text)
    say()
    for label, path in written.files.items():
        say(f"{label}: {path}")
    return 0
