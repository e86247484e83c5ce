"""What studies train on: the planted world, and real spliced videos where they are at hand."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from pathlib import Path

from holmes.data.pack import Source, pack
from holmes.worlds.planted import PlantSettings, plant

REAL = {
    "msvd": ("vgg16_pca512", "minilm_msvd_query_feat.hdf5"),
    "msrvtt": ("lite2_pca512", "minilm_msrvtt_query_feat.hdf5"),
}


def world_stores(folder: Path, data: Path, planted_videos: int, only: str | None = None) -> dict[str, Path]:
    """The store of every world: those of `data` packed into `folder`, unless they are packed already."""
    stores = {}
    for name, (visual, text) in REAL.items():
        if only not in (None, name):
            continue
        if not (data / name).is_dir():
            print(f"{data / name} is not there: {name} is left out.")
            continue
        packed = (data / name / "store.json").exists()
        stores[name] = data / name if packed else folder / name
        if not stores[name].exists():
            pack(Source(data / name, visual=visual, text=text), stores[name])
    if only in (None, "planted"):
        stores["planted"] = folder / f"planted-{planted_videos}"
        if not stores["planted"].exists():  # a folder that is used again has it
            plant(stores["planted"], PlantSettings(videos=planted_videos, seed=0))
    return stores


def study_parser(
    description: str | None, videos: int, changes: list[str], result: str, epochs: int = 60
) -> ArgumentParser:
    """The options of a study that trains models with several seeds on every world."""
    parser = ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with the real data")
    parser.add_argument("--preset", default="charades")
    parser.add_argument(
        "--videos", type=int, default=videos, help="training videos of the planted world (%(default)s)"
    )
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument(
        "--set", action="append", default=changes, metavar="NAME=VALUE", help="change a setting"
    )
    parser.add_argument("--only", help="one world: planted, msvd or msrvtt")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, help="keep stores and results here, to continue later")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results") / result)
    return parser
