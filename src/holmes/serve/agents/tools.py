"""The tools of an agent: search, moments, frames, transcript, library, cut.

Every answer says in words how sure it is and what to do next, so that an agent does not present a guess as a
find. Videos are named by ids; files are read in child processes, as a server does.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from holmes.base.files import UMASK, take_free_name
from holmes.base.printing import clock, printable
from holmes.editing.cut import clip_name
from holmes.errors import HolmesError
from holmes.evidence.wording import likely, percent
from holmes.heard.passages import Heard
from holmes.index.answer.answers import Answer, Hit
from holmes.index.answer.base import SearchIndex
from holmes.media.cutting import FilmClip
from holmes.serve.catalogue import Entry, Filter, VideoCatalogue, file_date, parse_day
from holmes.serve.decoding import Decoders
from holmes.serve.settings import Limits
from holmes.serve.turns import Caller

T = TypeVar("T")
TOP, MOST_HITS = 5, 50
MOST_FRAMES, FRAME_WIDTH = 8, 480
MOST_LISTED = 200
LONGEST_CLIP = 600.0  # seconds
LONGEST_TRANSCRIPT = 20_000  # characters
CALLER = Caller("agent", 0)
# Kind of answer → how sure it is, in a word, and what an agent should do.
ADVICE = {
    "precise": (
        "likely",
        "The first hit is likely the one. Say so with its probability; frames can confirm it.",
    ),
    "guess": (
        "best guess",
        "The first hit is the best guess, and may be wrong. Look at its frames, and give its probability.",
    ),
    "several_fit": (
        "several",
        "Several videos fit. Do not pick one: show the user the first hits, as many as `group` says, or "
        "search again with a detail that tells them apart.",
    ),
    "too_little": (
        "unsure",
        "NOT SURE: no video stands out. Do not present a hit as found. Ask the user for a detail (who, "
        "where, colours, what happens before or after), or look at frames of the hits before you say "
        "anything.",
    ),
    "not_here": (
        "not here",
        "PERHAPS NOT IN THIS LIBRARY: 1 - `in_library` is how probable that is. Tell the user that it may "
        "be missing. Search once more in other words if they disagree; the hits are only the nearest, not "
        "finds.",
    ),
    "unknown": (
        "unknown",
        "This index cannot say how sure it is: it was never calibrated. Look at frames of the hits before "
        "you claim that one of them is right.",
    ),
}
ONE_VIDEO = (
    "These are the best moments of this one video, whether or not it shows the sentence at all. Look at "
    "frames to confirm."
)
NO_TRANSCRIPT = (
    "This index has no transcript of the video: its words are unknown. Use search and frames, "
    "which see the pictures."
)


class AgentTools:
    """The tools over one open index; `clips` is the folder that `cut` may write to."""

    def __init__(self, index: SearchIndex, clips: Path | None = None) -> None:
        self.index, self.clips = index, clips
        self.decoders = Decoders(Limits())
        self.catalogue = VideoCatalogue(index.durations)
        self._turn = asyncio.Lock()  # an index answers one question at a time

    async def close(self) -> None:
        await self.decoders.close()

    async def search(
        self,
        sentence: str,
        top: int = TOP,
        folder: str | None = None,
        after: str | None = None,
        before: str | None = None,
        longer: float | None = None,
        shorter: float | None = None,
    ) -> dict[str, Any]:
        """The best videos for a sentence, how sure that is, and what to do next."""
        top = _within("top", top, 1, MOST_HITS)
        wanted = Filter(folder, parse_day("after", after), parse_day("before", before), longer, shorter)

        def ask() -> dict[str, Any]:
            names = self.catalogue.names(wanted)
            if names is not None and not names:
                raise HolmesError("no video matches the filters; remove one.")
            return self._told(self.index.search(sentence, top, filter=names))

        return await self._ask(ask)

    async def moments(self, video: str, sentence: str) -> dict[str, Any]:
        """Where in one video a sentence fits best, without a probability: nothing is compared."""
        entry = self._entry(video)
        answer = await self._ask(lambda: self.index.search(sentence, 1, filter=[entry.name]))
        hit = answer.hits[0]
        return {
            "next_step": ONE_VIDEO,
            "video": self._video(entry),
            "moments": _moments(hit),
        }

    async def frames(self, video: str, seconds: Sequence[float], width: int = FRAME_WIDTH) -> list[bytes]:
        """Pictures of a video at some seconds, as JPEG."""
        entry = self._entry(video)
        if not 1 <= len(seconds) <= MOST_FRAMES:
            raise HolmesError(f"ask for 1 to {MOST_FRAMES} frames at a time, not {len(seconds)}.")
        for second in seconds:
            _within("seconds", second, 0, max(entry.duration, 0.0))
        file = await asyncio.to_thread(self.catalogue.file, entry)
        width = _within("width", width, 32, 960)
        return [await self.decoders.picture(file, second, width, CALLER) for second in seconds]

    async def transcript(self, video: str, start: float = 0.0, end: float | None = None) -> dict[str, Any]:
        """What is said or written in a video, where the index has heard it."""
        entry = self._entry(video)
        heard = await self._ask(lambda: _heard(self.index, entry.name))
        told: dict[str, Any] = {"video": self._video(entry)}
        if heard is None:
            return {"next_step": NO_TRANSCRIPT, **told, "passages": []}
        last = entry.duration if end is None else end
        some = [each for each in heard.passages if each.end >= start and each.start <= last]
        passages: list[dict[str, Any]] = []
        characters = 0
        for each in some:
            characters += len(each.text)
            if characters > LONGEST_TRANSCRIPT:
                break
            passages.append({**each.to_dict(), "at": clock(each.start)})
        step = "Quote passages with their times."
        if len(passages) < len(some):
            step += f" There is more: ask again with start={some[len(passages)].start:.1f}."
        if not some:
            step = "Nothing is said or written in this part of the video, as far as the index knows."
        return {"next_step": step, **told, "passages": passages}

    async def cut(self, video: str, start: float, end: float, exact: bool = False) -> dict[str, Any]:
        """Save seconds of a video as an MP4 file in the folder for clips."""
        if self.clips is None:
            raise HolmesError("cutting is not allowed; start 'holmes mcp' with --clips FOLDER to allow it.")
        entry = self._entry(video)
        _within("start", start, 0, entry.duration)
        if not start < end <= start + LONGEST_CLIP:
            raise HolmesError(f"a clip must end after its start, at most {LONGEST_CLIP:g} seconds later.")
        film = await asyncio.to_thread(self.catalogue.file, entry)
        pieces = self.decoders.cut([FilmClip(film, start, min(end, entry.duration))], exact=exact)
        self.clips.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.clips, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as out:
                async for piece in pieces:
                    await asyncio.to_thread(out.write, piece)
            os.chmod(temporary, 0o666 & ~UMASK)
            file = take_free_name(Path(temporary), self.clips / clip_name(entry.name, start))
        except BaseException:
            os.unlink(temporary)
            raise
        begins = (
            "begins and ends with the very frame" if exact else "may begin a little earlier, at a key frame"
        )
        return {
            "next_step": f"The clip is saved. It {begins}.",
            "file": str(file),
            "bytes": file.stat().st_size,
        }

    async def library(self, contains: str = "", offset: int = 0, limit: int = 50) -> dict[str, Any]:
        """What the index holds."""
        offset, limit = _within("offset", offset, 0, 10**9), _within("limit", limit, 1, MOST_LISTED)
        await self._ask(lambda: None)
        found = self.catalogue.listed(Filter(), contains.casefold(), "", None)
        some = found[offset : offset + limit]
        more = f" There are more: ask with offset={offset + limit}." if offset + limit < len(found) else ""
        folders = self.catalogue.folders.most_common(MOST_LISTED)
        match = "video matches" if len(found) == 1 else "videos match"
        step = f"{len(found):,} {match}.{more} Use an id with moments, frames, transcript or cut."
        return {
            "next_step": step,
            "videos_in_all": len(self.catalogue),
            "hours": round(sum(entry.duration for entry in self.catalogue.entries) / 3600, 2),
            "folders": {printable(folder): count for folder, count in folders},
            "videos": [self._video(entry) for entry in some],
        }

    async def _ask(self, work: Callable[[], T]) -> T:
        """Work on the index in a thread, alone, after changes by others were taken up."""
        async with self._turn:
            if await asyncio.to_thread(self.index.refresh):
                self.catalogue = VideoCatalogue(await asyncio.to_thread(lambda: self.index.durations))
            return await asyncio.to_thread(work)

    def _told(self, answer: Answer) -> dict[str, Any]:
        diagnosis = answer.diagnosis
        together = sum(hit.probability or 0.0 for hit in answer.group)  # of one video, or of its copies
        guess = diagnosis.kind == "precise" and not likely(together)
        certainty, step = ADVICE.get("guess" if guess else diagnosis.kind, ADVICE["unknown"])
        known = {} if diagnosis.probability is None else {"probability": round(diagnosis.probability, 3)}
        if diagnosis.here is not None:
            known["in_library"] = round(diagnosis.here, 3)
        return {
            "certainty": certainty,
            "next_step": step,
            "kind": diagnosis.kind,
            **known,
            "explanation": diagnosis.explanation,
            "advice": diagnosis.advice,
            "query": answer.query,
            "group": len(answer.group),
            "hits": [self._hit(rank, hit) for rank, hit in enumerate(answer.hits, 1)],
            **({"not_searched": list(answer.missing)} if answer.missing else {}),
        }

    def _hit(self, rank: int, hit: Hit) -> dict[str, Any]:
        sure = None if hit.probability is None else percent(hit.probability)
        words = [each.to_dict() for each in hit.quotes]
        return {
            "rank": rank,
            **self._video(self.catalogue.by_name[hit.video]),
            "probability": None if hit.probability is None else round(hit.probability, 3),
            "in_words": "no probability" if sure is None else f"{sure} that it is the one",
            "fit": hit.fit,
            "moments": _moments(hit),
            "because": list(hit.because),
            **({"quotes": words} if words else {}),
        }

    def _video(self, entry: Entry) -> dict[str, Any]:
        day = file_date(entry)
        return {
            "id": entry.id,
            "title": printable(entry.title),
            "path": printable(entry.name),
            "duration": round(entry.duration, 2),
            "date": day.isoformat() if day else None,
        }

    def _entry(self, video: str) -> Entry:
        """A video by its id, its path, or a file name that only it has."""
        found = [
            entry
            for entry in self.catalogue.entries
            if video in (entry.id, entry.name) or printable(entry.name) == video
        ]
        found = found or [entry for entry in self.catalogue.entries if entry.title == video]
        if len(found) == 1:
            return found[0]
        what = "no video has" if not found else f"{len(found)} videos have"
        raise HolmesError(f"{what} this id or name; use an id that search or library gave.")


def _moments(hit: Hit) -> list[dict[str, Any]]:
    return [
        {
            "start": round(moment.start, 2),
            "end": round(moment.end, 2),
            "at": f"{clock(moment.start)}–{clock(moment.end)}",
            "score": round(moment.score, 3),
        }
        for moment in hit.moments
    ]


def _heard(index: SearchIndex, video: str) -> Heard | None:
    try:
        return index.transcript(video)
    except HolmesError:  # not every index gives them out
        return None


def _within(name: str, value: Any, least: float, most: float) -> Any:
    if not least <= value <= most:
        raise HolmesError(f"{name} must lie between {least:g} and {most:g}, not {value!r}.")
    return value
