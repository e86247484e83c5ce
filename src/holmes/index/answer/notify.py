"""Report new matches of saved searches to a command or a webhook."""

from __future__ import annotations

import ipaddress
import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from holmes.errors import HolmesError
from holmes.index.answer.searches import SearchMatch

SECONDS = 30.0  # for a command or a webhook


@dataclass(frozen=True)
class Notifier:
    """Tells of matches; both ways get the match as JSON."""

    command: Sequence[str] = ()  # a program and its arguments; the JSON comes on its standard input
    webhook: str | None = None  # gets the JSON by POST; redirects are not followed

    def tell(self, match: SearchMatch) -> str | None:
        """Why it could not be told, in one line; None if it was."""
        content = json.dumps(match.to_dict()).encode()
        try:
            if self.command:
                done = subprocess.run(self.command, input=content, capture_output=True, timeout=SECONDS)
                if done.returncode:
                    return f"{self.command[0]} ended with code {done.returncode}"
            if self.webhook is not None:
                _post(self.webhook, content)
        except subprocess.TimeoutExpired:
            return f"{self.command[0]} took more than {SECONDS:g} seconds"
        except (OSError, URLError, HTTPException) as error:
            why = error if isinstance(error, HTTPError) else getattr(error, "reason", None) or error
            return f"{self.webhook or self.command[0]}: {why}"
        return None


def make_notifier(command: str | None, webhook: str | None, allowed: Sequence[str] = ()) -> Notifier:
    """A notifier from what the user wrote, checked before anything is searched."""
    try:
        words = shlex.split(command or "")
    except ValueError as error:
        raise HolmesError(f"--command {command}: {str(error).lower()}.") from None
    if webhook is not None:
        check_webhook(webhook, allowed)
    return Notifier(words, webhook)


def check_webhook(url: str, allowed: Sequence[str]) -> None:
    """Refuse an address that is neither on this machine nor allowed."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise HolmesError(f"--webhook {url}: write an address such as http://127.0.0.1:9000/holmes.")
    if host not in {name.lower() for name in allowed} and not _is_here(host):
        raise HolmesError(
            f"--webhook {url}: only addresses of this machine are told of matches; --allow-host {host} "
            "allows this one."
        )


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


def _post(url: str, content: bytes) -> None:
    request = Request(url, content, {"content-type": "application/json"})
    with build_opener(_NoRedirects, ProxyHandler({})).open(request, timeout=SECONDS) as response:
        response.read(1)
