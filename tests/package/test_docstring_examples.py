"""The examples in public docstrings run as they stand, in a folder that holds what they name."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holmes
from browser import serving
from forked_children import forked_children  # noqa: F401 - a fixture
from holmes import extend
from holmes.index.answer.base import SearchIndex
from holmes.serve.settings import ServeSettings
from own_names import names_restored
from serve_fakes import FILMS, PLENTY, film
from tiny_runs import QUIET, tiny_settings, tiny_world

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api.md"
SERVER = "http://127.0.0.1:8000"
SHOWN = {  # every public function, and every method of an index that a program calls
    **{name: getattr(holmes, name) for name in holmes.__all__ if inspect.isfunction(getattr(holmes, name))},
    **{
        f"SearchIndex.{name}": method
        for name, method in vars(SearchIndex).items()
        if inspect.isfunction(method) and not name.startswith("_") and name not in ("duration", "close")
    },
    "HolmesConfig.with_changes": holmes.HolmesConfig.with_changes,
    **{
        f"extend.{name}": getattr(extend, name)
        for name in ("loss", "evidence_form", "alignment", "encoder", "visual_encoder")
    },
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """STORE, RUN, BASE, OURS, INDEX, film.mp4, and the folders videos/ and more/."""
    folder = tmp_path_factory.mktemp("examples")
    store = tiny_world(folder / "STORE")
    for seed, name in enumerate(("RUN", "BASE", "OURS")):
        holmes.train(store, tiny_settings(epochs=1, warm_up_epochs=1), folder / name, seed, options=QUIET)
    scenes = list(FILMS.values())
    for name, some in zip(("videos/coast", "videos/pier", "videos/street", "more/boat"), scenes, strict=True):
        film(folder / f"{name}.mp4", some)
    film(folder / "film.mp4", scenes[0][::-1])
    holmes.build_index(folder / "INDEX", folder / "videos", device="cpu", workers=1)
    return folder


@pytest.fixture
def here(world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The world as the working folder; what an example changes or writes is undone."""
    monkeypatch.chdir(world)
    shutil.copytree("INDEX", "kept")
    before = set(os.listdir())
    yield world
    for name in set(os.listdir()) - before:
        shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
    shutil.rmtree("INDEX")
    os.rename("kept", "INDEX")


@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("name", sorted(SHOWN))
def test_the_example_runs(name: str, here: Path) -> None:
    index = holmes.open_index("INDEX", device="cpu")
    scope = {"holmes": holmes, "index": index}
    (example,) = doctest.DocTestFinder(recurse=False).find(SHOWN[name], name, globs=scope)
    assert example.examples, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    if not any(SERVER in each.source for each in example.examples):
        with names_restored():
            runner.run(example)
    else:
        with serving(index, ServeSettings(limits=PLENTY)) as address:
            for each in example.examples:
                each.source = each.source.replace(SERVER, address)
            runner.run(example)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.usefixtures("forked_children")
def test_the_first_block_of_the_page_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"a dog runs number {n},{('coast', 'pier', 'street')[n % 3]}.mp4" for n in range(24)]
    (here / "captions.csv").write_text("\n".join(["sentence,video", *rows]))
    (block, *_) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    scope: dict[str, Any] = {}
    exec(compile(block, "api.md", "exec"), scope)
    (here / "captions.csv").unlink()
    assert isinstance(scope["diagnosis"], holmes.Diagnosis) and isinstance(scope["same"], holmes.Answer)
    assert scope["vectors"].shape == (1, 256) and scope["moments"][0].end > 0 and scope["config"].epochs == 2
    printed = capsys.readouterr().out
    assert "OURS (1 run): SumR" in printed and "p = " in printed


def test_the_page_is_as_the_docstrings_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import api_reference

    assert PAGE.read_text() == api_reference.page(), "run 'python tools/api_reference.py'"
    shown = {name for names in api_reference.SECTIONS.values() for name in names}
    assert {name for name in shown if "." not in name} == set(holmes.__all__)


def test_an_example_that_is_wrong_is_noticed() -> None:
    text, scope = ">>> holmes.preset('small').epochs\n31\n", {"holmes": holmes}
    wrong = doctest.DocTestParser().get_doctest(text, scope, "wrong", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(wrong, out=lambda text: None).failed == 1
