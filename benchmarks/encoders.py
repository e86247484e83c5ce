"""Frames a second of each kind of loader at real model sizes, beside the library's own loop, in one run.

    python benchmarks/encoders.py [--device cuda] [--frames N] [--rounds N] [--only KIND] [--float32]

The models have random weights in the shapes of ViT-B/16 and SO400M (224 pixels), saved and loaded through
their libraries; their text towers are small. Both loops get the same frames (640 × 360) and make rows of
length 1. `agreement` is the smallest cosine between both rows. Kinds whose library is missing are left out.

On a CPU the seconds are those that the process computes, so that other work on the machine does not count.
The loops take turns, in rounds. `times as fast` is the median of the rounds' ratios, `lowest` and `highest`
are the extremes: where 1 lies between them, the loops are equally fast. `--float32` measures what a CPU
without instructions for bfloat16 does.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, print_table, save_json, work_folder

from holmes.base.devices import device_named
from holmes.media.backbones import load_visual, pretrained
from holmes.media.backbones.pretrained import make_torchvision_importable

B16 = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
SO400M = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16}
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2}
ROUNDS = 7
BATCH = 32

Loop = Callable[[list[np.ndarray]], np.ndarray]


def words(folder: Path) -> None:
    """A tokenizer of a few words."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    known = ["<unk>", "<s>", "</s>", "<pad>", *(f"w{n}" for n in range(20))]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(known)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(folder)


def save_clip(folder: Path) -> None:
    import transformers
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    text = {**SMALL, "vocab_size": 40, "max_position_embeddings": 16, "eos_token_id": 2}
    vision = {**B16, "image_size": 224, "patch_size": 16}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=512)
    transformers.CLIPModel(config).save_pretrained(folder)
    words(folder)
    CLIPImageProcessorPil().save_pretrained(folder)


def save_siglip(folder: Path) -> None:
    import transformers
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    text = {**SMALL, "vocab_size": 40, "max_position_embeddings": 16, "projection_size": 1152}
    vision = {**SO400M, "image_size": 224, "patch_size": 14}
    config = transformers.SiglipConfig(text_config=text, vision_config=vision)
    transformers.SiglipModel(config).half().save_pretrained(folder)
    words(folder)
    SiglipImageProcessorPil(size={"height": 224, "width": 224}).save_pretrained(folder)


def save_open_clip(folder: Path, vision: dict[str, Any], width: int) -> None:
    from safetensors.torch import save_file

    from holmes.media.backbones.openclip import import_open_clip

    folder.mkdir(parents=True)
    text = {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 1}
    wanted = {"model_cfg": {"embed_dim": width, "vision_cfg": vision, "text_cfg": text}, "preprocess_cfg": {}}
    (folder / "open_clip_config.json").write_text(json.dumps(wanted))
    weights = import_open_clip().create_model(f"local-dir:{folder}").state_dict()
    save_file({n: t.contiguous() for n, t in weights.items()}, folder / "open_clip_model.safetensors")


def save_sentence_transformers(folder: Path, save: Callable[[Path], None]) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Transformer

    save(folder / "inner")
    SentenceTransformer(modules=[Transformer(str(folder / "inner"))]).save_pretrained(str(folder))
    shutil.rmtree(folder / "inner")


def transformers_loop(folder: Path, device: torch.device) -> Loop:
    """As the model cards show it: the folder's processor, then the image features of each batch."""
    import transformers

    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval().to(device)

    def encode(images: list[np.ndarray]) -> np.ndarray:
        rows = []
        for start in range(0, len(images), BATCH):
            batch = processor(images=images[start : start + BATCH], return_tensors="pt").to(device)
            with torch.inference_mode():
                rows.append(model.get_image_features(**batch).pooler_output)
        return unit(torch.cat(rows))

    return encode


def open_clip_loop(folder: Path, device: torch.device) -> Loop:
    """As the library's page shows it."""
    import open_clip
    from PIL import Image

    model, _, prepare = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    model = model.eval().to(device)

    def encode(images: list[np.ndarray]) -> np.ndarray:
        rows = []
        for start in range(0, len(images), BATCH):
            batch = torch.stack([prepare(Image.fromarray(each)) for each in images[start : start + BATCH]])
            with torch.inference_mode():
                rows.append(model.encode_image(batch.to(device)))
        return unit(torch.cat(rows))

    return encode


def sentence_transformers_loop(folder: Path, device: torch.device) -> Loop:
    from PIL import Image
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device=str(device), model_kwargs={"dtype": torch.float32})

    def encode(images: list[np.ndarray]) -> np.ndarray:
        pictures = [Image.fromarray(each) for each in images]
        return unit(model.encode(pictures, batch_size=BATCH, convert_to_tensor=True))

    return encode


def unit(rows: torch.Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(rows.float(), dim=-1).cpu().numpy()


VIT_B16 = {"image_size": 224, "layers": 12, "width": 768, "patch_size": 16}
VIT_SO400M: dict[str, Any] = {"image_size": 224, "layers": 27, "width": 1152, "patch_size": 14}
VIT_SO400M |= {"head_width": 72, "mlp_ratio": 4304 / 1152}


@dataclass(frozen=True)
class Kind:
    """A library and a size of model: how it is saved, loaded, and used by the library itself."""

    library: str
    prefix: str  # of the name that Holmes takes
    save: Callable[[Path], None]
    loop: Callable[[Path, torch.device], Loop]
    share: float = 1.0  # of the frames: large models get fewer


KINDS = {
    "transformers, ViT-B/16": Kind("transformers", "", save_clip, transformers_loop),
    "open_clip, ViT-B/16": Kind(
        "open_clip", "open_clip:", partial(save_open_clip, vision=VIT_B16, width=512), open_clip_loop
    ),
    "sentence-transformers, ViT-B/16": Kind(
        "sentence_transformers",
        "st:",
        partial(save_sentence_transformers, save=save_clip),
        sentence_transformers_loop,
    ),
    "transformers, SO400M": Kind("transformers", "", save_siglip, transformers_loop, 0.25),
    "open_clip, SO400M": Kind(
        "open_clip",
        "open_clip:",
        partial(save_open_clip, vision=VIT_SO400M, width=1152),
        open_clip_loop,
        0.25,
    ),
    "sentence-transformers, SO400M": Kind(
        "sentence_transformers",
        "st:",
        partial(save_sentence_transformers, save=save_siglip),
        sentence_transformers_loop,
        0.25,
    ),
}


def measure(
    name: str, folder: Path, frames: int, device: torch.device, rounds: int = ROUNDS
) -> dict[str, Any] | None:
    kind = KINDS[name]
    if importlib.util.find_spec(kind.library) is None:
        print(f"{kind.library} is not installed: {name} is left out.")
        return None
    kind.save(folder)
    count = max(2, round(frames * kind.share))
    images = list(np.random.default_rng(0).integers(0, 256, (count, 360, 640, 3), np.uint8))
    ours = load_visual(f"{kind.prefix}{folder}", device=str(device)).frames
    loops: dict[str, Loop] = {"Holmes": ours, "the library": kind.loop(folder, device)}
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    taken: dict[str, list[float]] = {each: [] for each in loops}
    rows = {}
    for each, encode in loops.items():
        rows[each] = encode(images[: min(4, count)])  # the first batch makes things ready
    for number in range(rounds):
        for each in sorted(loops, reverse=number % 2 == 1):  # neither is always the first
            began = clock()
            loops[each](images)
            taken[each].append(clock() - began)
    ratios = [library / own for library, own in zip(taken["the library"], taken["Holmes"], strict=True)]
    rate = {each: count / statistics.median(seconds) for each, seconds in taken.items()}
    agreement = float((rows["Holmes"] * rows["the library"]).sum(1).min())
    return {
        "loader and model": name,
        "frames": count,
        "Holmes, frames/s": rate["Holmes"],
        "the library's loop": rate["the library"],
        "times as fast": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "agreement": agreement,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--frames", type=int, default=0, help="of ViT-B/16; 16 on a CPU, 2048 on a GPU")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each loop")
    parser.add_argument("--float32", action="store_true", help="as on a CPU without bfloat16")
    parser.add_argument("--only", help="kinds whose name contains this")
    parser.add_argument("--work", type=Path, help="keep the models here")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/encoders.json"))
    options = parser.parse_args()
    make_torchvision_importable()
    if options.float32:
        pretrained._multiplies_bfloat16 = lambda: False  # type: ignore[assignment]
    device = device_named(options.device)
    frames = options.frames or (2048 if device.type == "cuda" else 16)
    rows = []
    with work_folder(options.work) as folder:
        for number, name in enumerate(KINDS):
            if options.only is None or options.only in name:
                found = measure(name, folder / str(number), frames, device, options.rounds)
                if found is not None:
                    rows.append(found)
                    print(found, flush=True)
    print_table(f"Frames a second, {machine(device)}", rows)
    save_json(options.json, {"machine": machine(device), "rows": rows})


if __name__ == "__main__":
    main()
