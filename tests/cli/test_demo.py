"""`holmes demo` from the first film to the report, on a smaller world and for fewer epochs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("av")
from forked_children import forked_children  # noqa: F401 - a fixture
from holmes.cli import demo, main
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint
from holmes.errors import HolmesError
from holmes.index.storage.store import IndexStore
from undrawn import undrawn  # noqa: F401 - a fixture


@pytest.mark.usefixtures("forked_children", "undrawn")
def test_the_whole_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "TRAIN_VIDEOS", 8)
    monkeypatch.setattr(demo, "VAL_VIDEOS", 4)
    monkeypatch.setattr(demo, "TEST_VIDEOS", 10)
    monkeypatch.setattr(
        demo, "SETTINGS", demo.SETTINGS | {"width": 16, "epochs": 2, "warm_up_epochs": 1, "held_out": 0.3}
    )
    folder = tmp_path / "demo"
    monkeypatch.setattr(sys, "argv", ["holmes", "demo", str(folder)])
    with pytest.raises(SystemExit) as ended:
        main.main()
    said = capfd.readouterr()
    assert not ended.value.code, said.err
    for number in range(1, 10):
        assert f"[{number}/9]" in said.err
    assert "22 videos" in said.err and "base objective" in said.out
    for kind in ("precise", "polysemous", "under-determined"):
        assert f"{kind} sentence, written for test" in said.err
    assert said.out.count("  score ") == 11, "three hits for each of three sentences, two for speech"
    assert "said at 0:0" in said.out and "silver key" in said.out  # which no picture shows
    assert (folder / "run" / "report.html").stat().st_size > 10_000
    store, index = Store.open(folder / "store"), IndexStore.open(folder / "index")
    assert len(index) == 22 and store.info.encoders.rate == demo.FRAMES_PER_SECOND
    made = load_checkpoint(folder / "run" / "best").encoders
    assert (made.visual.name, made.text.name) == ("lite2", "minilm")


def test_a_file_is_not_where_to_put_everything(tmp_path: Path) -> None:
    file = tmp_path / "film.mp4"
    file.touch()
    with pytest.raises(HolmesError, match="is a file; name a folder"):
        demo.demo(file)
    assert list(tmp_path.iterdir()) == [file]
