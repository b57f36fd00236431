import re

import pytest

from promptcal.report.estimates import compare
from promptcal.report.rendering import to_latex, to_markdown, to_text
from promptcal.report.results import H, Number, read_results
from promptcal.report.samples import read_samples
from promptcal.report.tables import Cell, Column, Line, Table, difference_table, main_columns, make_table

PERCENT = Column(Number("base", "accuracy"), "base", "acc", percent=True)
GAP = Column(Number("base", "signed_gap"), "base", "gap", percent=True, signed=True)
NLL = Column(Number("base", "nll"), "NLL", "base", digits=3)


@pytest.fixture(scope="module")
def table_of_study(study):
    results = read_results(study)
    (group,) = results.groups
    compared = compare(results, group, {run.name: read_samples(run) for run in results.runs}, 100)
    columns = main_columns(results.splits(group))
    return make_table("A title", "A caption", results.rows(), columns, compared), results.rows(), compared


def test_fractions_are_shown_in_percent_gaps_with_a_sign_and_no_minus_zero():
    assert PERCENT.show(0.8734) == "87.3"
    assert GAP.show(0.012) == "+1.2"
    assert GAP.show(-0.012) == "−1.2"
    assert GAP.show(-0.0001) == "0.0"
    assert NLL.show(0.5) == "0.500"


def test_columns_of_base_to_novel_and_of_other_splits():
    assert [column.heading for column in main_columns(("base", "novel"))] == [
        *("acc", "ECE", "gap"),
        *("acc", "ECE", "gap"),
        "H",
        *("base", "novel"),
    ]
    assert H not in [column.number for column in main_columns(("all",))]


def test_the_terminal_table_is_aligned_and_fits(table_of_study):
    table, rows, _ = table_of_study
    lines = to_text(table).splitlines()
    assert max(map(len, lines)) <= 110
    assert len(lines) == 2 + 3 + len(rows)
    ends = {len(line.rstrip("* ")) for line in lines[5:]}
    assert ends == {len(lines[4])}  # the last number of each line ends below the last heading
    starts = [line.split("  ")[0] or line.strip().split("  ")[0] for line in lines[5:]]
    assert starts[:3] == ["zero-shot CLIP", "+ TS", "CoOp"]


def test_markdown_and_latex_have_every_cell(table_of_study):
    table, rows, _ = table_of_study
    markdown = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    assert len(markdown) == 2 + len(rows)
    assert {line.count("|") for line in markdown} == {len(table.columns) + 2}
    latex = to_latex(table)
    body = latex[latex.index(r"\midrule") :].splitlines()[1:]
    cells = [line for line in body if line.endswith(r"\\")]
    assert len(cells) == len(rows)
    assert {len(re.findall(r"(?<!\\)&", line)) for line in cells} == {len(table.columns)}
    assert "−" not in latex
    assert latex.count("{") == latex.count("}")


def test_latex_escapes_what_it_must():
    table = Table(
        "100 % of my_data & more", "x^2", (PERCENT,), (Line("a_b #1", 0, (Cell("−1.0", "[−1.2, −0.7]", best=True),)),)
    )
    latex = to_latex(table)
    assert r"100 \% of my\_data \& more" in latex
    assert r"a\_b \#1 & $\mathbf{-1.0\; [-1.2, -0.7]}$ \\" in latex
    assert r"x\textasciicircum{}2" in latex


def test_best_values_are_starred_in_text_and_bold_in_markdown():
    lines = (Line("one", 0, (Cell("1.0", best=True),)), Line("two", 1, (Cell("2.0"),)))
    table = Table("t", "c", (PERCENT,), lines)
    assert to_text(table).splitlines()[-2:] == ["one    1.0*", "  two  2.0"]
    assert "**1.0**" in to_markdown(table)


def test_differences_are_from_the_best_row(table_of_study):
    _, rows, compared = table_of_study
    tests = difference_table("Tests", rows, ("base", "novel"), compared)
    assert [span for span, _ in tests.spans][:2] == ["base acc", "base ECE"]
    first = [line.cells[2].text for line in tests.lines]  # base ECE
    values = {row: compared.estimates[row, Number("base", "ece")].value for row in rows}
    top = min(values, key=values.get)
    assert first[rows.index(top)] == "best"
    assert not any(text.startswith("−") for text in first)  # nobody is below the lowest
    assert difference_table("Tests", rows, ("elsewhere",), compared) is None
