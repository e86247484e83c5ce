"""`holmes index`: make an index of videos, and keep it up to date."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes.cli.index_lines import report, report_sync, say_words
from holmes.cli.options import (
    Fast,
    Form,
    IndexFolder,
    ModelOfIndex,
    Rate,
    RayAddress,
    Workers,
    check_form,
    counted,
    say,
    say_files,
    show,
    with_options,
)
from holmes.cli.searches import AllowHost, Command, Matches, Webhook
from holmes.errors import HolmesError, missing_packages, unknown

if TYPE_CHECKING:
    from holmes.cluster.manifest import Shards
    from holmes.heard.hearing import Hearing
    from holmes.index.ingest.sync import SyncSummary

app = typer.Typer(help="Make an index of videos and keep it up to date.", no_args_is_help=True)

Videos = Annotated[
    list[Path],
    typer.Argument(metavar="VIDEOS…", help="Video files, folders to search for them, or feature folders."),
]
VisualEncoder = Annotated[
    str | None, typer.Option(help="The frame encoder of a checkpoint's features.", show_default="its own")
]
TextEncoder = Annotated[
    str | None, typer.Option(help="The text encoder of a checkpoint's features.", show_default="its own")
]


@dataclass(frozen=True)
class HearingOptions:
    """What is recognised, and what is not."""

    speech: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER_OR_NAME",
            help="A Whisper model in CTranslate2's format, for other languages.",
            show_default="tiny.en",
        ),
    ] = None
    no_speech: Annotated[bool, typer.Option("--no-speech", help="Do not recognise speech.")] = False
    no_screen_text: Annotated[bool, typer.Option("--no-screen-text", help="Do not read text on screen.")] = (
        False
    )
    no_subtitles: Annotated[bool, typer.Option("--no-subtitles", help="Do not read subtitles.")] = False

    def hearing(self, asked: bool = False) -> Hearing | None:
        """What to listen for: everything that can be recognised here, less what was switched off.

        None where nothing is to be heard. `asked` is for commands that do nothing else.
        """
        from holmes.heard import screen, speech
        from holmes.heard.hearing import Hearing

        if self.speech is not None and self.no_speech:
            raise HolmesError("--speech and --no-speech contradict each other; leave one out.")
        chosen = Hearing.default()
        if chosen is None and (asked or self.speech is not None):
            chosen = Hearing.available()
        if chosen is None:
            return None
        if asked and not self.no_speech and not speech.is_installed():
            raise missing_packages("recognising speech (or add --no-speech)", *speech.PACKAGES)
        if asked and not self.no_screen_text and not screen.is_installed():
            raise missing_packages("reading text on screen (or add --no-screen-text)", *screen.PACKAGES)
        wanted = Hearing(
            subtitles=not self.no_subtitles,
            speech="" if self.no_speech else self.speech or chosen.speech,
            screen=chosen.screen and not self.no_screen_text,
        )
        if asked and not wanted.any:
            raise HolmesError("nothing is left to be heard; leave out one of the --no-… options.")
        return wanted if wanted.any else None


@app.command()
@with_options(HearingOptions)
def build(
    words: HearingOptions,
    index: IndexFolder,
    videos: Videos,
    model: Annotated[
        str,
        typer.Option(
            help="A joint encoder ('holmes models' lists some) or its folder, or a run of 'holmes train'."
        ),
    ] = "pocket",
    visual: VisualEncoder = None,
    text: TextEncoder = None,
    rate: Rate = None,
    fast: Fast = False,
    workers: Workers = None,
    shards: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Make a sharded index, for several machines.")
    ] = None,
    ray: RayAddress = None,
) -> None:
    """Make an index of videos; run it again to continue an unfinished one.

    Subtitles, speech and text on screen are made searchable too, where the packages of holmes-video[heard]
    are installed.
    """
    from holmes.cluster.extract import executor_at
    from holmes.cluster.write import build_shards
    from holmes.index.embedders.loading import load_embedder
    from holmes.index.ingest.builder import IngestOptions, build_index

    embedder = load_embedder(model, visual, text)
    how: IngestOptions = {
        "fast": fast,
        "workers": workers,
        "progress": True,
        "hearing": words.hearing(),
        "executor": None if ray is None else executor_at(ray),
    }
    if shards is not None:
        report(index, build_shards(index, videos, embedder, shards, rate=rate, **how))
    else:
        report(index, build_index(index, videos, embedder, rate=rate, **how))


@app.command()
@with_options(HearingOptions)
def add(
    words: HearingOptions,
    index: IndexFolder,
    videos: Videos,
    model: ModelOfIndex = None,
    fast: Fast = False,
    workers: Workers = None,
) -> None:
    """Add videos to an index, sharded or not; a video that has changed replaces the old one."""
    from holmes.cluster.write import writer_of
    from holmes.index.ingest.builder import add_videos

    summary = add_videos(
        index,
        videos,
        model=model,
        writer=writer_of(index),
        fast=fast,
        workers=workers,
        progress=True,
        hearing=words.hearing(),
    )
    report(index, summary)


@app.command()
@with_options(HearingOptions)
def sync(
    words: HearingOptions,
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
    model: ModelOfIndex = None,
    workers: Workers = None,
) -> None:
    """Update an index, sharded or not, to match folders: new, changed, moved and deleted videos.

    Moved and renamed files are recognised by their content and not extracted again. Videos on a disk or
    share that is not connected are kept, and videos from other folders are left alone. New videos that match
    a saved search ('holmes searches') are reported.
    """
    from holmes.cluster.write import writer_of
    from holmes.index.answer.notify import make_notifier
    from holmes.index.ingest.sync import sync_index, watch_folders

    matches = Matches(index, model, make_notifier(command, webhook, allow_host or ()))
    hearing = words.hearing()

    def look() -> SyncSummary:
        shown = sys.stderr.isatty()
        return sync_index(
            index,
            folders,
            model=model,
            writer=writer_of(index),
            fast=fast,
            workers=workers,
            progress=shown,
            hearing=hearing,
        )

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


@app.command()
@with_options(HearingOptions)
def hear(
    words: HearingOptions,
    index: IndexFolder,
    workers: Workers = None,
) -> None:
    """Add the spoken and written words of videos to an index, sharded or not; pictures are not read again.

    Run it again to continue. Videos whose words are there already are skipped, unless their file, their
    subtitles or these options have changed.
    """
    from holmes.cluster.write import writer_of
    from holmes.index.ingest.hearing import hear_index

    hearing = words.hearing(asked=True)
    summary = hear_index(index, hearing, workers=workers, progress=True, writer=writer_of(index))
    say_words(summary)
    say(f"{counted(summary.heard, 'video')} searched for words, {summary.unchanged} already done: {index}")
    if summary.failures:
        raise typer.Exit(1)


transcripts = typer.Typer(help="Correct the transcript of a video.", no_args_is_help=True)
app.add_typer(transcripts, name="transcript")


@transcripts.command("set")
def set_transcript(
    index: IndexFolder,
    video: Annotated[str, typer.Argument(metavar="VIDEO", help="A path, or a file name of the index.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The correct words: .srt, .vtt, .ass or Whisper's .json.")
    ],
) -> None:
    """Set the transcript of a video; later runs of 'hear' keep it."""
    from holmes.cluster.write import writer_of
    from holmes.index.ingest.hearing import set_words

    kept = set_words(index, video, file, writer=writer_of(index))
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
    say(f"{held_by(made)} of {min(sizes):,.1f} to {max(sizes):,.1f} MiB: {out}")


def held_by(shards: Shards) -> str:
    return f"{counted(shards.videos, 'video')} in {counted(len(shards.shards), 'shard')}"


@app.command()
def seal(
    shards: Annotated[Path, typer.Argument(metavar="SHARDS", help="The folder of a sharded index.")],
) -> None:
    """Publish what the shards hold now as the next snapshot, after single shards were changed."""
    from holmes.cluster.write import publish_shards

    made = publish_shards(shards)
    say(f"{held_by(made)}, snapshot {made.generation}: {shards}")


@app.command()
def remove(
    index: IndexFolder,
    videos: Annotated[
        list[str],
        typer.Argument(metavar="VIDEOS…", help="Files, folders, or patterns such as '*/holiday/*'."),
    ],
) -> None:
    """Remove videos from an index, sharded or not; 'compact' frees their space."""
    from holmes.cluster.write import writer_of

    with writer_of(index)(index) as writer:
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
    from holmes.cli.index_lines import show_index, show_shards
    from holmes.cluster.manifest import is_sharded

    (show_shards if is_sharded(index) else show_index)(index, json)


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
    model: ModelOfIndex = None,
) -> None:
    """Fit the probabilities of an index, sharded or not, to sentences whose videos you know."""
    from holmes.cli.index_lines import show_calibration
    from holmes.cluster.index import open_index

    show_calibration(open_index(index, device="cpu", model=model).calibrate(captions))


@app.command()
def check(index: IndexFolder) -> None:
    """Verify every byte of an index, sharded or not."""
    from holmes.cluster.manifest import is_sharded
    from holmes.cluster.write import check_shards
    from holmes.index.storage.maintenance import feature_faults, index_faults
    from holmes.index.storage.manifest import damaged

    if is_sharded(index):
        say(f"{held_by(check_shards(index))}, all intact: {index}")
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
    visual: VisualEncoder = None,
    text: TextEncoder = None,
    rate: Rate = None,
    fast: Fast = False,
    workers: Workers = None,
    without_missing: Annotated[
        bool, typer.Option("--without-missing", help="Go on without videos that cannot be encoded again.")
    ] = False,
) -> None:
    """Encode all videos again with another model; the old index answers until the new one is complete.

    The old index is kept as INDEX.before; 'holmes index compare' searches both. Run it again to continue.
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
    """Search several indexes with the same sentences: recall, differences and confidence."""
    from holmes.cli.index_lines import compare_indexes

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
    from holmes.index.storage.export import export_parquet

    if to != "parquet":
        raise unknown("format", to, ["parquet"])
    file = out or Path(f"{index}.parquet")
    rows = export_parquet(index, file, progress=True)
    say(f"{counted(rows, 'vector')} written: {file}")
