"""What an index is and what made it, as a record: the same for one index, for shards and for a served one."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from holmes.index.storage.store import IndexStore
from holmes.results import Json


@dataclass(frozen=True)
class IndexDescription:
    """What an index is and what made it."""

    path: str
    generation: int  # grows by one with every change
    videos: int
    hours: float
    removed: int  # videos whose space 'compact' would free
    bytes: int
    width: int  # of every embedding
    model: Json  # how to load the model again, and the digest of its weights
    extraction: Json  # how videos became features: backbone, rate
    segments: int | None = None  # None for a sharded index
    shards: int | None = None  # None for a single index

    def to_dict(self) -> Json:
        """Plain JSON values; `segments` or `shards` is left out where it is None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def describe_store(store: IndexStore) -> IndexDescription:
    manifest = store.manifest
    return IndexDescription(
        path=str(store.path),
        generation=manifest.generation,
        videos=len(store),
        hours=sum(store.durations.values()) / 3600,
        removed=sum(len(segment.removed) for segment in manifest.segments),
        bytes=sum(segment.bytes for segment in manifest.segments),
        width=manifest.width,
        model=manifest.model,
        extraction=manifest.extraction,
        segments=len(manifest.segments),
    )
