"""Installation is spelled one way: `holmes` on the public index of packages is somebody else's project."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from holmes.errors import missing_packages

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDS = [Requirement(line) for lines in (PROJECT["dependencies"], *EXTRAS.values()) for line in lines]
# A stranger's package: `holmes[video]`, `pip install holmes`, `pip install -U "holmes==1"`.
STRANGER = re.compile(r"(?<![\w.-])holmes\[[a-z]|pip3? install (?:-\S+ +)*['\"]?holmes\b(?!-video|_video)")
INSTALL = re.compile(r"pip install (?:--?\S+(?: constraints\.txt)? +)*('[^']+'|[^`#\n]+)")
ELSEWHERE = {"s3fs", "pip"}  # not ours to require


def texts() -> list[Path]:
    """Everything that a person reads, and every message of the program."""
    folders = ("src/holmes", "docs", "deploy", "tools", "benchmarks", "studies")
    kinds = {".py", ".md", ".ipynb", ".html", ".js", ".yaml", ".yml", ".toml"}
    found = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds or path.name == "Containerfile"
    ]
    found += [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    return [path for path in found if "node_modules" not in path.parts]


def test_nothing_installs_a_strangers_package() -> None:
    assert len(texts()) > 300
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in texts()
        for match in STRANGER.finditer(path.read_text(encoding="utf-8", errors="replace"))
    }
    assert found == set()


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("pip install 'holmes[video]'", True),
        ("pip install holmes", True),
        ('pip install -U "holmes==0.1"', True),
        ("needs holmes[serve]", True),
        ("pip install '.[video]'", False),
        ("holmes-video[video]", False),
        ("holmes._NAMES[name]", False),
        ("pip install holmes-video", False),
    ],
)
def test_the_search_finds_what_it_should(text: str, refused: bool) -> None:
    assert bool(STRANGER.search(text)) is refused


def test_pages_install_from_a_clone() -> None:
    known = {need.name for need in NEEDS} | ELSEWHERE
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    seen = 0
    for page in pages:
        for match in INSTALL.finditer(page.read_text()):
            seen += 1
            what = match[1].strip().strip("'")
            if what.startswith(".["):
                assert set(what[2:-1].split(",")) <= EXTRAS.keys(), f"{page.name}: {match[0]}"
            else:
                assert set(what.split()) <= known, f"{page.name}: {match[0]}"
    assert seen >= 5


def test_messages_name_packages_that_we_know() -> None:
    """With the version that is required, where only one will do."""
    named: list[str] = []
    for path in (ROOT / "src").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "missing_packages":
                named += [part.value for part in call.args[1:] if isinstance(part, ast.Constant)]
    assert len(named) >= 9
    for text in named:
        need = Requirement(text)
        (ours,) = {str(known.specifier) for known in NEEDS if known.name == need.name}
        assert not need.specifier or str(need.specifier) == ours, text


def test_a_missing_part_names_its_packages() -> None:
    assert str(missing_packages("the page", "fastapi", "uvicorn")) == (
        "the page needs packages that are not installed: pip install fastapi uvicorn"
    )
