"""What `holmes index` prints: the fate of each video, the contents of an index, comparisons of indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holmes.base.printing import printable
from holmes.cli.options import counted, print_json, say, say_files

if TYPE_CHECKING:
    from holmes.evaluation.grid import Grid
    from holmes.index.answer.calibration import CalibrationSummary
    from holmes.index.answer.comparison import IndexRanks
    from holmes.index.ingest.builder import BuildSummary
    from holmes.index.ingest.hearing import HearSummary
    from holmes.index.ingest.sync import SyncSummary

ENOUGH = 40  # sentences that calibrate an index about as well as more do
SHOWN = ("R@1", "R@5", "R@10")


def report_sync(index: Path, summary: SyncSummary, quiet: bool) -> None:
    if quiet and not summary.changes and not summary.failures:
        return
    _say_each(summary)
    for name in summary.removed:
        say(f"removed {name}")
    for name in summary.away:
        say(
            f"kept {name}: it was not found, but its disk may not be connected; 'holmes index remove' "
            "removes it"
        )
    say(
        f"{counted(summary.added, 'video')} added, {len(summary.moved)} moved, "
        f"{len(summary.removed)} removed, {summary.unchanged} unchanged, {_copies(summary)}"
        f"{len(summary.failures)} failed: {index}"
    )


def _say_each(summary: BuildSummary) -> None:
    say_files(summary.partial, summary.failures)
    for move in summary.moved:
        say(f"moved {move.before} → {move.now}")
    for copy in summary.duplicates:
        say(f"left out {copy.source}: it is the same as {copy.same_as}")
    say_words(summary.words)


def _copies(summary: BuildSummary) -> str:
    """Their number, where there are any, so that the numbers of a line add up to the files."""
    count = len(summary.duplicates)
    return f"{count:,} {'copy' if count == 1 else 'copies'}, " if count else ""


def report(index: Path, summary: BuildSummary) -> None:
    _say_each(summary)
    moved = f"{len(summary.moved)} moved, " if summary.moved else ""
    say(
        f"{counted(summary.added, 'video')} added, {moved}{summary.unchanged} already there, "
        f"{_copies(summary)}{len(summary.failures)} failed: {index}"
    )
    if summary.failures:
        raise typer.Exit(1)


def say_words(summary: HearSummary | None) -> None:
    """What was heard, where anything was. Videos without speech are counted: a collection may have many."""
    from holmes.heard.listen import NO_SOUND, NO_SPEECH

    if summary is None or not (summary.heard or summary.failures):
        return
    for reason, what in ((NO_SOUND, "no sound"), (NO_SPEECH, "sound, but no recognised speech")):
        silent = sum(each.reason == reason for each in summary.notes)
        if silent:
            say(f"{counted(silent, 'video')} {'has' if silent == 1 else 'have'} {what}")
    for each in summary.notes:
        if each.reason not in (NO_SOUND, NO_SPEECH):
            say(f"{each.source}: {each.reason}")
    for each in summary.failures:
        say(f"not heard: {each.source}: {each.reason}")
    passages = counted(summary.passages, "passage")
    say(f"{counted(summary.heard, 'video')} searched for words: {passages}, {len(summary.failures)} failed")


def show_calibration(summary: CalibrationSummary) -> None:
    say(
        f"{counted(summary.sentences, 'sentence')} about {counted(summary.videos, 'video')}. "
        f"The first hit is right for {summary.found_first:.0%} of them."
    )
    for when, found in (("Before", summary.before), ("After", summary.after)):
        if found is not None:
            say(
                f"{when}: predicted {found.said:.0%}, observed {summary.found_first:.0%}. Called 'not here': "
                f"{found.noticed:.0%} without their video, {found.mistaken:.0%} with it."
            )
    if summary.after is not None:
        say("'After' is cross-validated: each sentence is judged without the sentences about its video.")
    if summary.sentences < ENOUGH:
        say(f"With fewer than {ENOUGH} sentences the probabilities may be off by ten points or more.")


def show_index(index: Path, json: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from holmes.index.storage.store import IndexStore

    store = IndexStore.open(index)
    about = store.describe()
    if json:
        print_json({**about.to_dict(), "names": list(store.positions)})
        return
    model, extraction = store.manifest.model, store.manifest.extraction
    backbone = extraction.get("backbone", {})
    table = Table(show_header=False, box=None)
    length = f"{about.hours:,.1f} hours" if about.hours >= 1 else f"{60 * about.hours:.1f} minutes"
    table.add_row("videos", f"{len(store):,}, {length}")
    table.add_row(
        "removed", f"{about.removed:,}" + (", 'compact' frees their space" if about.removed else "")
    )
    table.add_row("on disk", f"{about.bytes / 2**20:,.1f} MiB in {counted(len(store.segments), 'segment')}")
    digest = str(model.get("digest"))[:12]
    table.add_row("model", Text(printable(f"{model.get('name')} ({model.get('kind')}, {digest})")))
    if heard := store.heard_videos:
        passages = counted(about.passages or 0, "passage")
        table.add_row("words", f"{passages} in {counted(heard, 'video')}")
        table.add_row("word sources", Text(printable(", ".join(store.heard_sources) or "no words found")))
    table.add_row("features", Text(printable(f"{backbone.get('name')}, {extraction.get('rate')} per second")))
    Console(highlight=False).print(table)


def show_shards(index: Path, json: bool) -> None:
    from holmes.cluster.location import Location
    from holmes.cluster.manifest import read_shards
    from holmes.index.storage.store import IndexStore

    shards = read_shards(Location(index))
    if json:
        names = [name for entry in shards.shards for name in IndexStore.open(index / entry.name).positions]
        print_json({**shards.describe(str(index)).to_dict(), "names": names})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("shard", "videos", "hours", "MiB", "in memory", box=None)
    for entry in shards.shards:
        hours, size, codes = entry.seconds / 3600, entry.bytes / 2**20, entry.codes / 2**20
        table.add_row(entry.name, f"{entry.videos:,}", f"{hours:,.1f}", f"{size:,.1f}", f"{codes:,.1f}")
    console = Console(highlight=False)
    console.print(table)
    model = f"{shards.model.get('name')} ({shards.model.get('kind')})"
    held = f"{counted(shards.videos, 'video')}, snapshot {shards.generation}, model {model}"
    console.print(printable(held), markup=False)


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
