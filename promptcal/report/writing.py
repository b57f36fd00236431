"""From run folders to the files of a report."""

import csv
import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from promptcal.report.conventions import CONVENTIONS, PANELS_NOTE, UNITS
from promptcal.report.costs import runs_table
from promptcal.report.estimates import Compared, average, compare
from promptcal.report.figures import reliability, style, to_png, to_svg
from promptcal.report.page import Picture, Section, to_html
from promptcal.report.reading import read
from promptcal.report.results import Group, Number, Results, Row, read_results
from promptcal.report.samples import Samples, read_samples
from promptcal.report.tables import (
    Table,
    main_columns,
    make_table,
    metric_columns,
    to_latex,
    to_markdown,
    to_text,
    without_spread,
)
from promptcal.run import RunFolder
from promptcal.storage import write_bytes, write_text

RESAMPLES = 1000


@dataclass(frozen=True)
class Written:
    """A report on disk: the text for the terminal, and the files by what they are."""

    text: str
    files: Mapping[str, Path]


def write_report(folders: Sequence[RunFolder], out: Path, *, title: str, unfinished: int = 0) -> Written:
    """Write the report of finished runs: text, page, Markdown, CSV, LaTeX and the reliability diagram.

    Args:
        folders: finished runs; one that is given twice counts once.
        out: the folder of the report; its files are replaced.
        title: the heading of the page.
        unfinished: how many runs are under way, to be said.

    Raises:
        DataError: there is no run, a run is broken, or runs that may not be averaged are the same configuration.
    """
    results = read_results(folders)
    samples = {run.folder.path.name: read_samples(run) for run in results.runs}
    compared = {group: compare(results, group, samples, RESAMPLES) for group in results.groups}
    tables = {group: _main_table(results, group, compared[group]) for group in results.groups}
    reading = {group: read(results, group, compared[group]) for group in results.groups}
    means = _averages(results, compared)
    files = {name: out / file for name, file in FILES.items()}

    with style("reliability"):
        group = results.groups[0]
        write_bytes(files["reliability diagram"], to_png(reliability(results, group, _plain(results, group), samples)))
    every = [*tables.values(), *means]
    write_text(files["table"], f"# {title}\n\n" + "\n\n".join(to_markdown(table) for table in every) + "\n")
    write_text(files["latex"], "\n\n".join(to_latex(table) for table in every) + "\n")
    write_text(files["csv"], _csv(results, compared))
    sections = [_section(results, g, compared[g], tables[g], reading[g], samples) for g in results.groups]
    if means:
        sections.append(Section("Averages over data sets", tables=tuple(means)))
    sections += [
        Section("What was run", tables=(runs_table(results, samples),)),
        Section("Conventions", terms=CONVENTIONS),
    ]
    write_text(files["page"], to_html(title, _lead(results, unfinished), sections, _foot(results)))

    single = all(len(results.of(g, row)) == 1 for g in results.groups for row in results.rows(g))
    blocks = []
    for group in results.groups:
        blocks.append(to_text(without_spread(tables[group], everywhere=single)))
        blocks.append(
            "\n".join(textwrap.fill(s, 108, initial_indent="- ", subsequent_indent="  ") for s in reading[group])
        )
    blocks += [to_text(table) for table in means]
    if unfinished:
        blocks.append(f"{unfinished} runs are not finished and not in here.")
    return Written("\n\n".join(blocks), files)


FILES = {
    "page": "index.html",
    "table": "table.md",
    "csv": "summary.csv",
    "latex": "table.tex",
    "reliability diagram": "reliability.png",
}


def _main_table(results: Results, group: Group, compared: Compared) -> Table:
    rows, splits = results.rows(group), results.splits(group)
    runs = _range(len(results.of(group, row)) for row in rows)
    images = " and ".join(
        f"{_range(run.counts[split] for run in results.runs if run.group == group and split in run.counts)} {split}"
        for split in splits
    )
    of = "one run a line" if runs == "1" else f"means of {runs} runs a line ± half a 95 % interval"
    return make_table(f"{of}, {images} images; {UNITS}", rows, main_columns(splits), compared)


def _range(counts: Iterable[int]) -> str:
    """All counts in one phrase: ``3``, or ``1 to 3``."""
    known = set(counts)
    return " to ".join(dict.fromkeys([str(min(known)), str(max(known))]))


def _averages(results: Results, compared: Mapping[Group, Compared]) -> list[Table]:
    """A table for each model and number of shots that was run on several data sets."""
    tables = []
    for model, shots in dict.fromkeys((group.model, group.shots) for group in results.groups):
        groups = [group for group in results.groups if (group.model, group.shots) == (model, shots)]
        if len(groups) < 2:
            continue
        mean = average({group: compared[group] for group in groups}, results.rows())
        rows = [row for row in results.rows() if any(of == row for of, _ in mean.estimates)]
        splits = tuple(dict.fromkeys(split for group in groups for split in results.splits(group)))
        names = ", ".join(group.dataset for group in groups)
        caption = f"Average of {len(groups)} data sets ({names}), {model}, {shots} shots: means of the columns; {UNITS}"
        tables.append(make_table(caption, rows, main_columns(splits), mean))
    return tables


def _plain(results: Results, group: Group) -> list[Row]:
    return [row for row in results.rows(group) if row.calibrator == "none"]


def _section(
    results: Results,
    group: Group,
    compared: Compared,
    table: Table,
    reading: Sequence[str],
    samples: Mapping[str, Samples],
) -> Section:
    panels = []
    for index, row in enumerate(_plain(results, group)):
        with style(f"{group} {index}"):
            panels.append(Picture(row.name, to_svg(reliability(results, group, [row], samples, named=False))))
    units = {metric: unit for run in results.runs for metric, unit in run.units.items()}
    metrics = [*results.metrics(), "ece_noise_floor"]
    folded = tuple(
        (
            f"All metrics on {split}",
            make_table(
                f"{split}: fractions in percent, NLL in nats; point at a number for its interval and spread",
                results.rows(group),
                metric_columns(split, metrics, units),
                compared,
            ),
        )
        for split in results.splits(group)
    )
    return Section(
        title=results.title(group),
        sentences=tuple(reading),
        tables=(table,),
        panels=tuple(panels),
        note=PANELS_NOTE,
        folded=folded,
    )


def _lead(results: Results, unfinished: int) -> str:
    runs = len(results.runs)
    waiting = f"; {unfinished} more are not finished and not in here" if unfinished else ""
    return f"{runs} finished run{'s' if runs != 1 else ''}{waiting}."


def _foot(results: Results) -> str:
    versions = dict.fromkeys(str(run.folder.info.get("promptcal")) for run in results.runs)
    return f"Runs made with promptcal {', '.join(versions)}."


def _csv(results: Results, compared: Mapping[Group, Compared]) -> str:
    """Every mean in long form, as fractions: one line a data set, row, split and metric."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*Group._fields, *Row._fields, *Number._fields, "mean", "std", "low", "high", "runs", "best"])
    for group, one in compared.items():
        for (row, number), e in one.estimates.items():
            best = row in one.winners.get(number, ())
            writer.writerow([*group, *row, *number, e.value, e.std, e.low, e.high, e.runs, int(best)])
    return buffer.getvalue()
