"""Every way in which a JSON file can lie, and commands that must survive it, each within limits."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import re
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.main import get_command

from holmes.cli import main as command_line

Path_ = tuple[str | int, ...]
GIB = 1 << 30
SECONDS = 2  # seconds of processor time; the test must not depend on how busy the machine is
PATIENCE = 60  # seconds until something counts as hanging

COMMAND = get_command(command_line.app)  # once: it takes as long as what is tested
DELETED = object()
TWICE = object()
VALUES: dict[str, Any] = {
    "deleted": DELETED,
    "there twice": TWICE,
    "null": None,
    "true": True,
    "text": "seven",
    "empty text": "",
    "number": 7.5,
    "negative": -3,
    "zero": 0,
    "huge": 10**18,
    "huger": 10**400,
    "tiny": 1e-300,
    "NaN": float("nan"),
    "infinite": float("inf"),
    "list": [],
    "object": {},
    "list of lists": [[1], [2]],
    "deep": json.loads("[" * 400 + "]" * 400),
    "long text": "long " * 20_000,
    "markup": "[/red][bold]\x1b[31mred\x9b31m\u202e",
    "lines": "one\ntwo\r\nthree",
    "upwards": "../../escaped",
    "elsewhere": "/tmp/escaped-from-holmes",
    "no text": "\ud800",
    "nul": "a\0b",
}


def key_paths(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Where in a JSON value something stands; of lists, and of entries all alike, only the first two."""
    if at:
        yield at
    if isinstance(value, dict) and len(value) > 2 and all(isinstance(item, dict) for item in value.values()):
        alike = len({tuple(item) for item in value.values()}) == 1
        value = dict(list(value.items())[:2]) if alike else value
    items = (
        value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    )
    for key, item in items:
        yield from key_paths(item, (*at, key))


def altered(value: Any, at: Path_, new: Any) -> str:
    """The JSON text of `value` with another value at that place."""
    value = copy.deepcopy(value)
    holder = value
    for key in at[:-1]:
        holder = holder[key]
    if new is DELETED:
        del holder[at[-1]]
    elif new is not TWICE:
        holder[at[-1]] = new
    elif isinstance(holder, dict):  # the key a second time, in the place of a mark that no text contains
        holder["\x01"] = holder[at[-1]]
        return json.dumps(value).replace('"\\u0001"', json.dumps(at[-1]))
    else:
        holder.append(holder[at[-1]])
    return json.dumps(value)


@dataclass(frozen=True)
class Outcome:
    code: int
    said: str  # on standard error
    shown: str  # on standard output
    seconds: float

    def check(self, refused: bool = True) -> None:
        """Require one line and exit code 2 or, where `refused` is not certain, a clean success."""
        assert "Traceback" not in self.said, self.said[-2000:]
        assert self.code == 2 or (self.code == 0 and not refused), (self.code, self.said, self.shown[-300:])
        assert self.seconds < SECONDS, f"it took {self.seconds:.1f} s"
        bad = re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", self.said + self.shown)
        assert bad is None, f"{bad[0]!r} reached the terminal: {self.said + self.shown!r}"
        if self.code == 2:
            last = self.said.rstrip("\n").split("\n")[-1]
            assert last.startswith("holmes: ") and len(last) < 1500, self.said
            assert self.said.count("holmes: ") == 1, self.said


def run_holmes(*words: object) -> Outcome:
    """A command in a forked process that may take 1 GiB more than this one has."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, json.dumps(_run(words)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status, used = os.wait4(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, f"{words} ended by signal: {status}"
    return Outcome(*json.loads(said), seconds=used.ru_utime + used.ru_stime)


def _run(words: tuple[object, ...]) -> tuple[int, str, str]:
    signal.alarm(PATIENCE)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + GIB, taken + GIB))
    sys.argv = ["holmes", *map(str, words)]
    command_line.app = COMMAND  # type: ignore[assignment]
    code, said, shown = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(shown):
        try:
            command_line.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:
            code = 1
            traceback.print_exc()
    return code, said.getvalue(), shown.getvalue()
