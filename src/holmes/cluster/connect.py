"""Connect to a Ray cluster, or start one on this machine. Errors of Ray become one line.

Ray itself tries to connect for minutes, and leaves its token readable by other users.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import stat
from pathlib import Path
from typing import Any

import holmes
from holmes.errors import HolmesError, missing_packages

LOCAL, AUTO = "local", "auto"
CONNECT_TIMEOUT = 5.0  # seconds for the head to accept a connection


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise missing_packages("a cluster", "ray==2.60.0", "fsspec") from None
    return ray


def connect(address: str) -> bool:
    """Connect to the cluster at `address`: HOST:PORT of its head, auto, or local to start one here.

    Return whether this call connected; a process that is connected already keeps its cluster.
    """
    ray = import_ray()
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == LOCAL:
            make_token_private()
            ray.init(include_dashboard=False, **quiet)
            make_token_private()  # Ray may have written another one
        else:
            if address != AUTO:
                _check_reachable(address)
            ray.init(address=address, **quiet)
    except HolmesError:
        raise
    except Exception as error:  # Ray raises many kinds of them
        raise _in_one_line(address, error) from None
    return True


def nodes_alive() -> list[dict[str, float]]:
    """What each node of the cluster has: CPU, GPU, memory."""
    return [node["Resources"] for node in import_ray().nodes() if node["Alive"]]


def make_token_private() -> None:
    """Make the token of a cluster on this machine readable by its user alone.

    Whoever has the token can run code in the cluster. Ray would write it to a file that others may read, so
    the file is made here before Ray starts. Files named by `RAY_AUTH_TOKEN_PATH` are left alone.
    """
    if "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ:
        return
    path = Path.home() / ".ray" / "auth_token"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        path.chmod(0o600)
    else:
        with open(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise HolmesError(f"{path} can be read by others; move it to a disk that keeps permissions.")


def _check_reachable(address: str) -> None:
    """Refuse quickly; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 2**16 or "/" in address:
        raise HolmesError(
            f"'{address}' is not the address of a Ray cluster; write HOST:PORT of its head, auto or local."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT).close()
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


def our_error(error: BaseException) -> HolmesError | None:
    """What Holmes itself refused on a node; None where an error of Ray is about something else."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, HolmesError) else None


def reason_of(error: BaseException) -> str:
    """What went wrong on a node, in one line."""
    if (ours := our_error(error)) is not None:
        return str(ours)
    cause = getattr(error, "cause", None)
    words = " ".join(str(cause or error).split())
    if "No module named 'holmes" in words:
        return "a node of the cluster lacks Holmes, or has another version; install the same one there."
    return f"{type(cause or error).__name__}: {words[:300]}"


def check_version(theirs: str) -> None:
    """Called on a node: two versions of the code may not understand each other."""

    if theirs != holmes.__version__:
        raise HolmesError(
            f"node {socket.gethostname()} has Holmes {holmes.__version__}, but this machine {theirs}; "
            "install the same version on both."
        )
