"""Figures that others have published, in tables of their own beside what was measured here; never mixed with it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

from promptcal.config import asset_path
from promptcal.report.estimates import Compared, average
from promptcal.report.rendering import to_latex, to_markdown, to_text
from promptcal.report.results import Group, Number, Results, Row, setting
from promptcal.report.tables import MINUS, Cell, Column, Table, lines
from promptcal.report.variants import DEFAULT_PROTOCOL
from promptcal.storage import write_text

MEASURED = {"accuracy": "accuracy", "ece": "ece@10"}
"""By claimed metric, the measured one that compares with it."""

NO_CLAIMS = "no published figures of these data sets and methods are known; docs/published.md says which are"

SPANS = {"accuracy": "acc", "ece": "ECE@10"}


@dataclass(frozen=True)
class Source:
    """Who claims: a short title, where the figures stand, and the model and shots that they are of."""

    title: str
    reference: str
    model: str
    shots: int


@dataclass(frozen=True)
class Claim:
    """What one source says of one row: fractions by data set, and the average it prints (None: none)."""

    source: str
    method: str
    calibrator: str
    split: str
    metric: str
    values: Mapping[str, float]
    average: float | None


@cache
def published() -> tuple[Mapping[str, Source], tuple[Claim, ...]]:
    """All sources by key, and all claims."""
    content = OmegaConf.to_container(OmegaConf.load(asset_path("assets", "published.yaml")))
    if not isinstance(content, dict):
        raise TypeError("published.yaml must be a mapping")
    sources = {key: Source(**values) for key, values in content["sources"].items()}
    names = content["datasets"]
    claims = []
    for source, method, calibrator, split, metric, printed, mean in content["rows"]:
        values = {name: value / 100 for name, value in zip(names, printed, strict=True) if value is not None}
        claims.append(Claim(source, method, calibrator, split, metric, values, None if mean is None else mean / 100))
    return sources, tuple(claims)


def published_tables(results: Results, compared: Mapping[Group, Compared]) -> list[Table]:
    """Measured beside claimed figures: of each data set, and of the averages over data sets of one model and shots.

    Averages are over the data sets at hand; what a source prints as its average stands only beside that of all 11, and
    only where it prints nothing else.

    Args:
        results: all runs.
        compared: what was measured, by group.
    """
    groups = [group for group in results.groups if group.protocol == DEFAULT_PROTOCOL]
    found = []
    for group in groups:
        title, rows = results.title(group), results.rows(group)
        found += _tables(title, group, rows, compared[group], partial(_of_one, dataset=group.dataset))
    for alike in dict.fromkeys(group[1:] for group in groups):
        several = [group for group in groups if group[1:] == alike]
        if len(several) > 1:
            mean = average({group: compared[group] for group in several}, results.rows())
            title = f"Average over {len(several)} data sets, {setting(several[0])}"
            names = frozenset(group.dataset for group in several)
            found += _tables(title, several[0], results.rows(), mean, partial(_of_several, datasets=names))
    return found


def write_claims(out: Path, tables: Sequence[Table]) -> dict[str, Path]:
    """Write the tables as text, Markdown and LaTeX; the files by what they are.

    Args:
        out: the folder of the report.
        tables: from ``published_tables``; where there are none, the files say so.
    """
    files = {f"published figures ({kind})": out / f"published.{kind}" for kind in ("txt", "md", "tex")}
    for file, render in zip(files.values(), (to_text, to_markdown, to_latex), strict=True):
        text = "\n\n".join(render(table) for table in tables) or NO_CLAIMS
        write_text(file, text.replace(MINUS, "-") + "\n")
    return files


def _of_one(claim: Claim, dataset: str) -> float | None:
    return claim.values.get(dataset)


def _of_several(claim: Claim, datasets: frozenset[str]) -> float | None:
    """The mean over the data sets, or the printed average where these are all and nothing else is printed."""
    if datasets <= set(claim.values):
        return float(np.mean([claim.values[name] for name in datasets]))
    everything = {name for other in published()[1] for name in other.values}
    return claim.average if not claim.values and datasets == everything else None


def _tables(
    title: str, group: Group, rows: Sequence[Row], compared: Compared, value: Callable[[Claim], float | None]
) -> list[Table]:
    sources, claims = published()
    found = []
    for key, source in sources.items():
        known = {
            (claim.method, claim.calibrator, claim.split, claim.metric): of
            for claim in claims
            if claim.source == key and (of := value(claim)) is not None
        }
        table = _table(
            f"{title}, beside what is claimed by {source.title}", _caption(source, group), rows, compared, known
        )
        found += [] if table is None else [table]
    return found


def _table(
    title: str,
    caption: str,
    rows: Sequence[Row],
    compared: Compared,
    known: Mapping[tuple[str, str, str, str], float],
) -> Table | None:
    """Two columns for each split and metric with a claim; None where no row has one."""
    shown = [row for row in rows if any(key[:2] == (recipe(row.method), row.calibrator) for key in known)]
    pairs = [
        (split, metric)
        for split in ("base", "novel")
        for metric in MEASURED
        if any((recipe(row.method), row.calibrator, split, metric) in known for row in shown)
    ]
    columns = []
    for split, metric in pairs:
        number, span = Number(split, MEASURED[metric]), f"{split} {SPANS[metric]}"
        columns += [Column(number, span, heading, percent=True, digits=2) for heading in ("here", "claimed")]

    def cells(row: Row) -> tuple[Cell, ...]:
        both = []
        for (split, metric), column in zip(pairs, columns[::2], strict=True):
            here = compared.estimates.get((row, column.number))
            claimed = known.get((recipe(row.method), row.calibrator, split, metric))
            both += [Cell() if here is None else Cell(column.show(here.value))]
            both += [Cell() if claimed is None else Cell(column.show(claimed))]
        return tuple(both)

    return Table(title, caption, tuple(columns), lines(shown, cells)) if shown else None


def recipe(method: str) -> str:
    """The method that published rows speak of: recipes of one method with other epochs are one, plug-ins in any order.

    >>> recipe("coop_ep50+moments+margin")
    'coop+margin+moments'
    """
    first, *plugins = method.split("+")
    return "+".join([re.sub(r"_(ep\d+|dac)$", "", first), *sorted(plugins)])


def _caption(source: Source, group: Group) -> str:
    setting_of = f"model {source.model}, {source.shots} shots, ECE of 10 bins"
    claimed = f"Claimed, not measured: {source.reference.strip()}; {setting_of}"
    if (group.model.split(" ")[0], group.shots) == (source.model, source.shots):
        return f"{claimed}. In percent"
    return f"{claimed}. What was measured here is of another model or number of shots and does not compare. In percent"
