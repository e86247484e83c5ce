"""The package itself: quick to import, and its public verbs are where it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import holmes
from holmes.cli import main

ROOT = Path(__file__).parents[2]


def test_importing_holmes_does_not_import_torch() -> None:
    code = "import sys, holmes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_verbs_exist() -> None:
    for name in holmes.__all__:
        assert callable(getattr(holmes, name)), name
    assert holmes.preset("tvr").name == "tvr"


def test_another_system_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "os", SimpleNamespace(name="nt"))
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "holmes: Holmes needs Linux or another POSIX system; on Windows, run it inside WSL.\n"
    )


def test_the_changelog_knows_this_version() -> None:
    released = re.findall(r"^## (\d+\.\d+\.\d+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == holmes.__version__


def test_the_citation_can_be_read() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["references"][0]["title"].startswith("Revisiting Uncertainty")
    assert "version" not in cited, "the version is written in holmes/__init__.py alone"
