"""What was run, and what each run cost."""

from collections.abc import Mapping

from promptcal.report.names import method_name
from promptcal.report.results import Number, Results
from promptcal.report.samples import Samples
from promptcal.report.tables import Cell, Column, Line, Table

HEADINGS = ("seed", "class split", "run", "commit", "device", "train s", "total s", "learned", "fitted after training")


def runs_table(results: Results, samples: Mapping[str, Samples]) -> Table:
    """One line a run: its seed and class split, hash, commit, device, seconds, learned numbers, fitted calibrators."""
    lines = []
    for run in results.runs:
        info = run.folder.info
        name = run.folder.path.name
        words = [
            str(run.seed),
            "first half" if run.split_seed is None else f"random {run.split_seed}",
            name,
            str(info.get("commit") or f"version {info.get('promptcal', 'unknown')}"),
            str(info.get("device", "")),
            _seconds(info.get("train_seconds")),
            _seconds(info.get("seconds")),
            f"{info['learned_parameters']:,}" if "learned_parameters" in info else "",
        ]
        label = f"{run.group.dataset}: {method_name(run.method)}{f' ({run.variant})' if run.variant else ''}"
        fitted = Cell("; ".join(samples[name].fitted), words=True)
        lines.append(Line(label, 0, (*(Cell(word) for word in words), fitted)))
    columns = tuple(Column(Number("", ""), "", heading) for heading in HEADINGS)
    return Table("Runs, with what trained and what was fitted on validation images afterwards", columns, tuple(lines))


def _seconds(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else ""
