"""Tables as records, and how a terminal, Markdown and LaTeX show them; a page shows them in ``page.py``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from promptcal.report.estimates import Compared, Estimate
from promptcal.report.names import calibrator_name, metric_name
from promptcal.report.results import H, Number, Row

MINUS = "−"


@dataclass(frozen=True)
class Column:
    """A column: its number, the heading that spans it and its neighbours, its own heading, and how values are shown."""

    number: Number
    span: str
    heading: str
    percent: bool = False
    signed: bool = False
    digits: int = 1
    spread: bool = True

    def show(self, value: float, *, signed: bool | None = None) -> str:
        """The value as people read it."""
        shown = value * 100 if self.percent else value
        sign = "+" if (self.signed if signed is None else signed) else ""
        text = f"{shown:{sign}.{self.digits}f}"
        zero = f"{0:.{self.digits}f}"
        return zero if text.lstrip("+-") == zero else text.replace("-", MINUS)


@dataclass(frozen=True)
class Cell:
    """A cell: the mean, half its interval where there is one, a remark for who wants to know, and whether it is best.

    ``words`` marks a cell of text, which stands to the left.
    """

    text: str = ""
    spread: str = ""
    remark: str = ""
    best: bool = False
    words: bool = False

    @property
    def plain(self) -> str:
        """The cell in one word."""
        return self.text + (f"±{self.spread}" if self.spread else "") + ("*" if self.best else "")


@dataclass(frozen=True)
class Line:
    """A line: its label, how far it is set in, and a cell for each column (none for a mere heading)."""

    label: str
    depth: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A caption, columns and lines."""

    caption: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    @property
    def spans(self) -> list[tuple[str, int]]:
        """The upper headings and how many columns each covers."""
        found: list[tuple[str, int]] = []
        for column in self.columns:
            if found and found[-1][0] == column.span:
                found[-1] = (column.span, found[-1][1] + 1)
            else:
                found.append((column.span, 1))
        return found


def main_columns(splits: Sequence[str]) -> tuple[Column, ...]:
    """Accuracy, ECE and gap of each split, H where there are base and novel, and NLL of each split."""
    columns: list[Column] = []
    for split in splits:
        columns += [
            Column(Number(split, "accuracy"), split, "acc", percent=True),
            Column(Number(split, "ece"), split, "ECE", percent=True),
            Column(Number(split, "signed_gap"), split, "gap", percent=True, signed=True, spread=False),
        ]
    if {"base", "novel"} <= set(splits):
        columns.append(Column(H, "", "H", percent=True))
    columns += [Column(Number(split, "nll"), "NLL", split, digits=3, spread=False) for split in splits]
    return tuple(columns)


def metric_columns(split: str, metrics: Sequence[str], units: Mapping[str, str]) -> tuple[Column, ...]:
    """Every metric of one split; fractions in percent, other units as they are."""
    columns = []
    for metric in metrics:
        percent = units.get(metric, "fraction") == "fraction"
        signed = metric == "signed_gap"
        columns.append(
            Column(Number(split, metric), split, metric_name(metric), percent, signed, digits=1 if percent else 3)
        )
    return tuple(columns)


def make_table(caption: str, rows: Sequence[Row], columns: Sequence[Column], compared: Compared) -> Table:
    """A line for each row, those of one method together: the method itself first, its calibrators set in below."""
    lines: list[Line] = []
    above: tuple[str, str] | None = None
    for row in rows:
        cells = tuple(_cell(row, column, compared) for column in columns)
        method = (row.method, row.variant)
        if row.calibrator == "none":
            lines.append(Line(row.method_name, 0, cells))
        else:
            if method != above:
                lines.append(Line(row.method_name, 0, ()))
            lines.append(Line(calibrator_name(row.calibrator), 1, cells))
        above = method
    shown = [c for i, c in enumerate(columns) if any(line.cells and line.cells[i].text for line in lines)]
    if len(shown) < len(columns):
        return make_table(caption, rows, shown, compared)
    return Table(caption, tuple(columns), tuple(lines))


def _cell(row: Row, column: Column, compared: Compared) -> Cell:
    estimate = compared.estimates.get((row, column.number))
    if estimate is None:
        return Cell()
    spread = "" if estimate.half is None else column.show(estimate.half, signed=False)
    best = row in compared.winners.get(column.number, ())
    return Cell(column.show(estimate.value), spread, _remark(estimate, column), best)


def _remark(estimate: Estimate, column: Column) -> str:
    parts = []
    if estimate.low is not None and estimate.high is not None:
        parts.append(f"95 % interval {column.show(estimate.low)} to {column.show(estimate.high)}")
    if estimate.std is not None:
        parts.append(f"standard deviation {column.show(estimate.std, signed=False)} over {estimate.runs}")
    return "; ".join(parts)


def without_spread(table: Table, *, everywhere: bool = False) -> Table:
    """The table without intervals, in the columns that have no room for them or everywhere."""
    lines = [
        replace(
            line,
            cells=tuple(
                cell if column.spread and not everywhere else replace(cell, spread="")
                for cell, column in zip(line.cells, table.columns, strict=False)
            ),
        )
        for line in table.lines
    ]
    return replace(table, lines=tuple(lines))


def to_text(table: Table) -> str:
    """The table for a terminal: aligned, numbers to the right."""
    labels = ["  " * line.depth + line.label for line in table.lines]
    first = max(len(label) for label in labels)
    words = [[cell.plain for cell in line.cells] for line in table.lines]
    widths = [
        max(len(column.heading), *(len(row[index]) for row in words if row)) + 2
        for index, column in enumerate(table.columns)
    ]
    top, at = " " * first, 0
    for span, count in table.spans:
        width = sum(widths[at : at + count])
        top += "  " + f" {span} ".center(width - 2, "-") if span else " " * width
        at += count
    head = " " * first + "".join(c.heading.rjust(w) for c, w in zip(table.columns, widths, strict=True))
    body = [
        (label.ljust(first) + "".join(word.rjust(width) for word, width in zip(row, widths, strict=False))).rstrip()
        for label, row in zip(labels, words, strict=True)
    ]
    return "\n".join([table.caption, top.rstrip(), head, *body])


def to_markdown(table: Table) -> str:
    """The table in Markdown; best values are bold."""
    headings = [f"{column.span} {column.heading}".strip() for column in table.columns]
    lines = [f"| | {' | '.join(headings)} |", f"|:--|{'--:|' * len(headings)}"]
    for line in table.lines:
        label = "&nbsp;&nbsp;" * line.depth + line.label.replace("|", "\\|")
        cells = [f"**{cell.plain.rstrip('*')}**" if cell.best else cell.plain for cell in line.cells]
        lines.append(f"| {label} | {' | '.join(cells or [''] * len(headings))} |")
    return f"{table.caption}\n\n" + "\n".join(lines)


def to_latex(table: Table) -> str:
    """The table in LaTeX with booktabs rules; best values are bold."""
    spans, rules, at = [], [], 2
    for span, count in table.spans:
        spans.append(f"\\multicolumn{{{count}}}{{c}}{{{_tex(span)}}}")
        if span:
            rules.append(f"\\cmidrule(lr){{{at}-{at + count - 1}}}")
        at += count
    lines = []
    for line in table.lines:
        label = "\\quad " * line.depth + _tex(line.label)
        cells = [_tex_cell(cell) for cell in line.cells] or [""] * len(table.columns)
        lines.append(f"{label} & {' & '.join(cells)} \\\\")
    return "\n".join(
        [
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{_tex(table.caption)}}}",
            f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            "\\toprule",
            f" & {' & '.join(spans)} \\\\",
            " ".join(rules),
            f" & {' & '.join(_tex(column.heading) for column in table.columns)} \\\\",
            "\\midrule",
            *lines,
            "\\bottomrule",
            "\\end{tabular}",
            "\\end{table}",
        ]
    )


def _tex_cell(cell: Cell) -> str:
    if not cell.text:
        return ""
    text = cell.text.replace(MINUS, "-") + (f" \\pm {cell.spread}" if cell.spread else "")
    return f"$\\mathbf{{{text}}}$" if cell.best else f"${text}$"


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", MINUS: "$-$"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, f"\\{letter}" if letter in "&%$#_{}" else letter) for letter in text)
