"""Reach a Ray cluster, or say in one line why that fails."""

from __future__ import annotations

import logging
import os
import re
import socket
from typing import Any

from holmes.errors import HolmesError

LOCAL, AUTO = "local", "auto"
PATIENCE = 5.0  # seconds for the head to accept a connection


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise HolmesError("Ray is not installed; it comes with: pip install 'holmes[cluster]'.") from None
    return ray


def connect(address: str) -> bool:
    """Join the cluster at `address` (HOST:PORT of its head, auto, or local: one of this machine alone).

    Return whether this call made the connection; a process that is already connected stays where it is.
    """
    ray = import_ray()
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == LOCAL:
            ray.init(include_dashboard=False, **quiet)
        else:
            if address != AUTO:
                _check_reachable(address)
            ray.init(address=address, **quiet)
    except HolmesError:
        raise
    except Exception as error:  # Ray raises many kinds of them
        raise _in_one_line(address, error) from None
    return True


def _check_reachable(address: str) -> None:
    """Refuse quickly; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 2**16 or "/" in address:
        raise HolmesError(
            f"'{address}' is not the address of a Ray cluster; write HOST:PORT of its head, auto or local."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except OSError as error:
        reason = error.strerror or error
        raise HolmesError(
            f"there is no Ray cluster at {address} ({reason}); start its head with 'ray start --head', or "
            "use --ray local."
        ) from None


def _in_one_line(address: str, error: Exception) -> HolmesError:
    words = " ".join(str(error).split())
    if "ersion mismatch" in words:
        versions = dict(zip(("theirs", "ours"), re.findall(r"Ray: (\S+)", words), strict=False))
        pythons = re.findall(r"Python: (\S+)", words)
        theirs, ours = (
            f"Ray {versions.get(who, '?')} on Python {python}"
            for who, python in zip(("theirs", "ours"), (*pythons, "?", "?"), strict=False)
        )
        return HolmesError(
            f"the cluster at {address} has {theirs}, this machine {ours}; install the same versions on both."
        )
    if "InvalidAuthToken" in f"{error} {error.__cause__} {error.__context__}":
        return HolmesError(
            f"the Ray cluster at {address} asks for its token; set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN_PATH to the file that its nodes have."
        )
    if isinstance(error, ConnectionError) or "Could not find any running Ray instance" in words:
        return HolmesError(
            f"there is no Ray cluster at {address}; start its head with 'ray start --head', or use "
            "--ray local."
        )
    return HolmesError(f"the Ray cluster at {address} cannot be joined ({words[:300]}).")


def reason_of(error: BaseException) -> str:
    """What went wrong on a node, in one line."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, HolmesError):
        return str(cause)
    words = " ".join(str(cause or error).split())
    if "No module named 'holmes" in words:
        return "a node of the cluster lacks Holmes, or has another version; install the same one there."
    return f"{type(cause or error).__name__}: {words[:300]}"


def check_version(theirs: str) -> None:
    """Called on a node: two versions of the code may not understand each other."""
    import holmes

    if theirs != holmes.__version__:
        raise HolmesError(
            f"node {socket.gethostname()} has Holmes {holmes.__version__}, but this machine {theirs}; "
            "install the same version on both."
        )
