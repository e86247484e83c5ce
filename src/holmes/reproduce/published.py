"""Facts about the field's collections and the published runs: sizes, widths, sources, curves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from holmes.results import METRICS

FEATURES_AT = "the README of github.com/HuiGuanLab/ms-sl (Google Drive or Baidu Pan)"
CHECKPOINTS_AT = "the README of github.com/lijun2005/ICML26-Holmes (Google Drive)"


@dataclass(frozen=True)
class Collection:
    """One data set as the field distributes it."""

    name: str
    title: str
    visual: str  # its folder in FeatureData
    video_width: int
    text_width: int
    sizes: dict[str, tuple[int, int]]  # split → videos, queries
    presets: tuple[str, ...]
    mean_rows: int  # rows of features of a video
    tolerance: float = 0.0  # share by which the sizes of sound copies differ

    @property
    def archive(self) -> str:
        return f"{self.name}.zip"

    @property
    def text(self) -> str:
        return f"roberta_{self.name}_query_feat"

    @property
    def bytes(self) -> int:
        """About how much disk space the unpacked video features take."""
        videos = sum(videos for videos, _ in self.sizes.values())
        return 4 * videos * self.mean_rows * self.video_width


COLLECTIONS = {
    each.name: each
    for each in (
        Collection(
            "activitynet",
            "ActivityNet Captions",
            "i3d",
            1024,
            1024,
            {"train": (9_043, 33_721), "test": (4_430, 15_753)},
            ("activitynet",),
            204,
        ),
        Collection(
            "charades",
            "Charades-STA",
            "i3d_rgb_lgi",
            1024,
            1024,
            {"train": (5_336, 12_408), "test": (1_334, 3_720)},
            ("charades",),
            91,
            tolerance=0.01,
        ),
        Collection(
            "tvr",
            "TVR",
            "i3d_resnet",
            3072,
            768,
            {"train": (17_435, 87_175), "test": (2_179, 10_895)},
            ("tvr", "tvr_dual"),
            51,
        ),
    )
}


@dataclass(frozen=True)
class Curve:
    """A published run: loss and SumR after each epoch, from epoch 1."""

    loss: tuple[float, ...]
    SumR: tuple[float, ...]
    seconds: float  # an epoch with its evaluation took

    @property
    def best(self) -> float:
        return max(self.SumR)


@cache
def curves() -> dict[str, Curve]:
    """The published runs by preset."""
    found = json.loads((files("holmes.reproduce") / "curves.json").read_text())
    made = {}
    for preset, run in found.items():
        column = {name: [row[number] for row in run["rows"]] for number, name in enumerate(run["columns"])}
        seconds = run["seconds_per_epoch_with_evaluation"]
        made[preset] = Curve(tuple(column["loss"]), tuple(column[METRICS[-1]]), float(seconds))
    return made
