"""The field's three collections, tiny, in every layout that people have."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import h5py
import numpy as np

VISUAL = {"activitynet": "i3d", "charades": "i3d_rgb_lgi", "tvr": "i3d_resnet"}
TRAIN, TEST, QUERIES = 10, 6, 2
TINY = {"width": "8", "gaussian_widths": "none,1", "batch_videos": "8", "epochs": "3", "warm_up_epochs": "1"}


def write_collection(
    folder: Path,
    name: str = "charades",
    form: str = "bigfile",
    splits: tuple[str, ...] = ("train", "val", "test"),
    video_width: int = 8,
    text_width: int = 6,
    test_videos: int = TEST,
) -> Path:
    """A collection of random features; val is test, as in the field."""
    rng = np.random.default_rng(len(name))
    (folder / "TextData").mkdir(parents=True)
    videos = {"train": [f"a{n}" for n in range(TRAIN)], "test": [f"b{n}" for n in range(test_videos)]}
    videos["val"] = videos["test"]
    used: dict[str, None] = {}
    with h5py.File(folder / "TextData" / f"roberta_{name}_query_feat.hdf5", "w") as text:
        for split in splits:
            lines = []
            for video in videos[split]:
                used[video] = None
                for number in range(QUERIES):
                    id = f"{video}#enc#{number}"
                    lines.append(f"{id} somebody does {number}\n")
                    if id not in text:
                        text[id] = rng.normal(size=(4, text_width)).astype(np.float32)
            (folder / "TextData" / f"{name}{split}.caption.txt").write_text("".join(lines))
    rows = {video: rng.normal(size=(5, video_width)).astype(np.float32) for video in used}
    features = folder / "FeatureData" / VISUAL[name]
    features.mkdir(parents=True)
    if form == "hdf5":
        with h5py.File(features / "feature.hdf5", "w") as file:
            for video, table in rows.items():
                file[video] = table
    else:
        frames = {video: [f"{video}_{n}" for n in range(5)] for video in rows}
        np.concatenate([*rows.values()]).astype("<f4").tofile(features / "feature.bin")
        (features / "shape.txt").write_text(f"{5 * len(rows)} {video_width}\n")
        (features / "id.txt").write_text(" ".join(frame for each in frames.values() for frame in each))
        (features / "video2frames.txt").write_text(repr(frames))
    return folder


def zipped(folder: Path, target: Path) -> Path:
    """The folder as a zip file, under its own name; the folder is removed."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, f"{folder.name}/{path.relative_to(folder)}")
    shutil.rmtree(folder)
    return target
