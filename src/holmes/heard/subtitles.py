"""Read subtitles: files beside a video, text streams inside it, and files that the user names.

SubRip, WebVTT and Advanced SubStation are parsed by pysubs2, unknown encodings by charset-normalizer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holmes.base.files import read_file
from holmes.base.printing import printable
from holmes.errors import HolmesError, missing_packages
from holmes.heard.passages import MOST_PASSAGES, Passage, WordSource, in_order, make_passage
from holmes.media.containers import av_library, file_start, open_container

SUFFIXES = (".srt", ".vtt", ".ass", ".ssa", ".json")  # in the order they are preferred
LARGEST = 32 << 20  # bytes of a subtitle file
TEXT_CODECS = ("subrip", "srt", "ass", "ssa", "mov_text", "webvtt", "text")
ENGLISH = ("en", "eng", "english")
# In which subtitles are written if not in UTF-8 or UTF-16; the first one where it is about as likely.
USUAL_ENCODINGS = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874"),
    *("koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949", "utf_16_le", "utf_16_be"),
)
ABOUT_AS_CHAOTIC, ABOUT_AS_COHERENT = 0.11, 0.03  # differences of charset-normalizer's two measures


def beside(video: Path) -> Path | None:
    """The subtitle file of a video: its name with another ending, with or without a language between."""
    stem = video.stem
    try:
        names = os.listdir(video.parent)
    except OSError:
        return None
    found = []
    for name in names:
        base, suffix = os.path.splitext(name)
        if suffix.lower() not in SUFFIXES or not (base == stem or base.startswith(f"{stem}.")):
            continue
        language = base[len(stem) + 1 :].lower()
        if suffix.lower() == ".json" and not _is_whisper(video.parent / name):
            continue
        rank = 0 if not language else 1 if language.split(".")[0] in ENGLISH else 2
        found.append((rank, "forced" in language, SUFFIXES.index(suffix.lower()), name))
    return video.parent / min(found)[-1] if found else None


def read_subtitles(path: Path, source: WordSource = WordSource.SUBTITLES) -> tuple[Passage, ...]:
    """The passages of a subtitle file, in order of time."""
    data = read_file(path, LARGEST)
    suffix = path.suffix.lower()
    try:
        if suffix == ".json":
            lines = _whisper(json.loads(_decoded(data, path)))
        elif suffix == ".txt":
            raise HolmesError(
                f"{printable(str(path))} has no times; give .srt, .vtt, .ass or Whisper's .json."
            )
        else:
            lines = list(_parsed(_decoded(data, path), path))
        passages = _bounded(make_passage(start, end, text, source) for start, end, text in lines)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split())[:80]
        raise HolmesError(
            f"{printable(str(path))} cannot be read as subtitles ({reason}); give .srt, .vtt, .ass or "
            "Whisper's .json."
        ) from None
    if not passages:
        raise HolmesError(f"{printable(str(path))} holds no subtitles.")
    return in_order(passages)


def _bounded(passages: Iterable[Passage | None]) -> list[Passage]:
    kept = []
    for passage in passages:
        if passage is not None:
            kept.append(passage)
        if len(kept) >= MOST_PASSAGES:
            break
    return kept


def _decoded(data: bytes, path: Path) -> str:
    if b"\0" not in data[:4096] or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encodings = ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig",)
        for encoding in encodings:
            try:
                return data.decode(encoding)
            except UnicodeDecodeError:
                continue
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        raise missing_packages("subtitles in other encodings than UTF-8", "charset-normalizer") from None
    found = from_bytes(data[: 1 << 20], cp_isolation=list(USUAL_ENCODINGS))
    best = found.best()
    if best is None:
        raise HolmesError(f"the encoding of {printable(str(path))} is not known; save the file as UTF-8.")
    # Eastern European letters make as good words of Western European text: the likelier one is meant.
    western = next((each for each in found if each.encoding == USUAL_ENCODINGS[0]), best)
    if (
        western.chaos <= best.chaos + ABOUT_AS_CHAOTIC
        and western.coherence >= best.coherence - ABOUT_AS_COHERENT
    ):
        best = western
    return data.decode(best.encoding, errors="replace")


def _parsed(text: str, path: Path) -> Iterator[tuple[float, float, str]]:
    try:
        import pysubs2
    except ImportError:
        raise missing_packages("subtitles", "pysubs2") from None
    kind = {".ssa": "ass"}.get(path.suffix.lower(), path.suffix.lower()[1:])
    try:
        parsed = pysubs2.SSAFile.from_string(text, format_=kind if kind in ("srt", "vtt", "ass") else None)
    except Exception as error:  # its parsers fail in many ways
        raise ValueError(str(error)) from None
    for event in parsed.events:
        if event.type == "Dialogue" and not event.is_drawing:
            yield event.start / 1000, event.end / 1000, event.plaintext


def _is_whisper(path: Path) -> bool:
    """Whether a JSON file is a transcript of Whisper: other tools leave JSON beside videos too."""
    try:
        return bool(
            _bounded(
                make_passage(*line, WordSource.SUBTITLES)
                for line in _whisper(json.loads(read_file(path, LARGEST)))
            )
        )
    except (HolmesError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _whisper(value: Any) -> list[tuple[float, float, str]]:
    """Segments as Whisper, faster-whisper and whisper.cpp write them."""
    if isinstance(value, dict) and isinstance(value.get("transcription"), list):
        return [
            (line["offsets"]["from"] / 1000, line["offsets"]["to"] / 1000, str(line["text"]))
            for line in value["transcription"]
        ]
    segments = value["segments"] if isinstance(value, dict) else value
    return [(float(line["start"]), float(line["end"]), str(line["text"])) for line in segments]


def read_embedded(video: Path) -> tuple[tuple[Passage, ...], str]:
    """The passages of the first text subtitle stream, English if there is one; and which stream it is."""
    av = av_library()
    with open_container(av, video) as container:
        streams = [s for s in container.streams.subtitles if s.codec_context.name in TEXT_CODECS]
        if not streams:
            return (), ""
        stream = min(streams, key=lambda s: ((s.language or "") not in ENGLISH, s.index))
        start, scale = file_start(container), stream.time_base
        name = f"stream {stream.index} ({stream.codec_context.name}"
        name += f", {printable(stream.language)})" if stream.language else ")"
        passages: list[Passage | None] = []
        try:
            for packet in container.demux(stream):
                if packet.pts is None or len(passages) >= MOST_PASSAGES:
                    continue
                text = _packet_text(stream, packet)
                begin = float(packet.pts * scale) - start
                end = begin + float((packet.duration or 0) * scale)
                passages.append(make_passage(begin, end, text, WordSource.EMBEDDED))
        except (av.error.FFmpegError, ValueError) as error:
            if not passages:
                raise HolmesError(f"its subtitles cannot be read ({type(error).__name__})") from None
    return in_order(_bounded(passages)), name


def _packet_text(stream: Any, packet: Any) -> str:
    found = stream.codec_context.decode2(packet)
    if found is None:
        return ""
    texts = []
    for rect in found.rects:
        text = getattr(rect, "dialogue", b"") or getattr(rect, "text", b"")
        texts.append(text.decode(errors="replace") if isinstance(text, bytes) else str(text))
    return " ".join(texts)
