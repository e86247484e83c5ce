"""`holmes index`: make an index of videos and keep it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holmes.base.printing import printable
from holmes.cli.options import (
    Form,
    IndexFolder,
    NoScreenText,
    NoSpeech,
    NoSubtitles,
    RayAddress,
    Speech,
    check_form,
    counted,
    hearing_of,
    say,
    say_files,
    show,
)
from holmes.cli.searches import AllowHost, Command, Webhook, report_matches

if TYPE_CHECKING:
    from holmes.index.answer.base import SearchIndex
    from holmes.index.answer.notify import Notifier
    from holmes.index.ingest.builder import BuildSummary
    from holmes.index.ingest.hearing import HearSummary
    from holmes.index.ingest.sync import SyncSummary


def report_sync(index: Path, summary: SyncSummary, quiet: bool) -> None:
    if quiet and not summary.changes and not summary.failures:
        return
    say_files(summary.partial, summary.failures)
    _say_known(summary)
    say_words(summary.words)
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


def _say_known(summary: BuildSummary) -> None:
    for move in summary.moved:
        say(f"moved {move.before} → {move.now}")
    for copy in summary.duplicates:
        say(f"left out {copy.source}: it is the same as {copy.same_as}")


def _copies(summary: BuildSummary) -> str:
    """Their number, where there are any, so that the numbers of a line add up to the files."""
    count = len(summary.duplicates)
    return f"{count:,} {'copy' if count == 1 else 'copies'}, " if count else ""


def report(index: Path, summary: BuildSummary) -> None:
    say_files(summary.partial, summary.failures)
    _say_known(summary)
    say_words(summary.words)
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
    say(f"{counted(summary.heard, 'video')} searched for words: {passages}; {len(summary.failures)} failed")


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1))


app = typer.Typer(help="Make an index of videos and keep it up to date.", no_args_is_help=True)

ENOUGH = 40  # sentences that calibrate an index about as well as more do

Videos = Annotated[
    list[Path],
    typer.Argument(metavar="VIDEOS…", help="Video files, folders to search for them, or feature folders."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="How many processes to use.", show_default="one per core")
]
Rate = Annotated[float | None, typer.Option(help="Samples per second.", show_default="the encoder's own")]
Fast = Annotated[bool, typer.Option("--fast", help="Decode only key frames where they are dense enough.")]
Moved = Annotated[str | None, typer.Option(help="Where the index's checkpoint is now, if it has moved.")]


@app.command()
def build(
    index: IndexFolder,
    videos: Videos,
    model: Annotated[
        str,
        typer.Option(
            help="A joint encoder ('holmes models' lists some) or its folder, or a run of 'holmes train'."
        ),
    ] = "pocket",
    visual: Annotated[
        str | None,
        typer.Option(help="The frame encoder of a checkpoint's features.", show_default="its own"),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="The text encoder of a checkpoint's features.", show_default="its own"),
    ] = None,
    rate: Rate = None,
    fast: Fast = False,
    workers: Workers = None,
    shards: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Make a sharded index, for several machines.")
    ] = None,
    ray: RayAddress = None,
    speech: Speech = None,
    no_speech: NoSpeech = False,
    no_screen_text: NoScreenText = False,
    no_subtitles: NoSubtitles = False,
) -> None:
    """Make an index of videos; run it again to continue an unfinished one.

    Subtitles, speech and text on screen are made searchable too, where the packages of holmes-video[heard]
    are installed.
    """
    from holmes.index.embedders.loading import load_embedder
    from holmes.index.ingest.builder import build_index

    embedder = load_embedder(model, visual, text)
    how: dict[str, Any] = {"rate": rate, "fast": fast, "workers": workers, "progress": True}
    how["hearing"] = hearing_of(speech, no_speech, no_screen_text, no_subtitles)
    if ray is not None:
        from holmes.cluster.extract import executor_at

        how["executor"] = executor_at(ray)
    if shards is not None:
        from holmes.cluster.write import build_shards

        report(index, build_shards(index, videos, embedder, shards, **how))
        return
    report(index, build_index(index, videos, embedder, **how))


@app.command()
def add(
    index: IndexFolder,
    videos: Videos,
    model: Moved = None,
    fast: Fast = False,
    workers: Workers = None,
    speech: Speech = None,
    no_speech: NoSpeech = False,
    no_screen_text: NoScreenText = False,
    no_subtitles: NoSubtitles = False,
) -> None:
    """Add videos to an index; those that have changed since they were added are renewed."""
    from holmes.index.embedders.loading import recorded_embedder
    from holmes.index.ingest.builder import add_videos
    from holmes.index.storage.manifest import read_manifest

    embedder = recorded_embedder(read_manifest(index).model, model)
    how: dict[str, Any] = {"fast": fast, "workers": workers, "progress": True}
    how["hearing"] = hearing_of(speech, no_speech, no_screen_text, no_subtitles)
    report(index, add_videos(index, videos, embedder, **how))


@app.command()
def sync(
    index: IndexFolder,
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDERS…", help="Folders of videos.")],
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep watching the folders until interrupted.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=1.0, help="How many seconds --watch waits before it looks again.")
    ] = 30.0,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing if nothing has changed; made for cron.")
    ] = False,
    command: Command = None,
    webhook: Webhook = None,
    allow_host: AllowHost = None,
    fast: Fast = False,
    model: Moved = None,
    workers: Workers = None,
    speech: Speech = None,
    no_speech: NoSpeech = False,
    no_screen_text: NoScreenText = False,
    no_subtitles: NoSubtitles = False,
) -> None:
    """Make an index match folders: it follows new, changed, moved and deleted videos.

    Moved and renamed files are recognised by their content and not extracted again. Videos on a disk or
    share that is not connected are kept, and videos from other folders are left alone. New videos that match
    a saved search ('holmes searches') are reported.
    """
    from holmes.index.answer.notify import make_notifier
    from holmes.index.ingest.sync import sync_index, watch_folders

    matches = Matches(index, model, make_notifier(command, webhook, allow_host or ()))
    hearing = hearing_of(speech, no_speech, no_screen_text, no_subtitles)

    def look() -> SyncSummary:
        shown = sys.stderr.isatty()
        how: dict[str, Any] = {"fast": fast, "workers": workers, "progress": shown, "hearing": hearing}
        return sync_index(index, folders, model=model, **how)

    if not watch:
        summary = look()
        report_sync(index, summary, quiet)
        matches.report()
        if summary.failures:
            raise typer.Exit(1)
        return
    said: object = None
    for news in watch_folders(look, folders, every):
        if isinstance(news, str):
            if news != said:  # a share that stays away is reported once
                say(news)
            said = news
            continue
        shown = (news.failures, news.duplicates, news.away)
        report_sync(index, news, quiet=quiet or (not news.changes and shown == said))
        said = shown
        matches.report()


@dataclass
class Matches:
    """Reports what matches the saved searches of an index; the index is opened once, when it has some."""

    index: Path
    model: str | None
    notifier: Notifier
    opened: SearchIndex | None = None

    def report(self) -> None:
        from holmes.cluster.index import open_index
        from holmes.errors import HolmesError
        from holmes.index.answer.searches import read_searches

        try:
            if not read_searches(self.index):
                return
            if self.opened is None:
                self.opened = open_index(self.index, device="cpu", model=self.model)
            else:
                self.opened.refresh()
            report_matches(self.opened, self.index, self.notifier)
        except HolmesError as error:
            say(f"the saved searches were not asked: {error}")


@app.command()
def hear(
    index: IndexFolder,
    workers: Workers = None,
    speech: Speech = None,
    no_speech: NoSpeech = False,
    no_screen_text: NoScreenText = False,
    no_subtitles: NoSubtitles = False,
) -> None:
    """Add the spoken and written words of videos to an index, sharded or not; pictures are not read again.

    Run it again to continue. Videos whose words are there already are skipped, unless their file, their
    subtitles or these options have changed.
    """
    from holmes.cluster.write import hear_any

    hearing = hearing_of(speech, no_speech, no_screen_text, no_subtitles, asked=True)
    summary = hear_any(index, hearing, workers=workers, progress=True)
    say_words(summary)
    say(f"{counted(summary.heard, 'video')} heard, {summary.unchanged} already heard: {index}")
    if summary.failures:
        raise typer.Exit(1)


transcripts = typer.Typer(help="Correct what a video says.", no_args_is_help=True)
app.add_typer(transcripts, name="transcript")


@transcripts.command("set")
def set_transcript(
    index: IndexFolder,
    video: Annotated[str, typer.Argument(metavar="VIDEO", help="A path, or a file name of the index.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The right words: .srt, .vtt, .ass or Whisper's .json.")
    ],
) -> None:
    """Set the transcript of a video; it is kept when the video is heard again."""
    from holmes.cluster.write import set_any_words

    kept = set_any_words(index, video, file)
    for note in kept.notes:
        say(note)
    said = [passage for passage in kept.passages if not passage.source.is_written]
    say(f"{counted(len(said), 'line')}: {kept.source}")


@app.command()
def split(
    index: IndexFolder,
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="A new folder, or object storage such as s3://bucket/films.")
    ],
    shards: Annotated[int, typer.Option(min=1, metavar="N", help="How many shards.")],
) -> None:
    """Make a sharded index from an index: a folder of indexes that many machines search together."""
    from holmes.cluster.write import split_index

    made = split_index(index, out, shards, progress=True)
    sizes = [entry.bytes / 2**20 for entry in made.shards]
    say(
        f"{counted(made.videos, 'video')} in {counted(len(made.shards), 'shard')} of {min(sizes):,.1f} to "
        f"{max(sizes):,.1f} MiB: {out}"
    )


@app.command()
def seal(
    shards: Annotated[Path, typer.Argument(metavar="SHARDS", help="The folder of a sharded index.")],
) -> None:
    """Publish what the shards hold now as the next snapshot, after single shards were changed."""
    from holmes.cluster.write import publish_shards

    made = publish_shards(shards)
    size = f"{counted(made.videos, 'video')} in {counted(len(made.shards), 'shard')}"
    say(f"{size}, snapshot {made.generation}: {shards}")


@app.command()
def remove(
    index: IndexFolder,
    videos: Annotated[
        list[str],
        typer.Argument(metavar="VIDEOS…", help="Files, folders, or patterns such as '*/holiday/*'."),
    ],
) -> None:
    """Remove videos from an index; 'compact' frees their space."""
    from holmes.index.storage.writer import IndexWriter

    with IndexWriter(index) as writer:
        names = {name for pattern in videos for name in writer.store.matching(pattern)}
        writer.remove(names)
        left = len(writer.store)
    for name in sorted(names):
        say(f"removed {name}")
    say(f"{counted(len(names), 'video')} removed, {left} left: {index}")


@app.command()
def info(
    index: IndexFolder,
    json: Annotated[bool, typer.Option("--json", help="Print JSON that lists every video.")] = False,
) -> None:
    """Show what an index contains and how it was made."""
    from holmes.cluster.location import Location
    from holmes.cluster.manifest import is_sharded
    from holmes.index.storage.store import IndexStore

    if is_sharded(Location(index)):
        show_shards(index, json)
        return
    store = IndexStore.open(index)
    about = store.describe()
    if json:
        print_json({**about.to_dict(), "names": list(store.positions)})
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
        table.add_row("words", f"{counted(heard, 'video')} heard, {passages}")
        table.add_row("heard by", Text(printable(", ".join(store.heard_sources) or "nothing said or shown")))
    table.add_row("features", Text(printable(f"{backbone.get('name')}, {extraction.get('rate')} per second")))
    Console(highlight=False).print(table)


@app.command()
def calibrate(
    index: IndexFolder,
    captions: Annotated[
        Path,
        typer.Argument(
            metavar="CAPTIONS",
            help="A CSV file with columns sentence and video, or JSONL: a few dozen sentences of your own.",
        ),
    ],
    model: Moved = None,
) -> None:
    """Fit the probabilities of an index, sharded or not, to sentences whose videos you know."""
    from holmes.cluster.index import open_index

    summary = open_index(index, device="cpu", model=model).calibrate(captions)
    say(
        f"{counted(summary.sentences, 'sentence')} about {counted(summary.videos, 'video')}. "
        f"The first hit is right for {summary.found_first:.0%}."
    )
    for when, found in (("Before", summary.before), ("After", summary.after)):
        if found is not None:
            say(
                f"{when}: {found.said:.0%} said for {summary.found_first:.0%} right. Called 'not here': "
                f"{found.noticed:.0%} with their video taken away, {found.mistaken:.0%} with it."
            )
    if summary.after is not None:
        say("'After' is cross-validated: each sentence is judged without the sentences about its video.")
    if summary.sentences < ENOUGH:
        say(f"With fewer than {ENOUGH} sentences the probabilities may be off by ten points or more.")


@app.command()
def check(index: IndexFolder) -> None:
    """Verify every byte of an index, sharded or not."""
    from holmes.cluster.location import Location
    from holmes.cluster.manifest import is_sharded
    from holmes.cluster.write import check_shards
    from holmes.errors import HolmesError
    from holmes.index.storage.maintenance import feature_faults, index_faults
    from holmes.index.storage.manifest import damaged

    if is_sharded(Location(index)):
        shards = check_shards(index)
        held = f"{counted(shards.videos, 'video')} in {counted(len(shards.shards), 'shard')}"
        say(f"{held}, all intact: {index}")
        return
    store, faults = index_faults(index)
    if faults:
        raise damaged(index, "; ".join(faults))
    if faults := feature_faults(index):
        raise HolmesError(faults[0] + (f" And {len(faults) - 1} more." if faults[1:] else ""))
    held = f"{counted(len(store), 'video')} in {counted(len(store.segments), 'segment')}"
    say(f"{held}, all intact: {index}")
    gone = [name for name in store.positions if os.path.isabs(name) and not os.path.exists(name)]
    if gone:
        say(
            f"the files of {counted(len(gone), 'video')} are gone, such as {gone[0]}; if they were moved, "
            f"'holmes index sync {index} FOLDER' finds them in their new folder."
        )


@app.command()
def compact(index: IndexFolder) -> None:
    """Rewrite an index without its removed videos, and free their space."""
    from holmes.index.storage.maintenance import compact_index

    freed = compact_index(index)
    say(f"{freed / 2**20:,.1f} MiB freed: {index}")


@app.command()
def rebuild(
    index: IndexFolder,
    model: Annotated[
        str, typer.Option(help="The other model: a joint encoder, its folder, a run, or hub:NAME.")
    ],
    visual: Annotated[
        str | None, typer.Option(help="The frame encoder of a checkpoint.", show_default="its own")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="The text encoder of a checkpoint.", show_default="its own")
    ] = None,
    rate: Rate = None,
    fast: Fast = False,
    workers: Workers = None,
    without_missing: Annotated[
        bool, typer.Option("--without-missing", help="Go on without videos that cannot be encoded again.")
    ] = False,
) -> None:
    """Encode all videos again with another model; the old index answers until the new one is complete.

    The old index is kept as INDEX.before; 'holmes index compare' asks both the same sentences. Run it again
    to continue.
    """
    from holmes.index.embedders.loading import load_embedder
    from holmes.index.ingest.rebuild import rebuild_index

    done = rebuild_index(
        index,
        load_embedder(model, visual, text),
        rate=rate,
        fast=fast,
        workers=workers,
        progress=True,
        without_missing=without_missing,
    )
    say_files(done.build.partial, done.build.failures)
    if done.before is None:
        say(
            f"{counted(len(done.build.failures), 'video')} could not be encoded again, so {index} is as it "
            f"was; {done.new} has the others. Restore them and run it again, or add --without-missing."
        )
        raise typer.Exit(1)
    videos = counted(done.build.added + done.build.unchanged, "video")
    say(f"{videos} encoded with {model}: {index}; the old index is {done.before}")
    say(f"compare both: holmes index compare {done.before} {index} CAPTIONS")


@app.command()
def compare(
    indexes: Annotated[
        list[Path],
        typer.Argument(
            metavar="INDEX… CAPTIONS",
            help="Two or more indexes of the same videos, then a CSV or JSONL file of sentences and videos.",
        ),
    ],
    form: Form = None,
) -> None:
    """Ask several indexes the same sentences: recall with intervals, differences, and how sure they are."""
    from holmes.cli.index_comparison import compare_indexes
    from holmes.errors import HolmesError

    check_form(form)
    *folders, captions = indexes
    if len(folders) < 2:
        raise HolmesError("name at least two indexes, and then the file of captions.")
    show(*compare_indexes(folders, captions), form=form)


@app.command()
def export(
    index: IndexFolder,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file to write.", show_default="INDEX.parquet"),
    ] = None,
    to: Annotated[str, typer.Option(metavar="parquet", help="The format.")] = "parquet",
) -> None:
    """Write the embeddings of an index as one Parquet table: video, part, kind, start, end, vector."""
    from holmes.errors import unknown
    from holmes.index.storage.export import export_parquet

    if to != "parquet":
        raise unknown("format", to, ["parquet"])
    file = out or Path(f"{index}.parquet")
    rows = export_parquet(index, file, progress=True)
    say(f"{counted(rows, 'vector')} written: {file}")


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
