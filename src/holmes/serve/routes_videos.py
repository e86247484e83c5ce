"""Routes for videos: details, pictures and the films themselves."""

from __future__ import annotations

import asyncio
import mimetypes
import time
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from holmes.heard.formats import to_srt, to_vtt
from holmes.heard.passages import Heard
from holmes.media.playable import Plan
from holmes.serve.guard import caller_of
from holmes.serve.models import ID, LIMITS, Like, Playback, Scenes, Timeline, Transcript, Video, Videos
from holmes.serve.responses import Json, documented, state_of
from holmes.serve.routes_search import Filters, LikeId, OptionalSentence, Top, ask_like, unless_gone
from holmes.serve.state import BadRequestError, steps_of
from holmes.serve.streams import LimitedFile, MadeVideo, follow_ranges

router = APIRouter(tags=["videos"])

Id = Annotated[str, Path(pattern=ID, description="As /api/videos and hits give it.")]
Second = Annotated[float, Query(ge=0, le=1e7, description="Seconds from the start.")]
# What mimetypes does not know everywhere; a browser inspects the file itself anyway.
TYPES = {".mkv": "video/x-matroska", ".ts": "video/mp2t", ".m2ts": "video/mp2t", ".webm": "video/webm"}


@router.get("/api/videos", **documented(Videos), summary="What the index holds")
async def videos(
    request: Request,
    filter: Filters,
    q: Annotated[str, Query(max_length=LIMITS.query, description="Part of the path.")] = "",
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    sort: Annotated[
        Literal["", "added", "name", "date", "length"],
        Query(description="Newest, A to Z, latest, longest first; without it as the index lists them."),
    ] = "",
    order: Annotated[Literal["", "up", "down"], Query(description="up: the smallest first.")] = "",
) -> Response:
    state = state_of(request)
    up = {"up": True, "down": False}.get(order)

    def listed() -> dict[str, object]:
        found = state.catalogue.listed(filter, q.casefold(), sort, up)
        some = found[offset : offset + limit]
        return {"total": len(found), "videos": [state.video(entry) for entry in some]}

    return Json(await asyncio.to_thread(listed))


@router.get("/api/videos/{id}", **documented(Video, 404), summary="One video")
async def video(request: Request, id: Id) -> Response:
    state = state_of(request)
    return Json(await asyncio.to_thread(state.video, state.catalogue[id]))


@router.get("/api/videos/{id}/timeline", **documented(Timeline, 404), summary="Similarity along a video")
async def timeline(
    request: Request,
    id: Id,
    q: OptionalSentence = None,
    like: LikeId = None,
    t: Annotated[float, Query(ge=0, le=1e7, description="Seconds into that video.")] = 0.0,
) -> Response:
    state = state_of(request)
    entry = state.catalogue[id]
    if (q is None) == (like is None):
        raise BadRequestError("give either q, a sentence, or like, the id of a video.")
    if like is not None:
        work = partial(state.index.timelines_like, state.catalogue[like].name, t, [entry.name])
    else:
        assert q is not None
        state.check(q)
        work = partial(state.index.timelines, q, [entry.name])
    (found,) = await state.batcher.do(work, caller_of(request.scope))
    return Json(steps_of(found, entry.duration))


@router.get("/api/videos/{id}/transcript", **documented(Transcript, 404), summary="What it says and shows")
async def transcript(
    request: Request,
    id: Id,
    format: Annotated[
        Literal["json", "vtt", "srt"], Query(description="vtt and srt are for players.")
    ] = "json",
) -> Response:
    state = state_of(request)
    heard = await asyncio.to_thread(state.index.transcript, state.catalogue[id].name)
    found = heard or Heard()
    if format != "json":
        text = to_vtt(found) if format == "vtt" else to_srt(found)
        return Response(text, media_type="text/vtt" if format == "vtt" else "application/x-subrip")
    passages = [passage.to_dict() for passage in found.passages]
    about = {"heard": heard is not None, "sources": found.sources, "notes": list(found.notes)}
    return Json({**about, "passages": passages})


@router.get("/api/videos/{id}/scenes", **documented(Scenes, 404), summary="Where its scenes begin")
async def scenes(request: Request, id: Id) -> Response:
    state = state_of(request)
    found = await asyncio.to_thread(state.thumbnails.scenes, state.catalogue[id])
    return Json({"scenes": [{"start": round(start, 2), "end": round(end, 2)} for start, end in found]})


@router.get("/api/videos/{id}/like", **documented(Like, 404), summary="Videos that look like a moment")
async def like(
    request: Request,
    id: Id,
    t: Second,
    top: Top = 10,
    timelines: Annotated[bool, Query(description="With the similarity along each video.")] = False,
) -> Response:
    began = time.perf_counter()
    reply = await ask_like(request, id, t, top, timelines)
    hits = await asyncio.to_thread(state_of(request).described, reply.answer.hits, reply.timelines)
    return Json({"hits": hits, "milliseconds": round(1e3 * (time.perf_counter() - began), 2)})


@router.get(
    "/api/videos/{id}/thumbnail",
    **documented(None, 404, content={"content": {"image/jpeg": {}}}),
    summary="The picture at a moment",
)
async def thumbnail(
    request: Request, id: Id, t: Second = 0.0, width: Annotated[int, Query(ge=32, le=960)] = 480
) -> Response:
    state = state_of(request)
    picture = state.thumbnails.at(state.catalogue[id], round(t, 1), width, caller_of(request.scope))
    jpeg = await unless_gone(request, picture)
    return Response(jpeg, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


@router.get("/api/videos/{id}/playback", **documented(Playback, 404), summary="How a file would be converted")
async def playback(request: Request, id: Id, t: Second = 0.0) -> Response:
    state = state_of(request)
    file = await asyncio.to_thread(state.catalogue.file, state.catalogue[id])
    plan = await state.decoders.plan(file, t, caller_of(request.scope))
    how = "copied" if plan.copied else "encoded"
    address = f"/api/videos/{id}/stream?convert={how}&t={plan.start:.3f}"
    return Json({"how": how, "start": round(plan.start, 3), "address": address})


STREAM = documented(
    None,
    404,
    416,
    503,
    content={"content": {"video/*": {"schema": {"type": "string", "format": "binary"}}}},
)
STREAM["responses"][206] = STREAM["responses"][200]


@router.get("/api/videos/{id}/stream", **STREAM, summary="The film itself, or converted from a second on")
async def stream(
    request: Request,
    id: Id,
    convert: Annotated[str, Query(pattern="^(|copied|encoded)$")] = "",
    t: Second = 0.0,
    download: bool = False,
) -> Response:
    state = state_of(request)
    entry = state.catalogue[id]
    file = await asyncio.to_thread(state.catalogue.file, entry)
    if convert:
        pieces = state.decoders.convert(file, Plan(convert == "copied", t))
        return MadeVideo(pieces, state.conversions)
    follow_ranges(request.scope, file.stat().st_size)
    kind = TYPES.get(file.suffix.lower()) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    kind = kind if kind.startswith("video/") else "application/octet-stream"  # never a page of its own
    name = entry.title.encode("utf-8", "replace").decode() if download else None
    return LimitedFile(file, kind, name, state.streams)


@router.head("/api/videos/{id}/stream", include_in_schema=False)
async def stream_head(request: Request, id: Id) -> Response:
    return await stream(request, id)
