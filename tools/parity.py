"""Compare this implementation with a golden file, quantity by quantity.

    python tools/parity.py FILE.npz

A golden file holds a tiny model, its inputs, and what the released configuration computes from them. Every
quantity is recomputed here and the largest relative error printed. Exit code 1 if one exceeds the tolerance;
where we differ on purpose the comparison follows the released behaviour and the table says what ours does.
A file of training mode holds how much the outputs vary under dropout instead: see `dropout_parity.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from baseline_parity import baseline_rows
from dropout_parity import dropout_rows
from golden_file import PADDING_NOTE, Golden, Row, relative_error
from rich.console import Console
from rich.table import Table
from tf_prvr_parity import tf_prvr_rows

from holmes.data.pooling import unit_rows, video_clips, video_frames
from holmes.evaluation.recall import rank_of_owner, recall
from holmes.evidence.dirichlet import concentration, opinion
from holmes.evidence.fusion import dempster_combine, fuse_evidence
from holmes.evidence.query_kinds import trust_clip, trust_frame
from holmes.losses.intra_video import clip_query_similarity
from holmes.records import QueryEmbedding, Scores, Stage, VideoEmbedding
from holmes.training.optimizer import FlatAdam, linear_schedule


def pooling_rows(golden: Golden) -> Iterator[Row]:
    files = golden.arrays.files
    videos = sorted({key.split("/")[1] for key in files if key.startswith("raw_video/")}, key=int)
    raw = [golden.arrays[f"raw_video/{i}"] for i in videos]
    clips = [golden.arrays[f"sampled_clips/{i}"] for i in videos]
    frames = [golden.arrays[f"sampled_frames/{i}"] for i in videos]
    yield Row(
        "pooling: clips", max(relative_error(video_clips(r), g) for r, g in zip(raw, clips, strict=True))
    )
    yield Row(
        "pooling: frames", max(relative_error(video_frames(r), g) for r, g in zip(raw, frames, strict=True))
    )
    tokens = golden.arrays["batch/query_tokens"]
    queries = [key for key in files if key.startswith("raw_query/")]
    queries.sort(key=lambda key: [int(part) for part in key.split("/")[1:]])
    errors = []
    for row, key in zip(tokens, queries, strict=True):
        ours = unit_rows(golden.arrays[key][: golden.config.model.tokens])
        errors.append(relative_error(ours, row[: len(ours)]))
    yield Row("pooling: query tokens", max(errors))


def encoder_rows(golden: Golden) -> Iterator[Row]:
    query, video = golden.encode()
    visible = video.frame_mask_VF.unsqueeze(-1)
    frames, note = golden.tensor("out/frames"), "valid frames" if golden.has_padding else ""
    yield Row("encoder: frames", relative_error(video.frames_VFD * visible, frames * visible), note)
    yield Row("encoder: clips", relative_error(video.clips_VCD, golden.tensor("out/clips")))
    yield Row("encoder: query", relative_error(query.query_QD, golden.tensor("out/query")))
    if query.tokens_QTD is not None:
        valid = golden.tensor("batch/query_mask").unsqueeze(-1)
        tokens = golden.tensor("out/frame_query_tokens")
        yield Row("encoder: frame query tokens", relative_error(query.tokens_QTD * valid, tokens * valid))
    note = PADDING_NOTE if golden.has_padding else ""
    for name, ours in zip(("", "_raw"), golden.objective.score(query, video), strict=True):
        yield Row(
            f"scores: clip{name}", relative_error(ours.clip_QV, golden.tensor(f"out/clip_scores{name}"))
        )
        yield Row(
            f"scores: frame{name}",
            relative_error(ours.frame_QV, golden.tensor(f"out/frame_scores{name}")),
            note,
        )


def transport_rows(golden: Golden) -> Iterator[Row]:
    query, video = golden.encode()
    query_VMD, mask_VM = golden.owners.by_video(query.query_QD, golden.videos)
    similarity_VMC = clip_query_similarity(query_VMD, video.clips_VCD, mask_VM)
    align = golden.objective.align
    yield Row("transport: similarity", relative_error(similarity_VMC, golden.tensor("out/intra_similarity")))
    yield Row(
        "transport: plan", relative_error(align(similarity_VMC, mask_VM), golden.tensor("out/intra_plan"))
    )
    query_VMD, clips_VCD = golden.tensor("fot/queries"), golden.tensor("fot/clips")
    mask_VM = torch.ones(query_VMD.shape[:2], dtype=torch.bool)
    similarity_VMC = clip_query_similarity(query_VMD, clips_VCD, mask_VM)
    yield Row(
        "transport: random similarity", relative_error(similarity_VMC, golden.tensor("fot/similarity01"))
    )
    yield Row(
        "transport: random plan", relative_error(align(similarity_VMC, mask_VM), golden.tensor("fot/plan"))
    )


def loss_rows(golden: Golden, source: str) -> Iterator[Row]:
    """Losses on the model's own scores, or on synthetic ones."""
    query, video = golden.encode()
    synthetic = source == "loss_synth"

    def score(query: QueryEmbedding, video: VideoEmbedding) -> tuple[Scores, Scores]:
        if not synthetic:
            return golden.objective.score(query, video)
        frame, clip = (golden.tensor(f"synth/{branch}_scores") for branch in ("frame", "clip"))
        frame_raw, clip_raw = (golden.tensor(f"synth/{branch}_scores_raw") for branch in ("frame", "clip"))
        return Scores(frame, clip), Scores(frame_raw, clip_raw)

    objective = replace(golden.objective, score=score)
    uniform_QV = torch.rand(len(golden.token_lengths_Q), golden.videos)
    stage_losses = {
        stage: objective(query, video, golden.owners, stage, uniform_QV, hard_negatives=True)
        for stage in Stage
    }
    first, second = stage_losses[Stage.WARM_UP].parts, stage_losses[Stage.CALIBRATED].parts
    note = PADDING_NOTE if golden.has_padding and not synthetic else ""
    ours = {
        "triplet_frame": first["triplet_frame"],
        "triplet_clip": first["triplet_clip"],
        "nce_frame": first["contrastive_frame"],
        "nce_clip": first["contrastive_clip"],
        "diversity": first["diversity"],
        "intra": second["intra"],
        "edl_onehot": torch.stack([first[f"inter_{term}"] for term in ("frame", "clip", "fused")]),
        "stage1/total": stage_losses[Stage.WARM_UP].total,
        "stage2/total": stage_losses[Stage.CALIBRATED].total,
    }
    for name, value in ours.items():
        yield Row(
            f"{source}: {name}",
            relative_error(value.detach(), golden.tensor(f"{source}/{name}")),
            note if "clip" not in name and name not in ("diversity", "intra") else "",
        )

    cosine, _ = score(query, video)
    frame_QV, clip_QV = (
        objective.evidence(scores_QV.detach(), objective.inter_temperature)
        for scores_QV in (cosine.frame_QV, cosine.clip_QV)
    )
    fused_QV = fuse_evidence(frame_QV, clip_QV)
    fused = opinion(fused_QV)
    combined = dempster_combine(opinion(frame_QV), opinion(clip_QV))
    for name, value, key in (
        ("alpha frame", concentration(frame_QV), "alpha_frame"),
        ("alpha clip", concentration(clip_QV), "alpha_clip"),
        ("alpha fused", concentration(fused_QV), "alpha_fused"),
        ("belief fused, closed form", fused.belief_QV, "belief_fused"),
        ("belief fused, Dempster", combined.belief_QV, "belief_fused"),
        ("uncertainty fused", fused.uncertainty_Q.unsqueeze(1), "uncertainty_fused"),
    ):
        yield Row(f"{source}: {name}", relative_error(value, golden.tensor(f"{source}/{key}")))
    for branch, trust in (("frame", trust_frame), ("clip", trust_clip)):
        kinds_Q = replace(objective, fuse_partitions=trust).identify_queries(cosine, golden.owners)
        yield Row(
            f"{source}: partition {branch}",
            relative_error(kinds_Q, golden.tensor(f"{source}/partition_{branch}")),
        )


def training_rows(golden: Golden) -> Iterator[Row]:
    """Eight steps of the released optimiser in stage 2: peak 3e-4, warm-up over a quarter of 40 steps."""
    losses_golden = golden.arrays["train/losses"]
    optimizer = FlatAdam(golden.model)
    losses = []
    for step in range(len(losses_golden)):
        loss = golden.loss(Stage.CALIBRATED, golden.objective)
        losses.append(loss.item())
        loss.backward()
        optimizer.collect_gradients()
        optimizer.step(torch.tensor(3e-4 * linear_schedule(step, 40, 0.25)))
    note = PADDING_NOTE if golden.has_padding else ""
    yield Row("training: losses of eight steps", relative_error(np.array(losses), losses_golden), note)
    after, prefix = golden.published(), "train/after/"
    for key in (key for key in golden.arrays.files if key.startswith(prefix)):
        name = key.removeprefix(prefix)
        yield Row(f"training: {name}", relative_error(after[name], golden.tensor(key)), note)


def metric_rows(golden: Golden) -> Iterator[Row]:
    ranks_Q = rank_of_owner(golden.tensor("metrics/scores"), golden.tensor("metrics/owner"))
    ours = [value for name, value in recall(ranks_Q).items() if name != "SumR"]
    yield Row("metrics: R@1, 5, 10, 100", relative_error(np.array(ours), golden.tensor("metrics/recalls")))


def all_rows(path: Path) -> list[Row]:
    torch.manual_seed(0)
    arrays = np.load(path, allow_pickle=False)
    if not any(key.startswith("state/") for key in arrays.files):
        return list(tf_prvr_rows(arrays))
    golden = Golden(path)
    if "rate" in golden.arrays.files:
        return list(dropout_rows(golden, Row))
    if golden.config.model.encoder != "mixture":
        return baseline_rows(golden)
    with torch.no_grad():
        rows = [
            *pooling_rows(golden),
            *encoder_rows(golden),
            *transport_rows(golden),
            *loss_rows(golden, "loss_model"),
            *loss_rows(golden, "loss_synth"),
            *metric_rows(golden),
        ]
    return [*rows, *training_rows(golden)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, metavar="FILE.npz")
    path = parser.parse_args().file
    if not path.is_file():
        print(f"parity: {path} does not exist.", file=sys.stderr)
        return 2
    try:
        rows = all_rows(path)
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        print(f"parity: {path} is not a whole golden file: {error}.", file=sys.stderr)
        return 2
    table = Table(title=f"Parity with {path.name}", title_justify="left")
    for column, justify in (
        ("quantity", "left"),
        ("largest relative error", "right"),
        ("tolerance", "right"),
        ("", "left"),
        ("why", "left"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        verdict = "[green]ok[/]" if row.agrees else "[red]differs[/]"
        table.add_row(row.quantity, f"{row.error:.1e}", f"{row.tolerance:g}", verdict, row.note)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    failed = [row.quantity for row in rows if not row.agrees]
    print(
        f"{len(rows) - len(failed)} of {len(rows)} quantities agree."
        + (f" Not: {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
