"""Tables compiled with a real TeX, where one is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NO_TEX = (
    "no pdflatex (apt-get install texlive-latex-base texlive-latex-recommended): only structure is checked"
)


def compile_tables(folder: Path, *tables: str) -> None:
    """All tables in one document: no error, and none is wider than a line. Call it at the end of a test."""
    if shutil.which("pdflatex") is None:
        pytest.skip(NO_TEX)
    head = "\\documentclass{article}\n\\usepackage{booktabs, array}\n\\begin{document}\n"
    # A page takes few floats: without clearing them TeX runs out of room for more.
    body = "\\clearpage\n".join(tables)
    (folder / "tables.tex").write_text(f"{head}{body}\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout, "a table is wider than the page"
    assert (folder / "tables.pdf").read_bytes().startswith(b"%PDF")
