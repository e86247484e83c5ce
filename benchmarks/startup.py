"""How long `holmes search INDEX "sentence"` takes from a cold process, and which part takes how long.

    python benchmarks/startup.py INDEX

Each step is a process of its own, in turn with the others, several times; the least of each is kept, wall
clock and processor time. `import torch` stands beside them: no search can be quicker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from common import machine, print_table, save_json

QUIET = "import gc; gc.set_threshold(50_000)\n"
END = "\nimport sys; 'triton' in sys.modules or gc.freeze()"
STEPS = {
    "python alone": [sys.executable, "-c", "pass"],
    "import torch": [sys.executable, "-c", f"{QUIET}import torch{END}"],
    "import the searcher": [sys.executable, "-c", f"{QUIET}import holmes.index.answer.searcher{END}"],
    "open the index, load its model": [
        *(sys.executable, "-c"),
        f"{QUIET}import sys, holmes; holmes.open_index(sys.argv[1], device='cpu').embedder.queries(['a'])"
        + END,
    ],
}
SENTENCE = "a man plays the guitar"


def main(
    index: Annotated[Path, typer.Argument(help="Any index.")],
    times: Annotated[int, typer.Option(min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
) -> None:
    commands = {name: [*command, str(index)] for name, command in STEPS.items()}
    commands["holmes search, to its first line"] = commands["holmes search, to its end"] = [
        *(sys.executable, "-m", "holmes", "search", str(index), SENTENCE)
    ]
    least: dict[str, tuple[float, float]] = {}
    for _ in range(times):
        for name, command in commands.items():
            taken = run(command, until_first_line="first line" in name)
            least[name] = min(least.get(name, taken), taken)
    torch_alone = least["import torch"][0]
    rows = [
        {"step": name, "seconds": wall, "processor": cpu, "× import torch": wall / torch_alone}
        for name, (wall, cpu) in least.items()
    ]
    print_table(f"a search from a cold process, {machine(torch.device('cpu'))}", rows)
    save_json(out / "startup.json", rows)


def run(command: list[str], until_first_line: bool) -> tuple[float, float]:
    """Seconds until a process ended or printed its first line, and its whole processor time."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdout is not None
    process.stdout.read(1)
    spoke = time.perf_counter() - began
    while process.stdout.read(1 << 16):
        pass
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed")
    wall = spoke if until_first_line else time.perf_counter() - began
    return wall, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    typer.run(main)
