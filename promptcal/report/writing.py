"""From run folders to the files of a report."""

import csv
import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from promptcal.report.claims import published_tables, write_claims
from promptcal.report.estimates import Compared, compare
from promptcal.report.figures import reliability, style, to_png
from promptcal.report.names import PROTOCOLS
from promptcal.report.page import to_html
from promptcal.report.reading import read
from promptcal.report.rendering import WIDTH, to_latex, to_markdown, to_text
from promptcal.report.results import Group, Number, Results, Row, Rows, read_results
from promptcal.report.samples import read_samples
from promptcal.report.sections import Material, averages, main_tables, page_sections
from promptcal.report.tables import MINUS, Table
from promptcal.report.variants import protocol_of
from promptcal.run import RunFolder
from promptcal.storage import write_bytes, write_text

RESAMPLES = 1000


@dataclass(frozen=True)
class Written:
    """A report on disk: the text for the terminal, and the files by what they are."""

    text: str
    files: Mapping[str, Path]

    def __str__(self) -> str:
        """The text, and where the files are."""
        return "\n".join([self.text, "", *(f"{label}: {path}" for label, path in self.files.items())])


def write_report(
    folders: Sequence[RunFolder],
    out: Path,
    *,
    title: str,
    unfinished: int = 0,
    rescored: Mapping[str, Rows] | None = None,
    published: bool = False,
) -> Written:
    """Write the report of finished runs: text, page, Markdown, CSV, LaTeX and reliability diagrams.

    Args:
        folders: finished runs; one that is given twice counts once.
        out: the folder of the report; its files are replaced.
        title: the heading of the page.
        unfinished: how many runs are under way, to be said.
        rescored: by folder name, metric rows to take instead of those that the run itself measured.
        published: also put figures that others have published beside the measured ones, in tables and files of their
            own.

    Raises:
        DataError: there is no run, a run is broken, or runs that may not be averaged are the same configuration.
    """
    results = read_results(folders, rescored)
    samples = {run.name: read_samples(run) for run in results.runs}
    compared = {group: compare(results, group, samples, RESAMPLES) for group in results.groups}
    material = Material(results, samples, compared)
    means = averages(material)
    blocks = [(main_tables(material, group), read(results, group, compared[group])) for group in results.groups]
    blocks += [(list(mean.tables), list(mean.reading)) for mean in means]
    tables = [table for some, _ in blocks for table in some]

    files = {name: out / file for name, file in FILES.items()}
    claims = published_tables(results, compared) if published else []
    files |= write_claims(out, claims) if published else {}
    sections = page_sections(material, means, claims)
    write_text(files["page"], to_html(title, _lead(results, unfinished), sections, _foot(results)))
    write_text(files["table"], f"# {title}\n\n" + "\n\n".join(to_markdown(table) for table in tables) + "\n")
    write_text(files["csv"], _csv(compared))
    write_text(files["latex"], "\n\n".join(to_latex(table) for table in tables) + "\n")
    return Written(_text(blocks, unfinished), files | _diagrams(material, out))


def title_of(folders: Sequence[RunFolder]) -> str:
    """What a report of some runs is called where nobody says: what their protocol is about."""
    protocols = {protocol_of(folder.config) for folder in folders}
    return PROTOCOLS.get(protocols.pop(), "Calibration") if len(protocols) == 1 else "Calibration"


FILES = {"page": "index.html", "table": "table.md", "csv": "summary.csv", "latex": "table.tex"}


def _text(blocks: Sequence[tuple[Sequence[Table], Sequence[str]]], unfinished: int) -> str:
    """What the terminal shows: the tables of each group with their reading."""
    parts = []
    for tables, sentences in blocks:
        lines = [textwrap.fill(text, WIDTH, initial_indent="- ", subsequent_indent="  ") for text in sentences]
        parts += [*map(to_text, tables), "\n".join(lines)]
    if unfinished:
        parts.append(_unfinished(unfinished).capitalize() + ".")
    return "\n\n".join(part for part in parts if part).replace(MINUS, "-")


def _diagrams(material: Material, out: Path) -> dict[str, Path]:
    """The reliability diagrams as PNG: one file, or a folder of them where there are several groups."""
    results, groups = material.results, material.results.groups
    alone = len(groups) == 1
    files = {
        group: out / "reliability.png" if alone else out / "reliability" / f"{'-'.join(map(str, group))}.png"
        for group in groups
    }
    for group, file in files.items():
        rows = material.plain(group) or list(results.rows(group))
        with style(f"png {group}"):
            write_bytes(file, to_png(reliability(results, group, rows, material.samples)))
    return {"reliability diagram": files[groups[0]]} if alone else {"reliability diagrams": out / "reliability"}


def _unfinished(count: int) -> str:
    return f"{count} more {'is' if count == 1 else 'are'} not finished and not in here"


def _lead(results: Results, unfinished: int) -> str:
    runs = len(results.runs)
    waiting = f"; {_unfinished(unfinished)}" if unfinished else ""
    return f"{runs} finished run{'s' if runs != 1 else ''}{waiting}."


def _foot(results: Results) -> str:
    versions = dict.fromkeys(str(run.folder.info.get("promptcal")) for run in results.runs)
    return f"Runs made with promptcal {', '.join(versions)}."


def _csv(compared: Mapping[Group, Compared]) -> str:
    """Every mean in long form, as fractions (NLL in nats): one line a data set, row, split and metric."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*Group._fields, *Row._fields, *Number._fields, "mean", "std", "low", "high", "runs", "best"])
    for group, one in compared.items():
        for (row, number), e in one.estimates.items():
            best = row in one.winners.get(number, ())
            writer.writerow([*group, *row, *number, e.value, e.std, e.low, e.high, e.runs, int(best)])
    return buffer.getvalue()
