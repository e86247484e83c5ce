"""Every key of every file that we write, altered in every way: one line, exit code 2, and nothing else.

A file that carries a checksum is altered twice: as damage alters it, and as an attacker does, who makes the
checksum right again. Then only an impossible value is refused; a possible one, such as another name, is
accepted and must do no harm.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from altering import VALUES, altered, key_paths, run_holmes
from holmes.base.manifests import checksum
from holmes.base.printing import printable
from holmes.data.manifest import read_manifest as read_store
from holmes.encoders.checkpoint import read_manifest as read_checkpoint
from holmes.errors import HolmesError
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import build_index
from holmes.index.storage.manifest import read_manifest as read_index
from holmes.media.feature_folder import FeatureFolder
from holmes.training.resume import STATE_FORMAT, SavedState, read_result, read_run
from holmes.training.run import train
from index_fakes import FILMS, FakeJoint, every_name_loads, write_features
from killing import contents
from tiny_runs import QUIET, set_options, tiny_settings, tiny_world

EXAMPLES = int(os.environ.get("HOLMES_EXAMPLES", "6"))  # of each file and each way
LIMITS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
TRAINING = {"epochs": 1, "warm_up_epochs": 0, "batch_videos": 4}


@dataclass
class Ground:
    """A folder with everything we write, sound, and a copy to be damaged."""

    sound: Path
    place: Path

    def fresh(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.sound, self.place)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("lies")
    place = folder / "place"  # what is remembered of paths must be right after copying
    store = tiny_world(place / "store", videos=6)
    train(store, tiny_settings(**TRAINING), place / "run", options=QUIET)
    shutil.copytree(place / "run", place / "stopped")
    (place / "stopped/result.json").unlink()
    features = write_features(place / "features", FILMS)
    with pytest.MonkeyPatch.context() as patch:
        every_name_loads(patch, FakeJoint())
        patch.setenv("COLUMNS", "120")
        build_index(place / "index", [features.path], ZeroShot(FakeJoint()))
        shutil.copytree(place, folder / "sound")
        yield Ground(folder / "sound", place)


def again(place: Path, run: str) -> list[object]:
    out = ["--out", place / run, "--device", "cpu"]
    return ["train", place / "store", "--preset", "tvr", *out, *set_options(**TRAINING)]


COMMANDS: dict[str, list[Callable[[Path], list[object]]]] = {
    "store": [
        lambda place: ["data", "info", place / "store"],
        lambda place: ["data", "check", place / "store"],
        lambda place: ["data", "export", place / "store", place / "exported"],
    ],
    "checkpoint": [lambda place: ["evaluate", place / "run/best", "--store", place / "store"]],
    "run": [lambda place: ["evaluate", place / "run"]],
    "result": [lambda place: again(place, "run")],
    "state": [lambda place: again(place, "stopped")],
    "features": [lambda place: ["index", "build", place / "other", place / "features"]],
    "index": [
        lambda place: ["index", "info", place / "index"],
        lambda place: ["index", "check", place / "index"],
        lambda place: ["search", place / "index", "dog runs"],
    ],
}
FILES = {
    "store/store.json": "store",
    "run/best/checkpoint.json": "checkpoint",
    "run/run.json": "run",
    "run/result.json": "result",
    "stopped/state.json": "state",
    "features/features.json": "features",
    "index/manifest.json": "index",
}
WRITES = {"store": {"exported"}, "features": {"other"}, "result": {"run"}, "state": {"stopped"}}


def written_elsewhere(ground: Ground, before: dict[str, bytes], kind: str) -> set[str]:
    """Files that came, went or changed outside of what the command is there to write."""
    after = contents(ground.place)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return {name for name in changed if name.split("/")[0] not in WRITES.get(kind, set())}


def check(ground: Ground, kind: str, command: Callable[[Path], list[object]], refused: bool) -> None:
    before = contents(ground.place)
    outside = sorted(ground.place.parent.iterdir())
    run_holmes(*command(ground.place)).check(refused)
    assert written_elsewhere(ground, before, kind) == set()
    assert sorted(ground.place.parent.iterdir()) == outside
    assert not Path("/tmp/escaped-from-holmes").exists()


def test_the_sound_files_are_accepted(ground: Ground) -> None:
    for commands in COMMANDS.values():
        for command in commands:
            ground.fresh()
            outcome = run_holmes(*command(ground.place))
            assert outcome.code == 0, outcome.said


READERS: dict[str, Callable[[Path], object]] = {
    "store/store.json": lambda place: read_store(place / "store"),
    "run/best/checkpoint.json": lambda place: read_checkpoint(place / "run/best"),
    "run/run.json": lambda place: read_run(place / "run/run.json"),
    "run/result.json": lambda place: read_result(place / "run/result.json"),
    "stopped/state.json": lambda place: STATE_FORMAT.read(place / "stopped/state.json", SavedState),
    "features/features.json": lambda place: FeatureFolder.open(place / "features"),
    "index/manifest.json": lambda place: read_index(place / "index"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_key_in_every_way(ground: Ground, name: str) -> None:
    """What the commands read first, without the commands: damage is refused, and a lie does no harm."""
    ground.fresh()
    body = json.loads((ground.place / name).read_text())
    READERS[name](ground.place)
    for at in key_paths(body):
        if name == "run/run.json" and len(at) > 2:
            continue  # the settings are those of the checkpoint
        for what, new in VALUES.items():
            text = altered(body, at, new)
            if what == "there twice" or json.loads(text) != body:
                (ground.place / name).write_text(text)
                with pytest.raises(HolmesError) as caught:
                    READERS[name](ground.place)
                assert "\n" not in printable(str(caught.value)) and len(str(caught.value)) < 1000, (at, what)
            if what == "there twice" or at == ("checksum",):
                continue
            lie = {key: value for key, value in json.loads(text).items() if key != "checksum"}
            (ground.place / name).write_text(json.dumps(lie | {"checksum": checksum(lie)}))
            try:
                READERS[name](ground.place)
            except HolmesError as error:
                assert len(str(error)) < 1000, (at, what)


@pytest.mark.parametrize("name", FILES)
@LIMITS
@given(data=st.data())
def test_damage(ground: Ground, name: str, data: st.DataObject) -> None:
    """The checksum tells."""
    ground.fresh()
    body = json.loads((ground.place / name).read_text())
    at = data.draw(st.sampled_from([*key_paths(body)]), "keys")
    new = data.draw(st.sampled_from(list(VALUES)), "alteration")
    text = altered(body, at, VALUES[new])
    (ground.place / name).write_text(text)
    command = data.draw(st.sampled_from(COMMANDS[FILES[name]]), "command")
    same = new != "there twice" and json.dumps(json.loads(text)) == json.dumps(body)
    check(ground, FILES[name], command, refused=not same)


@pytest.mark.parametrize("name", FILES)
@LIMITS
@given(data=st.data())
def test_lies(ground: Ground, name: str, data: st.DataObject) -> None:
    """The checksum is right, so what the file says must do no harm."""
    ground.fresh()
    body = json.loads((ground.place / name).read_text())
    body.pop("checksum")
    at = data.draw(st.sampled_from([*key_paths(body)]), "keys")
    new = data.draw(st.sampled_from([value for value in VALUES if value != "there twice"]), "alteration")
    body = json.loads(altered(body, at, VALUES[new]))
    (ground.place / name).write_text(json.dumps(body | {"checksum": checksum(body)}))
    command = data.draw(st.sampled_from(COMMANDS[FILES[name]]), "command")
    check(ground, FILES[name], command, refused=False)


SMALL = ("videos.json", "queries.json", "also_fits.json")


@pytest.mark.parametrize("name", SMALL)
@LIMITS
@given(data=st.data())
def test_lists_of_a_store(ground: Ground, name: str, data: st.DataObject) -> None:
    """With sizes and checksums in the manifest that are right."""
    ground.fresh()
    path, manifest = ground.place / "store" / name, ground.place / "store/store.json"
    value = json.loads(path.read_text())
    at = data.draw(st.sampled_from([*key_paths(value)]), "keys")
    new = data.draw(st.sampled_from(list(VALUES)), "alteration")
    content = altered(value, at, VALUES[new]).encode()
    path.write_bytes(content)
    body = json.loads(manifest.read_text())
    del body["checksum"]
    body["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest.write_text(json.dumps(body | {"checksum": checksum(body)}))
    command = data.draw(st.sampled_from(COMMANDS["store"]), "command")
    check(ground, "store", command, refused=False)


def tensors_of(ground: Ground, which: str) -> Path:
    folder, pattern = {
        "checkpoint": ("run/best", "model-*.safetensors"),
        "state": ("stopped", "state-*.safetensors"),
        "features": ("features/videos", "*.safetensors"),
    }[which]
    return sorted((ground.place / folder).glob(pattern))[0]


def vouch(ground: Ground, which: str, content: bytes) -> None:
    """The digest that is remembered of a file of tensors, made right."""
    digest = hashlib.sha256(content).hexdigest()
    manifest, key = {
        "checkpoint": ("run/best/checkpoint.json", "digest"),
        "state": ("stopped/state.json", "sha256"),
    }[which]
    body = json.loads((ground.place / manifest).read_text()) | {key: digest}
    del body["checksum"]
    (ground.place / manifest).write_text(json.dumps(body | {"checksum": checksum(body)}))


@pytest.mark.parametrize("which", ["checkpoint", "state", "features"])
@LIMITS
@given(data=st.data())
def test_headers_of_tensors(ground: Ground, which: str, data: st.DataObject) -> None:
    ground.fresh()
    path = tensors_of(ground, which)
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    how = data.draw(st.sampled_from(["value", "value", "value", "length"]), "what")
    if how == "value":
        at = data.draw(st.sampled_from([*key_paths(header)]), "keys")
        new = data.draw(st.sampled_from(list(VALUES)), "alteration")
        text = altered(header, at, VALUES[new]).encode()
        content = struct.pack("<Q", len(text)) + text + content[8 + size :]
    else:
        length = data.draw(st.sampled_from([0, 1, size - 1, size + 1, len(content), 2**40, 2**64 - 1]))
        content = struct.pack("<Q", length) + content[8:]
    path.write_bytes(content)
    if which != "features":  # those carry their own digest, inside
        vouch(ground, which, content)
    for command in COMMANDS[which]:
        before = contents(ground.place)
        outcome = run_holmes(*command(ground.place))
        if which == "features" and outcome.code == 1:  # a damaged feature file is left out, and named
            assert "Traceback" not in outcome.said and "is damaged" in outcome.said
        else:
            outcome.check(refused=False)
        assert written_elsewhere(ground, before, which) == set()


@pytest.mark.parametrize(
    "line", ["", "{}", "null", "[]", '{"epoch": -1}', '{"epoch": "1"}', "[" * 9000, "\udcff"]
)
def test_a_log_that_lies(ground: Ground, line: str) -> None:
    ground.fresh()
    path = ground.place / "stopped/metrics.jsonl"
    log = line.encode(errors="surrogateescape") + b"\n" + path.read_bytes()
    path.write_bytes(log)
    check(ground, "state", COMMANDS["state"][0], refused=True)
    assert path.read_bytes() == log
