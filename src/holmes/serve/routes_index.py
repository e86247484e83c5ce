"""Routes about the index and the server: description, health, and changes if allowed."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

import holmes
from holmes.serve.catalogue import FOLDERS_LISTED
from holmes.serve.guard import COOKIE, caller_of, same, session_of
from holmes.serve.jobs import Jobs
from holmes.serve.metrics import CONTENT_TYPE
from holmes.serve.models import About, Calibrated, Captions, Health, Hearing, Job, PathList, Paths, Token
from holmes.serve.responses import Json, documented, state_of
from holmes.serve.routes_videos import Id

router = APIRouter(tags=["index"])
log = logging.getLogger("holmes.serve")
MONTH = 30 * 24 * 3600  # seconds a browser stays known


@router.get("/api/index", **documented(About), summary="What the index is")
async def about(request: Request) -> Response:
    state = state_of(request)
    folders = [{"folder": name, "videos": count} for name, count in sorted(state.catalogue.folders.items())]
    notes = await asyncio.to_thread(state.skipped)
    return Json(
        {
            **state.about.to_dict(),
            "folders": folders[:FOLDERS_LISTED],
            **notes,
            "manage": state.settings.manage,
            "uploads": state.settings.uploads is not None,
            **request.app.state.neighbours.about(request.app.state.library),
            "version": holmes.__version__,
        }
    )


@router.get("/api/health", **documented(Health), summary="Whether the server is up")
async def health(request: Request) -> Response:
    state = state_of(request)
    return Json({"status": "ok", "token": state.settings.token is not None})


@router.get(
    "/metrics",
    **documented(None, content={"content": {"text/plain": {"schema": {"type": "string"}}}}),
    summary="Counts for Prometheus",
)
async def metrics(request: Request) -> Response:
    return Response(state_of(request).metrics.text(), media_type=CONTENT_TYPE)


@router.post("/api/session", **documented(Health, 413), summary="Exchange the token for a cookie")
async def session(request: Request, given: Token) -> Response:
    token = state_of(request).settings.token
    if token is not None and not same(given.token, token):
        return Json({"error": "that is not the token of this server."}, 401)
    response = Json({"status": "ok", "token": token is not None})
    if token is not None:
        response.set_cookie(COOKIE, session_of(token), max_age=MONTH, httponly=True, samesite="strict")
    return response


@router.get("/api/job", **documented(Job), summary="How far adding videos is")
async def job(request: Request) -> Response:
    jobs = jobs_of(request)
    if jobs.current.state == "done":  # whoever is told so finds what was added
        await state_of(request).reload_if_changed()
    return Json(jobs.to_json())


@router.post("/api/videos", **documented(Job, 409, 413), summary="Add videos (with --manage)")
async def add(request: Request, given: Paths) -> Response:
    return started(request, given)


@router.post("/api/sync", **documented(Job, 409, 413), summary="Make the index match folders (with --manage)")
async def sync(request: Request, given: Paths) -> Response:
    return started(request, given, follow=True)


def started(request: Request, given: Paths, **how: bool) -> Response:
    """How far adding is, which begins now."""
    state, jobs = state_of(request), managed_jobs_of(request)
    how |= {"fast": given.fast}
    jobs.add(state.changeable_path(), given.paths, state.catalogue.folders, workers=given.workers, **how)
    return Json(jobs.to_json())


@router.post(
    "/api/hear", **documented(Job, 409, 413), summary="Make words of videos searchable (with --manage)"
)
async def hear(request: Request, given: Hearing) -> Response:
    jobs = managed_jobs_of(request)
    jobs.start(state_of(request).changeable_path(), [], hear=True, workers=given.workers)
    return Json(jobs.to_json())


@router.post(
    "/api/calibrate",
    **documented(Calibrated, 409, 413, 503),
    summary="Fit the probabilities to sentences whose videos are known (with --manage)",
)
async def calibrate(request: Request, given: Captions) -> Response:
    state = state_of(request)
    managed_jobs_of(request)
    rows = [(row.sentence, row.video) for row in given.rows]
    work = partial(state.index.calibrate, rows)
    return Json((await state.batcher.do(work, caller_of(request.scope))).to_dict())


@router.get("/api/paths", **documented(PathList), summary="Files and folders to add (with --manage)")
async def paths(
    request: Request, prefix: Annotated[str, Query(max_length=4096, description="A path so far.")] = ""
) -> Response:
    state, jobs = state_of(request), managed_jobs_of(request)
    return Json({"paths": await asyncio.to_thread(jobs.complete, prefix, state.catalogue.folders)})


@router.delete("/api/videos/{id}", **documented(Job, 404, 409), summary="Remove a video (with --manage)")
async def remove(request: Request, id: Id) -> Response:
    state, jobs = state_of(request), managed_jobs_of(request)
    entry = state.catalogue[id]
    await jobs.remove(state.changeable_path(), entry.name)
    await state.reload_if_changed()
    return Json(jobs.to_json())


def jobs_of(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


def managed_jobs_of(request: Request) -> Jobs:
    """The same, for those who may change the index."""
    jobs = jobs_of(request)
    jobs.allow()
    return jobs
