"""`holmes.open_index`: one index, a sharded one in this process, or its shards on a Ray cluster."""

from __future__ import annotations

from pathlib import Path

from holmes.cluster.fleet import LocalFleet
from holmes.cluster.manifest import is_sharded, read_shards
from holmes.cluster.places import Place
from holmes.cluster.searcher import Generation, ShardedIndex
from holmes.errors import HolmesError
from holmes.index import searcher
from holmes.index.diagnose import Diagnose
from holmes.index.searcher import Index


def open_index(
    path: Path | str,
    *,
    device: str = "auto",
    model: str | None = None,
    diagnose: Diagnose | None = None,
    cache: Path | str | None = None,
) -> Index | ShardedIndex:
    """Open an index for searching; its model is loaded with the first search.

    `device` is cpu, cuda or auto; `model` says where a trained checkpoint is now, if it has moved; `diagnose`
    judges the answers in place of what belongs to the model. A sharded index may lie in object storage, and
    is then copied to the folder `cache`.
    """
    place = Place(path)
    if not is_sharded(place):
        if place.folder is None:
            read_shards(place)  # says what is there instead
        return searcher.open_index(path, device=device, model=model, diagnose=diagnose)
    shards = read_shards(place)
    if place.folder is None and cache is None:
        raise HolmesError(f"{path} is not on this machine; say where to copy its shards to (cache=FOLDER).")
    fleet = LocalFleet(place, None if cache is None else Path(cache), str(searcher.choose_device(device)))
    fleet.ready(shards)
    return ShardedIndex(place, Generation(shards, fleet), model, diagnose)
