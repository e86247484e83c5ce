"""A sharded index is taught how sure it can be, as one index is, and to the last bit the same.

What it learned is in its own manifest, so all shards take it up at once, with a generation. Each shard gets
it too, for people who search that shard alone.

Q queries, V videos
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from holmes.cluster.fleet import LocalFleet
from holmes.cluster.generation import Generation
from holmes.cluster.places import Place
from holmes.cluster.shard import sent
from holmes.cluster.shards_manifest import read_shards, write_shards
from holmes.errors import HolmesError
from holmes.index.calibration import Taught, learn
from holmes.index.judge import FILE, write_values
from holmes.records import Scores


def calibrate_shards(
    path: Path | str, captions: Sequence[tuple[str, str]], checkpoint: str | None = None
) -> Taught:
    """Fit the calibration of a sharded index on sentences and the videos they describe, and keep it."""
    place = Place(path)
    if place.folder is None:
        raise HolmesError(
            f"{path} is not a folder; calibrate the index before it is split and copied there, or its shards "
            "in a folder."
        )
    before = read_shards(place)
    fleet = LocalFleet(place)
    fleet.ready(before)
    now = Generation(before, fleet, checkpoint, device="cpu")
    videos = [name for names in now.all("names").values() for name in names]

    def score(sentences: Sequence[str]) -> Scores:
        found = now.all("every_score", sent(now.probes(sentences))).values()
        frame_QV, clip_QV = (torch.cat([torch.from_numpy(f[at]) for f in found], 1) for at in (0, 1))
        return Scores(frame_QV, clip_QV)

    fitted, taught = learn(captions, videos, now.embedder, score)
    if read_shards(place) != before:
        raise HolmesError(f"{path} was changed meanwhile; nothing was written, run it again.")
    values = fitted.to_dict()
    write_shards(place.folder, replace(before, calibration=values, generation=before.generation + 1))
    for entry in before.shards:
        write_values(place.folder / entry.name / FILE, values)
    return taught
