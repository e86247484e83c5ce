"""Parity of the methods that Holmes is compared with: rows of `parity.py` for their golden files.

Every key of a file is compared. A tolerance is 1e-5, or ten times how far the released float32 result is from
float64 where that is more (`precision` in the file). After training a tensor's change is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from golden_file import PADDING_NOTE, Golden, Row, in_float64, relative_error
from torch import Tensor

from holmes.encoders.gaussian import gaussian_windows
from holmes.encoders.registers import mean_of_queries, perturbed_text
from holmes.evaluation.recall import rank_of_owner, recall
from holmes.losses.cross_query import (
    gathered_by_own_query,
    pair_contrastive_loss,
    pair_scores,
    pair_triplet_loss,
)
from holmes.losses.entailment import entailment_loss, exterior_angle, half_aperture
from holmes.losses.matching import best_assignment, matching_loss
from holmes.losses.text_structure import text_structure_loss
from holmes.records import QueryEmbedding, Scores, Stage, VideoEmbedding
from holmes.similarity import dot_similarity, window_means
from holmes.training.optimizer import FlatAdam, linear_schedule

LEAST_TOLERANCE = 1e-5
# The diffusion takes ten steps, the first of which divides by what little of the signal is left.
ILL_CONDITIONED = {"registers": 1e-4}
# Our part of the loss → the golden key.
LOSSES = {
    "triplet_clip": "triplet_clip",
    "triplet_frame": "triplet_frame",
    "contrastive_clip": "nce_clip",
    "contrastive_frame": "nce_frame",
    "diversity": "diversity",
    "matching": "matching",
    "entailment": "entailment",
    "text_structure": "text_structure",
    "register_kl": "kl",
    "denoising": "denoising",
}


class Comparison:
    """Rows for a golden file: each with the tolerance that the file asks for."""

    def __init__(self, golden: Golden) -> None:
        self.golden = golden
        self.precision: dict[str, float] = golden.settings["precision"]

    def row(self, quantity: str, ours: Any, key: str, precision: str | None = None, note: str = "") -> Row:
        ours = ours.detach() if isinstance(ours, Tensor) else ours
        error = relative_error(ours, self.golden.arrays[key])
        return Row(quantity, error, note, self.tolerance(precision or key.partition("/")[2]))

    def tolerance(self, precision: str) -> float:
        least = ILL_CONDITIONED.get(precision, LEAST_TOLERANCE)
        return max(least, 10 * self.precision.get(precision, 0.0))


def baseline_rows(golden: Golden) -> list[Row]:
    """All rows of a trained method."""
    compare = Comparison(golden)
    golden.draws = 0
    query, video = golden.encode()
    own = {
        "ms_sl": ms_sl_rows,
        "gmmformer": gmmformer_rows,
        "gmmformer_v2": gmmformer_v2_rows,
        "hlformer": hlformer_rows,
        "dreamprvr": dreamprvr_rows,
    }[golden.config.model.encoder]
    with torch.no_grad():
        rows = [
            *embedding_rows(compare, query, video),
            *own(compare, query, video),
            *loss_rows(compare, query, video),
            *synthetic_rows(compare),
            metric_row(golden),
        ]
    with in_float64():
        return [*rows, *training_rows(Comparison(Golden(golden.path)))]


def embedding_rows(compare: Comparison, query: QueryEmbedding, video: VideoEmbedding) -> Iterator[Row]:
    golden = compare.golden
    score = golden.config.score
    note = PADDING_NOTE if golden.objective.score.__name__ == "released_scores" else ""
    yield compare.row("encoder: query", query.query_QD, "out/query")
    yield compare.row("encoder: clips", video.clips_VCD[:, : golden.config.model.clips], "out/clips")
    cosine, dot = golden.objective.score(query, video)
    yield compare.row("scores: clip", cosine.clip_QV, "out/clip_scores")
    yield compare.row("scores: clip_raw", dot.clip_QV, "out/clip_scores_raw")
    yield compare.row("scores: frame", cosine.frame_QV, "out/frame_scores", note=note)
    if "out/frame_scores_raw" in golden.arrays.files:
        yield compare.row("scores: frame_raw", dot.frame_QV, "out/frame_scores_raw", note=note)
    fused = cosine.combined(score.frame_weight, score.clip_weight)
    yield compare.row("scores: fused", fused, "out/fused_scores", note=note)


def visible_frames_row(compare: Comparison, frames_VFD: Tensor, key: str = "out/frames") -> Row:
    """Frames that are not padding: what stands in padded places is arbitrary, and used nowhere."""
    visible = compare.golden.tensor("batch/frame_mask").unsqueeze(-1)
    theirs = compare.golden.tensor(key) * visible
    error = relative_error((frames_VFD * visible).detach(), theirs)
    return Row(f"encoder: {key[4:]}", error, "valid frames", compare.tolerance(key[4:]))


def ms_sl_rows(compare: Comparison, query: QueryEmbedding, video: VideoEmbedding) -> Iterator[Row]:
    golden, model = compare.golden, compare.golden.model
    mask_VF = golden.tensor("batch/frame_mask") > 0
    yield visible_frames_row(compare, model.frame_branch(golden.tensor("batch/frames"), mask_VF))
    yield compare.row(
        "encoder: proposals", window_means(model.clip_branch(golden.tensor("batch/clips"))), "out/proposals"
    )
    unit = torch.nn.functional.normalize
    cosine_QVP = dot_similarity(unit(query.query_QD, dim=-1), unit(video.clips_VCD, dim=-1))
    key_QV = cosine_QVP.argmax(-1)
    yield compare.row("scores: key clip", key_QV, "out/key_clip")
    vectors_QVD = video.frames_VFD[torch.arange(golden.videos), key_QV]
    yield compare.row("scores: frame vectors", vectors_QVD, "out/frame_vectors")
    gathered_QD = gathered_by_own_query(query, video, golden.owners)
    yield compare.row("scores: training frame vectors", gathered_QD, "out/train_frame_vectors")
    cosine_QQ, dot_QQ = pair_scores(query.query_QD, gathered_QD)
    yield compare.row("scores: training frame", cosine_QQ, "out/train_frame_scores")
    yield compare.row("scores: training frame_raw", dot_QQ, "out/train_frame_scores_raw")


def gmmformer_rows(compare: Comparison, query: QueryEmbedding, video: VideoEmbedding) -> Iterator[Row]:
    golden, model, config = compare.golden, compare.golden.model, compare.golden.config.model
    mask_VF = golden.tensor("batch/frame_mask") > 0
    branch = model.frame_branch
    window_GLL = gaussian_windows(config.gaussian_widths, golden.frame_lengths_V.max(), config.frames)
    placed = branch.place(branch.project(golden.tensor("batch/frames")))
    first = branch.layers[0](placed, mask_VF, window_GLL)
    yield visible_frames_row(compare, first, "out/frames_layer1")
    yield visible_frames_row(compare, branch.layers[1](first, mask_VF, window_GLL))
    yield compare.row("encoder: video", video.frames_VFD.squeeze(1), "out/video")
    if "short/videos" not in golden.arrays.files:
        return
    some = golden.tensor("short/videos")
    longest = int(golden.frame_lengths_V[some].max())
    yield Row("short: padded to", abs(longest - int(golden.arrays["short/padded_to"])), "", 0.0)
    short = model.encode_videos(
        golden.tensor("batch/frames")[some],
        golden.frame_lengths_V[some],
        golden.tensor("batch/clips")[some],
    )
    cosine, _ = golden.objective.score(query, short)
    note = "windows follow the longest video of the batch"
    yield compare.row("short: video", short.frames_VFD.squeeze(1), "short/video", note=note)
    yield compare.row("short: frame scores", cosine.frame_QV, "short/frame_scores", note=note)
    yield compare.row("short: clip scores", cosine.clip_QV, "short/clip_scores")


def mixture_rows(compare: Comparison, token_VD: Tensor | None, *registers_VRD: Tensor) -> Iterator[Row]:
    """The clip branch's blocks and how they are mixed."""
    golden, branch = compare.golden, compare.golden.model.clip_branch
    placed_VCD = branch.place(branch.project(golden.tensor("batch/clips")))
    blocks_GVCD = branch.blocks(placed_VCD, None, *registers_VRD)
    yield compare.row("encoder: clip blocks", blocks_GVCD[:, :2], "out/clip_blocks")
    token_VD = blocks_GVCD.mean((0, 2)) if token_VD is None else token_VD
    shares_VCG = branch.mix.shares(blocks_GVCD, None, token_VD).permute(1, 2, 0)
    yield compare.row("encoder: clip mixture", shares_VCG, "out/clip_mixture")


def gmmformer_v2_rows(compare: Comparison, query: QueryEmbedding, video: VideoEmbedding) -> Iterator[Row]:
    golden = compare.golden
    yield visible_frames_row(compare, video.frames_VFD)
    yield from mixture_rows(compare, golden.model.mixing_token.expand(golden.videos, -1))
    query_VMD, mask_VM = golden.owners.by_video(query.query_QD, golden.videos)
    unit = torch.nn.functional.normalize
    cosine_VMC = unit(query_VMD, dim=-1) @ unit(video.clips_VCD, dim=-1).mT
    clip_VM = best_assignment(cosine_VMC, mask_VM)
    yield compare.row(
        "matching: clips", clip_VM[golden.owners.owner_Q, golden.owners.slot_Q], "out/matched_clip"
    )


def hlformer_rows(compare: Comparison, query: QueryEmbedding, video: VideoEmbedding) -> Iterator[Row]:
    owner_Q = compare.golden.owners.owner_Q
    yield visible_frames_row(compare, video.frames_VFD)
    yield from mixture_rows(compare, None)
    point_VD, curvature_V = video.extra["point"], video.extra["curvature"]
    yield compare.row("entailment: curvature", curvature_V[0], "out/curvature")
    yield compare.row("entailment: pooled frames", video.extra["pooled_frames"], "out/pooled_frames")
    yield compare.row("entailment: pooled clips", video.extra["pooled_clips"], "out/pooled_clips")
    yield compare.row("entailment: video point", point_VD, "out/video_point")
    yield compare.row("entailment: query point", query.extra["point"], "out/query_point")
    angle_Q = exterior_angle(point_VD[owner_Q], query.extra["point"], curvature_V[owner_Q])
    yield compare.row("entailment: angle", angle_Q, "out/entailment_angle")
    yield compare.row("entailment: aperture", half_aperture(point_VD, curvature_V), "out/entailment_aperture")


def dreamprvr_rows(compare: Comparison, query: QueryEmbedding, video: VideoEmbedding) -> Iterator[Row]:
    golden, registers, branch = (
        compare.golden,
        compare.golden.model.registers,
        compare.golden.model.clip_branch,
    )
    yield visible_frames_row(compare, video.frames_VFD)
    origin = registers.origin(branch.place(branch.project(golden.tensor("batch/clips"))))
    yield compare.row("registers: condition", origin.condition_VRD, "out/condition")
    yield compare.row("registers: mu", origin.start_VD, "out/mu")
    yield compare.row("registers: log variance", origin.log_variance_VD, "out/logvar")
    drawn_VRD = registers(origin)
    yield compare.row("registers: registers", drawn_VRD, "out/registers")
    yield from mixture_rows(compare, None, drawn_VRD)
    text_VD = mean_of_queries(*golden.owners.by_video(query.query_QD, golden.videos))
    yield compare.row("registers: mean queries", text_VD, "out/mean_queries")
    text_VRD = perturbed_text(text_VD, golden.tensor("noise/alpha")[0], golden.tensor("noise/beta")[0])
    yield compare.row("registers: perturbed text", text_VRD, "out/perturbed_text")
    noise_VRD = origin.start_VD.unsqueeze(1).expand_as(text_VRD)
    yield compare.row("registers: original noise", noise_VRD, "out/original_noise")
    predicted_TVRD = registers.predicted_noise(text_VRD, origin)
    yield compare.row("registers: predicted noise", predicted_TVRD, "out/predicted_noise")


def loss_rows(compare: Comparison, query: QueryEmbedding, video: VideoEmbedding) -> Iterator[Row]:
    """Every term on the model's own embeddings, and their weighted sum."""
    golden = compare.golden
    found = golden.objective(
        query, video, golden.owners, Stage.CALIBRATED, uniform(golden), hard_negatives=True
    )
    for part, key in LOSSES.items():
        if f"loss_model/{key}" in golden.arrays.files:
            yield compare.row(f"loss_model: {key}", found.parts[part], f"loss_model/{key}", f"loss/{key}")
    yield compare.row("loss_model: total", found.total, "loss_model/total", "loss/total")


def uniform(golden: Golden) -> Tensor:
    return torch.rand(len(golden.token_lengths_Q), golden.videos)


def synthetic_rows(compare: Comparison) -> Iterator[Row]:
    """The terms on random scores, queries and clips, with unequal numbers of queries."""
    golden, objective = compare.golden, compare.golden.objective
    owners, files = golden.owners_in("synth"), golden.arrays.files
    paired = "synth/train_frame_scores" in files

    def scores(ending: str) -> Scores:
        clip_QV = golden.tensor(f"synth/clip_scores{ending}")
        return Scores(clip_QV if paired else golden.tensor(f"synth/frame_scores{ending}"), clip_QV)

    pairs = None
    if paired:
        cosine_QQ, dot_QQ = (golden.tensor(f"synth/train_frame_scores{ending}") for ending in ("", "_raw"))
        margin, pool = objective.margin, objective.hard_pool
        pairs = {
            "triplet_frame": pair_triplet_loss(cosine_QQ, owners.mask_Q, uniform(golden), margin, pool),
            "contrastive_frame": pair_contrastive_loss(dot_QQ, owners.mask_Q),
        }
    parts = objective.similarity_loss(scores(""), scores("_raw"), owners, uniform(golden), True, pairs)
    if "synth/query" in files:
        query_QD = golden.tensor("synth/query")
        query_VMD, mask_VM = owners.by_video(query_QD, golden.videos)
        margin, scale = objective.diversity_margin, objective.diversity_scale
        parts["diversity"] = objective.diversify(query_VMD, mask_VM, margin, scale)
        clips_VCD = golden.tensor("synth/clips")
        parts["matching"] = matching_loss(query_VMD, clips_VCD, mask_VM)
        temperature = golden.config.loss.text_temperature
        parts["text_structure"] = text_structure_loss(query_QD, owners.owner_Q, owners.mask_Q, temperature)
    if "synth/curvature" in files:
        curvature_V = golden.tensor("synth/curvature").expand(golden.videos)
        points = golden.tensor("synth/video_point"), golden.tensor("synth/query_point")
        parts["entailment"] = entailment_loss(*points, curvature_V, owners.owner_Q, owners.mask_Q)
    for part, key in LOSSES.items():
        if f"loss_synth/{key}" in files:
            yield compare.row(f"loss_synth: {key}", parts[part], f"loss_synth/{key}", f"loss/{key}")


def metric_row(golden: Golden) -> Row:
    ranks_Q = rank_of_owner(golden.tensor("metrics/scores"), golden.tensor("metrics/owner"))
    ours = [value for name, value in recall(ranks_Q).items() if name != "SumR"]
    return Row("metrics: R@1, 5, 10, 100", relative_error(np.array(ours), golden.tensor("metrics/recalls")))


def training_rows(compare: Comparison) -> Iterator[Row]:
    """Steps of the released optimiser; a tensor is compared relative to how far it moved.

    In float64: where a number is nearly clamped, or two are nearly the largest, rounding would decide which
    way the gradient takes.
    """
    golden, how = compare.golden, compare.golden.settings["optimiser"]
    golden.draws = 1
    optimizer = FlatAdam(golden.model, how["decay"])
    losses = []
    for step in range(how["steps"]):
        loss = golden.loss(Stage.CALIBRATED, golden.objective)
        losses.append(loss.item())
        loss.backward()
        optimizer.collect_gradients()
        optimizer.step(torch.tensor(how["lr"] * linear_schedule(step, how["t_total"], how["warmup"])))
    yield compare.row("training: losses of all steps", np.array(losses), "train/losses", "train/losses")
    after, prefix = golden.published(), "train/after/"
    for key in (key for key in golden.arrays.files if key.startswith(prefix)):
        name = key.removeprefix(prefix)
        moved = golden.tensor(key) - golden.state[name]
        error = relative_error(after[name] - golden.state[name], moved)
        yield Row(f"training: {name}", error, "of its change", compare.tolerance(f"train/{name}"))
