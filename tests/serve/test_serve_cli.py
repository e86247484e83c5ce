"""`holmes serve`: starts, answers, ends when told, and says in one line what is wrong."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs

import pytest

import holmes
from holmes.cli import demo
from holmes.cli.main import main
from holmes.errors import HolmesError
from serve_fakes import build
from waiting import wait_for

# The command with the fake encoder in place of one that has weights.
COMMAND = """
import sys; sys.path[:0] = {paths!r}
from holmes.media.backbones.own import ENCODERS
from index_fakes import FakeJoint
ENCODERS["fake"] = FakeJoint()
from holmes.cli import demo
from holmes.cli.main import main
sys.argv[0] = "holmes"
main()
"""

SUPPORT = str(Path(__file__).parents[1] / "support")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    build(folder)
    (folder / "run.py").write_text(COMMAND.format(paths=[SUPPORT, *sys.path]))
    return folder


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(folder / "run.py"), "serve", str(folder / "index"), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def connected(
    address: str, process: subprocess.Popen[str], token: str | None = None
) -> holmes.serve.client.RemoteIndex:
    def tried() -> holmes.serve.client.RemoteIndex | None:
        assert process.poll() is None
        with suppress(HolmesError):
            return holmes.connect(address, token=token)
        return None

    found: holmes.serve.client.RemoteIndex
    (found,) = wait_for(lambda: [each] if (each := tried()) is not None else [])
    return found


def test_it_serves_until_it_is_told_to_stop(folder: Path) -> None:
    port = free_port()
    with started(folder, "--port", str(port)) as process:
        remote = connected(f"http://127.0.0.1:{port}", process)
        assert remote.search("dog runs beach").hits[0].video.endswith("coast.mp4")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert f"open http://127.0.0.1:{port}/ in a browser" in said and "4 videos in" in said
    assert "Traceback" not in said and "dog" not in said
    assert process.returncode in (0, 130)


def test_others_need_the_token_that_is_printed(folder: Path) -> None:
    port = free_port()
    with started(folder, "--port", str(port), "--host", "0.0.0.0", "--quiet") as process:
        assert process.stderr is not None
        lines = [process.stderr.readline(), process.stderr.readline()]
        assert lines[1].startswith("open http://")
        socket.create_connection(("127.0.0.1", port), 5).close()  # at once, not only when it is tried again
        token = re.search(r"#token=(\S+)", lines[1])
        assert token is not None and len(token[1]) >= 32
        with pytest.raises(HolmesError, match="a token is required"):
            connected(f"http://127.0.0.1:{port}", process).search("dog")
        assert connected(f"http://127.0.0.1:{port}", process, token[1]).search("dog").hits
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_the_printed_link_carries_any_token(folder: Path) -> None:
    token = "a+b/c&d=e%20 #f ä"
    with started(folder, "--port", str(free_port()), "--token", token, "--quiet") as process:
        assert process.stderr is not None
        process.stderr.readline()
        address = process.stderr.readline().split()[1]
    assert parse_qs(address.partition("#")[2]) == {"token": [token]}  # as the page reads it


def refused(
    folder: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """The one line that the command ends with."""
    monkeypatch.setattr(sys, "argv", ["holmes", "serve", str(folder / "index"), *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr().err
    assert end.value.code == 2 and "Traceback" not in said and "open http" not in said
    return said.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--token", "short"], "the token has 5 characters"),
        (["--port", "99999"], "65535"),
        (["--host", "999.1.1.1"], "cannot listen on 999.1.1.1"),
        (["--device", "toaster"], "unknown device 'toaster'"),
    ],
)
def test_mistakes_are_one_line(
    folder: Path,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert words in refused(folder, arguments, monkeypatch, capsys)


def test_a_port_in_use_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = refused(folder, ["--port", str(port)], monkeypatch, capsys)
    assert f"port {port} (Address already in use)" in line


def test_without_its_packages_it_says_which_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("holmes.serve.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install fastapi uvicorn" in refused(folder, [], monkeypatch, capsys)


@pytest.mark.parametrize("found", [True, False], ids=["on the path", "not on the path"])
def test_the_demo_ends_with_the_command_that_opens_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: bool
) -> None:
    steps = ("render", "extract_features", "pack_store", "train_both", "evaluate_both", "build", "ask")
    for step in (*steps, "write_report", "ask_speech"):
        monkeypatch.setattr(demo, step, lambda parts: None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "holmes").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "bin" / "holmes"), "demo"])
    monkeypatch.setattr(demo.shutil, "which", lambda name: f"/usr/bin/{name}" if found else None)
    demo.demo(tmp_path / "demo")
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last == f"      {'' if found else 'bin/'}holmes serve {tmp_path / 'demo' / 'index'}"
