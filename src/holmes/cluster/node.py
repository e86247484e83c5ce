"""A shard as a node runs it: a process of its own, told from afar which states to be ready in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from holmes.cluster.connect import check_version
from holmes.cluster.letters import sealed, unsealed
from holmes.cluster.shard import Shard


class NodeShard(Shard):
    """What Ray makes an actor of."""

    def __init__(self, place: str, name: str, cache: str | None, device: str, threads: int) -> None:
        super().__init__(place, name, None if cache is None else str(Path(cache).expanduser()), device)
        self.threads = threads  # its share of the node's cores

    def be_ready(self, states: Sequence[str], version: str) -> list[str]:
        """Open these states and let go of others; return those that are open then, in the order given."""
        check_version(version)
        for digest in states:
            self.hold(digest)
        self.release(states)
        return list(states)

    def answer(self, question: bytes, shared: bytes) -> bytes:
        """What a method answers: named in the question with the state and what only this shard is asked."""
        torch.set_num_threads(self.threads)  # Ray sets it to 1, and threads that start later inherit that
        method, digest, own = unsealed(question)
        return sealed(getattr(self, method)(digest, *unsealed(shared), *own))
