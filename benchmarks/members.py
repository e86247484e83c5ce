"""Several models as one: the mean score of 2, 4 and 8 seeds, and one model distilled from four of them.

    python benchmarks/members.py --data DATA [--preset FOLDER/best.json] [--only msvd] [--jobs 6] [--work W]

All models of a collection hold out the same training videos, which calibrate single models and means alike.
A student learns from the usual losses and from its teachers' mean scores of every batch. On the test split:
SumR with its paired difference to single models (videos and seeds drawn, 95%), calibration error, area under
the risk-coverage curve. A mean of n models costs n times the encoding, index and scan; a student costs one.
The same command with the same `--work` trains only what is left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from common import machine, print_table, save_json, work_folder
from torch import Tensor
from worlds import study_parser, world_stores

from holmes.base.devices import choose_device
from holmes.base.files import atomic_file
from holmes.base.parallel import ALONE
from holmes.base.processes import Child, Parent, run_jobs
from holmes.config.presets import preset, read_settings
from holmes.config.schema import HolmesConfig, from_dict, to_dict, with_changes
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint, save_checkpoint
from holmes.encoders.model import HolmesModel
from holmes.encoders.precision import encoder_precision
from holmes.evaluation.confidence.answered import as_numpy
from holmes.evaluation.confidence.metrics import area_under_risk_coverage, calibration_error
from holmes.evaluation.intervals import bootstrap_counts, draw_videos, paired_differences
from holmes.evaluation.recall import rank_of_owner, recall
from holmes.evaluation.scoring import encode_split, score_all
from holmes.evidence.fitting import fit_calibration, judge_all
from holmes.records import Batch, QueryEmbedding, Scores, Stage, VideoEmbedding, in_float32
from holmes.results import METRICS
from holmes.training.calibrate import fitting_videos
from holmes.training.display import TrainingDisplay
from holmes.training.protocol import Protocol, Splits, choose_splits
from holmes.training.run import Run, RunOptions
from holmes.training.setup import fit_to_store
from holmes.training.step import GraphedStep, StepReport, TrainStep
from holmes.training.tuning.trials import release_memory

TEACHERS = 4
TEMPERATURE = 0.07  # of the softmax over a batch's videos, as InfoNCE's
SPLITS = ("held", "test")


class DistillingStep(TrainStep):
    """A training step with one more term: the student's shares of a batch's videos follow its teachers'."""

    def __init__(self, step: TrainStep, teachers: Sequence[HolmesModel], weight: float, config: HolmesConfig):
        self.__dict__.update(step.__dict__)
        self.teachers, self.weight, self.branches = teachers, weight, config.score

    def __call__(self, batch: Batch, stage: Stage, uniform_QV: Tensor, learning_rate: Tensor) -> StepReport:
        with torch.no_grad():
            scores = [self.score(*self.encoded_by(teacher, batch)) for teacher in self.teachers]
            self.taught_QV = torch.stack(scores).mean(0)
        return super().__call__(batch, stage, uniform_QV, learning_rate)

    def encoded_by(self, model: HolmesModel, batch: Batch) -> tuple[QueryEmbedding, VideoEmbedding]:
        with encoder_precision(self.device):
            query = model.encode_queries(batch.tokens_QTD, batch.token_lengths_Q)
            video = model.encode_videos(batch.frames_VFD, batch.frame_lengths_V, batch.clips_VCD)
        return in_float32(query), in_float32(video)

    def score(self, query: QueryEmbedding, video: VideoEmbedding) -> Tensor:
        cosine, _ = self.objective.score(query, video)
        return cosine.combined(self.branches.frame_weight, self.branches.clip_weight)

    def losses(self, query: Any, video: Any, owners: Any, *rest: Any) -> dict[str, Tensor]:
        values = super().losses(query, video, owners, *rest)
        ours_QV, theirs_QV = self.score(query, video) / TEMPERATURE, self.taught_QV / TEMPERATURE
        apart_Q = F.kl_div(ours_QV.log_softmax(1), theirs_QV.softmax(1), reduction="none").sum(1)
        distilled = (apart_Q * owners.mask_Q).sum() / owners.mask_Q.sum()
        return values | {"total": values["total"] + self.weight * distilled, "distilled": distilled}


def worker(parent: Parent, device: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    torch.set_num_threads(1)
    return partial(train_model, device=choose_device(device))


def train_model(job: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Train one model to its last epoch and keep its weights and its scores of held-out and test queries."""
    start, out = time.monotonic(), Path(job["out"])
    store, config = Store.open(job["store"]), from_dict(job["config"])
    splits = splits_of(store, config)
    options = RunOptions(device=str(device), progress=False)
    run = Run(store, splits, config, Path(os.devnull), job["seed"], ALONE, device, options)
    if job["teachers"]:
        plain = run.step.step if isinstance(run.step, GraphedStep) else run.step
        teachers = [load_checkpoint(Path(each), str(device)).model.eval() for each in job["teachers"]]
        taught = DistillingStep(plain, teachers, job["weight"], config)
        run.step = GraphedStep(taught) if isinstance(run.step, GraphedStep) else taught
    with TrainingDisplay(1, 0, False) as silent:
        for epoch in range(config.training.epochs):
            last = run.train_epoch(epoch, silent)
    save_checkpoint(out.with_suffix(""), run.model, config)
    arrays: dict[str, Any] = {}
    for name, split in zip(SPLITS, (splits.select, splits.report), strict=True):
        scores = score_all(encode_split(run.model, run.bank, split))
        arrays |= {f"{name}/frame": as_numpy(scores.frame_QV), f"{name}/clip": as_numpy(scores.clip_QV)}
    with atomic_file(out) as file:  # last: it says that the model is there
        np.savez_compressed(file, **arrays)
    del run
    release_memory(device)
    return {"seconds": time.monotonic() - start, "loss": last["loss"]}


def splits_of(store: Store, config: HolmesConfig) -> Splits:
    """The same held-out videos for all models of a collection."""
    return choose_splits(store, Protocol.HONEST, config.training.held_out, seed=0)


def mean_scores(files: Sequence[Path], split: str) -> Scores:
    loaded = [np.load(file, allow_pickle=False) for file in files]
    return Scores(
        *(
            torch.from_numpy(np.mean([each[f"{split}/{branch}"] for each in loaded], 0))
            for branch in ("frame", "clip")
        )
    )


@torch.inference_mode()
def tested(files: Sequence[Path], store: Store, config: HolmesConfig) -> dict[str, Any]:
    """Recall of the mean score on test, and how far its probabilities can be trusted, fitted on held-out."""
    splits, weights = splits_of(store, config), config.score
    owner_Q = torch.from_numpy(splits.report.owner)
    test = mean_scores(files, "test")
    rank_Q = rank_of_owner(test.combined(weights.frame_weight, weights.clip_weight), owner_Q)
    found: dict[str, Any] = {"rank_Q": rank_Q.numpy(), "metrics": recall(rank_Q)}
    fitted = fit_calibration(
        mean_scores(files, "held"),
        torch.from_numpy(splits.select.owner),
        weights.frame_weight,
        weights.clip_weight,
        "members",
        fitting_videos(store, splits.select),
    )
    if fitted is None:
        return found
    right_Q = (rank_of_owner(fitted.score(test), owner_Q) == 1).numpy()
    probability_Q = as_numpy(judge_all(test, fitted).gallery.probability_top(1))
    once = bootstrap_counts(splits.report.owner, repeats=0)
    found["ECE"] = float(calibration_error(probability_Q, right_Q, once)[0])
    found["AURC"] = float(area_under_risk_coverage(probability_Q, right_Q, once)[0])
    return found


def compared(
    store: Store, config: HolmesConfig, members: Sequence[Path], students: Sequence[Path]
) -> list[dict[str, Any]]:
    """A line for single models, for every number of members, and for the students."""
    singles = [tested([file], store, config) for file in members]
    draws = draw_videos(splits_of(store, config).report.owner)
    lines = [line("one model", singles, singles, draws, 1)]
    for size in (2, 4, 8):
        if size <= len(members) and len(members) % size == 0:
            starts = range(0, len(members), size)
            groups = [tested(members[start : start + size], store, config) for start in starts]
            each = [group for group in groups for _ in range(size)]  # beside every one of its members
            lines.append(line(f"mean of {size}", each, singles, draws, size))
    if students:
        taught = [tested([file], store, config) for file in students]
        lines.append(line(f"one model, distilled from {TEACHERS}", taught, singles[: len(taught)], draws, 1))
    return lines


def line(
    row: str, ours: list[dict[str, Any]], singles: list[dict[str, Any]], draws: Any, cost: int
) -> dict[str, Any]:
    ranks = [np.stack([one["rank_Q"] for one in some]) for some in (ours, singles)]
    gain = None if ours is singles else paired_differences(ranks[0], ranks[1], draws)["SumR"].to_json()
    means = {name: float(np.mean([one["metrics"][name] for one in ours])) for name in METRICS}
    sure = {
        name: float(np.mean([one[name] for one in ours])) if all(name in one for one in ours) else None
        for name in ("ECE", "AURC")
    }
    return {"row": row, "models": len(ours), **means, "gain": gain, **sure, "cost": cost}


def shown(collection: str, entry: dict[str, Any]) -> dict[str, Any]:
    gain = entry["gain"]
    cells = {"collection": collection, "row": entry["row"]}
    cells |= {name: f"{entry[name]:.1f}" for name in ("R@1", "R@5", "R@10", "SumR")}
    cells["SumR gained"] = (
        "" if gain is None else f"{gain['value']:+.1f} [{gain['low']:.1f}, {gain['high']:.1f}]"
    )
    cells |= {name: "–" if entry[name] is None else f"{entry[name]:.3f}" for name in ("ECE", "AURC")}
    return cells | {"cost of search": f"{entry['cost']} ×"}


def main() -> None:
    parser = study_parser(__doc__, 400, [], "members.json")
    parser.set_defaults(preset="charades_plus", seeds="0,1,2,3,4,5,6,7", epochs=None)
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side (%(default)s)")
    parser.add_argument("--weight", type=float, default=1.0, help="of the distilled term (%(default)s)")
    parser.add_argument("--seconds", type=float, default=540, help="after which no training begins")
    options = parser.parse_args()
    changes: dict[str, Any] = dict(change.split("=", 1) for change in options.set) | {"patience": 0}
    changes |= {} if options.epochs is None else {"epochs": options.epochs}
    named = Path(options.preset)
    base = read_settings(named) if named.suffix == ".json" else preset(options.preset)
    seeds, deadline = [int(seed) for seed in options.seeds.split(",")], time.monotonic() + options.seconds
    start: Callable[..., Child] = partial(
        Child, "members:worker", setup={"device": options.device}, environment={"OMP_NUM_THREADS": "1"}
    )
    found: dict[str, Any] = {}
    with work_folder(options.work) as work:
        stores = world_stores(work, options.data, options.videos, options.only)
        configs = {
            name: fit_to_store(with_changes(base, changes), Store.open(path)) for name, path in stores.items()
        }

        def files(kind: str, name: str) -> list[Path]:
            return [work / "members" / name / f"{kind}-seed{seed}.npz" for seed in seeds]

        for kind in ("member", f"student-{options.weight:g}"):  # students need all their teachers
            jobs = []
            for name, path in stores.items():
                teachers = [] if kind == "member" else files("member", name)[:TEACHERS]
                if not all(each.exists() for each in teachers):
                    continue
                order = {"store": str(path), "config": to_dict(configs[name]), "weight": options.weight}
                order |= {"teachers": [str(each.with_suffix("")) for each in teachers]}
                jobs += [
                    (out, order | {"seed": seed, "out": str(out)})
                    for seed, out in zip(seeds, files(kind, name), strict=True)
                    if not out.exists()
                ]
            in_time = (job for job in jobs if time.monotonic() < deadline)
            for finished in run_jobs(start, in_time, options.jobs):
                said = finished.failure or f"{finished.result['seconds']:.0f} s"
                print(f"{finished.job.parent.name} {finished.job.stem}: {said}", flush=True)
        for name, path in stores.items():
            members, students = (
                [file for file in files(kind, name) if file.exists()]
                for kind in ("member", f"student-{options.weight:g}")
            )
            if members:
                found[name] = compared(Store.open(path), configs[name], members, students)
    title = f"test split, last epoch, {options.preset}, on {machine(choose_device(options.device))}"
    print_table(title, [shown(name, entry) for name, lines in found.items() for entry in lines])
    save_json(options.json, {"title": title, "seeds": seeds, "weight": options.weight, "collections": found})


if __name__ == "__main__":
    main()
