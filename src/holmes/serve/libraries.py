"""Several libraries behind one address: /NAME/ is each of them, / all together or, if they differ, the first.

Every library is an application of its own, with its own index, jobs and uploads. Only rates are shared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import RedirectResponse
from starlette.types import Receive, Scope, Send

from holmes.index.answer.base import SearchIndex
from holmes.serve.app import create_app
from holmes.serve.neighbours import Neighbours
from holmes.serve.rates import Rates
from holmes.serve.settings import ServeSettings


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
