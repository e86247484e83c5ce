"""Reach a Ray cluster, or start one on this machine."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import holmes
from holmes.errors import HolmesError, missing_packages

LOCAL, AUTO = "local", "auto"
PATIENCE = 5.0  # seconds for the head to accept a connection


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise missing_packages("a cluster", "ray==2.60.0", "fsspec") from None
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


# Health checks: a node that is silent for about six seconds counts as dead. Ray's own defaults take 40.
HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}
# Read by the processes of Ray when they start.
SETTINGS = {**HEALTH, "RAY_memory_monitor_refresh_ms": "0", "RAY_USAGE_STATS_ENABLED": "0"}
STORE = 80 << 20  # bytes of a node's object store


class SmallCluster:
    """A head without CPUs, so that nothing runs there, and nodes that do the work."""

    def __init__(self, nodes: int, cpus: int = 1) -> None:
        os.environ.update(SETTINGS)
        places = [str(Path(holmes.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, places)))
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
        self.cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.cpus = cpus
        self.nodes: list[Any] = []
        self.restore(nodes)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def kill(self, node: Any) -> None:
        """End all of a node's processes at once, as if somebody had pulled its plug."""
        for process in processes_of(node):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)

    @contextmanager
    def frozen(self, node: Any) -> Iterator[None]:
        """Inside the block, a node is there and does nothing, like a machine that hangs."""
        processes = processes_of(node)
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def restore(self, count: int) -> None:
        """Start new nodes until there are this many."""
        while len(self.nodes) < count:
            self.nodes.append(self.cluster.add_node(num_cpus=self.cpus, object_store_memory=STORE))

    def close(self) -> None:
        self.cluster.shutdown()

    def __enter__(self) -> SmallCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        self.close()


def processes_of(node: Any) -> list[int]:
    """The processes of a node: Ray's own, and those in which it runs actors and tasks."""
    raylet = int(node.all_processes["raylet"][0].process.pid)
    return [raylet, *children_of(raylet)]


def children_of(process: int) -> list[int]:
    """All that a process has started, and what these have; a thread or a process may end meanwhile."""
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *children_of(child)]
    return found
