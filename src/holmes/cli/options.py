"""Options and arguments shared by commands, their parsing, and helpers that print lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holmes.base.printing import printable, seconds_of
from holmes.errors import HolmesError, unknown

if TYPE_CHECKING:
    from rich.console import Console

    from holmes.config.schema import HolmesConfig
    from holmes.evaluation.grid import Grid
    from holmes.index.answer.base import SearchIndex
    from holmes.media.extraction import Failure
    from holmes.training.experiments import Study
    from holmes.training.protocol import Protocol

PROTOCOLS = ("honest", "published")

StoreToRead = Annotated[Path, typer.Argument(metavar="STORE", help="A store, from 'holmes data'.")]
Preset = Annotated[
    str,
    typer.Option(
        help="Settings to start from: activitynet, charades, tvr, tvr_dual, small; beyond the paper: "
        "activitynet_plus, charades_plus, tvr_plus, tvr_dual_plus, small_plus; for your own "
        "videos: clip_b32, clip_l14, siglip2; for features of CLIP: activitynet_clip_b32, "
        "activitynet_clip_l14, charades_clip_b32, charades_clip_l14, tvr_clip_b32, tvr_clip_l14; of a "
        "baseline: ms_sl_tvr, ms_sl_activitynet, ms_sl_charades, gmmformer_tvr, "
        "gmmformer_activitynet, gmmformer_charades, gmmformer_v2_tvr, gmmformer_v2_activitynet, "
        "gmmformer_v2_charades, hlformer_tvr, hlformer_activitynet, hlformer_charades, dreamprvr_tvr, "
        "dreamprvr_activitynet, dreamprvr_charades; or the best.json of 'holmes tune'."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a setting, such as epochs=6. Repeatable."),
]
Seeds = Annotated[str, typer.Option(metavar="N,N,…", help="Seeds: mean and deviation are reported.")]
ProtocolName = Annotated[
    str,
    typer.Option(
        "--protocol",
        help="How the best epoch is selected: 'honest' on a held-out part of train, 'published' on the test "
        "split itself, as the field does.",
    ),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        min=0,
        metavar="N",
        help="How many runs to train at once; 0 takes as many as fit on the GPU.",
    ),
]
IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of the index.")]
AnyIndex = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of the index, sharded or not.")]
VideoFiles = Annotated[
    list[Path], typer.Argument(metavar="VIDEOS…", help="Video files, and folders to search for them.")
]
Rate = Annotated[float | None, typer.Option(help="Samples per second.", show_default="the encoder's own")]
Fast = Annotated[bool, typer.Option("--fast", help="Decode only key frames where they are dense enough.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="How many processes to use.", show_default="one per core")
]
TestShare = Annotated[
    float, typer.Option(min=0.01, max=0.9, help="Share of the videos to test on, where no row has a split.")
]
ModelOfIndex = Annotated[
    str | None, typer.Option(help="Where the index's checkpoint is now, if it has moved.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS|local",
        help="Work on a Ray cluster: HOST:PORT of its head, auto, or local for this machine alone.",
        show_default="no",
    ),
]
StoreOfRun = Annotated[
    Path | None, typer.Option(help="The store to evaluate on.", show_default="the run's own")
]
SplitToRead = Annotated[str, typer.Option(help="The split to evaluate on.")]
OnlyProtocol = Annotated[
    str | None,
    typer.Option("--protocol", help="Only runs of this protocol: honest or published.", show_default="all"),
]
AlsoFits = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json",
        help="Further right videos per query, in place of those in the store.",
    ),
]
JsonFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Write everything as JSON.")]
FORMS = ("md", "latex", "csv", "json")
Form = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="md|latex|csv|json",
        help="Print the tables in this format; LaTeX needs the booktabs and array packages.",
        show_default="drawn for a terminal",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]


def parse_settings(settings: list[str] | None) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings or []]
    for name, equals, _ in pairs:
        if not equals:
            raise HolmesError(f"--set {name}: write NAME=VALUE, for example --set epochs=6.")
    return {name: value for name, _, value in pairs}


def parse_seeds(seeds: str) -> list[int]:
    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise HolmesError(f"--seeds {seeds}: write whole numbers, for example --seeds 0,1,2.") from None
    if min(numbers) < 0 or max(numbers) >= 2**31 or len(set(numbers)) < len(numbers):
        raise HolmesError(f"--seeds {seeds}: seeds must differ and be between 0 and {2**31 - 1}.")
    return numbers


def parse_protocols(name: str) -> list[Protocol]:
    from holmes.training.protocol import Protocol

    if name not in (*PROTOCOLS, "both"):
        raise unknown("protocol", name, (*PROTOCOLS, "both"))
    return [Protocol(each) for each in PROTOCOLS if name in (each, "both")]


def configured(preset: str, settings: list[str] | None) -> HolmesConfig:
    from holmes.config.presets import preset as named
    from holmes.config.schema import with_changes

    return with_changes(named(preset), parse_settings(settings))


def make_study(
    store: Path,
    preset: str,
    settings: list[str] | None,
    out: Path,
    seeds: str,
    protocol: str,
    device: str,
    tensorboard: bool = False,
    jobs: int = 1,
) -> Study:
    """What was asked for, checked before anything is written."""
    from holmes.data.store import Store
    from holmes.training.experiments import Study
    from holmes.training.run import RunOptions

    return Study(
        store=Store.open(store),
        config=configured(preset, settings),
        out=out,
        seeds=parse_seeds(seeds),
        protocols=parse_protocols(protocol),
        options=RunOptions(device=device, tensorboard=tensorboard),
        jobs=jobs,
    )


@dataclass(frozen=True)
class StudyOptions:
    """The options of a command that trains many runs and makes a table of them."""

    store: StoreToRead
    preset: Preset
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A folder for the runs and the results.")]
    seeds: Seeds = "0"
    protocol: ProtocolName = "honest"
    form: Form = None
    jobs: Jobs = 1
    device: Device = "auto"

    def study(self, settings: list[str] | None) -> Study:
        check_form(self.form)
        return make_study(
            self.store, self.preset, settings, self.out, self.seeds, self.protocol, self.device,
            jobs=self.jobs,
        )  # fmt: skip


def with_options(group: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a command of `f(group, …)`: its own options, and those of the dataclass `group` one by one."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        shared = signature(group, eval_str=True).parameters
        own = [*signature(command, eval_str=True).parameters.values()][1:]

        @wraps(command)
        def run(**values: Any) -> None:
            command(group(**{name: values.pop(name) for name in shared if name in values}), **values)

        required = [each for each in shared.values() if each.default is each.empty]
        others = [each for each in shared.values() if each.default is not each.empty]
        both = [each.replace(kind=each.KEYWORD_ONLY) for each in (*required, *own, *others)]
        run.__signature__ = Signature(both)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in both}
        return run

    return decorated


def show(*grids: Grid, form: str | None = None) -> None:
    """Print tables, drawn or as text in a format."""
    if form is not None:
        typer.echo(written(grids, form), nl=False)
        return
    console = wide_console()
    for grid in grids:
        console.print(grid.drawn())


def wide_console() -> Console:
    """Standard output; tables that are piped into a file are not cut to a terminal's width."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=140)


def written(grids: Sequence[Grid], form: str) -> str:
    if form == "json":  # one document, not one per table
        return "[" + ",\n".join(grid.json().strip() for grid in grids) + "]\n"
    return "\n".join(grid.written(form) for grid in grids)


def check_form(form: str | None) -> None:
    if form is not None and form not in FORMS:
        raise unknown("format", form, FORMS)


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1))


def share_cores() -> None:
    """Let idle threads sleep: many small sums would have them spin, which starves whatever else runs.

    Only before torch is loaded.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def say(line: str) -> None:
    """Print a line for the person at the terminal; odd characters in a file name cannot break it."""
    typer.echo(printable(line), err=True)


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def say_files(partial: Iterable[Failure], failures: Iterable[Failure]) -> None:
    """Name the videos that were read in part, and those that were left out, with the reasons."""
    for what, files in (("read in part", partial), ("left out", failures)):
        for file in files:
            say(f"{what} {file.source}: {file.reason}")


@dataclass(frozen=True)
class VideoFilter:
    """Which videos are searched."""

    filter: Annotated[
        str | None,
        typer.Option(
            metavar="GLOB", help="Search only videos whose path or file name matches, such as '*/2024/*'."
        ),
    ] = None
    folder: Annotated[
        Path | None, typer.Option("--in", metavar="FOLDER", help="Search only videos below this folder.")
    ] = None
    after: Annotated[
        str | None, typer.Option(metavar="DAY", help="Only files changed on or after this day (2024-12-31).")
    ] = None
    before: Annotated[
        str | None, typer.Option(metavar="DAY", help="Only files changed on or before this day.")
    ] = None
    longer: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only videos at least this long: 90, 1:30 or 1:02:00.")
    ] = None
    shorter: Annotated[str | None, typer.Option(metavar="TIME", help="Only videos at most this long.")] = None

    def names(self, index: SearchIndex) -> str | frozenset[str] | None:
        """What `index.search` takes as its filter."""
        from holmes.serve.catalogue import Filter, VideoCatalogue, parse_day

        wanted = Filter(
            None if self.folder is None else os.path.abspath(self.folder),
            parse_day("--after", self.after),
            parse_day("--before", self.before),
            parse_time("--longer", self.longer),
            parse_time("--shorter", self.shorter),
        )
        if wanted == Filter():
            return self.filter
        catalogue = VideoCatalogue(index.durations)
        names = catalogue.names(wanted) or frozenset()
        if self.filter is not None:
            names &= catalogue.fitting(self.filter)
        if not names:
            raise HolmesError("no video matches the filters; remove one (--in, --after, --longer …).")
        return names


def parse_time(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    seconds = seconds_of(text)
    if seconds is None:
        raise HolmesError(f"{option} {text}: write a time as 90, 1:30 or 1:02:00.")
    return seconds
