"""`holmes search`: find videos and moments for a sentence; optionally play one."""

from __future__ import annotations

import json as json_format
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes.base.printing import clock, printable
from holmes.cli.options import AnyIndex, ModelOfIndex, VideoFilter, with_options
from holmes.errors import HolmesError

if TYPE_CHECKING:
    from rich.text import Text

    from holmes.index.answer.answers import Answer, Hit, Quote
    from holmes.index.answer.base import SearchIndex
    from holmes.results import Json

PROMPT = "what happens? "
BAR = 44  # characters of a timeline
# Program → its arguments for a file and a second, the best program first. The last ones know no seconds.
PLAYERS: dict[str, Callable[[str, float], list[str]]] = {
    "mpv": lambda file, second: [f"--start={second:.3f}", "--", file],
    "vlc": lambda file, second: [f"--start-time={second:.3f}", "--", file],
    "ffplay": lambda file, second: ["-loglevel", "error", "-ss", f"{second:.3f}", "-i", file],
    "xdg-open": lambda file, second: [file],
    "open": lambda file, second: [file],
}
FIT_COLOURS = {"fits": "green", "may fit": "yellow"}
COLOURS = {"precise": "green", "several_fit": "yellow", "too_little": "red", "not_here": "magenta"}


@with_options(VideoFilter)
def search(
    videos: VideoFilter,
    index: AnyIndex,
    sentence: Annotated[
        str | None,
        typer.Argument(
            metavar="SENTENCE", help="What happens in the moment you look for.", show_default="ask for it"
        ),
    ] = None,
    image: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Look for what this picture shows.")
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(metavar="VIDEO@1:23-1:30", help="Look for what a moment of a video in the index shows."),
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option("--not", metavar="SENTENCE", help="What must not be seen. Repeatable."),
    ] = None,
    then: Annotated[
        str | None, typer.Option(metavar="SENTENCE", help="What happens afterwards in the same video.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many videos to show.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one line per answer.")] = False,
    abstain_below: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, metavar="P", help="Do not answer if the first hit is less probable than this."
        ),
    ] = None,
    not_here_below: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="P",
            help="Answer 'not here' if that is the likeliest, and P(the video is here) is below this.",
            show_default="at most 70%",
        ),
    ] = None,
    min_probability: Annotated[float | None, typer.Option(min=0, max=1, hidden=True)] = None,
    expect_missing: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="P", help="The share of your searches whose video is not in the index."
        ),
    ] = 0.2,
    links: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Print links that open the page of 'holmes serve' at the moment, such as http://127.0.0.1:8000.",
        ),
    ] = None,
    play: Annotated[
        bool, typer.Option("--play", help="Open a player (mpv, vlc, ffplay …) at the first hit's moment.")
    ] = False,
    device: Annotated[
        str, typer.Option(help="auto, cpu or cuda; auto takes a GPU for many sentences.")
    ] = "auto",
    model: ModelOfIndex = None,
) -> None:
    """Find the videos that contain a moment, and say how sure the answer is.

    Without a sentence, the command asks for one after another until you enter an empty line. You can also
    pipe in sentences, one per line; each is printed above its answer. Answers to --image, --like, --not and
    --then have no probability.
    """
    from holmes.cluster.index import open_index

    not_here_below = min_probability if not_here_below is None else not_here_below
    if device == "auto" and sentence is not None:
        device = "cpu"  # one search takes less time than moving the embeddings
    page = None if links is None else page_address(links)
    composed = image is not None or like is not None or bool(leave_out) or then is not None
    given = {"--abstain-below": abstain_below, "--not-here-below": not_here_below, "--links": links}
    for option, value in given.items():
        if composed and value is not None:
            raise HolmesError(f"{option} needs a single sentence, without --image, --like, --not or --then.")
    opened = open_index(index, device=device, model=model)
    names = videos.names(opened)
    if composed:
        answer = opened.search_by(
            sentence, top, image=image, like=like, leave_out=leave_out or (), then=then, filter=names
        )
        if json:
            typer.echo(json_format.dumps(answer.to_dict()))
        else:
            _show(opened, answer)
        if play:
            _play(answer)
        return
    for words in _sentences(sentence):
        answer = opened.search(
            words,
            top,
            filter=names,
            abstain_below=abstain_below,
            not_here_below=not_here_below,
            expect_missing=expect_missing,
        )
        if json:
            typer.echo(json_format.dumps(with_links(answer.to_dict(), page, answer)))
        else:
            if sentence is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
                typer.echo(f"“{printable(words)}”")  # whoever reads the answers does not see the questions
            _show(opened, answer, page)
        if play:
            _play(answer)


def _sentences(sentence: str | None) -> Iterator[str]:
    if sentence is not None:
        yield sentence
        return
    while sys.stdin is not None:
        try:
            words = _line()
        except EOFError:
            return
        except UnicodeDecodeError:
            raise HolmesError(
                "the input is not valid UTF-8; convert the file, or type the sentence."
            ) from None
        if words:
            yield words
        elif sys.stdin.isatty():  # an empty line ends what a person types; in a file it means nothing
            return


def _line() -> str:
    """A typed or piped line. The prompt is for people: it stays out of a file that answers go into."""
    if not sys.stdin.isatty():
        return input().strip()
    if sys.stdout.isatty():
        return input(PROMPT).strip()
    typer.echo(PROMPT, nl=False, err=True)
    return input().strip()


def _show(index: SearchIndex, answer: Answer, page: str | None = None) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    diagnosis = answer.diagnosis
    colour = "cyan" if answer.abstained else COLOURS.get(diagnosis.kind, "cyan")
    line = Text(diagnosis.words, style=f"bold {colour}")
    line.append(f"  {diagnosis.explanation}", style="default")
    console.print(line)
    if diagnosis.kind != "precise" or answer.abstained:
        console.print(Text(diagnosis.advice, style="dim"))
    for rank, hit in enumerate(answer.hits, start=1):
        for part in _hit(rank, hit, index.duration(hit.video)):
            console.print(part)
        if page is not None:
            console.print(Text(f"     {moment_link(page, answer.query, hit)}", style="dim"))


def page_address(url: str) -> str:
    """The address of the page, checked."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise HolmesError(f"--links {url}: write the address of the page, such as http://127.0.0.1:8000.")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def moment_link(page: str, query: str, hit: Hit) -> str:
    """The page with this answer, playing this hit's best moment."""
    from urllib.parse import urlencode

    from holmes.media.feature_folder import video_id

    start = hit.moments[0].start if hit.moments else 0.0
    return f"{page}/?{urlencode({'q': query, 'play': video_id(Path(hit.video)), 't': f'{start:.1f}'})}"


def with_links(plain: Json, page: str | None, answer: Answer) -> Json:
    """An answer as JSON, each hit with its link."""
    if page is None:
        return plain
    linked = [{**hit.to_dict(), "link": moment_link(page, answer.query, hit)} for hit in answer.hits]
    return {**plain, "hits": linked}


def _play(answer: Answer) -> None:
    from holmes.cli.search import play

    if not answer.hits:
        raise HolmesError("nothing was found that could be played.")
    first = answer.hits[0]
    play(first.video, first.moments[0].start if first.moments else 0.0)


def _hit(rank: int, hit: Hit, duration: float) -> Iterator[Text]:
    from rich.text import Text

    from holmes.evidence.wording import percent

    head = Text(f"{rank:3}  ").append(printable(hit.video), style="bold")
    if hit.fit is not None:
        head.append(f"  {hit.fit}", style=FIT_COLOURS.get(hit.fit, "dim"))
    if hit.probability is not None:
        head.append(f"  {percent(hit.probability)}", style="dim")
    head.append(f"  score {hit.score:.3f}", style="dim")
    if hit.gone:
        head.append("  file is gone", style="red")
    yield head
    best, *others = hit.moments
    line = Text(f"     {_clock(best.start)}–{_clock(best.end)}")
    line.pad_right(max(1, 24 - len(line)))
    line.append_text(timeline(hit, duration)).append(f" {_clock(duration)}", style="dim")
    if others:
        line.append("  also " + ", ".join(_clock(moment.start) for moment in others), style="dim")
    yield line
    for quote in hit.quotes:
        yield _quote(quote)


def _quote(quote: Quote) -> Text:
    """Such as: said at 1:23: "… the engine of the red tractor would not start …", its words marked."""
    from rich.text import Text

    from holmes.index.answer.words import excerpt

    text, marks = excerpt(quote)
    line = Text(f"     {quote.kind} at {clock(quote.passage.start)}: “")
    done = 0
    for start, end in marks:
        line.append(printable(text[done:start])).append(printable(text[start:end]), style="bold yellow")
        done = end
    return line.append(printable(text[done:])).append("”")


def timeline(hit: Hit, duration: float) -> Text:
    """The video as a bar, its best moment bright, further ones dim."""
    from rich.text import Text

    bar = Text("─" * BAR, style="bright_black")
    for moment, style in [*((m, "green") for m in hit.moments[1:]), (hit.moments[0], "bold bright_green")]:
        first = min(BAR - 1, int(moment.start / max(duration, 1e-9) * BAR))
        last = min(BAR, max(first + 1, round(moment.end / max(duration, 1e-9) * BAR)))
        bar = Text.assemble(bar[:first], ("█" * (last - first), style), bar[last:])
    return bar


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds, 1), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{rest:04.1f}" if hours else f"{minutes}:{rest:04.1f}"


def player_command(file: str, second: float) -> list[str]:
    """The command that plays a file from a second on, with the first player that is installed."""
    for name, arguments in PLAYERS.items():
        if found := shutil.which(name):
            return [found, *arguments(file, second)]
    raise HolmesError(f"there is no player; install one of {', '.join(list(PLAYERS)[:3])}.")


def play(video: str, second: float) -> None:
    """Open a player, and wait until it is closed."""
    file = Path(video)
    if not file.is_absolute() or not file.is_file():
        raise HolmesError(f"{video} is gone; it can be found, but not played.")
    command = player_command(str(file), second)
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), f"code {done.returncode}")
        raise HolmesError(f"{command[0]} could not play it ({last.strip()}); install mpv or vlc.")
