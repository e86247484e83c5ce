"""The package as others get it: a wheel, installed where no source is, that answers a search."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import holmes
from media_files import gray_video

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints, away from the source tree and from its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by `pip wheel` from a copy of the sources, so that nothing built earlier gets into it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an empty environment with the wheel; what it depends on is borrowed from this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    packages = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    # A line of a .pth file adds a folder without following the .pth files in it: no editable install.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import holmes; print(holmes.__file__)", cwd=folder)
    assert Path(where.strip()).is_relative_to(folder), "it is the wheel that is tested"
    return folder / "bin"


def test_the_wheel_knows_its_version(wheel: Path, installed: Path) -> None:
    assert wheel.name.startswith(f"holmes_video-{holmes.__version__}-")
    assert run(installed / "holmes", "--version", cwd=installed) == f"holmes {holmes.__version__}\n"


def test_the_page_is_in_the_wheel(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    served = ROOT / "src" / "holmes" / "serve"
    page = [*served.glob("static/*"), *served.glob("styles/*")]
    assert len(page) > 30 and {str(file.relative_to(ROOT / "src")) for file in page} <= packed


def test_help_comes_from_the_wheel(installed: Path) -> None:
    told = run(installed / "holmes", "--help", cwd=installed)
    assert all(command in told for command in ("search", "index", "train", "evaluate", "serve"))


def test_the_wheel_searches_videos(installed: Path, tmp_path: Path) -> None:
    """With the model that ships in it, from files to an answer."""
    (tmp_path / "films").mkdir()
    for name, levels in (("dark.mp4", (10, 20, 30)), ("bright.mp4", (240, 230, 250))):
        gray_video(tmp_path / "films" / name, levels, [0.0, 1.0, 2.0])
    run(installed / "holmes", "index", "build", "index", "films", "--workers", "1", cwd=tmp_path)
    answer = run(installed / "holmes", "search", "index", "a white screen", cwd=tmp_path)
    assert "dark.mp4" in answer and "bright.mp4" in answer


def test_the_version_is_written_once() -> None:
    assert PROJECT["dynamic"] == ["version"] and "version" not in PROJECT


def test_the_pinned_torch_is_in_the_range() -> None:
    """And is the one that is tested here."""
    import torch

    (torch_range,) = (
        need.specifier for line in PROJECT["dependencies"] if (need := Requirement(line)).name == "torch"
    )
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    (exact,) = next(pin.specifier for pin in pins if pin.name == "torch")
    assert all(str(pin.specifier).startswith("==") for pin in pins)
    assert exact.version in torch_range
    assert torch.__version__.partition("+")[0] in torch_range
    assert "2.12" in SpecifierSet(str(torch_range)) and "2.14.0" not in torch_range
