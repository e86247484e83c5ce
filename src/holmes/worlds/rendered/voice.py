"""Spoken sentences for rendered films: eSpeak NG, whose library and data come as a package."""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.errors import HolmesError, missing_packages

WORDS_PER_MINUTE = 130
SYNCHRONOUS, UTF8 = 2, 1  # espeak's own numbers
VOICES = ("en-us", "en-gb-x-rp", "en-us+f3", "en-us+steph", "en-us+m3")
_one_at_a_time = threading.Lock()
_heard: list[NDArray[np.int16]] = []


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
