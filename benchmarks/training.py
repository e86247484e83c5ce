"""How fast a training epoch is, through the code path of `holmes train`.

    python benchmarks/training.py [--shape activitynet] [--preset activitynet_plus] [--device auto]
    python benchmarks/training.py --only kernels,streamed --whole

On a GPU a step is timed in plain torch, with our own kernels, and with our kernels and features that are
read from the store instead of being resident. The features are random, in the shapes of the field's data
sets. On a CPU the collection and the model are scaled down, and the table says so.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from common import machine, print_table, save_json
from synthetic import SHAPES, synthetic_store

from holmes.base.devices import choose_device
from holmes.base.parallel import ALONE
from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig, with_changes
from holmes.data import bank
from holmes.data.store import Store
from holmes.records import Stage
from holmes.training.logbook import read_metrics
from holmes.training.protocol import Protocol, choose_splits
from holmes.training.run import Run, RunOptions, train
from holmes.training.setup import fit_to_store

CPU_SHARE, CPU_MODEL = 0.005, {"width": 64, "batch_videos": 16}
WAYS = {"cuda": ("plain", "kernels", "streamed"), "cpu": ("plain", "streamed")}
PROFILED = 3  # steps
SMALL = 5  # microseconds: a kernel shorter than this is mostly its own launch
# What a kernel or an operator is, by its name; the first that fits.
GROUPS = {
    "attention": r"^(forward|backward)_kernel",
    "matrix products": r"gemm|nvjet|cutlass|cublas|xmma|aten::(mm|bmm|addmm|baddbmm|dot)$",
    "our fused kernels": r"^(norm|relu|sum|token)_(for|back)ward_kernel|^(best|share)_kernel"
    r"|^(squares|norms|update|sinkhorn)_kernel",
    "copies": r"[Mm]emcpy|[Mm]emset|direct_copy|CatArray|aten::(copy_|_to_copy|cat|clone|contiguous)$",
}


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(run: Run, way: str, stage: Stage, steps: int, warm_up: int) -> dict[str, Any]:
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
        "way": way,
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
    parser.add_argument("--only", help="of plain, streamed, and kernels on a GPU (default: all)")
    parser.add_argument("--whole", action="store_true", help="also time a whole run of 100 epochs")
    parser.add_argument("--profile", action="store_true", help="also list the slowest kernels of each way")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/training.json"))
    options = parser.parse_args()

    device = choose_device(options.device)
    config = preset(options.preset or options.shape)
    share = options.share or (CPU_SHARE if device.type == "cpu" else 1.0)
    if device.type == "cpu":
        config = with_changes(config, CPU_MODEL)
    ways = WAYS[device.type] if options.only is None else tuple(options.only.split(","))
    if unknown := {*ways} - {*WAYS[device.type]}:
        parser.error(
            f"--only {', '.join(sorted(unknown))}: a {device.type} has {', '.join(WAYS[device.type])}"
        )
    rows, groups = [], dict[str, dict[str, float]]()
    with synthetic_store(SHAPES[options.shape].scaled(share), device) as store:
        config = fit_to_store(with_changes(config, {"epochs": 2}), store)
        for way in ways:
            found, groups[way] = measure_way(way, store, config, device, options)
            rows += found
    scaled = f", scaled down to {share:.1%} and width {CPU_MODEL['width']}" if device.type == "cpu" else ""
    table = [
        {"ms a step, stage 2": group, **{way: groups[way].get(group, 0.0) for way in ways}}
        for group in dict.fromkeys(group for way in ways for group in groups[way])
    ]
    print_table("Where the time of a step goes", table)
    print_table(f"Training at {options.shape} scale on {machine(device)}{scaled}", rows)
    save_json(
        options.json,
        {
            "machine": machine(device),
            "shape": options.shape,
            "scaled": scaled,
            "rows": rows,
            "groups": groups,
        },
    )


def measure_way(
    way: str, store: Store, config: HolmesConfig, device: torch.device, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """A row for each stage, and one for a whole run if that is asked for; and where a step's time goes."""
    splits = choose_splits(store, Protocol.PUBLISHED, config.training.held_out, 0)
    kernels = way in ("kernels", "streamed")
    how = RunOptions(device=str(device), progress=False, kernels=kernels)
    share = bank.RESIDENT_SHARE if way != "streamed" else 0.0
    with tempfile.TemporaryDirectory() as folder, patch.object(bank, "RESIDENT_SHARE", share):
        run = Run(store, splits, config, Path(folder), 0, ALONE, device, how)
        print(run.says)
        steps = options.steps or run.loader.steps_per_epoch
        rows = [measure(run, way, stage, steps, warm_up=min(10, steps)) for stage in Stage]
        groups = profile(run, rows[-1]["step_ms"], options.profile)
        del run
        if options.whole:
            rows.append(whole_run(way, store, config, how))
    return rows, groups


def whole_run(way: str, store: Store, config: HolmesConfig, how: RunOptions) -> dict[str, Any]:
    """`holmes train` as it is: all epochs, an evaluation after each, checkpoints, the test at the end."""
    on_gpu = how.device.startswith("cuda")
    config = with_changes(config, {"epochs": 100 if on_gpu else 2, "patience": 0})
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        train(store, config, folder, options=how)
        seconds = time.perf_counter() - start
        entries = read_metrics(Path(folder))
    last = entries[-1]["speed"]
    print(f"last epoch: training {last['train_seconds']:.2f} s, evaluation {last['evaluate_seconds']:.2f} s")
    return {
        "way": way,
        "stage": f"whole run, {config.training.epochs} epochs",
        "first_step_s": entries[0]["speed"]["train_seconds"],
        "step_ms": float("nan"),
        "steps_per_epoch": float("nan"),
        "epoch_s": seconds,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else float("nan"),
    }


def profile(run: Run, step_ms: float, list_kernels: bool) -> dict[str, float]:
    """Milliseconds of a step of stage 2 by group; gaps are what no kernel fills."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    on_gpu = run.device.type == "cuda"
    shape = (run.loader.query_capacity, run.loader.videos_per_rank)
    rate = torch.tensor(1e-5, device=run.device)
    batch = next(iter(run.loader.epoch(0)))
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with record(activities=activities) as trace:
        for _ in range(PROFILED):
            run.step(batch, Stage.CALIBRATED, torch.rand(shape, device=run.device), rate)
        synchronize(run.device)
    events = trace.key_averages()
    if list_kernels:
        sort = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
        print(events.table(sort_by=sort, row_limit=45, max_name_column_width=70))
    groups = {**dict.fromkeys(GROUPS, 0.0), "elementwise and sums": 0.0, "small kernels": 0.0}
    for event in events:
        if event.device_type.name == ("CUDA" if on_gpu else "CPU"):
            micros = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            groups[group_of(event.key, micros / event.count)] += micros / 1000 / PROFILED
    # On a CPU the operators of several threads add up to more than the clock; on a GPU one follows another.
    return groups | ({"gaps": max(0.0, step_ms - sum(groups.values()))} if on_gpu else {}) | {"all": step_ms}


def group_of(name: str, micros: float) -> str:
    for group, names in GROUPS.items():
        if re.search(names, name):
            return group
    return "small kernels" if micros < SMALL else "elementwise and sums"


if __name__ == "__main__":
    main()
