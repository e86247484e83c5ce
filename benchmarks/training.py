"""How fast a training epoch is, through the code path of `holmes train`.

    python benchmarks/training.py [--shape activitynet] [--preset activitynet_plus] [--device auto]

The features are random, in the shapes of the field's data sets. On a CPU the collection and the model are
scaled down, and the table says so.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from common import machine, print_table, save_json
from loops import looped_step
from synthetic import SHAPES, synthetic_store

from holmes.base.devices import choose_device
from holmes.base.parallel import ALONE
from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig, with_changes
from holmes.data.store import Store
from holmes.records import Stage
from holmes.training.logbook import read_metrics
from holmes.training.protocol import Protocol, choose_splits
from holmes.training.run import Run, RunOptions, train
from holmes.training.setup import build_objective, fit_to_store

CPU_SHARE, CPU_MODEL = 0.005, {"width": 64, "batch_videos": 16}


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(run: Run, stage: Stage, steps: int, warm_up: int) -> dict[str, Any]:
    """Seconds of the first step, and of a steady one."""
    device = run.device
    shape = (run.loader.query_capacity, run.loader.videos_per_rank)
    rate = torch.tensor(1e-5, device=device)

    def some(count: int) -> None:
        done = 0
        while done < count:
            for batch in run.loader.epoch(0):
                run.step(batch, stage, torch.rand(shape, device=device), rate)
                done += 1
                if done == count:
                    return

    start = time.perf_counter()
    some(1)
    synchronize(device)
    first = time.perf_counter() - start
    some(warm_up)
    synchronize(device)
    start = time.perf_counter()
    some(steps)
    synchronize(device)
    step = (time.perf_counter() - start) / steps
    return {
        "stage": f"stage {stage.value}",
        "first_step_s": first,
        "step_ms": 1000 * step,
        "steps_per_epoch": run.loader.steps_per_epoch,
        "epoch_s": step * run.loader.steps_per_epoch,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="activitynet")
    parser.add_argument("--preset", help="settings to train with (default: the shape's own)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--share", type=float, help="of the videos and queries; all, and .5%% on a CPU")
    parser.add_argument("--steps", type=int, default=0, help="timed steps of each stage (default: an epoch)")
    parser.add_argument("--whole", action="store_true", help="also time a whole run of 100 epochs")
    parser.add_argument("--profile", action="store_true", help="also list the slowest kernels of a step")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/training.json"))
    options = parser.parse_args()

    device = choose_device(options.device)
    config = preset(options.preset or options.shape)
    share = options.share or (CPU_SHARE if device.type == "cpu" else 1.0)
    if device.type == "cpu":
        config = with_changes(config, CPU_MODEL)
    with synthetic_store(SHAPES[options.shape].scaled(share), device) as store:
        rows = measure_all(store, config, device, options)
    scaled = f", scaled down to {share:.1%} and width {CPU_MODEL['width']}" if device.type == "cpu" else ""
    print_table(f"Training at {options.shape} scale on {machine(device)}{scaled}", rows)
    save_json(
        options.json, {"machine": machine(device), "shape": options.shape, "scaled": scaled, "rows": rows}
    )


def measure_all(
    store: Store, config: HolmesConfig, device: torch.device, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row for each stage, and one for a whole run if that is asked for."""
    config = fit_to_store(with_changes(config, {"epochs": 2}), store)
    splits = choose_splits(store, Protocol.PUBLISHED, config.training.held_out, 0)
    how = RunOptions(progress=False, compiled=device.type == "cuda")
    with tempfile.TemporaryDirectory() as folder:
        run = Run(store, splits, config, Path(folder), 0, ALONE, device, how)
        print(run.says)
        steps = options.steps or run.loader.steps_per_epoch
        rows = [measure(run, stage, steps, warm_up=min(10, steps)) for stage in Stage]
        if options.profile:
            profile(run)
        if device.type == "cpu":
            print_table(
                "The same step, ours and with one pass for each block, video and tensor", [against_loops(run)]
            )
    return [*rows, *([whole_run(store, config, device)] if options.whole else [])]


def whole_run(store: Store, config: HolmesConfig, device: torch.device) -> dict[str, Any]:
    """`holmes train` as it is: all epochs, an evaluation after each, checkpoints, the test at the end."""
    config = with_changes(config, {"epochs": 100 if device.type == "cuda" else 2, "patience": 0})
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        train(store, config, folder, options=RunOptions(device=str(device), progress=False))
        seconds = time.perf_counter() - start
        entries = read_metrics(Path(folder))
    last = entries[-1]["speed"]
    print(f"last epoch: training {last['train_seconds']:.2f} s, evaluation {last['evaluate_seconds']:.2f} s")
    return {
        "stage": f"whole run, {config.training.epochs} epochs",
        "first_step_s": entries[0]["speed"]["train_seconds"],
        "step_ms": float("nan"),
        "steps_per_epoch": float("nan"),
        "epoch_s": seconds,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan"),
    }


def against_loops(run: Run, repeats: int = 3) -> dict[str, Any]:
    """Steps per second of ours and of the loop structure, measured in turn."""
    batch = next(iter(run.loader.epoch(0)))
    uniform_QV = torch.rand(run.loader.query_capacity, run.loader.videos_per_rank)
    objective = build_objective(run.config)
    state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in run.model.parameters()]
    seconds: dict[str, list[float]] = {"ours": [], "loops": []}
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run.step(batch, Stage.CALIBRATED, uniform_QV, torch.tensor(1e-5))
        seconds["ours"].append(time.perf_counter() - start)
        start = time.perf_counter()
        looped_step(run.model, objective, batch, state, 1e-5)
        seconds["loops"].append(time.perf_counter() - start)
    ours, loops = (sorted(values[1:])[repeats // 2] for values in seconds.values())
    return {"ours steps/s": 1 / ours, "loops steps/s": 1 / loops, "ratio": loops / ours}


def profile(run: Run) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    shape = (run.loader.query_capacity, run.loader.videos_per_rank)
    rate = torch.tensor(1e-5, device=run.device)
    batch = next(iter(run.loader.epoch(0)))
    with record(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        for _ in range(3 if run.device.type == "cuda" else 1):
            run.step(batch, Stage.CALIBRATED, torch.rand(shape, device=run.device), rate)
        synchronize(run.device)
    sort = "self_cuda_time_total" if run.device.type == "cuda" else "self_cpu_time_total"
    print(trace.key_averages().table(sort_by=sort, row_limit=45, max_name_column_width=70))


if __name__ == "__main__":
    main()
