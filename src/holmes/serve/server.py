"""Start the server, run it, and let running requests finish at its end."""

from __future__ import annotations

import logging
import resource
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import uvicorn

from holmes.errors import HolmesError
from holmes.index.answer.base import SearchIndex
from holmes.serve.app import create_app, create_libraries
from holmes.serve.connections import Connections
from holmes.serve.settings import Limits, ServeSettings
from holmes.serve.upload_folder import lock_folder

PATIENCE = 5  # seconds that open streams may take to end
SPARE_FILES = 200  # open files besides connections: the index, streams, processes


def serve(
    index: SearchIndex | Mapping[str, SearchIndex],
    settings: ServeSettings,
    *,
    joined: SearchIndex | None = None,
    why_separate: str | None = None,
    model: str | None = None,
    quiet: bool = False,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve an index, or several by their names, until told to stop.

    `joined` searches several as one, or `why_separate` says why not. `ready` is called when all is ready.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("holmes.serve").setLevel(logging.WARNING if quiet else logging.INFO)
    settings = replace(settings, limits=within_open_files(settings.limits))
    libraries = index if isinstance(index, Mapping) else {"": index}
    if settings.uploads is not None:
        for name, each in libraries.items():
            if each.describe().shards is not None:
                raise HolmesError("--uploads needs an index in a single folder; this one is sharded.")
            lock_folder(settings.uploads.absolute() / name).release()
    with _bound(settings) as listening:
        app: Any
        if isinstance(index, Mapping):
            app = create_libraries(index, settings, joined=joined, why_separate=why_separate, model=model)
        else:
            app = create_app(index, settings, model=model)
        Server(configured(app, settings.limits, settings.proxies), ready).run(sockets=[listening])


class Server(uvicorn.Server):
    """uvicorn that says when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()


def configured(app: Any, limits: Limits, proxies: Sequence[str] = (), **more: Any) -> uvicorn.Config:
    """uvicorn with the server's limits.

    uvicorn's `limit_concurrency` stays unset: it would answer 503 to everybody once somebody has opened so
    many connections. `Connections` closes those that wait longest instead, by address and in all.
    """
    return uvicorn.Config(
        app,
        http=Connections(limits, proxies).protocol(),  # type: ignore[arg-type]
        h11_max_incomplete_event_size=limits.header,
        timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
        access_log=False,  # uvicorn's own log would record what people ask
        server_header=False,
        ws="none",
        forwarded_allow_ips="",
        proxy_headers=False,
        **{"log_level": "error", "timeout_graceful_shutdown": PATIENCE, **more},
    )


def within_open_files(limits: Limits) -> Limits:
    """Limits for as many connections as the system lets this process have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return replace(limits, connections=max(1, min(limits.connections, soft - SPARE_FILES)))
    return limits


def _bound(settings: ServeSettings) -> socket.socket:
    """The listening socket, made here so that a port in use gives a line instead of a traceback."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise HolmesError(
            f"cannot listen on {settings.host} port {settings.port} ({reason}); choose another with --port."
        ) from None
    return listening
