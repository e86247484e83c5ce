"""Routes for several libraries, and one search over all."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from holmes.errors import HolmesError
from holmes.serve.batching import ServedQuestion
from holmes.serve.models import AllAnswers, Libraries
from holmes.serve.responses import Json, documented, state_of
from holmes.serve.routes_search import Filters, Sentence, Top, answer_json, ask_one
from holmes.serve.state import ServerState

router = APIRouter(tags=["libraries"])


@dataclass
class Neighbours:
    """All libraries of a server; none where it has only one index."""

    names: tuple[str, ...] = ()
    why_separate: str | None = None  # why they are not searched as one
    apps: dict[str, FastAPI] = field(default_factory=dict)
    joined: FastAPI | None = None

    def about(self, library: str | None) -> dict[str, Any]:
        """For the page of one of them, or of all together (None)."""
        return {"library": library, "libraries": list(self.names), "why_separate": self.why_separate}


@router.get("/api/libraries", **documented(Libraries), summary="The libraries of this server")
async def libraries(request: Request) -> Response:
    known = neighbours_of(request)
    listed = [{"name": name, "videos": len(app.state.server.catalogue)} for name, app in known.apps.items()]
    return Json({"libraries": listed, "joined": known.joined is not None, "why_separate": known.why_separate})


@router.get(
    "/api/libraries/search",
    **documented(AllAnswers, 503),
    summary="One search over all libraries",
)
async def search(request: Request, q: Sentence, filter: Filters, top: Top = 10) -> Response:
    """One answer with one distribution if the libraries are searched as one; else one for each library."""
    known = neighbours_of(request)
    if not known.apps or known.joined is not None:
        state = known.joined.state.server if known.joined is not None else state_of(request)
        searched: dict[str | None, ServerState] = {None: state}
    else:
        searched = {name: app.state.server for name, app in known.apps.items()}

    async def one(name: str | None, state: ServerState) -> dict[str, Any]:
        try:
            began = time.perf_counter()
            found = answer_json(state, await ask_one(state, request, ServedQuestion(q, top), filter), began)
        except HolmesError as error:  # an empty library, say: the others still answer
            if len(searched) == 1:
                raise
            return {"library": name, "answer": None, "error": str(error)}
        return {"library": name, "answer": found, "error": None}

    answers = await asyncio.gather(*(one(name, state) for name, state in searched.items()))
    return Json({"answers": answers, "joined": len(answers) == 1, "why_separate": known.why_separate})


def neighbours_of(request: Request) -> Neighbours:
    known: Neighbours = request.app.state.neighbours
    return known
