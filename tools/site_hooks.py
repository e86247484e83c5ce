"""What the site needs beyond Markdown: pages made from other files, and equations as MathML.

MkDocs calls these functions while it builds. Equations are written as $…$ and become MathML, which browsers
draw themselves: no script, no font, nothing to fetch.
"""

from __future__ import annotations

import ast
import html
import json
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parent.parent
NOTEBOOK = "first_steps.ipynb"
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
ALPHABETS = {"mathcal": {"L": "ℒ", "S": "𝒮"}, "mathbb": {"E": "𝔼"}}
FETCHED, KEPT = "https://unpkg.com/iframe-worker/shim", "vendor/iframe-worker.js"
TO_SOURCE = re.compile(r"\[([^\]]+)\]\((\.\./(?!docs/)[^)]+)\)")  # a link out of docs/


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files elsewhere in the project."""
    made = {
        "first_steps.md": notebook_page(ROOT / "docs" / NOTEBOOK),
        "changelog.md": from_the_root((ROOT / "CHANGELOG.md").read_text()),
        "contributing.md": from_the_root((ROOT / "CONTRIBUTING.md").read_text()),
        "modules.md": modules_page(ROOT / "src"),
    }
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep links to pages of the site; links that lead out of it become plain text."""
    markdown = markdown.replace(f"]({NOTEBOOK})", "](first_steps.md)")
    return TO_SOURCE.sub(lambda found: f"{found[1]} (`{found[2].lstrip('./')}`)", markdown)


def on_page_content(html_text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return EQUATION.sub(lambda found: mathml(html.unescape(found[3]), found[2] == "["), html_text)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Add to the site what the theme would fetch when a page is opened from a disk."""
    return output.replace(FETCHED, get_relative_url(KEPT, page.url))


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    return output.replace(FETCHED, KEPT)


def mathml(latex: str, display: bool) -> str:
    """Letters of other alphabets become characters of their own: browsers know no attribute for them."""
    for command, letters in ALPHABETS.items():
        for letter, character in letters.items():
            latex = re.sub(rf"\\{command} ?{letter}(?![A-Za-z])", character, latex)
    return str(convert(latex.strip(), display="block" if display else "inline"))


def from_the_root(text: str) -> str:
    """A page of the project's root, seen from docs/."""
    return re.sub(r"\]\((?:docs/)?(\w+\.md)", lambda found: f"]({found[1].lower()}", text)


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and what the code printed and drew."""
    parts = [f"*This page is a notebook, [{path.name}]({path.name}): run it, and change it.*"]
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [shown for output in cell["outputs"] if (shown := output_of(output))]
    heading, *rest = parts[1].split("\n", 1)
    return "\n\n".join([heading, parts[0], *rest, *parts[2:]])


def output_of(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="what the code above draws" src="data:image/png;base64,{picture}">'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f'```text title="prints"\n{text.rstrip()}\n```' if text.strip() else ""


def modules_page(source: Path) -> str:
    """Every module with the first paragraph of its docstring, folder by folder."""
    lines = [
        "# Modules",
        "",
        "What each file of the package holds, in its own words. A folder is a stage of the flow.",
    ]
    files = sorted(source.glob("holmes/**/*.py"), key=lambda file: (file.parent, file.name))
    folder = None
    for file in files:
        words = (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0]
        if not words or file.name == "__main__.py":
            continue
        if file.parent != folder:
            folder = file.parent
            lines += [
                "",
                f"## {'.'.join(folder.relative_to(source).parts)}",
                "",
                "| file | holds |",
                "| --- | --- |",
            ]
        told = " ".join(words.split()).replace("|", "\\|")
        lines.append(f"| `{file.name}` | {told} |")
    return "\n".join(lines)
