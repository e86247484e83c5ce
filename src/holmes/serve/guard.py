"""Checks of every request: host, origin, token, rate.

- The Host header must name the server itself, which stops DNS rebinding.
- A request that another site's page makes is refused.
- Where a token is set, it or the session made from it is required.
- Each client has a limited rate, each request a limited size.
- Every response carries headers that keep the page to itself.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import logging
import math
import re
import socket
import time
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holmes.serve.connections import client_name
from holmes.serve.metrics import Metrics
from holmes.serve.rates import Rates
from holmes.serve.settings import ServeSettings, TrustedProxies, is_loopback
from holmes.serve.turns import Caller

log = logging.getLogger("holmes.serve")

CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",  # the picture somebody searches with
        "media-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
OPEN_PATHS = {"/api", "/api/health", "/api/session"}  # allowed without a token, like the page itself
COOKIE = "holmes_session"
LONGEST_PATH = 200  # characters of a path that are logged
DEFAULT_PORTS = {"http": 80, "https": 443}
WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
# Of what is sent, these count against the client's connections (`Connections.faults`). Pages ask for pictures
# by the hundred, so requests without a body do not.
REFUSED = {400, 409, 412, 413, 429, 503, 507}
TOO_MANY = "too many requests; wait a moment."


@dataclass(frozen=True)
class Refusal:
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...] = ()


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics, rates: Rates) -> None:
        self.app, self.settings, self.metrics, self.rates = app, settings, metrics, rates
        self.names, self.proxies = own_names(settings), TrustedProxies(settings.proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        if self.settings.proxies and scope.get("client"):
            peer, port = scope["client"]
            scope["client"] = self.proxies.client(peer, Headers(scope=scope).get("x-forwarded-for", "")), port

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {
                    **message,
                    "headers": [*message["headers"], *(one for one in added if one[0] not in present)],
                }
            await send(message)

        try:
            refusal = self.refuse(scope)
            body = None
            if refusal is None and scope["method"] not in ("GET", "HEAD", "OPTIONS") and not is_piece(scope):
                body, refusal = await self._body(scope, receive)
            if refusal is not None:
                await respond(guarded, refusal)
            else:
                await self.app(scope, receive if body is None else replay(body, receive), guarded)
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.answered(route, status, seconds)
            if status in REFUSED and scope["method"] not in ("GET", "HEAD"):
                scope.get("state", {}).get("fault", lambda: None)()
            # Neither what was asked nor any token is logged: only the path, which has at most ids in it.
            path = scope["path"].encode("ascii", "backslashreplace").decode()[:LONGEST_PATH]
            log.info("%s %r %d %.0f ms", scope["method"], path, status, 1e3 * seconds)

    def refuse(self, scope: Scope) -> Refusal | None:
        """Why this request is refused, as far as that is known before its body is read."""
        headers, path = Headers(scope=scope), scope["path"]
        if not self.is_own(headers.get("host", "")):
            return Refusal(
                421, "this server does not answer to that host name; --name HOST makes it one of its own."
            )
        if foreign(headers, path):
            return Refusal(403, "requests from other sites are refused.")
        wait = self.rates.wait(client_of(scope))
        if wait:
            return Refusal(429, TOO_MANY, (("retry-after", str(max(1, math.ceil(wait)))),))
        if self.settings.token and needs_token(path) and not self.is_known(headers):
            return Refusal(401, "a token is required.", (("www-authenticate", "Bearer"),))
        return None

    def is_own(self, host: str) -> bool:
        """Whether the Host header names this server; foreign names that were made to point here do not."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return is_loopback(name)
        return address.is_loopback or not is_loopback(self.settings.host)

    def is_known(self, headers: Headers) -> bool:
        token = self.settings.token or ""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and same(given.strip(), token):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and same(cookie.value, session_of(token))

    async def _body(self, scope: Scope, receive: Receive) -> tuple[bytes, Refusal | None]:
        most = self.settings.limits.body
        refusal = Refusal(413, f"a request may have {most:,} bytes at most.", (("connection", "close"),))
        length = Headers(scope=scope).get("content-length", "0")
        if not WHOLE_NUMBER.fullmatch(length) or int(length) > most:
            return b"", refusal
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":  # the rest will not come
                return b"", Refusal(400, "the request ended before its body did.")
            body += message.get("body", b"")
            if len(body) > most:
                return b"", refusal
            if not message.get("more_body"):
                return body, None


def own_names(settings: ServeSettings) -> set[str]:
    names = {settings.host, *settings.names}
    if not is_loopback(settings.host):
        names |= {socket.gethostname(), socket.getfqdn()}
    return {name.lower().rstrip(".") for name in names}


def foreign(headers: Headers, path: str) -> bool:
    """Whether another site's page makes this request; following a link to the page itself is fine."""
    origin = headers.get("origin")
    if origin is not None and not same_origin(origin, headers.get("host", "")):
        return True
    elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    return elsewhere and path.startswith(("/api", "/metrics"))


def same_origin(origin: str, host: str) -> bool:
    """Whether a page of this origin came from this host; a port that the scheme implies may be left out."""
    try:
        page = urlsplit(origin)
        own = urlsplit(f"//{host}")
        default = DEFAULT_PORTS.get(page.scheme)
        return default is not None and host_and_port(page, default) == host_and_port(own, default)
    except ValueError:
        return False


def host_and_port(parts: SplitResult, default: int) -> tuple[str | None, int]:
    return parts.hostname, default if parts.port is None else parts.port


def client_of(scope: Scope) -> str:
    """Who asks, as limits count clients."""
    return client_name(scope["client"][0] if scope.get("client") else None)


def caller_of(scope: Scope) -> Caller:
    """The same, and the connection that it asks through: clients behind one proxy have one of their own."""
    return Caller(client_of(scope), scope["client"][1] if scope.get("client") else 0)


def is_piece(scope: Scope) -> bool:
    """Whether the body is a piece of an uploaded file, which goes to the disk as it comes."""
    return bool(scope["method"] == "PATCH" and scope["path"].startswith("/api/uploads/"))


def needs_token(path: str) -> bool:
    return path.startswith(("/api", "/metrics")) and path not in OPEN_PATHS


def session_of(token: str) -> str:
    """What a browser keeps instead of the token itself."""
    return hmac.new(token.encode(), b"holmes session", hashlib.sha256).hexdigest()


def same(given: str, true: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), true.encode())


async def respond(send: Send, refusal: Refusal) -> None:
    body = json.dumps({"error": refusal.reason}).encode()
    headers = [("content-type", "application/json"), ("content-length", str(len(body))), *refusal.headers]
    raw = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": refusal.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def replay(body: bytes, receive: Receive) -> Receive:
    """Hand the body to the application once more, then what comes after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
