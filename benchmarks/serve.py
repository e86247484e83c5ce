"""What a server withstands: answers per second and their delay with 1, 16 and 64 people asking at once.

Each person asks the next question when the last is answered. Besides the clock, the server's processor time
per answer is reported, which other work on the machine changes less. The server is a process of its own, once
with batching and once with one query at a time, asked in turn. The large index is synthetic: random
embeddings, and sentences that stand for random directions, so that its scan is timed and no text encoder.

    python benchmarks/serve.py                           # 100,000 videos of 64 vectors of 256; 3.3 GB
    python benchmarks/serve.py --demo demo/index         # and the index of 'holmes demo', with its own model
    python benchmarks/serve.py --demo INDEX --hostile    # 200 clients, of which 50 misbehave
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import numpy as np
import torch
import typer
from common import machine, print_table, save_json, work_folder
from synthetic_index import Directions, build_index

FRAMES, CLIPS, WIDTH = 32, 32, 256
PEOPLE, HOSTILE = 150, 50
PATIENCE = 600.0  # seconds for one answer, on a machine with other work to do
NOUNS = ("circle", "square", "star", "cross", "triangle", "ring")
COLOURS = ("red", "green", "blue", "yellow", "purple", "white")
VERBS = ("moves left", "moves right", "rises", "falls", "turns", "stands still")


def main(
    videos: Annotated[int, typer.Option(help="Videos of the synthetic index.")] = 100_000,
    demo: Annotated[Path | None, typer.Option(help="The index of 'holmes demo', to be measured too.")] = None,
    clients: Annotated[str, typer.Option(help="How many people ask at once, the most last.")] = "1,16,64",
    seconds: Annotated[float, typer.Option(help="How many seconds people ask, each time.")] = 30.0,
    index: Annotated[
        Path | None, typer.Option(help="Keep the synthetic index here and use it again.")
    ] = None,
    hostile: Annotated[
        bool, typer.Option("--hostile", help="Only 150 clients of --demo, with and without 50 who misbehave.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
    serve: Annotated[Path | None, typer.Option(hidden=True)] = None,
    port: Annotated[int, typer.Option(hidden=True)] = 0,
    batch: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    if serve is not None:
        run_server(serve, port, batch)
        return
    if hostile:
        if demo is None:
            raise SystemExit("--hostile needs --demo INDEX: an index of films, with its own model")
        measure_hostile(demo, seconds, out)
        return
    crowds = [int(count) for count in clients.split(",")]
    rows: list[dict[str, Any]] = []
    with work_folder(None) as temporary:
        large = index or temporary / "index"
        if not large.exists():
            build_index(large, videos, FRAMES, CLIPS, WIDTH)
        indexes = {f"{videos:,} synthetic videos": large} | ({"the demo's index": demo} if demo else {})
        for name, path in indexes.items():
            with running(path, 128) as batched, running(path, 1) as alone:
                for crowd in crowds:
                    for way, (address, process) in (("one at a time", alone), ("batched", batched)):
                        before = processor_seconds(process)
                        row = {"index": name, "way": way, **load(address, crowd, seconds)}
                        used = processor_seconds(process) - before
                        rows.append({**row, "CPU ms an answer": 1e3 * used / row["answers"]})
                        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    gains = {name: gain(rows, name, crowds[-1]) for name in indexes}
    print_table("Answers of 'holmes serve'", rows)
    for name, (clock, processor) in gains.items():
        print(
            f"{name}: batching gives {clock:.1f} times the answers of one at a time at {crowds[-1]} clients, "
            f"{processor:.1f} times for the same processor time"
        )
    result = {"machine": machine(torch.device("cpu")), "rows": rows, "gain_at_the_most": gains}
    result |= {"shape": {"frames": FRAMES, "clips": CLIPS, "width": WIDTH}}
    save_json(out / "serve.json", result)


def measure_hostile(index: Path, seconds: float, out: Path) -> None:
    """The delays of 150 people without and with 50 clients that misbehave, in turn."""
    rows: list[dict[str, Any]] = []
    clients = [sys.executable, str(Path(__file__).with_name("hostile.py"))]
    with running(index, 0) as (address, _):
        words = [address.rpartition(":")[2], str(seconds)]
        for hostile in (0, HOSTILE, 0, HOSTILE):
            attack = subprocess.Popen(["nice", *clients, *words, "hostile", str(hostile)])
            asked = subprocess.run([*clients, *words, "people", str(PEOPLE)], capture_output=True, check=True)
            attack.wait()
            rows.append({"people": PEOPLE, "who misbehave": hostile, **json.loads(asked.stdout)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    calm, attacked = (
        [row["p50 ms"] for row in rows if bool(row["who misbehave"]) is under] for under in (False, True)
    )
    ratio, lost = float(np.mean(attacked) / np.mean(calm)), sum(row["lost"] for row in rows)
    print_table("A server open to others", [{**row, "why": str(row["why"])} for row in rows])
    print(f"median with {HOSTILE} who misbehave / without: {ratio:.2f} (budget 2); answers lost: {lost}")
    save_json(out / "serve_hostile.json", {"machine": machine(torch.device("cpu")), "rows": rows})
    if ratio > 2 or lost:
        raise SystemExit("the budget is exceeded")


def processor_seconds(process: int) -> float:
    """What a process has used so far, with all of its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def gain(rows: list[dict[str, Any]], name: str, crowd: int) -> tuple[float, float]:
    """How many times as many answers batching gives: by the clock, and by processor time."""
    ways = {row["way"]: row for row in rows if row["index"] == name and row["clients"] == crowd}
    batched, alone = ways["batched"], ways["one at a time"]
    return (
        batched["per second"] / alone["per second"],
        alone["CPU ms an answer"] / batched["CPU ms an answer"],
    )


def load(address: str, clients: int, seconds: float) -> dict[str, Any]:
    """This many people ask for this long; every question must get its own answer."""
    delays: list[float] = []
    lost: list[str] = []
    lock, end = threading.Lock(), time.monotonic() + seconds

    def person(number: int) -> None:
        rng = np.random.default_rng(number)
        host, port = address.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        while time.monotonic() < end:
            words = (rng.choice(COLOURS), rng.choice(NOUNS), rng.choice(VERBS))
            sentence = f"a {words[0]} {words[1]} {words[2]} {number} {rng.integers(1_000_000)}"
            began = time.perf_counter()
            fault = ask(connection, sentence)
            with lock:
                delays.append(time.perf_counter() - began)
                if fault:
                    lost.append(fault)
        connection.close()

    began = time.perf_counter()
    people = [threading.Thread(target=person, args=(number,)) for number in range(clients)]
    for thread in people:
        thread.start()
    for thread in people:
        thread.join()
    took = time.perf_counter() - began
    median, most = np.quantile(delays, [0.5, 0.99])
    return {
        "clients": clients,
        "answers": len(delays),
        "lost": len(lost),
        "per second": len(delays) / took,
        "p50 ms": 1e3 * float(median),
        "p99 ms": 1e3 * float(most),
    }


def ask(connection: http.client.HTTPConnection, sentence: str) -> str:
    """What is wrong with the answer; nothing if it answers this sentence, with ten hits."""
    try:
        connection.request("GET", f"/api/search?q={quote(sentence)}")
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            return f"{response.status}: {body[:100]!r}"
        answer = json.loads(body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        connection.close()
        return repr(error)
    return "" if answer["query"] == sentence and len(answer["hits"]) == 10 else "another's answer"


@contextmanager
def running(index: Path, batch: int) -> Iterator[tuple[str, int]]:
    """The address of a server in a process of its own, warm, and the process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--serve", str(index), "--port", str(port), "--batch", str(batch)]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": str(os.cpu_count())})
    try:
        address = f"127.0.0.1:{port}"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        while ask(connection, "a first look"):
            if process.poll() is not None:
                raise SystemExit("the server ended")
            time.sleep(0.2)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(60)


def run_server(index: Path, port: int, batch: int) -> None:
    from holmes.index.answer.searcher import open_single_index
    from holmes.serve.server import serve
    from holmes.serve.settings import Limits, ServeSettings

    opened = open_single_index(index, device="cpu")
    if opened.store.manifest.model.get("name") == "synthetic":
        opened.__dict__["embedder"] = Directions(WIDTH)
    # 0: the limits that 'holmes serve' has.
    limits = replace(Limits(), batch=batch, rate=1e9, burst=10**9) if batch else Limits()
    with tempfile.TemporaryDirectory() as folder:
        uploads = None if batch else Path(folder)  # for clients that misbehave
        serve(opened, ServeSettings(port=port, limits=limits, uploads=uploads), quiet=True)


if __name__ == "__main__":
    typer.run(main)
