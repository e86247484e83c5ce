"""Find `transformers` models on disk or on a hub, read their safetensors, and identify them."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holmes.base.files import read_json, sha256_file
from holmes.errors import HolmesError, first_sentence, missing_packages

if TYPE_CHECKING:
    import torch

NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # NAME or OWNER/NAME on a hub
PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model")  # weights, configuration, vocabulary
LARGE = 20_000_000  # parameters from which on half precision pays
# Of torchvision's compiled operators.
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
REGISTERED_AT_IMPORT = ("nms", "qnms")
_declared: list[Any] = []  # a library that is garbage collected takes its declarations with it


def model_folder(name: str) -> Path:
    """The folder of a model: `name` itself if it is one, else what a hub holds under that name."""
    if name and Path(name).is_dir():
        return Path(name)
    if not NAME.fullmatch(name):
        raise HolmesError(f"there is no folder '{name}'; name the folder of a model, or OWNER/NAME on a hub.")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise missing_packages(f"the encoder '{name}'", "transformers") from None
    if (present := present_folder(name)) is not None:
        return present  # the hub need not be asked, and may be out of reach
    try:
        return Path(snapshot_download(name, allow_patterns=list(PATTERNS)))
    except Exception as error:
        raise HolmesError(
            f"'{name}' is not on this machine and cannot be downloaded ({first_sentence(error)}). With a "
            f"network, run 'hf download {name} --local-dir FOLDER', then use FOLDER as the model."
        ) from None


def present_folder(name: str) -> Path | None:
    """Where a hub's model lies on this machine; None if it does not, or was downloaded in part."""
    try:
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(name, allow_patterns=list(PATTERNS), local_files_only=True))
    except Exception:
        return None
    there = {file.name for file in folder.rglob("*.safetensors")}
    listed: set[str] = set()
    for index in folder.rglob("*.safetensors.index.json"):
        listed |= {Path(shard).name for shard in read_json(index).get("weight_map", {}).values()}
    return folder if there and listed <= there else None


def model_type(folder: Path) -> str:
    """The kind of model in the folder, such as clip, siglip, bert, roberta."""
    if not (folder / "config.json").exists():
        raise HolmesError(
            f"{folder} contains no model: there is no config.json; name the folder that has it."
        )
    config = read_json(folder / "config.json")
    return str(config.get("model_type", "")) if isinstance(config, dict) else ""


def folder_digest(folder: Path, below: bool = False) -> str:
    """One digest of all files that decide what the model computes, also those `below` if asked for."""
    digest = hashlib.sha256()
    find = folder.rglob if below else folder.glob
    for file in sorted(file for pattern in PATTERNS for file in find(pattern)):
        name = file.relative_to(folder)
        if not any(part.startswith(".") for part in name.parts):
            digest.update(f"{name.as_posix()} {sha256_file(file)}\n".encode())
    return digest.hexdigest()


def refuse_pickles(folder: Path) -> None:
    """Refuse a folder without safetensors: other weights could run any program when read."""
    if any(folder.rglob("*.safetensors")):
        return
    pickles = [file.name for end in ("*.bin", "*.pt", "*.pth") for file in folder.rglob(end)]
    kept = f"keeps its weights in {pickles[0]}, which could run any program when read" if pickles else ""
    raise HolmesError(f"{folder} {kept or 'has no weights'}; it needs them as safetensors (*.safetensors).")


def load_part(auto_class: str, folder: Path, **options: Any) -> Any:
    """One part (`AutoModel`, `AutoTokenizer`, …) of the model in `folder`; never looks elsewhere."""
    make_torchvision_importable()
    try:
        import transformers
    except ImportError:
        raise missing_packages("this encoder", "transformers") from None
    quiet_transformers()
    try:
        part = getattr(transformers, auto_class).from_pretrained(folder, local_files_only=True, **options)
    except Exception as error:
        raise not_loaded(folder, f"transformers' {auto_class}", error) from None
    return part


def not_loaded(folder: Path, library: str, error: Exception) -> HolmesError:
    """A model that its library cannot load: a file is missing, cut off, or another model's."""
    return HolmesError(
        f"{folder} cannot be loaded by {library} ({first_sentence(error)}). Download or copy the model again."
    )


def quiet_transformers() -> None:
    """Leave what is printed to Holmes: no progress bars of weights, no remarks about configurations."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


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


def make_torchvision_importable() -> None:
    """Declare torchvision's operators if it is installed and they cannot be loaded.

    A torchvision built for CUDA beside a torch for CPUs cannot load its operators, and then fails while it is
    imported: `transformers`, timm and open_clip fail with it. The encoders use none of these operators, so
    their names are declared and the import succeeds.
    """
    if "torchvision" in sys.modules or _declared:
        return
    found = importlib.util.find_spec("torchvision")
    folders = found.submodule_search_locations if found is not None else None
    if not folders:
        return
    import torch

    try:
        torch.ops.load_library(str(next(Path(folders[0]).glob("_C*.so"))))
    except (OSError, StopIteration):
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in REGISTERED_AT_IMPORT:
            library.define(name + SIGNATURE)
        _declared.append(library)


def half_precision(device: torch.device, model: torch.nn.Module) -> torch.dtype | None:
    """float16 on a GPU, bfloat16 on a CPU that multiplies it; None for float32."""
    import torch

    if sum(parameter.numel() for parameter in model.parameters()) < LARGE:
        return None
    if device.type == "cuda":
        return torch.float16
    return torch.bfloat16 if _multiplies_bfloat16() else None


@cache
def _multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for it; without them bfloat16 is slower than float32."""
    import torch

    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(known.get("avx512_bf16") or known.get("amx_bf16") or known.get("sve_bf16"))


def computing_in(precision: torch.dtype | None, device: torch.device) -> AbstractContextManager[Any]:
    """A context in which products are computed in that precision; None leaves float32."""
    import torch

    return nullcontext() if precision is None else torch.autocast(device.type, precision)
