"""Train, predict, calibrate and measure; end with a table and a page.

Without a word it runs the quickstart: handwritten digits, zero-shot CLIP, CoOp, and CoOp with the calibration
regularisers, on the CLIP that ships with promptcal. Runs that are done already are found and not repeated; a run that
was stopped goes on after its last whole epoch. With -m, overrides with several values are a sweep of every combination;
a run that fails leaves the others whole, and the exit code is then 1.

Examples:
  promptcal run
  promptcal run seed=2
  promptcal run method=coop dataset=shapes 'plugin=[margin,moments]'
  promptcal run dataset=folder dataset.path=/my/folder method=coop shots=8
  promptcal run model=vit_b16 dataset=oxford_pets data.root=/data method=coop seed=1
  promptcal run -m method=coop,kgcoop dataset=digits,shapes seed=1,2,3 --jobs 2
  promptcal run -m method=coop 'plugin=[],[margin,moments]' 'seed=range(1,21)' --on ray
  promptcal run -m method=coop seed=1,2,3 --on slurm --option slurm_partition=gpu --option gpus_per_node=1
  promptcal run experiment=digits_splits --dry
"""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omegaconf import DictConfig

    from promptcal.jobs import Job, Outcome

HELP = "train, predict, calibrate and measure; end with a table and a page"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptcal run``."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="choices (model, dataset, method, plugin, protocol, experiment) and keys of the configuration",
    )
    parser.add_argument("-m", "--multirun", action="store_true", help="run every combination of comma-separated values")
    parser.add_argument("--on", metavar="WHERE", default="processes", help="processes (default), slurm or ray")
    parser.add_argument("--jobs", type=int, metavar="N", help="how many runs at once (processes: default 1)")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="a setting of slurm or ray; may be repeated"
    )
    parser.add_argument("--again", action="store_true", help="repeat runs that are done already")
    parser.add_argument("--show", action="store_true", help="print the resolved configuration of each run and stop")
    parser.add_argument("--dry", action="store_true", help="list the runs, whether they are done, their cost; stop")
    parser.add_argument("--out", metavar="DIR", help="where the report goes (default: RUNS/reports/NAME)")
    parser.add_argument("--no-report", action="store_true", help="do the runs alone; 'promptcal report' reports them")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")


def run(arguments: argparse.Namespace) -> int:
    """Do the runs and report them."""
    from dataclasses import replace
    from pathlib import Path

    from omegaconf import OmegaConf

    from promptcal import sweep
    from promptcal.choosing import choose, decided, record, trials
    from promptcal.console import complain, say
    from promptcal.launchers.contract import Resources, launcher
    from promptcal.storage import write_text

    wanted = sweep.study(arguments.overrides, multirun=arguments.multirun)
    first = trials(wanted.runs, wanted.grids)
    configs = sweep.composed(wanted)
    if arguments.show:
        for config in configs:
            say(OmegaConf.to_yaml(config, resolve=True).rstrip())
            say("---")
        return 0
    if arguments.dry:
        if first:
            say(f"{len(first)} runs on pseudo-novel classes choose weights first; the runs below then have those:")
        return dry(configs, arguments.jobs or 1)

    runs = Path(configs[0].runs)
    resources = Resources(arguments.jobs, options(arguments.option), runs / "logs")
    out = Path(arguments.out) if arguments.out else runs / "reports" / report_name(wanted.name, configs)
    launch = launcher(arguments.on)
    if first:
        jobs = sweep.jobs_of(list(sweep.composed_each(trial.overrides for trial in first)), quiet=arguments.quiet)
        complain(f"{len(jobs)} runs on pseudo-novel classes choose weights")
        outcomes = sweep.carry_out(jobs, launch, resources, complain)
        if failed := list_failures(jobs, outcomes):
            return failed
        chosen = choose({trial: Path(str(outcome.path)) for trial, outcome in zip(first, outcomes, strict=True)})
        common = set.intersection(*map(set, wanted.runs))
        for one in chosen:
            say(one.sentence(common))
        write_text(out / "chosen.json", record(chosen))
        configs = sweep.composed(replace(wanted, runs=decided(wanted.runs, chosen)))
    jobs = sweep.jobs_of(configs, again=arguments.again, quiet=arguments.quiet)
    outcomes = sweep.carry_out(jobs, launch, resources, complain)
    folders = [outcome.path for outcome in outcomes if outcome.path]
    if folders and not arguments.no_report:
        from promptcal.report import write_report
        from promptcal.run import RunFolder

        written = write_report(
            [RunFolder(Path(folder)) for folder in folders],
            out,
            title=wanted.title,
            unfinished=len(outcomes) - len(folders),
        )
        say(written.text)
        say()
        for label, path in written.files.items():
            say(f"{label}: {path}")
    return list_failures(jobs, outcomes)


def report_name(study: str, configs: "Sequence[DictConfig]") -> str:
    """Where the report of a study goes: an experiment has a name; other runs are named by data set and methods."""
    from promptcal.run import method_label
    from promptcal.sweep import experiments

    if study in experiments():
        return study
    datasets = dict.fromkeys(config.choices.dataset for config in configs)
    methods = dict.fromkeys(method_label(config) for config in configs if config.choices.method != "zero_shot")
    return "_".join([*datasets, *methods][:6]) or study


def options(words: "Sequence[str]") -> dict[str, str]:
    """The settings of a launcher, as NAME=VALUE."""
    from promptcal.errors import ConfigError

    for word in words:
        if "=" not in word:
            raise ConfigError(f"'--option {word}' is not a setting; write --option NAME=VALUE.")
    return dict(word.split("=", 1) for word in words)


def list_failures(jobs: "Sequence[Job]", outcomes: "Sequence[Outcome]") -> int:
    """Say which runs failed and why, each reason once; returns 0, 1, or 2 where all failed by mistakes of the command.

    Raises:
        ConfigError: all failed by one and the same mistake.
    """
    from promptcal.console import complain
    from promptcal.errors import ConfigError

    reasons: dict[str, list[str]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        if outcome.error:
            reasons.setdefault(outcome.error, []).append(job.label)
    if not reasons:
        return 0
    mistaken = all(outcome.mistake for outcome in outcomes)
    if mistaken and len(reasons) == 1:
        raise ConfigError(next(iter(reasons)))
    failed = sum(map(len, reasons.values()))
    complain(f"promptcal run: {failed} of {len(jobs)} runs failed; the same command goes on with them.")
    for reason, labels in reasons.items():
        complain(f"  {'; '.join(labels)}: {reason}")
    return 2 if mistaken else 1


def dry(configs: "Sequence[DictConfig]", at_once: int) -> int:
    """List the runs and whether they are done, count them, and estimate what is left.

    From runs that are done, and by arithmetic for this machine and one GPU; this also for runs whose data or weights
    are not here yet.
    """
    from promptcal.arithmetic import ONE_GPU, sentences, this_machine
    from promptcal.console import say
    from promptcal.costs import estimate, measured
    from promptcal.errors import PromptcalError
    from promptcal.preparation import prepare
    from promptcal.run import method_label
    from promptcal.sweep import duration, label

    done, ahead, broken = 0, [], []
    for config in configs:
        try:
            folder = prepare(config).folder
        except PromptcalError as error:
            broken.append(config)
            say(f"broken  {label(config)}: {error}")
            continue
        done += folder.is_done
        if not folder.is_done:
            ahead.append(config)
        state = "done   " if folder.is_done else "begun  " if folder.partial.is_dir() else "to do  "
        say(f"{state} {label(config)}  {folder.path}")
    cannot = f", {len(broken)} broken" if broken else ""
    kinds = {
        "data set": {config.dataset.name for config in configs},
        "method": {method_label(config) for config in configs},
        "seed": {config.seed for config in configs},
    }
    counts = ", ".join(f"{len(values)} {kind}{'s' if len(values) != 1 else ''}" for kind, values in kinds.items())
    say(f"{len(configs)} runs: {done} done, {len(ahead)} to do{cannot}")
    say(counts)
    if ahead:
        cost = estimate(ahead, measured({str(config.runs) for config in configs}))
        say(cost.sentence(at_once, duration))
    if ahead or broken:
        for line in sentences([*ahead, *broken], [this_machine(), ONE_GPU], duration):
            say(line)
    return 1 if broken else 0
