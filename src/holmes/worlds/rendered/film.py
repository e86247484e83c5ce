"""Write frames as video files, deterministic, optionally with spoken sentences and drawn signs."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.errors import HolmesError, missing_packages

RATE = 22_050  # samples per second of eSpeak NG
BLOCK = 1024  # samples encoded at once
# Bit-exact output has no dates and no version strings. One thread, because the number of threads changes the
# bytes; and no look-ahead, because what the encoder decides from it is not the same every time.
EXACT = {"x264-params": "rc-lookahead=0:mbtree=0:sync-lookahead=0"}
WORDS_PER_MINUTE = 130
SYNCHRONOUS, UTF8 = 2, 1  # espeak's own numbers
VOICES = ("en-us", "en-gb-x-rp", "en-us+f3", "en-us+steph", "en-us+m3")
_one_at_a_time = threading.Lock()
_heard: list[NDArray[np.int16]] = []


@dataclass(frozen=True)
class SpokenLine:
    """A sentence that is spoken from `start` seconds on."""

    start: float
    text: str
    voice: str = VOICES[1]


@dataclass(frozen=True)
class DrawnSign:
    """Letters that are shown from `start` to `end`."""

    start: float
    end: float
    text: str


def write_film(path: Path, frames_FHWC: NDArray[np.uint8], frames_per_second: int) -> None:
    """An H.264 file of these RGB frames; `path` ends in .mp4, .mkv or another container's name."""
    _write(path, frames_FHWC, frames_per_second, EXACT, key_frames=4 * frames_per_second)


def write_spoken_film(
    path: Path,
    frames_FHWC: NDArray[np.uint8],
    frames_per_second: int,
    lines: Sequence[SpokenLine] = (),
    signs: Sequence[DrawnSign] = (),
    sound: NDArray[np.int16] | None = None,
) -> None:
    """An H.264 file with these pictures, the signs in them, and what is said; or any other sound."""
    frames_FHWC = frames_FHWC.copy()
    for sign in signs:
        draw_sign(
            frames_FHWC[round(sign.start * frames_per_second) : round(sign.end * frames_per_second)],
            sign.text,
        )
    if sound is None and lines:
        sound = spoken(lines, len(frames_FHWC) / frames_per_second)
    _write(path, frames_FHWC, frames_per_second, sound=sound)


def _write(
    path: Path,
    frames_FHWC: NDArray[np.uint8],
    frames_per_second: int,
    more: Mapping[str, str] = MappingProxyType({}),
    key_frames: int | None = None,
    sound: NDArray[np.int16] | None = None,
) -> None:
    """Encode pictures and sound; `more` are options of the encoder, and key frames come at least so often."""
    try:
        import av
    except ImportError:
        raise missing_packages("writing videos", "av") from None
    with av.open(str(path), "w", options={"fflags": "+bitexact", "movflags": "+faststart"}) as container:
        pictures: Any = container.add_stream("libx264", rate=frames_per_second)
        pictures.height, pictures.width = frames_FHWC.shape[1:3]
        pictures.pix_fmt = "yuv420p"
        pictures.options = {"preset": "veryfast", "crf": "23", "threads": "1", **more}
        if key_frames is not None:
            pictures.codec_context.gop_size = key_frames
        track: Any = container.add_stream("aac", rate=RATE, layout="mono") if sound is not None else None
        for image in frames_FHWC:
            container.mux(pictures.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(pictures.encode(None))
        if sound is not None:
            for at in range(0, len(sound), BLOCK):
                block: Any = av.AudioFrame.from_ndarray(
                    sound[None, at : at + BLOCK], format="s16", layout="mono"
                )
                block.sample_rate, block.pts = RATE, at
                container.mux(track.encode(block))
            container.mux(track.encode(None))


def spoken(lines: Sequence[SpokenLine], seconds: float) -> NDArray[np.int16]:
    """Sentences at their times, in a sound of so many seconds."""
    whole = np.zeros(round(seconds * RATE), np.int16)
    for line in lines:
        first = round(line.start * RATE)
        said = speak(line.text, line.voice)[0][: max(0, len(whole) - first)]
        whole[first : first + len(said)] = said
    return whole


def draw_sign(frames_FHWC: NDArray[np.uint8], text: str) -> None:
    """Draw dark letters on a light board into the lower part of every frame, in lines that fit."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise missing_packages("drawing signs", "pillow") from None
    if not len(frames_FHWC):
        return
    height, width = frames_FHWC.shape[1:3]
    font = ImageFont.load_default(max(12, height // 12))
    board = ImageDraw.Draw(Image.new("RGB", (width, height)))
    lines: list[str] = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and board.textlength(longer, font=font) > width - 24:
            lines.append(word)
        else:
            lines[-1] = longer
    line_height = height // 9
    wide = int(max(board.textlength(line, font=font) for line in lines))
    top = height - line_height * len(lines) - 12
    picture = Image.new("RGB", (wide + 16, line_height * len(lines) + 8), (250, 250, 240))
    drawn = ImageDraw.Draw(picture)
    for number, line in enumerate(lines):
        drawn.text((8, 4 + number * line_height), line, fill=(12, 12, 12), font=font)
    sign = np.asarray(picture)[: height - top, : width - 8]
    frames_FHWC[:, top : top + len(sign), 8 : 8 + sign.shape[1]] = sign


def speak(text: str, voice: str = VOICES[0]) -> tuple[NDArray[np.int16], int]:
    """A sentence as mono sound, and its samples per second."""
    with _one_at_a_time:  # the library has one state for all
        library, rate, _ = _espeak()
        _heard.clear()
        if library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise HolmesError(f"eSpeak NG has no voice '{voice}'.")
        library.espeak_SetParameter(1, WORDS_PER_MINUTE, 0)
        data = text.encode()
        library.espeak_Synth(data, len(data) + 1, 0, 1, 0, UTF8, None, None)
        library.espeak_Synchronize()
        sound = np.concatenate(_heard) if _heard else np.zeros(0, np.int16)
    return sound, rate


@cache
def _espeak() -> tuple[Any, int, Any]:
    """The library, its samples per second, and the callback, which must stay alive."""
    try:
        import espeakng_loader
    except ImportError:
        raise missing_packages("spoken films", "espeakng-loader") from None
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    data = os.fsencode(espeakng_loader.get_data_path())
    rate = library.espeak_Initialize(SYNCHRONOUS, 0, data, 0)
    if rate <= 0:
        raise HolmesError("eSpeak NG does not start; install it again: pip install espeakng-loader")
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)

    def take(samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            _heard.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    callback = kind(take)
    library.espeak_SetSynthCallback(callback)
    return library, int(rate), callback
