"""/api/export writes timelines, markers and chapters; /api/cut writes moments as videos."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from holmes.base.printing import clock
from holmes.editing.clips import (
    AT_LEAST,
    MOST_PADDING,
    FoundClip,
    check_clips,
    choose_clips,
    one_line,
)
from holmes.editing.cut import clip_name, reel_name
from holmes.editing.export import content_of, file_name
from holmes.editing.timeline import EditList, lay_out, moments_of, parse_rate
from holmes.errors import HolmesError
from holmes.media.containers import VideoError
from holmes.media.cutting import FilmClip
from holmes.media.source_frames import SourceMedia
from holmes.serve.batching import ServedQuestion
from holmes.serve.catalogue import NotFoundError
from holmes.serve.guard import caller_of
from holmes.serve.models import CutOrder
from holmes.serve.responses import Json, documented, state_of
from holmes.serve.routes_search import (
    Filters,
    LikeId,
    Moment,
    OptionalSentence,
    Top,
    answer_json,
    ask_like,
    ask_one,
)
from holmes.serve.state import BadRequestError, ServerState
from holmes.serve.streams import MadeVideo
from holmes.serve.turns import BusyError, Caller

router = APIRouter(tags=["export"])

# Format → the type of its files.
TYPES = {
    "json": "application/json",
    "csv": "text/csv",
    "edl": "text/plain",
    "otio": "application/json",
    "fcpxml": "application/xml",
    "markers": "text/csv",
    "markers-edl": "text/plain",
    "vtt": "text/vtt",
    "youtube": "text/plain",
}
Format = Literal["json", "csv", "edl", "otio", "fcpxml", "markers", "markers-edl", "vtt", "youtube"]
AtLeast = Annotated[float, Query(ge=0, le=1, description="The least probability of a hit.")]
Pad = Annotated[float, Query(ge=0, le=MOST_PADDING, description="Seconds before and after each moment.")]


@router.get(
    "/api/export",
    **documented(None, 404, 503, content={"content": {kind: {} for kind in sorted({*TYPES.values()})}}),
    summary="The hits as a file",
)
async def download(
    request: Request,
    filter: Filters,
    q: OptionalSentence = None,
    like: LikeId = None,
    t: Moment = 0.0,
    top: Top = 10,
    format: Format = "json",
    at_least: AtLeast = AT_LEAST,
    pad: Pad = 0.0,
    rate: Annotated[
        str | None, Query(max_length=20, description="Frames per second of the timeline: 25, 29.97.")
    ] = None,
) -> Response:
    """JSON is the whole answer. The other formats hold the moments of the hits that are probable enough."""
    state, began = state_of(request), time.perf_counter()
    if like is not None and q is None:
        reply = await ask_like(request, like, t, top)
    elif q is not None and like is None:
        reply = await ask_one(state, request, ServedQuestion(q, top), filter)
    else:
        raise BadRequestError("give either q, a sentence, or like, the id of a video.")
    title = reply.answer.query
    if format == "json":
        content = bytes(Json(answer_json(state, reply, began)).body)
    else:
        clips = choose_clips(reply.answer, top, at_least, pad)
        try:
            given = parse_rate(rate) if rate else None
        except HolmesError as error:
            raise BadRequestError(str(error)) from None
        try:
            check_clips(clips, reply.answer, at_least)
        except HolmesError as error:
            raise NotFoundError(str(error)) from None
        sources = await read_sources(state, clips, caller_of(request.scope))
        edits = await asyncio.to_thread(laid_out, clips, title, given, sources)
        content = await asyncio.to_thread(content_of, edits, format)
    return Response(content, media_type=TYPES[format], headers=attachment(file_name(title, format)))


CUT = documented(
    None,
    404,
    413,
    503,
    content={"content": {"video/mp4": {"schema": {"type": "string", "format": "binary"}}}},
)


@router.post("/api/cut", **CUT, summary="Moments as a video: a clip, or a reel")
async def cut(request: Request, order: CutOrder) -> Response:
    """A clip is copied from the key frame before it, unless `exact`. The video is made while it is sent."""
    state = state_of(request)
    if len(order.moments) > 1 and not order.reel:
        raise BadRequestError("moments: several moments make a reel; ask for one at a time, or for a reel.")
    seconds = sum(moment.end - moment.start for moment in order.moments)
    if any(moment.end <= moment.start for moment in order.moments):
        raise BadRequestError("moments: a moment must end after its start.")
    if seconds > state.settings.limits.cut_seconds:
        most = state.settings.limits.cut_seconds
        raise BadRequestError(f"moments: {seconds:.0f} seconds are too long; {most:.0f} are allowed at once.")
    clips = await asyncio.to_thread(film_clips, state, order)
    first = order.moments[0]
    film = state.catalogue[first.id].name
    name = reel_name(order.title) if order.reel else clip_name(film, first.start)
    pieces = state.decoders.cut(clips, exact=order.exact, reel=order.reel)
    return MadeVideo(pieces, state.conversions, attachment(name))


def film_clips(state: ServerState, order: CutOrder) -> list[FilmClip]:
    clips = []
    for moment in order.moments:
        entry = state.catalogue[moment.id]
        if moment.start >= entry.duration:
            raise BadRequestError(
                f"moments: {one_line(entry.title)} ends at {entry.duration:g} s, before {moment.start:g} s."
            )
        source = f"{one_line(entry.title)} · {clock(moment.start)}–{clock(moment.end)}"
        title = tuple(line for line in (one_line(order.title.strip()), source) if line)
        clips.append(FilmClip(state.catalogue.file(entry), moment.start, moment.end, title))
    return clips


async def read_sources(
    state: ServerState, clips: Sequence[FoundClip], caller: Caller
) -> dict[str, SourceMedia]:
    """Every film with the frames of its clips; films that cannot be read are left out."""
    moments = moments_of(clips)

    async def read(video: str) -> SourceMedia | None:
        try:
            file = await asyncio.to_thread(state.catalogue.file, state.catalogue.by_name[video])
            return await state.decoders.frames(file, moments[video], caller)
        except BusyError:
            raise
        except (HolmesError, KeyError):
            return None

    found = await asyncio.gather(*(read(video) for video in moments))
    return {video: source for video, source in zip(moments, found, strict=True) if source is not None}


def laid_out(
    clips: Sequence[FoundClip], title: str, rate: Fraction | None, sources: dict[str, SourceMedia]
) -> EditList:
    def read(path: Path, moments: Sequence[tuple[float, float]]) -> SourceMedia:
        if str(path) not in sources:
            raise VideoError("its file cannot be read")
        return sources[str(path)]

    return lay_out(clips, title, rate, read)


def attachment(name: str) -> dict[str, str]:
    """Headers of a file to be saved under a name, in letters that every browser takes."""
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    return {"content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"}
