"""The application: from a `SearchIndex` to a page and an API.

Several libraries have an application each, with an index, jobs and uploads; they share only rates.

guard ─ routes ─ batcher ─ index
               ├ catalogue: videos by id ─ thumbnails, streams ─ decoders
               └ uploads ─ jobs ─ index
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse
from starlette.types import Receive, Scope, Send

import holmes
from holmes.index.answer.base import SearchIndex
from holmes.serve import (
    api_page,
    page,
    routes_export,
    routes_index,
    routes_libraries,
    routes_search,
    routes_searches,
    routes_uploads,
    routes_videos,
)
from holmes.serve.guard import Guard
from holmes.serve.jobs import Jobs
from holmes.serve.metrics import Metrics
from holmes.serve.rates import Rates
from holmes.serve.responses import add_error_handlers
from holmes.serve.routes_libraries import Neighbours
from holmes.serve.settings import ServeSettings
from holmes.serve.state import ServerState
from holmes.serve.uploads import Uploads

PARTS = (
    routes_search,
    routes_export,
    routes_videos,
    routes_index,
    routes_uploads,
    routes_libraries,
    routes_searches,
    api_page,
    page,
)


def create_app(
    index: SearchIndex,
    settings: ServeSettings | None = None,
    *,
    model: str | None = None,
    rates: Rates | None = None,
    neighbours: Neighbours | None = None,
    library: str | None = None,
) -> FastAPI:
    """`model` says where the index's checkpoint is now, if it has moved.

    One of several libraries shares the `rates` of clients with its `neighbours`, and has a name (`library`).
    """
    settings, metrics = settings or ServeSettings(), Metrics()
    rates = rates or Rates(settings.limits.rate, settings.limits.burst)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.jobs, app.state.uploads = Jobs(settings, model), None
        async with AsyncExitStack() as stack:
            state = await stack.enter_async_context(ServerState(index, settings, metrics, rates))
            app.state.server = state
            stack.push_async_callback(app.state.jobs.close)
            if settings.uploads is not None:
                state.changeable_path()  # refuses an index to which nothing can be added
                uploads = Uploads(settings, state, app.state.jobs)
                app.state.uploads = await stack.enter_async_context(uploads)
            yield

    app = FastAPI(
        title="Holmes",
        version=holmes.__version__,
        summary="Find the video that contains a moment, and know how sure the answer is.",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,  # the documentation page would load its parts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        middleware=[Middleware(Guard, settings=settings, metrics=metrics, rates=rates)],
    )
    app.state.neighbours, app.state.library = neighbours or Neighbours(), library
    for part in PARTS:
        app.include_router(part.router)
    app.state.routes = [route for part in PARTS for route in part.router.routes]
    add_error_handlers(app)
    return app


def create_libraries(
    indexes: Mapping[str, SearchIndex],
    settings: ServeSettings,
    *,
    joined: SearchIndex | None = None,
    why_separate: str | None = None,
    model: str | None = None,
) -> Libraries:
    """An application for several indexes; `joined` searches them as one, or `why_separate` says why not."""
    rates = Rates(settings.limits.rate, settings.limits.burst)
    neighbours = Neighbours(tuple(indexes), why_separate)
    for name, index in indexes.items():
        own = settings if settings.uploads is None else replace(settings, uploads=settings.uploads / name)
        neighbours.apps[name] = create_app(
            index, own, model=model, rates=rates, neighbours=neighbours, library=name
        )
    if joined is None:
        return Libraries(neighbours.apps, next(iter(neighbours.apps.values())))
    only_search = replace(settings, manage=False, uploads=None)
    neighbours.joined = create_app(joined, only_search, model=model, rates=rates, neighbours=neighbours)
    return Libraries(neighbours.apps, neighbours.joined)


@dataclass
class Libraries:
    """An ASGI application that hands each request to the library that its path names."""

    apps: dict[str, FastAPI]
    first: FastAPI  # for every other path
    _outer: Starlette = field(init=False)

    def __post_init__(self) -> None:
        @asynccontextmanager
        async def lifespan(outer: Starlette) -> AsyncIterator[None]:
            async with AsyncExitStack() as stack:
                for app in dict.fromkeys([*self.apps.values(), self.first]):
                    await stack.enter_async_context(app.router.lifespan_context(app))
                yield

        self._outer = Starlette(lifespan=lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._outer(scope, receive, send)
            return
        _, *rest = scope["path"].split("/", 2)  # "*" and "" have no slash
        name = rest.pop(0) if rest else ""
        app = self.apps.get(name)
        if app is None:
            await self.first(scope, receive, send)
        elif not rest:
            await RedirectResponse(f"{name}/", 308)(scope, receive, send)
        else:
            path = f"/{rest[0]}"
            await app({**scope, "path": path, "raw_path": path.encode()}, receive, send)
