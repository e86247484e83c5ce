"""Build the image of deploy/Containerfile from Debian packages and try it: no registry, no container engine.

    apt-get install mmdebstrap bubblewrap
    python deploy/try_image.py ROOT [--mount FOLDER]...  (as root; a ROOT that exists is tried as it is)

ROOT appears when every step is done; ROOT.unfinished, which a failed build leaves, is made anew.

FROM becomes a Debian root with Python; every other step is read from the Containerfile and run in it. Then
the container is started with its user, a read-only root and two volumes: an index is built, the health check
must pass, a search must answer over HTTP, a sent file must be found after a restart, and no process may be
root's. A --mount is a folder with packages for pip, seen inside at the same path; PIP_… variables are passed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

PROJECT = Path(__file__).parents[1]
TOKEN = "a token for this trial alone"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
SEARCH = "a red circle"
FILMS = """
from holmes.worlds.rendered import RenderSettings, render_world
render_world("/videos/films", RenderSettings(train_videos=2, test_videos=4))
"""


@dataclass
class Image:
    """What the steps of a Containerfile have made so far."""

    root: Path
    mounts: list[str]
    folder: str = "/"
    user: str = "root"
    environment: dict[str, str] = field(default_factory=dict)
    volumes: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def command(self, words: list[str], volumes: dict[str, Path] | None = None) -> list[str]:
        """How a command is run inside: while building the root can be written, afterwards only volumes."""
        bind = "--bind" if volumes is None else "--ro-bind"
        inside = [
            "bwrap",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--die-with-parent",
            "--clearenv",
        ]
        inside += [bind, str(self.root), "/", "--proc", "/proc", "--dev", "/dev"]
        inside += ["--perms", "1777", "--tmpfs", "/tmp"]
        inside += ["--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf"]
        inside += [word for path in self.mounts if volumes is None for word in ("--ro-bind", path, path)]
        inside += [word for at, path in (volumes or {}).items() for word in ("--bind", str(path), at)]
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        settings = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": f"/home/{self.user}"}
        settings |= self.environment | (pip if volumes is None else {"HOLMES_TOKEN": TOKEN})
        inside += [word for name, value in settings.items() for word in ("--setenv", name, value)]
        if self.user != "root":
            words = [
                "setpriv",
                "--reuid",
                self.user,
                "--regid",
                self.user,
                "--init-groups",
                "--no-new-privs",
                *words,
            ]
        return [*inside, "--chdir", self.folder, *words]

    def run(self, words: list[str], volumes: dict[str, Path] | None = None) -> str:
        done = subprocess.run(self.command(words, volumes), capture_output=True, text=True)
        if done.returncode:
            sys.exit(
                f"{shlex.join(words)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"[-4000:]
            )
        return done.stdout


def steps(path: Path) -> Iterator[tuple[str, str]]:
    """Instruction and arguments, with continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, arguments = line.partition(" ")
        yield instruction, " ".join(arguments.split())


def build(image: Image, containerfile: Path) -> None:
    """Run the steps in ROOT.unfinished, which becomes ROOT at the end; a ROOT that exists is kept."""
    root, fresh = image.root, not image.root.exists()
    if fresh:
        image.root = root.with_name(f"{root.name}.unfinished")
        if image.root.exists():
            shutil.rmtree(image.root)
    for instruction, arguments in steps(containerfile):
        if not fresh and instruction in ("FROM", "COPY", "RUN"):
            continue
        print(f"{instruction} {arguments}"[:150], flush=True)
        if instruction == "FROM":
            release = ["--variant=minbase", f"--include={PACKAGES}", "bookworm", str(image.root)]
            subprocess.run(["mmdebstrap", "--quiet", *release], check=True)
            (image.root / "usr/bin/python").symlink_to("python3")
            image.environment["PIP_BREAK_SYSTEM_PACKAGES"] = "1"
        elif instruction == "WORKDIR":
            image.folder = arguments
            (image.root / arguments.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif instruction == "COPY":
            *names, target = arguments.split()
            place = image.root / image.folder.lstrip("/") / target
            for name in names:
                source = PROJECT / name
                if source.is_dir():
                    shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
                else:
                    shutil.copy(source, place)
        elif instruction == "RUN":
            image.run(["sh", "-c", arguments])
        elif instruction == "ENV":
            image.environment |= dict(pair.split("=", 1) for pair in shlex.split(arguments))
        elif instruction == "USER":
            image.user = arguments
        elif instruction == "VOLUME":
            image.volumes = arguments.split()
        elif instruction == "HEALTHCHECK":
            image.health = json.loads(arguments.partition("CMD ")[2])
        elif instruction not in ("ARG", "EXPOSE", "CMD"):
            sys.exit(f"{containerfile} has a step that this script does not know: {instruction}")
    if fresh:
        image.root.rename(root)
        image.root = root


@contextmanager
def started(image: Image, volumes: dict[str, Path]) -> Iterator[str]:
    """The address of a running container."""
    serve = ["holmes", "serve", "/index", "--host", "0.0.0.0", "--uploads", "/videos/sent"]
    process = subprocess.Popen(image.command(serve, volumes))
    address = "http://127.0.0.1:8000"
    try:
        for _ in range(240):
            if process.poll() is not None:
                sys.exit("the server ended by itself")
            health = subprocess.run(image.command(image.health, volumes), capture_output=True)
            if health.returncode == 0:
                break
            time.sleep(0.5)
        else:
            sys.exit("the health check never passed")
        if (users := users_of(process.pid)) != {1000}:
            sys.exit(f"processes of the users {users} are running, not of 1000 alone")
        yield address
    finally:
        process.terminate()
        process.wait(30)


def users_of(pid: int) -> set[int]:
    """The users of all processes below one, except those of the sandbox itself."""
    found: set[int] = set()
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        status = Path(f"/proc/{child}/status").read_text()
        if not status.startswith("Name:\tbwrap"):
            found.add(int(re.findall(r"^Uid:\s+(\d+)", status, re.MULTILINE)[0]))
        found |= users_of(int(child))
    return found


def ask(address: str, path: str, body: Any = None) -> Any:
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    with urlopen(
        Request(address + path, json.dumps(body).encode() if body else None, headers), timeout=60
    ) as reply:
        return json.load(reply)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path)
    parser.add_argument("--mount", action="append", default=[])
    given = parser.parse_args()
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", 8000))  # or say so now
    image = Image(given.root.absolute(), given.mount)
    began = time.monotonic()
    build(image, PROJECT / "deploy" / "Containerfile")
    size = subprocess.run(
        ["du", "-sm", image.root], capture_output=True, text=True, check=True
    ).stdout.split()[0]
    print(f"built in {time.monotonic() - began:.0f} s: {int(size):,} MiB")
    with tempfile.TemporaryDirectory() as kept:
        volumes = {at: Path(kept, at.strip("/")) for at in image.volumes}
        for path in volumes.values():
            path.mkdir()
            os.chown(path, 1000, 1000)
        image.run(["python", "-c", FILMS], volumes)
        image.run(["holmes", "index", "build", "/index", "/videos/films"], volumes)
        with started(image, volumes) as address:
            first = ask(address, f"/api/search?q={SEARCH.replace(' ', '+')}")
            print(f"the health check passed; '{SEARCH}': {first['hits'][0]['title']}")
            send(image, volumes, address)
        with started(image, volumes) as address:
            again = ask(address, f"/api/search?q={SEARCH.replace(' ', '+')}&top=20")
            names = {hit["title"] for hit in again["hits"]}
            if len(names) != len(first["hits"]) + 1 or "sent.mp4" not in names:
                sys.exit(f"after a restart these were found: {sorted(names)}")
        print("a sent film was found, also after a restart; every process ran as user 1000")


def send(image: Image, volumes: dict[str, Path], address: str) -> None:
    """Send a film that the index does not have, from inside as any other machine would."""
    code = (
        "from holmes.worlds.rendered import RenderSettings, render_world; import holmes, shutil;"
        "render_world('/tmp/new', RenderSettings(train_videos=2, test_videos=2, seed=7));"
        "import glob; shutil.copy(glob.glob('/tmp/new/test/*.mp4')[0], '/tmp/sent.mp4');"
        f"print(holmes.connect({address!r}, token={TOKEN!r}).upload('/tmp/sent.mp4'))"
    )
    if "added=1" not in (told := image.run(["python", "-c", code], volumes)):
        sys.exit(f"the film that was sent was not added: {told}")


if __name__ == "__main__":
    main()
