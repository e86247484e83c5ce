"""Your own loss, encoder, alignment and evidence: the code of the page as it stands, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holmes import extend
from holmes.base.files import read_json
from holmes.cli import main
from holmes.config.presets import preset
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint
from holmes.errors import HolmesError
from holmes.training.setup import build_objective
from own_names import names_restored
from tiny_runs import logged, set_options, tiny_world

TEXT = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()


@pytest.fixture
def clean() -> Iterator[None]:
    with names_restored():
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_world(tmp_path_factory.mktemp("extend") / "world")


def test_every_block_of_the_document_runs(clean, store, tmp_path, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 6
    scope = {"STORE": store.path, "OUT": tmp_path}
    for block in blocks:
        exec(compile(block, "extending.md", "exec"), scope)
    runs = {path.name: read_json(path / "run.json")["config"] for path in tmp_path.iterdir()}
    assert runs["term"]["loss"]["extra"] == ["branches_agree:0.5"]
    assert runs["gentle"]["evidence"]["form"] == "gentle"
    assert runs["sharp"]["alignment"]["kind"] == "sharpened"
    entry = logged(tmp_path / "term")[0]["loss"]
    others = sum(
        weight * entry[part]
        for part, weight in {
            "triplet_frame": 1, "triplet_clip": 1, "contrastive_frame": 0.04, "contrastive_clip": 0.05,
            "diversity": 8e-5, "inter_frame": 0.2, "inter_clip": 0.2, "inter_fused": 0.2,
        }.items()
    )  # fmt: skip
    assert entry["total"] == pytest.approx(others + 0.5 * entry["branches_agree"], rel=1e-5)
    printed = capsys.readouterr().out
    assert "inter_fused" in printed, "on_epoch was called"
    assert "term (1 run): SumR" in printed and "p = " in printed
    loaded = load_checkpoint(tmp_path / "mean" / "best").model
    assert type(loaded.clip_branch).__name__ == "MeanBranch"
    assert build_objective(scope["gentler"]).evidence is scope["gentle_evidence"]


def test_a_file_of_parts_serves_the_command_line_and_its_workers(clean, store, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from holmes import extend\n"
        "extend.loss('small_queries', lambda inputs: inputs.query.query_QD.square().mean())\n"
    )
    words = [
        "--use",
        file,
        "train",
        store.path,
        "--preset",
        "tvr",
        "--out",
        tmp_path / "runs",
        "--device",
        "cpu",
    ]
    words += ["--seeds", "0,1", "--jobs", 2, "--set", "loss.extra=small_queries:0.1"]
    words += set_options(epochs=1, warm_up_epochs=1)
    main.app([str(word) for word in words], standalone_mode=False)
    for seed in (0, 1):
        assert "small_queries" in logged(tmp_path / "runs" / f"honest-seed{seed}")[0]["loss"]


def test_mistakes_are_refused_in_one_line(clean, tmp_path):
    with pytest.raises(HolmesError, match=r"evidence\.form already has 'sharp'"):
        extend.evidence_form("sharp", lambda s, t: s)
    with pytest.raises(HolmesError, match="'my form' is not a valid name"):
        extend.evidence_form("my form", lambda s, t: s)
    with pytest.raises(HolmesError, match=r"unknown value of loss.extra 'mine'. Known: denoising"):
        preset("small").with_changes(extra="mine:1")
    extend.loss("mine", lambda inputs: inputs.query.query_QD.sum())
    extend.loss("mine", lambda inputs: inputs.query.query_QD.mean())  # defined again, as in a notebook
    with pytest.raises(HolmesError, match="unknown weight of mine 'heavy'"):
        preset("small").with_changes(extra="mine:heavy")
    with pytest.raises(HolmesError, match="does not exist; --use takes a Python file"):
        extend.load(tmp_path / "none.py")
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(HolmesError, match=r"broken.py failed: ZeroDivisionError: division by zero") as told:
        extend.load(tmp_path / "broken.py")
    assert "\n" not in str(told.value)


def test_with_changes_is_a_method_and_leaves_the_original():
    config = preset("tvr")
    changed = config.with_changes(epochs=3, loss__intra=0, alignment__kind="plain")
    assert (changed.training.epochs, changed.loss.intra, changed.alignment.kind) == (3, 0.0, "plain")
    assert (config.training.epochs, config.loss.intra) == (100, 0.8)
    with pytest.raises(HolmesError, match="unknown setting 'epoch'; did you mean 'epochs'"):
        config.with_changes(epoch=3)
