"""Several runs that belong together: experiments by name, products of overrides, and what becomes of them."""

import copy
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from promptcal.choosing import Overrides, read_grids
from promptcal.config import asset_path, compose
from promptcal.errors import ConfigError, unknown
from promptcal.jobs import Job, Outcome
from promptcal.launchers.contract import Launch, Resources

QUICKSTART = "quickstart"
SHARED_WITH_ZERO_SHOT = {
    *("model", "dataset", "protocol", "seed", "shots", "split_seed", "precision"),
    *("calibration", "calibrators", "text_pass", "data", "runs", "system"),
}
KEYS = ("title", "overrides", "sweep", "runs", "choose")
DRAWS, WHOLE = ("seed", "split_seed", "shots"), re.compile(r"-?\d+")
"""Keys that nothing else in a configuration depends on, and their values where they are numbers."""

ZERO_SHOT = "method=zero_shot"
NETWORK_METHOD = "classifier"
ZERO_SHOT_CALIBRATORS = "calibrators=[none,temperature]"


@dataclass(frozen=True)
class Study:
    """A title, the overrides of each run, and the grids that some of them are chosen from first."""

    name: str
    title: str
    runs: tuple[tuple[str, ...], ...]
    grids: Mapping[str, tuple[Overrides, ...]] = field(default_factory=dict)


def experiments() -> list[str]:
    """The experiments that ship with promptcal."""
    return sorted(path.stem for path in (asset_path("configs") / "experiment").glob("*.yaml"))


def study(overrides: Sequence[str], *, multirun: bool = False) -> Study:
    """The runs that a command line asks for.

    Nothing, or overrides without a choice of method, dataset, model or experiment, means the quickstart; a choice of
    ``experiment=NAME`` (or of a YAML file of one's own) means its runs; anything else means one run and the zero-shot
    row beside it. With ``multirun`` an override may name several values, and every combination is run.

    Raises:
        ConfigError: an unknown experiment, or several values without ``multirun``.
    """
    named = [override.partition("=")[2] for override in overrides if override.startswith("experiment=")]
    rest = tuple(override for override in overrides if not override.startswith("experiment="))
    chosen = {override.partition("=")[0] for override in rest}
    if not named and not chosen & {"method", "dataset", "model", "learner", "plugin"}:
        named = [QUICKSTART]
    points = product(rest) if multirun else (_single(rest),)
    if named:
        return _experiment(named[-1], points)
    name, title = "sweep" if multirun else "run", " ".join(rest)
    if any(override.startswith("model=") and _is_network(override) for override in rest):
        return Study(name, title, points)  # an image classifier has no zero-shot row
    if ZERO_SHOT in rest:
        return Study(name, title, tuple((ZERO_SHOT_CALIBRATORS, *point) for point in points))
    runs = (run for point in points for run in (_zero_shot(point), *(() if ZERO_SHOT in point else (point,))))
    return Study(name, title, tuple(dict.fromkeys(runs)))


def product(overrides: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Every combination of the values of some overrides; the last one varies fastest.

    ``seed=1,2``, ``seed=range(1,4)`` and ``plugin=[],[margin,moments]`` name several values, ``plugin=[a,b]`` one.
    """
    return tuple(itertools.product(*(_values(override) for override in overrides)))


def _values(override: str) -> list[str]:
    """The overrides of one value each that an override stands for."""
    try:
        (parsed,) = OverridesParser.create().parse_overrides([override])
        if not parsed.is_sweep_override():
            return [override]
        key = override.partition("=")[0]
        return [f"{key}={value}" for value in parsed.sweep_string_iterator()]
    except HydraException as error:
        raise ConfigError(f"'{override}' cannot be read: {str(error).splitlines()[0]}") from error


def _single(overrides: tuple[str, ...]) -> tuple[str, ...]:
    for override in overrides:
        if "=" in override and len(_values(override)) > 1:
            raise ConfigError(f"'{override}' names several values; add -m to run every combination.")
    return overrides


def _is_network(model: str) -> bool:
    """Whether ``model=NAME`` is an image classifier that is trained whole, by the method that it chooses."""
    return any(str(compose([one]).choices.method) == NETWORK_METHOD for one in _values(model))


def _zero_shot(run: Sequence[str]) -> tuple[str, ...]:
    """The zero-shot run of the same data, model and draw."""
    shared = (o for o in run if o.partition("=")[0].split(".")[0] in SHARED_WITH_ZERO_SHOT)
    return (ZERO_SHOT, ZERO_SHOT_CALIBRATORS, *shared)


def _experiment(name: str, points: Sequence[tuple[str, ...]]) -> Study:
    """The runs of an experiment; the person's overrides go behind its own.

    What the person says of a key that the experiment sweeps stands in the place of the swept values, so that a run
    which sets that key itself, such as the zero-shot row of a sweep over methods, keeps it.
    """
    own = Path(name)
    if own.suffix in (".yaml", ".yml"):
        if not own.is_file():
            raise ConfigError(f"there is no experiment file {own}.")
    elif name not in experiments():
        raise ConfigError(unknown("experiment", name, experiments()))
    path = own if own.suffix else asset_path("configs", "experiment", f"{name}.yaml")
    node = OmegaConf.to_container(OmegaConf.load(path))
    if not isinstance(node, dict) or not node.get("runs"):
        raise ConfigError(f"the experiment '{name}' lists no runs.")
    if extra := sorted(set(node) - set(KEYS)):
        raise ConfigError(unknown(f"key of the experiment '{name}'", str(extra[0]), KEYS))
    shared = tuple(node.get("overrides", ()))
    given = {override.partition("=")[0] for override in points[0]}
    sweep = node.get("sweep", {})
    swept = {key: values for key, values in sweep.items() if key not in given}
    cells = list(itertools.product(*(_sweep_values(name, key, values) for key, values in swept.items())))

    def of(point: Sequence[str], *, within: bool) -> list[str]:
        return [override for override in point if (override.partition("=")[0] in sweep) is within]

    runs = (
        _last((*shared, *cell, *of(point, within=True), *run, *of(point, within=False)))
        for cell in cells
        for run in node["runs"]
        for point in points
    )
    grids = read_grids(name, node.get("choose", {}))
    return Study(own.stem, str(node.get("title", name)), tuple(dict.fromkeys(runs)), grids)


def _last(overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides with the last value of each key."""
    return tuple({override.partition("=")[0]: override for override in overrides}.values())


def _sweep_values(name: Any, key: Any, values: Any) -> list[str]:
    if not isinstance(values, list) or not values:
        raise ConfigError(f"'{key}' in the sweep of the experiment '{name}' must be a list of values.")
    return [f"{key}={_text(value)}" for value in values]


def _text(value: Any) -> str:
    """A value of a YAML file as it stands in an override."""
    if value is None:
        return "null"
    return f"[{','.join(map(_text, value))}]" if isinstance(value, list) else str(value)


def composed(wanted: Study) -> tuple[DictConfig, ...]:
    """The configurations of a study's runs, each once: overrides that say the same in other words are one run.

    Raises:
        ConfigError: a run that cannot be composed; nothing has been started then.
    """
    configs: dict[str, DictConfig] = {}
    for config in composed_each(wanted.runs):
        settings: Any = OmegaConf.to_container(config)
        key = json.dumps({name: value for name, value in settings.items() if name != "system"}, sort_keys=True)
        configs.setdefault(key, config)
    return tuple(configs.values())


def composed_each(runs: Iterable[Sequence[str]]) -> Iterator[DictConfig]:
    """The configuration of each run; those that differ in draws alone are composed once and filled in."""
    alike: dict[tuple[str, ...], DictConfig] = {}
    return (_composed(overrides, alike) for overrides in runs)


def _composed(overrides: Sequence[str], alike: dict[tuple[str, ...], DictConfig]) -> DictConfig:
    draws = {key: value for key, _, value in (one.partition("=") for one in overrides) if key in DRAWS}
    if not all(WHOLE.fullmatch(value) for value in draws.values()):
        return compose(overrides)
    rest = tuple(override for override in overrides if override.partition("=")[0] not in draws)
    if rest not in alike:
        alike[rest] = compose(rest)
    config = copy.deepcopy(alike[rest])
    for key, value in draws.items():
        config[key] = int(value)
    return config


def jobs_of(configs: Sequence[DictConfig], *, again: bool = False, quiet: bool = True) -> tuple[Job, ...]:
    """The jobs of some configurations."""
    here = str(Path.cwd())
    settings: list[Any] = [OmegaConf.to_container(config, resolve=True) for config in configs]
    return tuple(
        Job(number, label(config), values, here, again=again, quiet=quiet)
        for number, (config, values) in enumerate(zip(configs, settings, strict=True))
    )


def label(config: DictConfig) -> str:
    """What a run is called in lists: ``digits coop+margin 16 shots seed 1 split 0``."""
    from promptcal.run import method_label

    split = "" if config.split_seed is None else f" split {config.split_seed}"
    shots = "all images" if config.shots < 0 else f"{config.shots} shots"
    return f"{config.dataset.name} {method_label(config)} {shots} seed {config.seed}{split}"


def carry_out(
    jobs: Sequence[Job], launch: Launch, resources: Resources, say: Callable[[str], None]
) -> tuple[Outcome, ...]:
    """Do all jobs and return their outcomes in the order of the jobs; a failure touches no other job.

    Runs that another process is at are left for the end; by then they are mostly done, else they are waited for.

    Args:
        jobs: the runs.
        launch: where they are done.
        resources: what they may use.
        say: told of each outcome, a line at a time.
    """
    if len(jobs) > 1:
        say(f"{len(jobs)} runs")
    outcomes: dict[int, Outcome] = {}
    heard: set[str] = set()
    started = time.perf_counter()
    for round_of_jobs in _rounds(jobs, outcomes):
        for outcome in launch(round_of_jobs, resources, say):
            for line in outcome.said:
                if line not in heard:
                    say(line)
                heard.add(line)
            outcomes[outcome.number] = outcome
            if not outcome.busy:
                new = outcome.error not in heard
                say(_progress(jobs, outcomes, outcome, new, time.perf_counter() - started))
                heard.add(outcome.error or "")
    return tuple(outcomes[job.number] for job in jobs)


def _rounds(jobs: Sequence[Job], outcomes: Mapping[int, Outcome]) -> Iterator[list[Job]]:
    """All jobs, then those that another process was at."""
    yield list(jobs)
    if busy := [replace(job, wait=True) for job in jobs if outcomes[job.number].busy]:
        yield busy


def _progress(jobs: Sequence[Job], outcomes: Mapping[int, Outcome], last: Outcome, new: bool, seconds: float) -> str:
    """One line on an outcome: how many are through, what became of this one, how long the rest may take."""
    through = [outcome for outcome in outcomes.values() if not outcome.busy]
    became = "is done already" if last.found else f"{last.seconds:.1f} s"
    if last.error:
        became = f"failed: {last.error}" if new else "failed for the same reason"
    done = sum(not outcome.found for outcome in through)
    rest = (len(jobs) - len(through)) * seconds / done if done else 0.0
    ahead = f"; about {duration(rest)} left" if rest else ""
    name = next(job.label for job in jobs if job.number == last.number)
    return f"[{len(through)}/{len(jobs)}] {name}: {became}{ahead}"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
