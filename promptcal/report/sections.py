"""The parts of the page, from the numbers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from promptcal.report.conventions import CONVENTIONS, METRICS_NOTE, PANELS_NOTE, UNITS
from promptcal.report.costs import runs_table, versions
from promptcal.report.estimates import Compared, average
from promptcal.report.figures import (
    confidences,
    instance_temperatures,
    margin_spreads,
    over_epochs,
    over_shots,
    reliability,
    style,
    temperatures,
    to_svg,
)
from promptcal.report.page import Picture, Section
from promptcal.report.reading import read, read_average
from promptcal.report.rendering import narrow
from promptcal.report.results import Group, Results, Row, setting
from promptcal.report.samples import Samples
from promptcal.report.spreads import spread_table
from promptcal.report.tables import (
    MOST_SPLITS,
    Table,
    columns_by_metric,
    difference_table,
    main_columns,
    make_table,
    metric_columns,
)
from promptcal.report.words import words_table

MOST_CLASSES_LISTED = 20


@dataclass(frozen=True)
class Material:
    """All that a report is made of."""

    results: Results
    samples: Mapping[str, Samples]
    compared: Mapping[Group, Compared]

    def plain(self, group: Group) -> list[Row]:
        """The rows of a group before any calibrator."""
        return [row for row in self.results.rows(group) if row.calibrator == "none"]


def main_tables(material: Material, group: Group) -> list[Table]:
    """The table that a group is read for; with many splits, one for each metric."""
    results = material.results
    rows, splits = results.rows(group), results.splits(group)
    runs = span(len(results.of(group, row)) for row in rows)
    images = [
        f"{span(run.counts[split] for run in results.runs if run.group == group and split in run.counts)} {split}"
        for split in splits
    ]
    what = f"{'One run' if runs == '1' else f'Means of {runs} runs'} a line, with 95 % intervals"
    caption = f"{what}; {' and '.join(filter(None, [', '.join(images[:-1]), images[-1]]))} images. {UNITS}"
    return split_tables(results.title(group), caption, rows, splits, material.compared[group])


def split_tables(
    title: str, caption: str, rows: Sequence[Row], splits: Sequence[str], compared: Compared
) -> list[Table]:
    """All splits in one table; with many splits, a table for each metric, whose captions say the rest once."""
    if len(splits) <= MOST_SPLITS:
        return [make_table(title, caption, rows, main_columns(splits), compared)]
    return [
        make_table(f"{title}: {columns[0].span}", caption if number == 0 else "As above", rows, columns, compared)
        for number, columns in enumerate(columns_by_metric(splits))
    ]


def span(counts: Iterable[int]) -> str:
    """All counts in one phrase: ``3``, or ``1 to 3``."""
    known = set(counts)
    return " to ".join(dict.fromkeys([str(min(known)), str(max(known))]))


@dataclass(frozen=True)
class Mean:
    """The average over data sets of one model and number of shots: its tables, its reading, and its tests."""

    title: str
    tables: tuple[Table, ...]
    reading: tuple[str, ...]
    tests: Table | None


def averages(material: Material) -> list[Mean]:
    """The averages of every model and number of shots that ran on several data sets."""
    results, found = material.results, []
    for alike in dict.fromkeys(group[1:] for group in results.groups):
        groups = [group for group in results.groups if group[1:] == alike]
        if len(groups) < 2:
            continue
        mean = average({group: material.compared[group] for group in groups}, results.rows())
        rows = [row for row in results.rows() if any(of == row for of, _ in mean.estimates)]
        known = {number.split for _, number in mean.estimates}
        splits = tuple(split for split in dict.fromkeys(s for g in groups for s in results.splits(g)) if split in known)
        if not splits:
            continue
        title = f"Average over {len(groups)} data sets, {setting(groups[0])}"
        caption = f"Means of the columns over {', '.join(group.dataset for group in groups)}. {UNITS}"
        tables = split_tables(title, caption, rows, splits, mean)
        others = [split for group in groups for split in results.others(group)]
        reading = read_average(rows, splits, others, mean, [material.compared[group] for group in groups])
        tests = difference_table("Differences from the best row, tested over data sets", rows, splits, mean)
        found.append(Mean(title, tuple(tables), tuple(reading), tests))
    return found


def page_sections(material: Material, means: Sequence[Mean], claims: Sequence[Table] = ()) -> list[Section]:
    """Every part of the page, in order; ``means`` are those of ``averages``, ``claims`` those of others."""
    sections = [
        Section(mean.title, mean.reading, tuple(map(narrow, mean.tables)), folded=(mean.tests,) if mean.tests else ())
        for mean in means
    ]
    sections += [_group_section(material, group) for group in material.results.groups]
    sections += _shots_sections(material)
    sections += [Section(claim.title, tables=(claim,)) for claim in claims]
    costs = runs_table(material.results, material.samples)
    sections.append(Section(costs.title, tables=(costs,), terms=versions(material.results)))
    sections.append(Section("Conventions", terms=CONVENTIONS))
    return sections


def _group_section(material: Material, group: Group) -> Section:
    results, samples, compared = material.results, material.samples, material.compared[group]
    rows, splits = results.rows(group), results.splits(group)
    panels = [
        picture(f"{group} {row}", row.name, partial(reliability, results, group, [row], samples, named=False))
        for row in material.plain(group)
    ]
    units = {metric: unit for run in results.runs for metric, unit in run.units.items()}
    folded = [
        make_table(
            f"All metrics on {split}", METRICS_NOTE, rows, metric_columns(split, results.metrics(), units), compared
        )
        for split in splits
    ]
    tests = difference_table("Differences from the best row, tested in pairs", rows, splits, compared)
    spreads = spread_table(results, group, material.plain(group), samples)
    words = words_table(results, group, material.plain(group))
    return Section(
        title=results.title(group),
        sentences=tuple(read(results, group, compared)),
        tables=tuple(map(narrow, main_tables(material, group))),
        panels=tuple(panels),
        panels_note=PANELS_NOTE,
        pictures=tuple(_pictures(material, group)),
        folded=(*([tests] if tests else []), *([spreads] if spreads else []), *([words] if words else []), *folded),
        terms=_classes(material, group),
    )


def _pictures(material: Material, group: Group) -> list[Picture]:
    """The figures that this group has enough runs for."""
    results, samples = material.results, material.samples
    rows = material.plain(group)

    def of(row: Row) -> list[Samples]:
        return [samples[run.name] for run in results.of(group, row)]

    several = [row for row in rows if len(of(row)) > 1]
    fitted = [row for row in several if all(one.temperature for one in of(row))]
    headed = [row for row in rows if any(one.instance_temperature for one in of(row))]
    histories = {run.name: run.history for row in rows for run in results.of(group, row)}
    watched = [
        row
        for row in rows
        if any(key.endswith("_ece") for run in results.of(group, row) for one in histories[run.name] for key in one)
    ]
    drawn: list[tuple[list[Row], str, Callable[[list[Row]], Figure]]] = [
        (
            rows,
            "How confident each method is before any calibrator, all runs together.",
            lambda shown: confidences(results, group, shown, samples),
        ),
        (
            several,
            "ECE against the spread of the margin (true logit less the best other), one point a run.",
            lambda shown: margin_spreads(results, group, shown, samples),
        ),
        (
            fitted,
            "The T that temperature scaling found on base validation images, one point a run.",
            lambda shown: temperatures(results, group, shown, samples),
        ),
        (
            headed,
            "The temperature of each image, all runs together.",
            lambda shown: instance_temperatures(results, group, shown, samples),
        ),
        (
            watched,
            "ECE on test images after each epoch, the mean over runs. To look at, not to choose an epoch by.",
            lambda shown: over_epochs(results, group, shown, histories),
        ),
    ]
    return [picture(f"{group} {caption}", caption, partial(draw, shown)) for shown, caption, draw in drawn if shown]


def picture(name: str, caption: str, draw: Callable[[], Figure]) -> Picture:
    """A figure for the page; ``name`` is unique on it."""
    with style(name):
        return Picture(caption, to_svg(draw()))


def _shots_sections(material: Material) -> list[Section]:
    """Accuracy, ECE and NLL against the number of shots, where there are several: of each data set, and their average.

    The average is that of the data sets that ran with every number of shots, for two or more of them.
    """
    groups = [group for group in material.results.groups if group.shots > 0]
    sections: list[Section] = []
    for alike in dict.fromkeys(group[:-1] for group in groups):
        sections += _against_shots(material, {g.shots: [g] for g in groups if g[:-1] == alike}, alike[0])
    for model, protocol in dict.fromkeys((group.model, group.protocol) for group in groups):
        same = [group for group in groups if (group.model, group.protocol) == (model, protocol)]
        shots = sorted({group.shots for group in same})
        whole = [
            name
            for name in dict.fromkeys(g.dataset for g in same)
            if sum(g.dataset == name for g in same) == len(shots)
        ]
        if len(whole) > 1:
            chosen = {shot: [g for g in same if g.shots == shot and g.dataset in whole] for shot in shots}
            sections += _against_shots(material, chosen, f"average over {len(whole)} data sets")
    return sections


def _against_shots(material: Material, by_shots: Mapping[int, Sequence[Group]], what: str) -> list[Section]:
    """The curves of one data set, or of the mean of several; nothing for a single number of shots."""
    if len(by_shots) < 2:
        return []
    results, first = material.results, next(iter(by_shots.values()))
    rows = list(dict.fromkeys(row for groups in by_shots.values() for group in groups for row in material.plain(group)))
    estimated = {
        shots: material.compared[groups[0]]
        if len(groups) == 1
        else average({group: material.compared[group] for group in groups}, rows)
        for shots, groups in by_shots.items()
    }
    title = f"Accuracy, ECE and NLL against shots: {what}, {setting(first[0], shots=False)}"
    caption = "Before any calibrator, against the training images a class, with 95 % intervals."
    drawn = picture(title, caption, partial(over_shots, estimated, rows, results.splits(first[0])))
    return [Section(title, pictures=(drawn,))]


def _classes(material: Material, group: Group) -> tuple[tuple[str, str], ...]:
    """The classes of each split, where all runs of a group have the same few."""
    runs = [run for run in material.results.runs if run.group == group]
    terms = []
    for split in material.results.splits(group):
        lists = {material.samples[run.name].classes.get(split, ()) for run in runs}
        if len(lists) == 1 and len(names := next(iter(lists))) <= MOST_CLASSES_LISTED:
            terms.append((f"{split.capitalize()} classes", ", ".join(names)))
    return tuple(terms)
