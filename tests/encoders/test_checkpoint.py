"""Checkpoints: whole or absent, and refused in one line when they are not ours."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from by_hand import reseal
from holmes.base import manifests
from holmes.config.names import BUILT_IN_ENCODERS
from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig, ModelConfig
from holmes.encoders import checkpoint
from holmes.encoders.checkpoint import load_checkpoint, save_checkpoint, update_extras
from holmes.encoders.model import HolmesModel
from holmes.errors import HolmesError
from small import tiny_config, tiny_model


def tiny(seed: int = 0, dual: bool = False) -> tuple[HolmesModel, HolmesConfig]:
    return tiny_model(dual, seed=seed), replace(preset("tvr"), model=tiny_config(dual))


def same_weights(one: HolmesModel, other: HolmesModel) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def refusal(folder: Path) -> str:
    with pytest.raises(HolmesError) as caught:
        load_checkpoint(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def rewrite(folder: Path, **changes) -> None:
    """With a checksum that is right: what is said must be refused, not only that it was changed."""
    reseal(folder / "checkpoint.json", **changes)


@pytest.mark.parametrize("dual", [False, True])
def test_roundtrip(tmp_path, dual):
    model, config = tiny(dual=dual)
    digest = save_checkpoint(tmp_path / "new" / "folder", model.train(), config, {"epoch": 7, "R@1": 12.5})
    loaded = load_checkpoint(tmp_path / "new" / "folder")
    assert same_weights(loaded.model, model)
    assert not loaded.model.training
    assert loaded.config == config
    assert loaded.extras == {"epoch": 7, "R@1": 12.5}
    assert loaded.digest == digest
    (weights,) = (tmp_path / "new" / "folder").glob("*.safetensors")
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == digest


def test_saving_again_replaces_and_leaves_nothing_behind(tmp_path):
    (first, config), (second, _) = tiny(0), tiny(1)
    save_checkpoint(tmp_path, first, config)
    save_checkpoint(tmp_path, second, config)
    assert same_weights(load_checkpoint(tmp_path).model, second)
    assert len(list(tmp_path.iterdir())) == 2


def test_extras_are_added_without_touching_the_weights(tmp_path):
    model, config = tiny()
    digest = save_checkpoint(tmp_path, model, config, {"epoch": 1, "kept": True})
    update_extras(tmp_path, {"epoch": 2, "thresholds": [0.1, 0.2]})
    loaded = load_checkpoint(tmp_path)
    assert loaded.extras == {"epoch": 2, "kept": True, "thresholds": [0.1, 0.2]}
    assert loaded.digest == digest


@pytest.mark.parametrize("where, dies_in", [(manifests, "write_json"), (checkpoint, "save")])
def test_a_write_that_dies_midway_leaves_the_old_checkpoint(tmp_path, monkeypatch, where, dies_in):
    (old, config), (new, _) = tiny(0), tiny(1)
    save_checkpoint(tmp_path, old, config, {"epoch": 1})

    def die(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(where, dies_in, die)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(tmp_path, new, config, {"epoch": 2})
    loaded = load_checkpoint(tmp_path)
    assert same_weights(loaded.model, old)
    assert loaded.extras == {"epoch": 1}
    save_checkpoint(tmp_path, new, config, {"epoch": 2})
    assert same_weights(load_checkpoint(tmp_path).model, new)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_disk_that_fills_up_leaves_no_manifest(tmp_path, monkeypatch):
    model, config = tiny()

    def full(*_args):
        raise OSError("no space left")

    monkeypatch.setattr(manifests, "write_json", full)
    with pytest.raises(OSError):
        save_checkpoint(tmp_path, model, config)
    assert "has no checkpoint.json" in refusal(tmp_path)


def test_damaged_weights(tmp_path):
    save_checkpoint(tmp_path, *tiny())
    (weights,) = tmp_path.glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert "does not match its digest: the file is damaged" in refusal(tmp_path)
    weights.unlink()
    assert f"names {weights.name}, which is missing" in refusal(tmp_path)


def test_weights_that_are_no_weights(tmp_path):
    """Even with a digest that fits."""
    save_checkpoint(tmp_path, *tiny())
    (weights,) = tmp_path.glob("*.safetensors")
    weights.write_bytes(b"not weights at all")
    rewrite(tmp_path, digest=hashlib.sha256(b"not weights at all").hexdigest())
    assert "does not match its settings" in refusal(tmp_path)


def test_weights_of_another_shape(tmp_path):
    save_checkpoint(tmp_path, *tiny())
    config = json.loads((tmp_path / "checkpoint.json").read_text())["config"]
    config["model"]["tokens"] += 1
    rewrite(tmp_path, config=config)
    assert "does not match its settings" in refusal(tmp_path)


def test_settings_cannot_ask_for_more_memory_than_the_weights(tmp_path, monkeypatch):
    """A model of such a width would take terabytes; it is refused before it is made."""
    save_checkpoint(tmp_path, *tiny())
    config = json.loads((tmp_path / "checkpoint.json").read_text())["config"]
    config["model"]["width"] = 1 << 16
    rewrite(tmp_path, config=config)
    made = []
    real = checkpoint.build_model

    def make(config):
        assert torch.get_default_device().type == "meta", "a model was made in memory"
        made.append(real(config))
        return made[-1]

    monkeypatch.setattr(checkpoint, "build_model", make)
    assert "does not match its settings" in refusal(tmp_path)
    assert len(made) == 1 and all(value.is_meta for value in made[0].state_dict().values())


@pytest.mark.parametrize("encoder", [*BUILT_IN_ENCODERS])
@pytest.mark.parametrize("sizes", [{}, {"width": 64}, {"video_width": 3000, "width": 32}, {"frames": 700}])
def test_no_model_is_larger_than_its_settings_are_taken_for(encoder, sizes):
    config = ModelConfig(**{"video_width": 256, "text_width": 512, "encoder": encoder} | sizes)
    with torch.device("meta"):
        model = checkpoint.build_model(config)
    held = sum(value.numel() for value in [*model.parameters(), *model.buffers()])
    assert held < checkpoint.numbers_asked_for(config) < checkpoint.MODEST


def test_every_flipped_bit_of_the_manifest_is_noticed(tmp_path):
    save_checkpoint(tmp_path, *tiny(), {"epoch": 7, "R@1": 12.5})
    path = tmp_path / "checkpoint.json"
    sound = path.read_bytes()
    for at in range(0, len(sound), 7):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << at % 8]) + sound[at + 1 :])
        if sound[at : at + 1].strip():  # not the spaces between
            assert str(tmp_path) in refusal(tmp_path)
    path.write_bytes(sound)
    assert load_checkpoint(tmp_path).extras["epoch"] == 7


def test_a_checkpoint_saved_while_it_is_loaded(tmp_path, monkeypatch):
    """The weights that were named are gone: the new ones are loaded instead."""
    (old, config), (new, _) = tiny(0), tiny(1)
    save_checkpoint(tmp_path, old, config)
    read, asked = checkpoint.read_manifest, []

    def slow(folder):
        found = read(folder)
        if not asked:
            asked.append(save_checkpoint(folder, new, config))
        return found

    monkeypatch.setattr(checkpoint, "read_manifest", slow)
    assert same_weights(load_checkpoint(tmp_path).model, new)


def test_checkpoints_of_the_first_version_are_read(tmp_path):
    model, config = tiny()
    save_checkpoint(tmp_path, model, config)
    body = json.loads((tmp_path / "checkpoint.json").read_text()) | {"version": 1}
    del body["checksum"]
    (tmp_path / "checkpoint.json").write_text(json.dumps(body))
    assert same_weights(load_checkpoint(tmp_path).model, model)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format": "another-format"}, "does not describe a Holmes checkpoint"),
        ({"version": 99}, "of version 99; this version of Holmes reads version 2"),
        ({"version": None}, "of version null"),
        ({"config": {"name": "x", "model": {"depth": 1}}}, "unknown config.model field 'depth'"),
        ({"config": {}}, "config is incomplete"),
        ({"weights": 5}, "is damaged: weights is 5, not text; copy the whole folder again"),
        ({"digest": None}, "is damaged: digest is null, not text"),
        ({"extras": [1]}, "is damaged: extras is a list of 1, not an object"),
        ({"weights": "../elsewhere.safetensors"}, "'../elsewhere.safetensors', not the name of a file of w"),
    ],
)
def test_foreign_or_spoilt_manifests(tmp_path, changes, message):
    save_checkpoint(tmp_path, *tiny())
    rewrite(tmp_path, **changes)
    assert message in refusal(tmp_path)


def test_manifests_that_are_no_manifests(tmp_path):
    assert "is not a checkpoint: it has no checkpoint.json" in refusal(tmp_path / "nowhere")
    path = tmp_path / "checkpoint.json"
    for content, message in (
        (b"{", "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
        (b"[]", "does not describe a Holmes checkpoint"),
        (b'{"format": "holmes-checkpoint", "version": 1}', "lacks weights, digest, config, extras"),
    ):
        path.write_bytes(content)
        assert message in refusal(tmp_path)
