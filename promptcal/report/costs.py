"""What was run, and what each run cost."""

from collections.abc import Mapping
from typing import Any

from promptcal.report.results import Number, Results, Row, Run
from promptcal.report.samples import Samples
from promptcal.report.tables import Cell, Column, Line, Table

HEADINGS = (
    "run",
    "commit",
    "device",
    "training, s",
    "all, s",
    "learned numbers",
    "peak memory, MB",
    "fitted on validation images, and notes",
)


def runs_table(results: Results, samples: Mapping[str, Samples]) -> Table:
    """One line a run, by data set and method: hash, commit, device, seconds, learned numbers, memory, calibrators."""
    lines: list[Line] = []
    above = ""
    for run in sorted(results.runs, key=lambda run: results.groups.index(run.group)):
        label = f"{results.title(run.group)}: {Row(run.method, run.variant, 'none').method_name}"
        lines += [] if label == above else [Line(label, 0, ())]
        lines.append(Line(_draw(run), 1, _cells(run, samples[run.name])))
        above = label
    columns = tuple(Column(Number("", ""), "", heading, words=heading == HEADINGS[-1]) for heading in HEADINGS)
    return Table("What was run", "Every run, what it cost and what was fitted after training", columns, tuple(lines))


def _draw(run: Run) -> str:
    split = "" if run.split_seed is None else f", class split {run.split_seed}"
    return f"seed {run.seed}{split}"


def _cells(run: Run, samples: Samples) -> tuple[Cell, ...]:
    info = run.folder.info
    words = (
        run.name,
        str(info.get("commit") or f"promptcal {info.get('promptcal', 'unknown')}"),
        str(info.get("device", "")),
        _seconds(info.get("train_seconds")),
        _seconds(info.get("seconds")),
        f"{info['learned_parameters']:,}" if "learned_parameters" in info else "",
        f"{info['peak_memory_mb']:,.0f}" if "peak_memory_mb" in info else "",
    )
    return (*(Cell(word) for word in words), Cell("; ".join([*samples.fitted, *info.get("notes", [])])))


def _seconds(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else ""


def versions(results: Results) -> tuple[tuple[str, str], ...]:
    """What the runs were made with, as terms and texts."""
    infos = [run.folder.info for run in results.runs]
    packages = dict.fromkeys(name for info in infos for name in info.get("packages", {}))

    def all_of(values: list[Any]) -> str:
        return " and ".join(dict.fromkeys(str(value) for value in values if value is not None))

    terms = [(name, all_of([info.get(name) for info in infos])) for name in ("promptcal", "commit", "python")]
    made = "; ".join(f"{name} {all_of([info.get('packages', {}).get(name) for info in infos])}" for name in packages)
    return tuple((term, text) for term, text in [*terms, ("packages", made)] if text)
