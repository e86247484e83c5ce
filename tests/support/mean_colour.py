"""A toy encoder and videos whose features are known beforehand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from media_files import gray_video


class MeanColour:
    """A toy encoder whose rows are known beforehand: the mean red, green and blue of each window."""

    name, digest, width, joint, side, rate, window = "mean", "d" * 64, 3, False, 48, 2.0, 1

    def frames(self, images: list[np.ndarray]) -> np.ndarray:
        means = np.array([image.mean(axis=(0, 1)) for image in images], np.float32)
        return means.reshape(-1, self.window, 3).mean(axis=1)


def seconds_of_gray(path: Path, *levels: int) -> Path:
    """One second of each level, 10 frames per second."""
    shades = [level for level in levels for _ in range(10)]
    return gray_video(path, shades, [i / 10 for i in range(len(shades))])
