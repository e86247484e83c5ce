"""Caption files of the MS-SL layout: `<video>#enc#<number> caption`, one per line, one file per split."""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holmes.base.files import read_file
from holmes.errors import HolmesError


@dataclass(frozen=True)
class Captions:
    """All splits together: videos in order of first appearance, queries sorted by video."""

    video_ids: list[str]
    query_ids: list[str]
    texts: list[str]
    owner_Q: NDArray[np.int64]
    splits: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]  # name → videos, queries


def read_captions(files: dict[str, Path]) -> Captions:
    """Join the splits; they may share captions (val is often test), but none may share any with train."""
    lines = {name: read_caption_file(path) for name, path in files.items()}
    texts: dict[str, str] = {}
    for name, captions in lines.items():
        for query_id, text in captions.items():
            if texts.setdefault(query_id, text) != text:
                raise HolmesError(
                    f"{files[name]}: caption id '{query_id}' appears with two different texts; rename one."
                )
            if name != "train" and query_id in lines.get("train", {}):
                raise HolmesError(
                    f"{files[name]}: caption id '{query_id}' is also in train; remove it from one of them."
                )
    refuse_shared_videos(lines, files)
    video_index: dict[str, int] = {}
    for query_id in texts:
        video_index.setdefault(video_of(query_id), len(video_index))
    query_ids = sorted(
        texts, key=lambda query_id: video_index[video_of(query_id)]
    )  # stable: file order within
    query_index = {query_id: index for index, query_id in enumerate(query_ids)}
    owner_Q = np.array([video_index[video_of(query_id)] for query_id in query_ids], np.int64)
    splits = {}
    for name, captions in lines.items():
        queries = np.array(sorted(query_index[query_id] for query_id in captions), np.int64)
        splits[name] = (np.unique(owner_Q[queries]), queries)
    return Captions(
        list(video_index), query_ids, [texts[query_id] for query_id in query_ids], owner_Q, splits
    )


def refuse_shared_videos(lines: dict[str, dict[str, str]], files: dict[str, Path]) -> None:
    """Refuse videos that are trained on and tested on: the figures would flatter."""
    trained = {video_of(query_id) for query_id in lines.get("train", {})}
    for name, captions in lines.items():
        shared = [video for video in map(video_of, captions) if video in trained]
        if name != "train" and shared:
            raise HolmesError(
                f"{files[name]}: video '{shared[0]}' and {len(set(shared)) - 1} others are also in train; a "
                "model would be tested on what it was trained on. Remove them from one of the two."
            )


def read_caption_file(path: Path) -> dict[str, str]:
    """Caption id → caption, in the order of the file."""
    captions: dict[str, str] = {}
    for number, line in enumerate(read_file(path).removeprefix(BOM_UTF8).splitlines(), start=1):
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError:
            name = line.split(b" ", 1)[0].decode("ascii", "replace")
            raise HolmesError(f"{path}: line {number}, '{name}', is not UTF-8; convert the file.") from None
        if not text:
            continue
        query_id, _, caption = text.partition(" ")
        if "#" not in query_id or not video_of(query_id) or not caption.strip():
            raise HolmesError(
                f"{path}: line {number}, '{text[:60]}', is not '<video>#enc#<number> caption'; correct it."
            )
        if query_id in captions:
            raise HolmesError(
                f"{path}: line {number}: caption id '{query_id}' appears twice; rename or remove one."
            )
        captions[query_id] = caption.strip()
    if not captions:
        raise HolmesError(f"{path} contains no captions; remove the file or fill it.")
    return captions


def video_of(query_id: str) -> str:
    return query_id.partition("#")[0]
