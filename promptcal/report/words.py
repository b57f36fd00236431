"""Which words of the vocabulary the learned tokens lie near."""

from collections.abc import Sequence

from promptcal.report.results import Group, Number, Results, Row
from promptcal.report.tables import Cell, Column, Line, Table

CAPTION = (
    "The three vocabulary words nearest to each learned token, with their Euclidean distance, of the first run of each "
    "method (16 tokens at most). Nearness is not meaning: most learned tokens lie far from every word"
)
SHOWN = 16


def words_table(results: Results, group: Group, rows: Sequence[Row]) -> Table | None:
    """A line for each learned token of the first run of each row; None where no run has noted any."""
    lines: list[Line] = []
    for row in rows:
        run = results.of(group, row)[0]
        for tokens in (run.folder.info.get("nearest_words") or {}).values():
            split = "" if run.split_seed is None else f", class split {run.split_seed}"
            lines.append(Line(f"{row.method_name}, seed {run.seed}{split}", 0, ()))
            lines += [
                Line(f"token {number}", 1, tuple(Cell(f"{word} {distance:.2f}") for word, distance in near))
                for number, near in enumerate(tokens[:SHOWN], start=1)
            ]
    if not lines:
        return None
    headings = ("nearest", "second", "third")
    columns = tuple(Column(Number("", ""), "", heading, words=True) for heading in headings)
    return Table("Nearest words of the learned tokens", CAPTION, columns, tuple(lines))
