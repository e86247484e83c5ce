"""Small made-up data for every figure, and ways to find again in a figure what was put in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from holmes.report.figures.examples import Example, Found
from holmes.report.figures.plane import BranchPlane
from holmes.report.figures.report import FigureData, ReportData, ReportedRun
from holmes.report.figures.timeline import Film, TimelinePair, Track
from holmes.report.figures.transport import Transport

CLIPS = 6


def drawn(figure: Figure, gid: str) -> list[Any]:
    """The artists of that name, in the order in which they were drawn."""
    return figure.findobj(lambda artist: artist.get_gid() == gid)


def words(figure: Figure) -> list[str]:
    """Every text of a figure that is not empty."""
    found = figure.findobj(lambda artist: isinstance(artist, Artist) and hasattr(artist, "get_text"))
    return [text.get_text() for text in found if text.get_text()]


def history(epochs: int = 4, intra: bool = True) -> list[dict[str, Any]]:
    """Lines of a logbook; stage 2 begins in the middle."""
    entries = []
    for epoch in range(epochs):
        second = epoch >= epochs // 2
        loss = {"total": 3.0 - epoch, "triplet_frame": 0.5, "triplet_clip": 0.25 + epoch, "inter_fused": 1.5}
        recall = {"R@1": 5.0 + epoch, "R@5": 20.0 + epoch, "R@10": 30.0 + epoch, "R@100": 90.0 + epoch}
        entries.append(
            {
                "epoch": epoch + 1,
                "stage": 2 if second else 1,
                "loss": loss | ({"intra": 0.125 * epoch} if second and intra else {}),
                "gradient_norm": {"mean": 1.0, "max": 2.0 + epoch},
                "kinds": {"precise": 0.25, "polysemous": 0.5, "underdetermined": 0.25},
                "learning_rate": 1e-3,
                "select": recall | {"SumR": 200.0 - abs(epoch - 2)},
                "speed": {"train_seconds": 2.0, "evaluate_seconds": 0.5, "steps_per_second": 10.0 + epoch**2},
            }
        )
    return entries


def plane(name: str = "frame", seed: int = 0) -> BranchPlane:
    rng = np.random.default_rng(seed)
    kinds_Q = np.array([0, 0, 1, 1, 1, 2])
    return BranchPlane(
        name, rng.random(6), np.exp(-10 * rng.random(6)), 4 * rng.random(6), kinds_Q, 0.02, 0.6, 2.5
    )


def transport(moments: bool = True) -> Transport:
    rng = np.random.default_rng(1)
    plain_MC, flexible_MC = rng.dirichlet(np.ones(CLIPS), (2, 3))
    moments_M2 = np.array([[0.5, 1.0], [0.0, 0.25], [0.25, 0.5]]) if moments else np.full((3, 2), np.nan)
    captions = ["costs $5 and $6", "second <b>query</b>", "third"]
    return Transport("video 7", captions, moments_M2, plain_MC, flexible_MC, rng.random(CLIPS))


def timeline(runs: int = 1, seconds: float | None = 40.0) -> TimelinePair:
    rng = np.random.default_rng(2)

    def film(name: str, frames: int, moment: tuple[float, float] | None) -> Film:
        tracks = tuple(Track(rng.random(frames), float(rng.random())) for _ in range(runs))
        return Film(name, tracks, seconds, moment)

    return TimelinePair("typical", "someone opens a door", film("a", 10, (0.25, 0.5)), film("b", 7, None))


def example(kind: int = 0) -> Example:
    rng = np.random.default_rng(kind)
    found = tuple(
        Found(f"video {place}", 0.9 - 0.1 * place, verdict, rng.random(8), (0.1, 0.4) if place == 1 else None)
        for place, verdict in enumerate(("wrong", "right", "fits"))
    )
    return Example("a person does it", kind, 2 - kind, 2.5e-5, 0.5, 3.0, 2, found)


def report_data(moments: bool = True, kinds: bool = True, compare: bool = False) -> ReportData:
    recalls = {"R@1": 5.0, "R@5": 20.0, "R@10": 30.0, "R@100": 90.0, "SumR": 145.0}
    intervals = {name: [value - 2, value + 2] for name, value in recalls.items()}
    group = {"queries": 40, **recalls, "intervals": intervals}
    by: dict[str, Any] = {"length": {"1-5 words": group}}
    by |= {"kind": {"precise": group, "underdetermined": group}} if kinds else {}
    by |= {"moment_ratio": {"(0, .2]": group}} if moments else {}
    evaluation = {
        "run": "runs/one",
        "preset": "small",
        "protocol": "honest",
        "seed": 3,
        "epoch": 3,
        "checkpoint": "0123456789abcdef0123",
        "store": "worlds/<first>",
        "collection": "planted",
        "trained_on_this_store": True,
        "split": "test",
        "videos": 10,
        "queries": 40,
        "metrics": {"SumR": 145.0},
        "by": by,
    }
    if moments:
        evaluation["localisation"] = {"clip_hit@1": 30.0, "chance_hit@1": 20.0}
        evaluation["aligned_mass"] = {"flexible": 31.0, "plain": 28.0, "even": 20.0}
    config = {"name": "small", "loss": {"intra": 0.8}, "model": {"gaussian_widths": (None, 1.0)}}
    without = {"name": "small", "loss": {"intra": 0.0}}
    rows = [["this run", "5.0", "145.0"], ["published on Somewhere"], ["Other <method>", "–", "156.8"]]
    return ReportData(
        run=ReportedRun(evaluation, config, history()),
        figures=FigureData(
            planes=(plane("frame"), plane("clip", 1)),
            batch_videos=10,
            examples=[example(kind) for kind in range(3)],
            transport=transport(moments),
            timelines=[timeline(2 if compare else 1)] * 3 if moments else [],
        ),
        results=SimpleNamespace(
            title="Recall", columns=["", "R@1", "SumR"], rows=rows, notes=["not <comparable>"]
        ),
        other=ReportedRun(evaluation, without, []) if compare else None,
    )
