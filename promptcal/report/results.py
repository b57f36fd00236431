"""What finished runs hold, in the shape a report needs: groups of runs that may be averaged, and no others."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from promptcal.errors import DataError
from promptcal.evaluation import BASE_AND_NOVEL
from promptcal.metrics import harmonic_mean
from promptcal.report.names import full_name, method_name
from promptcal.report.transfers import others_of, with_means
from promptcal.report.variants import DEFAULT_PROTOCOL, protocol_of, readings_of, variants_of, weights_of
from promptcal.run import RunFolder

HEADLINE_BINS = 15
NOISE_FLOOR = "ece_noise_floor"
"""The ECE that a perfectly calibrated model with the same confidences would score on as many images."""


class Group(NamedTuple):
    """What is averaged over nothing: one data set, model and protocol, one number of shots (-1 = all)."""

    dataset: str
    model: str
    protocol: str
    shots: int


class DataSet(NamedTuple):
    """A data set as a report calls it: its short name, and its title in headings."""

    name: str
    title: str


class Row(NamedTuple):
    """One line of a table: a method, what sets its runs apart from others of that method, and a calibrator."""

    method: str
    variant: str
    calibrator: str

    @property
    def method_name(self) -> str:
        """The method and its variant, as people read them."""
        return method_name(self.method) + (f" ({self.variant})" if self.variant else "")

    @property
    def name(self) -> str:
        """The whole line in one phrase."""
        return full_name(self.method_name, self.calibrator)


class Number(NamedTuple):
    """Which number: a split (empty for what joins base and novel) and a metric (``ece@10`` where not of 15 bins).

    In place of a split there may stand ``OTHERS``, which joins data sets.
    """

    split: str
    metric: str


class Draw(NamedTuple):
    """A seed and a class split (None = the first half of the labels is base)."""

    seed: int
    split_seed: int | None


H = Number("", "harmonic_mean")


@dataclass(frozen=True)
class Run:
    """One finished run: what it is, its numbers by calibrator, and where it lies."""

    folder: RunFolder
    group: Group
    method: str
    variant: str
    seed: int
    split_seed: int | None
    title: str
    values: Mapping[tuple[str, Number], float]
    counts: Mapping[str, int]
    units: Mapping[str, str]

    @property
    def calibrators(self) -> tuple[str, ...]:
        """The calibrators of this run, in the order in which it measured them."""
        return tuple(dict.fromkeys(calibrator for calibrator, _ in self.values))

    @property
    def others(self) -> tuple[str, ...]:
        """The data sets that were tested and not trained on, where the splits are data sets."""
        return others_of(self.counts, self.group.protocol)

    @property
    def name(self) -> str:
        """The name of its folder, which is its hash."""
        return self.folder.path.name

    @property
    def history(self) -> list[dict[str, Any]]:
        """What was noted after each epoch; nothing for a run that did not train here."""
        return self.folder.history if (self.folder.path / "history.jsonl").is_file() else []

    @property
    def draw(self) -> Draw:
        """What decides the images and classes of a run: its seed and its class split."""
        return Draw(self.seed, self.split_seed)


@dataclass(frozen=True)
class Results:
    """All runs of a report, zero-shot ones first."""

    runs: tuple[Run, ...]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups that are reported one by one."""
        return tuple(dict.fromkeys(run.group for run in self.runs))

    @cached_property
    def _by_method(self) -> dict[tuple[Group, str, str], tuple[Run, ...]]:
        found: dict[tuple[Group, str, str], list[Run]] = defaultdict(list)
        for run in self.runs:
            found[run.group, run.method, run.variant].append(run)
        return {key: tuple(runs) for key, runs in found.items()}

    def rows(self, group: Group | None = None) -> tuple[Row, ...]:
        """The lines of a group's table (of all groups together), methods first, their calibrators below."""
        found: dict[Row, None] = {}
        methods = dict.fromkeys((key[1], key[2]) for key in self._by_method if group in (None, key[0]))
        for method, variant in methods:
            for (of, name, other), runs in self._by_method.items():
                if (name, other) == (method, variant) and group in (None, of):
                    for run in runs:
                        found |= dict.fromkeys(Row(method, variant, calibrator) for calibrator in run.calibrators)
        return tuple(found)

    def of(self, group: Group, row: Row) -> tuple[Run, ...]:
        """The runs behind a line of a group's table."""
        runs = self._by_method.get((group, row.method, row.variant), ())
        return tuple(run for run in runs if row.calibrator in run.calibrators)

    def splits(self, group: Group) -> tuple[str, ...]:
        """The test splits of a group, base and novel first."""
        found = dict.fromkeys(split for run in self.runs if run.group == group for split in run.counts)
        first = [split for split in ("base", "novel") if split in found]
        return (*first, *(split for split in found if split not in first))

    def metrics(self) -> tuple[str, ...]:
        """Every metric that some run measured, in the order of the first."""
        return tuple(dict.fromkeys(number.metric for run in self.runs for _, number in run.values if number != H))

    def others(self, group: Group) -> tuple[str, ...]:
        """The data sets that a group tested and did not train on."""
        return tuple(dict.fromkeys(split for run in self.runs if run.group == group for split in run.others))

    def title(self, group: Group) -> str:
        """A heading for a group."""
        name = next(run.title for run in self.runs if run.group == group)
        return f"{name}, {setting(group)}"


def setting(group: Group, *, shots: bool = True) -> str:
    """The model, the protocol where it is not the usual one, and the number of training images a class, in words."""
    images = "all training images" if group.shots < 0 else f"{group.shots} shot{'s' if group.shots != 1 else ''}"
    protocol = "" if group.protocol == DEFAULT_PROTOCOL else f", protocol {group.protocol}"
    return f"model {group.model}{protocol}{f', {images}' if shots else ''}"


Rows = Sequence[Mapping[str, Any]]
"""Metric rows of a run, as ``metrics.jsonl`` holds them."""


def read_results(folders: Sequence[RunFolder], rescored: Mapping[str, Rows] | None = None) -> Results:
    """The results of finished runs; a run that is given twice counts once.

    Args:
        folders: finished runs.
        rescored: by folder name, metric rows to take instead of those that the run itself measured.

    Raises:
        DataError: no runs, a run whose metrics are missing, broken or not finite, or two runs of the same configuration
            on different data, which may not be averaged.
    """
    unique = {folder.path.resolve().name: folder for folder in folders}
    if not unique:
        raise DataError("there are no finished runs to report; 'promptcal run' makes some.")
    configs = {name: folder.config for name, folder in unique.items()}
    rows = {name: (rescored or {}).get(name) or folder.metrics for name, folder in unique.items()}
    chosen = {name: str((config.get("choices") or {}).get("model")) for name, config in configs.items()}
    models = weights_of(chosen, {name: folder.info for name, folder in unique.items()})
    datasets = datasets_of(configs)
    variants = variants_of(configs, {name: dataset.name for name, dataset in datasets.items()}, models)
    seen: dict[tuple[Any, ...], Run] = {}
    for name, folder in unique.items():
        run = _read(folder, configs[name], datasets[name], models[name], variants[name], rows[name])
        key = (run.group, run.method, run.variant, run.draw)
        if key in seen:
            raise DataError(
                f"{seen[key].folder.path} and {run.folder.path} are the same configuration on different data "
                f"and may not be averaged; report them one by one."
            )
        seen[key] = run
    return Results(tuple(sorted(seen.values(), key=lambda run: run.method != "zero_shot")))


def _read(folder: RunFolder, config: DictConfig, dataset: DataSet, model: str, variant: str, rows: Rows) -> Run:
    """The run behind its rows; those that join base and novel are no split of images, and older runs have none."""
    try:
        rows = [row for row in rows if row["split"] != BASE_AND_NOVEL]
        about = rows[0]
        group = Group(dataset.name, model, protocol_of(config), int(about["shots"]))
        counts = {row["split"]: int(row["n"]) for row in rows}
        return Run(
            folder=folder,
            group=group,
            method=about["method"],
            variant=variant,
            seed=int(about["seed"]),
            split_seed=about["split_seed"],
            title=dataset.title,
            values=with_means(_values(rows, folder), others_of(counts, group.protocol)),
            counts=counts,
            units={_metric(row): row["unit"] for row in rows},
        )
    except (KeyError, IndexError) as error:
        raise DataError(f"{folder.path}/metrics.jsonl is not whole ({error}); run it again.") from error


def _metric(row: Mapping[str, Any]) -> str:
    """The name of a row's metric, with its bins where they are not the headline ones."""
    headline = row.get("bins") in (None, HEADLINE_BINS)
    return str(row["metric"]) if headline else f"{row['metric']}@{row['bins']}"


def _values(rows: Rows, folder: RunFolder) -> dict[tuple[str, Number], float]:
    """The numbers of a run by calibrator; those that do not exist (null) are left out."""
    values: dict[tuple[str, Number], float] = {}
    for row in rows:
        calibrator, split, metric = row["calibrator"], row["split"], _metric(row)
        if row["value"] is not None:
            values[calibrator, Number(split, metric)] = float(row["value"])
        if metric == "ece" and row.get("noise_floor") is not None:
            values[calibrator, Number(split, NOISE_FLOOR)] = float(row["noise_floor"])
    for (calibrator, number), value in values.items():
        if not math.isfinite(value):
            raise DataError(
                f"{folder.path}: the {number.metric} of {calibrator} on {number.split} is {value}; run it again."
            )
    for calibrator in dict.fromkeys(row["calibrator"] for row in rows):
        base, novel = (values.get((calibrator, Number(split, "accuracy"))) for split in ("base", "novel"))
        if base is not None and novel is not None:
            values[calibrator, H] = harmonic_mean(base, novel)
    return values


def datasets_of(configs: Mapping[str, DictConfig]) -> dict[str, DataSet]:
    """For each run, its data set, with what sets it apart where runs read one data set in several ways."""
    cards = {name: dataset_of(config) for name, config in configs.items()}
    readings = readings_of(configs, {name: card.name for name, card in cards.items()})
    return {
        name: DataSet(*(f"{text} ({readings[name]})" for text in card)) if readings[name] else card
        for name, card in cards.items()
    }


def dataset_of(config: DictConfig) -> DataSet:
    """The data set of a run's card; people's own folders share one card, so their paths tell them apart."""
    card: Any = config.get("dataset") or {}
    name = str(card.get("name") or (config.get("choices") or {}).get("dataset"))
    if card.get("path") and not card.get("sizes"):
        name = Path(card.path).name
        return DataSet(name, name)
    return DataSet(name, str(card.get("title") or name))
