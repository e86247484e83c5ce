"""Text on screen: read distinct frames, drop logos, join repeated lines.

A sample is read if it differs from the last one that was read. While what is written stays the same, frames
are read less and less often; a scene cut brings them back to the shortest step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.errors import HolmesError, missing_packages
from holmes.heard.passages import Passage, WordSource, make_passage

PACKAGES = ("rapidocr", "onnxruntime")
RATE = 1.0  # samples per second that are looked at
SIDE = 480  # pixels of a frame's short side
DETECTED_SIDE = 640  # pixels of the long side in which letters are searched for
LEAST_SCORE = 0.75  # the reader's confidence in a line
LEAST_LETTERS = 2
STEPS = (1.0, 2.0, 4.0, 8.0)  # seconds between two readings of frames that keep changing
BLOCKS = (9, 16)  # in which frames are compared
CHANGED, CUT = 6.0, 28.0  # mean difference of one block that changed, and of a whole frame at a cut, of 255
SAME_LINE = 0.8  # similarity of two readings of one line
MOST_DIGITS = 2  # of a line that counts something: "Room 1" is not "Room 2"; longer ones may be clocks
EVERYWHERE = 0.8  # the share of readings from which on a line is a logo, and left out
FEWEST_READINGS, FEWEST_SECONDS = 8, 60.0  # of a film in which logos are looked for

Picture = NDArray[np.uint8]


@dataclass
class ScreenLine:
    """A line while it stays on the screen."""

    text: str
    place: float  # its height and its left edge, to order lines; the name in saved files
    start: float
    last: float
    readings: int = 1
    end: float = 0.0
    score: float = 0.0


@dataclass
class Screen:
    """The lines of one film, as its frames are read one after the other."""

    read: Callable[[Picture], list[tuple[str, float, float]]]  # text, score and position of each line
    open: list[ScreenLine] = field(default_factory=list)
    closed: list[ScreenLine] = field(default_factory=list)
    readings: int = 0
    step: int = 0  # how rarely frames are read now
    _blocks: NDArray[np.float32] | None = None
    _at: float = -1e9

    def add(self, time: float, image: Picture) -> None:
        """One sample of the film; it is read if it is new."""
        blocks = _small(image)
        if self._blocks is not None:
            difference = np.abs(blocks - self._blocks)
            if float(difference.mean()) >= CUT:
                self.step = 0
            elif float(difference.reshape(len(difference), -1).max()) < CHANGED:
                return
            if time - self._at < STEPS[self.step] - 1e-6:
                return
        since = (self._at + time) / 2 if self._at >= 0 else time  # it came on between two readings
        self._blocks, self._at = blocks, time
        self._take(time, since, self.read(image))

    def _take(self, time: float, since: float, lines: list[tuple[str, float, float]]) -> None:
        self.readings += 1
        still, new = [], []
        for text, score, position in lines:
            known = next((line for line in self.open if line not in still and _same(line.text, text)), None)
            if known is None:
                new.append(ScreenLine(text, position, since, time, score=score))
                continue
            known.last, known.readings = time, known.readings + 1
            if score > known.score:
                known.text, known.score = text, score
            still.append(known)
        gone = [line for line in self.open if line not in still]
        for line in gone:
            line.end = (line.last + time) / 2
        self.closed += gone
        self.open = still + new
        changed = bool(gone or new)
        self.step = 0 if changed else min(self.step + 1, len(STEPS) - 1)

    def passages(self, seconds: float) -> tuple[list[Passage], list[str]]:
        """What was written, and the lines that stood there nearly always."""
        for line in self.open:
            line.end = seconds
        lines = [*self.closed, *self.open]
        times: dict[str, list[ScreenLine]] = {}
        for line in lines:
            key = next((known for known in times if _same(known, line.text)), line.text)
            times.setdefault(key, []).append(line)
        always = set()
        if self.readings >= FEWEST_READINGS and seconds >= FEWEST_SECONDS:
            for key, same in times.items():
                if sum(line.readings for line in same) >= EVERYWHERE * self.readings:
                    always.add(key)
        shown: dict[tuple[float, float], list[ScreenLine]] = {}
        for key, same in times.items():
            if key not in always:
                for line in same:
                    shown.setdefault((line.start, line.end), []).append(line)
        found = [
            make_passage(
                start,
                max(end, start + 0.5),
                " · ".join(line.text for line in sorted(group, key=lambda x: x.place)),
                WordSource.SCREEN,
            )
            for (start, end), group in shown.items()
        ]
        return [passage for passage in found if passage is not None], sorted(always)


class TextReader:
    """PP-OCR through RapidOCR, which brings its models along."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads

    @property
    def identity(self) -> str:
        try:
            return f"RapidOCR {version('rapidocr')}"
        except PackageNotFoundError:
            raise missing_packages("reading text on screen", *PACKAGES) from None

    @cached_property
    def _engine(self) -> Any:
        try:
            from rapidocr import RapidOCR
        except ImportError:
            raise missing_packages("reading text on screen", *PACKAGES) from None
        return RapidOCR(
            params={
                "Global.log_level": "error",
                "Global.use_cls": False,  # upright text only
                "Det.limit_side_len": DETECTED_SIDE,
                "Det.limit_type": "max",
                "EngineConfig.onnxruntime.intra_op_num_threads": self._threads,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            }
        )

    def __call__(self, image: Picture) -> list[tuple[str, float, float]]:
        try:
            found = self._engine(np.ascontiguousarray(image[:, :, ::-1]))  # it expects BGR
        except (RuntimeError, ValueError) as error:
            raise HolmesError(f"its text cannot be read ({' '.join(str(error).split())[:120]})") from None
        if found.txts is None:
            return []
        height, width = image.shape[:2]
        lines = []
        for text, score, box in zip(found.txts, found.scores, found.boxes, strict=True):
            letters = sum(char.isalnum() for char in text)
            if score < LEAST_SCORE or letters < LEAST_LETTERS:
                continue
            row = round(float(box[:, 1].mean()) / height * 20)  # lines of one row are read from the left
            lines.append((str(text), float(score), row + float(box[:, 0].min()) / (2 * width)))
        return lines


def _small(image: Picture) -> NDArray[np.float32]:
    """A grey picture of few pixels: letters that come or go change some of them."""
    rows, columns = 8 * BLOCKS[0], 8 * BLOCKS[1]
    grey = image.astype(np.float32).mean(axis=2)
    high, wide = grey.shape
    down = np.linspace(0, high, rows // 2 + 1).astype(int)[:-1]
    across = np.linspace(0, wide, columns // 2 + 1).astype(int)[:-1]
    sums = np.add.reduceat(np.add.reduceat(grey, down, axis=0), across, axis=1)
    area = np.outer(np.diff([*down, high]), np.diff([*across, wide]))
    small: NDArray[np.float32] = (sums / np.maximum(area, 1)).astype(np.float32)
    return small


def _same(one: str, other: str) -> bool:
    one, other = _letters(one), _letters(other)
    if one == other:
        return True
    number, other_number = (re.sub(r"\D", "", text) for text in (one, other))
    if number != other_number and 0 < len(number) <= MOST_DIGITS and 0 < len(other_number) <= MOST_DIGITS:
        return False
    if abs(len(one) - len(other)) > 0.3 * max(len(one), len(other)):
        return False
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= SAME_LINE


def _letters(text: str) -> str:
    return re.sub(r"\W+", "", text).casefold()


def is_installed() -> bool:
    """Whether text on screen can be read; nothing is loaded."""
    from importlib.util import find_spec

    return find_spec("rapidocr") is not None
