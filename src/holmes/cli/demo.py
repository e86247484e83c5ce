"""`holmes demo`: the whole way on a small world, in about a minute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.options import say

PRESET = "small"
SETTINGS = {"width": 32, "gaussian_widths": "none,1,8", "epochs": 12, "warm_up_epochs": 4, "batch_videos": 32}


@dataclass(frozen=True)
class Step:
    """A command of the demonstration, and the function that does the same."""

    command: str
    do: Callable[[], None]


def demo(
    folder: Annotated[Path, typer.Argument(help="Where to put the world and the run.")] = Path("demo"),
) -> None:
    """Plant a small world, train on it and evaluate: a minute on two cores. Run it again to go on."""
    steps = demo_steps(folder)
    for number, step in enumerate(steps, 1):
        say(f"\n[{number}/{len(steps)}] {step.command}")
        step.do()
    say(f"\nAll of it is in {folder}; the same commands work on your own store.")


def demo_steps(folder: Path) -> list[Step]:
    store, run = folder / "world", folder / "run"
    changes = " ".join(f"--set {name}={value}" for name, value in SETTINGS.items())
    return [
        Step(f"holmes data plant {store} --videos 320", lambda: plant_world(store)),
        Step(f"holmes train {store} --preset {PRESET} --out {run} {changes}", lambda: train_on(store, run)),
        Step(f"holmes evaluate {run}", lambda: evaluate_it(run)),
    ]


def plant_world(store: Path) -> None:
    from holmes.cli.data import plant

    if store.exists():
        say(f"{store} is there already")
    else:
        plant(store, videos=320)


def train_on(store: Path, run: Path) -> None:
    from holmes.cli.train import train

    train(store, PRESET, run, settings=[f"{name}={value}" for name, value in SETTINGS.items()])


def evaluate_it(run: Path) -> None:
    from holmes.cli.evaluate import evaluate

    evaluate(run)
