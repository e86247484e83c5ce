"""A Ray cluster on this machine, for tests and benchmarks. Its nodes can be killed and frozen."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import holmes

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
