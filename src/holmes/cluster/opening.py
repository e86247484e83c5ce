"""`holmes.open_index`: one index, a sharded one in this process, or its shards on a Ray cluster."""

from __future__ import annotations

from pathlib import Path

from holmes.cluster.connect import LOCAL, connect
from holmes.cluster.fleet import Fleet, LocalFleet
from holmes.cluster.generation import Generation
from holmes.cluster.places import Place
from holmes.cluster.ray_fleet import RayFleet
from holmes.cluster.sharded_index import ShardedIndex
from holmes.cluster.shards_manifest import Shards, is_sharded, read_shards
from holmes.devices import device_named
from holmes.errors import HolmesError
from holmes.index import searcher
from holmes.index.diagnose import Diagnose
from holmes.index.searcher import Index

CACHE = "~/.cache/holmes/shards"  # on every node
STARTING = 900.0  # seconds for all shards to be copied and opened


def open_index(
    path: Path | str,
    *,
    device: str = "auto",
    model: str | None = None,
    diagnose: Diagnose | None = None,
    ray: str | None = None,
    copies: int | None = None,
    cache: Path | str | None = None,
    patience: float = 5.0,
) -> Index | ShardedIndex:
    """Open an index for searching; its model is loaded with the first search.

    `device` is cpu, cuda or auto, for the embeddings, the model and its encoders; `model` says where a
    trained checkpoint is now, if it has moved; `diagnose` judges the answers in place of the model's judge.

    A sharded index is searched in this process, or with `ray` on a cluster: HOST:PORT of its head, auto, or
    local for one of this machine alone. There every shard has as many `copies` on different nodes (two, if
    there are as many nodes), which lie in the folder `cache` of each node's disk; a shard of which no copy
    answers within `patience` seconds is named in the answer.
    """
    place = Place(path)
    if ray is None and not is_sharded(place):
        if place.folder is None:
            read_shards(place)  # the error says what is there instead
        return searcher.open_single_index(path, device=device, model=model, diagnose=diagnose)
    shards = read_shards(place)
    if ray is not None:
        fleet: Fleet = open_fleet(place, shards, ray, device, copies, cache, patience)
        return ShardedIndex(place, Generation(shards, fleet, model, diagnose, device))
    if place.folder is None and cache is None:
        raise HolmesError(f"{place} is not on this machine; say where to copy its shards to (cache=FOLDER).")
    kept = None if cache is None else Path(cache).expanduser()
    fleet = LocalFleet(place, kept, str(device_named(device)))
    fleet.ready(shards)
    return ShardedIndex(place, Generation(shards, fleet, model, diagnose, device))


def open_fleet(
    place: Place,
    shards: Shards,
    address: str,
    device: str,
    copies: int | None,
    cache: Path | str | None,
    patience: float,
) -> RayFleet:
    """The shards on the nodes of a cluster, ready to answer."""
    if device not in ("auto", "cpu", "cuda"):
        raise HolmesError(f"unknown device '{device}' of nodes; use auto, cpu or cuda.")
    owned = connect(address)
    # On this machine alone a shard is opened where it lies, if that is a folder.
    in_place = cache is None and address == LOCAL and place.folder is not None
    if place.folder is not None:
        place = Place(place.folder.absolute())
    fleet = RayFleet(
        place,
        copies=copies,
        cache=None if in_place else str(cache or CACHE),
        device="cuda" if device == "cuda" else "cpu",
        patience=patience,
        owned=owned,
    )
    try:
        fleet.open(shards, STARTING)
    except BaseException:
        fleet.close()
        raise
    return fleet
