"""Start the server and run it until it is told to stop; requests under way are finished first."""

from __future__ import annotations

import logging
import socket
import sys

import uvicorn

from holmes.errors import HolmesError
from holmes.index.answer.base import SearchIndex
from holmes.serve.app import create_app
from holmes.serve.settings import ServeSettings

PATIENCE = 5  # seconds that open streams may take to end
IDLE = 30  # seconds a connection may wait for its next request


def serve(
    index: SearchIndex, settings: ServeSettings, *, model: str | None = None, quiet: bool = False
) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("holmes.serve").setLevel(logging.WARNING if quiet else logging.INFO)
    with _bound(settings) as listening:
        uvicorn.Server(
            uvicorn.Config(
                create_app(index, settings, model=model),
                access_log=False,  # uvicorn's own log would record what people ask
                log_level="warning",
                server_header=False,
                timeout_graceful_shutdown=PATIENCE,
                timeout_keep_alive=IDLE,
                ws="none",
                forwarded_allow_ips="",
                proxy_headers=False,
            )
        ).run(sockets=[listening])


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
