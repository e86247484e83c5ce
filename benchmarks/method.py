"""Does the method do what it says? Its rows of ablations against the full method, seed by seed.

    python benchmarks/method.py [--data DATA] [--seeds 0,1,2] [--workers 8] [--device auto] [--json FILE]

On the planted world, and on real spliced videos where `--data` has them: SumR of the last epoch and its
paired difference from the full method with a 95% interval; the shares of the kinds of query; how far the
partition agrees with the planted kinds; how much aligned mass falls inside the true moment.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, print_table, save_json, work_folder
from many_runs import Job, paired, run_jobs, train_to_the_end
from worlds import study_parser, world_stores

from holmes.base.devices import choose_device
from holmes.config.ablations import BASE_OBJECTIVE, BEST_CLIP, FULL, INTRA, TRANSPORT, Ablation
from holmes.config.presets import preset
from holmes.config.schema import with_changes
from holmes.evaluation.scoring import encode_split, score_all
from holmes.evaluation.split_report import evaluated_split, partition
from holmes.records import QueryKind
from holmes.training.protocol import Protocol
from holmes.training.setup import build_alignments, build_identifier

RELATIVE = tuple(
    Ablation(-10 - place, f"relative thresholds, β {beta}", {"thresholds": "relative", "beta": beta})
    for place, beta in enumerate((0.3, 0.1))
)
SINGLE = ("macro_F1", "chance_F1", "hit@1", "held-out SumR", "ECE", "AURC")  # figures that are one number
ROWS = (FULL, BASE_OBJECTIVE, *RELATIVE, *INTRA, *TRANSPORT, BEST_CLIP)


def measure(job: Job, device: str) -> dict[str, Any]:
    """Train one model and report on the split its protocol selects on, after the last epoch."""
    run = train_to_the_end(job, device)
    config, split = run.config, run.splits.select
    batch = config.training.batch_videos
    identify = build_identifier(config)
    report = evaluated_split(
        run.model, run.bank, split, config.score, identify, build_alignments(config.alignment), batch
    ).report
    encoded = encode_split(run.model, run.bank, split)
    kinds_Q = partition(score_all(encoded), encoded.owner_Q, identify, batch)
    shares = np.bincount(kinds_Q, minlength=len(QueryKind)) / len(kinds_Q)
    return {
        "metrics": report["metrics"],
        "kinds": shares.tolist(),
        "macro_F1": report.get("partition", {}).get("macro_F1"),
        "chance_F1": report.get("partition", {}).get("chance_macro_F1"),
        "confusion": report.get("partition", {}).get("confusion"),
        "mass": report.get("aligned_mass"),
        "hit@1": report.get("localisation", {}).get("clip_hit@1"),
    }


def summary(collection: str, row: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """A row's means over seeds, and its paired differences from the full method."""

    def of(name: str) -> dict[int, dict[str, Any]]:
        return {entry["key"][2]: flat(entry) for entry in found if entry["key"][:2] == [name, collection]}

    entries, full = of(row), of(FULL.title)
    names = next(iter(entries.values())).keys()
    return {
        "collection": collection,
        "row": row,
        "seeds": sorted(entries),
        "means": {name: float(np.mean([entry[name] for entry in entries.values()])) for name in names},
        "against_full": {name: paired(column(entries, name), column(full, name)) for name in names}
        if full
        else None,
        "each": {name: column(entries, name) for name in ("SumR",)},
    }


def flat(entry: dict[str, Any]) -> dict[str, float]:
    """Every figure of a job under one name."""
    kinds = {f"share {kind.name.lower()}": entry["kinds"][kind] for kind in QueryKind if "kinds" in entry}
    mass = {f"mass {name}": value for name, value in (entry.get("mass") or {}).items()}
    single = {name: entry[name] for name in SINGLE if entry.get(name) is not None}
    metrics: dict[str, float] = entry["metrics"]
    return metrics | single | kinds | mass


def column(entries: dict[int, dict[str, float]], name: str) -> dict[int, float]:
    return {seed: entry[name] for seed, entry in entries.items()}


def shown(row: dict[str, Any]) -> dict[str, str]:
    """A line of the printed table."""
    means = row["means"]

    def difference(name: str) -> str:
        if row["against_full"] is None or row["row"] == FULL.title:
            return ""
        against = row["against_full"][name]
        return f"{against['difference']:+.3g} ± {against['half_width']:.2g}"

    line = {
        "collection": row["collection"],
        "row": row["row"],
        **{name: f"{means[name]:.1f}" for name in ("R@1", "R@5", "R@10", "SumR")},
        "seeds": str(len(row["seeds"])),
        "SumR against full": difference("SumR"),
    }
    if "share precise" in means:
        line["precise / poly / under"] = " / ".join(
            f"{100 * means[f'share {kind.name.lower()}']:.0f}" for kind in QueryKind
        )
        known = "macro_F1" in means
        line["macro-F1 (chance)"] = f"{means['macro_F1']:.2f} ({means['chance_F1']:.2f})" if known else ""
    for name, digits in (("held-out SumR", 1), ("ECE", 3), ("AURC", 3)):
        if name in means:
            line[name] = f"{means[name]:.{digits}f} {difference(name)}"
    return line


def study(
    description: str | None,
    rows: Sequence[Ablation],
    result: str,
    protocol: Protocol,
    measure: Callable[[Job, str], dict[str, Any]] = measure,
    more: Sequence[ArgumentParser] = (),
) -> None:
    """Train every row with every seed on every world, print the table and write it down.

    `more` are parsers of further options, which are accepted and listed.
    """
    torch.set_num_threads(1)
    parser = study_parser(description, 400, ["batch_videos=32", "warm_up_epochs=20"], result, more=more)
    parser.add_argument("--workers", type=int, default=1, help="trainings side by side (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="seconds after which none is started"
    )
    parser.add_argument("--rows", help="only rows whose title contains one of these, separated by commas")
    options = parser.parse_args()
    device = choose_device(options.device)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    wanted = options.rows.split(",") if options.rows else [""]
    chosen = [row for row in rows if any(part in row.title for part in wanted)]
    changes = dict(change.split("=", 1) for change in options.set)
    config = with_changes(preset(options.preset), {"epochs": options.epochs, "patience": 0, **changes})
    with work_folder(options.work) as folder:
        stores = world_stores(folder, options.data, options.videos, options.only)
        jobs = [
            Job(row.title, name, seed, store, row.apply(config), protocol)
            for row in chosen
            for name, store in stores.items()
            for seed in seeds
        ]
        results = folder / Path(result).with_suffix(".jsonl")
        found = run_jobs(jobs, measure, results, options.workers, options.device, options.seconds)
    done = {(entry["key"][1], entry["key"][0]) for entry in found}
    table = [summary(name, row.title, found) for name in stores for row in rows if (name, row.title) in done]
    settings = "".join(f", {change}" for change in options.set)
    title = f"{options.preset}{settings}, {options.epochs} epochs, last epoch, on {machine(device)}"
    print_table(title, [shown(row) for row in table])
    save_json(options.json, {"title": title, "seeds": seeds, "rows": table})


def main() -> None:
    study(__doc__, ROWS, "method.json", Protocol.PUBLISHED)


if __name__ == "__main__":
    main()
