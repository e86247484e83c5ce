"""One loader per library: what they compute is what the library computes, from videos to an answer."""

from __future__ import annotations

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

# Not imported to find out: every process of the tests reads this file, and one needs them.
if not all(map(find_spec, ("av", "open_clip", "sentence_transformers"))):
    pytest.skip("the libraries are not installed: pip install '.[encoders]'", allow_module_level=True)

import holmes
from holmes import extend
from holmes.errors import HolmesError
from holmes.media.backbones import JointBackbone, lasting_name, load_text, load_visual
from holmes.media.backbones.base import check_reads, check_sees
from media_files import video
from own_names import names_restored
from shell import Shell
from tiny_models import (
    SENTENCES,
    tiny_metaclip,
    tiny_open_clip,
    tiny_sentence_transformers,
    tiny_videoprism,
    tiny_xclip,
)

WINDOWS = {"xclip": 4, "videoprism": 4}
FAMILIES = ("open_clip", "st", "metaclip_2", "xclip", "videoprism")


@pytest.fixture(scope="module", autouse=True)
def offline() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny model of each family, written by its library."""
    root = tmp_path_factory.mktemp("models")
    made = {family: root / family for family in FAMILIES}
    tiny_open_clip(made["open_clip"])
    tiny_sentence_transformers(made["st"])
    tiny_metaclip(made["metaclip_2"])
    tiny_xclip(made["xclip"])
    tiny_videoprism(made["videoprism"])
    return made


@pytest.fixture(scope="module")
def loaded(folders: dict[str, Path]) -> dict[str, JointBackbone]:
    names = {family: f"{family}:" if family in ("open_clip", "st") else "" for family in FAMILIES}
    return {family: load_visual(f"{names[family]}{folders[family]}", device="cpu") for family in FAMILIES}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("films"), np.random.default_rng(0)
    for number in range(4):
        tint = rng.integers(0, 200, 3)
        images = [np.uint8(tint + rng.integers(0, 56, (48, 64, 3))) for _ in range(8)]
        video(folder / f"film{number}.mp4", images, [second / 2 for second in range(8)])
    return folder


def pictures(count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 256, (count, 40, 56, 3), np.uint8))


def unit(rows: torch.Tensor | np.ndarray) -> np.ndarray:
    rows = np.asarray(rows)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_keeps_to_the_protocol(loaded: dict[str, JointBackbone], family: str) -> None:
    encoder, window = loaded[family], WINDOWS.get(family, 1)
    assert isinstance(encoder, JointBackbone) and encoder.joint and encoder.window == window
    check_sees(encoder, family)
    check_reads(encoder, family)
    rows = encoder.frames(pictures(2 * window))
    assert rows.shape == (2, encoder.width) and rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert encoder.frames([]).shape == encoder.sentences([]).shape == (0, encoder.width)
    together = encoder.sentences(SENTENCES)
    np.testing.assert_allclose(encoder.sentences(SENTENCES[1:2])[0], together[1], atol=1e-5)
    states = encoder.tokens(["a dog runs", "snow"])
    assert [len(rows) for rows in states] in ([5, 3], [1, 1]) and states[0].shape[1] == encoder.width


def test_open_clip_computes_what_the_library_computes(
    loaded: dict[str, JointBackbone], folders: dict[str, Path]
) -> None:
    import open_clip
    from PIL import Image

    source = f"local-dir:{folders['open_clip']}"
    model, _, prepare = open_clip.create_model_and_transforms(source)
    tokenize, images = open_clip.get_tokenizer(source), pictures(3)
    with torch.inference_mode():
        wanted = model.eval().encode_image(torch.stack([prepare(Image.fromarray(each)) for each in images]))
        read = model.encode_text(tokenize(SENTENCES))
    encoder = loaded["open_clip"]
    np.testing.assert_allclose(encoder.frames(images), unit(wanted), atol=1e-5)
    np.testing.assert_allclose(encoder.sentences(SENTENCES), unit(read), atol=1e-5)
    for row, states in zip(read, encoder.tokens(SENTENCES), strict=True):  # CLIP pools at the end mark
        np.testing.assert_allclose(states[-1], row, atol=1e-5)


def test_sentence_transformers_computes_what_the_library_computes(
    loaded: dict[str, JointBackbone], folders: dict[str, Path]
) -> None:
    from PIL import Image
    from sentence_transformers import SentenceTransformer

    model, images = SentenceTransformer(str(folders["st"]), device="cpu"), pictures(3)
    encoder = loaded["st"]
    wanted = model.encode([Image.fromarray(each) for each in images])
    np.testing.assert_allclose(encoder.frames(images), unit(wanted), atol=1e-5)
    np.testing.assert_allclose(encoder.sentences(SENTENCES), unit(model.encode(SENTENCES)), atol=1e-5)


def test_windows_of_frames_go_through_the_video_models(
    loaded: dict[str, JointBackbone], folders: dict[str, Path]
) -> None:
    """A row is that of the whole window, in the order of its frames."""
    import transformers

    images = pictures(8)
    squares = [np.ascontiguousarray(each[:32, :32]) for each in images]
    prism = transformers.VideoPrismClipModel.from_pretrained(folders["videoprism"]).eval()
    pixels = torch.from_numpy(np.stack(squares)).permute(0, 3, 1, 2).float().view(2, 4, 3, 32, 32) / 255
    with torch.inference_mode():
        wanted = prism.get_video_features(pixels).pooler_output.flatten(1)
    np.testing.assert_allclose(loaded["videoprism"].frames(squares), unit(wanted), atol=1e-5)

    xclip = transformers.XCLIPModel.from_pretrained(folders["xclip"]).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folders["xclip"], backend="pil")
    pixels = processor(images=squares, return_tensors="pt")["pixel_values"].view(2, 4, 3, 32, 32)
    with torch.inference_mode():
        wanted = xclip.get_video_features(pixels).pooler_output
    rows = loaded["xclip"].frames(squares)
    np.testing.assert_allclose(rows, unit(wanted), atol=1e-5)
    assert np.abs(rows - loaded["xclip"].frames(squares[::-1])[::-1]).max() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_from_videos_to_an_answer_with_a_probability(
    loaded: dict[str, JointBackbone], films: Path, tmp_path: Path, family: str
) -> None:
    index = tmp_path / "index"
    assert holmes.build_index(index, films, loaded[family], device="cpu").added == 4
    with holmes.open_index(index, device="cpu", model=loaded[family]) as opened:
        opened.calibrate([(sentence, f"film{n}.mp4") for n in range(4) for sentence in SENTENCES[:3] * 2])
        answer = opened.search("snow")
    assert len(answer) == 4 and 0 <= answer.diagnosis.probability <= 1 and answer[0].moments


def test_a_library_by_name_on_the_command_line(
    folders: dict[str, Path], films: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    """Worker processes load the model by its name, and an index finds it again from another folder."""
    shell, index = Shell(monkeypatch, capsys), tmp_path / "index"
    monkeypatch.chdir(folders["open_clip"].parent)
    code, _, said = shell("index", "build", index, films, "--model", "open_clip:open_clip", "--workers", "1")
    assert code == 0 and "4 videos added" in said
    monkeypatch.chdir(tmp_path)
    code, said, _ = shell("search", index, "snow", "--json")
    assert code == 0 and len(json.loads(said)["hits"]) == 4


def test_a_function_of_your_own(films: Path, tmp_path: Path) -> None:
    def tint(images):
        return [image.mean((0, 1)) + 1 for image in images]

    def words(sentences):
        return [[len(sentence), sentence.count("a"), 1.0] for sentence in sentences]

    with names_restored():
        extend.visual_encoder("tint", tint, width=3, sentences=words)
        assert load_visual("tint") is load_text("tint")
        assert holmes.build_index(tmp_path / "index", films, "tint").added == 4
        assert len(holmes.open_index(tmp_path / "index").search("a dog")) == 4
        extend.visual_encoder("tint", tint, width=3, sentences=words, version="2")
        with pytest.raises(HolmesError, match="made with 'tint'"):
            holmes.open_index(tmp_path / "index").search("a dog")
        extend.visual_encoder("wide", tint, width=4)
        with pytest.raises(HolmesError, match=r"shape \(2, 3\); it must be \(2, 4\)"):
            check_sees(load_visual("wide"), "wide")
        with pytest.raises(HolmesError, match="already is an encoder 'pocket'"):
            extend.visual_encoder("pocket", tint, width=3)


def test_an_encoder_is_tried_before_use(films: Path, tmp_path: Path) -> None:
    with names_restored():
        how = {"width": 3, "sentences": lambda sentences: np.outer([len(s) for s in sentences], [1, 2, 3])}
        extend.visual_encoder("blind", lambda images: np.ones((len(images), 3)), **how)
        extend.visual_encoder("broken", lambda images: np.full((len(images), 3), np.nan), **how)
        for name, said in (("blind", "sees two different pictures alike"), ("broken", "not finite")):
            with pytest.raises(HolmesError, match=said):
                holmes.build_index(tmp_path / name, films, name)
            assert not (tmp_path / name).exists()


def test_folders_are_recognised_and_names_last(folders: dict[str, Path], monkeypatch) -> None:
    monkeypatch.chdir(folders["st"].parent)
    assert load_visual("open_clip").name == f"open_clip:{folders['open_clip']}"
    assert lasting_name("st:st") == f"st:{folders['st']}"
    assert load_text("open_clip:open_clip").sentences(["snow"]).shape == (1, 12)


def test_a_model_that_is_not_there_says_what_to_download_and_where_to_put_it() -> None:
    with pytest.raises(HolmesError) as caught:
        load_visual("open_clip:ViT-B-16-SigLIP2")
    assert "hf download timm/ViT-B-16-SigLIP2 --local-dir FOLDER" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(HolmesError, match="hf download Qwen/Qwen3-VL-Embedding-2B --local-dir FOLDER"):
        load_visual("st:Qwen/Qwen3-VL-Embedding-2B")
    with pytest.raises(HolmesError, match="did you mean 'ViT-B-16-SigLIP2'"):
        load_visual("open_clip:ViT-B-16-SigLIP2x")
    with pytest.raises(HolmesError, match="several sets of weights; write open_clip:ViT-B-32:WEIGHTS"):
        load_visual("open_clip:ViT-B-32")


@pytest.mark.parametrize("name", ["./none", "/none", "open_clip:./none", "st:/none", "open_clip:", "st:"])
def test_a_folder_that_is_not_there_is_not_looked_for_on_a_hub(name: str) -> None:
    with pytest.raises(HolmesError, match=r"there is no folder|unknown model of open_clip"):
        load_visual(name)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_damaged_model_is_one_line(folders: dict[str, Path], tmp_path: Path, family: str) -> None:
    broken = tmp_path / family
    shutil.copytree(folders[family], broken)
    for file in broken.rglob("*.safetensors"):
        os.truncate(file, file.stat().st_size - 100)
    with pytest.raises(HolmesError, match="Download or copy the model again") as caught:
        load_visual(f"st:{broken}" if family == "st" else str(broken))
    assert "\n" not in str(caught.value)


def test_a_model_without_its_tokenizer_or_processor_is_one_line(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    for family, lacks, said in (
        ("st", "tokenizer*", "its tokenizer is missing"),
        ("metaclip_2", "tokenizer*", "put the model's own tokenizer into its folder"),
        ("metaclip_2", "preprocessor*", "Can't load image processor"),
        ("videoprism", "video_preprocessor*", "has no video_preprocessor_config.json"),
    ):
        broken = tmp_path / f"{family} {lacks[:3]}"
        shutil.copytree(folders[family], broken, ignore=shutil.ignore_patterns(lacks))
        with pytest.raises(HolmesError, match=said) as caught:
            check_reads(load_visual(f"st:{broken}" if family == "st" else str(broken)), family)
        assert "\n" not in str(caught.value)


def test_frames_that_a_model_does_not_take_are_one_line(folders: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "videoprism"
    shutil.copytree(folders["videoprism"], broken)
    (broken / "video_preprocessor_config.json").write_text('{"size": {"height": 288, "width": 288}}')
    with pytest.raises(HolmesError, match=r"cannot encode a picture \(Image size"):
        check_sees(load_visual(str(broken)), "videoprism")


def test_a_model_never_runs_code(folders: dict[str, Path], tmp_path: Path) -> None:
    foreign = tmp_path / "st"
    shutil.copytree(folders["st"], foreign)
    for entry, said in (
        ({"type": "os.system", "path": ""}, "brings code of its own"),
        ({"type": "sentence_transformers.x.Y", "path": "../other"}, "leads out of its folder"),
    ):
        (foreign / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", **entry}]))
        with pytest.raises(HolmesError, match=said):
            load_visual(f"st:{foreign}")
    pickled = tmp_path / "open_clip"
    shutil.copytree(folders["open_clip"], pickled)
    (pickled / "open_clip_model.safetensors").rename(pickled / "open_clip_pytorch_model.bin")
    with pytest.raises(HolmesError, match="could run any program when read"):
        load_visual(f"open_clip:{pickled}")


def test_the_models_that_can_be_used_here_are_listed(monkeypatch, capsys) -> None:
    shell = Shell(monkeypatch, capsys)
    with names_restored():
        extend.visual_encoder("tint", lambda images: np.ones((len(images), 3)), width=3)
        code, said, _ = shell("models", "--json")
    found = {entry["name"]: entry for entry in json.loads(said)}
    assert code == 0 and found["pocket"]["present"] == found["tint"]["present"] == "yes"
    assert found["pocket"]["width"] == load_visual("pocket").width
    assert found["open_clip:PE-Core-L-14-336"]["present"] == "no: downloaded on first use"
    assert {"parameters", "languages", "licence", "encodes"} <= found["siglip2-base-patch16-224"].keys()
    code, said, _ = shell("models")
    assert code == 0 and "Apache-2.0" in said and "open_clip:ViT-B-16-SigLIP2" in said


def test_the_listed_names_of_open_clip_exist() -> None:
    from holmes.media.backbones.catalogue import PUBLISHED
    from holmes.media.backbones.openclip import repository_of

    for known in PUBLISHED:
        if known.name.startswith("open_clip:"):
            assert repository_of(known.name.removeprefix("open_clip:")) == known.repository
