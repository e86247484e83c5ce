"""The manifest of a store, `store.json`: sizes, provenance, and a digest of every other file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from holmes.base.feature_origin import UNKNOWN, FeatureOrigin
from holmes.base.manifests import FileEntry, FileFormat
from holmes.base.validation import AtMost, Count, Matching, PlainName, Size
from holmes.errors import HolmesError
from holmes.records import CLIPS, FRAMES, TOKENS

MANIFEST = "store.json"
REPLACED = "replaced"  # ends the name of a store while a new one takes its place
FORMAT = FileFormat("holmes-store", 2, "a store", "pack the store again", without_checksum=(1,))
FEATURES = ("frames.npy", "clips.npy", "tokens.npy")  # large: `check_features` reads them, opening does not
CATALOGUE = (
    "videos.json", "queries.json", "also_fits.json", "frame_offsets.npy", "token_offsets.npy",
    "query_offsets.npy", "moments.npy", "durations.npy", "kinds.npy",
)  # fmt: skip
# Starts the name of files, and may be empty.
Collection = Annotated[str, Matching(r"[^/\0]{0,200}", "a plain name (no '/')")]


@dataclass(frozen=True)
class StoreInfo:
    """What a store says about itself without being read."""

    collection: Collection
    visual: PlainName  # the name of the visual feature set
    text: PlainName  # the name of the text feature set
    video_width: Size
    text_width: Size
    videos: Size
    queries: Size
    frame_rows: Size
    token_rows: Size
    splits: Annotated[dict[PlainName, dict[Literal["videos", "queries"], Count]], AtMost(1000)]
    provenance: dict[str, Any]
    files: Annotated[dict[PlainName, FileEntry], AtMost(3000)]
    frames: Size = FRAMES  # per video, at most
    clips: Size = CLIPS  # per video
    tokens: Size = TOKENS  # per query, at most
    encoders: FeatureOrigin = UNKNOWN  # what made the features, as far as it is known

    def __post_init__(self) -> None:
        parts = [f"split.{name}.{what}.npy" for name in self.splits for what in ("videos", "queries")]
        unlisted = sorted({*FEATURES, *CATALOGUE, *parts} - self.files.keys())
        if unlisted:
            raise HolmesError(f"it does not list {unlisted[0][:100]}.")

    @property
    def digest(self) -> str:
        """One name for the whole content: stores with equal digests hold equal data."""
        hashes = json.dumps({name: file.sha256 for name, file in sorted(self.files.items())})
        return hashlib.sha256(hashes.encode()).hexdigest()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


def write_manifest(folder: Path, info: StoreInfo) -> None:
    FORMAT.write(folder / MANIFEST, asdict(info))


def read_manifest(folder: Path) -> StoreInfo:
    aside = folder.parent / f".{folder.name}.{REPLACED}"
    if not folder.is_dir() and (aside / MANIFEST).is_file():
        raise HolmesError(
            f"{folder} was being replaced when its writer was killed; get the old one back with 'mv {aside} "
            f"{folder}', or run the same command again."
        )
    if not folder.is_dir():
        raise HolmesError(f"{folder} is not a store: no such folder; make one with 'holmes data pack'.")
    if not (folder / MANIFEST).is_file():
        raise HolmesError(f"{folder} is not a store: it has no {MANIFEST}; make one with 'holmes data pack'.")
    return FORMAT.read(folder / MANIFEST, StoreInfo)
