"""What search is compared with: a scan of float16 rows, and the plain scan that a NumPy user would write.

The float16 scan is the one that Holmes had before its codes. One query multiplies float16 as it is. Many
convert blocks that stay in the cache to bfloat16, so this needs a CPU that multiplies bfloat16.

Q queries, S parts of videos, P rows of a part, D width
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from search_galleries import first_videos
from torch import Tensor

from holmes.base.parallel import in_threads
from holmes.index.engine import rescoring
from holmes.index.engine.gallery import Gallery
from holmes.index.engine.nearest import Scored, nearest_videos, prove_best
from holmes.index.engine.scan import Probes, make_probes
from holmes.records import CLIPS, QueryEmbedding

FRAME_WEIGHT, CLIP_WEIGHT = 0.4, 0.6
NUMPY_BLOCK = 64  # videos that a NumPy scan converts at once: the fastest of 8, 64 and 512 here
NUMPY_BATCH_VIDEOS = 20_000  # a batch is compared with NumPy on this many
LONG = 10.0  # seconds; what takes longer is timed once


def beside_float16(
    gallery: Gallery,
    kept: Gallery,
    one: QueryEmbedding,
    many: QueryEmbedding,
    batch: int,
    top: int,
    repeats: int,
    result: dict[str, Any],
) -> None:
    """The scan of the float16 rows, in turn with ours, and the proof that both find the same."""
    for name, query in (("one query", one), (f"batch of {batch}", many)):
        probes = make_probes(query, FRAME_WEIGHT, CLIP_WEIGHT)
        if name == "one query":
            float16_search(kept, probes, top)  # brings the rows into memory
        ours: list[np.ndarray] = []
        theirs: list[np.ndarray] = []
        for number in range(max(repeats, 3) if len(query.query_QD) == 1 else 2):
            if number and ours[0][0] > LONG:
                break
            began = clocks()
            found = nearest_videos(gallery, probes, top)
            between = clocks()
            parts_QK, score_QK, *_ = float16_search(kept, probes, top)
            ours.append(between - began)
            theirs.append(clocks() - between)
        wall, cpu = np.median(np.array(theirs) / np.array(ours), axis=0).tolist()
        result["searches"][name] |= {
            "float16_ms": 1e3 * float(np.median(theirs, axis=0)[0]),
            "times_float16": wall,
            "times_float16_cpu": cpu,
            "same_as_float16": torch.equal(parts_QK, found.parts_QK)
            and torch.equal(score_QK, found.score_QK),
        }


def cost_of_checksums(gallery: Gallery, width: int, top: int, candidates: int, repeats: int) -> float:
    """The share of a search's processor time in which the rows it read are compared with their checksums."""
    spent, check = [0.0, 0.0], rescoring.refuse_damaged

    def timed_check(*rows: Any) -> None:
        began = time.thread_time()
        check(*rows)
        spent[0] += time.thread_time() - began

    for _ in range(repeats):
        probes = make_probes(QueryEmbedding(torch.randn(1, width)), FRAME_WEIGHT, CLIP_WEIGHT)
        began = time.process_time()
        with patch.object(rescoring, "refuse_damaged", timed_check):
            nearest_videos(gallery, probes, top, candidates)
        spent[1] += time.process_time() - began
    return spent[0] / spent[1]


def clocks() -> np.ndarray:
    """Seconds by the clock, and seconds of processor time, which is fair on a busy machine."""
    return np.array([time.perf_counter(), time.process_time()])


def beside_numpy(
    gallery: Gallery,
    kept: Gallery,
    one: QueryEmbedding,
    many: QueryEmbedding,
    batch: int,
    top: int,
    result: dict[str, Any],
) -> None:
    """The plain scan a NumPy user would write, in turn with ours, and the proof that both agree."""
    for name, query, videos in (
        ("one query", one, len(gallery)),
        (f"batch of {batch}", many, NUMPY_BATCH_VIDEOS),
    ):
        part = first_videos(gallery, videos)
        blocks = [slab.rows_SPD.numpy() for slab in first_videos(kept, videos).slabs]
        probes = make_probes(query, FRAME_WEIGHT, CLIP_WEIGHT)
        unit_QD = F.normalize(query.query_QD, dim=-1).numpy()
        ours, plain = [], []
        for _ in range(3):
            began = time.perf_counter()
            found = nearest_videos(part, probes, top)
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            scores_QV = numpy_scan(blocks, unit_QD)
            order_QK = np.argsort(-scores_QV, axis=1, kind="stable")[:, :top]
            plain.append(time.perf_counter() - began)
        difference = np.abs(found.hit_score_QH.numpy() - np.take_along_axis(scores_QV, order_QK, 1)).max()
        result["searches"][name] |= {
            "numpy_ms": 1e3 * statistics.median(plain),
            "times_numpy": statistics.median(plain) / statistics.median(ours),
            "compared_on_videos": len(part),
            "same_order_as_numpy": found.hit_QH.tolist() == order_QK.tolist(),
            "largest_score_difference": float(difference),
        }


def numpy_scan(blocks: list[np.ndarray], query_QD: np.ndarray) -> np.ndarray:
    """float16 rows to float32, one product, the maximum of each branch."""
    scores = []
    for rows_SPD in blocks:
        for start in range(0, len(rows_SPD), NUMPY_BLOCK):
            block_SPD = rows_SPD[start : start + NUMPY_BLOCK].astype(np.float32)
            similarity_QN = query_QD @ block_SPD.reshape(-1, block_SPD.shape[-1]).T
            similarity_QVP = similarity_QN.reshape(len(query_QD), len(block_SPD), -1)
            frame_QV, clip_QV = similarity_QVP[..., :-CLIPS].max(-1), similarity_QVP[..., -CLIPS:].max(-1)
            scores.append(FRAME_WEIGHT * frame_QV + CLIP_WEIGHT * clip_QV)
    return np.concatenate(scores, axis=1)


def timed(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """The median of the seconds, after one run that counts only if it takes long."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        if seconds[0] > LONG:
            return seconds[0]
    return statistics.median(seconds[1:])


def float16_search(gallery: Gallery, probes: Probes, top: int) -> Scored:
    """The best parts, exactly, by way of the float16 scan."""
    return prove_best(gallery, probes, float16_scan(gallery, probes), top)


def float16_scan(gallery: Gallery, probes: Probes) -> Tensor:
    """A bound that no part's exact score exceeds, Q × S, for queries of one probe."""
    exact_QD = probes.rows_QTD[:, 0]
    frame_weight_Q1, clip_weight_Q1 = probes.frame_weight_QT, probes.clip_weight_QT
    few = len(exact_QD) <= 2
    dtype = torch.float16 if few else torch.bfloat16
    rounded_QD = exact_QD.to(dtype)
    bound_QS = torch.empty((len(exact_QD), len(gallery)))

    def scan_block(block: tuple[int, Tensor]) -> None:
        first, rows_SPD = block
        rows_ND = rows_SPD.flatten(0, 1)
        if few:
            similarity_QSP = (rows_ND @ rounded_QD.T).T.reshape(len(exact_QD), *rows_SPD.shape[:2])
            frame_QS = similarity_QSP[..., : -gallery.clips].amax(-1).float()
            clip_QS = similarity_QSP[..., -gallery.clips :].amax(-1).float()
        else:
            similarity_SPQ = (rows_ND.float().to(dtype) @ rounded_QD.T).view(*rows_SPD.shape[:2], -1)
            frame_QS = similarity_SPQ[:, : -gallery.clips].amax(1).T.float()
            clip_QS = similarity_SPQ[:, -gallery.clips :].amax(1).T.float()
        weighted_QS = frame_weight_Q1 * frame_QS + clip_weight_Q1 * clip_QS
        bound_QS[:, first : first + len(rows_SPD)] = weighted_QS

    in_threads(
        scan_block, _blocks(gallery, 20480 if few else min(1280, 2**21 // len(exact_QD))), gallery.device
    )
    unit = torch.finfo(dtype).eps / 2
    error_Q1 = (exact_QD - rounded_QD.float()).norm(dim=1, keepdim=True) + (0 if few else unit) + unit + 1e-4
    return bound_QS.add_(1.01 * error_Q1)


def _blocks(gallery: Gallery, rows: int) -> list[tuple[int, Tensor]]:
    pieces = []
    for slab in gallery.slabs:
        step = max(1, rows // slab.rows_SPD.shape[1])
        starts = range(0, len(slab.rows_SPD), step)
        pieces += [(slab.first + at, slab.rows_SPD[at : at + step]) for at in starts]
    return pieces
