"""Clusters: what can go wrong before anything starts is said in one line, with exit code 2."""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holmes.cli.main import main
from holmes.cluster import connect as connecting
from holmes.cluster.connect import check_version, connect, reason_of
from holmes.cluster.write import split_index
from holmes.errors import HolmesError
from shard_fakes import make_index
from waiting import LONG


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


TOKEN = ".ray/auth_token"


@pytest.mark.parametrize("before", [None, "an earlier token"])
def test_others_cannot_read_the_token_of_a_local_cluster(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is private before Ray starts, and an earlier one is made so; it is not replaced."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    if before is not None:
        (tmp_path / ".ray").mkdir()
        (tmp_path / TOKEN).write_text(before)
        (tmp_path / TOKEN).chmod(0o644)
    mask = os.umask(0)
    try:
        connecting.make_token_private()
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / TOKEN).stat().st_mode) == 0o600
    text = (tmp_path / TOKEN).read_text()
    assert text == before if before is not None else len(text) == 64
    monkeypatch.setattr(Path, "chmod", lambda self, mode: None)  # a disk that keeps no permissions
    os.chmod(tmp_path / TOKEN, 0o640)
    with pytest.raises(HolmesError, match="auth_token can be read by others"):
        connecting.make_token_private()


def test_a_link_in_the_place_of_the_token_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    (tmp_path / ".ray").mkdir()
    (tmp_path / TOKEN).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        connecting.make_token_private()
    assert not (tmp_path / "elsewhere").exists()


LOCAL_SEARCH = """
import sys, holmes, ray
from holmes.cluster.connect import connect

connect("local")
print(ray.get(ray.remote(lambda: 7).remote()))
ray.shutdown()
sys.exit(any(name.startswith(("ray.data", "ray.serve")) for name in sys.modules))
"""


def test_a_local_cluster_starts_with_a_private_token_and_plain_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", LOCAL_SEARCH],
        env=kept | {"HOME": str(tmp_path)},
        umask=0o022,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert done.returncode == 0 and done.stdout == "7\n", done.stderr[-2000:]
    assert stat.S_IMODE((tmp_path / TOKEN).stat().st_mode) == 0o600


def test_only_plain_ray_is_imported_and_required() -> None:
    """`ray[data]` and `ray[serve]` bring fifty packages that nothing here uses."""
    source = Path(connecting.__file__).parents[1]
    imports = [
        line.strip()
        for path in source.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.match(r"\s*(from|import) ray\b", line)
    ]
    assert imports and not [
        line for line in imports if re.search(r"\bray\.?\s*(import )?(data|serve)\b", line)
    ]
    required = (source.parents[1] / "pyproject.toml").read_text()
    assert '"ray==' in required and "ray[" not in required
