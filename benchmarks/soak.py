"""A long time of searching, adding, removing and syncing, with random kills of workers and servers.

Two servers share one index. One lives from the first minute to the last: its memory is measured, its worker
processes are killed. The other is killed and started again. Every answer is compared with an index of all
films that nobody changes: each hit's score must be that of the film, films that were there all the while must
be among the hits, films that were not there must not. In the end the index must hold exactly what was put
into it.

    python benchmarks/soak.py                     # one hour
    python benchmarks/soak.py --minutes 2 --films 8
"""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import numpy as np
import torch
import typer
from common import machine, print_table, save_json, work_folder

import holmes
from holmes.errors import HolmesError

SENTENCES = (
    "a red circle on a dark ground",
    "something green moves to the left",
    "a bright square",
    "blue water",
    "a person walks along the street",
    "nothing but yellow",
    "a dog runs on the beach",
    "two colours side by side",
)
PATIENCE = 180.0  # seconds for anything that has to happen
TOLERANCE = 2e-3  # of a score: sentences that are encoded together differ by rounding
SEARCHERS, PAUSE = 3, 0.1  # people who search, and their seconds between two searches
WARM = 5.0  # minutes after which memory is first measured, or a quarter of a shorter run
MOST_GROWTH = 1.1


def main(
    minutes: Annotated[float, typer.Option(help="How long.")] = 60.0,
    films: Annotated[int, typer.Option(help="Films that come and go.")] = 24,
    seed: Annotated[int, typer.Option(help="Of what happens when.")] = 0,
    work: Annotated[Path | None, typer.Option(help="Keep films, indexes and logs here.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
) -> None:
    with work_folder(work) as folder:
        row = Soak(folder, films, seed).run(minutes)
    print_table("Soak", [{"": name, "value": value} for name, value in row.items()])
    save_json(out / "soak.json", {"machine": machine(torch.device("cpu")), "result": row})
    kept = not (row["wrong answers"] or row["videos lost or too many"] or row["processes left over"])
    if not kept or row["memory end / start"] > MOST_GROWTH:
        raise SystemExit("the budget is exceeded")


class Soak:
    def __init__(self, folder: Path, films: int, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.truth = Truth()
        self.pool = [film(folder / "pool" / f"f{n:02d}.mp4", n) for n in range(films)]
        self.sent_pool = [film(folder / "pool" / f"s{n:02d}.mp4", 1000 + n) for n in range(films // 2)]
        for group in ("added", "synced"):
            (folder / group).mkdir(exist_ok=True)
        self.index = folder / "index"
        self.scores = self.reference()
        self.over = threading.Event()
        self.log = (folder / "sync.log").open("a")

    def reference(self) -> dict[str, dict[str, float]]:
        """Every film's score for every sentence, from an index that nobody changes."""
        holmes.build_index(self.folder / "reference", [self.folder / "pool"])
        opened = holmes.open_index(self.folder / "reference", device="cpu")
        return {
            sentence: {Path(hit.video).stem: hit.score for hit in opened.search(sentence, top=100)}
            for sentence in SENTENCES
        }

    def run(self, minutes: float) -> dict[str, Any]:
        first = shutil.copy(self.pool[0], self.folder / "added" / self.pool[0].name)
        holmes.build_index(self.index, [first])
        self.truth.came(str(first))
        self.truth.stays(str(first))
        self.steady, self.victim = (Server(self.index, self.folder, name) for name in ("steady", "victim"))
        began = time.monotonic()
        end, warm = began + 60 * minutes, began + 60 * min(WARM, minutes / 4)
        searchers = [threading.Thread(target=self.search, args=(n,)) for n in range(SEARCHERS)]
        memory = 0.0
        try:
            for thread in searchers:
                thread.start()
            while time.monotonic() < end:
                self.change()
                if not memory and time.monotonic() >= warm:
                    memory = self.steady.memory()
            last = self.steady.memory()
        finally:
            self.over.set()
            for thread in searchers:
                thread.join(PATIENCE)
            pids = [*self.steady.family(), *self.victim.family()]
            self.steady.stop()
            self.victim.stop()
        wait_for(lambda: not any(map(running, pids)), "processes of a stopped server end")
        held = set(holmes.open_index(self.index, device="cpu").videos)
        checked = subprocess.run([*holmes_command("index", "check"), str(self.index)], capture_output=True)
        if checked.returncode:
            self.faults.append(f"index check: {checked.stderr.decode()[-300:]}")
        (self.folder / "faults.txt").write_text("\n".join(self.faults))
        for fault in self.faults[:10]:
            print(fault, file=sys.stderr)
        return {
            "minutes": (time.monotonic() - began) / 60,
            "answers": self.counts["answers"],
            "wrong answers": len(self.faults),
            "asked again after a kill": self.counts["interrupted"],
            **{name: self.counts[name] for name in ("added", "sent", "removed", "synced", "moved")},
            **{name: self.counts[name] for name in sorted(self.counts) if name.startswith("killed")},
            "videos at the end": len(held),
            "videos lost or too many": len(held ^ self.truth.sure),
            "processes left over": self.counts["left over"],
            "MiB at the start": memory,
            "MiB at the end": last,
            "memory end / start": last / memory,
        }

    # What changes, one thing after the other.

    def change(self) -> None:
        kind = self.random.choice(
            ["add", "add", "send", "send", "remove", "sync", "sync", "kill server", "kill decoder", "rest"]
        )
        print(f"{time.strftime('%H:%M:%S')} {kind}", file=sys.stderr, flush=True)
        {
            "add": self.add,
            "send": self.send,
            "remove": self.remove,
            "sync": self.sync,
            "kill server": self.kill_server,
            "kill decoder": self.kill_decoder,
            "rest": lambda: time.sleep(self.random.uniform(0, 3)),
        }[kind]()

    def add(self) -> None:
        """Films through a server; in half of all cases a process of its dies meanwhile."""
        absent = [each for each in self.pool[::2] if not (self.folder / "added" / each.name).exists()]
        removed = [
            path for path in sorted((self.folder / "added").iterdir()) if str(path) not in self.truth.possible
        ]
        new = [
            Path(shutil.copy(each, self.folder / "added" / each.name))
            for each in self.random.sample(absent, min(2, len(absent)))
        ] or removed[:2]
        if not new:
            return
        for path in new:
            self.truth.came(str(path))
        server = self.random.choice([self.steady, self.victim])
        dies = self.random.random() < 0.5
        while True:
            job = server.request("POST", "/api/videos", {"paths": [str(path) for path in new]})
            if dies:
                dies = False
                self.kill_while_adding(server)
            while job.get("state") == "running":
                time.sleep(0.3)
                job = server.request("GET", "/api/job")
            if job.get("state") == "done":
                break
            self.counts["interrupted"] += 1  # killed, or another process is still at work
            time.sleep(0.5)
        self.shown(new, True)
        self.counts["added"] += len(new)

    def send(self) -> None:
        """A film sent to the victim, which may be killed in the middle; sent again until it is added."""
        kept = self.folder / "sent" / "victim"
        absent = [each for each in self.sent_pool if not (kept / each.name).exists()]
        if not absent:
            return
        file = self.random.choice(absent)
        name = str(kept / file.name)
        self.truth.came(name)
        killed = threading.Event()
        if self.random.random() < 0.5:

            def strike() -> None:
                time.sleep(self.random.uniform(0, 3))
                self.kill_server()
                killed.set()

            threading.Thread(target=strike).start()
        else:
            killed.set()
        while True:
            try:
                remote = holmes.connect(f"http://127.0.0.1:{self.victim.port}", timeout=20)
                summary = remote.upload(file)
                if summary.added + summary.unchanged:
                    break
                raise HolmesError(str(summary))
            except HolmesError:
                self.counts["interrupted"] += 1
                time.sleep(0.5)
        killed.wait(PATIENCE)
        self.shown([Path(name)], True)
        if Path(name).read_bytes() != file.read_bytes():
            self.faults.append(f"{name} is not what was sent")
        self.counts["sent"] += 1

    def kill_while_adding(self, server: Server) -> None:
        time.sleep(self.random.uniform(0, 8))
        if server is self.victim and self.random.random() < 0.5:
            self.kill_server()
            return
        family = server.family()[1:]
        adding = [pid for pid in family if "holmes.serve.jobs" in command_of(pid)]
        workers = [pid for pid in family if "holmes.media" in command_of(pid)]
        for pid in self.random.choice([adding, workers])[:1]:
            self.counts["killed workers"] += 1
            kill(pid)

    def remove(self) -> None:
        inside = sorted(name for name in self.truth.sure if "/added/" in name)
        if len(inside) < 2:
            return
        name = self.random.choice(inside)
        self.truth.goes(name)
        server = self.random.choice([self.steady, self.victim])
        while found := server.listed(name):
            server.request("DELETE", f"/api/videos/{found['id']}")
        self.shown([Path(name)], False)
        self.truth.went(name)
        self.counts["removed"] += 1

    def sync(self) -> None:
        """Films come, move and go in a folder, and `holmes index sync` follows; it may be killed."""
        folder = self.folder / "synced"
        here = sorted(folder.iterdir())
        kinds = ["come"] if len(here) < 3 else ["come", "move", "go"]
        kind = self.random.choice(kinds)
        new: list[Path] = []
        gone: list[Path] = []
        if kind == "come":
            known = {path.stem.split("-")[0] for path in here}
            # Not those that are added through a server: the same content is not taken in twice.
            absent = [each for each in self.pool[1::2] if each.stem not in known]
            new = [
                Path(shutil.copy(each, folder)) for each in self.random.sample(absent, min(2, len(absent)))
            ]
            for path in new:
                self.truth.came(str(path))
        else:
            old = self.random.choice(here)
            gone = [old]
            self.truth.goes(str(old))
            if kind == "move":
                new = [old.with_name(f"{old.stem.split('-')[0]}-{self.random.randrange(10**6)}.mp4")]
                self.truth.came(str(new[0]))
                old.rename(new[0])
                self.counts["moved"] += 1
            else:
                old.unlink()
        dies = self.random.random() < 0.4
        while True:
            process = subprocess.Popen(
                [*holmes_command("index", "sync"), str(self.index), str(folder)],
                stdout=self.log,
                stderr=self.log,
            )
            if dies:
                dies = False
                with suppress(subprocess.TimeoutExpired):
                    process.wait(self.random.uniform(0.5, 8))
                if process.poll() is None:
                    self.counts["killed syncs"] += 1
                    process.kill()
            if process.wait(PATIENCE) == 0:
                break
            time.sleep(0.5)
        self.shown(new, True)
        self.shown(gone, False)
        for path in gone:
            self.truth.went(str(path))
        self.counts["synced"] += 1

    def shown(self, paths: list[Path], there: bool) -> None:
        """Wait until both servers have taken up a change."""
        for path in paths:
            for server in (self.steady, self.victim):
                wait_for(
                    lambda s=server, p=path: bool(s.listed(str(p))) is there,  # type: ignore[misc]
                    f"{server.name} shows {path.name}: {there}",
                )
            if there:
                self.truth.stays(str(path))

    def kill_server(self) -> None:
        family = self.victim.family()
        kill(family[0])
        self.counts["killed servers"] += 1
        try:
            wait_for(lambda: not any(map(running, family)), "children of a killed server end", 20)
        except TimeoutError:
            self.counts["left over"] += 1
        self.victim.restart()

    def kill_decoder(self) -> None:
        server = self.random.choice([self.steady, self.victim])
        decoders = [pid for pid in server.family()[1:] if "decode_worker" in command_of(pid)]
        for pid in decoders[:1]:
            kill(pid)
            self.counts["killed decoders"] += 1

    # What people ask meanwhile.

    def search(self, number: int) -> None:
        rng = random.Random(number)
        while not self.over.wait(PAUSE):
            server = self.steady if rng.random() < 0.6 else self.victim
            before = self.truth.mark()
            sentence = rng.choice(SENTENCES)
            status, body = server.ask(f"/api/search?top=100&q={quote(sentence)}")
            if status == 0:
                if server is self.steady and not self.over.is_set():
                    self.faults.append(f"the steady server did not answer: {body!r}")
                self.counts["interrupted"] += 1
                continue
            self.counts["answers"] += 1
            sure, possible = self.truth.since(before)
            fault = self.wrong(sentence, status, body, sure, possible)
            if fault:
                self.faults.append(f"{time.strftime('%H:%M:%S')} {server.name}: {sentence!r}: {fault}")
            elif rng.random() < 0.2:
                self.look_at(server, json.loads(body)["hits"], rng)

    def wrong(self, sentence: str, status: int, body: bytes, sure: set[str], possible: set[str]) -> str:
        if status != 200:
            return f"{status} {body[:200]!r}"
        answer = json.loads(body)
        hits = {hit["video"]: hit["score"] for hit in answer["hits"]}
        scores = [hit["score"] for hit in answer["hits"]]
        if answer["query"] != sentence or len(hits) != len(scores):
            return "the answer to something else"
        if sure - hits.keys() or hits.keys() - possible:
            return f"missing {sorted(sure - hits.keys())}, too many {sorted(hits.keys() - possible)}"
        if sorted(scores, reverse=True) != scores:
            return "not in order"
        true = self.scores[sentence]
        off = {v: s for v, s in hits.items() if abs(s - true[Path(v).stem.split("-")[0]]) > TOLERANCE}
        return f"wrong scores: {off}" if off else ""

    def look_at(self, server: Server, hits: list[dict[str, Any]], rng: random.Random) -> None:
        """A picture of one hit, and a part of its file."""
        hit = rng.choice(hits)
        server.ask(f"/api/videos/{hit['id']}/thumbnail?t={rng.random():.2f}&width=320")
        status, body = server.ask(f"/api/videos/{hit['id']}/stream", {"Range": "bytes=100-299"})
        film = self.folder / "pool" / f"{Path(hit['video']).stem.split('-')[0]}.mp4"
        if status == 206 and body != film.read_bytes()[100:300]:
            self.faults.append(f"{server.name}: {hit['video']} is sent wrongly")


class Truth:
    """Which videos the index holds for sure, and which it may hold; and how that changed meanwhile."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sure: set[str] = set()
        self.possible: set[str] = set()
        self.log: list[tuple[str, str]] = []

    def came(self, name: str) -> None:
        with self.lock:
            self.possible.add(name)
            self.log.append(("came", name))

    def stays(self, name: str) -> None:
        with self.lock:
            self.sure.add(name)

    def goes(self, name: str) -> None:
        with self.lock:
            self.sure.discard(name)
            self.log.append(("goes", name))

    def went(self, name: str) -> None:
        with self.lock:
            self.possible.discard(name)

    def mark(self) -> tuple[int, set[str], set[str]]:
        with self.lock:
            return len(self.log), set(self.sure), set(self.possible)

    def since(self, mark: tuple[int, set[str], set[str]]) -> tuple[set[str], set[str]]:
        """What was there all the time since the mark, and what may have been there at some time."""
        start, sure, possible = mark
        with self.lock:
            news = self.log[start:]
        gone = {name for what, name in news if what == "goes"}
        return sure - gone, possible | {name for what, name in news if what == "came"}


class Server:
    """`holmes serve` in a process of its own."""

    def __init__(self, index: Path, folder: Path, name: str) -> None:
        self.index, self.folder, self.name = index, folder, name
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = (folder / f"{name}.log").open("a")
        self.restart()

    def restart(self) -> None:
        command = holmes_command("serve", str(self.index), "--port", str(self.port), "--manage", "--quiet")
        self.process = subprocess.Popen(
            [
                *command,
                "--add-from",
                str(self.folder / "added"),
                "--uploads",
                str(self.folder / "sent" / self.name),
            ],
            stdout=self.log,
            stderr=self.log,
        )
        wait_for(lambda: self.ask("/api/health")[0] == 200, f"{self.name} starts")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        self.log.close()

    def ask(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET", body: Any = None
    ) -> tuple[int, bytes]:
        """Status and body; 0 and the reason if the server does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"content-type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error).encode()
        finally:
            connection.close()

    def request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        status, content = self.ask(path, None, method, body)
        answer: dict[str, Any] = json.loads(content) if status else {}
        return answer

    def listed(self, name: str) -> dict[str, Any] | None:
        videos = self.request("GET", f"/api/videos?q={quote(Path(name).name)}").get("videos")
        wait = 0.3 if videos is None else 0.0
        time.sleep(wait)
        return next((video for video in videos or () if video["name"] == name), None)

    def family(self) -> list[int]:
        """The server's process and all below it."""
        found, waiting = [], [self.process.pid]
        while waiting:
            pid = waiting.pop(0)
            found.append(pid)
            with suppress(OSError):
                tasks = Path(f"/proc/{pid}/task").iterdir()
                waiting += [int(child) for task in tasks for child in (task / "children").read_text().split()]
        return found

    def memory(self) -> float:
        """MiB of the server's own process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0


def film(path: Path, number: int) -> Path:
    """Three seconds of two colours and a square that moves."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(number)
    left, right, square = rng.integers(0, 255, (3, 3), np.uint8)
    if not path.exists():
        with av.open(str(path), "w") as container:
            stream: Any = container.add_stream("libx264", rate=8)
            stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
            for n in range(24):
                image = np.empty((96, 128, 3), np.uint8)
                image[:, :64], image[:, 64:] = left, right
                image[30:60, 4 * n : 4 * n + 30] = square
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            container.mux(stream.encode(None))
    return path


def holmes_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "holmes", *words]


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def running(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_for(what: Callable[[], bool], words: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not happen: {words}")
        time.sleep(0.1)


if __name__ == "__main__":
    typer.run(main)
