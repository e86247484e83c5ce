"""Shared models: `hub:NAME` on the Hugging Face hub, or in a folder that replaces it.

A model is a checkpoint with its figures and a card. Only these files are taken, and nothing of them is run:

    checkpoint.json               settings, calibration, what made the features
    model-….safetensors           the weights that checkpoint.json names, with their digest
    metrics.json                  the figures with intervals
    README.md                     the card, for people

NAME is OWNER/NAME on the hub. A path (./NAME, /NAME, ~/NAME) is a folder. With HOLMES_HUB=FOLDER, every NAME
is a folder below FOLDER: a file share instead of the hub.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from holmes.encoders.checkpoint import MANIFEST, read_manifest
from holmes.errors import HolmesError, first_sentence, missing_packages

PREFIX = "hub:"
METRICS, CARD = "metrics.json", "README.md"
WEIGHTS = "model-*.safetensors"
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
SMALL = 2**26  # bytes of a file that is not weights
SHARE = "HOLMES_HUB"  # the environment variable that names a folder in place of the hub


def is_hub_name(name: str | Path) -> bool:
    return str(name).startswith(PREFIX)


def local_model(name: str | Path) -> Path:
    """A path as it is; hub:NAME as the folder that it was pulled into."""
    return pull(str(name).removeprefix(PREFIX)) if is_hub_name(name) else Path(name)


def folder_of(name: str | Path) -> Path | None:
    """The folder that a name stands for; None if it is on the hub."""
    text = str(name).removeprefix(PREFIX)
    if isinstance(name, Path) or text.startswith((".", "/", "~")):
        return Path(text).expanduser()
    if not NAME.fullmatch(text):
        raise HolmesError(
            f"'{text[:100]}' is not the name of a model; write OWNER/NAME, or a folder such as ./NAME."
        )
    share = os.environ.get(SHARE)
    return Path(share) / text if share else None


def pull(name: str | Path, *, revision: str | None = None) -> Path:
    """Fetch a model by its name and return its folder, checked; nothing in it is run.

    Args:
        name: OWNER/NAME on the hub, or a folder such as ./NAME.
        revision: A branch, tag or commit on the hub; by default the newest.

    Example:
        >>> where = holmes.push("RUN", "./shared/model")
        >>> holmes.load_checkpoint(holmes.pull(where)).config.encoder
        'mixture'
    """
    folder = folder_of(name)
    if folder is None:
        folder = _download(str(name).removeprefix(PREFIX), revision)
    elif not folder.is_dir():
        raise HolmesError(f"{folder} does not exist; 'holmes push' puts a model there.")
    check_model(folder)
    return folder


def check_model(folder: Path) -> None:
    """Refuse a folder that is not a model: the files that are read must be plain files of moderate size."""
    for file in (MANIFEST, METRICS, CARD):
        path = folder / file
        if path.exists():
            about = path.stat()
            if not stat.S_ISREG(about.st_mode) or about.st_size > SMALL:
                raise HolmesError(f"{path} is not a file of a model: it is {about.st_size:,} bytes long.")
    weights = folder / read_manifest(folder).weights  # a bare name: the format allows no other
    if not weights.is_file():
        raise HolmesError(f"{folder} lacks {weights.name}; push or copy the model again.")


def endpoint() -> str | None:
    """The address of the hub, where it is not the usual one."""
    return os.environ.get("HF_ENDPOINT") or None


def _download(name: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise missing_packages(f"'{PREFIX}{name}'", "transformers") from None
    wanted = [MANIFEST, METRICS, CARD, WEIGHTS]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted, endpoint=endpoint()))
    except Exception as error:
        raise HolmesError(
            f"'{name}' cannot be pulled ({first_sentence(error)}). With a network, run "
            f"'hf download {name} --local-dir FOLDER', then name FOLDER instead."
        ) from None
