"""Choosing weights before a study, on pseudo-novel classes inside the base half; no test image is looked at.

Every run of a study whose plug-ins have a grid is trained at each point of it with the protocol ``pseudo_novel`` (half
of the base classes, the other half stands for new ones), and the point with the lowest mean NLL on the pseudo-novel
classes over seeds is what the run is done with. All grids have the same number of points, so that no rival is tuned
more than another.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from promptcal.errors import ConfigError
from promptcal.run import RunFolder

Overrides = tuple[str, ...]
CHOOSING = ("protocol=pseudo_novel", "calibrators=[none]")
SPLIT, METRIC = "novel", "nll"


@dataclass(frozen=True)
class Trial:
    """A run that helps to choose: what is chosen for, the point of the grid, and its overrides."""

    cell: Overrides
    point: Overrides
    overrides: Overrides


@dataclass(frozen=True)
class Chosen:
    """What was chosen for some runs, and the mean pseudo-novel NLL of every point, in nats."""

    cell: Overrides
    point: Overrides
    scores: Mapping[Overrides, float]

    def sentence(self, common: Collection[str] = ()) -> str:
        """The choice in one line, without the overrides that all runs have in common."""
        others = ", ".join(f"{' '.join(point)}: {score:.4f}" for point, score in self.scores.items())
        own = " ".join(override for override in self.cell if override not in common)
        return f"{own}: {' '.join(self.point)} (pseudo-novel NLL in nats: {others})"


def read_grids(name: str, node: object) -> dict[str, tuple[Overrides, ...]]:
    """The grids of an experiment: by the override that they belong to, the points as lists of overrides.

    Raises:
        ConfigError: not such a mapping, or grids of different sizes.
    """
    if not isinstance(node, Mapping):
        raise ConfigError(f"'choose' in the experiment '{name}' must map a plug-in override to a list of points.")
    grids: dict[str, tuple[Overrides, ...]] = {}
    for key, points in node.items():
        if not isinstance(points, list) or not points or not all(isinstance(point, list) for point in points):
            raise ConfigError(f"the grid of '{key}' in the experiment '{name}' must be a list of lists of overrides.")
        grids[_plain(str(key))] = tuple(tuple(map(str, point)) for point in points)
    sizes = {len(points) for points in grids.values()}
    if len(sizes) > 1:
        told = ", ".join(f"{key}: {len(points)}" for key, points in grids.items())
        raise ConfigError(f"the grids of the experiment '{name}' differ in size ({told}); rivals are tuned alike.")
    return grids


def trials(runs: Sequence[Overrides], grids: Mapping[str, tuple[Overrides, ...]]) -> list[Trial]:
    """The runs that choose, each once; those without a grid need none."""
    return list(
        dict.fromkeys(
            Trial(cell_of(run), point, (*run, *point, *CHOOSING)) for run in runs for point in _grid(run, grids)
        )
    )


def choose(done: Mapping[Trial, Path]) -> list[Chosen]:
    """The best point of every cell from finished trials; of equal ones, the first."""
    scores: dict[Overrides, dict[Overrides, list[float]]] = {}
    for trial, path in done.items():
        scores.setdefault(trial.cell, {}).setdefault(trial.point, []).append(_score(path))
    found = []
    for cell, points in scores.items():
        means = {point: mean(values) for point, values in points.items()}
        found.append(Chosen(cell, min(means, key=means.__getitem__), means))
    return found


def decided(runs: Sequence[Overrides], chosen: Sequence[Chosen]) -> tuple[Overrides, ...]:
    """The runs with what was chosen for them; for what the person sets nothing was chosen."""
    points = {one.cell: one.point for one in chosen}
    return tuple((*run, *points.get(cell_of(run), ())) for run in runs)


def record(chosen: Sequence[Chosen]) -> str:
    """The choices as JSON, for the folder of the report."""
    rows = [
        {
            "runs": list(one.cell),
            "chosen": list(one.point),
            "pseudo_novel_nll": [{"point": list(point), "nats": score} for point, score in one.scores.items()],
        }
        for one in chosen
    ]
    return json.dumps(rows, indent=1)


def cell_of(run: Overrides) -> Overrides:
    """What is chosen for together: a run whatever its seed."""
    return tuple(override for override in run if override.partition("=")[0] != "seed")


def _grid(run: Overrides, grids: Mapping[str, tuple[Overrides, ...]]) -> tuple[Overrides, ...]:
    given = {override.partition("=")[0].lstrip("+") for override in run}
    for override in run:
        points = grids.get(_plain(override), ())
        if points:
            keys = {part.partition("=")[0] for point in points for part in point}
            return () if keys & given else points  # what the person sets is not chosen
    return ()


def _plain(override: str) -> str:
    return override.replace(" ", "")


def _score(path: Path) -> float:
    for row in RunFolder(path).metrics:
        if (row["calibrator"], row["split"], row["metric"]) == ("none", SPLIT, METRIC):
            return float(row["value"])
    raise ConfigError(f"{path} has measured no {METRIC} on '{SPLIT}'; it cannot help to choose.")
