"""The report as one HTML page that needs nothing else: no network, no scripts, figures as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from promptcal.report.tables import Cell, Line, Table


@dataclass(frozen=True)
class Picture:
    """An SVG element with its caption."""

    caption: str
    svg: str


@dataclass(frozen=True)
class Section:
    """A part of the page: sentences, tables, pictures side by side, large pictures, terms, and what is folded away."""

    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    panels: tuple[Picture, ...] = ()
    panels_note: str = ""
    pictures: tuple[Picture, ...] = ()
    folded: tuple[Table, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()


def to_html(title: str, lead: str, sections: Sequence[Section], foot: str) -> str:
    """The whole page."""
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    links = "".join(f'<a href="#s{i}">{escape(s.title)}</a>' for i, s in enumerate(sections))
    body = "\n".join(_section(section, f"s{i}") for i, section in enumerate(sections))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{css}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
<nav aria-label="Sections">{links}</nav>
{body}
<footer>{escape(foot)}</footer>
</main>
</body>
</html>
"""


def _section(section: Section, name: str) -> str:
    parts = [f'<section id="{name}">', f"<h2>{escape(section.title)}</h2>"]
    if section.sentences:
        parts.append(f'<ul class="reading">{"".join(f"<li>{escape(s)}</li>" for s in section.sentences)}</ul>')
    parts += [_table(table) for table in section.tables]
    if section.panels:
        parts.append(f'<div class="panels">{"".join(_figure(p, above=True) for p in section.panels)}</div>')
    if section.panels_note:
        parts.append(f'<p class="note">{escape(section.panels_note)}</p>')
    if section.pictures:
        parts.append(f'<div class="panels wide">{"".join(_figure(picture) for picture in section.pictures)}</div>')
    parts += [f"<details><summary>{escape(table.title)}</summary>{_table(table)}</details>" for table in section.folded]
    if section.terms:
        terms = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in section.terms)
        parts.append(f"<dl>{terms}</dl>")
    return "\n".join([*parts, "</section>"])


def _figure(picture: Picture, *, above: bool = False) -> str:
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    svg = picture.svg.replace("<svg", f'<svg role="img" aria-label="{escape(picture.caption)}"', 1)
    return f"<figure>{caption}{svg}</figure>" if above else f"<figure>{svg}{caption}</figure>"


def _table(table: Table) -> str:
    spans = "".join(
        f'<th{_span(count)} scope="colgroup"{" class=span" if span else ""}>{escape(span)}</th>'
        for span, count in table.spans
    )
    upper = f"<tr><td></td>{spans}</tr>" if any(span for span, _ in table.spans) else ""
    heads = "".join(
        f'<th scope="col"{_class("words" if column.words else "")}>{escape(column.heading)}</th>'
        for column in table.columns
    )
    body = "".join(_line(line, table) for line in table.lines)
    marked = any(cell.best for line in table.lines for cell in line.cells)
    caption = table.caption + ("; bold: better than every other row (see Best values)" if marked else "")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}"><table>'
        f"<caption><span>{escape(caption)}</span></caption>"
        f"<thead>{upper}<tr><td></td>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _span(count: int) -> str:
    return f" colspan={count}" if count > 1 else ""


def _line(line: Line, table: Table) -> str:
    kind = "below" if line.depth else "method"
    if not line.cells:
        return f'<tr class="{kind}"><th scope="rowgroup"{_span(len(table.columns) + 1)}>{escape(line.label)}</th></tr>'
    cells = "".join(_cell(cell, words=column.words) for cell, column in zip(line.cells, table.columns, strict=True))
    return f'<tr class="{kind}"><th scope="row">{escape(line.label)}</th>{cells}</tr>'


def _cell(cell: Cell, *, words: bool) -> str:
    about = _class(" ".join([*(["best"] if cell.best else []), *(["words"] if words else [])]))
    about += f' title="{escape(cell.remark)}"' if cell.remark else ""
    spread = f" <small>{escape(cell.spread)}</small>" if cell.spread else ""
    return f"<td{about}>{escape(cell.text)}{spread}</td>"


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""
