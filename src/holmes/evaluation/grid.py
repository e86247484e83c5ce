"""A table: drawn on a terminal, or written as Markdown, LaTeX (booktabs), CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from rich.table import Table
from rich.text import Text

from holmes.base.printing import printable
from holmes.evaluation.latex import latex_table


@dataclass
class Grid:
    """A table before it is drawn. A row of a single cell is the title of the rows under it."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def printable(self) -> Grid:
        """Safe to print: names of runs and stores come from files and must not act on a terminal."""
        rows = [[printable(cell) for cell in row] for row in self.rows]
        columns, notes = ([printable(text) for text in texts] for texts in (self.columns, self.notes))
        return Grid(printable(self.title), columns, rows, notes)

    def drawn(self) -> Table:
        grid = self.printable()
        title = Text(grid.title, style="table.title")
        table = Table(title=title, title_justify="left", caption_justify="left")
        if grid.notes:
            table.caption = Text("\n".join(grid.notes), style="table.caption")
        for number, column in enumerate(grid.columns):
            side: Literal["left", "right"] = "left" if number == 0 else "right"
            table.add_column(Text(column), justify=side, no_wrap=number > 0)
        for row in grid.rows:
            if len(row) == 1:
                table.add_section()
            table.add_row(*map(Text, row))
        return table

    def written(self, form: str) -> str:
        """As `md`, `latex`, `csv` or `json`."""
        grid = self.printable()
        return {"md": grid.markdown, "latex": grid.latex, "csv": grid.csv, "json": grid.json}[form]()

    def markdown(self) -> str:
        width = len(self.columns)
        lines = [self.columns, ["---", *["---:"] * (width - 1)]]
        lines += [row if len(row) > 1 else [f"*{row[0]}*", *[""] * (width - 1)] for row in self.rows]
        cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
        table = "\n".join(f"| {' | '.join(line)} |" for line in cells)
        return "\n\n".join([f"**{self.title}**", table, *self.notes]) + "\n"

    def latex(self) -> str:
        """A floating table for \\usepackage{booktabs, array}; its notes follow."""
        return latex_table(self.title, self.columns, self.rows, self.notes)

    def csv(self) -> str:
        """Plain rows; the title of a block is their first column, notes are comments in front."""
        text = io.StringIO()
        text.write("".join(f"# {line}\n" for line in (self.title, *self.notes)))
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["block", self.columns[0] or "row", *self.columns[1:]])
        block = ""
        for row in self.rows:
            if len(row) == 1:
                block = row[0]
            else:
                writer.writerow([block, row[0].strip(), *row[1:]])
        return text.getvalue()

    def json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"
