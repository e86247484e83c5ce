"""Models that travel: through a stand-in of the hub's HTTP, through a folder; and what is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

pytest.importorskip("huggingface_hub")

import holmes
from holmes.base.files import read_json
from holmes.encoders.checkpoint import FORMAT, MANIFEST, read_manifest
from holmes.encoders.hub import CARD, METRICS, check_model, folder_of
from holmes.errors import HolmesError
from shell import Shell
from tiny_runs import set_options, tiny_world

CONTENT = ("weights", "digest", "config", "extras")


class Hub(BaseHTTPRequestHandler):
    """The few requests of a hub that uploading and downloading a model takes; files are kept in memory."""

    files: ClassVar[dict[str, bytes]] = {}
    COMMIT = "0" * 39 + "1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/api/repos/create":
            self.reply({"url": f"http://{self.headers['host']}/me/model", "id": "1"})
        elif self.path == "/api/validate-yaml":
            self.reply({"warnings": [], "errors": []})
        elif "/preupload/" in self.path:
            named = [{"path": each["path"], "uploadMode": "regular"} for each in json.loads(body)["files"]]
            self.reply({"files": [{**each, "shouldIgnore": False} for each in named]})
        elif "/commit/" in self.path:
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            address = f"http://{self.headers['host']}/me/model/commit/{self.COMMIT}"
            self.reply({"commitUrl": address, "commitOid": self.COMMIT, "success": True})
        else:
            self.reply({}, 404)

    def do_GET(self) -> None:
        if "/resolve/" in self.path:
            name = self.path.split("/resolve/")[1].split("/", 1)[1]
            content = self.files.get(name)
            if content is None:
                self.reply({}, 404)
                return
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", self.COMMIT)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)
        elif "/tree/" in self.path:
            sizes = {name: len(content) for name, content in self.files.items()}
            self.reply([{"type": "file", "path": n, "size": size, "oid": "1"} for n, size in sizes.items()])
        elif self.path.startswith("/api/models/me/model"):
            siblings = [{"rfilename": name} for name in self.files]
            self.reply({"id": "me/model", "sha": self.COMMIT, "siblings": siblings, "private": False})
        else:
            self.reply({}, 404)

    do_HEAD = do_GET

    def reply(self, value: object, code: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *said: object) -> None:
        pass


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store, and a finished run on it."""
    root = tmp_path_factory.mktemp("hub")
    store = tiny_world(root / "store", frames=128, clips=32)
    config = holmes.preset("small").with_changes(epochs=2, width=16, held_out=0.3)
    holmes.train(store, config, root / "run", options=holmes.RunOptions(device="cpu", progress=False))
    return store.path, root / "run"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    import huggingface_hub.constants as constants

    Hub.files = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield Hub
    server.shutdown()
    server.server_close()


def test_through_the_hub_and_back(world: tuple[Path, Path], hub: type[Hub]) -> None:
    store, run = world
    assert holmes.push(run, "me/model", licence="apache-2.0", about="Planted queries.") == "hub:me/model"
    weights = read_manifest(run / "best").weights
    assert set(hub.files) == {MANIFEST, METRICS, CARD, weights}
    hub.files |= {"evil.py": b"raise SystemExit", "pytorch_model.bin": b"\x80\x04."}
    pulled = holmes.pull("me/model")
    assert {file.name for file in pulled.iterdir()} == {MANIFEST, METRICS, CARD, weights}
    assert (pulled / weights).read_bytes() == (run / "best" / weights).read_bytes()
    told = read_manifest(run / "best")
    assert (
        read_manifest(pulled).digest == told.digest
        and read_manifest(pulled).extras.keys() == told.extras.keys()
    )
    again = holmes.evaluate("hub:me/model", store, device="cpu").metrics
    assert again == pytest.approx(holmes.evaluate(run, store, device="cpu").metrics)


def test_the_card_and_the_figures_come_from_the_run(world: tuple[Path, Path], tmp_path: Path) -> None:
    _, run = world
    holmes.push(run, tmp_path / "model", licence="mit", about="Planted queries.")
    metrics, card = read_json(tmp_path / "model" / METRICS), (tmp_path / "model" / CARD).read_text()
    found = read_json(run / "result.json")["metrics"]["R@1"]
    assert metrics["metrics"]["R@1"]["mean"] == pytest.approx(found)
    assert metrics["metrics"]["R@1"]["low"] <= found <= metrics["metrics"]["R@1"]["high"]
    assert f"| R@1 | {found:.1f} |" in card and "license: mit" in card and "Planted queries." in card
    assert str(tmp_path) not in card and str(run) not in (tmp_path / "model" / MANIFEST).read_text()


def test_a_file_share_takes_the_place_of_the_hub(
    world: tuple[Path, Path], tmp_path: Path, monkeypatch, capsys
) -> None:
    store, run = world
    monkeypatch.setenv("HOLMES_HUB", str(tmp_path / "share"))
    shell = Shell(monkeypatch, capsys)
    code, _, said = shell("push", run, "me/model")
    assert code == 0 and "published" in said
    assert folder_of("me/model") == tmp_path / "share" / "me" / "model"
    code, out, _ = shell("pull", "me/model")
    assert code == 0 and Path(out.strip()) == tmp_path / "share" / "me" / "model"
    options = ("--preset", "small", "--device", "cpu", *set_options(epochs=1))
    code, _, said = shell("train", store, *options, "--out", tmp_path / "tuned", "--model", "hub:me/model")
    assert code == 0, said
    begun = read_json(tmp_path / "tuned" / "run.json")
    assert begun["data"]["start"] == read_manifest(run / "best").digest
    assert begun["config"]["model"]["width"] == 16
    code, _, said = shell("train", store, *options, "--out", tmp_path / "tuned")
    assert code == 2 and len(said.splitlines()) == 1


def test_training_starts_from_the_weights(world: tuple[Path, Path], tmp_path: Path) -> None:
    """With a rate of nearly nothing, the weights stay those it started from."""
    import torch

    store, run = world
    still = holmes.preset("small").with_changes(epochs=1, learning_rate=1e-9, weight_decay=0.0)
    options = holmes.RunOptions(device="cpu", progress=False)
    holmes.train(store, still, tmp_path / "run", options=options, start=run)
    before, after = (holmes.load_checkpoint(each).model.state_dict() for each in (run, tmp_path / "run"))
    assert all(torch.allclose(before[name], after[name], atol=1e-5) for name in before)


def test_an_index_of_a_pulled_model_remembers_its_name(world, tmp_path: Path, monkeypatch) -> None:
    from holmes.index.embedders.trained import TrainedHolmes

    monkeypatch.setenv("HOLMES_HUB", str(tmp_path))
    holmes.push(world[1], "model")
    assert TrainedHolmes(tmp_path / "model", "lite2", "minilm", "cpu", "hub:model").name == "hub:model"
    elsewhere = TrainedHolmes(tmp_path / "model", "theirs", "theirs", "cpu")  # a folder of its author
    with pytest.raises(HolmesError, match="is in a folder, name it with --visual FOLDER"):
        _ = elsewhere.visual
    with pytest.raises(HolmesError, match="is in a folder, name it with --text FOLDER"):
        _ = elsewhere.text


@pytest.mark.parametrize(
    "name", ["../../etc", "me/../x", "me/model/more", "me\\model", "-x", "me/mo del", "hub:me//x", ""]
)
def test_names_lead_nowhere_else(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOLMES_HUB", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)  # from where no such folder exists
    with pytest.raises(HolmesError, match=r"is not the name of a model|does not exist"):
        holmes.pull(name)


def test_what_is_pulled_is_checked(world: tuple[Path, Path], tmp_path: Path) -> None:
    model = tmp_path / "model"
    holmes.push(world[1], model)
    check_model(model)
    told = json.loads((model / MANIFEST).read_text())

    def refused(match: str, **changes: object) -> None:
        folder = tmp_path / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(model, folder)
        FORMAT.write(folder / MANIFEST, {name: (told | changes)[name] for name in CONTENT})
        with pytest.raises(HolmesError, match=match):
            holmes.pull(folder)

    refused("weights", weights="../../secret.safetensors")
    refused("weights", weights="model.bin")
    (model / told["weights"]).unlink()
    with pytest.raises(HolmesError, match="lacks model-"):
        holmes.pull(model)
    with pytest.raises(HolmesError, match="holds no checkpoint"):
        holmes.push(tmp_path, tmp_path / "other")
