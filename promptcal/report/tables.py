"""Tables as records: what stands in which line and column, and how a number is shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from promptcal.report.comparisons import BETTER, best
from promptcal.report.estimates import Compared, Estimate
from promptcal.report.names import calibrator_name, metric_name
from promptcal.report.results import H, Number, Row
from promptcal.report.transfers import OTHERS

MINUS = "−"

MOST_SPLITS = 2
"""How many splits one table shows side by side; with more there is a table for each metric."""


@dataclass(frozen=True)
class Column:
    """A column: its number, the heading that spans it and its neighbours, its own heading, and how values are shown.

    ``spread`` says whether a narrow table has room for its intervals, ``terminal`` whether a terminal has them,
    ``deviation`` whether the standard deviation over runs stands beside them; ``words`` marks a column of text, which
    stands to the left.
    """

    number: Number
    span: str
    heading: str
    percent: bool = False
    signed: bool = False
    digits: int = 1
    spread: bool = True
    terminal: bool = True
    deviation: bool = False
    words: bool = False

    def show(self, value: float, *, signed: bool | None = None) -> str:
        """The value as people read it."""
        shown = value * 100 if self.percent else value
        sign = "+" if (self.signed if signed is None else signed) else ""
        text = f"{shown:{sign}.{self.digits}f}"
        zero = f"{0:.{self.digits}f}"
        return zero if text.lstrip("+-") == zero else text.replace("-", MINUS)


@dataclass(frozen=True)
class Cell:
    """A cell: the mean, its interval [low, high] where there is one, what else to know, and whether it is best."""

    text: str = ""
    spread: str = ""
    remark: str = ""
    best: bool = False

    @property
    def plain(self) -> str:
        """The cell in one word."""
        return f"{self.text} {self.spread}".strip()


@dataclass(frozen=True)
class Line:
    """A line: its label, how far it is set in, and a cell for each column (none for a mere heading)."""

    label: str
    depth: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """What it is about (shown where no heading says so), what its numbers are, columns and lines."""

    title: str
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
            Column(Number(split, "accuracy"), split, "acc", percent=True, terminal=False),
            Column(Number(split, "ece"), split, "ECE", percent=True),
            Column(Number(split, "signed_gap"), split, "gap", percent=True, signed=True, spread=False),
        ]
    if {"base", "novel"} <= set(splits):
        columns.append(Column(H, "", "H", percent=True, terminal=False))
    columns += [Column(Number(split, "nll"), "NLL", split, digits=3, spread=False) for split in splits]
    return tuple(columns)


def columns_by_metric(splits: Sequence[str]) -> tuple[tuple[Column, ...], ...]:
    """For more splits than one table holds, the columns of a table for each metric: the splits and what joins them."""
    shown = [
        Column(Number("", "accuracy"), "accuracy", "", percent=True),
        Column(Number("", "ece"), "ECE", "", percent=True),
        Column(Number("", "signed_gap"), "gap", "", percent=True, signed=True, spread=False),
        Column(Number("", "nll"), "NLL", "", digits=3, spread=False),
    ]
    tables = [
        tuple(replace(one, number=Number(split, one.number.metric), heading=split) for split in (*splits, OTHERS))
        for one in shown
    ]
    if {"base", "novel"} <= set(splits):
        tables[0] = (*tables[0], Column(H, "", "H", percent=True))
    return tuple(tables)


def compared_columns(splits: Sequence[str], compared: Compared) -> tuple[Column, ...]:
    """The columns in which rows are tested against the best one: of many data sets, their mean alone."""
    if len(splits) <= MOST_SPLITS:
        return main_columns(splits)
    columns = tuple(column for table in columns_by_metric(splits) for column in table)
    means = tuple(c for c in columns if c.number.split == OTHERS and c.number in compared.winners)
    return means or columns


def metric_columns(split: str, metrics: Sequence[str], units: Mapping[str, str]) -> tuple[Column, ...]:
    """Every metric of one split; fractions in percent, other units as they are."""
    columns = []
    for metric in metrics:
        percent = units.get(metric, "fraction") == "fraction"
        columns.append(
            Column(
                Number(split, metric),
                split,
                metric_name(metric),
                percent,
                signed=metric == "signed_gap",
                digits=1 if percent else 3,
                deviation=True,
            )
        )
    return tuple(columns)


def make_table(title: str, caption: str, rows: Sequence[Row], columns: Sequence[Column], compared: Compared) -> Table:
    """A line for each row, those of one method together: the method itself first, its calibrators set in below."""
    columns = [c for c in columns if any((row, c.number) in compared.estimates for row in rows)]

    def cells(row: Row) -> tuple[Cell, ...]:
        return tuple(_cell(row, column, compared) for column in columns)

    return Table(title, caption, tuple(columns), lines(rows, cells))


def lines(rows: Sequence[Row], cells: Callable[[Row], tuple[Cell, ...]]) -> tuple[Line, ...]:
    """The lines of rows: a method's own numbers or its name alone, and below it what its calibrators make of it."""
    found: list[Line] = []
    above = ""
    for row in rows:
        if row.calibrator == "none":
            found.append(Line(row.method_name, 0, cells(row)))
        else:
            found += [] if row.method_name == above else [Line(row.method_name, 0, ())]
            found.append(Line(calibrator_name(row.calibrator), 1, cells(row)))
        above = row.method_name
    return tuple(found)


def _cell(row: Row, column: Column, compared: Compared) -> Cell:
    estimate = compared.estimates.get((row, column.number))
    if estimate is None:
        return Cell()
    spread = "" if estimate.low is None or estimate.high is None else _interval(estimate.low, estimate.high, column)
    if column.deviation and estimate.std is not None:
        spread = f"{spread} ({column.show(estimate.std, signed=False)})".strip()
    winner = row in compared.winners.get(column.number, ())
    return Cell(column.show(estimate.value), spread, _remark(estimate, column), winner)


def _interval(low: float, high: float, column: Column) -> str:
    return f"[{column.show(low)}, {column.show(high)}]"


def _remark(estimate: Estimate, column: Column) -> str:
    parts = []
    if estimate.low is not None and estimate.high is not None:
        parts.append(f"95 % interval {column.show(estimate.low)} to {column.show(estimate.high)}")
    if estimate.std is not None:
        parts.append(f"standard deviation {column.show(estimate.std, signed=False)} over {estimate.runs}")
    return "; ".join(parts)


def difference_table(title: str, rows: Sequence[Row], splits: Sequence[str], compared: Compared) -> Table | None:
    """For each number in which a best row is looked for, every row less the best one, with the adjusted p-value.

    None where nothing was tested.
    """
    tested = {number for *_, number in compared.differences} & set(compared.winners)
    columns = [column for column in compared_columns(splits, compared) if column.number in tested]
    if not columns:
        return None
    tops = {}
    for column in columns:
        values = {row: e.value for row in rows if (e := compared.estimates.get((row, column.number))) is not None}
        tops[column.number] = best(values, BETTER[column.number.metric])[0]

    def cells(row: Row) -> tuple[Cell, ...]:
        return tuple(
            cell for column in columns for cell in _difference_cells(row, tops[column.number], column, compared)
        )

    heads: list[Column] = []
    for column in columns:
        span = f"{column.span} {column.heading}".strip()
        heads += [replace(column, span=span, heading="difference"), replace(column, span=span, heading="p")]
    caption = (
        "Each row less the best one of the column, its 95 % interval, and p after Holm's correction over rows; "
        "without a second run (over data sets: six of them) there is no p"
    )
    return _without_empty(Table(title, caption, tuple(heads), lines(rows, cells)))


def _without_empty(table: Table) -> Table:
    """The table without columns in which no line says anything."""
    said = [
        place
        for place in range(len(table.columns))
        if any(line.cells and line.cells[place].text for line in table.lines)
    ]
    columns = tuple(table.columns[place] for place in said)
    kept = tuple(replace(line, cells=tuple(line.cells[p] for p in said if line.cells)) for line in table.lines)
    return replace(table, columns=columns, lines=kept)


def _difference_cells(row: Row, top: Row, column: Column, compared: Compared) -> tuple[Cell, Cell]:
    if row == top:
        return Cell("best"), Cell()
    found = compared.differences.get((row, top, column.number))
    if found is None:
        return Cell(), Cell()
    if found.identical:
        return Cell("identical"), Cell()
    points = replace(column, signed=True)
    return Cell(points.show(found.value), _interval(found.low, found.high, points)), Cell(_p(found.adjusted))


def _p(value: float | None) -> str:
    return "" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"
