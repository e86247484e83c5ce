"""Every byte of a sharded index is verified, in the state that searches see."""

from __future__ import annotations

from pathlib import Path

from holmes.cluster.copying import open_shard
from holmes.cluster.places import Place
from holmes.cluster.shards_manifest import Shards, check_belongs, read_shards
from holmes.index.index_manifest import damaged
from holmes.index.upkeep import feature_faults


def check_shards(path: Path) -> Shards:
    """The shards, if all of them are as they were written; else one line about those that are not."""
    place = Place(path)
    shards = read_shards(place)
    faults = []
    for entry in shards.shards:
        store = open_shard(place, entry.name, entry.sha256, None)
        check_belongs(shards, store.manifest, str(path / entry.name))
        faults += store.faults()
    faults += feature_faults(path)
    if faults:
        raise damaged(path, "; ".join(fault.rstrip(".") for fault in faults))
    return shards
