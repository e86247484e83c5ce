"""The application: an open index (or anything that searches like one) in, a page and an API out.

guard ─ routes ─ batcher ─ index
               ├ catalogue: videos by id ─ thumbnails, streams ─ decoders
               └ uploads ─ jobs ─ index
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from starlette.middleware import Middleware

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
from holmes.serve.neighbours import Neighbours
from holmes.serve.rates import Rates
from holmes.serve.responses import add_error_handlers
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
