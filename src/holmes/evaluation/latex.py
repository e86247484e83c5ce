"""A table as LaTeX: in the largest font that fits a line, with every special character escaped."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# LaTeX, in points: a line of an article, the least width of a column that is broken, and about how wide its
# characters are. Fonts, how wide they are, and the gap between columns: the first that fits a line is taken.
LINE, FILLED, NARROWEST = 345, 338, 70  # widths are estimated: some points stay free
NARROW, WIDE = {*" .,:;'()[]|ijlft/"}, {*"mwMW±−‡†%≥≤"}
SIZES = (
    ("", 1.0, 6),
    (r"\small", 0.925, 6),
    (r"\small", 0.925, 3),
    (r"\footnotesize", 0.85, 3),
    (r"\scriptsize", 0.8, 3),
    (r"\scriptsize", 0.8, 2),
)
LONG = 32  # characters of a cell from which its column may be broken into lines
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
    "‡": r"$^\ddagger$",
    "−": r"$-$",
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
    "Σ": r"$\Sigma$",
    "≈": r"$\approx$",
    "′": r"$'$",
}
# Of the others every LaTeX has these, and letters with one of these accents.
KEPT, ACCENTS = (
    {*"ÆØŒæøœßŁłı‘’“”•"},
    {*"\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327"},
)


def latex_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]
) -> str:
    """Needs \\usepackage{booktabs, array}. A row of a single cell is the title of a block."""
    width, (size, gap, kinds) = len(columns), layout(columns, rows)
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{escaped(title)}}}",
        rf"\label{{tab:{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}}}",
        *([rf"{size}\setlength{{\tabcolsep}}{{{gap}pt}}"] if size else []),
        rf"\begin{{tabular}}{{{''.join(kinds)}}}",
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
    lines += [rf"\par\smallskip\raggedright\footnotesize {escaped(note)}" for note in notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def layout(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[str, int, list[str]]:
    """The largest font that fits a line, the gap between columns, and their kinds.

    Names stand to the left, figures to the right. Where texts are too long for a line, their columns share
    what the others leave; where figures are, the widest columns are broken to one width.
    """
    cells = [columns, *(row for row in rows if len(row) > 1)]
    lengths = [max(len(row[number]) for row in cells) for number in range(len(columns))]
    points = [max(points_of(row[number]) for row in cells) for number in range(len(columns))]
    plain = ["l", *["r"] * (len(columns) - 1)]
    for size, scale, gap in SIZES:
        widths = [scale * each + 2 * gap for each in points]
        if sum(widths) <= FILLED:
            return size, gap, plain
        long = [length > LONG for length in lengths]
        short = sum(width for width, wide in zip(widths, long, strict=True) if not wide)
        each = (FILLED - short) / max(sum(long), 1) - 2 * gap
        if any(long) and each >= NARROWEST:
            broken = rf">{{\raggedright\arraybackslash}}p{{{each / LINE:.2f}\linewidth}}"
            return size, gap, [broken if wide else kind for kind, wide in zip(plain, long, strict=True)]
    least = [
        scale * max(map(points_of, " ".join(texts).split())) + 2 * gap for texts in zip(*cells, strict=True)
    ]
    given = narrowed(widths, least)
    aligned = [r"\raggedright", *[r"\raggedleft"] * (len(columns) - 1)]
    return (
        size,
        gap,
        [
            rf">{{{side}\arraybackslash}}p{{{(narrow - 2 * gap) / LINE:.3f}\linewidth}}"
            if narrow < width
            else kind
            for kind, side, width, narrow in zip(plain, aligned, widths, given, strict=True)
        ],
    )


def narrowed(widths: Sequence[float], least: Sequence[float]) -> list[float]:
    """Widths that fit a line: the widest become equal, none less than its longest word."""
    given, room, left = [*widths], float(FILLED), {*range(len(widths))}
    while left:
        most = room / len(left)
        settled = {n for n in left if widths[n] <= most} or {n for n in left if least[n] >= most} or left
        for n in settled:
            given[n] = min(widths[n], max(most, least[n]))
            room -= given[n]
        left = left - settled
    return given


def points_of(text: str) -> float:
    """About how wide a text is, in ten-point Computer Modern."""
    indent = 8 if text.startswith("  ") else 0
    sizes = (
        3.2 if char in NARROW else 7.8 if char in WIDE or char.isupper() else 5.0
        for char in with_minus(text.strip())
    )
    return indent + sum(sizes)


def row_of(cells: Sequence[str]) -> str:
    # A bracket after a line break would be read as its optional argument: braces keep it text.
    return (
        " & ".join(f"{{{escaped(cell)}}}" if cell.startswith("[") else escaped(cell) for cell in cells)
        + r" \\"
    )


def escaped(text: str) -> str:
    indent = r"\quad " if text.startswith("  ") else ""
    text = text.strip().replace(">=", "≥").replace("<=", "≤")
    text = with_minus(text)
    return indent + "".join(map(as_tex, text))


def as_tex(char: str) -> str:
    """A character as every LaTeX can set it: itself, a command, the nearest in ASCII, or a question mark."""
    if char in SPECIAL:
        return SPECIAL[char]
    if (char.isascii() and char.isprintable()) or char in KEPT:
        return char
    parts = unicodedata.normalize("NFKD", char)
    if char < "\u0180" and len(parts) == 2 and parts[0].isascii() and parts[1] in ACCENTS:
        return char
    plain = "".join(SPECIAL.get(part, part) for part in parts if part.isascii() and part.isprintable())
    instead = {"C": " ", "Z": " ", "M": ""}  # control characters, spaces, accents that stand alone
    return plain or instead.get(unicodedata.category(char)[0], "?")


def with_minus(text: str) -> str:
    """Hyphens before numbers as minus signs."""
    return re.sub(r"(?<![\w.])-(?=[\d.])", "−", text)
