"""The settings and limits of a server."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

MOST_HOPS = 10  # proxies between a client and the server
LEAST_TOKEN = 16  # characters; fewer could be guessed


@dataclass(frozen=True)
class Limits:
    """What one server takes on; more is refused with the reason."""

    query: int = 500  # characters of a sentence
    top: int = 100  # hits of an answer
    sentences: int = 64  # in one request
    header: int = 32 * 1024  # bytes of a request's first line and headers
    body: int = 64 * 1024  # bytes of a request
    rate: float = 50.0  # requests per second from one address, on average; each sentence counts as one
    burst: int = 500  # requests that may come at once: a page of results is many pictures
    waiting: int = 1024  # sentences that may wait for the scan
    batch: int = 128  # sentences in one scan
    batch_characters: int = 6400  # of these sentences, and what their hits cost besides
    connections: int = 1000
    connections_per_address: int = 100
    faults: int = 50  # of one address, such as an endless header, before its connections are refused
    fault_rate: float = 1.0  # faults per second that are forgiven
    header_seconds: float = 10.0  # until a header is complete
    body_seconds: float = 20.0  # until a body is complete
    send_seconds: float = 30.0  # until a client reads on
    idle_seconds: float = 30.0  # until the next request of a connection
    streams: int = 16  # files sent at once
    streams_per_address: int = 6
    conversions: int = 2  # videos converted at once
    cut_moments: int = 50  # of one reel
    cut_seconds: float = 600.0  # of the films, in one clip or reel
    decoding: int = 256  # pictures that may wait to be decoded
    decode_seconds: float = 20.0  # until a picture is decoded
    paths: int = 100  # files and folders added in one request
    upload: int = 100 << 30  # bytes of an uploaded file
    piece: int = 16 << 20  # bytes of a piece of it
    upload_rate: float = 64 * 2**20  # bytes per second of all uploads together; searches come first
    spare: int = 1 << 30  # bytes that uploads leave free on the disk
    unfinished: int = 200  # uploads
    unfinished_per_address: int = 20
    receiving: int = 16  # pieces at once
    receiving_per_address: int = 4
    unfinished_seconds: float = 24 * 3600  # until an upload that was begun is dropped
    announced_seconds: float = 600.0  # the same, if none of it came


@dataclass(frozen=True)
class ServeSettings:
    """Where to listen, who may ask, and what they may do."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None  # required where others can reach the server
    names: tuple[str, ...] = ()  # further host names the server is known by
    manage: bool = False  # whether videos may be added and removed
    add_from: tuple[Path, ...] = ()  # folders from which videos may be added, besides those in the index
    proxies: tuple[str, ...] = ()  # addresses or networks whose X-Forwarded-For is believed
    uploads: Path | None = None  # where sent files go; None takes none
    limits: Limits = field(default_factory=Limits)


class TrustedProxies:
    """Proxies in front of the server, by address or network such as 172.16.0.0/12."""

    def __init__(self, named: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(each, strict=False) for each in named]

    def __contains__(self, address: str | None) -> bool:
        try:
            parsed = ipaddress.ip_address(address or "")
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)

    def client(self, peer: str, forwarded: str) -> str:
        """Who asks: the last address of X-Forwarded-For that no proxy has, if the peer is a proxy."""
        if peer not in self:
            return peer
        for each in reversed(forwarded.split(",")[-MOST_HOPS:]):
            try:
                address = str(ipaddress.ip_address(each.strip()))
            except ValueError:
                return peer
            if address not in self:
                return address
        return peer


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
