"""What the nodes of a test cluster do with a job: ask, report, answer, fail or die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from holmes.errors import HolmesError


def worker(parent: Any, factor: int) -> Callable[[Any], Any]:
    def work(job: Any) -> Any:
        if job == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if job == "fail":
            raise HolmesError("this job cannot be done")
        parent.report(job)
        return factor * job + parent.request({"of": job})

    return work
