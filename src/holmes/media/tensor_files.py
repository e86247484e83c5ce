"""Arrays and a typed record in one safetensors file, with a digest of its contents."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from holmes.base.files import atomic_file
from holmes.base.validation import build
from holmes.errors import HolmesError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
Arrays = dict[str, np.ndarray]
DIGEST = "sha256"


def write_tensors(path: Path, name: str, record: DataclassInstance, tensors: Arrays) -> None:
    """Write a file that appears when it is complete; the record is in its header, under `name`."""
    from safetensors.numpy import save

    body = asdict(record)
    # ASCII JSON: file names that are not valid text (lone surrogates) survive as escapes.
    header = json.dumps(body | {DIGEST: digest_of(tensors, body)})
    with atomic_file(path) as file:
        file.write(save(tensors, {name: header}))


def read_tensors(path: Path, name: str, kind: type[T]) -> tuple[T, Arrays]:
    """The record and the arrays; a file that is damaged in any way is refused."""
    body, tensors = _load(path, name, arrays=True)
    if body.pop(DIGEST, None) != digest_of(tensors, body):
        raise damaged(path)
    return _built(path, body, kind), tensors


def read_record(path: Path, name: str, kind: type[T]) -> T:
    """The record alone, from the header; whether the arrays are whole is not looked at."""
    body, _ = _load(path, name, arrays=False)
    body.pop(DIGEST, None)
    return _built(path, body, kind)


def digest_of(tensors: Arrays, body: dict[str, Any]) -> str:
    """A digest of all that is kept: arrays that changed on the disk must not pass for a video's."""
    kinds = {name: (tensor.dtype.str, tensor.shape) for name, tensor in tensors.items()}
    digest = hashlib.sha256(json.dumps([body, kinds], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).data)
    return digest.hexdigest()


def damaged(path: Path) -> HolmesError:
    return HolmesError(f"{path} is damaged; extract its video again, or delete the file.")


def _load(path: Path, name: str, arrays: bool) -> tuple[dict[str, Any], Arrays]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            body = json.loads(file.metadata()[name])
            tensors = {key: file.get_tensor(key) for key in file.keys() if arrays}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError):
        raise damaged(path) from None
    if not isinstance(body, dict):
        raise damaged(path)
    return body, tensors


def _built(path: Path, body: dict[str, Any], kind: type[T]) -> T:
    try:
        return build(kind, body)
    except HolmesError:
        raise damaged(path) from None
