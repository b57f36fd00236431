"""How a terminal, Markdown and LaTeX show a table; a page shows it in ``page.py``."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from promptcal.report.tables import MINUS, Cell, Line, Table

WIDTH = 108
"""Characters of a line of prose in a terminal."""


LONGEST_LABEL = 30
"""Characters of a label that stands beside its numbers in a terminal."""


def narrow(table: Table, *, terminal: bool = False) -> Table:
    """The table without intervals in the columns that have no room for them, on a page or in a terminal."""

    def cells(line: Line) -> tuple[Cell, ...]:
        return tuple(
            cell if column.spread and (column.terminal or not terminal) else replace(cell, spread="")
            for cell, column in zip(line.cells, table.columns, strict=False)
        )

    return replace(table, lines=tuple(replace(line, cells=cells(line)) for line in table.lines))


def to_text(table: Table) -> str:
    """The table for a terminal: aligned, numbers to the right, intervals where there is room, best values starred."""
    table = narrow(table, terminal=True)
    labels = ["  " * line.depth + line.label for line in table.lines]
    first = max((len(label) for label in labels if len(label) <= LONGEST_LABEL), default=0)
    marked = any(cell.best for line in table.lines for cell in line.cells)
    words = [[cell.plain + ("*" if cell.best else " " * marked) for cell in line.cells] for line in table.lines]
    heads = [column.heading + " " * marked for column in table.columns]
    widths = [max(map(len, [head, *(row[index] for row in words if row)])) + 2 for index, head in enumerate(heads)]
    top, at = " " * first, 0
    for span, count in table.spans:
        width = sum(widths[at : at + count])
        top += "  " + f" {span} ".center(width - 2, "-") if span else " " * width
        at += count
    lines = [
        top,
        *(_text_line(label, row, first, widths) for label, row in [("", heads), *zip(labels, words, strict=True)]),
    ]
    caption = table.caption + ("; * better than every other row, see 'Best values' on the page" if marked else "")
    return "\n".join([table.title, textwrap.fill(caption, WIDTH), "", *(line.rstrip() for line in lines)])


def _text_line(label: str, words: Sequence[str], first: int, widths: Sequence[int]) -> str:
    """The label and its numbers; a long label has a line of its own above them."""
    above = f"{label}\n" if words and len(label) > LONGEST_LABEL else ""
    beside = label if not above else ""
    numbers = "".join(word.rjust(width) for word, width in zip(words, widths, strict=False))
    return above + beside.ljust(first) + numbers


def to_markdown(table: Table) -> str:
    """The table in Markdown; best values are bold."""
    headings = [f"{column.span} {column.heading}".strip() for column in table.columns]
    body = [f"| | {' | '.join(headings)} |", f"|:--|{'--:|' * len(headings)}"]
    for line in table.lines:
        label = "&nbsp;&nbsp;" * line.depth + line.label.replace("|", "\\|")
        cells = [f"**{cell.plain}**" if cell.best else cell.plain for cell in line.cells]
        body.append(f"| {label} | {' | '.join(cells or [''] * len(headings))} |")
    return "\n\n".join([f"## {table.title}", table.caption, "\n".join(body)])


def to_latex(table: Table) -> str:
    """The table in LaTeX with booktabs rules; best values are bold."""
    spans, rules, at = [], [], 2
    for span, count in table.spans:
        spans.append(f"\\multicolumn{{{count}}}{{c}}{{{_tex(span)}}}")
        if span:
            rules.append(f"\\cmidrule(lr){{{at}-{at + count - 1}}}")
        at += count
    body = []
    for line in table.lines:
        label = "\\quad " * line.depth + _tex(line.label)
        cells = [_tex_cell(cell) for cell in line.cells] or [""] * len(table.columns)
        body.append(f"{label} & {' & '.join(cells)} \\\\")
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{_tex(table.title)}. {_tex(table.caption)}.}}",
            f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            "\\toprule",
            f" & {' & '.join(spans)} \\\\",
            " ".join(rules),
            f" & {' & '.join(_tex(column.heading) for column in table.columns)} \\\\",
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            "\\end{table}",
        ]
    )


def _tex_cell(cell: Cell) -> str:
    if not cell.text:
        return ""
    text = "\\; ".join(part for part in (cell.text, cell.spread) if part).replace(MINUS, "-")
    return f"$\\mathbf{{{text}}}$" if cell.best else f"${text}$"


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", MINUS: "$-$"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, f"\\{letter}" if letter in "&%$#_{}" else letter) for letter in text)
