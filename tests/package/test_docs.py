"""Documents that cannot rot: every path in them exists, every equation is in them."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from holmes.config.presets import PRESETS
from holmes.config.schema import locate, with_changes

ROOT = Path(__file__).parents[2]
EQUATIONS = (ROOT / "docs" / "equations.md").read_text()


def rows(text: str) -> list[list[str]]:
    """The cells of every table line."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]


def paths(text: str) -> set[str]:
    return set(re.findall(r"`(holmes(?:\.\w+)+)`", text))


def resolve(path: str) -> object:
    """The object a dotted path names: the longest module in it, then attributes."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(path)


@pytest.mark.parametrize("path", sorted(paths(EQUATIONS)))
def test_every_path_in_the_equations_exists(path):
    assert resolve(path) is not None


def test_a_wrong_path_would_be_noticed():
    for path in ("holmes.similarity.nothing", "holmes.nowhere.thing"):
        with pytest.raises((AttributeError, ModuleNotFoundError)):
            resolve(path)


def test_every_equation_has_a_function():
    numbered = {cells[1]: cells[-1] for cells in rows(EQUATIONS) if len(cells) == 4 and cells[1].isdigit()}
    assert {int(number) for number in numbered} == set(range(1, 22))
    assert all(paths(function) for function in numbered.values())


def test_every_appendix_section_on_the_method_is_there():
    sections = {cells[1] for cells in rows(EQUATIONS) if re.fullmatch(r"B\.\d", cells[1])}
    assert sections == {f"B.{n}" for n in range(1, 7)}


def test_every_file_that_names_the_paper_is_named():
    """A file that says of itself which equation or section it computes is in the map."""
    source = ROOT / "src"
    files = {
        ".".join(file.relative_to(source).with_suffix("").parts)
        for file in source.glob("holmes/**/*.py")
        if re.search(
            r"\(.*\b(?:eq\.|appendix|section) [B\d]", ast.get_docstring(ast.parse(file.read_text())) or ""
        )
    }
    assert len(files) > 12
    named = {path for found in paths(EQUATIONS) for path in (found, found.rpartition(".")[0])}
    named |= {path.rpartition(".")[0] for path in named}
    assert files - named == set()


def test_every_setting_named_beside_a_difference_exists():
    differences = EQUATIONS.partition("## Where the text and the released")[2]
    settings = set(re.findall(r"`((?:model|evidence|alignment|loss|score|training)\.\w+)`", differences))
    assert len(settings) > 10
    for setting in settings:
        locate(setting)
    assert {"tvr_dual"} <= set(PRESETS)
    for setting, value in (("evidence.form", "bounded"), ("evidence.refine", "candidate_median")):
        assert f'`{setting}`; the text\'s is `"{value}"`' in differences
        with_changes(PRESETS["tvr"](), {setting: value})


def test_every_folder_of_the_source_is_described():
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Folders")[2].partition("\n## ")[0]
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    folders = {path.parent.name for path in (ROOT / "src" / "holmes").glob("*/__init__.py")}
    assert named == folders


def test_every_file_of_the_three_flows_exists():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`([\w/]+\.py)`", text)
    assert len(named) > 40
    missing = [
        name for name in named if not ((ROOT / "src" / "holmes" / name).exists() or (ROOT / name).exists())
    ]
    assert missing == []
