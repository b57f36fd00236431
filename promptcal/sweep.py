"""Several runs that belong together: experiments by name, and what a person typed as a list of runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import OmegaConf

from promptcal.config import asset_path
from promptcal.errors import ConfigError, unknown

QUICKSTART = "quickstart"


@dataclass(frozen=True)
class Study:
    """A title and the overrides of each run."""

    name: str
    title: str
    runs: tuple[tuple[str, ...], ...]


def experiments() -> list[str]:
    """The experiments that ship with promptcal."""
    return sorted(path.stem for path in (asset_path("configs") / "experiment").glob("*.yaml"))


def study(overrides: Sequence[str]) -> Study:
    """The runs that a command line asks for.

    Nothing, or overrides without a choice of method, dataset, model or experiment, means the quickstart; a choice of
    ``experiment=NAME`` means its runs; anything else means one run and the zero-shot row beside it.

    Raises:
        ConfigError: an unknown experiment.
    """
    named = [override.partition("=")[2] for override in overrides if override.startswith("experiment=")]
    rest = tuple(override for override in overrides if not override.startswith("experiment="))
    chosen = {override.partition("=")[0] for override in rest}
    if not named and not chosen & {"method", "dataset", "model", "learner", "plugin"}:
        named = [QUICKSTART]
    if named:
        return _experiment(named[-1], rest)
    title = " ".join(rest)
    if "method=zero_shot" in rest:
        return Study("run", title, (rest,))
    beside = tuple(o for o in rest if o.partition("=")[0].split(".")[0] in SHARED_WITH_ZERO_SHOT)
    return Study("run", title, ((*beside, *ZERO_SHOT), rest))


SHARED_WITH_ZERO_SHOT = {
    *("model", "dataset", "protocol", "seed", "shots", "split_seed", "precision"),
    *("calibration", "data", "runs", "system"),
}
ZERO_SHOT = ("method=zero_shot", "calibrators=[none,temperature]")


def _experiment(name: str, overrides: tuple[str, ...]) -> Study:
    """The runs of a named experiment, with the person's overrides behind the experiment's own."""
    if name not in experiments():
        raise ConfigError(unknown("experiment", name, experiments()))
    node = OmegaConf.to_container(OmegaConf.load(asset_path("configs", "experiment", f"{name}.yaml")))
    if not isinstance(node, dict) or not node.get("runs"):
        raise ConfigError(f"the experiment '{name}' lists no runs.")
    shared = tuple(node.get("overrides", ()))
    runs = tuple((*shared, *run, *overrides) for run in node["runs"])
    return Study(name, str(node.get("title", name)), runs)
