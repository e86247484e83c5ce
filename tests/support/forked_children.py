"""Child processes that are forked from the tests' own: importing torch takes longer than their work.

They are processes like any other, which can be killed and end with their parent. How a child begins in an
interpreter of its own is what tests/base/test_processes.py is for.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from holmes.base import processes


def forked(command: Sequence[str], *, env: Mapping[str, str], **how: Any) -> subprocess.Popen[bytes]:
    """Do what `python -P -m holmes.base.processes TARGET SETUP` does, in a copy of this process."""

    def work() -> None:
        kept = {0, 1, 2, *how.get("pass_fds", ())}
        for number in map(int, os.listdir("/proc/self/fd")):
            if number not in kept:
                with suppress(OSError):  # of the listing itself
                    os.close(number)
        gc.enable()  # which it was before the fork
        os.environ.clear()
        os.environ.update(env)
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1)
        sys.argv = ["processes", *command[-2:]]
        try:
            processes.main()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    return subprocess.Popen(command, preexec_fn=work, **how)


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(processes, "subprocess", SimpleNamespace(Popen=forked, PIPE=subprocess.PIPE))
    yield
