"""The page: titled sections in one file that needs nothing else, light or dark as the device prefers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Protocol

from matplotlib.figure import Figure

from holmes.base.files import atomic_file
from holmes.report.figures.style import DARK, LIGHT, Theme, pdf, svg

STYLE = """
:root { color-scheme: light dark; --page: #f4f5f7; --paper: #ffffff; --ink: #1c1e21; --muted: #5c6168;
  --line: #dfe2e6; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --page: #121316; --paper: #1b1d21; --ink: #e9ebee;
  --muted: #9aa1aa; --line: #363a41; --accent: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
p { margin: .5rem 0; max-width: 44rem; }
.lead, figcaption, .notes { color: var(--muted); }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: 1rem 0; font-size: .92rem; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
figure { margin: 1rem 0; background: var(--paper); border: 1px solid var(--line); border-radius: .5rem;
  padding: .9rem; }
figure > div, .table { overflow-x: auto; }
figure img { display: block; width: 100%; min-width: 36rem; height: auto; }
figcaption { font-size: .9rem; margin-top: .6rem; }
figcaption b { color: var(--ink); }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; margin: .6rem 0; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .22rem .5rem; text-align: right; border-top: 1px solid var(--line); vertical-align: top; }
td:not(:first-child) { white-space: nowrap; }
th { font-weight: 600; border-top: 0; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tr.group td { color: var(--muted); padding-top: .7rem; }
tr.ours td { font-weight: 600; color: var(--accent); }
.notes { font-size: .88rem; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--accent); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: .6rem 0; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--muted); font-size: .85rem; }
"""


@dataclass(frozen=True)
class Section:
    title: str
    html: str


@dataclass(frozen=True)
class Picture:
    """A figure that can be drawn in any theme, with a caption and a text alternative."""

    name: str
    title: str
    caption: str
    draw: Callable[[Theme], Figure]

    def html(self) -> str:
        return (
            f'<figure id="{escape(self.name)}"><div><picture>'
            f'<source media="(prefers-color-scheme: dark)" srcset="{data_uri(self.draw(DARK))}">'
            f'<img src="{data_uri(self.draw(LIGHT))}" alt="{escape(self.title)}"></picture></div>'
            f"<figcaption><b>{escape(self.title)}.</b> {escape(self.caption)}</figcaption></figure>"
        )

    def save(self, folder: Path) -> None:
        """As SVG and PDF on light paper, for print."""
        figure = self.draw(LIGHT)
        for suffix, content in (("svg", svg(figure)), ("pdf", pdf(figure))):
            with atomic_file(folder / f"{self.name}.{suffix}") as file:
                file.write(content)


class Tabular(Protocol):
    """A table of text. A row of a single cell is the title of the rows under it."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]]
    notes: list[str]


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole document."""
    links = "".join(f'<a href="#s{n}">{escape(section.title)}</a>' for n, section in enumerate(sections))
    body = "".join(
        f'<section id="s{n}"><h2>{escape(section.title)}</h2>{section.html}</section>'
        for n, section in enumerate(sections)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p><nav>{links}</nav>{body}'
        "<footer>Written by Holmes.</footer></main></body></html>\n"
    )


def write_page(path: Path, title: str, lead: str, sections: Sequence[Section]) -> None:
    with atomic_file(path) as file:
        file.write(page(title, lead, sections).encode(errors="backslashreplace"))


def data_uri(figure: Figure) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg(figure)).decode()}"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def facts(values: dict[str, str]) -> str:
    """Names and what they are."""
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in values.items()) + "</dl>"


def table(grid: Tabular, ours: Sequence[str] = ()) -> str:
    """A table; rows whose name is in `ours` stand out."""
    head = "".join(f"<th>{escape(column)}</th>" for column in grid.columns)
    rows = []
    for row in grid.rows:
        if len(row) == 1:
            rows.append(f'<tr class="group"><td colspan="{len(grid.columns)}">{escape(row[0])}</td></tr>')
        else:
            mark = ' class="ours"' if row[0] in ours else ""
            rows.append(f"<tr{mark}>" + "".join(f"<td>{stacked(cell)}</td>" for cell in row) + "</tr>")
    notes = "".join(f'<p class="notes">{escape(note)}</p>' for note in grid.notes)
    return (
        f'<div class="table"><table><caption>{escape(grid.title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{notes}"
    )


def stacked(cell: str) -> str:
    """A value with its interval under it, so that many columns fit the page."""
    return escape(cell).replace(" [", "<br>[")


def folded(summary: str, html: str) -> str:
    """A collapsed section with further details."""
    return f"<details><summary>{escape(summary)}</summary>{html}</details>"
