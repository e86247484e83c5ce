"""What studies train on: the planted world, and real spliced videos where they are at hand."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

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
        found = data / name
        if (small := data / f"{name}.npz").is_file():  # of `baselines.py --shrink`
            found = folder / "data" / name
            if not found.exists():
                restore(small, found)
        if not found.is_dir():
            print(f"{found} is not there: {name} is left out.")
            continue
        packed = (found / "store.json").exists()
        stores[name] = found if packed else folder / name
        if not stores[name].exists():
            pack(Source(found, visual=visual, text=text), stores[name])
    if only in (None, "planted"):
        stores["planted"] = folder / f"planted-{planted_videos}"
        if not stores["planted"].exists():  # a folder that is used again has it
            plant(stores["planted"], PlantSettings(videos=planted_videos, seed=0))
    return stores


def restore(file: Path, folder: Path) -> None:
    """The folder that a small file was made of."""
    with np.load(file, allow_pickle=False) as arrays:
        for key in arrays.files:
            kind, _, name = key.partition("/")
            target = folder / name
            if kind not in ("file", "rows") or not target.resolve().is_relative_to(folder.resolve()):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if kind == "file":
                target.write_bytes(arrays[key].tobytes())
                continue
            rows = arrays[key].astype(np.float32) / 127 * arrays[f"scale/{name}"]
            ends = np.cumsum(arrays[f"lengths/{name}"])
            with h5py.File(target, "w") as features:
                for each, part in zip(arrays[f"names/{name}"], np.split(rows, ends[:-1]), strict=True):
                    features[str(each)] = part


def study_parser(
    description: str | None,
    videos: int,
    changes: list[str],
    result: str,
    epochs: int = 60,
    more: Sequence[ArgumentParser] = (),
) -> ArgumentParser:
    """The options of a study that trains models with several seeds on every world."""
    parser = ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, parents=more
    )
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
