"""The videos of an index: what is known of them, their pictures, and the films themselves."""

from __future__ import annotations

import asyncio
import mimetypes
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from holmes.media.playable import Plan
from holmes.serve.guard import caller_of
from holmes.serve.models import LIMITS, Like, Playback, Timeline, Video, Videos
from holmes.serve.responses import Json, documented, state_of
from holmes.serve.routes_search import Filters, Sentence, Top
from holmes.serve.state import steps_of
from holmes.serve.streams import Converted, LimitedFile, follow_ranges

router = APIRouter(tags=["videos"])

Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,80}$", description="As /api/videos and hits give it.")]
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
) -> Response:
    state = state_of(request)

    def listed() -> dict[str, object]:
        found, part = state.catalogue.matching(filter), q.casefold()
        if part:
            found = [entry for entry in found if part in entry.name.casefold()]
        some = found[offset : offset + limit]
        return {"total": len(found), "videos": [state.video(entry) for entry in some]}

    return Json(await asyncio.to_thread(listed))


@router.get("/api/videos/{id}", **documented(Video, 404), summary="One video")
async def video(request: Request, id: Id) -> Response:
    state = state_of(request)
    return Json(await asyncio.to_thread(state.video, state.catalogue[id]))


@router.get("/api/videos/{id}/timeline", **documented(Timeline, 404), summary="Similarity along a video")
async def timeline(request: Request, id: Id, q: Sentence) -> Response:
    state = state_of(request)
    entry = state.catalogue[id]
    state.check(q)
    work = partial(state.index.timelines, q, [entry.name])
    (found,) = await state.batcher.do(work, caller_of(request.scope))
    return Json(steps_of(found, entry.duration))


@router.get("/api/videos/{id}/like", **documented(Like, 404), summary="Videos that look like a moment")
async def like(request: Request, id: Id, t: Second, top: Top = 10) -> Response:
    state = state_of(request)
    entry = state.catalogue[id]
    work = partial(state.index.like, entry.name, t, top)
    found = await state.batcher.do(work, caller_of(request.scope))
    return Json({"hits": await asyncio.to_thread(state.described, found.hits)})


@router.get(
    "/api/videos/{id}/thumbnail",
    **documented(None, 404, content={"content": {"image/jpeg": {}}}),
    summary="The picture at a moment",
)
async def thumbnail(
    request: Request, id: Id, t: Second = 0.0, width: Annotated[int, Query(ge=32, le=960)] = 480
) -> Response:
    state = state_of(request)
    jpeg = await state.thumbnails.at(state.catalogue[id], round(t, 1), width, caller_of(request.scope))
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
        return Converted(file, Plan(convert == "copied", t), state.decoders, state.conversions)
    follow_ranges(request.scope, file.stat().st_size)
    kind = TYPES.get(file.suffix.lower()) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    kind = kind if kind.startswith("video/") else "application/octet-stream"  # never a page of its own
    name = entry.title.encode("utf-8", "replace").decode() if download else None
    return LimitedFile(file, kind, name, state.streams)


@router.head("/api/videos/{id}/stream", include_in_schema=False)
async def stream_head(request: Request, id: Id) -> Response:
    return await stream(request, id)
