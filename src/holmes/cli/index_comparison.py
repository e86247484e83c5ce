"""What indexes answer to the same sentences, as tables: `holmes index compare` and `holmes try`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holmes.evaluation.grid import Grid
    from holmes.index.answer.comparison import IndexRanks

SHOWN = ("R@1", "R@5", "R@10")


def compare_indexes(folders: Sequence[Path], captions: Path) -> list[Grid]:
    """Every index on all captions; the first is the reference."""
    from holmes.index.answer.calibration import captions_of
    from holmes.index.answer.comparison import rank_videos
    from holmes.index.answer.searcher import open_single_index

    pairs = captions_of(captions)
    ranks = {}
    for folder in folders:
        with open_single_index(folder, device="cpu") as index:
            name = folder.name if folder.name not in ranks else str(folder)
            ranks[f"{name} ({index.store.manifest.model.get('kind')})"] = rank_videos(index, pairs)
    return [comparison_grid(f"{captions}, {len(pairs)} sentences", ranks, pairs)]


def comparison_grid(title: str, ranks: Mapping[str, IndexRanks], pairs: Sequence[tuple[str, str]]) -> Grid:
    """Recall with intervals over videos, the difference to the first, and how sure each is."""
    import numpy as np

    from holmes.evaluation.grid import Grid
    from holmes.evaluation.intervals import FEWEST_VIDEOS, draw_videos, paired_differences, recall_intervals

    draws = draw_videos([video for _, video in pairs])
    columns = ["", *SHOWN, "R@1 to the first", "mean probability", "first hit right"]
    rows = []
    first = next(iter(ranks.values()))
    for number, (name, found) in enumerate(ranks.items()):
        figures = recall_intervals(found.rank_Q[None], draws)
        shown = [with_bounds(figures[each].value, figures[each].low, figures[each].high) for each in SHOWN]
        gain = ""
        if number:
            change = paired_differences(found.rank_Q[None], first.rank_Q[None], draws)["R@1"]
            gain = with_bounds(change.value, change.low, change.high, sign=True)
        said = found.probability_Q
        mean = "–" if np.isnan(said).all() else f"{100 * float(np.nanmean(said)):.0f}%"
        rows.append([name, *shown, gain, mean, f"{100 * float((found.rank_Q == 1).mean()):.0f}%"])
    videos = len({video for _, video in pairs})
    how = "with 95% intervals over videos"
    if videos < FEWEST_VIDEOS:
        how = f"without intervals: {videos} videos are too few for them (at least {FEWEST_VIDEOS})"
    return Grid(title, columns, rows, notes=[f"Recall in percent, {how}; – where there is no calibration."])


def with_bounds(value: float | None, low: float | None, high: float | None, sign: bool = False) -> str:
    if value is None:
        return "–"
    shown = f"{value:+.1f}" if sign else f"{value:.1f}"
    return shown if low is None or high is None else f"{shown} [{low:.1f}, {high:.1f}]"
