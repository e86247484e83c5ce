"""Models kept as `transformers` folders: found on disk or on a hub, read from safetensors, identified."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from holmes.base.files import read_json, sha256_file
from holmes.errors import HolmesError, missing_packages

PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model")  # weights, configuration, vocabulary


def model_folder(name: str) -> Path:
    """The folder of a model: `name` itself if it is one, else what a hub holds under that name."""
    if Path(name).is_dir():
        return Path(name)
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise missing_packages(f"the encoder '{name}'", "transformers") from None
    try:
        return Path(snapshot_download(name, allow_patterns=list(PATTERNS)))
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        raise HolmesError(
            f"'{name}' is neither a folder nor a model that a hub offers ({reason}); name the model's local "
            "folder."
        ) from None


def model_type(folder: Path) -> str:
    """The kind of model in the folder, such as clip, siglip, bert, roberta."""
    if not (folder / "config.json").exists():
        raise HolmesError(
            f"{folder} contains no model: there is no config.json; name the folder that has it."
        )
    config = read_json(folder / "config.json")
    return str(config.get("model_type", "")) if isinstance(config, dict) else ""


def folder_digest(folder: Path) -> str:
    """One digest of all files that decide what the model computes."""
    digest = hashlib.sha256()
    for file in sorted(file for pattern in PATTERNS for file in folder.glob(pattern)):
        digest.update(f"{file.name} {sha256_file(file)}\n".encode())
    return digest.hexdigest()


def load_part(auto_class: str, folder: Path, **options: Any) -> Any:
    """One part (`AutoModel`, `AutoTokenizer`, …) of the model in `folder`; never looks elsewhere."""
    try:
        import transformers
        from transformers.utils import logging
    except ImportError:
        raise missing_packages("this encoder", "transformers") from None
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        part = getattr(transformers, auto_class).from_pretrained(folder, local_files_only=True, **options)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise HolmesError(f"{folder} cannot be loaded as a model ({auto_class}: {reason}).") from None
    return part


def load_model(folder: Path, threads: int | None, device: str) -> Any:
    """The network in float32, ready to answer."""
    import torch

    from holmes.base.devices import device_named

    if not any(folder.glob("*.safetensors")) and any(folder.glob("pytorch_model*.bin")):
        raise HolmesError(
            f"{folder} keeps its weights in pytorch_model.bin, which could run any program when read. If you "
            'trust it, write them as safetensors once: python -c "from transformers import AutoModel; '
            f"AutoModel.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    limit_threads(threads)
    model = load_part("AutoModel", folder, use_safetensors=True, dtype=torch.float32)
    return model.eval().to(device_named(device))


def limit_threads(threads: int | None) -> None:
    import torch

    if threads:
        torch.set_num_threads(threads)
