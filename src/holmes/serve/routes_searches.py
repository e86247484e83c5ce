"""Routes for saved searches: list for everybody, save and remove with --manage."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from holmes.index.answer.searches import read_searches, remove_search, save_search
from holmes.serve.guard import caller_of
from holmes.serve.models import NewSearch, Searches
from holmes.serve.responses import Json, documented, state_of
from holmes.serve.routes_index import managed_jobs_of
from holmes.serve.state import ServerState

router = APIRouter(tags=["searches"])


@router.get("/api/searches", **documented(Searches), summary="The saved searches")
async def searches(request: Request) -> Response:
    return await listed(state_of(request))


@router.post("/api/searches", **documented(Searches, 413, 503), summary="Save a search (with --manage)")
async def save(request: Request, given: NewSearch) -> Response:
    state = state_of(request)
    managed_jobs_of(request)
    state.check(given.sentence)
    path = state.changeable_path()
    work = partial(save_search, state.index, path, given.sentence, given.name, given.least)
    await state.batcher.do(work, caller_of(request.scope))
    return await listed(state)


@router.delete("/api/searches", **documented(Searches), summary="Remove a saved search (with --manage)")
async def remove(request: Request, name: Annotated[str, Query(max_length=100)]) -> Response:
    state = state_of(request)
    managed_jobs_of(request)
    await asyncio.to_thread(remove_search, state.changeable_path(), name)
    return await listed(state)


async def listed(state: ServerState) -> Response:
    found = await asyncio.to_thread(read_searches, Path(state.about.path))
    return Json({"searches": [search.to_dict() for search in found]})
