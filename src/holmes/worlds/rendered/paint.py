"""Paint the frames of a scene: a moving coloured shape before a background.

Coordinates run from 0 to 1 down the picture and at the same scale across. A shape is the region where its
function of local coordinates (1 is its radius, y points down) is negative. F frames, H height, W width.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from holmes.worlds.rendered.scene_words import COLOURS

Plane: TypeAlias = npt.NDArray[Any]  # H × W floats
OUTLINE = np.array((20, 20, 20), np.float32)  # so that a green shape shows on a meadow
EDGE = 2.0  # pixels of the outline


def paint_scene(
    colour: str,
    shape: str,
    background: str,
    motion: str,
    frames: int,
    size: tuple[int, int],
    rng: np.random.Generator,
) -> npt.NDArray[np.uint8]:
    """A scene's frames, F × H × W × RGB. The view drifts over the background a little, and there is grain."""
    width, height = size
    scenery = _scenery(background, *_grid(round(width * 1.25), height), rng)
    drift_F = np.linspace(0, rng.uniform(0.2, 1.0) * (scenery.shape[1] - width), frames).astype(int)
    across_F, down_F, turn_F = _path(motion, frames, rng)
    x, y = _grid(width, height)
    radius = rng.uniform(0.24, 0.32)
    ink = np.array(COLOURS[colour], np.float32)
    film = np.empty((frames, height, width, 3), np.uint8)
    for frame in range(frames):
        local_x, local_y = (x - across_F[frame] * width / height) / radius, (y - down_F[frame]) / radius
        cos, sin = np.cos(turn_F[frame]), np.sin(turn_F[frame])
        outside = _shape(shape, local_x * cos + local_y * sin, local_y * cos - local_x * sin)
        pixels = outside * radius * height  # distance from the edge, about
        picture = scenery[:, drift_F[frame] : drift_F[frame] + width]
        picture = _cover(picture, OUTLINE, np.clip(EDGE + 0.5 - pixels, 0, 1))
        picture = _cover(picture, ink, np.clip(0.5 - pixels, 0, 1))
        film[frame] = np.clip(picture + rng.integers(-5, 6, (height, width, 1)), 0, 255)
    return film


def _path(motion: str, frames: int, rng: np.random.Generator) -> tuple[Plane, Plane, Plane]:
    """Where the shape is in each frame, as shares of the picture's width and height, and its rotation."""
    time = np.linspace(0, 1, frames, dtype=np.float32)
    across, down = (np.full(frames, rng.uniform(0.4, 0.6), np.float32) for _ in range(2))
    turn = np.full(frames, rng.uniform(-0.2, 0.2), np.float32)
    match motion:
        case "left":
            across = 0.8 - 0.6 * time
        case "right":
            across = 0.2 + 0.6 * time
        case "up":
            down = 0.75 - 0.5 * time
        case "down":
            down = 0.25 + 0.5 * time
        case "bounce":
            down = 0.65 - 0.3 * np.abs(np.sin(3 * np.pi * time))
        case "spin":
            turn = turn + 2 * np.pi * time
    return across, down, turn


def _shape(name: str, x: Plane, y: Plane) -> Plane:
    """Negative inside, growing outwards by about 1 per radius."""
    match name:
        case "circle":
            return np.hypot(x, y) - 0.95
        case "square":
            return np.maximum(np.abs(x), np.abs(y)) - 0.82
        case "triangle":
            return np.maximum(0.87 * np.abs(x) - 0.5 * y, y) - 0.5
        case "star":
            # Five points: fold the plane onto one of ten equal wedges, bounded by one straight edge.
            angle = np.abs((np.arctan2(x, -y) / (np.pi / 5) + 1) % 2 - 1) * (np.pi / 5)
            distance = np.hypot(x, y)
            return (distance * np.cos(angle) - 1.05) * 0.53 + distance * np.sin(angle) * 0.85
        case "cross":
            lying: Plane = np.maximum(np.abs(x) - 1, np.abs(y) - 0.34)
            standing: Plane = np.maximum(np.abs(x) - 0.34, np.abs(y) - 1)
            return np.minimum(lying, standing)
        case "heart":
            lobes = np.hypot(np.abs(x) - 0.42, y + 0.3) - 0.5
            tip = np.maximum(0.77 * np.abs(x) + 0.64 * y - 0.5, -0.3 - y)
            return np.minimum(lobes, tip)
    raise KeyError(name)


def _scenery(name: str, x: Plane, y: Plane, rng: np.random.Generator) -> Plane:
    """A background, H × W × RGB as floats."""
    ripple = rng.uniform(0, 6)
    match name:
        case "sea":
            wave = np.sin(26 * y * (1.4 - y) + 0.5 * np.sin(9 * x + ripple)) * np.sin(7 * x + 30 * y + ripple)
            sea = _tint((28, 96, 148), 26 * wave)
            return np.where((y < 0.3)[..., None], _tint((172, 212, 240), -60 * y), sea)
        case "brick wall":
            row = np.floor(y * 9)
            along = (x * 4.5 + 0.5 * (row % 2)) % 1
            mortar = (along < 0.07) | ((y * 9) % 1 < 0.14)
            shade = 18 * np.sin(row * 12.9 + np.floor(x * 4.5 + 0.5 * (row % 2)) * 78.2 + ripple)
            return np.where(mortar[..., None], _tint((196, 188, 178), 0 * x), _tint((150, 74, 52), shade))
        case "meadow":
            blades = 24 * np.sin(90 * x + 14 * np.sin(23 * y + ripple)) * np.sin(60 * y + 7 * np.sin(31 * x))
            hill = 0.42 + 0.05 * np.sin(4 * x + ripple)
            return np.where(
                (y < hill)[..., None], _tint((140, 196, 246), 40 * y), _tint((92, 142, 40), blades)
            )
        case "night sky":
            stars = rng.random(x.shape, np.float32) > 0.992
            stars[1:] |= stars[:-1]
            return np.where(stars[..., None], np.float32(235), _tint((10, 14, 44), 26 * y))
        case "chessboard":
            light = (np.floor(x * 6) + np.floor(y * 6)) % 2
            return _tint((34, 34, 36), 190 * light)
        case "desert":
            dune = 0.45 + 0.1 * np.sin(3.3 * x + ripple)
            ripples = 14 * np.sin(70 * (y + 0.12 * np.sin(5 * x + ripple)))
            return np.where(
                (y < dune)[..., None], _tint((244, 222, 180), -30 * y), _tint((214, 160, 92), ripples)
            )
    raise KeyError(name)


def _tint(colour: tuple[int, int, int], shade: Plane) -> Plane:
    return np.array(colour, np.float32) + shade[..., None].astype(np.float32)


def _cover(picture: Plane, ink: Plane, share: Plane) -> Plane:
    covered: Plane = picture + (ink - picture) * share[..., None]
    return covered


def _grid(width: int, height: int) -> tuple[Plane, Plane]:
    y, x = np.mgrid[0:height, 0:width].astype(np.float32) / height
    return x, y
