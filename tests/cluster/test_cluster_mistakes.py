"""Clusters: what can go wrong before anything starts is said in one line, with exit code 2."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from holmes.cli.main import main
from holmes.cluster import connect as connecting
from holmes.cluster.connect import check_version, connect, reason_of
from holmes.cluster.write import split_index
from holmes.errors import HolmesError
from shard_fakes import make_index


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    split_index(make_index(folder, videos=6), folder / "shards", 2)
    return folder / "shards"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def line_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> str:
    monkeypatch.setattr(sys, "argv", ["holmes", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.count("\n") == 1 and "Traceback" not in said, said
    return said


@pytest.mark.parametrize("command", ["serve", "extract", "build"])
def test_without_ray(
    command: str,
    shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    words = {
        "serve": ["serve", shards],
        "extract": ["extract", tmp_path, "--out", tmp_path / "features"],
        "build": ["index", "build", tmp_path / "index", tmp_path],
    }[command]
    said = line_of(monkeypatch, capsys, *words, "--ray", "local")
    assert said == (
        "holmes: a cluster needs packages that are not installed: pip install ray==2.60.0 fsspec\n"
    )
    assert not list(tmp_path.iterdir())


def test_no_cluster_at_the_address(
    shards: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    address = f"127.0.0.1:{free_port()}"
    said = line_of(monkeypatch, capsys, "serve", shards, "--ray", address)
    assert f"there is no Ray cluster at {address} (Connection refused); start its head with" in said
    for wrong in ("nowhere", "ray://a:1", "host:0", "host:99999", ":6379"):
        said = line_of(monkeypatch, capsys, "serve", shards, "--ray", wrong)
        assert f"'{wrong}' is not the address of a Ray cluster; write HOST:PORT" in said


def test_what_is_not_sharded(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = line_of(monkeypatch, capsys, "serve", shards / "shard-0000", "--ray", "local")
    assert "is a single index, not a sharded one; make one of it: holmes index split" in said
    said = line_of(monkeypatch, capsys, "serve", tmp_path, "--ray", "local")
    assert "is not a sharded index (it has no shards.json)" in said


class Elsewhere:
    """Ray, in words that it uses when a cluster cannot be joined."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def is_initialized(self) -> bool:
        return False

    def init(self, **how: object) -> None:
        raise self.error


def refused_token() -> ConnectionError:
    """As `ray.init` fails where the cluster asks for a token: the reason stands in what caused it."""
    error = ConnectionError("Failed to connect to Ray cluster at 10.0.0.7:6379")
    error.__cause__ = RuntimeError("Failed to connect to GCS ... RPC error: InvalidAuthToken: ...")
    return error


MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.40.0
    Python: 3.12.1
This process on node 10.0.0.7 was started with:
    Ray: 2.60.0
    Python: 3.11.9
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError(MISMATCH),
            "has Ray 2.40.0 on Python 3.12.1, this machine Ray 2.60.0 on Python 3.11.9; install the same",
        ),
        (
            ConnectionError("Could not find any running Ray instance."),
            "there is no Ray cluster at auto; start",
        ),
        (
            refused_token(),
            "the Ray cluster at auto asks for its token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to",
        ),
        (ValueError("something\nlong"), "the Ray cluster at auto cannot be joined (something long)."),
    ],
)
def test_a_cluster_that_cannot_be_joined(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "import_ray", lambda: Elsewhere(error))
    with pytest.raises(HolmesError) as refused:
        connect("auto")
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_the_versions_that_ray_itself_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words above are Ray's own."""
    pytest.importorskip("ray")
    from ray._private.utils import check_version_info

    theirs = {"ray_version": "2.40.0", "python_version": "3.12.1"}
    with pytest.raises(RuntimeError) as error:
        check_version_info(theirs, "this process", raise_on_mismatch=True)
    line = str(connecting._in_one_line("a:1", error.value))
    assert line.startswith("the cluster at a:1 has Ray 2.40.0 on Python 3.12.1, this machine Ray 2.")


def test_nodes_with_another_holmes() -> None:
    check_version(sys.modules["holmes"].__version__)
    with pytest.raises(HolmesError, match=r"has Holmes [\d.]+, but this machine 0\.0\.9; install the same"):
        check_version("0.0.9")
    assert "lacks Holmes" in reason_of(ImportError("No module named 'holmes.cluster'"))
