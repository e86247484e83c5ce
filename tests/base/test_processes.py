"""Child processes: one that dies costs one job, none outlives its parent, every message is heard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from holmes.base.processes import Child, Finished, Message, run_jobs
from waiting import LONG, wait_for

WORKERS = """
import os, signal, threading
from pathlib import Path
from holmes.errors import HolmesError

def toy(parent, greeting="it was"):
    def work(job):
        if job == "crash":
            os.abort()
        if job == "leave":
            raise SystemExit("no more")
        if job == "stuck":
            threading.Event().wait()
        if job == "refused":
            raise HolmesError("this is refused")
        if job == "broken":
            raise KeyError("broken")
        print("what a library prints is no message")
        for step in range(3):
            parent.report(step)
        if job == "ask":
            return parent.request("who?")
        return f"{job} {greeting}"
    return work

def missing(parent):
    raise HolmesError("the model is missing")

def waits(parent):
    def work(folder):
        Path(folder, str(os.getpid())).touch()
        threading.Event().wait()
    return work

def starts_another(parent):
    from functools import partial
    from holmes.base.processes import Child, run_jobs
    def work(folder):
        Path(folder, str(os.getpid())).touch()
        list(run_jobs(partial(Child, "toy_workers:waits"), [(1, folder)], 1))
    return work

def environment(parent):
    import random
    return lambda name: os.environ[name]
"""


@pytest.fixture(autouse=True)
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "workers"
    folder.mkdir()
    (folder / "toy_workers.py").write_text(WORKERS)
    monkeypatch.syspath_prepend(folder)
    return folder


def by_name(names: list[str], at_once: int = 2, **how: float) -> dict[str, Finished[str]]:
    start = partial(Child, "toy_workers:toy")
    return {each.job: each for each in run_jobs(start, ((name, name) for name in names), at_once, **how)}


def test_a_child_that_dies_costs_one_job() -> None:
    names = ["one", "crash", "two", "refused", "leave", "stuck", "broken", "three", "four"]
    found = by_name(names, timeout=5.0)
    assert set(found) == set(names)
    for name in ("one", "two", "three", "four"):
        assert (found[name].result, found[name].failure) == (f"{name} it was", "")
    assert found["refused"].failure == "this is refused" and found["refused"].ending is None
    assert found["broken"].failure == "KeyError: 'broken'"
    crash, leave = found["crash"].ending, found["leave"].ending
    assert crash is not None and leave is not None
    assert (crash.signal, str(crash)) == ("SIGABRT", "its process was ended by SIGABRT")
    assert (leave.signal, str(leave)) == ("", "its process ended with code 1: no more")
    assert "no progress" in found["stuck"].failure


def test_settings_that_fail_fail_every_job_and_say_why() -> None:
    found = list(run_jobs(partial(Child, "toy_workers:missing"), [(n, n) for n in range(3)], 1))
    assert [each.failure for each in found] == ["the model is missing"] * 3


def test_every_report_and_answer_is_heard() -> None:
    heard: list[tuple[str, int]] = []
    start = partial(
        Child,
        "toy_workers:toy",
        setup={"greeting": "as told"},
        answer=lambda request, reply: reply(f"{request} you"),
    )
    begun: list[str] = []
    jobs = [(name, name) for name in ("one", "ask")]
    report = lambda job, step: heard.append((job, step))  # noqa: E731
    found = {each.job: each.result for each in run_jobs(start, jobs, 1, begin=begun.append, report=report)}
    assert found == {"one": "one as told", "ask": "who? you"}
    assert heard == [(name, step) for name in ("one", "ask") for step in range(3)]
    assert begun == ["one", "ask"]


def test_whoever_stops_listening_leaves_no_child(tmp_path: Path) -> None:
    children: list[Child] = []

    def start(listener) -> Child:
        children.append(Child("toy_workers:toy", listener))
        return children[-1]

    jobs = run_jobs(start, [(name, name) for name in ("one", "stuck", "two")], 2)
    assert next(jobs).result == "one it was"
    jobs.close()
    assert len(children) == 2 and not any(child.alive for child in children)


def test_one_child_by_itself_ends_with_a_message() -> None:
    messages: list[Message] = []
    child = Child("toy_workers:toy", lambda sender, message: messages.append(message))
    child.send("one")
    wait_for(lambda: any(message.kind == "result" for message in messages))
    child.stop()
    assert [message.kind for message in messages] == ["report"] * 3 + ["result", "ended"]
    assert messages[-1].value.signal == "SIGKILL" and not child.alive
    child.send("two")  # nobody is there: nothing happens


def test_the_current_folder_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('this is not the library you look for')")
    monkeypatch.chdir(tmp_path)
    start = partial(Child, "toy_workers:environment", environment={"OPENBLAS_NUM_THREADS": "1"})
    (found,) = run_jobs(start, [(1, "OPENBLAS_NUM_THREADS")], 1)
    assert (found.result, found.failure) == ("1", "")


SCRIPT = """
import signal, sys
from functools import partial
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
sys.path.insert(0, {workers!r})
from holmes.base.processes import Child, run_jobs
list(run_jobs(partial(Child, "toy_workers:{target}"), [(n, {folder!r}) for n in range(2)], 2))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("target", "count"), [("waits", 2), ("starts_another", 4)])
def test_no_child_outlives_its_parent(
    tmp_path: Path, workers: Path, how: signal.Signals, target: str, count: int
) -> None:
    """Nor does a child of a child: each holds the pipe that the next one reads."""
    folder = tmp_path / "started"
    folder.mkdir()
    script = SCRIPT.format(workers=str(workers), folder=str(folder), target=target)
    parent = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list(folder.iterdir())) == count)
    children = [int(path.name) for path in folder.iterdir()]
    assert all(alive(child) for child in children)
    parent.send_signal(how)
    assert parent.wait(timeout=LONG) != 0
    wait_for(lambda: not any(alive(child) for child in children))


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_child_ignores_ctrl_c(tmp_path: Path) -> None:
    """The terminal sends it to the whole group; the parent decides what ends."""
    messages: list[Message] = []
    child = Child("toy_workers:waits", lambda sender, message: messages.append(message))
    child.send(str(tmp_path))
    wait_for(lambda: (tmp_path / str(child.pid)).exists())
    os.kill(child.pid, signal.SIGINT)
    os.kill(child.pid, signal.SIGCONT)
    assert child.alive
    child.stop()
    assert messages[-1].value.signal == "SIGKILL"
