"""Tables for papers: LaTeX with booktabs."""

from __future__ import annotations

from collections.abc import Sequence

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "±": r"$\pm$",
    "–": "--",
    "…": r"\ldots{}",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "†": r"$^\dagger$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "Δ": r"$\Delta$",
    "τ": r"$\tau$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "δ": r"$\delta$",
    "ξ": r"$\xi$",
    "σ": r"$\sigma$",
}


def latex_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]
) -> str:
    """Needs \\usepackage{booktabs}. A row of a single cell is the title of a block."""
    width = len(columns)
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{escaped(title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
        r"\toprule",
        row_of(columns),
        r"\midrule",
    ]
    for number, row in enumerate(rows):
        if len(row) == 1:
            lines += [r"\midrule"] if number else []
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{escaped(row[0])}}}}} \\")
        else:
            lines.append(row_of(row))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\footnotesize {escaped(note)}" for note in notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def row_of(cells: Sequence[str]) -> str:
    # A bracket after a line break would be read as its optional argument: braces keep it text.
    return (
        " & ".join(f"{{{escaped(cell)}}}" if cell.startswith("[") else escaped(cell) for cell in cells)
        + r" \\"
    )


def escaped(text: str) -> str:
    indent = r"\quad " if text.startswith("  ") else ""
    return indent + "".join(SPECIAL.get(char, char) for char in text.strip())
