"""Films with known words: rendered scenes, eSpeak NG's voices, and drawn signs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holmes.worlds.rendered.film import VOICES, DrawnSign, SpokenLine, write_spoken_film
from holmes.worlds.rendered.paint import paint_scene

SIZE, FPS = (320, 240), 6


def film(
    path: Path,
    seconds: float = 8.0,
    said: Sequence[tuple[float, str]] = (),
    signs: Sequence[tuple[float, float, str]] = (),
    sound: Any = None,
    voice: str = VOICES[1],
    scene: tuple[str, str, str, str] = ("red", "circle", "meadow", "left"),
) -> Path:
    """A film of one scene; `sound` is played instead of what is said."""
    frames = paint_scene(*scene, frames=int(seconds * FPS), size=SIZE, rng=np.random.default_rng(0))
    write_spoken_film(
        path,
        frames,
        FPS,
        lines=[SpokenLine(at, text, voice) for at, text in said],
        signs=[DrawnSign(*sign) for sign in signs],
        sound=sound,
    )
    return path
