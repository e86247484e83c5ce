"""HTTP connections with deadlines for headers, bodies and sends, and limits on their number.

The parser is h11, which bounds the bytes of a header; uvicorn does the rest. A connection over a cap takes
the place of the one that has waited longest without a complete request, so half-open connections lock nobody
out. A client whose connections end by its own fault again and again is refused before anything is read, which
costs more than the refusal.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from holmes.serve.rates import Rates
from holmes.serve.settings import Limits, TrustedProxies

REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b'retry-after: 1\r\ncontent-length: 46\r\n\r\n{"error": "too many connections are open now"}'
)
BARRED = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b'retry-after: 10\r\ncontent-length: 76\r\n\r\n{"error": "too many requests of yours could not be read; '
    b'wait ten seconds."}'
)


def client_name(address: str | None) -> str:
    """What limits are counted by: an IPv4 address, or the /64 network that one IPv6 client owns."""
    try:
        parsed = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or "unknown"
    if parsed.version == 4:
        return str(parsed)
    mapped = parsed.ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.ip_network((int(parsed), 64), strict=False))


class Connections:
    """Every open connection of a server."""

    def __init__(self, limits: Limits, proxies: Sequence[str] = ()) -> None:
        self.limits, self.proxies = limits, TrustedProxies(proxies)
        self.open: Counter[str] = Counter()
        self.waiting: dict[LimitedProtocol, None] = {}  # without a complete request, the oldest first
        self.faults = Rates(limits.fault_rate, limits.faults)

    def protocol(self) -> Callable[..., LimitedProtocol]:
        """What uvicorn makes a connection with."""
        return partial(LimitedProtocol, registry=self)

    def is_barred(self, client: str) -> bool:
        """Whether a client has misbehaved too often lately; a proxy has many clients, and is never barred."""
        return self.faults.is_spent(client) and client not in self.proxies

    def admit(self, client: str) -> bool:
        """Whether one more connection may stay; it may displace an older one that waits."""
        if self.open[client] > self.limits.connections_per_address and client not in self.proxies:
            return self._displace(lambda held: held.address == client)
        if self.open.total() > self.limits.connections:
            return self._displace(lambda held: True)
        return True

    def _displace(self, fits: Callable[[LimitedProtocol], bool]) -> bool:
        oldest = next((held for held in self.waiting if fits(held)), None)
        if oldest is None:
            return False
        self.waiting.pop(oldest)
        oldest.transport.abort()
        return True


class LimitedProtocol(H11Protocol):
    """One connection; `scope["state"]` lets the application end it ("abort") and count a fault ("fault")."""

    def __init__(self, *args: Any, registry: Connections, **more: Any) -> None:
        super().__init__(*args, **more)
        self.registry, self.limits = registry, registry.limits
        self.address = "unknown"
        self._phase, self._deadline = "", _Deadline(self.loop)
        self._sending = _Deadline(self.loop)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort, "fault": self._fault}
        self.address = client_name(self.client[0] if self.client else None)
        self.registry.open[self.address] += 1
        if self.registry.is_barred(self.address):
            transport.write(BARRED)
            self._close_soon()
            return
        if not self.registry.admit(self.address):
            transport.write(REFUSAL)
            self._close_soon()
            return
        self._enter("header", self.limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.clear()
        self._sending.clear()
        self.registry.waiting.pop(self, None)
        self.registry.open[self.address] -= 1
        self.registry.open += Counter()  # forgets who has none
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)
            self._follow()

    def on_response_complete(self) -> None:
        unread = self.conn.their_state is h11.SEND_BODY  # refused before all of it came: do not read the rest
        super().on_response_complete()
        if unread or self.transport.is_closing():
            self._close_soon()
        else:
            self._follow()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self._fault()
        self._close_soon()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._close_soon()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sending.set(self.limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._sending.clear()

    def _follow(self) -> None:
        """Start the deadline of what the client has to send next."""
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._enter("body", self.limits.body_seconds)
        elif state is h11.IDLE and self.conn.trailing_data[0]:
            self._enter("header", self.limits.header_seconds)
        elif state is h11.IDLE:
            self._enter("idle", None)  # uvicorn's own timer ends it
        else:
            self._enter("answered", None)

    def _enter(self, phase: str, seconds: float | None) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        self.registry.waiting.pop(self, None)
        if phase != "answered":
            self.registry.waiting[self] = None
        if seconds is None:
            self._deadline.clear()
        else:
            self._deadline.set(seconds, self._too_slow)

    def _too_slow(self) -> None:
        if (
            self._phase == "body" or self.conn.trailing_data[0]
        ):  # browsers open connections that they never use
            self._fault()
        self.transport.abort()

    def _fault(self) -> None:
        self.registry.faults.spend(self.address)

    def _close_soon(self) -> None:
        """Send what is left, but do not wait for a client that does not read it."""
        self.transport.close()
        self._sending.set(self.limits.send_seconds, self.transport.abort)


class _Deadline:
    """Something that happens unless it is cleared in time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    def set(self, seconds: float, then: Callable[[], None]) -> None:
        self.clear()
        self._handle = self._loop.call_later(seconds, then)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
